/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening: find the devices, choose a record, verify, and if need be go back.
 *
 * Of all records on all devices the newest whose table verifies is chosen.
 * A verifying open then reads every chunk; when one fails, the newest record
 * of a lower number is tried as a whole, and if it holds the way back is
 * committed before anything else is written.
 */
#include "config.h"

#include "store/build.h"
#include "store/chunk.h"
#include "store/commit.h"
#include "store/compute.h"
#include "store/ledger.h"
#include "store/manifest.h"
#include "store/place.h"
#include "store/plugins.h"
#include "store/round.h"

#include <string.h>

/* ---- records ---------------------------------------------------------- */

static gyre_status check_entries(const gyre_store *store, gyre_error *error)
{
    for (uint64_t c = 0; c < store->layout.chunks; c++)
        if (store->current[c].version >=
            gyre_layout_versions(&store->layout, c))
            return gyre_fail(error, GYRE_FORMAT,
                             "store %s: the record names a slot that chunk "
                             "%llu does not have",
                             store->path, (unsigned long long)c);
    return GYRE_OK;
}

gyre_status gyre_store_choose(gyre_store *store, uint64_t below,
                              uint64_t *newest, gyre_error *error)
{
    gyre_layout *layout = &store->layout;
    gyre_error why = {GYRE_OK, "no record was ever written"};
    gyre_error unread[2] = {{GYRE_OK, ""}, {GYRE_OK, ""}};
    bool read[2] = {false, false};
    uint64_t best = 0;

    for (uint32_t d = 0; d < layout->devices; d++)
        for (uint32_t a = 0; a < 2; a++) {
            const gyre_entry *entries;
            const uint64_t *steps;
            const void *blob;
            gyre_record record;
            gyre_status status =
                gyre_workers_read(store, d, store->image, layout->area_bytes,
                                  layout->area_at[a], &why);

            if (status != GYRE_OK && unread[a].status == GYRE_OK)
                unread[a] = why;
            if (status == GYRE_OK)
                status = gyre_format_read_area(
                    store->image, layout->area_room, store->uuid,
                    store->generation, layout->chunks, layout->tensor_count,
                    &record, &entries, &steps, &blob, &why);
            if (status != GYRE_OK)
                continue;
            read[a] = true;
            if (record.written > atomic_load(&store->flash))
                atomic_store(&store->flash, record.written);
            if (record.seq > *newest)
                *newest = record.seq;
            if (record.seq <= best || record.seq >= below)
                continue;
            best = record.seq;
            store->now = record;
            store->area = a;
            memcpy(store->current, entries, layout->chunks * sizeof(*entries));
            memcpy(store->blob, blob, record.blob_bytes);
            store->blob_bytes = record.blob_bytes;
            for (size_t i = 0; i < layout->tensor_count; i++)
                layout->tensors[i].step = steps[i];
        }
    store->unread.status = GYRE_OK;
    for (uint32_t a = 0; a < 2; a++)
        if (!read[a] && unread[a].status != GYRE_OK)
            store->unread = unread[a];
    if (best == 0)
        return gyre_fail(error, GYRE_NOT_FOUND,
                         "store %s: no device holds a whole commit record "
                         "(%s)",
                         store->path, why.text);
    return check_entries(store, error);
}

gyre_status gyre_store_tell_unread(const gyre_store *store, gyre_error *error)
{
    return gyre_fail(error, store->unread.status,
                     "store %s: no device gives this commit record: %s",
                     store->path, store->unread.text);
}

/* ---- verifying -------------------------------------------------------- */

static gyre_status verify_chunk(void *user, uint32_t device, gyre_work work,
                                uint8_t *data, gyre_work_result *result,
                                gyre_error *error)
{
    gyre_store *store = user;

    (void)result;
    return gyre_store_verify(store, device, work.chunk,
                             &store->current[work.chunk], data, error);
}

static gyre_status verify_all(gyre_store *store, gyre_error *error)
{
    gyre_stream stream = {
        .table = store->current, .process = verify_chunk, .user = store};

    return gyre_workers_each(store, &stream, 0, store->layout.chunks, error);
}

