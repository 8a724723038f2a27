/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of export and import: a store in a folder, a file beside it, and
 * files made by hand.
 */
#ifndef GYRE_TESTS_STORE_EXCHANGE_H
#define GYRE_TESTS_STORE_EXCHANGE_H

#include "care.h"

/* A tensor of a header. */
#define T(dtype, shape, begin, end)                                         \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin \
    "," end "]}"

static inline void make_file(const char *path, const char *header,
                             const void *data, size_t bytes)
{
    uint64_t n = strlen(header);
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    fwrite(&n, 8, 1, file);
    fwrite(header, n, 1, file);
    if (bytes > 0)
        fwrite(data, bytes, 1, file);
    fclose(file);
}

typedef struct fixture {
    unit_memory memory;
    gyre_context *context;
    char folder[256], path[300], file[300];
    char log[4096];
} fixture;

static inline void take_log(void *user, gyre_log_level level, const char *text)
{
    fixture *f = user;
    size_t n = strlen(f->log);

    if (level <= GYRE_LOG_WARNING)
        snprintf(f->log + n, sizeof(f->log) - n, "%s\n", text);
}

static inline gyre_store *set_up(fixture *f, int rounds)
{
    gyre_context_options options;
    gyre_store *store;

    memset(f, 0, sizeof(*f));
    options = unit_options(&f->memory);
    options.log = take_log;
    options.log_user = f;
    assert_int_equal(gyre_context_create(&options, &f->context, NULL), GYRE_OK);
    care_folder(f->folder, "st");
    snprintf(f->path, sizeof(f->path), "%s/store", f->folder);
    snprintf(f->file, sizeof(f->file), "%s/x.safetensors", f->folder);
    store = care_create(f->context, f->path, 2, 0);
    care_rounds(store, rounds);
    return store;
}

static inline void tear_down(fixture *f)
{
    care_remove(f->folder);
    gyre_context_destroy(f->context);
    unit_memory_check(&f->memory);
}

static inline void must_export(fixture *f, gyre_store *store,
                               int parameters_only)
{
    gyre_error error;

    if (gyre_store_export(store, f->file, parameters_only, NULL, NULL,
                          &error) != GYRE_OK)
        fail_msg("%s", error.text);
}

static inline gyre_status import(fixture *f, const char *path,
                                 gyre_error *error)
{
    gyre_store_options options = {
        .size = sizeof(options), .io = "posix", .buffers = 2};

    return gyre_store_import(f->context, path, f->file, &options, NULL, NULL,
                             error);
}

static inline void must_import(fixture *f, const char *path)
{
    gyre_error error;

    if (import(f, path, &error) != GYRE_OK)
        fail_msg("%s", error.text);
}

/* All bytes of the last export. */
static inline size_t slurp(const fixture *f, char *out, size_t room)
{
    FILE *file = fopen(f->file, "rb");
    size_t n;

    assert_non_null(file);
    n = fread(out, 1, room, file);
    fclose(file);
    assert_true(n < room);
    return n;
}

#endif
