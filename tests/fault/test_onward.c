/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a training program meets between two rounds: a device comes or goes, or
 * is ten times slower than the others, or dies in the middle of a step.
 */
#include "config.h"

#include "fault/common.h"

#include <stdio.h>
#include <unistd.h>

typedef struct trial {
    fault_model model;
    fault_place place;
    fault_history history;
    unit_memory memory;
    gyre_context *context;
    gyre_store *store;
} trial;

static const gyre_store_options *plain(uint32_t commit_every)
{
    static gyre_store_options options;

    options = fault_options("auto");
    options.commit_every = commit_every;
    return &options;
}

/* A store on devices 0 and 1; `history` is of one that stays there. */
static trial *begin(unsigned with, uint32_t commit_every)
{
    trial *t = calloc(1, sizeof(*t));
    gyre_error error = {GYRE_OK, ""};

    fault_model_make(&t->model, 2);
    t->model.with = with;
    fault_place_make(&t->place, FAULT_DEVICES, false);
    t->place.count = 2;
    t->context = unit_context(&t->memory);
    for (int run = 0; run < 2; run++) {
        fault_ok(fault_create(t->context, &t->model, &t->place,
                              plain(commit_every), &t->store, &error),
                 &error);
        if (run == 0) {
            fault_record(&t->model, t->store, false, &t->history);
            fault_place_clear(&t->place);
        }
    }
    fault_ok(fault_bind(&t->model, t->store, &error), &error);
    return t;
}

static void end(trial *t)
{
    gyre_store_close(t->store);
    gyre_context_destroy(t->context);
    unit_memory_check(&t->memory);
    t->place.count = FAULT_DEVICES;
    fault_place_remove(&t->place);
    fault_model_free(&t->model);
    free(t);
}

static void run_to(trial *t, uint64_t round)
{
    gyre_store_info info = {.size = sizeof(info)};
    gyre_error error = {GYRE_OK, ""};
    gyre_round_report report;

    fault_ok(gyre_store_get_info(t->store, &info, &error), &error);
    for (uint64_t r = info.round; r < round; r++)
        fault_ok(fault_round(&t->model, t->store, false, &report, &error),
                 &error);
}

static void expect(trial *t, uint64_t round)
{
    gyre_error error = {GYRE_OK, ""};
    fault_picture now;
    const char *what;

    fault_ok(fault_look(t->store, &now, &error), &error);
    what = fault_differs(&now, &t->history.picture[round], false);
    if (what != NULL)
        fail_msg("%s differs at round %llu", what, (unsigned long long)round);
}

/* Are the bound buffers what the store holds? */
static void expect_bound(trial *t)
{
    gyre_error error = {GYRE_OK, ""};

    for (size_t i = 0; i < FAULT_TENSORS; i++)
        memcpy(t->model.before[i], t->model.bound[i],
               fault_bound_bytes(&t->model, i));
    fault_ok(gyre_store_pull(t->store, &error), &error);
    for (size_t i = 0; i < FAULT_TENSORS; i++)
        if (i != 3)
            assert_memory_equal(t->model.before[i], t->model.bound[i],
                                fault_bound_bytes(&t->model, i));
}

/* A third device comes after round 2, with other chunks, and the first goes
 * after round 4; what was not committed is not lost. */
static void add_and_leave(unsigned with, uint32_t commit_every)
{
    trial *t = begin(with, commit_every);
    const char *const *devices = t->place.devices;
    gyre_store_spec more = {.size = sizeof(more),
                            .devices = devices,
                            .device_count = 3,
                            .chunk_elements = 2 * GYRE_GRAIN};
    gyre_store_spec less = {
        .size = sizeof(less), .devices = devices + 1, .device_count = 2};
    gyre_store_info info = {.size = sizeof(info)};
    gyre_error error = {GYRE_OK, ""};

    run_to(t, 2);
    fault_ok(gyre_store_move(&t->store, &more, plain(commit_every), NULL, NULL,
                             &error),
             &error);
    expect(t, 2);
    fault_ok(gyre_store_get_info(t->store, &info, &error), &error);
    assert_int_equal(info.devices, 3);
    assert_int_equal(info.committed_round, 2);
    run_to(t, 4);
    expect_bound(t);
    fault_ok(gyre_store_move(&t->store, &less, plain(commit_every), NULL, NULL,
                             &error),
             &error);
    run_to(t, FAULT_ROUNDS);
    expect(t, FAULT_ROUNDS);
    expect_bound(t);
    assert_int_equal(fault_entries(t->place.device[0]), 0);
    end(t);
}

