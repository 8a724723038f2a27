/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at a closed store: everything that is there, told one by one. */
#include "config.h"

#include "store/fsck.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

static const uint64_t no_chunk = UINT64_MAX;

void gyre_fsck_tell(gyre_fsck *fsck, const char *device, uint64_t chunk,
                    const char *what, const char *format, ...)
{
    char text[GYRE_ERROR_TEXT];
    gyre_fsck_problem problem = {device, chunk, what, text};
    va_list arguments;
    size_t n;

    fsck->report.problems++;
    if (fsck->each == NULL)
        return;
    n = (size_t)snprintf(text, sizeof(text), "%s: ", device);
    if (n < sizeof(text)) {
        va_start(arguments, format);
        vsnprintf(text + n, sizeof(text) - n, format, arguments);
        va_end(arguments);
    }
    fsck->each(fsck->user, &problem);
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

typedef struct seen {
    uint64_t seq[GYRE_MAX_DEVICES][2]; /* 0: none */
    uint64_t most[2];
} seen;

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
        status = gyre_format_read_area(store->image, layout->area_bytes,
                                       store->uuid, store->generation,
                                       layout->chunks, layout->tensor_count,
                                       &record, &entries, &steps, &blob, why);
    if (status == GYRE_OK)
        *seq = record.seq;
    return status;
}

/*
 * Every device should hold the same two commits.  Only right after creation is
 * there but one.  A crash inside a commit also leaves records that are torn or
 * one behind; that is no loss, but it is a copy less until two commits later.
 */
static void tell_record(gyre_fsck *fsck, const seen *s, uint32_t d, uint32_t a)
{
    const char *file = fsck->store->places[d].file;
    gyre_error why = {GYRE_OK, ""};
    uint64_t seq = 0;

    if (s->seq[d][a] == s->most[a] && (s->most[a] != 0 || fsck->newest == 1))
        return;
    fsck->records[a] = true;
    if (read_record(fsck->store, d, a, &seq, &why) == GYRE_OK)
        gyre_fsck_tell(fsck, file, no_chunk, "record",
                       "area %u holds commit %llu, another device %llu", a,
                       (unsigned long long)seq, (unsigned long long)s->most[a]);
    else
        gyre_fsck_tell(fsck, file, no_chunk, "record", "area %u: %s", a,
                       why.text);
}

static void check_records(gyre_fsck *fsck)
{
    gyre_store *store = fsck->store;
    seen s;

    memset(&s, 0, sizeof(s));
    for (uint32_t d = 0; d < store->layout.devices; d++)
        for (uint32_t a = 0; a < 2; a++) {
            (void)read_record(store, d, a, &s.seq[d][a], NULL);
            if (s.seq[d][a] > s.most[a])
                s.most[a] = s.seq[d][a];
        }
    fsck->newest = s.most[0] > s.most[1] ? s.most[0] : s.most[1];
    for (uint32_t d = 0; d < store->layout.devices; d++)
        for (uint32_t a = 0; a < 2; a++)
            tell_record(fsck, &s, d, a);
}

/* ---- the whole look --------------------------------------------------- */

static gyre_status check_chunks(gyre_fsck *fsck, gyre_error *error)
{
    gyre_store *store = fsck->store;

    fsck->health = gyre_alloc_zero(store->context, store->layout.chunks, 1);
    if (fsck->health == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a check");
    fsck->bad = gyre_fsck_survey(fsck, fsck->health);
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
    check_records(fsck);
    status = gyre_store_choose(store, UINT64_MAX, &newest, error);
    if (status != GYRE_OK)
        return status;
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

    if (fsck->report.problems == 0 || flags == 0)
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
        gyre_free(context, fsck.health, fsck.store->layout.chunks, 1);
        gyre_store_free(fsck.store);
    }
    gyre_free_text(context, fsck.manifest);
    gyre_fp_restore(saved);
    if (status != GYRE_OK && error != NULL)
        *error = text;
    return status;
}
