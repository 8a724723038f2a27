/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crash explorer over runs that did not go well: an operation failed, a
 * process was killed and then the power went, and, as a test of these tests, a
 * flush was taken out of the code.
 */
#include "config.h"

#include "fault/trial.h"

#include <stdio.h>

/* ---- after an error --------------------------------------------------- */

/* Each operation of the run fails once: what a crash leaves then and later. */
static void after_errors(const char *what, uint32_t commit_every, bool reopen,
                         kind how, unsigned with)
{
    trial *t = trial_begin(2, 1, commit_every, "posix", how, with);
    unsigned stride = fault_stride(5);
    fault_saved fresh;
    explorer_counts counts = {0};
    uint64_t n = 1;

    t->reopen = reopen;
    explorer_reset(t->explorer);
    fault_save(&t->place, &fresh);
    for (bool reached = true; reached; n += stride) {
        char io[64];

        snprintf(io, sizeof(io), "faulty:posix,fail=%llu",
                 (unsigned long long)n);
        fault_restore(&fresh);
        reached = trial_record_again(t, io);
        explorer_take(t->explorer, t->recorder, NULL, NULL);
        explorer_all(t->explorer, 2, 1, n, trial_judge, t, &counts);
    }
    fault_saved_free(&fresh);
    (void)trial_tell(t, what, &counts);
    trial_end(t);
    assert_true(n > 25);
    assert_true(counts.states > 100);
    assert_int_equal(counts.bad, 0);
}

static void test_after_errors(void **state)
{
    (void)state;
    after_errors("after an error", 1, false, PLAIN, 0);
    after_errors("after an error, residual, spilled", 1, false, PLAIN,
                 FAULT_FED | FAULT_SPILLED | FAULT_LATE);
}

static void test_after_errors_reopened(void **state)
{
    (void)state;
    after_errors("after an error, reopened, commit every 2", 2, true, EARLY, 0);
    after_errors("after an error, reopened, residual, coded", 2, true, PLAIN,
                 FAULT_FED | FAULT_CODED);
}

/* ---- flushes left out ------------------------------------------------- */

/* Flushes alternate in a commit: one before the record, one after it.  Told
 * apart by what the file's last write before the flush was. */
typedef struct last_writes {
    const trial *trial;
    bool record[FAULT_DEVICES]; /* the last write on this file was one */
} last_writes;

/* A write is remembered; of a flush: true, and its file. */
static bool is_flush(last_writes *l, const gyre_io_event *event, size_t *file)
{
    const trial *t = l->trial;
    size_t tail = strlen(event->file), f = 0;

    while (strcmp(t->files[f] + strlen(t->files[f]) - tail, event->file) != 0)
        f++;
    *file = f;
    if (event->kind == GYRE_IO_FLUSH_START)
        return true;
    l->record[f] = event->offset >= t->area_at && event->offset < t->data_at;
    return false;
}

/* ---- killed, and then the power went ----------------------------------- */

enum { KILLED_ROUND = 4 }; /* the next one writes; round 3 is skipped */

/* The process was killed between the record's write and its flush. */
typedef struct lost_flush {
    last_writes last;
    unsigned commits[FAULT_DEVICES]; /* flushes after a record */
} lost_flush;

static int drop_flush(void *user, const gyre_io_event *event)
{
    lost_flush *l = user;
    bool after;
    size_t f;

    if (!is_flush(&l->last, event, &f))
        return 0;
    after = l->last.record[f];
    l->last.record[f] = false;
    l->commits[f] += after;
    return after && l->commits[f] == KILLED_ROUND;
}

/* What a killed process left in the caches of the devices is there to be read,
 * and may go yet.  The round that is based on it writes over the commit before,
 * so that both would be lost. */
static void test_power_failure_after_a_kill(void **state)
{
    trial *t = trial_begin(2, 1, 1, "posix", PLAIN, 0);
    gyre_store_options options = fault_options("posix");
    lost_flush lost = {.last = {.trial = t}};
    explorer_counts counts = {0};
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;

    (void)state;
    explorer_reset(t->explorer);
    trial_new_record(t);
    options.recorder = t->recorder;
    t->killed = KILLED_ROUND;
    for (uint64_t r = 0; r < FAULT_ROUNDS; r++) {
        gyre_round_report report;

        if (r == 0 || r == KILLED_ROUND)
            fault_ok(
                fault_open(t->context, &t->place, &options, &store, &error),
                &error);
        fault_ok(fault_round(&t->model, store, false, &report, &error), &error);
        if (r + 1 != KILLED_ROUND)
            gyre_io_recorder_mark(t->recorder, r + 1);
        if (r + 1 == KILLED_ROUND || r + 1 == FAULT_ROUNDS)
            gyre_store_close(store);
    }
    explorer_take(t->explorer, t->recorder, drop_flush, &lost);
    explorer_all(t->explorer, 6, 1, 3, trial_judge, t, &counts);
    (void)trial_tell(t, "killed before the last flush", &counts);
    trial_end(t);
    assert_true(counts.states > 100);
    for (size_t d = 0; d < 2; d++)
        assert_true(lost.commits[d] > KILLED_ROUND); /* so one was lost */
    assert_int_equal(counts.bad, 0);
}

/* ---- tests of the test ------------------------------------------------ */

typedef struct dropping {
    last_writes last;
    bool after; /* drop those after the record, else before */
} dropping;

static int drop(void *user, const gyre_io_event *event)
{
    dropping *d = user;
    size_t f;

    return is_flush(&d->last, event, &f) && d->last.record[f] == d->after;
}

static uint64_t without(trial *t, const char *what, bool after, bool fast)
{
    dropping d = {.last = {.trial = t}, .after = after};
    explorer_counts counts = {0};

    explorer_take(t->explorer, t->recorder, drop, &d);
    t->lenient = true;
    t->fast = fast;
    t->go_on = 0;
    t->continued = 0;
    explorer_all(t->explorer, 6, 1, 3, trial_judge, t, &counts);
    return trial_tell(t, what, &counts);
}

static void test_flushes_matter(void **state)
{
    trial *t = trial_begin(2, 1, 1, "auto", PLAIN, 0);
    const char *before = "without the flush before the record";
    const char *after = "without the flush after the record";
    uint64_t before_verifying = without(t, before, false, false);
    uint64_t before_fast = without(t, before, false, true);
    uint64_t after_verifying = without(t, after, true, false);
    uint64_t after_fast = without(t, after, true, true);

    (void)state;
    trial_end(t);
    assert_int_equal(before_verifying, 0);
    assert_true(before_fast > 0);
    assert_true(after_verifying > 0);
    assert_true(after_fast > 0);
}

/* test_explorer_errors [PATTERN]: those tests alone. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_after_errors),
        cmocka_unit_test(test_after_errors_reopened),
        cmocka_unit_test(test_power_failure_after_a_kill),
        cmocka_unit_test(test_flushes_matter),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("explorer: errors", tests, NULL, NULL);
}
