/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every I/O operation fails once, in every way: the text says where, the store
 * stands at the last commit, bound buffers are restored, and the run goes on
 * to the same end.  Faults that a queue has to mend (a short transfer, EINTR,
 * delays, completions in another order) are not seen at all.
 *
 * The faulty engine counts per queue, that is per device: with three devices
 * the n-th operation of each fails.
 */
#include "config.h"

#include "fault/io_trial.h"

#include "io/io.h"

#include <stdio.h>

/* ---- one run with a fault --------------------------------------------- */

static void keep_bound(io_trial *t)
{
    for (size_t i = 0; i < FAULT_TENSORS; i++)
        memcpy(t->model.before[i], t->model.bound[i],
               fault_bound_bytes(&t->model, i));
}

static void expect_bound(const io_trial *t, const gyre_error *error)
{
    for (size_t i = 0; i < FAULT_TENSORS; i++)
        if (i != 3 && memcmp(t->model.before[i], t->model.bound[i],
                             fault_bound_bytes(&t->model, i)) != 0)
            fail_msg("bound buffer %zu was not restored after: %s", i,
                     error->text);
}

static uint64_t commit_of(const io_trial *t, uint64_t round)
{
    return round / t->commit_every * t->commit_every;
}

/* The round failed: the store is at the last commit and says so. */
static void after_failure(io_trial *t, gyre_store *store, uint64_t before,
                          const gyre_error *error)
{
    uint64_t commit = commit_of(t, before);

    /* While gradients came nothing was overwritten: giving the round up takes
     * back that round alone. */
    if ((t->model.with & FAULT_SPILLED) && error->status != GYRE_ROLLED_BACK &&
        io_trial_round(store) == before && before != commit) {
        io_trial_expect(t, store, before, error->text);
        return;
    }
    if (before != commit && error->status != GYRE_ROLLED_BACK)
        fail_msg("rolled back from %llu to %llu and said %s: %s",
                 (unsigned long long)before, (unsigned long long)commit,
                 gyre_status_name(error->status), error->text);
    if (before == commit && error->status == GYRE_ROLLED_BACK)
        fail_msg("nothing was rolled back: %s", error->text);
    io_trial_expect(t, store, commit, error->text);
    expect_bound(t, error);
}

/* The round, and when it is time and nobody else does it, the commit. */
static gyre_status round_and_commit(io_trial *t, gyre_store *store,
                                    gyre_round_report *report,
                                    gyre_error *error)
{
    char blob[FAULT_BLOB];
    gyre_status status = fault_round(&t->model, store, t->early, report, error);

    uint64_t now = io_trial_round(store);

    if (status == GYRE_OK && t->asked && now == commit_of(t, now))
        status = gyre_store_commit(store, blob, fault_blob(now, blob), error);
    return status;
}

/* One round; false when the store has to be opened again, since what failed on
 * one device could not be undone on another. */
static bool run_round(io_trial *t, gyre_store *store)
{
    gyre_error error = {GYRE_OK, ""};
    uint64_t before = io_trial_round(store);
    gyre_round_report report;

    if (before == commit_of(t, before))
        keep_bound(t);
    if (round_and_commit(t, store, &report, &error) == GYRE_OK) {
        assert_memory_equal(&report.norm, &t->history.norm[before + 1],
                            sizeof(double));
        return true;
    }
    io_trial_text(t, &error);
    io_trial_status(&error);
    t->failures++;
    if (t->place.count > 1 &&
        (strstr(error.text, "not known which commit") != NULL ||
         strstr(error.text, "could not be restored") != NULL))
        return false;
    after_failure(t, store, before, &error);
    return true;
}

/* Bind and run to the end, through failures; opens again where it must. */
static void run_to_end(io_trial *t, gyre_context *context, gyre_store *store)
{
    uint64_t failures = t->failures;
    gyre_error error = {GYRE_OK, ""};

    while (fault_bind(&t->model, store, &error) != GYRE_OK) {
        io_trial_text(t, &error);
        assert_true(++t->failures <= failures + t->place.count);
    }
    while (io_trial_round(store) < FAULT_ROUNDS) {
        uint64_t before = io_trial_round(store);

        if (!run_round(t, store)) {
            gyre_store_close(store);
            io_trial_open(t, context, &store);
            if (io_trial_round(store) != before + 1)
                io_trial_expect(t, store, commit_of(t, before), "reopened");
            fault_ok(fault_bind(&t->model, store, &error), &error);
        }
        assert_true(t->failures <= failures + 2 * t->place.count);
    }
    assert_false(t->mended && t->failures > failures);
    io_trial_expect(t, store, FAULT_ROUNDS, "at the end");
    gyre_store_close(store);
    io_trial_reopen(t, context, FAULT_ROUNDS);
}

/* Open with a faulty engine, bind, run, close, reopen.  Returns the number of
 * operations. */
static uint64_t run_once(io_trial *t, const char *io)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_store_options options = fault_options(io);
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;
    uint64_t operations;
    int files = fault_entries("/proc/self/fd");

    fault_restore(&t->fresh);
    options.commit_every = t->asked ? 1000 : t->commit_every;
    if (fault_open(context, &t->place, &options, &store, &error) == GYRE_OK) {
        run_to_end(t, context, store);
    } else {
        assert_false(t->mended);
        io_trial_text(t, &error);
        io_trial_status(&error);
        t->failures++;
        io_trial_reopen(t, context, 0);
    }
    operations = gyre_io_submitted(context);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    assert_int_equal(fault_entries("/proc/self/fd"), files);
    return operations;
}

