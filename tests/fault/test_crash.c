/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power failure, and errors, inside create, reshard and import.
 *
 * The crash explorer over names lays out what a failure could leave; each
 * state must open as the store of before or of after, whole, and of a create
 * as no store (then it can be made) or a whole one.  The open sweeps: nothing
 * lies in the folders but the generation that stands.  The same after each
 * step and each operation failed once, and for the crash states that follow.
 */
#include "config.h"

#include "fault/common.h"
#include "fault/crash.h"

#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum kind { CREATE, RESHARD, IMPORT } kind;

static const char *const kind_names[] = {"create", "reshard", "import"};

enum { WHERE = 1 + FAULT_DEVICES, BEFORE = 0, AFTER = 1 };

static const unsigned everything =
    FAULT_CODED | FAULT_FED | FAULT_SPILLED | FAULT_LATE;

typedef struct trial {
    kind kind;
    fault_model model, other; /* the one imported */
    fault_place place;
    const char *folders[WHERE];
    char file[FAULT_PATH + 16]; /* to import */
    fault_saved saved;          /* before */
    gyre_context *context;
    fault_picture picture[2], next[2]; /* before, after; and a round later */
    int entries[2][WHERE];
    crash *crash;
    uint64_t given, seen, told, absent, stood[2];
} trial;

/* ---- the work --------------------------------------------------------- */

static gyre_status do_create(trial *t, gyre_context *context,
                             const fault_model *model, gyre_io_recorder *r,
                             const char *io, gyre_error *error)
{
    gyre_store_options options = fault_options(io);
    gyre_store *store;
    gyre_status status;

    options.recorder = r;
    t->place.count = 2;
    status = fault_create(context, model, &t->place, &options, &store, error);
    t->place.count = FAULT_DEVICES;
    if (status == GYRE_OK)
        gyre_store_close(store);
    return status;
}

static gyre_status work(trial *t, gyre_context *context, gyre_io_recorder *r,
                        const char *io, gyre_error *error)
{
    const char *const onto[] = {t->place.device[1], t->place.device[2], NULL};
    gyre_store_options options = fault_options(io);
    gyre_store_spec spec = {.size = sizeof(spec),
                            .devices = onto,
                            .device_count = 3,
                            .chunk_elements = 2 * GYRE_GRAIN};

    options.recorder = r;
    if (t->kind == CREATE)
        return do_create(t, context, &t->model, r, io, error);
    if (t->kind == RESHARD)
        return gyre_store_reshard(context, t->place.store, &spec, &options,
                                  NULL, NULL, error);
    return gyre_store_import(context, t->place.store, t->file, &options, NULL,
                             NULL, error);
}

/* ---- before and after ------------------------------------------------- */

static void look(trial *t, int which)
{
    gyre_store_options options = fault_options("posix");
    gyre_error error = {GYRE_OK, ""};
    gyre_round_report report;
    gyre_store *store;

    fault_ok(fault_open(t->context, &t->place, &options, &store, &error),
             &error);
    fault_ok(fault_look(store, &t->picture[which], &error), &error);
    for (int d = 0; d < WHERE; d++)
        t->entries[which][d] = fault_entries(t->folders[d]);
    fault_ok(fault_round(&t->model, store, false, &report, &error), &error);
    fault_ok(fault_look(store, &t->next[which], &error), &error);
    gyre_store_close(store);
}

static void restore(trial *t)
{
    fault_place_clear(&t->place);
    if (t->kind == CREATE)
        return;
    assert_int_equal(mkdir(t->place.store, 0777), 0);
    fault_restore(&t->saved);
}

/* A store at round 2, and a file of another one at round 1. */
static void make_old(trial *t)
{
    gyre_store_options options = fault_options("posix");
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;

    for (int which = 1; which >= 0; which--) {
        const fault_model *model = which ? &t->other : &t->model;

        fault_place_clear(&t->place);
        fault_ok(do_create(t, t->context, model, NULL, "posix", &error),
                 &error);
        fault_ok(fault_open(t->context, &t->place, &options, &store, &error),
                 &error);
        for (int r = 0; r < 2 - which; r++) {
            gyre_round_report report;

            fault_ok(fault_round(model, store, false, &report, &error), &error);
        }
        if (which)
            fault_ok(gyre_store_export(store, t->file, 0, NULL, NULL, &error),
                     &error);
        gyre_store_close(store);
    }
    fault_save(&t->place, &t->saved);
    look(t, BEFORE);
}

