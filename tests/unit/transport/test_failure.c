/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks a world: everybody gets the reason and nobody hangs. */
#include "config.h"

#define GYRE_STATIC_MODULE
#include "ranks.h"

#include "transport/module.h"

#include <gyre/registry.h>
#include <time.h>

/* A get of every rank from the one before it that nobody serves. */
static void leave_pending(ranks *r, one *gets, uint32_t *into, waiter *w)
{
    for (uint32_t i = 0; i < r->count; i++)
        assert_int_equal(
            begin_one(r->at[i],
                      one_get(&gets[i], (i + 1) % r->count, 50, &into[i], 4),
                      &w[i], NULL),
            GYRE_OK);
}

static void test_sizes_that_differ_name_both_ends(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        bool buffered = way % 2 == 1, put_first = way / 2 == 1;
        gyre_world_options options = {.ranks = 3, .buffered = buffered};
        uint8_t data[64] = {0}, into[64];
        waiter put_end = WAITER, get_end = WAITER;
        one put, get;
        ranks r;

        ranks_begin(&r, &options);
        if (put_first)
            begin_one(r.at[1], one_put(&put, 2, 6, data, 64), &put_end, NULL);
        begin_one(r.at[2], one_get(&get, 1, 6, into, 32), &get_end, NULL);
        if (!put_first)
            begin_one(r.at[1], one_put(&put, 2, 6, data, 64), &put_end, NULL);
        assert_int_equal(waiter_wait(&get_end, 1), GYRE_INVALID);
        /* A buffered put has ended when it left, before its get came. */
        waiter_wait(&put_end, 1);
        if (!buffered)
            assert_int_equal(put_end.status, GYRE_INVALID);
        for (const char **part =
                 (const char *[]){"rank 1 has 64 bytes", "rank 2", "takes 32",
                                  "channel 6", "number 0", "phase ring", NULL};
             *part != NULL; part++)
            if (strstr(get_end.text, *part) == NULL)
                fail_msg("\"%s\" is not in: %s", *part, get_end.text);
        ranks_end(&r);
    }
}

/* One rank gives up: the pending groups of all end, what comes later is
 * refused, and a wait in a collective ends, too. */
static void wait_at_barrier(gyre_endpoint *endpoint, void *user)
{
    gyre_error error = {0};

    (void)user;
    if (gyre_transport_rank(endpoint) == 1) {
        gyre_transport_abort(endpoint, GYRE_NO_MEMORY, "no memory for a block");
        return;
    }
    assert_int_equal(gyre_transport_barrier(endpoint, &error), GYRE_NO_MEMORY);
    unit_assert_text(&error, "rank 1 gave up: no memory for a block");
}

static void test_one_rank_gives_up(void **state)
{
    (void)state;
    for (int delayed = 0; delayed < 2; delayed++) {
        gyre_world_options options = {
            .ranks = 4, .delay = delayed ? UINT64_C(3600000000000) : 0};
        waiter w[4] = {WAITER, WAITER, WAITER, WAITER}, late = WAITER;
        gyre_error error = {0};
        uint32_t into[4];
        one gets[4];
        ranks r;

        ranks_begin(&r, &options);
        leave_pending(&r, gets, into, w);
        each_rank(&r, wait_at_barrier, NULL);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(waiter_wait(&w[i], 1), GYRE_NO_MEMORY);
            assert_non_null(strstr(w[i].text, "rank 1 gave up"));
        }
        assert_int_equal(gyre_transport_check(r.world, &error), GYRE_NO_MEMORY);
        assert_int_equal(begin_one(r.at[0], &gets[0].message, &late, &error),
                         GYRE_NO_MEMORY);
        unit_assert_text(&error, "rank 1 gave up");
        assert_int_equal(waiter_ends(&late), 0);
        /* The first reason stays. */
        gyre_transport_abort(r.at[2], GYRE_IO, "another");
        gyre_transport_check(r.world, &error);
        unit_assert_text(&error, "rank 1 gave up");
        ranks_end(&r);
    }
}

