/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a crash at any moment the store opens whole: the crash explorer over
 * recorded runs, and three tests of that test (a flush taken out of the code).
 *
 * A state is bad when the store does not open, or holds anything but what the
 * uninterrupted run held at the last commit completed before the crash or at
 * the one in progress.  When a flush was taken out, the commit before is
 * allowed too: then only mixtures are counted.
 */
#include "config.h"

#include "fault/common.h"
#include "fault/explorer.h"

#include "store/store.h"

#include <stdio.h>

typedef struct trial {
    fault_model model;
    fault_place place;
    unit_memory memory;
    gyre_context *context;
    fault_history history;
    uint32_t commit_every;
    gyre_io_recorder *recorder;
    explorer *explorer;
    char files[FAULT_DEVICES][FAULT_PATH];
    uint64_t area_at, data_at;

    /* how to judge */
    bool fast, lenient, reopen;
    uint64_t killed; /* in the commit of this round, which has no mark */
    uint64_t go_on;  /* one more round in every n-th state; 0: none */
    uint64_t fsck;   /* and a check; 0: none */
    uint64_t given, seen, told, continued, dirty, checked, notes;
} trial;

/* ---- recording -------------------------------------------------------- */

static void record(trial *t, const char *io, bool early)
{
    gyre_store_options options = fault_options(io);
    gyre_error error = {GYRE_OK, ""};
    const char *paths[FAULT_DEVICES];
    gyre_store *store;

    fault_ok(fault_create(t->context, &t->model, &t->place, &options, &store,
                          &error),
             &error);
    for (size_t d = 0; d < t->place.count; d++) {
        snprintf(t->files[d], sizeof(t->files[d]), "%s", store->places[d].file);
        paths[d] = t->files[d];
    }
    t->area_at = store->layout.area_at[0];
    t->data_at = store->layout.data_at;
    gyre_store_close(store);
    t->explorer = explorer_create(paths, t->place.count);
    fault_ok(gyre_io_recorder_create(t->context, &t->recorder, &error), &error);
    options.buffers = 4;
    options.commit_every = t->commit_every;
    options.recorder = t->recorder;
    fault_ok(fault_open(t->context, &t->place, &options, &store, &error),
             &error);
    memset(&t->history, 0, sizeof(t->history));
    fault_ok(fault_look(store, &t->history.picture[0], &error), &error);
    t->history.early = early;
    for (uint64_t r = 1; r <= FAULT_ROUNDS; r++) {
        gyre_round_report report;

        fault_ok(fault_round(&t->model, store, early, &report, &error), &error);
        gyre_io_recorder_mark(t->recorder, r);
        fault_ok(fault_look(store, &t->history.picture[r], &error), &error);
    }
    gyre_store_close(store);
}

/* After an error a program may go on, unless the store is broken. */
static void reopen(trial *t, gyre_store **store, gyre_store_options *options)
{
    gyre_error error = {GYRE_OK, ""};

    if (!t->reopen && (*store)->mode == GYRE_STORE_READY)
        return;
    gyre_store_close(*store);
    options->io = "posix";
    fault_ok(fault_open(t->context, &t->place, options, store, &error), &error);
}

/* The same once more, with an operation that fails; then on, as a program would
 * that tries again.  `history` is of the undisturbed run.  False when the run
 * was over before. */
static bool record_again(trial *t, const char *io)
{
    gyre_store_options options = fault_options(io);
    gyre_error error = {GYRE_OK, ""};
    uint64_t done = 0, failures = 0;
    gyre_store *store;

    gyre_io_recorder_destroy(t->recorder);
    fault_ok(gyre_io_recorder_create(t->context, &t->recorder, &error), &error);
    options.buffers = 4;
    options.commit_every = t->commit_every;
    options.recorder = t->recorder;
    if (fault_open(t->context, &t->place, &options, &store, &error) != GYRE_OK)
        return true; /* the open failed, and nothing was written */
    while (done < FAULT_ROUNDS) {
        gyre_store_info info = {.size = sizeof(info)};
        gyre_round_report report;

        if (fault_round(&t->model, store, t->history.early, &report, &error) !=
            GYRE_OK) {
            assert_true(++failures < 4);
            reopen(t, &store, &options);
        }
        fault_ok(gyre_store_get_info(store, &info, &error), &error);
        if (info.round > done)
            gyre_io_recorder_mark(t->recorder, info.round);
        done = info.round;
    }
    gyre_store_close(store);
    return failures > 0;
}

typedef enum kind { PLAIN, EARLY, IN_PLACE } kind;