static trial *begin(kind how, unsigned with)
{
    trial *t = calloc(1, sizeof(*t));
    gyre_error error = {GYRE_OK, ""};

    t->kind = how;
    fault_model_make(&t->model, 1);
    fault_model_make(&t->other, 1);
    t->model.with = t->other.with = with;
    for (uint64_t i = 0; i < t->other.elements[2]; i++)
        t->other.data[2][i] += 1;
    fault_place_make(&t->place, FAULT_DEVICES, false);
    snprintf(t->file, sizeof(t->file), "%s/other.safetensors", t->place.root);
    t->folders[0] = t->place.store;
    for (int d = 0; d < FAULT_DEVICES; d++)
        t->folders[1 + d] = t->place.device[d];
    fault_ok(gyre_context_create(NULL, &t->context, &error), &error);
    if (how != CREATE)
        make_old(t);
    restore(t);
    t->crash = crash_create(t->folders, WHERE);
    fault_ok(work(t, t->context, NULL, "posix", &error), &error);
    look(t, AFTER);
    if (how == IMPORT)
        assert_string_not_equal(t->picture[0].digest, t->picture[1].digest);
    return t;
}

static void end(trial *t)
{
    crash_destroy(t->crash);
    gyre_context_destroy(t->context);
    fault_saved_free(&t->saved);
    fault_place_remove(&t->place);
    fault_model_free(&t->model);
    fault_model_free(&t->other);
    free(t);
}

/* ---- judging ---------------------------------------------------------- */

static bool holds(const trial *t, const fault_picture *now, int which)
{
    return fault_differs(now, &t->picture[which], true) == NULL;
}

static bool is_swept(const trial *t, int which)
{
    for (int d = 0; d < WHERE; d++)
        if (fault_entries(t->folders[d]) != t->entries[which][d])
            return false;
    return true;
}

/* The store that opened: which is it?  NULL when all is right. */
static const char *judge_open(trial *t, gyre_store *store, bool go_on,
                              int *which, gyre_error *error)
{
    gyre_store_info info = {.size = sizeof(info)};
    gyre_round_report report;
    fault_picture now;

    (void)gyre_store_get_info(store, &info, error);
    *which = t->kind == CREATE || info.generation == 2 ? AFTER : BEFORE;
    if (fault_look(store, &now, error) != GYRE_OK)
        return "reading";
    if (!holds(t, &now, *which))
        return "contents";
    if (!is_swept(t, *which))
        return "sweeping";
    if (!go_on)
        return NULL;
    if (fault_round(&t->model, store, false, &report, error) != GYRE_OK ||
        fault_look(store, &now, error) != GYRE_OK)
        return "the next round";
    return fault_differs(&now, &t->next[*which], true);
}

/* No store: then one can be made. */
static const char *judge_absent(trial *t, gyre_error *error)
{
    gyre_store_options options = fault_options("posix");
    const char *wrong = "making it again";
    gyre_store *store;
    int which;

    t->absent++;
    if (do_create(t, t->context, &t->model, NULL, "posix", error) != GYRE_OK ||
        fault_open(t->context, &t->place, &options, &store, error) != GYRE_OK)
        return wrong;
    wrong = judge_open(t, store, false, &which, error);
    gyre_store_close(store);
    return wrong;
}

/* NULL when all is right; `done`: the work had returned without an error. */
static const char *judge_now(trial *t, bool done, bool go_on, gyre_error *error)
{
    gyre_store_options options = fault_options("posix");
    const char *wrong;
    gyre_store *store;
    int which = BEFORE;
    gyre_status status =
        fault_open(t->context, &t->place, &options, &store, error);

    if (t->kind == CREATE && !done && status == GYRE_NOT_FOUND &&
        (strstr(error->text, "holds no store") != NULL ||
         access(t->place.store, F_OK) != 0))
        return judge_absent(t, error);
    if (status != GYRE_OK)
        return "opening";
    wrong = judge_open(t, store, go_on, &which, error);
    gyre_store_close(store);
    t->stood[which]++;
    if (wrong == NULL && done && which != AFTER)
        wrong = "it was done";
    return wrong;
}

static int judge(void *user, const crash_state *state)
{
    trial *t = user;
    gyre_error error = {GYRE_OK, ""};

    if (fault_passes_over(t->given++))
        return 0;
    const char *wrong =
        judge_now(t, state->mark == 1, t->seen++ % 7 == 0, &error);

    if (wrong != NULL && t->told++ < 5) {
        printf("# bad: %s: %s (place %zu, mark %llu, %zu names, %zu writes "
               "open): %s\n",
               kind_names[t->kind], wrong, state->place,
               (unsigned long long)state->mark, state->names, state->writes,
               error.text);
        fflush(stdout);
    }
    return wrong != NULL;
}

