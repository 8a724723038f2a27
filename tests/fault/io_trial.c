/* SPDX-License-Identifier: Apache-2.0 */
/* One store under I/O faults: what an error must say, what must stand. */
#include "config.h"

#include "fault/io_trial.h"

#include "store/store.h"

io_trial *io_trial_begin(size_t devices, bool disk, uint32_t commit_every,
                         unsigned how)
{
    io_trial *t = calloc(1, sizeof(*t));
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_store_options options = fault_options("posix");
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;

    fault_model_make(&t->model, 1);
    t->model.in_place = (how & IO_TRIAL_IN_PLACE) != 0;
    t->model.spilled = (how & IO_TRIAL_SPILLED) != 0;
    t->model.compressed = (how & IO_TRIAL_RESIDUAL) != 0;
    t->model.late = (how & IO_TRIAL_LATE) != 0;
    fault_place_make(&t->place, devices, disk);
    fault_ok(
        fault_create(context, &t->model, &t->place, &options, &store, &error),
        &error);
    t->data_at = store->layout.data_at;
    gyre_store_close(store);
    fault_save(&t->place, &t->fresh);
    options.commit_every = t->commit_every = commit_every;
    fault_ok(fault_open(context, &t->place, &options, &store, &error), &error);
    t->early = (how & IO_TRIAL_EARLY) != 0;
    fault_record(&t->model, store, t->early, &t->history);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    return t;
}

void io_trial_end(io_trial *t)
{
    fault_saved_free(&t->fresh);
    fault_place_remove(&t->place);
    fault_model_free(&t->model);
    free(t);
}

/* ---- what an error must say ------------------------------------------- */

void io_trial_text(const io_trial *t, const gyre_error *error)
{
    const char *text = error->text, *at = strstr(text, "at offset ");

    if (strstr(text, t->place.root) == NULL ||
        (strstr(text, ".d0") == NULL && strstr(text, "superblock") == NULL))
        fail_msg("no device file in: %s", text);
    if (strstr(text, "Input/output error") == NULL &&
        strstr(text, "No space left") == NULL &&
        strstr(text, "the file ends after") == NULL)
        fail_msg("no reason in: %s", text);
    if (strstr(text, "flush of") != NULL)
        return;
    if (at == NULL)
        fail_msg("no offset in: %s", text);
    if (strtoull(at + 10, NULL, 10) >= t->data_at &&
        (strstr(text, "device ") == NULL || strstr(text, "chunk ") == NULL ||
         (strstr(text, "weight [") == NULL && strstr(text, "gain [") == NULL)))
        fail_msg("no tensor range in: %s", text);
}

void io_trial_status(const gyre_error *error)
{
    if (error->status != GYRE_IO && error->status != GYRE_NO_SPACE &&
        error->status != GYRE_ROLLED_BACK)
        fail_msg("status %s: %s", gyre_status_name(error->status), error->text);
}

/* ---- what must stand --------------------------------------------------- */

uint64_t io_trial_round(const gyre_store *store)
{
    gyre_store_info info = {.size = sizeof(info)};

    assert_int_equal(gyre_store_get_info(store, &info, NULL), GYRE_OK);
    return info.round;
}

void io_trial_expect(io_trial *t, gyre_store *store, uint64_t round,
                     const char *when)
{
    gyre_error error = {GYRE_OK, ""};
    fault_picture now;
    const char *what;

    /* A fault may hit this, one for each device. */
    for (size_t d = 0; fault_look(store, &now, &error) != GYRE_OK; d++) {
        if (d == t->place.count)
            fail_msg("%s: %s", when, error.text);
        io_trial_text(t, &error);
        t->failures++;
    }
    what =
        fault_differs(&now, &t->history.picture[round], t->commit_every == 1);
    if (what != NULL)
        fail_msg("%s: %s differs from round %llu (is %llu)", when, what,
                 (unsigned long long)round, (unsigned long long)now.round);
}

void io_trial_open(io_trial *t, gyre_context *context, gyre_store **store)
{
    gyre_store_options options = fault_options("posix");
    gyre_error error = {GYRE_OK, ""};

    options.commit_every = t->commit_every;
    fault_ok(fault_open(context, &t->place, &options, store, &error), &error);
}

void io_trial_reopen(io_trial *t, gyre_context *context, uint64_t at)
{
    gyre_store *store;

    io_trial_open(t, context, &store);
    io_trial_expect(t, store, at, "reopened");
    gyre_store_close(store);
}
