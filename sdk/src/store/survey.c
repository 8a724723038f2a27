/* SPDX-License-Identifier: Apache-2.0 */
/* Every chunk of a store: read once as a stream, and the bad ones again. */
#include "config.h"

#include "store/chunk.h"
#include "store/fsck.h"
#include "store/stream.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool label_is_right(const gyre_store *store, uint64_t chunk,
                           const uint8_t *data)
{
    uint32_t want[GYRE_LABEL / sizeof(uint32_t)];

    gyre_format_label(want, store->uuid, store->generation, chunk,
                      &store->current[chunk]);
    return memcmp(want, data + gyre_layout_data_bytes(&store->layout, chunk),
                  GYRE_LABEL) == 0;
}

static uint8_t health_of(const gyre_store *store, uint64_t chunk,
                         const uint8_t *data)
{
    const gyre_entry *entry = &store->current[chunk];

    if (gyre_store_hash(store, chunk, data, entry->step) != entry->hash)
        return GYRE_CHUNK_BAD;
    return label_is_right(store, chunk, data) ? GYRE_CHUNK_GOOD
                                              : GYRE_CHUNK_LABEL;
}

typedef struct survey {
    gyre_fsck *fsck;
    uint8_t *health;
} survey;

static gyre_status see_chunk(void *user, uint32_t device, gyre_work work,
                             uint8_t *data, gyre_work_result *result,
                             gyre_error *error)
{
    survey *s = user;

    (void)device;
    (void)result;
    (void)error;
    s->health[work.chunk] = health_of(s->fsck->store, work.chunk, data);
    return GYRE_OK;
}

/* A stream ends at its first I/O error.  What it did not reach is read again
 * one by one, so that one bad sector does not hide the rest. */
uint64_t gyre_fsck_survey(gyre_fsck *fsck, uint8_t *health)
{
    gyre_store *store = fsck->store;
    survey s = {fsck, health};
    gyre_stream stream = {
        .table = store->current, .process = see_chunk, .user = &s};
    uint64_t bad = 0;

    memset(health, GYRE_CHUNK_UNSEEN, store->layout.chunks);
    (void)gyre_workers_each(store, &stream, 0, store->layout.chunks, NULL);
    for (uint64_t c = 0; c < store->layout.chunks; c++) {
        if (health[c] == GYRE_CHUNK_UNSEEN &&
            gyre_workers_each(store, &stream, c, c + 1, NULL) != GYRE_OK)
            health[c] = GYRE_CHUNK_UNREADABLE;
        bad += health[c] >= GYRE_CHUNK_BAD;
    }
    return bad;
}

static gyre_status diagnose_chunk(void *user, uint32_t device, gyre_work work,
                                  uint8_t *data, gyre_work_result *result,
                                  gyre_error *error)
{
    gyre_fsck *fsck = user;
    const gyre_store *store = fsck->store;
    const gyre_layout *layout = &store->layout;
    uint8_t health = health_of(store, work.chunk, data);
    const char *what;

    (void)device;
    (void)result;
    (void)error;
    if (health == GYRE_CHUNK_BAD) {
        what = gyre_format_diagnose(
            store->uuid, store->generation, work.chunk,
            &store->current[work.chunk],
            data + gyre_layout_data_bytes(layout, work.chunk), fsck->text,
            sizeof(fsck->text));
    } else if (health == GYRE_CHUNK_LABEL) {
        what = "label";
        snprintf(fsck->text, sizeof(fsck->text),
                 "its label is damaged; its data are whole");
    } else {
        what = "unreadable";
        snprintf(fsck->text, sizeof(fsck->text),
                 "it was read wrong once and right the second time: the "
                 "device cannot be trusted");
    }
    snprintf(fsck->what, sizeof(fsck->what), "%s", what);
    return GYRE_OK;
}

static void name_failed_read(gyre_fsck *fsck, uint64_t chunk,
                             const gyre_error *why)
{
    const gyre_store *store = fsck->store;
    const gyre_layout *layout = &store->layout;
    uint64_t end =
        gyre_layout_offset(layout, chunk, store->current[chunk].version) +
        gyre_layout_chunk_bytes(layout, chunk);
    struct stat info;

    if (fstat(store->places[layout->places[chunk].device].fd, &info) == 0 &&
        S_ISREG(info.st_mode) && (uint64_t)info.st_size < end) {
        snprintf(fsck->what, sizeof(fsck->what), "truncated");
        snprintf(fsck->text, sizeof(fsck->text),
                 "it ends at byte %llu, and the file has %llu",
                 (unsigned long long)end, (unsigned long long)info.st_size);
        return;
    }
    snprintf(fsck->what, sizeof(fsck->what), "unreadable");
    snprintf(fsck->text, sizeof(fsck->text), "%.250s", why->text);
}

/* In the caller's thread and in the order of the chunks. */
void gyre_fsck_tell_chunks(gyre_fsck *fsck)
{
    gyre_store *store = fsck->store;
    gyre_stream stream = {
        .table = store->current, .process = diagnose_chunk, .user = fsck};

    for (uint64_t c = 0; c < store->layout.chunks; c++) {
        gyre_error why = {GYRE_OK, ""};
        char range[256];

        if (fsck->health[c] == GYRE_CHUNK_GOOD)
            continue;
        if (gyre_workers_each(store, &stream, c, c + 1, &why) != GYRE_OK)
            name_failed_read(fsck, c, &why);
        gyre_layout_describe(&store->layout, c, range, sizeof(range));
        gyre_fsck_tell(fsck, store->places[store->layout.places[c].device].file,
                       c, fsck->what, "chunk %llu (%s): %s",
                       (unsigned long long)c, range, fsck->text);
        fsck->labels += fsck->health[c] == GYRE_CHUNK_LABEL;
        fsck->unreadable += fsck->health[c] == GYRE_CHUNK_UNREADABLE;
    }
}
