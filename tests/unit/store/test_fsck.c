/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsck: each kind of damage is made by hand, told by its name, and mended or
 * not as the rules say; and an open of the same store does what it should.
 */
#include "config.h"

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
} found;

static void collect(void *user, const gyre_fsck_problem *problem)
{
    found *f = user;

    if (f->count == MOST)
        return;
    snprintf(f->what[f->count], sizeof(f->what[0]), "%s", problem->what);
    snprintf(f->text[f->count], sizeof(f->text[0]), "%.599s", problem->text);
    f->chunk[f->count++] = problem->chunk;
    assert_non_null(strstr(problem->text, problem->device));
}

static found seen;

static gyre_status check(gyre_context *context, const char *path,
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

static gyre_fsck_report must_check(gyre_context *context, const char *path,
                                   unsigned flags)
{
    gyre_fsck_report report;
    gyre_error error;

    if (check(context, path, flags, &report, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    assert_int_equal(report.problems, seen.count);
    return report;
}

static void expect(const char *what, size_t count, const char *text)
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

static void take_places(fixture *f, const gyre_store *store)
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
        f->chunk[c].label = gyre_layout_vars(layout, c) *
                            gyre_layout_chunk_elements(layout, c) *
                            sizeof(float);
    }
}

/* Three rounds, each committed; `stale` takes what lies in the slot of chunk 2
 * before the third overwrites it. */
static void set_up(fixture *f, int in_place, char *stale)
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

static void tear_down(fixture *f)
{
    care_remove(f->path);
    gyre_context_destroy(f->context);
    unit_memory_check(&f->memory);
}

static void put(const char *file, uint64_t at, const void *data, size_t bytes)
{
    int fd = open(file, O_WRONLY);

    assert_int_equal(pwrite(fd, data, bytes, (off_t)at), bytes);
    close(fd);
}

static void get(const char *file, uint64_t at, void *data, size_t bytes)
{
    int fd = open(file, O_RDONLY);

    assert_int_equal(pread(fd, data, bytes, (off_t)at), bytes);
    close(fd);
}

static void flip_bit(const char *file, uint64_t at)
{
    unsigned char byte;

    get(file, at, &byte, 1);
    byte ^= 0x10;
    put(file, at, &byte, 1);
}

static void flip_in_chunk(const fixture *f, uint64_t chunk, uint64_t at)
{
    flip_bit(f->file[f->chunk[chunk].device], f->chunk[chunk].offset + at);
}

static void expect_state(fixture *f, const care_state *want, int fell_back)
{
    gyre_store *store = care_open(f->context, f->path);
    gyre_store_info info = {.size = sizeof(info)};
    care_state state = care_state_of(store);

    gyre_store_get_info(store, &info, NULL);
    gyre_store_close(store);
    assert_string_equal(state.text, want->text);
    assert_int_equal(info.fell_back, fell_back);
}

static gyre_status try_open(fixture *f, gyre_error *error)
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
static void expect_way_back(fixture *f, int by_open)
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
        expect_state(&f, &f.now, 0);
        /* on both: the commit before */
        flip_bit(f.file[1], place);
        must_check(f.context, f.path, 0);
        expect("record", 2, "");
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

/* Operations of each queue: 1 head, 2 and 3 the areas, 4 the one that failed
 * once more, 5 and 6 the areas.  The newest record is in area 1. */
static void test_unread_record_in_repair(void **state)
{
    gyre_store_options options = {.size = sizeof(options),
                                  .buffers = 2,
                                  .io = "faulty:posix,fail=3,every=3"};
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
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_kinds_of_chunks),
        cmocka_unit_test(test_every_chunk),
        cmocka_unit_test(test_label),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_truncated_behind_the_data),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_newest_record_lost_everywhere),
        cmocka_unit_test(test_record_behind),
        cmocka_unit_test(test_no_record_at_all),
        cmocka_unit_test(test_superblock_and_copy),
        cmocka_unit_test(test_manifest_from_a_device),
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
