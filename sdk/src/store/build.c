/* SPDX-License-Identifier: Apache-2.0 */
/* Building a generation of device files: space, first contents, first record.
 */
#include "config.h"

#include "store/build.h"
#include "store/chunk.h"
#include "store/commit.h"
#include "store/ledger.h"
#include "store/manifest.h"
#include "store/place.h"
#include "store/stream.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <xxhash.h>

/* ---- files ------------------------------------------------------------ */

static gyre_status make_files(gyre_store *store, gyre_error *error)
{
    uint32_t align = GYRE_PAGE;

    for (uint32_t d = 0; d < store->layout.devices; d++) {
        gyre_place *place = &store->places[d];
        bool block = gyre_place_is_block(place->file);
        uint32_t memory = 0, offset = 0;
        gyre_status status;

        if (block)
            status = gyre_io_open_file(place->file, 0, &place->fd,
                                       &place->direct, error);
        else
            status = gyre_io_make_file(store->recorder, place->file, &place->fd,
                                       &place->direct, error);
        if (status != GYRE_OK)
            return status;
        place->made = !block;
        status = gyre_place_lock_file(store, place, store->lock_wait_ns, error);
        if (status != GYRE_OK)
            return status;
        gyre_io_alignment(place->fd, &memory, &offset);
        if (offset > align)
            align = offset;
        if (memory > align)
            align = memory;
    }
    store->layout.align = align;
    return GYRE_OK;
}

/* Devices may share a file system: their needs add up, and are held against
 * what is free before the first byte is reserved. */
static gyre_status check_space(gyre_store *store, gyre_error *error)
{
    for (uint32_t d = 0; d < store->layout.devices; d++) {
        struct stat mine, other;
        struct statvfs fs;
        uint64_t need = 0, room;

        if (fstat(store->places[d].fd, &mine) != 0 || S_ISBLK(mine.st_mode) ||
            fstatvfs(store->places[d].fd, &fs) != 0)
            continue;
        for (uint32_t e = 0; e < store->layout.devices; e++)
            if (fstat(store->places[e].fd, &other) == 0 &&
                other.st_dev == mine.st_dev && S_ISREG(other.st_mode))
                need += store->layout.device_bytes[e];
        room = (uint64_t)fs.f_bavail * fs.f_frsize;
        if (need > room)
            return gyre_fail(error, GYRE_NO_SPACE,
                             "%s: the store needs %llu bytes there and %llu "
                             "are free; nothing was written",
                             gyre_place_folder(store, store->places[d].path),
                             (unsigned long long)need,
                             (unsigned long long)room);
    }
    return GYRE_OK;
}

/* Size of the manifest is part of the layout and its number stands in it, so
 * leave room for a longer number. */
gyre_status gyre_store_lay_out(gyre_store *store, gyre_error *error)
{
    char *text;
    gyre_status status = gyre_manifest_text(store, &text, error);

    if (status != GYRE_OK)
        return status;
    store->layout.manifest_bytes = gyre_round_up(strlen(text) + 64, GYRE_PAGE);
    gyre_free_text(store->context, text);
    return gyre_layout_place(store->context, &store->layout, error);
}

static gyre_status reserve(gyre_store *store, gyre_error *error)
{
    gyre_status status = check_space(store, error);

    for (uint32_t d = 0; status == GYRE_OK && d < store->layout.devices; d++)
        status = gyre_io_size_file(store->recorder, store->places[d].fd,
                                   store->places[d].file,
                                   store->layout.device_bytes[d], error);
    return status;
}

/* ---- first contents --------------------------------------------------- */

typedef struct filling {
    gyre_store *store;
    const gyre_source *source;
} filling;

/* Variables that are not all f32: a grain at a time through `values`, to
 * nearest. */
static gyre_status fill_encoded(const filling *f, const gyre_run *run,
                                const gyre_var *vars, uint32_t count,
                                float *values, uint8_t *data, gyre_error *error)
{
    gyre_isa isa = gyre_context_isa(f->store->context);

    for (size_t at = 0; at < run->n; at += GYRE_GRAIN) {
        size_t n = run->n - at < GYRE_GRAIN ? run->n - at : GYRE_GRAIN;
        uint64_t index = run->index + at;
        gyre_status status;

        memset(values, 0, count * GYRE_GRAIN * sizeof(float));
        status = f->source->fill(f->source->user, run->tensor, index, n, count,
                                 values, GYRE_GRAIN, error);
        if (status != GYRE_OK)
            return status;
        for (uint32_t v = 0; v < count; v++)
            gyre_state_encode(vars[v].codec, isa, values + v * GYRE_GRAIN,
                              data + vars[v].at +
                                  (run->at + at) / GYRE_GRAIN * vars[v].stride,
                              NULL, index);
    }
    return GYRE_OK;
}

static gyre_status fill_run(const filling *f, uint64_t chunk,
                            const gyre_run *run, uint8_t *data,
                            gyre_error *error)
{
    const gyre_layout *layout = &f->store->layout;
    float values[GYRE_STORE_VARS * GYRE_GRAIN];
    gyre_var vars[GYRE_STORE_VARS];
    uint32_t count = gyre_layout_all_vars(layout, chunk, vars);
    bool plain = true;

    if (gyre_layout_is_residual(layout, chunk))
        return f->source->residual == NULL
                   ? GYRE_OK
                   : f->source->residual(
                         f->source->user, run->tensor, run->index, run->n,
                         (float *)(void *)data + run->at, error);
    for (uint32_t v = 0; v < count; v++)
        plain &= vars[v].codec == GYRE_STATE_F32;
    if (!plain)
        return fill_encoded(f, run, vars, count, values, data, error);
    return f->source->fill(f->source->user, run->tensor, run->index, run->n,
                           count, (float *)(void *)data + run->at,
                           gyre_layout_chunk_elements(layout, chunk), error);
}

