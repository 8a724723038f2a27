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

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- devices ---------------------------------------------------------- */

static gyre_status read_super(gyre_store *store, gyre_place *place,
                              gyre_super *super, gyre_error *error)
{
    void *page = gyre_alloc_aligned(store->context, GYRE_PAGE, GYRE_PAGE);
    ssize_t n;
    gyre_status status;

    if (page == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a superblock");
    do
        n = pread(place->fd, page, GYRE_PAGE, 0);
    while (n < 0 && errno == EINTR);
    if (n == GYRE_PAGE)
        status = gyre_format_read_super(page, place->file, super, error);
    else if (n < 0)
        status = gyre_fail_errno(error, GYRE_IO, errno, "cannot read %s",
                                 place->file);
    else
        status = gyre_fail(error, GYRE_CORRUPT,
                           "%s is truncated: %zd bytes, no superblock",
                           place->file, n);
    gyre_free_aligned(store->context, page, GYRE_PAGE, GYRE_PAGE);
    return status;
}

static gyre_status check_super(const gyre_store *store, uint32_t d,
                               const gyre_super *super, gyre_error *error)
{
    const gyre_place *place = &store->places[d];
    char other[37];

    if (memcmp(super->store, store->uuid, 16) != 0) {
        gyre_uuid_text(super->store, other);
        return gyre_fail(error, GYRE_FORMAT,
                         "%s belongs to store %s, not to %s", place->file,
                         other, store->uuid_text);
    }
    if (super->generation != store->generation ||
        memcmp(super->device, place->uuid, 16) != 0 || super->index != d)
        return gyre_fail(error, GYRE_FORMAT,
                         "%s is device %u of generation %llu; wanted is device "
                         "%u of generation %llu",
                         place->file, super->index,
                         (unsigned long long)super->generation, d,
                         (unsigned long long)store->generation);
    if (super->area_at[0] != store->layout.area_at[0] ||
        super->area_at[1] != store->layout.area_at[1] ||
        super->file_bytes != store->layout.device_bytes[d])
        return gyre_fail(error, GYRE_FORMAT,
                         "%s: its layout is not what the manifest gives",
                         place->file);
    return GYRE_OK;
}

/* Try device d's file in the folder of device k. */
static gyre_status try_place(gyre_store *store, uint32_t d, uint32_t k,
                             gyre_error *error)
{
    gyre_place *place = &store->places[d];
    char *file = gyre_place_file_name(store, store->places[k].path, d);
    gyre_super super;
    gyre_status status;

    if (file == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a path");
    gyre_free_text(store->context, place->file);
    place->file = file;
    status = gyre_io_open_file(file, 0, &place->fd, &place->direct, error);
    if (status != GYRE_OK)
        return status;
    status = gyre_place_lock_file(store, place, store->lock_wait_ns, error);
    if (status == GYRE_OK)
        status = read_super(store, place, &super, error);
    if (status == GYRE_OK)
        status = check_super(store, d, &super, error);
    if (status != GYRE_OK) {
        close(place->fd);
        place->fd = -1;
    }
    return status;
}

/* A device is known by its uuid: when it is not where the manifest says, look
 * where the others are, and say in *found whose place that is.  The first
 * failure is the one to tell. */
static gyre_status open_place(gyre_store *store, uint32_t d, uint32_t *found,
                              gyre_error *error)
{
    gyre_status first = try_place(store, d, d, error);

    *found = d;
    if (first != GYRE_NOT_FOUND && first != GYRE_FORMAT)
        return first;
    for (uint32_t k = 0; k < store->layout.devices; k++)
        if (k != d &&
            strcmp(store->places[k].path, store->places[d].path) != 0 &&
            try_place(store, d, k, NULL) == GYRE_OK) {
            gyre_log(store->context, GYRE_LOG_WARNING,
                     "device %u was found as %s", d, store->places[d].file);
            *found = k;
            return GYRE_OK;
        }
    return first;
}

/* The file that the manifest names, whatever it says about itself. */
static gyre_status open_anyway(gyre_store *store, uint32_t d,
                               const gyre_error *why, gyre_error *error)
{
    gyre_place *place = &store->places[d];
    char *file = gyre_place_file_name(store, place->path, d);
    gyre_status status;

    if (file == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a path");
    gyre_free_text(store->context, place->file);
    place->file = file;
    status = gyre_io_open_file(file, 0, &place->fd, &place->direct, error);
    if (status == GYRE_OK)
        status = gyre_place_lock_file(store, place, store->lock_wait_ns, error);
    if (status == GYRE_OK)
        store->complain(store->complain_user, d, why);
    return status;
}

static gyre_status open_device(gyre_store *store, uint32_t d, uint32_t *found,
                               gyre_error *error)
{
    gyre_error why = {GYRE_OK, ""};
    gyre_status status = open_place(store, d, found, &why);

    if (store->complain != NULL &&
        (status == GYRE_FORMAT || status == GYRE_CORRUPT || status == GYRE_IO))
        return open_anyway(store, d, &why, error);
    if (status != GYRE_OK && error != NULL)
        *error = why;
    return status;
}

/* Search first, then give each device the path where it was found: a search
 * needs the paths of all others as they stand in the manifest. */
static gyre_status open_devices(gyre_store *store, gyre_error *error)
{
    uint32_t n = store->layout.devices, found[GYRE_MAX_DEVICES];
    char *path[GYRE_MAX_DEVICES] = {NULL};
    gyre_status status = GYRE_OK;

    for (uint32_t d = 0; status == GYRE_OK && d < n; d++)
        status = open_device(store, d, &found[d], error);
    for (uint32_t d = 0; status == GYRE_OK && d < n; d++) {
        path[d] = gyre_copy_text(store->context, store->places[found[d]].path);
        if (path[d] == NULL)
            status = gyre_fail(error, GYRE_NO_MEMORY, "no memory for a path");
    }
    for (uint32_t d = 0; d < n; d++) {
        char *old = path[d];

        if (status == GYRE_OK) {
            old = store->places[d].path;
            store->places[d].path = path[d];
        }
        gyre_free_text(store->context, old);
    }
    return status;
}

/* The same folder or file by any of its names; NULL is the store's own. */
static bool same_place(const gyre_store *store, uint32_t d, const char *given)
{
    const char *path = gyre_place_folder(store, store->places[d].path);
    struct stat have, want;

    if (given == NULL || strcmp(path, given) == 0)
        return given != NULL || strcmp(path, store->path) == 0;
    return stat(path, &have) == 0 && stat(given, &want) == 0 &&
           have.st_dev == want.st_dev && have.st_ino == want.st_ino;
}

static gyre_status check_list(const gyre_store *store,
                              const gyre_store_options *options,
                              gyre_error *error)
{
    uint32_t have = store->layout.devices;
    const char *const *list = options != NULL ? options->devices : NULL;
    size_t want = options != NULL ? options->device_count : 0;

    if (list != NULL && want == 0)
        want = 1; /* as in gyre_store_spec */
    if (want != 0 && want != have)
        return gyre_fail(error, GYRE_LAYOUT,
                         "store %s has %u device%s and %zu were asked for; to "
                         "change that run: gyre store reshard %s --devices %zu",
                         store->path, have, have == 1 ? "" : "s", want,
                         store->path, want);
    for (uint32_t d = 0; list != NULL && d < want; d++)
        if (!same_place(store, d, list[d]))
            return gyre_fail(
                error, GYRE_LAYOUT,
                "device %u of store %s is %s, not %s; to move it "
                "run: gyre store reshard %s --device PATH ...",
                d, store->path, gyre_place_folder(store, store->places[d].path),
                list[d] != NULL ? list[d] : store->path, store->path);
    return GYRE_OK;
}

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
                    store->image, layout->area_bytes, store->uuid,
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

uint64_t gyre_store_hash(const gyre_store *store, uint64_t chunk,
                         const uint8_t *data, uint64_t step)
{
    gyre_var vars[GYRE_STORE_VARS];
    uint32_t n = gyre_layout_all_vars(&store->layout, chunk, vars);

    return gyre_device_hash(
        data, vars, n, gyre_layout_chunk_elements(&store->layout, chunk),
        gyre_format_seed(store->uuid, store->generation, chunk, step));
}

void gyre_store_label(const gyre_store *store, uint64_t chunk, uint8_t *data,
                      const gyre_entry *entry)
{
    gyre_format_label(data + gyre_layout_data_bytes(&store->layout, chunk),
                      store->uuid, store->generation, chunk, entry);
}

gyre_status gyre_store_verify(const gyre_store *store, uint32_t device,
                              uint64_t chunk, const gyre_entry *entry,
                              const uint8_t *data, gyre_error *error)
{
    const gyre_layout *layout = &store->layout;
    char text[200], range[256];

    if (gyre_store_hash(store, chunk, data, entry->step) == entry->hash)
        return GYRE_OK;
    gyre_format_diagnose(store->uuid, store->generation, chunk, entry,
                         data + gyre_layout_data_bytes(layout, chunk), text,
                         sizeof(text));
    gyre_layout_describe(layout, chunk, range, sizeof(range));
    return gyre_fail(error, GYRE_CORRUPT,
                     "%s: chunk %llu (%s) does not match its checksum: %s",
                     store->places[device].file, (unsigned long long)chunk,
                     range, text);
}

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

/* ---- the optimizer ---------------------------------------------------- */

static gyre_status differs(const gyre_store *store, const char *what,
                           const char *had, const char *has, gyre_error *error)
{
    return gyre_fail(error, GYRE_LAYOUT,
                     "store %s was made by optimizer %s %s, %s %s; the plugin "
                     "found here is %s, %s %s: use the plugin it was made "
                     "with, or export the parameters and make a new store",
                     store->path, store->optimizer, store->optimizer_version,
                     what, had, gyre_opt_plugin(store->opt)->version, what,
                     has);
}

static gyre_status attach_optimizer(gyre_store *store, gyre_error *error)
{
    char had[24], has[24];
    gyre_status status;

    status = gyre_opt_create(store->context, store->optimizer, store->settings,
                             store->setting_count, &store->opt, error);
    if (status != GYRE_OK)
        return gyre_fail_prefix(error, status, "store %s", store->path);
    if (strcmp(gyre_opt_variant(store->opt), store->variant) != 0)
        return differs(store, "variant", store->variant,
                       gyre_opt_variant(store->opt), error);
    snprintf(had, sizeof(had), "%u", store->state_version);
    snprintf(has, sizeof(has), "%u", gyre_opt_state_version(store->opt));
    if (strcmp(had, has) != 0)
        return differs(store, "state version", had, has, error);
    for (uint32_t i = 0; i < GYRE_OPT_MAX_SLOTS; i++) {
        const char *a = i < store->layout.slots ? store->slot_names[i] : "-";
        const char *b = i < gyre_opt_slot_count(store->opt)
                            ? gyre_opt_slot_name(store->opt, i)
                            : "-";

        if (strcmp(a, b) != 0)
            return differs(store, "slot", a, b, error);
    }
    snprintf(had, sizeof(had), "%016llx",
             (unsigned long long)store->kernel_hash);
    snprintf(has, sizeof(has), "%016llx",
             (unsigned long long)gyre_opt_kernel_hash(store->opt));
    if (strcmp(had, has) != 0)
        return differs(store, "kernel", had, has, error);
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
        status = check_list(store, options, error);
    if (status == GYRE_OK)
        status = gyre_compute_take(store, options, error);
    if (status == GYRE_OK && !store->read_only)
        status = attach_optimizer(store, error);
    if (status == GYRE_OK)
        status = gyre_store_attach_compressor(store, error);
    if (status == GYRE_OK)
        status = gyre_store_check_memory(store, error);
    if (status == GYRE_OK)
        status = open_devices(store, error);
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