/* Chunks that belong to no commit any more are not what verify may blame. */
static gyre_status settle_record(gyre_store *store, gyre_error *error)
{
    uint64_t newest = 0;
    gyre_error why = {GYRE_OK, ""};
    gyre_status status = gyre_store_choose(store, UINT64_MAX, &newest, error);

    /* What cannot be read may be the newest record: to go on from the other
     * one would give up a commit for good, for what may be a loose cable. */
    if (store->unread.status != GYRE_OK)
        return gyre_store_tell_unread(store, error);
    if (status != GYRE_OK)
        return status;
    store->next_seq = newest + 1;
    if (store->now.dirty)
        return gyre_fail(error, GYRE_DIRTY,
                         "store %s works in place and was interrupted inside a "
                         "round after step %llu: its contents are a mixture; "
                         "restore it from an export",
                         store->path, (unsigned long long)store->now.step);
    if (store->fast)
        return GYRE_OK;
    status = verify_all(store, error);
    /* Only what is damaged is gone; what cannot be read may come back. */
    if (status != GYRE_CORRUPT || store->layout.versions == 1)
        return status;
    if (gyre_store_choose(store, store->now.seq, &newest, NULL) != GYRE_OK ||
        verify_all(store, &why) != GYRE_OK)
        return gyre_fail_prefix(error, status,
                                "store %s, and the commit before is not whole "
                                "either",
                                store->path);
    store->fell_back = true;
    gyre_log(store->context, GYRE_LOG_WARNING,
             "store %s: went back to step %llu: %s", store->path,
             (unsigned long long)store->now.step,
             error != NULL ? error->text : "a chunk is damaged");
    return GYRE_OK;
}

/* ---- open ------------------------------------------------------------- */

gyre_status gyre_store_attach(gyre_store *store,
                              const gyre_store_options *options,
                              gyre_error *error)
{
    gyre_status status = gyre_place_resolve(store, error);

    if (status == GYRE_OK)
        status = gyre_place_lock(store, store->lock_wait_ns, error);
    if (status == GYRE_OK && store->manifest != NULL)
        status =
            gyre_manifest_parse(store, store->manifest, strlen(store->manifest),
                                store->path, error);
    else if (status == GYRE_OK)
        status = gyre_manifest_read(store, error);
    if (status == GYRE_OK)
        status = gyre_store_check_devices(store, options, error);
    if (status == GYRE_OK)
        status = gyre_compute_take(store, options, error);
    if (status == GYRE_OK && !store->read_only)
        status = gyre_store_attach_optimizer(store, error);
    if (status == GYRE_OK)
        status = gyre_store_attach_compressor(store, error);
    if (status == GYRE_OK)
        status = gyre_store_check_memory(store, error);
    if (status == GYRE_OK)
        status = gyre_store_open_devices(store, error);
    if (status == GYRE_OK)
        status = gyre_store_tables(store, error);
    if (status == GYRE_OK)
        status = gyre_workers_create(store, error);
    return status;
}

gyre_status gyre_store_settle(gyre_store *store, gyre_error *error)
{
    gyre_status status = settle_record(store, error);

    if (status != GYRE_OK)
        return status;
    gyre_store_take_commit(store);
    store->inexact |= store->now.inexact != 0;
    if (store->read_only)
        return GYRE_OK;
    /* A process that was killed may have written this record and not flushed
     * it.  The next round writes over the commit before: first this one must be
     * on the medium, or a power failure then would take both. */
    status = gyre_workers_flush(store, error);
    if (status == GYRE_OK)
        status = gyre_residual_allocate(store, error);
    if (status == GYRE_OK)
        status = gyre_residual_load(store, error);
    if (status != GYRE_OK)
        return status;
    gyre_journal_settle(store, store);
    if (!gyre_workers_exact(store))
        status = gyre_manifest_note_inexact(store, error);
    if (status != GYRE_OK)
        return status;
    if (store->fell_back)
        status =
            gyre_store_commit_now(store, store->blob, store->blob_bytes, error);
    return status;
}

gyre_status gyre_store_open(gyre_context *context, const char *path,
                            const gyre_store_options *options, gyre_store **out,
                            gyre_error *error)
{
    gyre_error text = {GYRE_OK, ""};
    gyre_fp saved = gyre_fp_pin();
    gyre_store *store;
    gyre_status status =
        gyre_store_blank(context, path, options, &store, &text);

    if (status == GYRE_OK) {
        status = gyre_store_attach(store, options, &text);
        if (status == GYRE_OK)
            status = gyre_store_settle(store, &text);
        if (status == GYRE_OK) {
            gyre_ledger_begin(store);
            *out = store;
        } else {
            gyre_store_free(store);
        }
    }
    if (status != GYRE_OK && error != NULL)
        *error = text;
    gyre_fp_restore(saved);
    return status;
}

/* In place the rounds since the last commit are what stands on disk, whole
 * unless an update is under way; without a commit open would call it dirty. */
static void settle_in_place(gyre_store *store)
{
    gyre_error why = {GYRE_OK, ""};

    if (!store->now.dirty || store->mode != GYRE_STORE_READY ||
        (store->round != NULL && store->round->state != GYRE_ROUND_OPEN))
        return;
    if (gyre_store_commit_now(store, store->blob, store->blob_bytes, &why) !=
        GYRE_OK)
        gyre_log(store->context, GYRE_LOG_ERROR,
                 "store %s: the last rounds could not be committed: %s",
                 store->path, why.text);
}

void gyre_store_close(gyre_store *store)
{
    if (store == NULL)
        return;
    settle_in_place(store);
    if (store->round != NULL)
        gyre_round_discard(store->round);
    gyre_store_free(store);
}
