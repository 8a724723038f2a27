/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fsck can mend and what it leaves: salvage, stores in place, failures
 * while it looks.
 */
#include "config.h"

#include "damage.h"
#include "store/commit.h"

/* ---- no way back ------------------------------------------------------ */

static void expect_ranges(const fixture *f, const char *part)
{
    char name[300], text[8192] = "";
    FILE *file;

    snprintf(name, sizeof(name), "%s/salvaged.json", f->path);
    file = fopen(name, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    fclose(file);
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" is not in: %s", part, text);
}

/* A frozen chunk has one version only; a chunk bad in both commits none. */
static void test_salvage(void **state)
{
    gyre_store_info info = {.size = sizeof(info)};
    gyre_fsck_report report;
    gyre_error error;
    gyre_store *store;
    float value;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    flip_in_chunk(&f, f.train, 0);
    flip_in_chunk(&f, 0, 8);
    flip_bit(f.file[f.chunk[0].device], f.chunk[0].other + 8);
    assert_int_equal(try_open(&f, &error), GYRE_CORRUPT);
    unit_assert_text(&error, "the commit before is not whole either");
    report = must_check(f.context, f.path, GYRE_FSCK_REPAIR);
    expect("flipped", 2, "");
    assert_false(report.repaired || report.previous_whole);
    assert_int_equal(try_open(&f, &error), GYRE_CORRUPT);
    report =
        must_check(f.context, f.path, GYRE_FSCK_REPAIR | GYRE_FSCK_SALVAGE);
    assert_true(report.salvaged && !report.repaired);
    expect_ranges(&f, "\"frozen.pos\"");
    expect_ranges(&f, "\"emb\"");
    assert_int_equal(must_check(f.context, f.path, 0).problems, 0);
    store = care_open(f.context, f.path);
    gyre_store_get_info(store, &info, NULL);
    assert_false(info.whole);
    assert_int_equal(info.step, 3);
    assert_int_equal(
        gyre_store_read(store, 1, -1, 0, 1, GYRE_F32, &value, NULL), GYRE_OK);
    assert_true(value != care_number(1, 0, 7));
    care_rounds(store, 2);
    gyre_store_get_info(store, &info, NULL);
    assert_false(info.whole);
    gyre_store_close(store);
    assert_int_equal(must_check(f.context, f.path, 0).problems, 0);
    tear_down(&f);
}

/* The way out that messages speak of: everything from an export. */
static void test_import_makes_whole_again(void **state)
{
    gyre_store_info info = {.size = sizeof(info)};
    gyre_store_options options = {.size = sizeof(options), .io = "posix"};
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;
    char file[300];
    care_state after;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    snprintf(file, sizeof(file), "%s.safetensors", f.path);
    store = care_open(f.context, f.path);
    assert_int_equal(gyre_store_export(store, file, 0, NULL, NULL, &error),
                     GYRE_OK);
    gyre_store_close(store);
    flip_in_chunk(&f, f.train, 0);
    must_check(f.context, f.path, GYRE_FSCK_SALVAGE);
    flip_in_chunk(&f, f.train, 8); /* and once more */
    if (gyre_store_import(f.context, f.path, file, &options, NULL, NULL,
                          &error) != GYRE_OK)
        fail_msg("%s", error.text);
    store = care_open(f.context, f.path);
    after = care_state_of(store);
    gyre_store_get_info(store, &info, NULL);
    gyre_store_close(store);
    assert_true(info.whole);
    assert_string_equal(after.text, f.now.text);
    unlink(file);
    tear_down(&f);
}

/* ---- in place --------------------------------------------------------- */

/* A process that ends between the mark and the first write. */
static void leave_dirty(const char *path)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        gyre_context *context = NULL;
        gyre_store *store = NULL;

        if (gyre_context_create(NULL, &context, NULL) != GYRE_OK ||
            gyre_store_open(context, path, NULL, &store, NULL) != GYRE_OK)
            _exit(2);
        unit_end_child(gyre_store_mark_dirty(store, NULL) == GYRE_OK);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_dirty_but_untouched(void **state)
{
    gyre_error error;
    fixture f;

    (void)state;
    set_up(&f, 1, NULL);
    leave_dirty(f.path);
    assert_int_equal(try_open(&f, &error), GYRE_DIRTY);
    assert_false(must_check(f.context, f.path, 0).previous_whole);
    expect("dirty", 1, "nothing of that round was written");
    assert_true(must_check(f.context, f.path, GYRE_FSCK_REPAIR).repaired);
    expect_state(&f, &f.now, 0);
    tear_down(&f);
}

