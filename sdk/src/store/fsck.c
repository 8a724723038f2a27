/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at a closed store: everything that is there, told one by one. */
#include "config.h"

#include "store/commit.h"
#include "store/fsck.h"
#include "store/manifest.h"
#include "store/place.h"
#include "store/stream.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

static const uint64_t no_chunk = UINT64_MAX;

static void tell(gyre_fsck *fsck, gyre_fsck_problem *problem,
                 const char *format, va_list arguments)
{
    char text[GYRE_ERROR_TEXT];
    size_t n = (size_t)snprintf(text, sizeof(text), "%s: ", problem->device);

    if (fsck->each == NULL)
        return;
    if (n < sizeof(text))
        vsnprintf(text + n, sizeof(text) - n, format, arguments);
    problem->text = text;
    fsck->each(fsck->user, problem);
}

void gyre_fsck_tell(gyre_fsck *fsck, const char *device, uint64_t chunk,
                    const char *what, const char *format, ...)
{
    gyre_fsck_problem problem = {
        .device = device, .chunk = chunk, .what = what};
    va_list arguments;

    fsck->report.problems++;
    va_start(arguments, format);
    tell(fsck, &problem, format, arguments);
    va_end(arguments);
}

void gyre_fsck_note(gyre_fsck *fsck, const char *device, const char *what,
                    const char *format, ...)
{
    gyre_fsck_problem problem = {
        .device = device, .chunk = no_chunk, .what = what, .note = 1};
    va_list arguments;

    fsck->report.notes++;
    va_start(arguments, format);
    tell(fsck, &problem, format, arguments);
    va_end(arguments);
}

/* ---- superblocks, manifests, sizes ------------------------------------ */

/* Called while attaching, in place of giving up. */
static void complain(void *user, uint32_t device, const gyre_error *why)
{
    gyre_fsck *fsck = user;

    fsck->heads = true;
    gyre_fsck_tell(fsck, fsck->store->places[device].file, no_chunk,
                   "superblock", "%s", why->text);
}

/* By the superblock's checksum; one that is wrong was told already. */
static void check_copy(gyre_fsck *fsck, uint32_t d, char *room)
{
    gyre_store *store = fsck->store;
    const char *file = store->places[d].file;
    uint64_t bytes = store->layout.area_at[0];
    gyre_error why = {GYRE_OK, ""};
    gyre_super super;

    if (gyre_workers_read(store, d, room, bytes, 0, &why) != GYRE_OK)
        gyre_fsck_tell(fsck, file, no_chunk, "manifest", "%s", why.text);
    else if (gyre_format_read_super(room, file, &super, NULL) == GYRE_OK &&
             (super.manifest_bytes > bytes - GYRE_PAGE ||
              XXH3_64bits(room + GYRE_PAGE, super.manifest_bytes) !=
                  super.manifest_hash))
        gyre_fsck_tell(fsck, file, no_chunk, "manifest",
                       "its copy of the manifest is damaged");
    else
        return;
    fsck->heads = true;
}

static void check_size(gyre_fsck *fsck, uint32_t d)
{
    const gyre_place *place = &fsck->store->places[d];
    uint64_t need = fsck->store->layout.device_bytes[d];
    struct stat info;

    if (fstat(place->fd, &info) != 0 || !S_ISREG(info.st_mode) ||
        (uint64_t)info.st_size >= need)
        return;
    fsck->heads = true;
    gyre_fsck_tell(fsck, place->file, no_chunk, "truncated",
                   "it has %llu bytes and should have %llu",
                   (unsigned long long)info.st_size, (unsigned long long)need);
}

