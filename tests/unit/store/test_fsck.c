/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsck: each kind of damage is made by hand, told by its name, and an open of
 * the same store does what it should.
 */
#include "config.h"

#include "damage.h"

/* ---- chunks ----------------------------------------------------------- */

static void test_whole(void **state)
{
    gyre_fsck_report report;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    report = must_check(f.context, f.path, 0);
    assert_int_equal(report.problems, 0);
    assert_int_equal(report.chunks, f.chunks);
    assert_int_equal(report.step, 3);
    report =
        must_check(f.context, f.path, GYRE_FSCK_REPAIR | GYRE_FSCK_SALVAGE);
    assert_false(report.repaired || report.salvaged);
    expect_state(&f, &f.now, 0);
    tear_down(&f);
}

/* Damage one chunk by `make`; the same is then seen by fsck, by open and by
 * repair. */
static void one_chunk(void (*make)(fixture *f, const char *stale),
                      const char *what, const char *text)
{
    for (int by_open = 0; by_open < 2; by_open++) {
        static char stale[1 << 20];
        gyre_fsck_report report;
        fixture f;

        set_up(&f, 0, stale);
        make(&f, stale);
        report = must_check(f.context, f.path, 0);
        expect(what, 1, text);
        assert_int_equal(seen.chunk[0], 2);
        assert_true(report.previous_whole);
        assert_int_equal(report.step, 3);
        expect_way_back(&f, by_open);
        tear_down(&f);
    }
}

static void make_flipped(fixture *f, const char *stale)
{
    (void)stale;
    flip_in_chunk(f, 2, 1234);
}

static void make_stale(fixture *f, const char *stale)
{
    put(f->file[f->chunk[2].device], f->chunk[2].offset, stale,
        f->chunk[2].bytes);
}

static void make_misplaced(fixture *f, const char *stale)
{
    static char block[1 << 20];

    (void)stale;
    get(f->file[f->chunk[3].device], f->chunk[3].offset, block,
        f->chunk[3].bytes);
    put(f->file[f->chunk[2].device], f->chunk[2].offset, block,
        f->chunk[2].bytes);
}

static void make_foreign(fixture *f, const char *stale)
{
    static char block[1 << 20];
    gyre_store *store;
    fixture other;

    (void)stale;
    set_up(&other, 0, NULL);
    store = care_open(other.context, other.path);
    care_rounds(store, 1); /* with the same data only the label would differ */
    take_places(&other, store);
    gyre_store_close(store);
    get(other.file[other.chunk[2].device], other.chunk[2].offset, block,
        other.chunk[2].bytes);
    put(f->file[f->chunk[2].device], f->chunk[2].offset, block,
        f->chunk[2].bytes);
    tear_down(&other);
}

static void make_torn(fixture *f, const char *stale)
{
    static const char zeros[8192];

    (void)stale;
    put(f->file[f->chunk[2].device],
        f->chunk[2].offset + f->chunk[2].label - 4096, zeros, 8192);
}

static void test_kinds_of_chunks(void **state)
{
    (void)state;
    one_chunk(make_flipped, "flipped", "bits have flipped");
    one_chunk(make_stale, "stale",
              "written at step 1, the record wants step 3");
    one_chunk(make_misplaced, "misplaced", "it is chunk 3");
    one_chunk(make_foreign, "foreign", "it belongs to store ");
    one_chunk(make_torn, "torn", "its label is damaged too");
    one_chunk(make_flipped, "flipped", "chunk 2 (scale [0, 1), big [0, 3072))");
}

/* Every chunk, first and last byte of its data: told for that chunk alone. */
static void test_every_chunk(void **state)
{
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    for (uint64_t c = 0; c < f.chunks; c++)
        for (int last = 0; last < 2; last++) {
            uint64_t at = last ? f.chunk[c].label - 1 : 0;

            flip_in_chunk(&f, c, at);
            must_check(f.context, f.path, 0);
            expect("flipped", 1, "");
            assert_int_equal(seen.chunk[0], c);
            flip_in_chunk(&f, c, at);
        }
    assert_int_equal(must_check(f.context, f.path, 0).problems, 0);
    expect_state(&f, &f.now, 0);
    tear_down(&f);
}

static void test_label(void **state)
{
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    flip_in_chunk(&f, 1, f.chunk[1].label + 40);
    flip_in_chunk(&f, f.train, f.chunk[f.train].label + 8);
    must_check(f.context, f.path, 0);
    expect("label", 2, "its data are whole");
    expect_state(&f, &f.now, 0);
    assert_true(must_check(f.context, f.path, GYRE_FSCK_REPAIR).repaired);
    assert_int_equal(must_check(f.context, f.path, 0).problems, 0);
    expect_state(&f, &f.now, 0);
    tear_down(&f);
}