static gyre_status fill_chunk(void *user, uint32_t device, gyre_work work,
                              uint8_t *data, gyre_work_result *result,
                              gyre_error *error)
{
    filling *f = user;
    gyre_store *store = f->store;
    const gyre_layout *layout = &store->layout;
    size_t cursor = GYRE_RUN_FIRST;
    gyre_entry *entry = &store->current[work.chunk];
    gyre_run run;

    (void)device;
    result->write = (int)work.version;
    memset(data, 0, gyre_layout_chunk_bytes(layout, work.chunk));
    if (work.version == 1)
        return GYRE_OK;
    while (gyre_layout_next_run(layout, work.chunk, &cursor, &run)) {
        gyre_status status = fill_run(f, work.chunk, &run, data, error);

        if (status != GYRE_OK)
            return status;
    }
    entry->step = store->now.step;
    entry->version = 0;
    entry->hash = gyre_store_hash(store, work.chunk, data, entry->step);
    gyre_store_label(store, work.chunk, data, entry);
    return GYRE_OK;
}

static void fill_ended(void *user, uint32_t device, gyre_status status)
{
    const filling *f = user;

    f->source->ended(f->source->user, device, status);
}

static gyre_status fill_all(gyre_store *store, const gyre_source *source,
                            gyre_error *error)
{
    filling f = {store, source};
    gyre_stream stream = {.table = NULL,
                          .process = fill_chunk,
                          .ended = source->ended != NULL ? fill_ended : NULL,
                          .user = &f};

    gyre_workers_start(store, &stream);
    for (uint64_t c = 0; c < store->layout.chunks; c++)
        for (uint32_t v = 0; v < gyre_layout_versions(&store->layout, c); v++)
            gyre_workers_push(store, c, v);
    gyre_workers_close(store);
    if (source->watch != NULL)
        source->watch(source->user);
    return gyre_workers_join(store, NULL, error);
}

gyre_status gyre_store_write_heads(gyre_store *store, gyre_error *error)
{
    const gyre_layout *layout = &store->layout;
    uint64_t bytes = layout->area_at[0];
    char *head = gyre_alloc_aligned(store->context, bytes, layout->align);
    char *text = NULL;
    gyre_status status;

    if (head == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for the manifest");
    status = gyre_manifest_text(store, &text, error);
    for (uint32_t d = 0; status == GYRE_OK && d < layout->devices; d++) {
        gyre_super super = {.index = d,
                            .devices = layout->devices,
                            .generation = store->generation,
                            .manifest_bytes = strlen(text),
                            .file_bytes = layout->device_bytes[d],
                            .area_bytes = layout->area_bytes};

        memcpy(super.store, store->uuid, 16);
        memcpy(super.device, store->places[d].uuid, 16);
        memcpy(super.area_at, layout->area_at, sizeof(super.area_at));
        super.manifest_hash = XXH3_64bits(text, strlen(text));
        memset(head, 0, bytes);
        gyre_format_super(&super, head);
        memcpy(head + GYRE_PAGE, text, strlen(text));
        status = gyre_workers_write_one(store, d, head, bytes, 0, error);
    }
    gyre_free_text(store->context, text);
    gyre_free_aligned(store->context, head, bytes, layout->align);
    return status;
}

/* Areas of a block file may hold an old store's records: wipe both. */
static gyre_status first_record(gyre_store *store, const void *blob,
                                size_t blob_bytes, gyre_error *error)
{
    gyre_status status = GYRE_OK;

    for (int a = 0; a < 2 && status == GYRE_OK; a++)
        status =
            gyre_workers_write(store, store->image, store->layout.area_bytes,
                               store->layout.area_at[a], error);
    if (status != GYRE_OK)
        return status;
    store->next_seq = 1;
    store->area = 1;
    return gyre_store_commit_now(store, blob, blob_bytes, error);
}

/* The manifest that comes next must not name files that a power failure can
 * still take away. */
static gyre_status sync_names(const gyre_store *store, gyre_error *error)
{
    gyre_status status = GYRE_OK;

    for (uint32_t d = 0; status == GYRE_OK && d < store->layout.devices; d++)
        if (store->places[d].made)
            status = gyre_io_sync_folder(
                store->recorder,
                gyre_place_folder(store, store->places[d].path), error);
    return status;
}

gyre_status gyre_store_build(gyre_store *store, const gyre_store *old,
                             const gyre_source *source, const void *blob,
                             size_t blob_bytes, gyre_error *error)
{
    gyre_status status = gyre_journal_write(store, old, error);

    if (status == GYRE_OK)
        status = make_files(store, error);
    if (status == GYRE_OK)
        status = gyre_store_lay_out(store, error);
    if (status == GYRE_OK)
        status = gyre_store_check_memory(store, error);
    if (status == GYRE_OK)
        status = reserve(store, error);
    if (status == GYRE_OK)
        status = gyre_store_tables(store, error);
    if (status == GYRE_OK)
        status = gyre_workers_create(store, error);
    if (status == GYRE_OK)
        store->inexact |= !gyre_workers_exact(store);
    if (status == GYRE_OK)
        status = gyre_store_write_heads(store, error);
    if (status == GYRE_OK)
        status = fill_all(store, source, error);
    if (status == GYRE_OK)
        status = first_record(store, blob, blob_bytes, error);
    if (status == GYRE_OK)
        status = sync_names(store, error);
    return status;
}