/* ---- power failure ---------------------------------------------------- */

static gyre_io_recorder *recorder_of(const trial *t)
{
    gyre_io_recorder *recorder;
    gyre_error error = {GYRE_OK, ""};

    fault_ok(gyre_io_recorder_create(t->context, &recorder, &error), &error);
    return recorder;
}

static void explore(trial *t, const gyre_io_recorder *recorder, size_t samples,
                    crash_drop drop, void *user, crash_counts *counts)
{
    t->given = t->seen = 0;
    crash_take(t->crash, recorder, drop, user);
    crash_all(t->crash, samples, 1, judge, t, counts);
}

static void power_failure(kind how, const char *io, unsigned with)
{
    trial *t = begin(how, with);
    gyre_io_recorder *recorder = recorder_of(t);
    gyre_error error = {GYRE_OK, ""};
    crash_counts counts = {0};

    restore(t);
    fault_ok(work(t, t->context, recorder, io, &error), &error);
    gyre_io_recorder_mark(recorder, 1);
    explore(t, recorder,
            fault_long()          ? 20
            : fault_stride(1) > 1 ? 1
                                  : 3,
            NULL, NULL, &counts);
    printf("# %s, %s, with %x: states: %llu, bad: %llu (up to %zu names open; "
           "%llu before, %llu after, %llu no store)\n",
           kind_names[how], io, with, (unsigned long long)counts.states,
           (unsigned long long)counts.bad, counts.most_names,
           (unsigned long long)t->stood[BEFORE],
           (unsigned long long)t->stood[AFTER], (unsigned long long)t->absent);
    fflush(stdout);
    assert_int_equal(counts.bad, 0);
    assert_true(counts.states > 200 && t->stood[AFTER] > 0);
    assert_true(t->stood[BEFORE] + t->absent > 0);
    gyre_io_recorder_destroy(recorder);
    end(t);
}

static void test_create(void **state)
{
    (void)state;
    power_failure(CREATE, "posix", 0);
    power_failure(CREATE, "auto", everything);
}

static void test_reshard(void **state)
{
    (void)state;
    power_failure(RESHARD, "auto", 0);
    power_failure(RESHARD, "posix", everything);
}

static void test_import(void **state)
{
    (void)state;
    power_failure(IMPORT, "auto", 0);
    power_failure(IMPORT, "posix", everything);
}

/* ---- tests of the test ------------------------------------------------ */

static int drop_folder_syncs(void *user, const gyre_io_event *event)
{
    (void)user;
    return event->kind == GYRE_IO_FOLDER_SYNCED;
}

static int drop_file_syncs(void *user, const gyre_io_event *event)
{
    (void)user;
    return (event->kind == GYRE_IO_FLUSH_START ||
            event->kind == GYRE_IO_FLUSH_END) &&
           strstr(event->file, ".json") != NULL;
}

static int drop_flushes(void *user, const gyre_io_event *event)
{
    (void)user;
    return (event->kind == GYRE_IO_FLUSH_START ||
            event->kind == GYRE_IO_FLUSH_END) &&
           strstr(event->file, ".d0") != NULL;
}

static uint64_t bad_without(trial *t, const gyre_io_recorder *recorder,
                            const char *what, crash_drop drop)
{
    crash_counts counts = {0};

    t->told = 5;
    explore(t, recorder, 1, drop, NULL, &counts);
    printf("# reshard without %s: states: %llu, bad: %llu\n", what,
           (unsigned long long)counts.states, (unsigned long long)counts.bad);
    fflush(stdout);
    return counts.bad;
}

static void test_syncs_matter(void **state)
{
    trial *t = begin(RESHARD, 0);
    gyre_io_recorder *recorder = recorder_of(t);
    gyre_error error = {GYRE_OK, ""};

    (void)state;
    restore(t);
    fault_ok(work(t, t->context, recorder, "posix", &error), &error);
    gyre_io_recorder_mark(recorder, 1);
    assert_true(bad_without(t, recorder, "folder syncs", drop_folder_syncs) >
                0);
    assert_true(
        bad_without(t, recorder, "the manifest's sync", drop_file_syncs) > 0);
    assert_true(bad_without(t, recorder, "flushes", drop_flushes) > 0);
    gyre_io_recorder_destroy(recorder);
    end(t);
}

/* ---- errors ----------------------------------------------------------- */

