/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests that damage a store by hand: where its pieces lie, how to change
 * them, and what fsck then finds.
 */
#ifndef GYRE_TESTS_STORE_DAMAGE_H
#define GYRE_TESTS_STORE_DAMAGE_H

#include "care.h"

#include "store/store.h"

#include <signal.h>
#include <sys/wait.h>

/* ---- findings --------------------------------------------------------- */

enum { MOST = 64 };

typedef struct found {
    size_t count;
    char what[MOST][16];
    char text[MOST][600];
    uint64_t chunk[MOST];
    size_t notes; /* of them */
} found;

static inline void collect(void *user, const gyre_fsck_problem *problem)
{
    found *f = user;

    if (f->count == MOST)
        return;
    snprintf(f->what[f->count], sizeof(f->what[0]), "%s", problem->what);
    snprintf(f->text[f->count], sizeof(f->text[0]), "%.599s", problem->text);
    f->notes += problem->note != 0;
    f->chunk[f->count++] = problem->chunk;
    assert_non_null(strstr(problem->text, problem->device));
}

static found seen;

static inline gyre_status check(gyre_context *context, const char *path,
                                unsigned flags, gyre_fsck_report *report,
                                gyre_error *error)
{
    gyre_store_options options = {
        .size = sizeof(options), .io = "posix", .buffers = 2};

    memset(&seen, 0, sizeof(seen));
    memset(report, 0, sizeof(*report));
    report->size = sizeof(*report);
    return gyre_store_fsck(context, path, &options, flags, collect, &seen,
                           report, error);
}

static inline gyre_fsck_report must_check(gyre_context *context,
                                          const char *path, unsigned flags)
{
    gyre_fsck_report report;
    gyre_error error;

    if (check(context, path, flags, &report, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    assert_int_equal(report.problems + report.notes, seen.count);
    assert_int_equal(report.notes, seen.notes);
    return report;
}

static inline void expect(const char *what, size_t count, const char *text)
{
    for (size_t i = 0; i < seen.count; i++)
        if (strcmp(seen.what[i], what) != 0)
            fail_msg("wanted %s: %s: %s", what, seen.what[i], seen.text[i]);
    assert_int_equal(seen.count, count);
    for (size_t i = 0; i < seen.count; i++)
        if (strstr(seen.text[i], text) == NULL)
            fail_msg("\"%s\" is not in: %s", text, seen.text[i]);
}

/* ---- a store and its places ------------------------------------------- */

typedef struct fixture {
    unit_memory memory;
    gyre_context *context;
    char path[256];
    care_state before, now; /* at the last two commits */
    /* from the layout and table of the newest commit */
    char file[2][400];
    uint64_t area, area_at[2];
    struct {
        uint32_t device;
        uint64_t offset, other, bytes, label;
    } chunk[64];
    uint64_t chunks, train, file_bytes[2];
} fixture;

static inline void take_places(fixture *f, const gyre_store *store)
{
    const gyre_layout *layout = &store->layout;

    f->area = store->area;
    f->area_at[0] = layout->area_at[0];
    f->area_at[1] = layout->area_at[1];
    f->chunks = layout->chunks;
    f->train = layout->train_chunks;
    assert_true(f->chunks <= 64 && layout->devices <= 2);
    for (uint32_t d = 0; d < layout->devices; d++) {
        snprintf(f->file[d], sizeof(f->file[d]), "%s", store->places[d].file);
        f->file_bytes[d] = layout->device_bytes[d];
    }
    for (uint64_t c = 0; c < f->chunks; c++) {
        uint32_t version = store->current[c].version;

        f->chunk[c].device = layout->places[c].device;
        f->chunk[c].offset = gyre_layout_offset(layout, c, version);
        f->chunk[c].other =
            c < f->train ? gyre_layout_offset(layout, c, 1 - version) : 0;
        f->chunk[c].bytes = gyre_layout_chunk_bytes(layout, c);
        f->chunk[c].label = gyre_layout_data_bytes(layout, c);
    }
}

/* Three rounds, each committed; `stale` takes what lies in the slot of chunk 2
 * before the third overwrites it. */
static inline void set_up(fixture *f, int in_place, char *stale)
{
    gyre_store *store;

    memset(f, 0, sizeof(*f));
    f->context = unit_context(&f->memory);
    care_folder(f->path, "fsck");
    store = care_create(f->context, f->path, 2, in_place);
    care_rounds(store, 2);
    take_places(f, store);
    if (stale != NULL) {
        int fd = open(f->file[f->chunk[2].device], O_RDONLY);

        assert_int_equal(
            pread(fd, stale, f->chunk[2].bytes, (off_t)f->chunk[2].other),
            f->chunk[2].bytes);
        close(fd);
    }
    f->before = care_state_of(store);
    care_rounds(store, 1);
    f->now = care_state_of(store);
    take_places(f, store);
    gyre_store_close(store);
}

static inline void tear_down(fixture *f)
{
    care_remove(f->path);
    gyre_context_destroy(f->context);
    unit_memory_check(&f->memory);
}

static inline void put(const char *file, uint64_t at, const void *data,
                       size_t bytes)
{
    int fd = open(file, O_WRONLY);

    assert_int_equal(pwrite(fd, data, bytes, (off_t)at), bytes);
    close(fd);
}

static inline void get(const char *file, uint64_t at, void *data, size_t bytes)
{
    int fd = open(file, O_RDONLY);

    assert_int_equal(pread(fd, data, bytes, (off_t)at), bytes);
    close(fd);
}

static inline void flip_bit(const char *file, uint64_t at)
{
    unsigned char byte;

    get(file, at, &byte, 1);
    byte ^= 0x10;
    put(file, at, &byte, 1);
}

static inline void flip_in_chunk(const fixture *f, uint64_t chunk, uint64_t at)
{
    flip_bit(f->file[f->chunk[chunk].device], f->chunk[chunk].offset + at);
}

static inline void expect_state(fixture *f, const care_state *want,
                                int fell_back)
{
    gyre_store *store = care_open(f->context, f->path);
    gyre_store_info info = {.size = sizeof(info)};
    care_state state = care_state_of(store);

    gyre_store_get_info(store, &info, NULL);
    gyre_store_close(store);
    assert_string_equal(state.text, want->text);
    assert_int_equal(info.fell_back, fell_back);
}

static inline gyre_status try_open(fixture *f, gyre_error *error)
{
    gyre_store_options options = {.size = sizeof(options), .io = "posix"};
    gyre_store *store = NULL;
    gyre_status status =
        gyre_store_open(f->context, f->path, &options, &store, error);

    if (status == GYRE_OK)
        gyre_store_close(store);
    return status;
}

/* The store goes back as a whole, by an open and by a repair alike. */
static inline void expect_way_back(fixture *f, int by_open)
{
    gyre_fsck_report report;

    if (by_open) {
        expect_state(f, &f->before, 1);
    } else {
        report = must_check(f->context, f->path, GYRE_FSCK_REPAIR);
        assert_true(report.repaired);
        assert_false(report.salvaged);
    }
    expect_state(f, &f->before, 0);
    report = must_check(f->context, f->path, 0);
    assert_int_equal(report.problems, 0);
    assert_int_equal(report.step, 2);
}

#endif