static gyre_status check_heads(gyre_fsck *fsck, gyre_error *error)
{
    gyre_store *store = fsck->store;
    uint64_t bytes = store->layout.area_at[0];
    char *room = gyre_alloc_aligned(store->context, bytes, store->layout.align);

    if (room == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a manifest");
    for (uint32_t d = 0; d < store->layout.devices; d++) {
        check_size(fsck, d);
        check_copy(fsck, d, room);
    }
    gyre_free_aligned(store->context, room, bytes, store->layout.align);
    return GYRE_OK;
}

/* ---- records ---------------------------------------------------------- */

static gyre_status read_record(gyre_store *store, uint32_t d, uint32_t a,
                               uint64_t *seq, gyre_error *why)
{
    gyre_layout *layout = &store->layout;
    const gyre_entry *entries;
    const uint64_t *steps;
    const void *blob;
    gyre_record record;
    gyre_status status = gyre_workers_read(
        store, d, store->image, layout->area_bytes, layout->area_at[a], why);

    if (status == GYRE_OK)
        status = gyre_format_read_area(store->image, layout->area_room,
                                       store->uuid, store->generation,
                                       layout->chunks, layout->tensor_count,
                                       &record, &entries, &steps, &blob, why);
    if (status == GYRE_OK)
        *seq = record.seq;
    return status;
}

/* Every device should hold the same two commits.  Only right after creation is
 * there but one. */
static gyre_status check_records(gyre_fsck *fsck, gyre_error *error)
{
    gyre_store *store = fsck->store;
    uint64_t most[2] = {0, 0};
    uint32_t n = store->layout.devices * 2;

    fsck->areas = gyre_alloc_zero(store->context, n, sizeof(*fsck->areas));
    if (fsck->areas == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a check");
    for (uint32_t i = 0; i < n; i++) {
        gyre_fsck_area *area = &fsck->areas[i];

        (void)read_record(store, i / 2, i % 2, &area->seq, &area->why);
        if (area->seq > most[i % 2])
            most[i % 2] = area->seq;
    }
    fsck->newest = most[0] > most[1] ? most[0] : most[1];
    for (uint32_t i = 0; i < n; i++) {
        gyre_fsck_area *area = &fsck->areas[i];

        area->wrong =
            area->seq != most[i % 2] || (most[i % 2] == 0 && fsck->newest != 1);
        if (!area->wrong)
            continue;
        fsck->records[i % 2] = true;
        if (area->seq != 0)
            snprintf(area->why.text, sizeof(area->why.text),
                     "it holds commit %llu, another device %llu",
                     (unsigned long long)area->seq,
                     (unsigned long long)most[i % 2]);
    }
    return GYRE_OK;
}

/*
 * A crash inside a commit leaves records that are torn or behind.  That is a
 * copy less until the area's turn comes again, and no loss: what is told to be
 * no problem here is so because every chunk was just found to be what the
 * newest whole record says, whatever was the cause.  What cannot be read is
 * another matter: no crash does that.
 */
static void tell_record(gyre_fsck *fsck, uint32_t d, uint32_t a, bool whole)
{
    const gyre_store *store = fsck->store;
    const gyre_fsck_area *area = &fsck->areas[2 * d + a];
    const char *file = store->places[d].file;

    if (!whole || area->why.status == GYRE_IO)
        gyre_fsck_tell(fsck, file, no_chunk, "record", "area %u: %s", a,
                       area->why.text);
    else
        gyre_fsck_note(fsck, file, "record",
                       "area %u: %s; a crash inside a commit leaves that, and "
                       "nothing is lost: commit %llu (step %llu) is whole, and "
                       "the %s commit writes this area anew",
                       a, area->why.text, (unsigned long long)store->now.seq,
                       (unsigned long long)store->now.step,
                       a == store->area ? "second next" : "next");
}

static void tell_records(gyre_fsck *fsck, bool whole)
{
    for (uint32_t d = 0; d < fsck->store->layout.devices; d++)
        for (uint32_t a = 0; a < 2; a++)
            if (fsck->areas[2 * d + a].wrong)
                tell_record(fsck, d, a, whole);
}

/* ---- the whole look --------------------------------------------------- */

static gyre_status check_chunks(gyre_fsck *fsck, gyre_error *error)
{
    gyre_store *store = fsck->store;

    fsck->health = gyre_alloc_zero(store->context, store->layout.chunks, 1);
    if (fsck->health == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a check");
    fsck->bad = gyre_fsck_survey(fsck, fsck->health);
    tell_records(fsck, fsck->bad == 0 && !store->now.dirty);
    gyre_fsck_tell_chunks(fsck);
    fsck->report.chunks = store->layout.chunks;
    fsck->report.step = store->now.step;
    if (store->now.dirty)
        gyre_fsck_tell(fsck, store->places[0].file, no_chunk, "dirty",
                       "the store works in place and was interrupted inside a "
                       "round after step %llu; %s",
                       (unsigned long long)store->now.step,
                       fsck->bad > 0 ? "it is a mixture of two steps"
                                     : "nothing of that round was written");
    return GYRE_OK;
}

/* A record is read again each time it is chosen, and a failing device may
 * give another one then. */
gyre_status gyre_fsck_choose(gyre_fsck *fsck, uint64_t seq, gyre_error *error)
{
    uint64_t newest = 0;
    gyre_status status =
        gyre_store_choose(fsck->store, seq + 1, &newest, error);

    if (status == GYRE_OK && fsck->store->now.seq != seq)
        status = gyre_fail(error, GYRE_IO,
                           "commit record %llu could be read only once",
                           (unsigned long long)seq);
    return status;
}

/* Is there a way back?  Leaves the newest record chosen. */
static gyre_status check_previous(gyre_fsck *fsck, gyre_error *error)
{
    gyre_store *store = fsck->store;
    uint64_t newest = 0, seq = store->now.seq;
    uint8_t *health;

    if (fsck->bad == 0 || store->layout.versions == 1)
        return GYRE_OK;
    health = gyre_alloc(store->context, store->layout.chunks, 1);
    if (health == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a check");
    if (gyre_store_choose(store, seq, &newest, NULL) == GYRE_OK)
        fsck->report.previous_whole = gyre_fsck_survey(fsck, health) == 0;
    fsck->previous = store->now.seq;
    gyre_free(store->context, health, store->layout.chunks, 1);
    (void)gyre_fsck_choose(fsck, seq, &fsck->unread);
    return GYRE_OK;
}

static gyre_status look(gyre_fsck *fsck, const gyre_store_options *options,
                        gyre_error *error)
{
    gyre_store *store = fsck->store;
    uint64_t newest = 0;
    gyre_status status;

    /* Reading needs no optimizer, and what is mended here neither. */
    store->read_only = true;
    store->manifest = fsck->manifest;
    store->complain = complain;
    store->complain_user = fsck;
    status = gyre_store_attach(store, options, error);
    if (status != GYRE_OK)
        return status;
    if (fsck->manifest != NULL)
        gyre_fsck_tell(fsck, store->places[0].file, no_chunk, "manifest",
                       "%s/manifest.json is missing or damaged; the copy in a "
                       "device file was used",
                       store->path);
    status = check_heads(fsck, error);
    if (status != GYRE_OK)
        return status;
    status = check_records(fsck, error);
    if (status != GYRE_OK)
        return status;
    status = gyre_store_choose(store, UINT64_MAX, &newest, error);
    if (status != GYRE_OK) {
        tell_records(fsck, false);
        return status;
    }
    fsck->unread = store->unread;
    store->next_seq = (newest > fsck->newest ? newest : fsck->newest) + 1;
    status = check_chunks(fsck, error);
    if (status == GYRE_OK)
        status = check_previous(fsck, error);
    return status;
}

/* Only a manifest that is missing or wrong is looked for elsewhere. */
static gyre_status find_manifest(gyre_fsck *fsck, gyre_context *context,
                                 const char *path, gyre_error *error)
{
    gyre_store *probe;
    gyre_status status = gyre_store_blank(context, path, NULL, &probe, error);

    if (status != GYRE_OK)
        return status;
    status = gyre_place_resolve(probe, error);
    if (status == GYRE_OK)
        status = gyre_manifest_read(probe, error);
    if ((status == GYRE_NOT_FOUND || status == GYRE_FORMAT) &&
        gyre_fsck_recover(context, probe->path, &fsck->manifest, NULL) ==
            GYRE_OK)
        status = GYRE_OK;
    gyre_store_free(probe);
    return status;
}

static gyre_status mend(gyre_fsck *fsck, unsigned flags, gyre_error *error)
{
    gyre_status status = GYRE_OK;

    if (fsck->report.problems + fsck->report.notes == 0 || flags == 0)
        return GYRE_OK;
    /* What cannot be read may be newer than all that can. */
    if (fsck->unread.status != GYRE_OK) {
        fsck->store->unread = fsck->unread;
        return gyre_store_tell_unread(fsck->store, error);
    }
    if (flags & GYRE_FSCK_REPAIR)
        status = gyre_fsck_repair(fsck, error);
    if (status == GYRE_OK && (flags & GYRE_FSCK_SALVAGE) &&
        !fsck->report.repaired)
        status = gyre_fsck_salvage(fsck, error);
    return status;
}

static gyre_status check_arguments(const gyre_store_options *options,
                                   unsigned flags,
                                   const gyre_fsck_report *report,
                                   gyre_error *error)
{
    if (report != NULL && report->size == 0)
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_fsck_report: zero the struct and set size");
    if (flags & ~(unsigned)(GYRE_FSCK_REPAIR | GYRE_FSCK_SALVAGE))
        return gyre_fail(error, GYRE_INVALID, "fsck: flags 0x%x are not known",
                         flags);
    if (flags != 0 && options != NULL && options->read_only)
        return gyre_fail(error, GYRE_INVALID,
                         "fsck cannot mend a store that is opened read-only");
    return GYRE_OK;
}

gyre_status
gyre_store_fsck(gyre_context *context, const char *path,
                const gyre_store_options *options, unsigned flags,
                void (*each)(void *user, const gyre_fsck_problem *problem),
                void *user, gyre_fsck_report *report, gyre_error *error)
{
    gyre_fsck fsck = {.each = each, .user = user};
    gyre_error text = {GYRE_OK, ""};
    gyre_fp saved = gyre_fp_pin();
    gyre_status status = check_arguments(options, flags, report, &text);

    fsck.report.size = sizeof(fsck.report);
    if (status == GYRE_OK)
        status = gyre_store_blank(context, path, options, &fsck.store, &text);
    if (status == GYRE_OK)
        status = find_manifest(&fsck, context, path, &text);
    if (status == GYRE_OK)
        status = look(&fsck, options, &text);
    if (status == GYRE_OK)
        status = mend(&fsck, flags, &text);
    if (status == GYRE_OK && report != NULL) {
        size_t size =
            report->size < sizeof(*report) ? report->size : sizeof(*report);

        memcpy(report, &fsck.report, size);
        report->size = size;
    }
    if (fsck.store != NULL) {
        gyre_free(context, fsck.areas, 2 * fsck.store->layout.devices,
                  sizeof(*fsck.areas));
        gyre_free(context, fsck.health, fsck.store->layout.chunks, 1);
        gyre_store_free(fsck.store);
    }
    gyre_free_text(context, fsck.manifest);
    gyre_fp_restore(saved);
    if (status != GYRE_OK && error != NULL)
        *error = text;
    return status;
}
