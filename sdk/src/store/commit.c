/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit, and the way back.
 *
 *     residual, flush data -> write area -> flush -> previous slots are free
 *
 * When the area write or its flush fails, nobody knows whether the new record
 * stands.  The same area is then overwritten with a record of the previous
 * state under a higher number; once that is durable the answer is "no".  If
 * even that fails the store is BROKEN: only opening it again can tell.
 */
#include "config.h"

#include "store/chunk.h"
#include "store/commit.h"
#include "store/ledger.h"
#include "store/stream.h"

#include <string.h>

void gyre_store_rewind(gyre_store *store)
{
    memcpy(store->current, store->committed,
           store->layout.chunks * sizeof(gyre_entry));
    store->now = store->last;
    store->rounds_since = 0;
    store->peek_chunk = UINT64_MAX;
    for (size_t i = 0; i < store->layout.tensor_count; i++)
        store->layout.tensors[i].step = store->layout.tensors[i].committed_step;
}

void gyre_store_take_commit(gyre_store *store)
{
    memcpy(store->committed, store->current,
           store->layout.chunks * sizeof(gyre_entry));
    store->last = store->now;
    store->rounds_since = 0;
    gyre_residual_saved(store);
    for (size_t i = 0; i < store->layout.tensor_count; i++)
        store->layout.tensors[i].committed_step = store->layout.tensors[i].step;
}

/* Write `now` and `current` into area `area` of every device, and flush. */
static gyre_status write_area(gyre_store *store, uint32_t area,
                              const void *blob, size_t blob_bytes,
                              gyre_error *error)
{
    gyre_layout *layout = &store->layout;
    uint64_t head =
        gyre_format_head_bytes(layout->chunks, layout->tensor_count);
    uint64_t bytes = gyre_round_up(head + blob_bytes, layout->align);
    gyre_status status;

    for (size_t i = 0; i < layout->tensor_count; i++)
        store->steps[i] = layout->tensors[i].step;
    store->now.seq = store->next_seq++;
    store->now.blob_bytes = blob_bytes;
    store->now.inexact |= store->inexact;
    store->now.written = atomic_load(&store->flash) + bytes * layout->devices;
    if (blob_bytes > 0)
        memcpy((char *)store->image + head, blob, blob_bytes);
    (void)gyre_format_area(store->image, store->uuid, &store->now,
                           store->current, layout->chunks, store->steps,
                           layout->tensor_count, layout->align);
    status = gyre_workers_write(store, store->image, bytes,
                                layout->area_at[area], error);
    if (status == GYRE_OK)
        status = gyre_workers_flush(store, error);
    if (status != GYRE_OK)
        return status;
    store->commit_bytes = bytes * layout->devices;
    gyre_store_count(store,
                     &(gyre_ledger){.commit_write = store->commit_bytes});
    return GYRE_OK;
}

/* The record in `area` may or may not stand: make sure that it does not. */
static void undo_area(gyre_store *store, uint32_t area)
{
    gyre_error why = {GYRE_OK, ""};
    uint64_t seq = store->next_seq;

    gyre_store_rewind(store);
    if (write_area(store, area, store->blob, store->blob_bytes, &why) ==
        GYRE_OK) {
        store->last.seq = seq;
        store->area = area;
        return;
    }
    store->mode = GYRE_STORE_BROKEN;
    gyre_log(store->context, GYRE_LOG_ERROR,
             "store %s: the last commit could not be undone: %s", store->path,
             why.text);
}

gyre_status gyre_store_check_blob(const gyre_store *store, const void *blob,
                                  size_t blob_bytes, gyre_error *error)
{
    if (blob == NULL && blob_bytes > 0)
        return gyre_fail(error, GYRE_RANGE,
                         "the blob has %zu bytes and no address", blob_bytes);
    if (blob_bytes > store->layout.blob_capacity)
        return gyre_fail(error, GYRE_RANGE,
                         "the blob has %zu bytes; this store has room for %llu "
                         "(blob_bytes when it is made)",
                         blob_bytes,
                         (unsigned long long)store->layout.blob_capacity);
    return GYRE_OK;
}

