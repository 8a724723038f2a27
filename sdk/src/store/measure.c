/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast places are: a short trial on a file without a name.
 *
 *     write  the file, once, or for a third of the time
 *     read   what was written, for a third of the time
 *     both   in turn, for the rest: what an update does
 *
 * All places at the same time, each by a thread of its own: those that share a
 * disk or a link share it here, too.  A block file is read only, for it may be
 * anybody's; then all places are compared by their reads.
 */
#include "config.h"

#include "store/place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { BLOCK = 262144, DEPTH = 4, LEAST = 4 * BLOCK };

static const uint64_t default_bytes = 64u << 20;
static const uint64_t default_ns = 1500000000;

typedef struct place_trial {
    gyre_context *context;
    const char *path;
    uint64_t bytes, ns; /* allowed */
    pthread_t thread;
    bool started, block;
    int fd;
    gyre_io *io;
    char *data; /* DEPTH blocks */
    uint64_t blocks;
    gyre_device_speed speed;
    gyre_error error;
} place_trial;

/* ---- moving ----------------------------------------------------------- */

/* What one phase does: of `reads + writes` operations in turn so many. */
typedef struct phase {
    unsigned reads, writes;
    uint64_t most; /* operations; then it ends, or when the time is over */
} phase;

static gyre_status submit(place_trial *t, const phase *p, uint64_t n,
                          uintptr_t slot, gyre_error *error)
{
    gyre_io_op op = {.kind = n % (p->reads + p->writes) < p->reads
                                 ? GYRE_IO_READ
                                 : GYRE_IO_WRITE,
                     .buffer = -1,
                     .data = t->data + slot * BLOCK,
                     .bytes = BLOCK,
                     .offset = n % t->blocks * BLOCK,
                     .user = (void *)slot};

    return gyre_io_submit(t->io, &op, error);
}

/* Keep DEPTH operations in flight; *done counts those that ended. */
static gyre_status pump(place_trial *t, const phase *p, uint64_t until,
                        uint64_t *done, gyre_error *error)
{
    uint64_t begun = 0, least = p->reads + p->writes;
    gyre_status status = GYRE_OK;

    *done = 0;
    while (status == GYRE_OK && begun < DEPTH && begun < p->most) {
        status = submit(t, p, begun, (uintptr_t)begun, error);
        begun += status == GYRE_OK;
    }
    while (gyre_io_in_flight(t->io) > 0) {
        gyre_io_done one;
        size_t count = 0;
        gyre_status waited = gyre_io_wait(t->io, &one, 1, 1, &count, error);

        if (waited == GYRE_OK)
            waited = gyre_io_report(t->io, &one, error);
        if (waited != GYRE_OK && count == 0)
            return waited; /* the queue itself: destroy waits */
        if (status == GYRE_OK)
            status = waited;
        ++*done;
        if (status == GYRE_OK && begun < p->most &&
            (begun < least || gyre_now() < until)) {
            status = submit(t, p, begun, (uintptr_t)one.op.user, error);
            begun += status == GYRE_OK;
        }
    }
    return status;
}

/* One phase; what was written counts once it is flushed. */
static gyre_status measure(place_trial *t, phase p, double *rate,
                           uint64_t *done, gyre_error *error)
{
    gyre_io_op flush = {.kind = GYRE_IO_FLUSH};
    uint64_t begun = gyre_now();
    gyre_status status = pump(t, &p, begun + t->ns / 3, done, error);
    uint64_t ns;

    if (status == GYRE_OK && p.writes > 0)
        status = gyre_io_do(t->io, &flush, error);
    if (status != GYRE_OK)
        return status;
    ns = gyre_now() - begun;
    *rate = (double)*done * BLOCK * 1e9 / (double)(ns > 0 ? ns : 1);
    t->speed.bytes += *done * BLOCK;
    return GYRE_OK;
}

/* ---- one place -------------------------------------------------------- */

static gyre_status choose_bytes(place_trial *t, gyre_error *error)
{
    struct statvfs fs;
    uint64_t room;

    if (statvfs(t->path, &fs) != 0)
        return gyre_fail_errno(error, GYRE_IO, errno, "cannot look at %s",
                               t->path);
    room = (uint64_t)fs.f_bavail * fs.f_frsize / 2;
    if (t->bytes > room)
        t->bytes = room;
    if (t->bytes < LEAST)
        return gyre_fail(error, GYRE_NO_SPACE,
                         "%s: %llu bytes are free; measuring it takes %d, and "
                         "leaves as much",
                         t->path, (unsigned long long)room * 2, LEAST);
    return GYRE_OK;
}

/* A file that nobody sees, and that goes with its descriptor. */
static gyre_status open_hidden(place_trial *t, gyre_error *error)
{
    char path[4096], text[37];
    uint8_t uuid[16];
    gyre_status status = choose_bytes(t, error);

    if (status == GYRE_OK)
        status = gyre_random_uuid(uuid, error);
    if (status != GYRE_OK)
        return status;
    gyre_uuid_text(uuid, text);
    snprintf(path, sizeof(path), "%s/measure-%s", t->path, text);
    status = gyre_io_open_file(path, 1, &t->fd, &t->speed.direct, error);
    if (status != GYRE_OK)
        return status;
    unlink(path);
    t->blocks = t->bytes / BLOCK;
    return gyre_io_reserve(t->fd, t->path, t->blocks * BLOCK, error);
}

