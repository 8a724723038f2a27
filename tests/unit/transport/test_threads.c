/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads: who meets whom, what is moved, counted and traced. */
#include "config.h"

#include "ranks.h"

#include "transport/inner.h"

#include <gyre/trace.h>

enum { CHANNELS = 3, DEEP = 4 };

/* ---- order ----------------------------------------------------------- */

typedef struct lattice {
    one put[DEEP][CHANNELS], get[DEEP][CHANNELS];
    uint32_t sent[DEEP][CHANNELS], got[DEEP][CHANNELS];
    waiter puts, gets;
} lattice;

static void put_all(ranks *r, lattice *l, bool ends_at_once)
{
    for (uint32_t k = 0; k < DEEP; k++)
        for (uint32_t c = 0; c < CHANNELS; c++) {
            uint32_t *value = &l->sent[k][c];
            gyre_message *m = one_put(&l->put[k][c], 1, c, value, 4);

            *value = 100 * c + k;
            assert_int_equal(begin_one(r->at[0], m, &l->puts, NULL), GYRE_OK);
            if (ends_at_once)
                *value = 0xdead;
        }
}

static void get_all(ranks *r, lattice *l)
{
    for (uint32_t k = 0; k < DEEP; k++)
        for (uint32_t c = 0; c < CHANNELS; c++) {
            gyre_message *m = one_get(&l->get[k][c], 0, c, &l->got[k][c], 4);

            assert_int_equal(begin_one(r->at[1], m, &l->gets, NULL), GYRE_OK);
        }
}

/* The k-th put meets the k-th get of a channel, whoever comes first; a put
 * without its get has not ended, unless it is buffered. */
static void order(bool puts_first, bool buffered)
{
    gyre_world_options options = {.ranks = 2, .buffered = buffered};
    lattice l = {.puts = WAITER, .gets = WAITER};
    ranks r;

    ranks_begin(&r, &options);
    if (puts_first) {
        put_all(&r, &l, buffered);
        assert_int_equal(waiter_ends(&l.puts), buffered ? DEEP * CHANNELS : 0);
        get_all(&r, &l);
    } else {
        get_all(&r, &l);
        assert_int_equal(waiter_ends(&l.gets), 0);
        put_all(&r, &l, true);
    }
    assert_int_equal(waiter_wait(&l.puts, DEEP * CHANNELS), GYRE_OK);
    assert_int_equal(waiter_wait(&l.gets, DEEP * CHANNELS), GYRE_OK);
    for (uint32_t k = 0; k < DEEP; k++)
        for (uint32_t c = 0; c < CHANNELS; c++)
            assert_int_equal(l.got[k][c], 100 * c + k);
    ranks_end(&r);
}

static void test_kth_put_meets_kth_get(void **state)
{
    (void)state;
    order(true, false);
    order(false, false);
}

static void test_a_buffered_put_ends_at_once(void **state)
{
    (void)state;
    order(true, true);
    order(false, true);
}

/* Both ends cut the bytes in their own way. */
static void test_extents_are_cut_differently(void **state)
{
    static const size_t to_cut[] = {0, 7, 100, 1, 0, 892},
                        from_cut[] = {500, 0, 500};
    uint8_t from[3 * 600], to[6 * 1000];
    gyre_extent from_extents[3], to_extents[6];
    gyre_message put = {true, 1, 9, from_extents, 3, 1000},
                 get = {false, 0, 9, to_extents, 6, 1000};

    (void)state;
    for (int buffered = 0; buffered < 2; buffered++) {
        gyre_world_options options = {.ranks = 2, .buffered = buffered != 0};
        waiter w = WAITER;
        size_t n = 0;
        ranks r;

        ranks_begin(&r, &options);
        memset(to, 0xee, sizeof(to));
        for (uint32_t i = 0; i < 3; i++) {
            from_extents[i] = (gyre_extent){from + 600 * i, from_cut[i]};
            for (size_t b = 0; b < from_cut[i]; b++)
                from[600 * i + b] = (uint8_t)(n++ % 251);
        }
        for (uint32_t i = 0; i < 6; i++)
            to_extents[i] = (gyre_extent){to + 1000 * i, to_cut[i]};
        assert_int_equal(begin_one(r.at[0], &put, &w, NULL), GYRE_OK);
        assert_int_equal(begin_one(r.at[1], &get, &w, NULL), GYRE_OK);
        assert_int_equal(waiter_wait(&w, 2), GYRE_OK);
        n = 0;
        for (uint32_t i = 0; i < 6; i++)
            for (size_t b = 0; b < 1000; b++)
                assert_int_equal(to[1000 * i + b],
                                 b < to_cut[i] ? n++ % 251 : 0xee);
        ranks_end(&r);
    }
}

