/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exports and imports that end early: stopped, out of memory, out of space, on
 * a damaged store, killed.  Files and stores are as they were, or as asked.
 */
#include "config.h"

#include "exchange.h"

#include <signal.h>
#include <sys/wait.h>

static int stop_second(void *user, uint64_t done, uint64_t total)
{
    int *calls = user;

    assert_true(done <= total);
    return ++*calls == 2;
}

static void test_stopped(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 1);
    care_state want = care_state_of(store), got;
    gyre_error error;
    int calls = 0;

    (void)state;
    assert_int_equal(
        gyre_store_export(store, f.file, 0, stop_second, &calls, &error),
        GYRE_STOPPED);
    assert_int_equal(care_files(f.folder), 1);
    must_export(&f, store, 0);
    gyre_store_close(store);
    calls = 1;
    assert_int_equal(gyre_store_import(f.context, f.path, f.file, NULL,
                                       stop_second, &calls, &error),
                     GYRE_STOPPED);
    assert_int_equal(care_files(f.path), 4);
    got = care_state_at(f.context, f.path);
    assert_string_equal(want.text, got.text);
    tear_down(&f);
}

static void test_every_allocation_fails(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 1);
    care_state want = care_state_of(store), got;
    gyre_error error;
    gyre_status status;
    uint64_t n;

    (void)state;
    for (n = 1;; n++) {
        f.memory.fail_at = f.memory.requests + n;
        status = gyre_store_export(store, f.file, 0, NULL, NULL, &error);
        f.memory.fail_at = 0;
        if (status == GYRE_OK)
            break;
        assert_int_equal(status, GYRE_NO_MEMORY);
        assert_int_equal(care_files(f.folder), 1);
    }
    assert_true(n > 10);
    gyre_store_close(store);
    for (n = 1;; n++) {
        uint64_t before = f.memory.bytes;

        f.memory.fail_at = f.memory.requests + n;
        status = import(&f, f.path, &error);
        f.memory.fail_at = 0;
        if (status == GYRE_OK)
            break;
        if (status != GYRE_NO_MEMORY)
            fail_msg("request %llu: %s", (unsigned long long)n, error.text);
        assert_int_equal(f.memory.bytes, before);
        assert_int_equal(f.memory.wrong, 0);
        assert_int_equal(care_files(f.path), 4);
    }
    assert_true(n > 50);
    got = care_state_at(f.context, f.path);
    assert_string_equal(want.text, got.text);
    tear_down(&f);
}

/* The damage is found while it is copied; nothing half-written stays. */
static void test_damaged_store_is_not_exported(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 1);
    char name[400];
    gyre_store_info info = {.size = sizeof(info)};
    gyre_error error;
    int fd;

    (void)state;
    gyre_store_get_info(store, &info, NULL);
    snprintf(name, sizeof(name), "%s/%.8s.g1.d01", f.path, info.uuid);
    fd = open(name, O_WRONLY);
    for (off_t at = 65536; at < 1 << 20; at += 4096)
        assert_int_equal(pwrite(fd, "damaged", 7, at), 7);
    close(fd);
    assert_int_equal(gyre_store_export(store, f.file, 0, NULL, NULL, &error),
                     GYRE_CORRUPT);
    assert_int_equal(care_files(f.folder), 1);
    gyre_store_close(store);
    tear_down(&f);
}

/* Written whole, and then it cannot have the name: nothing of it stays. */
static void test_a_name_that_cannot_be_had(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 0);
    gyre_error error;

    (void)state;
    mkdir(f.file, 0700);
    assert_int_equal(gyre_store_export(store, f.file, 0, NULL, NULL, &error),
                     GYRE_IO);
    unit_assert_text(&error, "cannot rename");
    assert_int_equal(care_files(f.folder), 2);
    gyre_store_close(store);
    tear_down(&f);
}

static void test_disk_full(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 1);
    char path[300], file[400];
    gyre_error error;

    (void)state;
    snprintf(path, sizeof(path), "%s/small", f.folder);
    snprintf(file, sizeof(file), "%s/x", path);
    mkdir(path, 0700);
    if (!care_small_disk(path, "size=64k")) {
        gyre_store_close(store);
        tear_down(&f);
        skip();
    }
    assert_int_equal(gyre_store_export(store, file, 0, NULL, NULL, &error),
                     GYRE_NO_SPACE);
    assert_int_equal(care_files(path), 0);
    assert_int_equal(umount(path), 0);
    gyre_store_close(store);
    tear_down(&f);
}

/* Old values or new ones, never some of each. */
static void test_killed_import(void **state)
{
    fixture f;
    gyre_store *store = set_up(&f, 1);
    care_state old, new, got;
    float other = 42;
    char keep[320];
    int killed = 1, n;

    (void)state;
    care_rounds(store, 2);
    must_export(&f, store, 0);
    new = care_state_of(store);
    gyre_store_close(store);
    care_remove(f.path);
    store = care_create(f.context, f.path, 2, 0);
    care_rounds(store, 3); /* so that round, blob and step are the same */
    gyre_store_close(store);
    /* and one value is not */
    snprintf(keep, sizeof(keep), "%s.keep", f.file);
    assert_int_equal(rename(f.file, keep), 0);
    make_file(f.file, "{\"scale\":" T("F32", "[]", "0", "4") "}", &other, 4);
    must_import(&f, f.path);
    assert_int_equal(rename(keep, f.file), 0);
    old = care_state_at(f.context, f.path);
    assert_string_not_equal(old.text, new.text);
    for (n = 1; killed; n += 5) {
        pid_t child = fork();
        int status;

        if (child == 0) {
            gyre_store_options options = {.size = sizeof(options)};
            gyre_context *context = NULL;
            char io[64];

            snprintf(io, sizeof(io), "faulty:posix,kill=%d", n);
            options.io = io;
            if (gyre_context_create(NULL, &context, NULL) != GYRE_OK)
                _exit(2);
            unit_end_child(gyre_store_import(context, f.path, f.file, &options,
                                             NULL, NULL, NULL) == GYRE_OK);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        killed = WIFSIGNALED(status);
        if (!killed)
            assert_int_equal(WEXITSTATUS(status), 0);
        got = care_state_at(f.context, f.path);
        assert_string_equal(got.text, killed ? old.text : new.text);
        assert_int_equal(care_files(f.path), 4);
    }
    assert_true(n > 30);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_damaged_store_is_not_exported),
        cmocka_unit_test(test_a_name_that_cannot_be_had),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_killed_import),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