static int killed_in_round(const char *path, int n)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        gyre_store_options options = {.size = sizeof(options)};
        gyre_context *context = NULL;
        gyre_store *store = NULL;
        char io[64];

        snprintf(io, sizeof(io), "faulty:posix,kill=%d", n);
        options.io = io;
        if (gyre_context_create(NULL, &context, NULL) != GYRE_OK ||
            gyre_store_open(context, path, &options, &store, NULL) != GYRE_OK)
            _exit(2);
        unit_end_child(care_try_round(store, NULL) == GYRE_OK);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        return 1;
    assert_int_equal(WEXITSTATUS(status), 0);
    return 0;
}

/* Whatever the moment: the store opens, or it says that it is dirty and then
 * can be salvaged. */
static void test_killed_in_place(void **state)
{
    int dirty = 0, killed = 1;

    (void)state;
    for (int n = 20; killed; n += 3) {
        gyre_store_info info = {.size = sizeof(info)};
        gyre_fsck_report report;
        gyre_error error;
        gyre_status status;
        gyre_store *store;
        fixture f;

        set_up(&f, 1, NULL);
        killed = killed_in_round(f.path, n);
        status = try_open(&f, &error);
        if (status != GYRE_OK)
            assert_int_equal(status, GYRE_DIRTY);
        if (status == GYRE_DIRTY) {
            dirty++;
            report = must_check(f.context, f.path,
                                GYRE_FSCK_REPAIR | GYRE_FSCK_SALVAGE);
            assert_true(report.repaired || report.salvaged);
            store = care_open(f.context, f.path);
            gyre_store_get_info(store, &info, NULL);
            gyre_store_close(store);
            assert_int_equal(info.whole, report.repaired);
            if (report.repaired)
                expect_state(&f, &f.now, 0);
            else
                expect_ranges(&f, "\"ranges\"");
            assert_int_equal(must_check(f.context, f.path, 0).problems, 0);
        }
        tear_down(&f);
    }
    assert_true(dirty > 2);
}

/* ---- machinery -------------------------------------------------------- */

/* The plugin is gone: the store cannot be opened, but looked at and mended. */
static void test_without_the_optimizer(void **state)
{
    char name[300], text[32768] = "", *at;
    gyre_error error;
    FILE *file;
    size_t n;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    snprintf(name, sizeof(name), "%s/manifest.json", f.path);
    file = fopen(name, "r");
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    at = strstr(text, "\"adamw\"");
    assert_non_null(at);
    memcpy(at, "\"adamx\"", 7);
    put(name, 0, text, n);
    assert_int_not_equal(try_open(&f, &error), GYRE_OK);
    flip_in_chunk(&f, 0, 0);
    assert_true(must_check(f.context, f.path, GYRE_FSCK_REPAIR).repaired);
    expect("flipped", 1, "");
    memcpy(at, "\"adamw\"", 7);
    put(name, 0, text, n);
    expect_state(&f, &f.before, 0);
    tear_down(&f);
}

/* One bad place must not hide the next: with operations that keep failing,
 * chunks are told as unreadable and the others are still checked. */
static void test_io_errors(void **state)
{
    size_t unreadable = 0, both = 0;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    flip_in_chunk(&f, 3, 0);
    for (int n = 1; n < 40; n++)
        for (int every = 2; every < 14; every += 3) {
            gyre_store_options options = {.size = sizeof(options),
                                          .buffers = 2};
            gyre_fsck_report report = {.size = sizeof(report)};
            char io[64];
            int flipped = 0, lost = 0;
            gyre_error error;
            gyre_status status;

            snprintf(io, sizeof(io), "faulty:posix,fail=%d,every=%d", n, every);
            options.io = io;
            memset(&seen, 0, sizeof(seen));
            status = gyre_store_fsck(f.context, f.path, &options, 0, collect,
                                     &seen, &report, &error);
            if (status != GYRE_OK) {
                assert_int_equal(status, GYRE_NOT_FOUND); /* no record */
                continue;
            }
            for (size_t i = 0; i < seen.count; i++) {
                flipped += strcmp(seen.what[i], "flipped") == 0;
                lost += strcmp(seen.what[i], "unreadable") == 0;
            }
            unreadable += (size_t)lost;
            both += flipped && lost;
        }
    assert_true(unreadable > 10);
    assert_true(both > 0);
    tear_down(&f);
}

/* A repair whose operations fail goes back only when chunks could not be read;
 * a record that could not be read is no reason to overwrite it. */
static void test_io_errors_in_repair(void **state)
{
    size_t refused = 0;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    for (int n = 1; n < 60; n++)
        for (int every = 1; every < 12; every += 2) {
            gyre_store_options options = {.size = sizeof(options),
                                          .buffers = 2};
            gyre_fsck_report report = {.size = sizeof(report)};
            char io[64];
            int lost = 0;
            gyre_error error;
            gyre_status status;
            care_state after;

            snprintf(io, sizeof(io), "faulty:posix,fail=%d,every=%d", n, every);
            options.io = io;
            memset(&seen, 0, sizeof(seen));
            status =
                gyre_store_fsck(f.context, f.path, &options, GYRE_FSCK_REPAIR,
                                collect, &seen, &report, &error);
            refused += status == GYRE_IO;
            for (size_t i = 0; i < seen.count; i++)
                lost |= strcmp(seen.what[i], "unreadable") == 0;
            after = care_state_at(f.context, f.path);
            if (strcmp(after.text, f.now.text) == 0)
                continue;
            assert_true(lost);
            assert_string_equal(after.text, f.before.text);
            tear_down(&f);
            set_up(&f, 0, NULL);
        }
    assert_true(refused > 5);
    tear_down(&f);
}