static void test_the_timeout_names_what_is_missing(void **state)
{
    gyre_world_options options = {.ranks = 3, .timeout = 20000000};
    waiter pair = WAITER, other = WAITER;
    uint32_t into = 0, sent = 1;
    gyre_message group[2];
    one a, b, c;
    ranks r;

    (void)state;
    ranks_begin(&r, &options);
    group[0] = *one_put(&a, 2, 4, &sent, 4);
    group[1] = *one_get(&b, 0, 5, &into, 4);
    assert_int_equal(
        gyre_transport_begin(r.at[1], 2, 1, group, 2, waiter_done, &pair, NULL),
        GYRE_OK);
    begin_one(r.at[2], one_get(&c, 1, 4, &into, 4), &other, NULL);
    /* The put was served and the get is what is missing. */
    assert_int_equal(waiter_wait(&pair, 1), GYRE_IO);
    for (const char **part =
             (const char *[]){"rank 1 has waited 0.02 s", "the put of rank 0",
                              "channel 5", "number 0", "phase inner", "lane 2",
                              "1 of the group's 2", NULL};
         *part != NULL; part++)
        if (strstr(pair.text, *part) == NULL)
            fail_msg("\"%s\" is not in: %s", *part, pair.text);
    ranks_end(&r);
}

static void test_a_collective_times_out_as_well(void **state)
{
    gyre_world_options options = {.ranks = 2, .timeout = 10000000};
    gyre_error error = {0};
    ranks r;

    (void)state;
    ranks_begin(&r, &options);
    assert_int_equal(gyre_transport_barrier(r.at[0], &error), GYRE_IO);
    unit_assert_text(&error, "put of rank 1");
    unit_assert_text(&error, "a collective");
    ranks_end(&r);
}

/* A time beyond what the clock can say is no time that has passed. */
static void test_a_timeout_of_ages_only_sleeps(void **state)
{
    gyre_world_options options = {.ranks = 3, .timeout = UINT64_MAX};
    waiter w[3] = {WAITER, WAITER, WAITER};
    const struct timespec nap = {0, 200000000};
    clock_t before;
    uint32_t into[3];
    one gets[3];
    ranks r;

    (void)state;
    ranks_begin(&r, &options);
    leave_pending(&r, gets, into, w);
    before = clock();
    nanosleep(&nap, NULL);
    /* Of the processor; a thread that asks again and again takes it all. */
    assert_true(clock() - before < CLOCKS_PER_SEC / 10);
    assert_int_equal(gyre_transport_check(r.world, NULL), GYRE_OK);
    ranks_end(&r);
}

static void test_destroy_ends_what_is_pending(void **state)
{
    gyre_world_options options = {.ranks = 3, .buffered = true};
    waiter w[3] = {WAITER, WAITER, WAITER}, put_end = WAITER;
    uint32_t into[3], sent = 1;
    one gets[3], put;
    ranks r;

    (void)state;
    ranks_begin(&r, &options);
    leave_pending(&r, gets, into, w);
    begin_one(r.at[0], one_put(&put, 1, 2, &sent, 4), &put_end, NULL);
    ranks_end(&r); /* the parcel that nobody took is freed, too */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(waiter_ends(&w[i]), 1);
        assert_int_equal(w[i].status, GYRE_STATE);
    }
}

/* ---- arguments ------------------------------------------------------- */

static uint32_t class_nine(void *user, uint32_t from, uint32_t to)
{
    (void)user, (void)from, (void)to;
    return 9;
}

static void refused(ranks *r, gyre_message message, const char *part)
{
    gyre_error error = {0};
    waiter w = WAITER;

    assert_int_not_equal(begin_one(r->at[0], &message, &w, &error), GYRE_OK);
    unit_assert_text(&error, part);
    assert_int_equal(waiter_ends(&w), 0);
    assert_int_equal(gyre_transport_check(r->world, NULL), GYRE_OK);
}