static void test_a_device_comes_and_one_goes(void **state)
{
    (void)state;
    add_and_leave(0, 1);
    add_and_leave(0, 3);
    add_and_leave(FAULT_FED | FAULT_CODED | FAULT_LATE | FAULT_SPILLED, 2);
}

static int stop(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    return 1;
}

static void test_a_move_that_fails_changes_nothing(void **state)
{
    trial *t = begin(0, 2);
    gyre_store_spec spec = {.size = sizeof(spec), .device_count = 2};
    const char *const nowhere[] = {t->place.device[1], "/nowhere"};
    gyre_store *old = t->store;
    gyre_error error = {GYRE_OK, ""};
    gyre_round *round;

    (void)state;
    run_to(t, 1);
    fault_ok(gyre_round_begin(t->store, NULL, &round, &error), &error);
    assert_int_equal(
        gyre_store_move(&t->store, &spec, plain(2), NULL, NULL, &error),
        GYRE_STATE);
    assert_ptr_equal(t->store, old);
    fault_ok(gyre_round_abort(round, &error), &error);
    spec.devices = nowhere;
    assert_int_not_equal(
        gyre_store_move(&t->store, &spec, plain(2), NULL, NULL, &error),
        GYRE_OK);
    unit_assert_text(&error, "/nowhere");
    assert_non_null(t->store);
    expect(t, 1);
    spec.devices = t->place.devices;
    assert_int_equal(
        gyre_store_move(&t->store, &spec, plain(2), stop, NULL, &error),
        GYRE_STOPPED);
    run_to(t, FAULT_ROUNDS);
    expect(t, FAULT_ROUNDS);
    expect_bound(t);
    end(t);
}

/* The others wait for a device of a tenth of their rate, in no more memory. */
static void test_one_device_is_slow(void **state)
{
    static const char *const rates[] = {"emulated:read=40M,write=40M",
                                        "emulated:read=4M,write=4M"};
    trial *t = begin(FAULT_SPILLED, 1);
    gyre_store_options options = *plain(1);
    gyre_error error = {GYRE_OK, ""};
    uint64_t before, peak[2];

    (void)state;
    gyre_store_close(t->store);
    for (int slow = 0; slow < 2; slow++) {
        options.compute = rates;
        options.compute_count = slow ? 2 : 1;
        before = t->memory.bytes;
        t->memory.peak = before;
        fault_ok(fault_open(t->context, &t->place, &options, &t->store, &error),
                 &error);
        run_to(t, slow ? FAULT_ROUNDS : 3);
        expect(t, slow ? FAULT_ROUNDS : 3);
        peak[slow] = t->memory.peak - before;
        if (!slow)
            gyre_store_close(t->store);
    }
    assert_in_range(peak[1], 1, peak[0] + 4096);
    end(t);
}

/* A device that dies in the middle of a step: the message names it, the last
 * commit stands, and the program can go on without it once it is back. */
static void test_a_device_dies(void **state)
{
    trial *t = begin(FAULT_SPILLED, 1);
    gyre_store_options options = *plain(1);
    gyre_error error = {GYRE_OK, ""};
    gyre_round_report report;
    gyre_status status = GYRE_OK;
    gyre_store_info info = {.size = sizeof(info)};
    unsigned died = 0;

    (void)state;
    run_to(t, 1);
    gyre_store_close(t->store);
    for (int n = 12; n < 60; n += 7) {
        char io[64];

        snprintf(io, sizeof(io), "faulty:posix,fail=%d,every=1", n);
        options.io = io;
        status = fault_open(t->context, &t->place, &options, &t->store, &error);
        if (status != GYRE_OK)
            continue;
        do
            status = fault_round(&t->model, t->store, false, &report, &error);
        while (status == GYRE_OK && report.round < FAULT_ROUNDS);
        gyre_store_close(t->store);
        if (status == GYRE_OK)
            break;
        died++;
        unit_assert_text(&error, t->place.root);
        fault_ok(fault_open(t->context, &t->place, plain(1), &t->store, &error),
                 &error);
        fault_ok(gyre_store_get_info(t->store, &info, &error), &error);
        expect(t, info.round);
        gyre_store_close(t->store);
        if (info.round + 1 >= FAULT_ROUNDS)
            break;
    }
    assert_true(died >= 3);
    fault_ok(fault_open(t->context, &t->place, plain(1), &t->store, &error),
             &error);
    run_to(t, FAULT_ROUNDS);
    expect(t, FAULT_ROUNDS);
    end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_device_comes_and_one_goes),
        cmocka_unit_test(test_a_move_that_fails_changes_nothing),
        cmocka_unit_test(test_one_device_is_slow),
        cmocka_unit_test(test_a_device_dies),
    };

    return cmocka_run_group_tests_name("onward", tests, NULL, NULL);
}