/* ---- rings and all-to-all -------------------------------------------- */

enum { HOPS = 50, BYTES = 4096 };

/* Everybody puts first and in the same group gets: hops of a ring, the block
 * that is home again after each turn. */
static void ring_body(gyre_endpoint *endpoint, void *user)
{
    const ranks *r = user;
    uint32_t rank = gyre_transport_rank(endpoint), count = r->count;
    uint8_t *block[2] = {malloc(BYTES), malloc(BYTES)};
    waiter w = WAITER;

    memset(block[0], (int)rank, BYTES);
    for (unsigned hop = 0; hop < HOPS; hop++) {
        one put, get;
        gyre_message group[2];
        uint8_t want = (uint8_t)((rank + count * HOPS - hop - 1) % count);

        group[0] = *one_put(&put, (rank + 1) % count, 0, block[hop % 2], BYTES);
        group[1] = *one_get(&get, (rank + count - 1) % count, 0,
                            block[(hop + 1) % 2], BYTES);
        assert_int_equal(gyre_transport_begin(endpoint, 1, 0, group, 2,
                                              waiter_done, &w, NULL),
                         GYRE_OK);
        assert_int_equal(waiter_wait(&w, hop + 1), GYRE_OK);
        assert_int_equal(block[(hop + 1) % 2][0], want);
        assert_int_equal(block[(hop + 1) % 2][BYTES - 1], want);
    }
    free(block[0]);
    free(block[1]);
}

static void test_rings_of_two_and_odd_where_all_put_first(void **state)
{
    static const uint32_t counts[] = {2, 3, 5, 7, 8};

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        for (int way = 0; way < 3; way++) {
            gyre_world_options options = {.ranks = counts[i],
                                          .buffered = way == 1,
                                          .delay = way == 2 ? 20000 : 0,
                                          .delay_seed = i,
                                          .timeout = 60000000000};
            ranks r;

            ranks_begin(&r, &options);
            each_rank(&r, ring_body, &r);
            ranks_end(&r);
        }
}

/* Groups of one lane may be begun before the ones before have ended. */
static void all_to_all_body(gyre_endpoint *endpoint, void *user)
{
    const ranks *r = user;
    uint32_t rank = gyre_transport_rank(endpoint), n = 0;
    uint32_t sent[MAX_RANKS][CHANNELS], got[DEEP][MAX_RANKS][CHANNELS];
    static const uint32_t mark = 0x10000;
    one ones[DEEP][2 * MAX_RANKS * CHANNELS];
    gyre_message group[2 * MAX_RANKS * CHANNELS];
    waiter w = WAITER;

    for (uint32_t p = 0; p < r->count; p++)
        for (uint32_t c = 0; c < CHANNELS; c++)
            sent[p][c] = mark * rank + 100 * p + c;
    for (uint32_t k = 0; k < DEEP; k++) {
        n = 0;
        for (uint32_t p = 0; p < r->count; p++)
            for (uint32_t c = 0; c < CHANNELS && p != rank; c++) {
                group[n] = *one_put(&ones[k][n], p, c, &sent[p][c], 4);
                n++;
                group[n] = *one_get(&ones[k][n], p, c, &got[k][p][c], 4);
                n++;
            }
        assert_int_equal(gyre_transport_begin(endpoint, 0, 3, group, n,
                                              waiter_done, &w, NULL),
                         GYRE_OK);
    }
    assert_int_equal(waiter_wait(&w, DEEP), GYRE_OK);
    for (uint32_t k = 0; k < DEEP; k++)
        for (uint32_t p = 0; p < r->count; p++)
            for (uint32_t c = 0; c < CHANNELS && p != rank; c++)
                assert_int_equal(got[k][p][c], mark * p + 100 * rank + c);
}

static void test_all_to_all_on_many_channels(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 8; seed++) {
        gyre_world_options options = {.ranks = 2 + seed,
                                      .buffered = seed % 2 == 1,
                                      .delay = seed % 3 == 0 ? 100000 : 0,
                                      .delay_seed = seed};
        ranks r;

        ranks_begin(&r, &options);
        each_rank(&r, all_to_all_body, &r);
        ranks_end(&r);
    }
}