static void test_what_is_refused_breaks_nothing(void **state)
{
    static const char *const names[] = {"all"};
    uint8_t data[8];
    gyre_extent extent = {data, 8};
    gyre_world_options options = {.ranks = 2, .lanes = 2};
    gyre_world *world = NULL;
    gyre_endpoint *endpoint = NULL;
    gyre_error error = {0};
    waiter w = WAITER;
    ranks r;

    (void)state;
    ranks_begin(&r, &options);
    refused(&r, (gyre_message){true, 0, 0, &extent, 1, 8}, "peer is 0");
    refused(&r, (gyre_message){true, 2, 0, &extent, 1, 8}, "below 2");
    refused(&r, (gyre_message){true, 1, 1 << 20, &extent, 1, 8}, "channel");
    refused(&r, (gyre_message){true, 1, 0, &extent, 1, 9}, "9 bytes");
    refused(&r, (gyre_message){true, 1, 0, NULL, 1, 8}, "no list");
    assert_int_equal(
        gyre_transport_begin(r.at[0], 2, 0, NULL, 0, waiter_done, &w, &error),
        GYRE_RANGE);
    unit_assert_text(&error, "lane 2 of 2");
    assert_int_equal(
        gyre_transport_begin(r.at[0], 0, 6, NULL, 0, waiter_done, &w, &error),
        GYRE_RANGE);
    assert_int_equal(
        gyre_transport_begin(r.at[0], 0, 0, NULL, 0, NULL, NULL, &error),
        GYRE_INVALID);
    assert_int_equal(gyre_transport_endpoint(r.world, 2, &endpoint, &error),
                     GYRE_RANGE);
    assert_null(endpoint);
    assert_int_equal(gyre_transport_broadcast(r.at[0], 2, data, 1, &error),
                     GYRE_RANGE);
    ranks_end(&r);

    options.links = (gyre_link_map){1, names, class_nine, NULL};
    ranks_begin(&r, &options);
    refused(&r, (gyre_message){true, 1, 0, &extent, 1, 8}, "class 9");
    options.ranks = 0;
    assert_int_equal(gyre_transport_create(r.context, &options, &world, &error),
                     GYRE_INVALID);
    options.ranks = 2;
    options.backend = "pigeons";
    assert_int_equal(gyre_transport_create(r.context, &options, &world, &error),
                     GYRE_NOT_FOUND);
    unit_assert_text(&error, "transport pigeons");
    options.backend = NULL;
    options.lanes = 65;
    assert_int_equal(gyre_transport_create(r.context, &options, &world, &error),
                     GYRE_RANGE);
    assert_null(world);
    ranks_end(&r);
}

/* ---- memory ---------------------------------------------------------- */

static gyre_status use(gyre_context *context, waiter *w)
{
    gyre_world_options options = {
        .ranks = 2, .delay = 1000, .timeout = 60000000000, .buffered = true};
    gyre_world *world = NULL;
    gyre_endpoint *at[2] = {NULL, NULL};
    uint32_t sent = 7, got = 0;
    unsigned began = 0;
    one put, get;
    gyre_status status = gyre_transport_create(context, &options, &world, NULL);

    if (status != GYRE_OK)
        return status;
    gyre_transport_endpoint(world, 0, &at[0], NULL);
    gyre_transport_endpoint(world, 1, &at[1], NULL);
    status = begin_one(at[0], one_put(&put, 1, 0, &sent, 4), w, NULL);
    began += status == GYRE_OK;
    if (status == GYRE_OK)
        status = begin_one(at[1], one_get(&get, 0, 0, &got, 4), w, NULL);
    began += status == GYRE_OK;
    if (began == 2)
        waiter_wait(w, began);
    gyre_transport_destroy(world);
    assert_int_equal(waiter_ends(w), began);
    if (status == GYRE_OK)
        assert_int_equal(got, 7);
    return status;
}