static void test_truncated(void **state)
{
    gyre_fsck_report report;
    gyre_error error;
    uint64_t last = 0;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    for (uint64_t c = 0; c < f.train; c++)
        if (f.chunk[c].device == 1 && f.chunk[c].offset > f.chunk[c].other)
            last = c;
    assert_int_equal(truncate(f.file[1], (off_t)(f.chunk[last].offset + 4096)),
                     0);
    report = must_check(f.context, f.path, 0);
    assert_true(seen.count >= 2);
    expect("truncated", seen.count, "");
    assert_int_equal(seen.chunk[0], UINT64_MAX);
    assert_int_equal(seen.chunk[1], last);
    /* chunks behind it that have no second version are lost in both */
    assert_int_equal(report.previous_whole, seen.count == 2);
    assert_int_equal(
        check(f.context, f.path, GYRE_FSCK_SALVAGE, &report, &error), GYRE_IO);
    unit_assert_text(&error, "cannot be read at all");
    tear_down(&f);
}

/* Only the space for a version that is not in use is gone. */
static void test_truncated_behind_the_data(void **state)
{
    struct stat info;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    assert_int_equal(truncate(f.file[1], (off_t)f.file_bytes[1] - 512), 0);
    must_check(f.context, f.path, 0);
    if (seen.count == 1) { /* the last version in the file is not in use */
        assert_true(must_check(f.context, f.path, GYRE_FSCK_REPAIR).repaired);
        assert_int_equal(stat(f.file[1], &info), 0);
        assert_int_equal(info.st_size, f.file_bytes[1]);
        assert_int_equal(must_check(f.context, f.path, 0).problems, 0);
    }
    tear_down(&f);
}

/* ---- records, superblocks, manifests ---------------------------------- */

/* What was told last: so many notes among it, the last of which says this. */
static void expect_note(size_t notes, const char *text)
{
    assert_int_equal(seen.notes, notes);
    if (notes > 0 && strstr(seen.text[seen.count - 1], text) == NULL)
        fail_msg("\"%s\" is not in: %s", text, seen.text[seen.count - 1]);
}

/* Bytes of record, table, tensor steps and blob of the newest commit. */
static void test_records(void **state)
{
    fixture f;
    gyre_store *store;
    uint64_t at[4];

    (void)state;
    set_up(&f, 0, NULL);
    at[0] = 60;
    at[1] = 4096 + 5;
    at[2] = 4096 + f.chunks * sizeof(gyre_entry) + 3;
    at[3] = gyre_format_head_bytes(f.chunks, CARE_TENSORS) + 2;
    for (int i = 0; i < 4; i++) {
        uint64_t place = f.area_at[f.area] + at[i];

        /* on one device: the other one's copy is enough */
        flip_bit(f.file[0], place);
        must_check(f.context, f.path, 0);
        expect("record", 1, "does not match its checksum");
        expect_note(1, "the second next commit");
        expect_state(&f, &f.now, 0);
        /* on both: the commit before */
        flip_bit(f.file[1], place);
        must_check(f.context, f.path, 0);
        expect("record", 2, "");
        expect_note(2, "is whole, and the next commit writes this area anew");
        flip_bit(f.file[1], place);
        assert_true(must_check(f.context, f.path, GYRE_FSCK_REPAIR).repaired);
        assert_int_equal(must_check(f.context, f.path, 0).problems, 0);
        store = care_open(f.context, f.path);
        take_places(&f, store);
        gyre_store_close(store);
        expect_state(&f, &f.now, 0);
    }
    tear_down(&f);
}

static void test_newest_record_lost_everywhere(void **state)
{
    for (int by_open = 0; by_open < 2; by_open++) {
        fixture f;

        (void)state;
        set_up(&f, 0, NULL);
        flip_bit(f.file[0], f.area_at[f.area] + 60);
        flip_bit(f.file[1], f.area_at[f.area] + 4096);
        if (!by_open)
            assert_true(
                must_check(f.context, f.path, GYRE_FSCK_REPAIR).repaired);
        expect_state(&f, &f.before, 0);
        must_check(f.context, f.path, GYRE_FSCK_REPAIR);
        assert_int_equal(must_check(f.context, f.path, 0).problems, 0);
        expect_state(&f, &f.before, 0);
        tear_down(&f);
    }
}

/* A note is one as long as nothing is wrong with a chunk or the dirty mark, and
 * goes when commits come. */
static void test_notes_are_harmless(void **state)
{
    gyre_fsck_report report;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    flip_bit(f.file[0], f.area_at[f.area] + 60);
    flip_in_chunk(&f, 2, 7);
    report = must_check(f.context, f.path, 0);
    assert_int_equal(report.problems, 2);
    assert_int_equal(report.notes, 0);
    flip_in_chunk(&f, 2, 7);
    flip_in_chunk(&f, 2, f.chunk[2].label);
    report = must_check(f.context, f.path, 0);
    assert_int_equal(report.problems, 1);
    assert_int_equal(report.notes, 1);
    for (int round = 1; round <= 2; round++) {
        gyre_store *store = care_open(f.context, f.path);

        care_rounds(store, 1);
        gyre_store_close(store);
        report = must_check(f.context, f.path, 0);
        assert_int_equal(report.notes, round == 1);
    }
    tear_down(&f);
}