static void test_a_group_of_no_messages_is_done(void **state)
{
    gyre_world_options options = {.ranks = 1, .delay = 1000};
    waiter w = WAITER;
    ranks r;

    (void)state;
    ranks_begin(&r, &options);
    assert_int_equal(
        gyre_transport_begin(r.at[0], 0, 0, NULL, 0, waiter_done, &w, NULL),
        GYRE_OK);
    assert_int_equal(waiter_wait(&w, 1), GYRE_OK);
    ranks_end(&r);
}

/* ---- delays ---------------------------------------------------------- */

/* Never sooner than both draws of a buffered put, which waits for nobody: no
 * upper bound, so a slow machine does no harm. */
static void test_delays_come_before_start_and_end(void **state)
{
    gyre_route route = {.from = 0, .to = 1};
    gyre_flight like = {.route = &route, .cargo.message.put = true};
    uint64_t start = 0, end = 0, begun;
    uint32_t sent = 5;
    one put;

    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        gyre_world_options options = {.ranks = 2,
                                      .buffered = true,
                                      .delay = 20000000,
                                      .delay_seed = seed};
        waiter w = WAITER;
        ranks r;

        ranks_begin(&r, &options);
        start += gyre_clock_draw(r.world, &like, GYRE_FLIGHT_START);
        end += gyre_clock_draw(r.world, &like, GYRE_FLIGHT_END);
        begun = gyre_now();
        begin_one(r.at[0], one_put(&put, 1, 0, &sent, 4), &w, NULL);
        assert_int_equal(waiter_wait(&w, 1), GYRE_OK);
        assert_true(gyre_now() - begun >=
                    gyre_clock_draw(r.world, &like, GYRE_FLIGHT_START) +
                        gyre_clock_draw(r.world, &like, GYRE_FLIGHT_END));
        ranks_end(&r);
    }
    /* Both are there, and they are not the same. */
    assert_true(start > 4000000 && end > 4000000 && start != end);
}

typedef struct turns {
    pthread_mutex_t lock;
    unsigned count, order[2 * CHANNELS * DEEP];
} turns;

typedef struct turn {
    turns *turns;
    unsigned index;
    waiter *w;
} turn;

static void note_turn(void *user, gyre_status status, const gyre_error *error)
{
    turn *t = user;

    pthread_mutex_lock(&t->turns->lock);
    t->turns->order[t->turns->count++] = t->index;
    pthread_mutex_unlock(&t->turns->lock);
    waiter_done(t->w, status, error);
}

/* With delays groups end in an order that is not the one of their begin, which
 * they keep without: this is what shows mistakes of order. */
static bool ends_out_of_order(uint64_t delay)
{
    gyre_world_options options = {.ranks = 2, .delay = delay};
    turns t = {.lock = PTHREAD_MUTEX_INITIALIZER};
    turn each[DEEP * CHANNELS];
    lattice l = {.puts = WAITER, .gets = WAITER};
    bool turned = false;
    ranks r;

    ranks_begin(&r, &options);
    get_all(&r, &l);
    for (unsigned i = 0; i < DEEP * CHANNELS; i++) {
        uint32_t k = i / CHANNELS, c = i % CHANNELS;

        each[i] = (turn){&t, i, &l.puts};
        l.sent[k][c] = 100 * c + k;
        assert_int_equal(
            gyre_transport_begin(r.at[0], 0, 0,
                                 one_put(&l.put[k][c], 1, c, &l.sent[k][c], 4),
                                 1, note_turn, &each[i], NULL),
            GYRE_OK);
    }
    waiter_wait(&l.puts, DEEP * CHANNELS);
    waiter_wait(&l.gets, DEEP * CHANNELS);
    for (unsigned i = 0; i < DEEP * CHANNELS; i++) {
        turned |= t.order[i] != i;
        assert_int_equal(l.got[i / CHANNELS][i % CHANNELS],
                         100 * (i % CHANNELS) + i / CHANNELS);
    }
    ranks_end(&r);
    return turned;
}

static void test_delays_change_the_order_of_ends(void **state)
{
    (void)state;
    assert_false(ends_out_of_order(0));
    assert_true(ends_out_of_order(2000000));
}

/* ---- ledger and trace ------------------------------------------------ */