static void test_every_request_for_memory_may_fail(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);

    (void)state;
    for (uint64_t n = 1;; n++) {
        uint64_t before = memory.bytes;
        waiter w = WAITER;
        gyre_status status;

        memory.fail_at = memory.requests + n;
        status = use(context, &w);
        memory.fail_at = 0;
        assert_int_equal(memory.bytes, before);
        if (status == GYRE_OK)
            break;
        assert_int_equal(status, GYRE_NO_MEMORY);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* ---- collectives that fail at one rank ------------------------------- */

static void gather_short(gyre_endpoint *endpoint, void *user)
{
    size_t sizes[] = {4, 4, 4};
    uint32_t own = 0, all[3];
    gyre_error error = {0};

    (void)user;
    assert_int_equal(
        gyre_transport_gather(endpoint, 0, &own,
                              gyre_transport_rank(endpoint) == 0 ? 2 : 4, sizes,
                              all, &error),
        GYRE_INVALID);
    unit_assert_text(&error, "rank 0 gives 2 bytes and takes 4 of itself");
}

/* A rank gets no memory: the others would wait for it. */
static void barrier_without_memory(gyre_endpoint *endpoint, void *user)
{
    gyre_error error = {0};

    (void)user;
    assert_int_equal(gyre_transport_barrier(endpoint, &error), GYRE_NO_MEMORY);
    unit_assert_text(&error, "no memory");
}

static void test_a_collective_that_fails_at_one_rank(void **state)
{
    gyre_world_options options = {.ranks = 3};
    ranks r;

    (void)state;
    ranks_begin(&r, &options);
    each_rank(&r, gather_short, NULL);
    ranks_end(&r);
    for (uint64_t n = 1; n <= 3; n++) {
        ranks_begin(&r, &options);
        r.memory.fail_at = r.memory.requests + n;
        each_rank(&r, barrier_without_memory, NULL);
        ranks_end(&r);
    }
}

/* ---- a module that breaks early -------------------------------------- */

static struct {
    unsigned aborts, closes;
    int closed_broken;
} early;

static gyre_status early_open(const gyre_transport_services *services,
                              const gyre_carrier_plan *plan, gyre_carried *got,
                              void **out, gyre_error *error)
{
    (void)error;
    services->broken(services->user, GYRE_PEER, "rank 1 gave up: early");
    *got = (gyre_carried){plan->ranks, 0, 1, 1};
    *out = &early;
    return GYRE_OK;
}

static void early_close(void *opened, int broken)
{
    (void)opened;
    early.closes++;
    early.closed_broken = broken;
}

static void early_begin(void *opened, uint32_t rank, gyre_cargo *cargo)
{
    (void)opened, (void)rank, (void)cargo;
    fail_msg("a broken world begins something");
}

static void early_abort(void *opened, gyre_status status, const char *text)
{
    (void)opened;
    early.aborts++;
    assert_int_equal(status, GYRE_PEER);
    assert_string_equal(text, "rank 1 gave up: early");
}

static const gyre_carrier early_carrier = {
    .size = sizeof(early_carrier),
    .carries_control = 1,
    .open = early_open,
    .close = early_close,
    .begin = early_begin,
    .abort = early_abort,
};
static const gyre_build early_build = GY_BUILD_(0, NULL);
static const gyre_plugin early_plugin = {
    .size = sizeof(early_plugin),
    .kind = GYRE_KIND_TRANSPORT,
    .name = "early",
    .version = "1.0.0",
    .summary = "breaks while it is opened",
    .licence = "Apache-2.0",
    .build = &early_build,
    .descriptor = &early_carrier,
};
GYRE_MODULE(early, &early_plugin)

/* Another process may fail before this one has its world: the module hears of
 * the abort all the same, once. */
static void test_a_failure_while_the_world_is_made(void **state)
{
    gyre_world_options options = {.backend = "early", .ranks = 2};
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_world *world = NULL;
    gyre_endpoint *endpoint = NULL;
    gyre_error error = {0};

    (void)state;
    assert_int_equal(gyre_plugin_add(context, gyre_module_entry_early, &error),
                     GYRE_OK);
    assert_int_equal(gyre_transport_create(context, &options, &world, &error),
                     GYRE_OK);
    assert_int_equal(early.aborts, 1);
    gyre_transport_endpoint(world, 0, &endpoint, NULL);
    assert_int_equal(gyre_transport_barrier(endpoint, &error), GYRE_PEER);
    unit_assert_text(&error, "rank 1 gave up: early");
    gyre_transport_destroy(world);
    assert_int_equal(early.aborts, 1);
    assert_int_equal(early.closes, 1);
    assert_int_equal(early.closed_broken, 1);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_that_differ_name_both_ends),
        cmocka_unit_test(test_one_rank_gives_up),
        cmocka_unit_test(test_the_timeout_names_what_is_missing),
        cmocka_unit_test(test_a_timeout_of_ages_only_sleeps),
        cmocka_unit_test(test_a_collective_times_out_as_well),
        cmocka_unit_test(test_a_collective_that_fails_at_one_rank),
        cmocka_unit_test(test_a_failure_while_the_world_is_made),
        cmocka_unit_test(test_destroy_ends_what_is_pending),
        cmocka_unit_test(test_what_is_refused_breaks_nothing),
        cmocka_unit_test(test_every_request_for_memory_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