/* Operations of each queue: 1 head, 2 and 3 the areas, 4 and 5 the same to
 * choose.  The newest record is in area 1. */
static void test_unread_record_in_repair(void **state)
{
    gyre_store_options options = {.size = sizeof(options),
                                  .buffers = 2,
                                  .io = "faulty:posix,fail=3,every=2"};
    gyre_fsck_report report = {.size = sizeof(report)};
    gyre_error error;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    assert_int_equal(f.area, 1);
    for (unsigned flags = GYRE_FSCK_REPAIR; flags <= GYRE_FSCK_SALVAGE;
         flags++) {
        assert_int_equal(gyre_store_fsck(f.context, f.path, &options, flags,
                                         NULL, NULL, &report, &error),
                         GYRE_IO);
        unit_assert_text(&error, "no device gives this commit record");
        expect_state(&f, &f.now, 0);
    }
    tear_down(&f);
}

static void test_every_allocation_fails(void **state)
{
    static const unsigned flags[] = {0, GYRE_FSCK_REPAIR, GYRE_FSCK_SALVAGE};

    (void)state;
    for (int i = 0; i < 3; i++) {
        char name[300];
        fixture f;

        set_up(&f, 0, NULL);
        snprintf(name, sizeof(name), "%s/manifest.json", f.path);
        flip_in_chunk(&f, 1, 0);
        flip_in_chunk(&f, 4, f.chunk[4].label);
        if (i == 1)
            unlink(name);
        for (uint64_t n = 1;; n++) {
            uint64_t before = f.memory.bytes;
            gyre_fsck_report report;
            gyre_error error;
            gyre_status status;

            f.memory.fail_at = f.memory.requests + n;
            status = check(f.context, f.path, flags[i], &report, &error);
            f.memory.fail_at = 0;
            assert_int_equal(f.memory.bytes, before);
            assert_int_equal(f.memory.wrong, 0);
            if (status == GYRE_OK)
                break;
            /* without memory for it the copy of the manifest is not found */
            if (status != GYRE_NO_MEMORY &&
                (i != 1 || status != GYRE_NOT_FOUND))
                fail_msg("request %llu: %s", (unsigned long long)n, error.text);
        }
        if (i == 1)
            expect_state(&f, &f.before, 0);
        tear_down(&f);
    }
}

static void test_bad_requests(void **state)
{
    gyre_store_options reading = {.size = sizeof(reading), .read_only = 1};
    gyre_fsck_report report = {.size = 0};
    gyre_error error;
    gyre_store *store;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    assert_int_equal(gyre_store_fsck(f.context, f.path, NULL, 0, NULL, NULL,
                                     &report, &error),
                     GYRE_INVALID);
    report.size = sizeof(report);
    assert_int_equal(gyre_store_fsck(f.context, f.path, NULL, 8, NULL, NULL,
                                     &report, &error),
                     GYRE_INVALID);
    assert_int_equal(gyre_store_fsck(f.context, f.path, &reading,
                                     GYRE_FSCK_REPAIR, NULL, NULL, &report,
                                     &error),
                     GYRE_INVALID);
    assert_int_equal(gyre_store_fsck(f.context, "/nowhere", NULL, 0, NULL, NULL,
                                     &report, &error),
                     GYRE_NOT_FOUND);
    assert_int_equal(gyre_store_fsck(f.context, "/tmp", NULL, 0, NULL, NULL,
                                     &report, &error),
                     GYRE_NOT_FOUND);
    assert_int_equal(gyre_store_fsck(f.context, f.path, &reading, 0, NULL, NULL,
                                     NULL, &error),
                     GYRE_OK);
    store = care_open(f.context, f.path);
    assert_int_equal(check(f.context, f.path, 0, &report, &error), GYRE_BUSY);
    gyre_store_close(store);
    expect_state(&f, &f.now, 0);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_salvage),
        cmocka_unit_test(test_import_makes_whole_again),
        cmocka_unit_test(test_dirty_but_untouched),
        cmocka_unit_test(test_killed_in_place),
        cmocka_unit_test(test_without_the_optimizer),
        cmocka_unit_test(test_io_errors),
        cmocka_unit_test(test_io_errors_in_repair),
        cmocka_unit_test(test_unread_record_in_repair),
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_bad_requests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
