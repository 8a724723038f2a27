/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fault/trial.h"

#include "store/store.h"

#include <stdio.h>

/* ---- recording -------------------------------------------------------- */

void trial_new_record(trial *t)
{
    gyre_error error = {GYRE_OK, ""};

    gyre_io_recorder_destroy(t->recorder);
    fault_ok(gyre_io_recorder_create(t->context, &t->recorder, &error), &error);
}

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
    trial_new_record(t);
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

bool trial_record_again(trial *t, const char *io)
{
    gyre_store_options options = fault_options(io);
    gyre_error error = {GYRE_OK, ""};
    uint64_t done = 0, failures = 0;
    gyre_store *store;

    trial_new_record(t);
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

trial *trial_begin(size_t devices, uint64_t scale, uint32_t commit_every,
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

void trial_end(trial *t)
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

int trial_judge(void *user, const explorer_state *state)
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

uint64_t trial_tell(const trial *t, const char *what,
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
