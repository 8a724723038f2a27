/* SPDX-License-Identifier: Apache-2.0 */
/* I/O that breaks for good, and I/O that breaks while a store is made. */
#include "config.h"

#include "fault/io_trial.h"

#include "io/io.h"

#include <stdio.h>

/* ---- faults that stay ------------------------------------------------- */

/* In place a failure inside of a round costs the store; then both the round and
 * the next open have to say so. */
static bool is_dirty(io_trial *t, gyre_context *context, gyre_status status,
                     const gyre_error *said)
{
    gyre_store_options options = fault_options("posix");
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;
    gyre_status opened =
        fault_open(context, &t->place, &options, &store, &error);

    if (opened == GYRE_OK)
        gyre_store_close(store);
    if (opened != GYRE_DIRTY)
        return false;
    assert_true(t->model.in_place && status != GYRE_OK);
    if (strstr(said->text, "mixture") == NULL &&
        strstr(said->text, "not known which commit") == NULL)
        fail_msg("the store is lost and all that was said is: %s", said->text);
    t->dirty++;
    return true;
}

/* From the n-th operation on nothing works, or every second one, or that one
 * alone fails and the process ends: one clean error, and the next open finds
 * what the error said; or the error said that only an open can tell. */
static void persistent(io_trial *t, const char *io)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_store_options options = fault_options(io);
    gyre_error error = {GYRE_OK, ""};
    gyre_round_report report;
    gyre_store *store;
    fault_picture now;
    uint64_t done = 0;
    bool unknown = false;
    gyre_status status;

    fault_restore(&t->fresh);
    status = fault_open(context, &t->place, &options, &store, &error);
    if (status == GYRE_OK) {
        while (status == GYRE_OK && io_trial_round(store) < FAULT_ROUNDS) {
            done = io_trial_round(store);
            status = fault_round(&t->model, store, false, &report, &error);
        }
        if (status != GYRE_OK)
            unknown = strstr(error.text, "not known which commit") != NULL;
        else
            done = FAULT_ROUNDS;
        gyre_store_close(store);
    }
    if (status != GYRE_OK) {
        io_trial_text(t, &error);
        io_trial_status(&error);
        t->failures++;
    }
    if (is_dirty(t, context, status, &error))
        goto destroy;
    options = fault_options("posix");
    fault_ok(fault_open(context, &t->place, &options, &store, &error), &error);
    fault_ok(fault_look(store, &now, &error), &error);
    if (now.round != done && !(unknown && now.round == done + 1))
        fail_msg("%s: at round %llu after %llu rounds", io,
                 (unsigned long long)now.round, (unsigned long long)done);
    io_trial_expect(t, store, now.round, "reopened");
    gyre_store_close(store);
destroy:
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void every_persistent(size_t devices, unsigned how)
{
    static const char *const faults[] = {
        "faulty:posix,every=1,fail=", "faulty:posix,every=1,zero=",
        "faulty:uring,every=1,fail=", "faulty:posix,every=2,fail=",
        "faulty:posix,every=3,fail=", "faulty:posix,fail="};

    io_trial *t = io_trial_begin(devices, false, 1, how);
    char io[64];

    for (size_t f = 0; f < sizeof(faults) / sizeof(faults[0]); f++)
        for (unsigned n = 1; n <= 120 / devices; n += fault_stride(1)) {
            snprintf(io, sizeof(io), "%s%u", faults[f], n);
            persistent(t, io);
        }
    assert_true(t->failures > 0);
    assert_int_equal(t->dirty > 0, how == IO_TRIAL_IN_PLACE);
    io_trial_end(t);
}

static void test_persistent(void **state)
{
    (void)state;
    every_persistent(1, 0);
    every_persistent(3, 0);
}

static void test_in_place(void **state)
{
    (void)state;
    every_persistent(1, IO_TRIAL_IN_PLACE);
    every_persistent(3, IO_TRIAL_IN_PLACE);
}

/* ---- create ----------------------------------------------------------- */

static void create_once(io_trial *t, const char *io, bool mended,
                        uint64_t *most)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_store_options options = fault_options(io);
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store = NULL;
    int files = fault_entries("/proc/self/fd");
    gyre_status status;

    fault_place_clear(&t->place);
    status =
        fault_create(context, &t->model, &t->place, &options, &store, &error);
    if (status != GYRE_OK) {
        assert_false(mended);
        io_trial_text(t, &error);
        io_trial_status(&error);
        assert_int_equal(fault_entries(t->place.store), -1);
        for (size_t d = 0; d < t->place.count; d++)
            assert_int_equal(fault_entries(t->place.device[d]), 0);
        t->failures++;
        options = fault_options("posix");
        fault_ok(fault_create(context, &t->model, &t->place, &options, &store,
                              &error),
                 &error);
    }
    *most = gyre_io_submitted(context);
    gyre_store_close(store);
    io_trial_reopen(t, context, 0);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    assert_int_equal(fault_entries("/proc/self/fd"), files);
}

static void test_create(void **state)
{
    static const char *const faults[] = {"fail", "zero", "short", "eintr"};

    (void)state;
    for (size_t devices = 1; devices <= 3; devices += 2) {
        io_trial *t = io_trial_begin(devices, false, 1, 0);
        char io[64];
        uint64_t most, ignored;

        create_once(t, "faulty:posix", true, &most);
        for (size_t f = 0; f < sizeof(faults) / sizeof(faults[0]); f++)
            for (uint64_t n = 1; n <= most; n += fault_stride(1)) {
                snprintf(io, sizeof(io), "faulty:%s,%s=%llu",
                         n % 2 ? "posix" : "auto", faults[f],
                         (unsigned long long)n);
                create_once(t, io, f > 1, &ignored);
            }
        printf("# create, %zu devices: %llu operations\n", devices,
               (unsigned long long)most);
        assert_true(t->failures > 0);
        io_trial_end(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_persistent),
        cmocka_unit_test(test_in_place),
    };

    return cmocka_run_group_tests_name("lasting faults", tests, NULL, NULL);
}