gyre_status gyre_store_commit_now(gyre_store *store, const void *blob,
                                  size_t blob_bytes, gyre_error *error)
{
    uint32_t area = 1 - store->area;
    bool touched = store->now.dirty != 0; /* in place: data were overwritten */
    gyre_status status;

    status = gyre_store_check_blob(store, blob, blob_bytes, error);
    if (status != GYRE_OK)
        return status;
    store->now.dirty = 0;
    status = gyre_residual_save(store, error);
    if (status == GYRE_OK)
        status = gyre_workers_flush(store, error);
    if (status != GYRE_OK) {
        gyre_store_rewind(store);
        if (touched)
            store->mode = GYRE_STORE_BROKEN;
        return status;
    }
    status = write_area(store, area, blob, blob_bytes, error);
    if (status != GYRE_OK && touched) {
        gyre_store_rewind(store);
        store->mode = GYRE_STORE_BROKEN;
        return status;
    }
    if (status != GYRE_OK) {
        undo_area(store, area);
        return status;
    }
    store->area = area;
    if (blob_bytes > 0 && blob != store->blob)
        memcpy(store->blob, blob, blob_bytes);
    store->blob_bytes = blob_bytes;
    gyre_store_take_commit(store);
    return GYRE_OK;
}

gyre_status gyre_store_mark_dirty(gyre_store *store, gyre_error *error)
{
    uint32_t area = 1 - store->area;
    gyre_record before = store->now;
    gyre_status status;

    if (store->now.dirty)
        return GYRE_OK;
    store->now.dirty = 1;
    status = write_area(store, area, store->blob, store->blob_bytes, error);
    if (status != GYRE_OK) {
        store->now = before;
        undo_area(store, area);
        return status;
    }
    store->area = area;
    return GYRE_OK;
}

gyre_status gyre_store_tell_back(const gyre_store *store, bool lost,
                                 gyre_status cause, gyre_error *error)
{
    if (store->mode == GYRE_STORE_BROKEN)
        return gyre_fail_prefix(error, cause,
                                "store %s: it is not known which commit "
                                "stands; close and open it",
                                store->path);
    if (!lost)
        return cause;
    return gyre_fail_prefix(error, GYRE_ROLLED_BACK,
                            "rolled back to step %llu, the last commit",
                            (unsigned long long)store->now.step);
}

gyre_status gyre_store_commit(gyre_store *store, const void *blob,
                              size_t blob_bytes, gyre_error *error)
{
    gyre_status status = gyre_store_check(store, true, true, error);
    gyre_error why = {GYRE_OK, ""};
    bool lost;

    if (status != GYRE_OK)
        return status;
    lost = store->rounds_since > 0;
    status = gyre_store_commit_now(store, blob, blob_bytes, error);
    if (status == GYRE_OK || store->rounds_since > 0) /* refused */
        return status;
    status = gyre_store_tell_back(store, lost, status, error);
    if (lost && store->mode == GYRE_STORE_READY &&
        gyre_residual_load(store, &why) != GYRE_OK) {
        store->mode = GYRE_STORE_BROKEN;
        gyre_fail_prefix(error, status,
                         "the residual could not be restored "
                         "(%s)",
                         why.text);
    }
    if (lost && store->mode == GYRE_STORE_READY &&
        gyre_store_redeliver(store, NULL, &why) != GYRE_OK) {
        store->mode = GYRE_STORE_BROKEN;
        gyre_fail_prefix(error, status,
                         "bound buffers could not be restored (%s)", why.text);
    }
    return status;
}

const void *gyre_store_blob(const gyre_store *store, size_t *bytes)
{
    *bytes = store->blob_bytes;
    return store->blob_bytes > 0 ? store->blob : NULL;
}