static trial *begin(size_t devices, uint64_t scale, uint32_t commit_every,
                    const char *io, kind how, unsigned with)
{
    trial *t = calloc(1, sizeof(*t));

    fault_model_make(&t->model, scale);
    t->model.in_place = how == IN_PLACE;
    t->model.with = with;
    fault_place_make(&t->place, devices, false);
    t->context = unit_context(&t->memory);
    t->commit_every = commit_every;
    record(t, io, how == EARLY);
    return t;
}

static void end(trial *t)
{
    explorer_destroy(t->explorer);
    gyre_io_recorder_destroy(t->recorder);
    gyre_context_destroy(t->context);
    unit_memory_check(&t->memory);
    fault_place_remove(&t->place);
    fault_model_free(&t->model);
    free(t);
}

/* ---- judging ---------------------------------------------------------- */

/* May a store be at this round, when `mark` rounds had been finished? */
static bool allowed(const trial *t, uint64_t mark, uint64_t round)
{
    uint64_t n = t->commit_every, last = mark / n * n;

    return round == last || round == last + n ||
           (t->killed == mark + n && round == t->killed + n) ||
           (t->lenient && round + n == last);
}

static const char *compare(trial *t, gyre_store *store, uint64_t mark,
                           gyre_error *error)
{
    fault_picture now;

    if (fault_look(store, &now, error) != GYRE_OK)
        return "reading";
    if (now.round > FAULT_ROUNDS || !allowed(t, mark, now.round))
        return "round";
    return fault_differs(&now, &t->history.picture[now.round], true);
}

static const char *go_on(trial *t, gyre_store *store, gyre_error *error)
{
    gyre_store_info info = {.size = sizeof(info)};
    gyre_round_report report;
    fault_picture now;

    (void)gyre_store_get_info(store, &info, error);
    if (info.round == FAULT_ROUNDS)
        return NULL;
    t->continued++;
    if (fault_round(&t->model, store, t->history.early, &report, error) !=
            GYRE_OK ||
        fault_look(store, &now, error) != GYRE_OK)
        return "the next round";
    return fault_differs(&now, &t->history.picture[info.round + 1],
                         t->commit_every == 1);
}

static int tell_bad(trial *t, const char *wrong, const explorer_state *state,
                    const gyre_error *error)
{
    if (!t->lenient && t->told++ < 5)
        printf("# bad: %s (place %zu, mark %llu, %zu unflushed, %zu landed, "
               "%zu torn): %s\n",
               wrong, state->place, (unsigned long long)state->mark,
               state->unflushed, state->landed, state->torn, error->text);
    return 1;
}

/* What a crash leaves is no problem to fsck. */
static void keep_problem(void *user, const gyre_fsck_problem *problem)
{
    gyre_error *error = user;

    if (!problem->note)
        snprintf(error->text, sizeof(error->text), "%s: %s", problem->what,
                 problem->text);
}

static const char *check(trial *t, gyre_error *error)
{
    gyre_store_options options = fault_options("posix");
    gyre_fsck_report report = {.size = sizeof(report)};

    t->checked++;
    if (gyre_store_fsck(t->context, t->place.store, &options, 0, keep_problem,
                        error, &report, error) != GYRE_OK)
        return "fsck";
    t->notes += report.notes > 0;
    return report.problems > 0 ? "fsck finds a problem" : NULL;
}

static int judge(void *user, const explorer_state *state)
{
    trial *t = user;
    gyre_store_options options = fault_options("posix");
    gyre_error error = {GYRE_OK, ""};
    const char *wrong;
    gyre_store *store;
    gyre_status status;

    if (fault_passes_over(t->given++))
        return 0;
    options.fast = t->fast;
    options.commit_every = t->commit_every;
    t->seen++;
    if (t->fsck != 0 && t->seen % t->fsck == 0) {
        wrong = check(t, &error);
        if (wrong != NULL)
            return tell_bad(t, wrong, state, &error);
    }
    wrong = "opening";
    status = fault_open(t->context, &t->place, &options, &store, &error);
    /* In place a round that has begun costs the store, which must say so. */
    if (status == GYRE_DIRTY && t->model.in_place && state->unflushed > 0) {
        t->dirty++;
        return 0;
    }
    if (status == GYRE_OK) {
        wrong = compare(t, store, state->mark, &error);
        if (wrong == NULL && t->go_on != 0 && t->seen % t->go_on == 0)
            wrong = go_on(t, store, &error);
        gyre_store_close(store);
    }
    return wrong != NULL && tell_bad(t, wrong, state, &error);
}