/* What an error must say, and what must stand at once. */
static void check_failed(trial *t, gyre_status status, int err, uint64_t n,
                         gyre_error *error)
{
    gyre_error why = {GYRE_OK, ""};
    const char *wrong;

    if (status != GYRE_OK && (strstr(error->text, strerror(err)) == NULL ||
                              strstr(error->text, t->place.root) == NULL))
        fail_msg("%s, failure %llu: no file or errno in: %s",
                 kind_names[t->kind], (unsigned long long)n, error->text);
    wrong = judge_now(t, status == GYRE_OK, true, &why);
    if (wrong != NULL)
        fail_msg("%s, failure %llu (%s): %s: %s", kind_names[t->kind],
                 (unsigned long long)n, error->text, wrong, why.text);
}

static void explore_failed(trial *t, gyre_io_recorder *recorder,
                           gyre_status status, uint64_t n, crash_counts *counts)
{
    unsigned stride = fault_stride(4);

    if (stride > 10) /* the shortest list of failures has twenty */
        stride = 10;
    if (status == GYRE_OK)
        gyre_io_recorder_mark(recorder, 1);
    if (counts != NULL && n % stride == 0)
        explore(t, recorder, 1, NULL, NULL, counts);
}

/* Each step with names fails once. */
static void fail_names(trial *t, int err, crash_counts *counts)
{
    uint64_t n = 0;
    bool reached = true;

    while (reached) {
        gyre_io_recorder *recorder = recorder_of(t);
        gyre_error error = {GYRE_OK, ""};
        gyre_status status;

        gyre_io_recorder_refuse(recorder, ++n, err);
        restore(t);
        status = work(t, t->context, recorder, "posix", &error);
        reached = gyre_io_recorder_asked(recorder) >= n;
        check_failed(t, status, err, n, &error);
        if (reached)
            explore_failed(t, recorder, status, n, counts);
        gyre_io_recorder_destroy(recorder);
    }
    printf("# %s: each of %llu steps with names failed (%s)\n",
           kind_names[t->kind], (unsigned long long)n - 1, strerror(err));
    assert_true(n > 10);
}

/* Each operation fails once. */
static void fail_operations(trial *t, int err, const char *name,
                            crash_counts *counts)
{
    uint64_t n = 0, failures = 0;
    bool reached = true;

    while (reached) {
        gyre_io_recorder *recorder = recorder_of(t);
        gyre_context *context = NULL;
        gyre_error error = {GYRE_OK, ""};
        gyre_status status;
        char io[64];

        snprintf(io, sizeof(io), "faulty:posix,all,fail=%llu/%s",
                 (unsigned long long)++n, name);
        restore(t);
        fault_ok(gyre_context_create(NULL, &context, &error), &error);
        status = work(t, context, recorder, io, &error);
        reached = gyre_io_submitted(context) >= n;
        gyre_context_destroy(context);
        /* A record that one device does not give is read from another. */
        assert_true(status == GYRE_OK || reached);
        failures += status != GYRE_OK;
        check_failed(t, status, err, n, &error);
        if (reached)
            explore_failed(t, recorder, status, n, counts);
        gyre_io_recorder_destroy(recorder);
    }
    printf("# %s: each of %llu operations failed (%s), %llu could not be "
           "done without\n",
           kind_names[t->kind], (unsigned long long)n - 1, name,
           (unsigned long long)failures);
    assert_true(failures > 20);
}

static void errors(kind how, unsigned with)
{
    trial *t = begin(how, with);
    crash_counts counts = {0};

    fail_names(t, EIO, &counts);
    fail_names(t, ENOSPC, NULL);
    fail_operations(t, EIO, "EIO", &counts);
    fail_operations(t, ENOSPC, "ENOSPC", NULL);
    printf("# %s: crashes after an error: states: %llu, bad: %llu\n",
           kind_names[how], (unsigned long long)counts.states,
           (unsigned long long)counts.bad);
    fflush(stdout);
    assert_int_equal(counts.bad, 0);
    assert_true(counts.states > 200);
    end(t);
}

static void test_create_errors(void **state)
{
    (void)state;
    errors(CREATE, 0);
}

static void test_reshard_errors(void **state)
{
    (void)state;
    errors(RESHARD, everything);
}

static void test_import_errors(void **state)
{
    (void)state;
    errors(IMPORT, everything);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_reshard),
        cmocka_unit_test(test_import),
        cmocka_unit_test(test_syncs_matter),
        cmocka_unit_test(test_create_errors),
        cmocka_unit_test(test_reshard_errors),
        cmocka_unit_test(test_import_errors),
    };

    return cmocka_run_group_tests_name("crash", tests, NULL, NULL);
}