static uint32_t near_or_far(void *user, uint32_t from, uint32_t to)
{
    uint32_t node = *(uint32_t *)user;

    return from / node == to / node ? 0 : 1;
}

static void test_bytes_are_counted_by_rank_phase_and_class(void **state)
{
    static const char *const phases[] = {"ring", "home"};
    static const char *const classes[] = {"near", "far"};
    uint32_t node = 2, phase = 0;
    gyre_world_options options = {.ranks = 4,
                                  .phases = phases,
                                  .phase_count = 2,
                                  .links = {2, classes, near_or_far, &node}};
    uint8_t data[2][300];
    gyre_link_count count;
    waiter w = WAITER;
    one o[2];
    ranks r;

    (void)state;
    ranks_begin(&r, &options);
    for (uint32_t to = 1; to < 4; to++) {
        phase = to == 3;
        gyre_transport_begin(r.at[0], 0, phase,
                             one_put(&o[0], to, 0, data[0], 100 * to), 1,
                             waiter_done, &w, NULL);
        gyre_transport_begin(r.at[to], 0, phase,
                             one_get(&o[1], 0, 0, data[1], 100 * to), 1,
                             waiter_done, &w, NULL);
    }
    assert_int_equal(waiter_wait(&w, 6), GYRE_OK);
    assert_string_equal(gyre_transport_phase_name(r.world, 1), "home");
    assert_string_equal(gyre_transport_class_name(r.world, 1), "far");
    assert_int_equal(gyre_transport_phases(r.world), 2);
    assert_int_equal(gyre_transport_classes(r.world), 2);
    count = gyre_transport_count(r.at[0], 0, 0);
    assert_int_equal(count.sent, 100);
    assert_int_equal(count.puts, 1);
    assert_int_equal(count.received, 0);
    assert_int_equal(gyre_transport_count(r.at[0], 0, 1).sent, 200);
    assert_int_equal(gyre_transport_count(r.at[0], 1, 1).sent, 300);
    assert_int_equal(gyre_transport_count(r.at[0], 1, 0).sent, 0);
    assert_int_equal(gyre_transport_count(r.at[1], 0, 0).received, 100);
    assert_int_equal(gyre_transport_count(r.at[2], 0, 1).received, 200);
    count = gyre_transport_count(r.at[3], 1, 1);
    assert_int_equal(count.received, 300);
    assert_int_equal(count.gets, 1);
    assert_int_equal(count.sent, 0);
    gyre_transport_forget(r.world);
    assert_int_equal(gyre_transport_count(r.at[3], 1, 1).received, 0);
    ranks_end(&r);
}

static int sum_spans(void *user, const gyre_span *span)
{
    uint64_t *sums = user;

    assert_int_equal(span->category, GYRE_TRACE_LINK);
    if (strcmp(span->name, "put ring") == 0)
        sums[0] += span->arg;
    if (strcmp(span->name, "get ring") == 0)
        sums[1] += span->arg;
    return 0;
}

static void test_every_message_is_traced(void **state)
{
    unit_memory memory = {0};
    gyre_context_options context_options = unit_options(&memory);
    gyre_world_options options = {.ranks = 3};
    uint64_t sums[2] = {0, 0};
    ranks r = {0};

    (void)state;
    context_options.trace_records = 4096;
    assert_int_equal(gyre_context_create(&context_options, &r.context, NULL),
                     GYRE_OK);
    if (gyre_trace_intern(r.context, "any") == 0) {
        gyre_context_destroy(r.context);
        skip();
    }
    ranks_open(&r, &options);
    each_rank(&r, ring_body, &r);
    gyre_trace_each(r.context, sum_spans, sums, NULL);
    assert_int_equal(sums[0], 3 * HOPS * BYTES);
    assert_int_equal(sums[1], 3 * HOPS * BYTES);
    gyre_transport_destroy(r.world);
    gyre_context_destroy(r.context);
    unit_memory_check(&memory);
}

/* ---- collectives ----------------------------------------------------- */