static uint64_t tell(const trial *t, const char *what,
                     const explorer_counts *counts)
{
    printf("# %s, %s open: states: %llu, bad: %llu (up to %zu unflushed, "
           "%llu dirty, %llu went on, %llu checked: %llu with notes)\n",
           what, t->fast ? "fast" : "verifying",
           (unsigned long long)counts->states, (unsigned long long)counts->bad,
           counts->most_unflushed, (unsigned long long)t->dirty,
           (unsigned long long)t->continued, (unsigned long long)t->checked,
           (unsigned long long)t->notes);
    fflush(stdout);
    return counts->bad;
}

/* ---- small stores: everything ----------------------------------------- */

static uint64_t explore_all(trial *t, const char *what, bool fast)
{
    explorer_counts counts = {0};
    bool plain = t->model.with == 0; /* the others have more writes */
    size_t most = fault_long() ? 10 : fault_stride(1) > 1 ? 3 : plain ? 6 : 4;
    size_t tears = fault_stride(1) > 1 ? 1 : plain ? EXPLORER_TEARS : 3;

    t->fast = fast;
    t->go_on = fast ? 0 : 5;
    t->fsck = fast || t->model.in_place ? 0 : fault_passes_over(1) ? 1 : 3;
    t->continued = t->dirty = t->checked = t->notes = 0;
    explorer_all(t->explorer, most, tears, 1, judge, t, &counts);
    assert_true(counts.states > 100);
    assert_int_equal(t->fsck != 0, t->notes > 0);
    return tell(t, what, &counts);
}

static void small_with(const char *what, uint32_t commit_every, const char *io,
                       kind how, unsigned with)
{
    trial *t = begin(2, 1, commit_every, io, how, with);
    uint64_t bad;

    explorer_take(t->explorer, t->recorder, NULL, NULL);
    bad = explore_all(t, what, false);
    bad += explore_all(t, what, true);
    assert_int_equal(t->dirty > 0, how == IN_PLACE);
    end(t);
    assert_int_equal(bad, 0);
}

static void small(const char *what, uint32_t commit_every, const char *io,
                  kind how)
{
    small_with(what, commit_every, io, how, 0);
}

static void test_posix(void **state)
{
    (void)state;
    small("posix", 1, "posix", PLAIN);
}

static void test_uring(void **state)
{
    (void)state;
    small("uring", 1, "auto", PLAIN);
}

static void test_commit_every_2(void **state)
{
    (void)state;
    small("commit every 2", 2, "auto", PLAIN);
}

static void test_early(void **state)
{
    (void)state;
    small("early", 1, "auto", EARLY);
}

/* The skipped round comes on top of rounds that are not committed yet. */
static void test_early_every_3(void **state)
{
    (void)state;
    small("early, commit every 3", 3, "posix", EARLY);
}

static void test_in_place(void **state)
{
    (void)state;
    small("in place", 1, "auto", IN_PLACE);
    small_with("in place, residual", 1, "auto", IN_PLACE, FAULT_FED);
}

static void test_coded(void **state)
{
    (void)state;
    small_with("coded", 2, "auto", PLAIN, FAULT_CODED);
}

/* The residual is part of what must be whole. */
static void test_residual(void **state)
{
    (void)state;
    small_with("residual", 1, "auto", PLAIN, FAULT_FED);
    small_with("residual, late clip, spilled", 1, "posix", PLAIN,
               FAULT_FED | FAULT_LATE | FAULT_SPILLED);
    small_with("residual, coded, commit every 2", 2, "auto", PLAIN,
               FAULT_FED | FAULT_CODED | FAULT_LATE);
}

/* What lies in a gradient region matters to nobody who opens. */
static void test_spilled(void **state)
{
    (void)state;
    small_with("spilled", 1, "auto", PLAIN, FAULT_SPILLED);
    small_with("spilled, early, residual", 3, "posix", EARLY,
               FAULT_SPILLED | FAULT_FED);
}

/* ---- a larger store: samples ------------------------------------------ */

static void test_samples(void **state)
{
    trial *t = begin(2, 20, 1, "auto", PLAIN, 0);
    uint64_t samples = fault_long() ? 200000 : 10000 / fault_stride(1);
    uint64_t bad = 0;

    (void)state;
    explorer_take(t->explorer, t->recorder, NULL, NULL);
    for (int fast = 0; fast < 2; fast++) {
        explorer_counts counts = {0};

        t->fast = fast;
        t->go_on = fast ? 0 : 50;
        t->continued = 0;
        explorer_sample(t->explorer, fast ? samples / 4 : samples, 2, judge, t,
                        &counts);
        bad += tell(t, "larger store, sampled", &counts);
    }
    end(t);
    assert_int_equal(bad, 0);
}

/* ---- after an error --------------------------------------------------- */

