/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mending.  Repair only ever restores a whole commit: the newest, when all its
 * chunks are there and only copies are damaged, or the one before as a whole.
 * Salvage gives wholeness up: it takes bad chunks as they are and says which.
 */
#include "config.h"

#include "store/build.h"
#include "store/chunk.h"
#include "store/commit.h"
#include "store/fsck.h"
#include "store/manifest.h"
#include "store/place.h"
#include "store/stream.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- labels ----------------------------------------------------------- */

/* A label page alone can be rewritten where pages can be written alone;
 * elsewhere it waits for the chunk's next update. */
static gyre_status mend_label(gyre_store *store, uint64_t chunk, void *page,
                              gyre_error *error)
{
    const gyre_layout *layout = &store->layout;
    const gyre_entry *entry = &store->current[chunk];
    uint64_t at = gyre_layout_offset(layout, chunk, entry->version) +
                  gyre_layout_data_bytes(layout, chunk);

    gyre_format_label(page, store->uuid, store->generation, chunk, entry);
    return gyre_workers_write_one(store, layout->places[chunk].device, page,
                                  GYRE_LABEL, at, error);
}

static gyre_status mend_labels(gyre_fsck *fsck, gyre_error *error)
{
    gyre_store *store = fsck->store;
    gyre_status status = GYRE_OK;
    void *page;

    if (fsck->labels == 0 || store->layout.align != GYRE_PAGE)
        return GYRE_OK;
    page = gyre_alloc_aligned(store->context, GYRE_LABEL, GYRE_PAGE);
    if (page == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a label");
    for (uint64_t c = 0; status == GYRE_OK && c < store->layout.chunks; c++)
        if (fsck->health[c] == GYRE_CHUNK_LABEL)
            status = mend_label(store, c, page, error);
    gyre_free_aligned(store->context, page, GYRE_LABEL, GYRE_PAGE);
    return status;
}

/* ---- repair ----------------------------------------------------------- */

static gyre_status mend_heads(gyre_fsck *fsck, gyre_error *error)
{
    gyre_store *store = fsck->store;
    gyre_status status = GYRE_OK;

    if (!fsck->heads)
        return GYRE_OK;
    for (uint32_t d = 0; status == GYRE_OK && d < store->layout.devices; d++)
        status = gyre_io_reserve(store->places[d].fd, store->places[d].file,
                                 store->layout.device_bytes[d], error);
    if (status == GYRE_OK)
        status = gyre_store_write_heads(store, error);
    return status;
}

/* Each commit writes one area of every device, the one without the newest
 * record first. */
static gyre_status mend_records(gyre_fsck *fsck, gyre_error *error)
{
    gyre_store *store = fsck->store;
    bool both = fsck->records[store->area];
    gyre_status status =
        gyre_store_commit_now(store, store->blob, store->blob_bytes, error);

    if (status == GYRE_OK && both)
        status =
            gyre_store_commit_now(store, store->blob, store->blob_bytes, error);
    return status;
}

/* The commit before, all of it, numbered above what it replaces. */
static gyre_status roll_back(gyre_fsck *fsck, gyre_error *error)
{
    gyre_store *store = fsck->store;
    gyre_status status = gyre_fsck_choose(fsck, fsck->previous, error);

    if (status == GYRE_OK)
        gyre_store_take_commit(store);
    return status;
}

gyre_status gyre_fsck_repair(gyre_fsck *fsck, gyre_error *error)
{
    gyre_store *store = fsck->store;
    gyre_status status = GYRE_OK;

    if (fsck->bad > 0 && !fsck->report.previous_whole)
        return GYRE_OK;
    gyre_store_take_commit(store);
    if (fsck->bad > 0)
        status = roll_back(fsck, error);
    else
        status = mend_labels(fsck, error);
    if (status == GYRE_OK)
        status = mend_heads(fsck, error);
    if (status == GYRE_OK)
        status = mend_records(fsck, error);
    if (status == GYRE_OK && fsck->manifest != NULL)
        status = gyre_manifest_write(store, error);
    if (status != GYRE_OK)
        return status;
    gyre_journal_settle(store, store);
    fsck->report.repaired = 1;
    return GYRE_OK;
}

/* ---- salvage ---------------------------------------------------------- */

static json_t *old_ranges(const gyre_store *store)
{
    char path[4096];
    json_t *root, *ranges = NULL;

    snprintf(path, sizeof(path), "%s/salvaged.json", store->path);
    root = json_load_file(path, 0, NULL);
    if (json_is_array(json_object_get(root, "ranges")) && store->now.salvaged)
        ranges = json_incref(json_object_get(root, "ranges"));
    json_decref(root);
    return ranges != NULL ? ranges : json_array();
}

static bool add_ranges(const gyre_store *store, uint64_t chunk, json_t *ranges)
{
    size_t cursor = GYRE_RUN_FIRST;
    bool good = true;
    gyre_run run;

    while (gyre_layout_next_run(&store->layout, chunk, &cursor, &run))
        good &= json_array_append_new(
                    ranges, json_pack("{s:s, s:I, s:I, s:I, s:I}", "tensor",
                                      store->layout.tensors[run.tensor].name,
                                      "first", (json_int_t)run.index, "end",
                                      (json_int_t)(run.index + run.n), "chunk",
                                      (json_int_t)chunk, "step",
                                      (json_int_t)store->now.step)) == 0;
    return good;
}

/* Before the mark is committed: a mark without its ranges would be worse than
 * ranges without a mark. */
static gyre_status write_ranges(gyre_fsck *fsck, gyre_error *error)
{
    gyre_store *store = fsck->store;
    json_t *ranges = old_ranges(store), *root;
    bool good = ranges != NULL;
    char *text = NULL;
    gyre_status status;

    for (uint64_t c = 0; good && c < store->layout.chunks; c++)
        if (fsck->health[c] == GYRE_CHUNK_BAD)
            good = add_ranges(store, c, ranges);
    root = json_pack("{s:s, s:o}", "uuid", store->uuid_text, "ranges", ranges);
    if (good && root != NULL)
        text = json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    if (text == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for salvaged.json");
    status = gyre_file_replace(store, "salvaged.json", text, error);
    free(text);
    return status;
}

/* What the chunk holds becomes what it should hold. */
static gyre_status accept_chunk(void *user, uint32_t device, gyre_work work,
                                uint8_t *data, gyre_work_result *result,
                                gyre_error *error)
{
    gyre_store *store = user;
    gyre_entry *entry = &store->current[work.chunk];

    (void)device;
    (void)error;
    entry->hash = gyre_store_hash(store, work.chunk, data, entry->step);
    gyre_store_label(store, work.chunk, data, entry);
    result->write = (int)entry->version;
    return GYRE_OK;
}

static gyre_status accept_all(gyre_fsck *fsck, gyre_error *error)
{
    gyre_store *store = fsck->store;
    gyre_stream stream = {
        .table = store->committed, .process = accept_chunk, .user = store};

    gyre_workers_start(store, &stream);
    for (uint64_t c = 0; c < store->layout.chunks; c++)
        if (fsck->health[c] == GYRE_CHUNK_BAD)
            gyre_workers_push(store, c, 0);
    gyre_workers_close(store);
    return gyre_workers_join(store, NULL, error);
}

gyre_status gyre_fsck_salvage(gyre_fsck *fsck, gyre_error *error)
{
    gyre_store *store = fsck->store;
    gyre_status status;

    if (fsck->bad == 0 && !store->now.dirty)
        return GYRE_OK;
    if (fsck->unreadable > 0)
        return gyre_fail(error, GYRE_IO,
                         "store %s: %llu chunks cannot be read at all, and "
                         "nothing stands in for them; nothing was changed: "
                         "restore it from an export",
                         store->path, (unsigned long long)fsck->unreadable);
    gyre_store_take_commit(store);
    status = write_ranges(fsck, error);
    if (status == GYRE_OK)
        status = accept_all(fsck, error);
    if (status != GYRE_OK)
        return status;
    store->now.salvaged = 1;
    store->now.dirty = 0;
    status = mend_heads(fsck, error);
    if (status == GYRE_OK)
        status = mend_records(fsck, error);
    if (status == GYRE_OK && fsck->manifest != NULL)
        status = gyre_manifest_write(store, error);
    if (status == GYRE_OK)
        fsck->report.salvaged = 1;
    return status;
}
