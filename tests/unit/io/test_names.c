/* SPDX-License-Identifier: Apache-2.0 */
/* Steps with names: what they do, what the recorder keeps, and each refused. */
#include "config.h"

#include "common.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const gyre_io_event_kind order[] = {
    GYRE_IO_FOLDER_MADE, GYRE_IO_FOLDER_SYNCED, GYRE_IO_MADE,
    GYRE_IO_WRITE_START, GYRE_IO_WRITE_END,     GYRE_IO_FLUSH_START,
    GYRE_IO_FLUSH_END,   GYRE_IO_RENAMED,       GYRE_IO_FOLDER_SYNCED,
    GYRE_IO_MADE,        GYRE_IO_SIZED,         GYRE_IO_REMOVED,
};
enum { EVENTS = sizeof(order) / sizeof(order[0]), STEPS = 10 };

/* Every kind of step; the first error ends it. */
static gyre_status all_steps(const char *folder, gyre_io_recorder *r,
                             gyre_error *error)
{
    char aside[300], path[300], device[300];
    bool made;
    int fd, direct;
    gyre_status status;

    snprintf(aside, sizeof(aside), "%s/text.new", folder);
    snprintf(path, sizeof(path), "%s/text", folder);
    snprintf(device, sizeof(device), "%s/device", folder);
    status = gyre_io_make_folder(r, folder, &made, error);
    if (status == GYRE_OK)
        status = gyre_io_sync_parent(r, folder, error);
    if (status == GYRE_OK)
        status = gyre_io_put_file(r, aside, "words", error);
    if (status == GYRE_OK)
        status = gyre_io_rename(r, aside, path, error);
    if (status == GYRE_OK)
        status = gyre_io_sync_folder(r, folder, error);
    if (status != GYRE_OK)
        return status;
    status = gyre_io_make_file(r, device, &fd, &direct, error);
    if (status != GYRE_OK)
        return status;
    status = gyre_io_size_file(r, fd, device, 8192, error);
    close(fd);
    if (status == GYRE_OK) {
        int err = gyre_io_remove(r, device);

        if (err != 0)
            status = gyre_fail_errno(error, GYRE_IO, err, "%s", device);
    }
    return status;
}

static void clear(const char *folder)
{
    static const char *const names[] = {"text.new", "text", "device"};
    char path[300];

    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void test_order(void **state)
{
    io_fixture *f = *state;
    const char *folder = io_path(f, "names");
    gyre_io_recorder *r;
    char text[8] = "", path[300];
    FILE *file;

    assert_ok(f, gyre_io_recorder_create(f->context, &r, &f->error));
    assert_ok(f, all_steps(folder, r, &f->error));
    assert_int_equal(gyre_io_recorder_count(r), EVENTS);
    for (size_t i = 0; i < EVENTS; i++)
        assert_int_equal(gyre_io_recorder_at(r, i)->kind, order[i]);
    assert_int_equal(gyre_io_recorder_at(r, 3)->bytes, 5);
    assert_memory_equal(gyre_io_recorder_at(r, 3)->data, "words", 5);
    assert_non_null(strstr(gyre_io_recorder_at(r, 7)->data, "/text.new"));
    assert_int_equal(gyre_io_recorder_at(r, 10)->bytes, 8192);
    assert_int_equal(gyre_io_recorder_asked(r), STEPS);
    gyre_io_recorder_destroy(r);
    snprintf(path, sizeof(path), "%s/text", folder);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    fclose(file);
    assert_string_equal(text, "words");
    clear(folder);
    /* Without a recorder the same. */
    assert_ok(f, all_steps(folder, NULL, &f->error));
    clear(folder);
}

/* A refused step is not done, not recorded, and named with its errno. */
static void test_refused(void **state)
{
    io_fixture *f = *state;
    const char *folder = io_path(f, "names");

    for (uint64_t n = 1; n <= STEPS; n++) {
        gyre_io_recorder *r;
        char path[300];

        assert_ok(f, gyre_io_recorder_create(f->context, &r, &f->error));
        gyre_io_recorder_refuse(r, n, EIO);
        assert_int_equal(all_steps(folder, r, &f->error), GYRE_IO);
        assert_says(f, f->folder);
        assert_says(f, strerror(EIO));
        /* Of a file half put nothing stays. */
        snprintf(path, sizeof(path), "%s/text.new", folder);
        assert_int_equal(access(path, F_OK) == 0, n == 6);
        gyre_io_recorder_destroy(r);
        clear(folder);
    }
}

static void test_real_errors(void **state)
{
    io_fixture *f = *state;
    const char *missing = io_path(f, "missing/file");
    bool made = true;

    assert_int_equal(gyre_io_put_file(NULL, missing, "x", &f->error),
                     GYRE_NOT_FOUND);
    assert_says(f, "missing/file");
    assert_int_equal(gyre_io_rename(NULL, missing, missing, &f->error),
                     GYRE_NOT_FOUND);
    assert_int_equal(gyre_io_sync_folder(NULL, missing, &f->error),
                     GYRE_NOT_FOUND);
    assert_int_equal(gyre_io_sync_parent(NULL, missing, &f->error),
                     GYRE_NOT_FOUND);
    assert_int_equal(gyre_io_remove(NULL, missing), ENOENT);
    assert_ok(f, gyre_io_make_folder(NULL, f->folder, &made, &f->error));
    assert_false(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_real_errors),
    };

    return cmocka_run_group_tests_name("names", tests, io_setup, io_teardown);
}