/* Each operation of the run fails once: what a crash leaves then and later. */
static void after_errors(const char *what, uint32_t commit_every, bool reopen,
                         kind how, unsigned with)
{
    trial *t = begin(2, 1, commit_every, "posix", how, with);
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
        reached = record_again(t, io);
        explorer_take(t->explorer, t->recorder, NULL, NULL);
        explorer_all(t->explorer, 2, 1, n, judge, t, &counts);
    }
    fault_saved_free(&fresh);
    (void)tell(t, what, &counts);
    end(t);
    assert_true(n > 25);
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

/* ---- killed, and then the power went ----------------------------------- */

enum { KILLED_ROUND = 4 }; /* the next one writes; round 3 is skipped */

/* The process was killed between the record's write and its flush. */
typedef struct lost_flush {
    const trial *trial;
    bool record[FAULT_DEVICES];      /* the last write on this file was one */
    unsigned commits[FAULT_DEVICES]; /* flushes after it */
} lost_flush;

static int drop_flush(void *user, const gyre_io_event *event)
{
    lost_flush *l = user;
    size_t tail = strlen(event->file), f = 0;
    bool after;

    while (strcmp(l->trial->files[f] + strlen(l->trial->files[f]) - tail,
                  event->file) != 0)
        f++;
    if (event->kind != GYRE_IO_FLUSH_START) {
        l->record[f] = event->offset >= l->trial->area_at &&
                       event->offset < l->trial->data_at;
        return 0;
    }
    after = l->record[f];
    l->record[f] = false;
    l->commits[f] += after;
    return after && l->commits[f] == KILLED_ROUND;
}

/* What a killed process left in the caches of the devices is there to be read,
 * and may go yet.  The round that is based on it writes over the commit before,
 * so that both would be lost. */
static void test_power_failure_after_a_kill(void **state)
{
    trial *t = begin(2, 1, 1, "posix", PLAIN, 0);
    gyre_store_options options = fault_options("posix");
    lost_flush lost = {.trial = t};
    explorer_counts counts = {0};
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;

    (void)state;
    explorer_reset(t->explorer);
    gyre_io_recorder_destroy(t->recorder);
    fault_ok(gyre_io_recorder_create(t->context, &t->recorder, &error), &error);
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
    explorer_all(t->explorer, 6, 1, 3, judge, t, &counts);
    (void)tell(t, "killed before the last flush", &counts);
    end(t);
    assert_int_equal(counts.bad, 0);
}

/* ---- tests of the test ------------------------------------------------ */

/* Flushes alternate in a commit: one before the record, one after it.  Told
 * apart by what the file's last write before the flush was. */
typedef struct dropping {
    const trial *trial;
    bool after;                 /* drop those after the record, else before */
    bool record[FAULT_DEVICES]; /* the last write on this file was one */
} dropping;

static int drop(void *user, const gyre_io_event *event)
{
    dropping *d = user;
    size_t tail = strlen(event->file), f = 0;

    while (strcmp(d->trial->files[f] + strlen(d->trial->files[f]) - tail,
                  event->file) != 0)
        f++;
    if (event->kind == GYRE_IO_FLUSH_START)
        return d->record[f] == d->after;
    d->record[f] =
        event->offset >= d->trial->area_at && event->offset < d->trial->data_at;
    return 0;
}

static uint64_t without(trial *t, const char *what, bool after, bool fast)
{
    dropping d = {.trial = t, .after = after};
    explorer_counts counts = {0};

    explorer_take(t->explorer, t->recorder, drop, &d);
    t->lenient = true;
    t->fast = fast;
    t->go_on = 0;
    t->continued = 0;
    explorer_all(t->explorer, 6, 1, 3, judge, t, &counts);
    return tell(t, what, &counts);
}

static void test_flushes_matter(void **state)
{
    trial *t = begin(2, 1, 1, "auto", PLAIN, 0);
    const char *before = "without the flush before the record";
    const char *after = "without the flush after the record";
    uint64_t before_verifying = without(t, before, false, false);
    uint64_t before_fast = without(t, before, false, true);
    uint64_t after_verifying = without(t, after, true, false);
    uint64_t after_fast = without(t, after, true, true);

    (void)state;
    end(t);
    assert_int_equal(before_verifying, 0);
    assert_true(before_fast > 0);
    assert_true(after_verifying > 0);
    assert_true(after_fast > 0);
}

/* test_explorer [PATTERN]: those tests alone. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_posix),
        cmocka_unit_test(test_uring),
        cmocka_unit_test(test_commit_every_2),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_early_every_3),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_coded),
        cmocka_unit_test(test_residual),
        cmocka_unit_test(test_spilled),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_after_errors),
        cmocka_unit_test(test_after_errors_reopened),
        cmocka_unit_test(test_power_failure_after_a_kill),
        cmocka_unit_test(test_flushes_matter),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("explorer", tests, NULL, NULL);
}
