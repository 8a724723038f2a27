/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of the tests of transport "mpi" (mpi.test starts them).
 *
 *     mpi_ranks good             everything that must work, and failures
 *     mpi_ranks big              a message over 1 GiB, ranks 0 and 1
 *     mpi_ranks wrong N          N ranks are wanted
 *     mpi_ranks told             waits, and is told of a rank that is "wrong"
 *     mpi_ranks lost FILE        a failure beside a large put without its get;
 *                                FILE: where rank 1 says that it was told
 *
 * A world of its own for each case, and one that stays, so that MPI does.
 */
#include "config.h"

#include "transport/transport.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static gyre_context *context;
static uint32_t rank, ranks;
static const char *stage = "start";
static gyre_endpoint *calm; /* of the world that stays */

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "rank %u of %u, %s, line %d: %s\n", rank, ranks, \
                    stage, __LINE__, #condition);                            \
            _exit(1);                                                        \
        }                                                                    \
    } while (0)

/* ---- waiting --------------------------------------------------------- */

typedef struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    unsigned ends;
    gyre_status status;
    char text[GYRE_ERROR_TEXT];
} waiter;

#define WAITER                                                               \
    {                                                                        \
        .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER \
    }

static void done(void *user, gyre_status status, const gyre_error *error)
{
    waiter *w = user;

    pthread_mutex_lock(&w->lock);
    w->ends++;
    if (status != GYRE_OK && w->status == GYRE_OK) {
        w->status = status;
        snprintf(w->text, sizeof(w->text), "%s", error->text);
    }
    pthread_cond_broadcast(&w->ended);
    pthread_mutex_unlock(&w->lock);
}