static gyre_status open_block(place_trial *t, gyre_error *error)
{
    gyre_status status =
        gyre_io_open_file(t->path, 0, &t->fd, &t->speed.direct, error);
    off_t end;

    if (status != GYRE_OK)
        return status;
    end = lseek(t->fd, 0, SEEK_END);
    t->blocks = end > 0 ? (uint64_t)end / BLOCK : 0;
    if (t->blocks > t->bytes / BLOCK)
        t->blocks = t->bytes / BLOCK;
    if (t->blocks == 0)
        return gyre_fail(error, GYRE_NO_SPACE,
                         "%s has fewer than the %d bytes that measuring takes",
                         t->path, BLOCK);
    return GYRE_OK;
}

static gyre_status open_place(place_trial *t, gyre_error *error)
{
    const gyre_io_options options = {.engine = "auto", .depth = DEPTH};
    uint64_t state = 1;
    uint32_t file;
    gyre_status status;

    t->data = gyre_alloc_aligned(t->context, DEPTH * BLOCK, 65536);
    if (t->data == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory to measure %s",
                         t->path);
    /* Zeros would be nothing to a drive that compresses. */
    for (size_t i = 0; i < DEPTH * BLOCK; i += 8) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        memcpy(t->data + i, &state, 8);
    }
    status = t->block ? open_block(t, error) : open_hidden(t, error);
    if (status == GYRE_OK)
        status = gyre_io_create(t->context, &options, &t->io, error);
    if (status == GYRE_OK)
        status = gyre_io_add_file(t->io, t->fd, t->path, &file, error);
    return status;
}

static gyre_status try_place(place_trial *t, gyre_error *error)
{
    gyre_device_speed *s = &t->speed;
    uint64_t done;
    gyre_status status = open_place(t, error);

    if (status == GYRE_OK && !t->block) {
        status =
            measure(t, (phase){0, 1, t->blocks}, &s->write_rate, &done, error);
        if (status == GYRE_OK)
            t->blocks = done;
    }
    if (status == GYRE_OK)
        status =
            measure(t, (phase){1, 0, UINT64_MAX}, &s->read_rate, &done, error);
    s->rate = s->read_rate;
    if (status == GYRE_OK && !t->block)
        status = measure(t, (phase){1, 1, UINT64_MAX}, &s->rate, &done, error);
    gyre_io_destroy(t->io);
    if (t->fd >= 0)
        close(t->fd);
    if (t->data != NULL)
        gyre_free_aligned(t->context, t->data, DEPTH * BLOCK, 65536);
    return status;
}

static void *run_trial(void *user)
{
    place_trial *t = user;

    t->error.status = try_place(t, &t->error);
    return NULL;
}

/* ---- all of them ------------------------------------------------------ */

static void start_all(place_trial *trials, size_t count)
{
    for (size_t d = 0; d < count; d++) {
        place_trial *t = &trials[d];
        int err = pthread_create(&t->thread, NULL, run_trial, t);

        t->started = err == 0;
        if (!t->started)
            gyre_fail_errno(&t->error, GYRE_SYSTEM, err,
                            "cannot start a thread to measure %s", t->path);
    }
}

/* Weights in the proportion of the rates, 1 in the mean. */
static void weigh(place_trial *trials, size_t count, gyre_device_speed *speeds)
{
    bool blocks = false;
    double sum = 0;

    for (size_t d = 0; d < count; d++)
        blocks |= trials[d].block;
    for (size_t d = 0; d < count; d++) {
        speeds[d] = trials[d].speed;
        speeds[d].weight = blocks ? speeds[d].read_rate : speeds[d].rate;
        sum += speeds[d].weight;
    }
    for (size_t d = 0; d < count; d++)
        speeds[d].weight *= (double)count / sum;
}

static gyre_status check(const char *const *devices, size_t count,
                         const gyre_device_speed *speeds, gyre_error *error)
{
    if (count < 1 || count > GYRE_MAX_DEVICES)
        return gyre_fail(error, GYRE_RANGE,
                         "%zu devices to measure; 1 to %d are allowed", count,
                         GYRE_MAX_DEVICES);
    if (devices == NULL || speeds == NULL)
        return gyre_fail(error, GYRE_INVALID,
                         "measuring needs a list of devices and room for their "
                         "speeds");
    for (size_t d = 0; d < count; d++)
        if (devices[d] == NULL)
            return gyre_fail(error, GYRE_INVALID,
                             "device %zu to measure has no path", d);
    return GYRE_OK;
}

gyre_status gyre_store_measure(gyre_context *context,
                               const char *const *devices, size_t count,
                               uint64_t bytes, uint64_t ns,
                               gyre_device_speed *speeds, gyre_error *error)
{
    place_trial *trials;
    gyre_status status = check(devices, count, speeds, error);

    if (status != GYRE_OK)
        return status;
    trials = gyre_alloc_zero(context, count, sizeof(*trials));
    if (trials == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory to measure devices");
    for (size_t d = 0; d < count; d++) {
        place_trial *t = &trials[d];

        t->context = context;
        t->path = devices[d];
        t->bytes = bytes != 0 ? bytes : default_bytes;
        t->ns = ns != 0 ? ns : default_ns;
        t->block = gyre_place_is_block(devices[d]);
        t->fd = -1;
    }
    start_all(trials, count);
    for (size_t d = 0; d < count; d++) {
        if (trials[d].started)
            pthread_join(trials[d].thread, NULL);
        if (status == GYRE_OK && trials[d].error.status != GYRE_OK) {
            status = trials[d].error.status;
            if (error != NULL)
                *error = trials[d].error;
        }
    }
    if (status == GYRE_OK)
        weigh(trials, count, speeds);
    gyre_free(context, trials, count, sizeof(*trials));
    return status;
}