/* No crash makes a record unreadable. */
static void test_unreadable_record(void **state)
{
    gyre_store_options options = {.size = sizeof(options),
                                  .io = "faulty:posix,fail=3,every=1000"};
    gyre_fsck_report report = {.size = sizeof(report)};
    gyre_error error;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    memset(&seen, 0, sizeof(seen));
    assert_int_equal(gyre_store_fsck(f.context, f.path, &options, 0, collect,
                                     &seen, &report, &error),
                     GYRE_OK);
    assert_int_equal(report.problems, 2);
    assert_int_equal(report.notes, 0);
    tear_down(&f);
}

/* A device that missed a commit holds a whole but older record. */
static void test_record_behind(void **state)
{
    static char area[1 << 16];
    gyre_store *store;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    get(f.file[0], f.area_at[1 - f.area], area, f.area_at[1] - f.area_at[0]);
    store = care_open(f.context, f.path);
    care_rounds(store, 1);
    f.now = care_state_of(store);
    gyre_store_close(store);
    put(f.file[0], f.area_at[1 - f.area], area, f.area_at[1] - f.area_at[0]);
    must_check(f.context, f.path, 0);
    expect("record", 1, "holds commit 3, another device 5");
    expect_note(1, "commit 5 (step 4) is whole, and the second next commit");
    expect_state(&f, &f.now, 0);
    must_check(f.context, f.path, GYRE_FSCK_REPAIR);
    assert_int_equal(must_check(f.context, f.path, 0).problems, 0);
    expect_state(&f, &f.now, 0);
    tear_down(&f);
}

static void test_no_record_at_all(void **state)
{
    gyre_fsck_report report;
    gyre_error error;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    for (int d = 0; d < 2; d++)
        for (int a = 0; a < 2; a++)
            flip_bit(f.file[d], f.area_at[a] + 60);
    assert_int_equal(check(f.context, f.path, 0, &report, &error),
                     GYRE_NOT_FOUND);
    expect("record", 4, "");
    expect_note(0, "");
    unit_assert_text(&error, "no device holds a whole commit record");
    assert_int_equal(try_open(&f, &error), GYRE_NOT_FOUND);
    tear_down(&f);
}

static void test_superblock_and_copy(void **state)
{
    gyre_error error;
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    flip_bit(f.file[1], 40);
    must_check(f.context, f.path, 0);
    expect("superblock", 1, "superblock does not match its checksum");
    assert_int_equal(try_open(&f, &error), GYRE_CORRUPT);
    unit_assert_text(&error, f.file[1]);
    assert_true(must_check(f.context, f.path, GYRE_FSCK_REPAIR).repaired);
    assert_int_equal(must_check(f.context, f.path, 0).problems, 0);
    expect_state(&f, &f.now, 0);

    flip_bit(f.file[0], 4096 + 100);
    must_check(f.context, f.path, 0);
    expect("manifest", 1, "copy of the manifest");
    expect_state(&f, &f.now, 0);
    assert_true(must_check(f.context, f.path, GYRE_FSCK_REPAIR).repaired);
    assert_int_equal(must_check(f.context, f.path, 0).problems, 0);
    expect_state(&f, &f.now, 0);
    tear_down(&f);
}

static void test_manifest_from_a_device(void **state)
{
    gyre_error error;
    gyre_fsck_report report;
    char name[300];
    fixture f;

    (void)state;
    set_up(&f, 0, NULL);
    snprintf(name, sizeof(name), "%s/manifest.json", f.path);
    for (int damaged = 0; damaged < 2; damaged++) {
        if (damaged)
            put(name, 10, "}}", 2);
        else
            unlink(name);
        assert_int_equal(try_open(&f, &error),
                         damaged ? GYRE_FORMAT : GYRE_NOT_FOUND);
        must_check(f.context, f.path, 0);
        expect("manifest", 1, "the copy in a device file was used");
        must_check(f.context, f.path, 0); /* a look changes nothing */
        expect("manifest", 1, "");
        assert_true(must_check(f.context, f.path, GYRE_FSCK_REPAIR).repaired);
        assert_int_equal(must_check(f.context, f.path, 0).problems, 0);
        expect_state(&f, &f.now, 0);
    }
    unlink(name);
    flip_bit(f.file[0], 4096 + 50);
    flip_bit(f.file[1], 8);
    assert_int_equal(check(f.context, f.path, 0, &report, &error),
                     GYRE_NOT_FOUND);
    unit_assert_text(&error, "manifest.json");
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_kinds_of_chunks),
        cmocka_unit_test(test_every_chunk),
        cmocka_unit_test(test_label),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_truncated_behind_the_data),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_newest_record_lost_everywhere),
        cmocka_unit_test(test_notes_are_harmless),
        cmocka_unit_test(test_unreadable_record),
        cmocka_unit_test(test_record_behind),
        cmocka_unit_test(test_no_record_at_all),
        cmocka_unit_test(test_superblock_and_copy),
        cmocka_unit_test(test_manifest_from_a_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