static void collective_body(gyre_endpoint *endpoint, void *user)
{
    const ranks *r = user;
    uint32_t rank = gyre_transport_rank(endpoint), all[MAX_RANKS] = {0};
    size_t sizes[MAX_RANKS], at = 0;
    uint8_t bytes[MAX_RANKS * MAX_RANKS], own[MAX_RANKS];

    memset(own, (int)rank, sizeof(own));
    for (uint32_t root = 0; root < r->count; root++) {
        uint32_t word = rank == root ? 1000 + root : 0;

        assert_int_equal(
            gyre_transport_broadcast(endpoint, root, &word, 4, NULL), GYRE_OK);
        assert_int_equal(word, 1000 + root);
        word = 10 * root + rank;
        assert_int_equal(gyre_transport_gather(endpoint, root, &word, 4, NULL,
                                               rank == root ? all : NULL, NULL),
                         GYRE_OK);
        for (uint32_t i = 0; i < r->count && rank == root; i++)
            assert_int_equal(all[i], 10 * root + i);
        assert_int_equal(gyre_transport_barrier(endpoint, NULL), GYRE_OK);
        for (uint32_t i = 0; i < r->count; i++)
            sizes[i] = i; /* rank 0 gives nothing */
        assert_int_equal(gyre_transport_gather(endpoint, root, own, rank, sizes,
                                               rank == root ? bytes : NULL,
                                               NULL),
                         GYRE_OK);
    }
    for (uint32_t i = 0; i < r->count && rank == r->count - 1; i++)
        for (uint32_t b = 0; b < i; b++)
            assert_int_equal(bytes[at++], i);
}

/* Rank r gives r + base bytes; base 0: rank 0 gives none. */
static void share_body(gyre_endpoint *endpoint, void *user)
{
    const ranks *r = user;
    uint32_t rank = gyre_transport_rank(endpoint);

    for (size_t base = 0; base < 3; base++) {
        size_t sizes[MAX_RANKS], at = 0;
        uint8_t all[MAX_RANKS * (MAX_RANKS + 2)] = {0};

        for (uint32_t i = 0; i < r->count; i++) {
            sizes[i] = i + base;
            if (i == rank)
                memset(all + at, 100 + (int)i, sizes[i]);
            at += sizes[i];
        }
        assert_int_equal(gyre_transport_allgather(endpoint, sizes, all, NULL),
                         GYRE_OK);
        at = 0;
        for (uint32_t i = 0; i < r->count; i++)
            for (size_t b = 0; b < sizes[i]; b++)
                assert_int_equal(all[at++], 100 + i);
        assert_int_equal(all[at], 0);
    }
}

static void test_collectives(void **state)
{
    (void)state;
    for (uint32_t count = 1; count < 8; count++) {
        gyre_world_options options = {
            .ranks = count, .delay = 1000000, .buffered = count % 2 == 0};
        ranks r;

        ranks_begin(&r, &options);
        each_rank(&r, collective_body, &r);
        each_rank(&r, share_body, &r);
        /* and none of it is in the ledger */
        assert_int_equal(gyre_transport_count(r.at[0], 0, 0).puts, 0);
        ranks_end(&r);
    }
}

typedef struct gate {
    pthread_mutex_t lock;
    uint32_t came, count;
} gate;

static void barrier_body(gyre_endpoint *endpoint, void *user)
{
    gate *g = user;

    for (uint32_t i = 1; i <= 20; i++) {
        pthread_mutex_lock(&g->lock);
        g->came++;
        pthread_mutex_unlock(&g->lock);
        assert_int_equal(gyre_transport_barrier(endpoint, NULL), GYRE_OK);
        pthread_mutex_lock(&g->lock);
        assert_true(g->came >= i * g->count);
        pthread_mutex_unlock(&g->lock);
    }
}

static void test_nobody_leaves_a_barrier_before_all_came(void **state)
{
    gyre_world_options options = {.ranks = 5};
    gate g = {PTHREAD_MUTEX_INITIALIZER, 0, 5};
    ranks r;

    (void)state;
    ranks_begin(&r, &options);
    each_rank(&r, barrier_body, &g);
    ranks_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kth_put_meets_kth_get),
        cmocka_unit_test(test_a_buffered_put_ends_at_once),
        cmocka_unit_test(test_extents_are_cut_differently),
        cmocka_unit_test(test_rings_of_two_and_odd_where_all_put_first),
        cmocka_unit_test(test_all_to_all_on_many_channels),
        cmocka_unit_test(test_a_group_of_no_messages_is_done),
        cmocka_unit_test(test_delays_come_before_start_and_end),
        cmocka_unit_test(test_delays_change_the_order_of_ends),
        cmocka_unit_test(test_bytes_are_counted_by_rank_phase_and_class),
        cmocka_unit_test(test_every_message_is_traced),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_nobody_leaves_a_barrier_before_all_came),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