static gyre_status wait_for(waiter *w, unsigned ends)
{
    pthread_mutex_lock(&w->lock);
    while (w->ends < ends)
        pthread_cond_wait(&w->ended, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return w->status;
}

/* ---- worlds ---------------------------------------------------------- */

static gyre_world *open_world(gyre_world_options options,
                              gyre_endpoint **endpoint)
{
    gyre_world *world = NULL;
    gyre_error error = {0};
    uint32_t count;

    options.backend = "mpi";
    if (gyre_transport_create(context, &options, &world, &error) != GYRE_OK) {
        fprintf(stderr, "rank %u: %s\n", rank, error.text);
        _exit(1);
    }
    gyre_transport_local(world, &rank, &count);
    ranks = gyre_transport_ranks(world);
    CHECK(count == 1);
    /* As mpirun says to those that it starts. */
    const char *host = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    CHECK(gyre_transport_host(world) ==
          (host != NULL ? (uint32_t)atoi(host) : 1));
    CHECK(gyre_transport_endpoint(world, rank, endpoint, NULL) == GYRE_OK);
    return world;
}

static gyre_status begin(gyre_endpoint *endpoint, bool put, uint32_t peer,
                         uint32_t channel, gyre_extent *extent, void *data,
                         size_t bytes, waiter *w)
{
    gyre_message message = {put, peer, channel, extent, 1, bytes};

    *extent = (gyre_extent){data, bytes};
    return gyre_transport_begin(endpoint, 0, 0, &message, 1, done, w, NULL);
}

/* ---- what must work -------------------------------------------------- */

static uint8_t pattern(uint32_t from, size_t i)
{
    return (uint8_t)(from * 31 + i * 7 + i / 251);
}

/* A ring in which everybody puts first: `bytes` cut into extents of `cut`, with
 * gaps at the getting end. */
static void ring(gyre_world_options options, size_t bytes, size_t cut,
                 unsigned hops)
{
    gyre_endpoint *endpoint = NULL;
    gyre_world *world = open_world(options, &endpoint);
    size_t gap = 16, count = (bytes + cut - 1) / cut;
    uint8_t *from = malloc(bytes + 1), *to = malloc(bytes + count * gap + 1);
    gyre_extent one = {from, bytes};
    gyre_extent *many = malloc((count + 1) * sizeof(*many));
    waiter w = WAITER;

    for (size_t i = 0; i < count; i++)
        many[i] = (gyre_extent){to + i * (cut + gap),
                                i + 1 < count ? cut : bytes - i * cut};
    for (size_t i = 0; i < bytes; i++)
        from[i] = pattern(rank, i);
    for (unsigned hop = 0; hop < hops && ranks > 1; hop++) {
        uint32_t after = (rank + 1) % ranks,
                 before = (rank + ranks - 1) % ranks;
        gyre_message group[2] = {
            {true, after, hop % 2, &one, 1, bytes},
            {false, before, hop % 2, many, (uint32_t)count, bytes}};
        uint32_t home = (rank + (hop + 1) * (ranks - 1)) % ranks;

        memset(to, 0xee, bytes + count * gap + 1);
        CHECK(gyre_transport_begin(endpoint, 1, 0, group, 2, done, &w, NULL) ==
              GYRE_OK);
        CHECK(wait_for(&w, hop + 1) == GYRE_OK);
        for (size_t i = 0; i < bytes; i++) {
            from[i] = to[i / cut * (cut + gap) + i % cut];
            CHECK(from[i] == pattern(home, i));
        }
        for (size_t i = 0; i + 1 < count; i++)
            for (size_t g = 0; g < gap; g++)
                CHECK(to[i * (cut + gap) + cut + g] == 0xee);
    }
    if (ranks > 1) {
        gyre_link_count n = gyre_transport_count(endpoint, 0, 0);

        CHECK(n.sent == hops * bytes && n.received == hops * bytes);
        CHECK(n.puts == hops && n.gets == hops);
    }
    gyre_transport_destroy(world);
    free(from);
    free(to);
    free(many);
}

enum { CHANNELS = 4, DEEP = 5 };

/* Groups of all-to-all over many channels, begun before those before have
 * ended: the k-th put meets the k-th get. */
static void all_to_all(gyre_world_options options)
{
    gyre_endpoint *endpoint = NULL;
    gyre_world *world = open_world(options, &endpoint);
    uint32_t per = ranks * CHANNELS, n;
    uint32_t *sent = malloc(DEEP * per * 4), *got = malloc(DEEP * per * 4);
    gyre_extent *extents = malloc(DEEP * 2 * per * sizeof(*extents));
    gyre_message *group = malloc(2 * per * sizeof(*group));
    waiter w = WAITER;

    for (uint32_t k = 0; k < DEEP; k++) {
        gyre_extent *e = extents + k * 2 * per;

        n = 0;
        for (uint32_t i = 0; i < per; i++) {
            uint32_t peer = i / CHANNELS, channel = i % CHANNELS;

            if (peer == rank)
                continue;
            sent[k * per + i] = 1000000 * rank + 1000 * k + i;
            e[n] = (gyre_extent){&sent[k * per + i], 4};
            group[n] = (gyre_message){true, peer, channel, &e[n], 1, 4};
            n++;
            e[n] = (gyre_extent){&got[k * per + i], 4};
            group[n] = (gyre_message){false, peer, channel, &e[n], 1, 4};
            n++;
        }
        CHECK(gyre_transport_begin(endpoint, 0, 3, group, n, done, &w, NULL) ==
              GYRE_OK);
    }
    CHECK(wait_for(&w, DEEP) == GYRE_OK);
    for (uint32_t k = 0; k < DEEP; k++)
        for (uint32_t i = 0; i < per; i++)
            CHECK(i / CHANNELS == rank ||
                  got[k * per + i] == 1000000 * (i / CHANNELS) + 1000 * k +
                                          rank * CHANNELS + i % CHANNELS);
    gyre_transport_destroy(world);
    free(sent);
    free(got);
    free(extents);
    free(group);
}

static void collectives(void)
{
    gyre_endpoint *endpoint = NULL;
    gyre_world *world = open_world((gyre_world_options){0}, &endpoint);
    uint32_t *all = calloc(ranks, 4);
    size_t *sizes = calloc(ranks, sizeof(*sizes));

    for (uint32_t r = 0; r < ranks; r++) {
        sizes[r] = 4 * (r % 2); /* even ranks give nothing */
        if (r == rank && r % 2 == 1)
            all[r / 2] = 500 + r;
    }
    CHECK(gyre_transport_allgather(endpoint, sizes, all, NULL) == GYRE_OK);
    for (uint32_t r = 1; r < ranks; r += 2)
        CHECK(all[r / 2] == 500 + r);
    for (uint32_t root = 0; root < ranks; root++) {
        uint32_t word = rank == root ? 1000 + root : 0;

        CHECK(gyre_transport_broadcast(endpoint, root, &word, 4, NULL) ==
              GYRE_OK);
        CHECK(word == 1000 + root);
        word = 10 * root + rank;
        CHECK(gyre_transport_gather(endpoint, root, &word, 4, NULL,
                                    rank == root ? all : NULL,
                                    NULL) == GYRE_OK);
        for (uint32_t i = 0; i < ranks && rank == root; i++)
            CHECK(all[i] == 10 * root + i);
        CHECK(gyre_transport_barrier(endpoint, NULL) == GYRE_OK);
    }
    gyre_transport_destroy(world);
    free(all);
    free(sizes);
}

/* ---- what must fail -------------------------------------------------- */

/* A get that nobody serves, so that each failure has something to end. */
static void leave_pending(gyre_endpoint *endpoint, gyre_extent *extent,
                          uint32_t *into, waiter *w)
{
    CHECK(begin(endpoint, false, (rank + 1) % ranks, 77, extent, into, 4, w) ==
          GYRE_OK);
    CHECK(gyre_transport_barrier(calm, NULL) == GYRE_OK);
}

static void ended_with(waiter *w, unsigned ends, gyre_status status,
                       const char *const *parts)
{
    CHECK(wait_for(w, ends) == status);
    for (; *parts != NULL; parts++)
        if (strstr(w->text, *parts) == NULL) {
            fprintf(stderr, "rank %u, %s: no \"%s\" in: %s\n", rank, stage,
                    *parts, w->text);
            _exit(1);
        }
}

/* The put of rank 0 to 1 has more bytes than the get, or less. */
static void mismatch(size_t sent, size_t takes)
{
    gyre_endpoint *endpoint = NULL;
    gyre_world *world = open_world((gyre_world_options){0}, &endpoint);
    uint8_t *data = calloc(1, sent + takes);
    char has[64], takes_text[64];
    const char *const parts[] = {
        "put of rank 0 has ",  has, "rank 1", takes_text,
        "channel 6, number 0", NULL};
    gyre_extent extents[2];
    waiter w = WAITER, own = WAITER;
    uint32_t into;

    snprintf(has, sizeof(has), "%zu bytes", sent);
    snprintf(takes_text, sizeof(takes_text), "takes %zu", takes);
    leave_pending(endpoint, &extents[0], &into, &w);
    if (rank == 0)
        begin(endpoint, true, 1, 6, &extents[1], data, sent, &own);
    if (rank == 1)
        begin(endpoint, false, 0, 6, &extents[1], data, takes, &own);
    ended_with(&w, 1, GYRE_INVALID, parts);
    if (rank < 2)
        wait_for(&own, 1);
    CHECK(gyre_transport_check(world, NULL) == GYRE_INVALID);
    gyre_transport_destroy(world);
    free(data);
}

static void give_up(uint64_t delay)
{
    static const char *const parts[] = {"rank 1 gave up: no more", NULL};
    gyre_endpoint *endpoint = NULL;
    gyre_world *world =
        open_world((gyre_world_options){.delay = delay}, &endpoint);
    gyre_extent extent;
    gyre_error error;
    waiter w = WAITER;
    uint32_t into;

    leave_pending(endpoint, &extent, &into, &w);
    if (rank == 1)
        gyre_transport_abort(endpoint, GYRE_NO_SPACE, "no more");
    else
        CHECK(gyre_transport_barrier(endpoint, &error) == GYRE_NO_SPACE);
    ended_with(&w, 1, GYRE_NO_SPACE, parts);
    CHECK(begin(endpoint, false, (rank + 1) % ranks, 0, &extent, &into, 4,
                &w) == GYRE_NO_SPACE);
    gyre_transport_destroy(world);
}

/* Rank 0 alone has a timeout; all hear of it. */
static void time_out(void)
{
    static const char *const parts[] = {"rank 0 has waited 0.05 s",
                                        "put of rank 1",
                                        "channel 77",
                                        "number 0",
                                        "phase ring",
                                        NULL};
    gyre_endpoint *endpoint = NULL;
    gyre_world *world = open_world(
        (gyre_world_options){.timeout = rank == 0 ? 50000000 : 0}, &endpoint);
    gyre_extent extent;
    waiter w = WAITER;
    uint32_t into;

    leave_pending(endpoint, &extent, &into, &w);
    ended_with(&w, 1, GYRE_IO, parts);
    gyre_transport_destroy(world);
}

/* ---- programs -------------------------------------------------------- */

static void good(void)
{
    gyre_world *stays = open_world((gyre_world_options){.ranks = 0}, &calm);
    gyre_world_options plain = {0},
                       delayed = {.delay = 2000000, .delay_seed = 3};

    stage = "ring";
    ring(plain, 100, 100, 5);
    ring(plain, 0, 1, 3);
    ring(plain, 100000, 1000, 2 * ranks + 1);
    ring((gyre_world_options){.timeout = 60000000000}, 3 << 20, 1 << 16, 3);
    stage = "ring, delayed";
    ring(delayed, 5000, 77, 5);
    stage = "ring in pieces";
    ring((gyre_world_options){.piece = 1000}, 10007, 700, 4);
    ring((gyre_world_options){.piece = 1000}, 3000, 10000, 4);
    stage = "all to all";
    all_to_all(plain);
    all_to_all(delayed);
    stage = "collectives";
    collectives();
    if (ranks > 1) {
        stage = "mismatch";
        mismatch(64, 32);
        mismatch(32, 64);
        mismatch(200000, 100000);
        stage = "abort";
        give_up(0);
        give_up(UINT64_C(3600000000000));
        stage = "timeout";
        time_out();
    }
    stage = "the world that stays";
    CHECK(gyre_transport_barrier(calm, NULL) == GYRE_OK);
    gyre_transport_destroy(stays);
}

/* MPI ends with the last world. */
static void cannot_start_again(void)
{
    gyre_world_options options = {.backend = "mpi"};
    gyre_world *world = NULL;
    gyre_error error = {0};

    stage = "again";
    CHECK(gyre_transport_create(context, &options, &world, &error) ==
          GYRE_STATE);
    CHECK(strstr(error.text, "keep one world") != NULL);
}

static void big(void)
{
    size_t bytes = ((size_t)1 << 30) + 12345;

    stage = "big";
    ring((gyre_world_options){0}, bytes, bytes / 3, 1);
}

/* Rank 1 says to rank 0, without MPI, that it has come here. */
static void meet(const char *file)
{
    FILE *f;

    if (rank == 1) {
        f = fopen(file, "w");
        CHECK(f != NULL);
        fclose(f);
    }
    while (access(file, F_OK) != 0)
        usleep(1000);
}

/* The large put waits for its get in MPI, which cannot take it back.  The world
 * of calm breaks then, too: MPI would move memory that is the caller's. */
static void lost(const char *file)
{
    static const char *const parts[] = {"rank 1 gave up: lost", NULL};
    static const char *const held[] = {"another transport of rank 0 broke",
                                       "start the program again", NULL};
    gyre_endpoint *endpoint = NULL;
    gyre_world *stays = open_world((gyre_world_options){0}, &calm);
    gyre_world *world = open_world((gyre_world_options){0}, &endpoint);
    gyre_world_options options = {.backend = "mpi"};
    static uint8_t data[1 << 22];
    gyre_extent extent, other;
    waiter w = WAITER, rest = WAITER;
    uint32_t into;
    gyre_error error = {0};

    stage = "lost";
    if (rank == 0)
        begin(endpoint, true, 1, 0, &extent, data, sizeof(data), &w);
    leave_pending(calm, &other, &into, &rest);
    if (rank == 1)
        gyre_transport_abort(endpoint, GYRE_STOPPED, "lost");
    if (rank == 0)
        ended_with(&w, 1, GYRE_STOPPED, parts);
    ended_with(&rest, 1, GYRE_STATE, held);
    meet(file);
    if (rank == 0) {
        CHECK(gyre_transport_create(context, &options, &world, &error) ==
              GYRE_STATE);
        CHECK(strstr(error.text, "start the program again") != NULL);
        fprintf(stderr, "lost: told\n");
    }
    gyre_transport_destroy(world);
    gyre_transport_destroy(stays);
}

static void told(void)
{
    static const char *const parts[] = {
        "rank 0 gave up: mpi: 3 ranks are wanted and MPI's world has 2", NULL};
    gyre_endpoint *endpoint = NULL;
    gyre_world *world = open_world((gyre_world_options){0}, &endpoint);
    gyre_extent extent;
    waiter w = WAITER;
    uint32_t into;

    stage = "told";
    if (begin(endpoint, false, 0, 0, &extent, &into, 4, &w) == GYRE_OK)
        ended_with(&w, 1, GYRE_INVALID, parts);
    CHECK(gyre_transport_check(world, NULL) == GYRE_INVALID);
    fprintf(stderr, "this rank was told\n");
    gyre_transport_destroy(world);
}

static int wrong(const char *count)
{
    gyre_world_options options = {.backend = "mpi"};
    gyre_world *world = NULL;
    gyre_error error = {0};

    options.ranks = (uint32_t)strtoul(count, NULL, 10);
    if (gyre_transport_create(context, &options, &world, &error) == GYRE_OK)
        return 1;
    fprintf(stderr, "%s\n", error.text);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "good";
    int code = 0;

    if (gyre_context_create(NULL, &context, NULL) != GYRE_OK)
        return 1;
    if (strcmp(what, "good") == 0) {
        good();
        cannot_start_again();
    } else if (strcmp(what, "big") == 0) {
        big();
    } else if (strcmp(what, "lost") == 0 && argc > 2) {
        lost(argv[2]);
    } else if (strcmp(what, "told") == 0) {
        told();
    } else if (strcmp(what, "wrong") == 0 && argc > 2) {
        code = wrong(argv[2]);
    } else {
        return 2;
    }
    if (gyre_context_memory(context, NULL) > 1 << 20) {
        fprintf(stderr, "rank %u: memory is left\n", rank);
        code = 1;
    }
    gyre_context_destroy(context);
    return code;
}