/* ---- every operation, every fault ------------------------------------- */

typedef enum kind { PLAIN, ASKED, EARLY } kind;

static void every_fault(size_t devices, const char *engine, bool disk,
                        uint32_t commit_every, kind how, unsigned stride,
                        unsigned with)
{
    static const struct {
        const char *text, *rest;
        bool mended;
    } faults[] = {{"fail", "/EIO", false},
                  {"fail", "/ENOSPC", false},
                  {"zero", "", false},
                  {"short", "", true},
                  {"eintr", "", true}};
    io_trial *t = io_trial_begin(devices, disk, commit_every,
                                 (how == EARLY ? IO_TRIAL_EARLY : 0) |
                                     with * IO_TRIAL_WITH);
    char io[64];
    uint64_t most, runs = 0;

    t->asked = how == ASKED;
    snprintf(io, sizeof(io), "faulty:%s", engine);
    t->mended = true;
    most = run_once(t, io) / devices + (devices > 1 ? 8 : 0);
    for (size_t f = 0; f < sizeof(faults) / sizeof(faults[0]); f++)
        for (uint64_t n = 1 + f % stride; n <= most; n += stride, runs++) {
            snprintf(io, sizeof(io), "faulty:%s,%s=%llu%s", engine,
                     faults[f].text, (unsigned long long)n, faults[f].rest);
            t->mended = faults[f].mended;
            (void)run_once(t, io);
        }
    printf("# %s, %zu device%s%s, commit every %u%s, with %x: %llu runs, %llu "
           "operations, %llu errors\n",
           engine, devices, devices == 1 ? "" : "s", disk ? ", on disk" : "",
           commit_every,
           how == ASKED   ? " when asked"
           : how == EARLY ? ", early"
                          : "",
           with, (unsigned long long)runs, (unsigned long long)most,
           (unsigned long long)t->failures);
    assert_true(t->failures > 0);
    io_trial_end(t);
}

static void test_posix_1(void **state)
{
    (void)state;
    every_fault(1, "posix", false, 1, PLAIN, fault_stride(1), 0);
    every_fault(1, "posix", false, 3, PLAIN, fault_stride(1), 0);
}

static void test_posix_3(void **state)
{
    (void)state;
    every_fault(3, "posix", false, 1, PLAIN, fault_stride(1), 0);
    every_fault(3, "posix", false, 3, PLAIN, fault_stride(1), 0);
}

static void test_uring_1(void **state)
{
    (void)state;
    every_fault(1, "uring", false, 1, PLAIN, fault_stride(1), 0);
    every_fault(1, "uring", false, 3, PLAIN, fault_stride(2), 0);
}

static void test_uring_3(void **state)
{
    (void)state;
    every_fault(3, "uring", false, 1, PLAIN, fault_stride(2), 0);
    every_fault(3, "uring", false, 3, PLAIN, fault_stride(1), 0);
}

/* Chunks are written before all gradients are there. */
static void test_early(void **state)
{
    (void)state;
    every_fault(1, "posix", false, 1, EARLY, fault_stride(1), 0);
    every_fault(1, "uring", false, 3, EARLY, fault_stride(2), 0);
    every_fault(3, "posix", false, 3, EARLY, fault_stride(2), 0);
}

/* gyre_store_commit, for rounds that do not commit. */
static void test_asked(void **state)
{
    (void)state;
    every_fault(1, "posix", false, 3, ASKED, fault_stride(1), 0);
    every_fault(3, "uring", false, 2, ASKED, fault_stride(2), 0);
}

/* Residual chunks are written by the commit and read by the open, gradients are
 * written and read in the round. */
static void test_residual(void **state)
{
    (void)state;
    every_fault(1, "posix", false, 1, PLAIN, fault_stride(2),
                FAULT_FED | FAULT_CODED);
    every_fault(2, "auto", false, 3, PLAIN, fault_stride(3),
                FAULT_FED | FAULT_LATE | FAULT_SPILLED);
}

static void test_spilled(void **state)
{
    (void)state;
    every_fault(2, "posix", false, 1, PLAIN, fault_stride(3), FAULT_SPILLED);
    every_fault(1, "auto", false, 3, EARLY, fault_stride(3),
                FAULT_SPILLED | FAULT_FED);
}

/* Direct I/O: shorts stay aligned. */
static void test_disk(void **state)
{
    (void)state;
    every_fault(2, "auto", true, 1, PLAIN, fault_stride(7), 0);
}

/* ---- later or in another order ---------------------------------------- */

static void test_delay_and_reorder(void **state)
{
    io_trial *t = io_trial_begin(3, false, 1, 0);
    char io[64];

    (void)state;
    t->mended = true;
    for (unsigned seed = 1; seed <= (fault_long() ? 200 : 10); seed++) {
        snprintf(io, sizeof(io), "faulty:%s,delay=%u,reorder=%u",
                 seed % 2 ? "auto" : "posix", seed % 3 * 150, seed);
        (void)run_once(t, io);
    }
    io_trial_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_posix_1),
        cmocka_unit_test(test_posix_3),
        cmocka_unit_test(test_uring_1),
        cmocka_unit_test(test_uring_3),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_asked),
        cmocka_unit_test(test_residual),
        cmocka_unit_test(test_spilled),
        cmocka_unit_test(test_disk),
        cmocka_unit_test(test_delay_and_reorder),
    };

    return cmocka_run_group_tests_name("io faults", tests, NULL, NULL);
}
