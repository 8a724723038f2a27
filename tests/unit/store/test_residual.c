/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The residual of a compressor on storage: what a commit keeps, what an open,
 * a reshard, an import and a repair make of it.  Contents are put into the
 * memory by hand, as a round would; what rounds do is tested with rounds.
 */
#include "config.h"

#include "fixture.h"

#include "registry/compressor.h"
#include "store/commit.h"
#include "store/manifest.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

typedef struct world {
    fixture f;
    model m;
    gyre_store_spec spec;
} world;

static int setup(void **state)
{
    world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    fixture_begin(&w->f);
    model_mixed(&w->m);
    w->spec = spec_of(&w->m);
    w->spec.compressor = "topk";
    w->spec.chunk_elements = 4096;
    fixture_devices(&w->f, &w->spec, 2);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;

    fixture_end(&w->f);
    model_free(&w->m);
    free(w);
    return 0;
}

/* ---- a residual by hand ----------------------------------------------- */

static float e_at(uint64_t seed, uint64_t chunk, size_t at)
{
    return gradient_at(seed, (size_t)chunk, at);
}

/* Every run of a trainable chunk. */
static void put_chunk(gyre_store *store, uint64_t c, uint64_t seed)
{
    gyre_residual_memory *r = &store->residual;
    float *e = r->e[1 - r->which[c]] +
               gyre_layout_first_grain(&store->layout, c) * GYRE_GRAIN;
    size_t cursor = GYRE_RUN_FIRST;
    gyre_run run;

    while (gyre_layout_next_run(&store->layout, c, &cursor, &run))
        for (size_t i = run.at; i < run.at + run.n; i++)
            e[i] = e_at(seed, c, i);
    r->which[c] = 1 - r->which[c];
    r->unsaved[c] = 1;
}

static void put_all(gyre_store *store, uint64_t seed)
{
    for (uint64_t c = 0; c < store->layout.train_chunks; c++)
        put_chunk(store, c, seed);
}

static const float *memory_of(const gyre_store *store, uint64_t c)
{
    return store->residual.e[store->residual.which[c]] +
           gyre_layout_first_grain(&store->layout, c) * GYRE_GRAIN;
}

static void expect_chunk(const gyre_store *store, uint64_t c, uint64_t seed)
{
    const float *e = memory_of(store, c);
    size_t cursor = GYRE_RUN_FIRST;
    gyre_run run;

    while (gyre_layout_next_run(&store->layout, c, &cursor, &run))
        for (size_t i = run.at; i < run.at + run.n; i++)
            if (e[i] != (seed != 0 ? e_at(seed, c, i) : 0))
                fail_msg("chunk %d, element %d: %g", (int)c, (int)i, e[i]);
}

static void expect_all(const gyre_store *store, uint64_t seed)
{
    for (uint64_t c = 0; c < store->layout.train_chunks; c++)
        expect_chunk(store, c, seed);
}

static void commit(world *w)
{
    good(&w->f, gyre_store_commit(w->f.store, "b", 1, &w->f.error));
}

/* Of the record, the tables and the blob, on all devices. */
static uint64_t commit_bytes(const gyre_store *store)
{
    const gyre_layout *l = &store->layout;

    return l->devices *
           gyre_round_up(gyre_format_head_bytes(l->chunks, l->tensor_count) + 1,
                         l->align);
}

static void reopen(world *w)
{
    fixture_close(&w->f);
    fixture_open(&w->f, NULL);
}

/* ---- commit and open -------------------------------------------------- */

static void test_a_commit_keeps_it_and_an_open_brings_it_back(void **state)
{
    world *w = *state;
    gyre_store_info info;

    fixture_create(&w->f, &w->m, &w->spec, NULL);
    info = info_of(&w->f);
    assert_string_equal(info.compressor, "topk");
    assert_int_equal(info.residual, GYRE_RESIDUAL_COMMITTED);
    assert_int_equal(info.chunks, w->f.store->layout.state_chunks +
                                      w->f.store->layout.train_chunks);
    expect_all(w->f.store, 0);
    for (uint64_t seed = 1; seed < 4; seed++) {
        put_all(w->f.store, seed);
        commit(w);
        reopen(w);
        expect_all(w->f.store, seed);
    }
    put_all(w->f.store, 9); /* not committed */
    reopen(w);
    expect_all(w->f.store, 3);
}

static void test_only_what_changed_is_written(void **state)
{
    world *w = *state;
    gyre_entry before[64];
    uint64_t flash, bytes;
    gyre_layout *layout;

    fixture_create(&w->f, &w->m, &w->spec, NULL);
    layout = &w->f.store->layout;
    assert_true(layout->train_chunks > 3 && layout->chunks <= 64);
    put_all(w->f.store, 1);
    commit(w);
    memcpy(before, w->f.store->current, layout->chunks * sizeof(*before));
    flash = w->f.store->flash;
    put_chunk(w->f.store, 2, 2);
    commit(w);
    for (uint64_t c = 0; c < layout->chunks; c++)
        assert_int_equal(w->f.store->current[c].version != before[c].version,
                         c == gyre_layout_residual(layout, 2));
    bytes = gyre_layout_chunk_bytes(layout, gyre_layout_residual(layout, 2));
    assert_int_equal(w->f.store->flash - flash,
                     bytes + commit_bytes(w->f.store));
    flash = w->f.store->flash;
    commit(w);
    assert_int_equal(w->f.store->flash - flash, commit_bytes(w->f.store));
    assert_int_equal(w->f.store->flash, info_of(&w->f).written);
    reopen(w);
    expect_chunk(w->f.store, 2, 2);
    expect_chunk(w->f.store, 1, 1);
}

/* What is stored is the product that the next round would take first. */
static void test_kappa_goes_into_what_is_stored(void **state)
{
    world *w = *state;
    gyre_store *store;
    size_t cursor = GYRE_RUN_FIRST;
    gyre_run run;

    fixture_create(&w->f, &w->m, &w->spec, NULL);
    put_all(w->f.store, 1);
    for (size_t i = 0; i < w->m.count; i++)
        w->f.store->residual.kappa[i] = 1.0f / (float)(i + 3);
    commit(w);
    reopen(w);
    store = w->f.store;
    for (uint64_t c = 0; c < store->layout.train_chunks; c++) {
        cursor = GYRE_RUN_FIRST;
        while (gyre_layout_next_run(&store->layout, c, &cursor, &run))
            for (size_t i = run.at; i < run.at + run.n; i++) {
                float want = 1.0f / (float)(run.tensor + 3) * e_at(1, c, i);

                assert_true(memory_of(store, c)[i] == want);
            }
    }
    for (size_t i = 0; i < w->m.count; i++)
        assert_true(store->residual.kappa[i] == 1);
}

static void test_volatile_and_off_take_no_room(void **state)
{
    world *w = *state;
    gyre_store_spec plain = w->spec;
    uint64_t chunks, bytes;

    plain.compressor = NULL;
    fixture_create(&w->f, &w->m, &plain, NULL);
    chunks = info_of(&w->f).chunks;
    bytes = info_of(&w->f).disk_bytes;
    assert_null(info_of(&w->f).compressor);
    assert_int_equal(info_of(&w->f).residual, GYRE_RESIDUAL_OFF);
    for (int mode = GYRE_RESIDUAL_VOLATILE; mode <= GYRE_RESIDUAL_OFF; mode++) {
        fixture_close(&w->f);
        snprintf(w->f.path, sizeof(w->f.path), "%s/m%d", w->f.root, mode);
        w->spec.residual = (gyre_residual)mode;
        fixture_create(&w->f, &w->m, &w->spec, NULL);
        assert_int_equal(info_of(&w->f).chunks, chunks);
        assert_int_equal(info_of(&w->f).disk_bytes, bytes);
        assert_int_equal(info_of(&w->f).residual, mode);
        assert_int_equal(w->f.store->residual.kappa != NULL,
                         mode == GYRE_RESIDUAL_VOLATILE);
        if (mode == GYRE_RESIDUAL_VOLATILE) {
            put_all(w->f.store, 1);
            commit(w);
            reopen(w);
            expect_all(w->f.store, 0);
        }
    }
}

static void test_in_place_there_is_one_version(void **state)
{
    world *w = *state;

    w->spec.in_place = 1;
    fixture_create(&w->f, &w->m, &w->spec, NULL);
    for (uint64_t seed = 1; seed < 4; seed++) {
        put_all(w->f.store, seed);
        good(&w->f, gyre_store_mark_dirty(w->f.store, &w->f.error));
        commit(w);
        reopen(w);
        expect_all(w->f.store, seed);
    }
}

static void test_digest_and_export_know_nothing_of_it(void **state)
{
    world *w = *state;
    gyre_store_spec plain = w->spec;
    snapshot before, after;
    char file[300];

    plain.compressor = NULL;
    fixture_create(&w->f, &w->m, &plain, NULL);
    before = snapshot_of(&w->f, &w->m);
    fixture_close(&w->f);
    snprintf(w->f.path, sizeof(w->f.path), "%s/with", w->f.root);
    fixture_create(&w->f, &w->m, &w->spec, NULL);
    put_all(w->f.store, 5);
    commit(w);
    after = snapshot_of(&w->f, &w->m);
    expect_same_contents(&before, &after);
    snprintf(file, sizeof(file), "%s/all.safetensors", w->f.root);
    good(&w->f,
         gyre_store_export(w->f.store, file, 0, NULL, NULL, &w->f.error));
}

/* ---- another generation ----------------------------------------------- */

static float old_e[64][20 * 1024];

/* By tensor and element, since chunks will be others. */
static void remember(const gyre_store *store)
{
    for (uint64_t c = 0; c < store->layout.train_chunks; c++) {
        size_t cursor = GYRE_RUN_FIRST;
        gyre_run run;

        while (gyre_layout_next_run(&store->layout, c, &cursor, &run)) {
            assert_true(run.index + run.n <= 20 * 1024);
            memcpy(&old_e[run.tensor][run.index], memory_of(store, c) + run.at,
                   run.n * sizeof(float));
        }
    }
}

static void expect_remembered(const gyre_store *store, const bool *zeroed)
{
    for (uint64_t c = 0; c < store->layout.train_chunks; c++) {
        size_t cursor = GYRE_RUN_FIRST;
        gyre_run run;

        while (gyre_layout_next_run(&store->layout, c, &cursor, &run))
            for (size_t i = 0; i < run.n; i++) {
                float want = old_e[run.tensor][run.index + i];

                if (zeroed != NULL && zeroed[run.tensor])
                    want = 0;
                if (memory_of(store, c)[run.at + i] != want)
                    fail_msg("tensor %d, element %d", (int)run.tensor,
                             (int)(run.index + i));
            }
    }
}

static void test_a_reshard_carries_it(void **state)
{
    static const struct {
        size_t devices;
        uint64_t chunk;
    } to[] = {{1, 1024}, {3, 8192}, {2, 4096}, {4, 0}};
    world *w = *state;
    uint64_t written;

    w->spec.spill = 1;
    fixture_create(&w->f, &w->m, &w->spec, NULL);
    put_all(w->f.store, 3);
    commit(w);
    remember(w->f.store);
    written = info_of(&w->f).written;
    for (size_t k = 0; k < sizeof(to) / sizeof(*to); k++) {
        gyre_store_spec spec = {.size = sizeof(spec),
                                .chunk_elements = to[k].chunk};

        fixture_close(&w->f);
        fixture_devices(&w->f, &spec, to[k].devices);
        good(&w->f, gyre_store_reshard(w->f.context, w->f.path, &spec, NULL,
                                       NULL, NULL, &w->f.error));
        fixture_open(&w->f, NULL);
        expect_remembered(w->f.store, NULL);
        assert_true(info_of(&w->f).spill);
        assert_string_equal(info_of(&w->f).compressor, "topk");
        /* every byte of the new files was written, and is counted */
        assert_true(info_of(&w->f).written > written);
        written = info_of(&w->f).written;
    }
}

/* What was left out of a tensor's gradients belongs to the values it had. */
static void test_an_import_zeroes_it_where_values_are_taken(void **state)
{
    world *w = *state;
    bool zeroed[MODEL_MOST] = {false};
    char file[300];
    fixture other;
    model few = {0};

    fixture_create(&w->f, &w->m, &w->spec, NULL);
    put_all(w->f.store, 4);
    commit(w);
    remember(w->f.store);
    fixture_close(&w->f);
    for (size_t i = 0; i < w->m.count; i++)
        if (i % 3 == 0) {
            zeroed[i] = true;
            model_add(&few, w->m.names[i], w->m.elements[i], 0, 0);
            few.tensors[few.count - 1].rank = w->m.tensors[i].rank;
            memcpy(few.tensors[few.count - 1].shape, w->m.tensors[i].shape,
                   sizeof(few.tensors[0].shape));
        }
    fixture_begin(&other);
    fixture_create(&other, &few, NULL, NULL);
    snprintf(file, sizeof(file), "%s/few.safetensors", w->f.root);
    good(&other,
         gyre_store_export(other.store, file, 1, NULL, NULL, &other.error));
    fixture_end(&other);
    good(&w->f, gyre_store_import(w->f.context, w->f.path, file, NULL, NULL,
                                  NULL, &w->f.error));
    fixture_open(&w->f, NULL);
    expect_remembered(w->f.store, zeroed);
    model_free(&few);
}

/* ---- damage ----------------------------------------------------------- */

static void flip(world *w, uint64_t chunk)
{
    const gyre_store *store = w->f.store;
    const gyre_layout *layout = &store->layout;
    off_t at =
        (off_t)gyre_layout_offset(layout, chunk, store->current[chunk].version);
    int fd = open(store->places[layout->places[chunk].device].file,
                  O_RDWR | O_CLOEXEC);
    unsigned char byte;

    assert_int_equal(pread(fd, &byte, 1, at + 5), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at + 5), 1);
    close(fd);
}

typedef struct finding {
    uint64_t chunk;
    size_t count;
    char what[32], text[600];
} finding;

static void take(void *user, const gyre_fsck_problem *problem)
{
    finding *f = user;

    f->count++;
    f->chunk = problem->chunk;
    snprintf(f->what, sizeof(f->what), "%s", problem->what);
    snprintf(f->text, sizeof(f->text), "%.599s", problem->text);
}

static void test_damage_is_told_and_the_whole_store_goes_back(void **state)
{
    world *w = *state;
    gyre_fsck_report report = {.size = sizeof(report)};
    finding found = {0};
    uint64_t chunk;

    fixture_create(&w->f, &w->m, &w->spec, NULL);
    for (uint64_t seed = 1; seed < 3; seed++) {
        put_all(w->f.store, seed);
        commit(w);
    }
    chunk = gyre_layout_residual(&w->f.store->layout, 1);
    flip(w, chunk);
    fixture_close(&w->f);
    good(&w->f, gyre_store_fsck(w->f.context, w->f.path, NULL, 0, take, &found,
                                &report, &w->f.error));
    assert_int_equal(found.count, 1);
    assert_int_equal(found.chunk, chunk);
    assert_string_equal(found.what, "flipped");
    assert_non_null(strstr(found.text, "residual of "));
    assert_true(report.previous_whole);
    good(&w->f, gyre_store_fsck(w->f.context, w->f.path, NULL, GYRE_FSCK_REPAIR,
                                NULL, NULL, &report, &w->f.error));
    assert_true(report.repaired);
    fixture_open(&w->f, NULL);
    expect_all(w->f.store, 1);
    put_all(w->f.store, 7);
    commit(w);
    flip(w, chunk);
    reopen(w); /* an open goes back just so */
    assert_true(info_of(&w->f).fell_back);
    expect_all(w->f.store, 1);
}

/* ---- the plugin and the manifest -------------------------------------- */

static void edit_manifest(world *w, const char *from, const char *to)
{
    static char text[1 << 16];
    char path[300], *at;
    FILE *file;
    size_t n;

    snprintf(path, sizeof(path), "%s/manifest.json", w->f.path);
    file = fopen(path, "rb");
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    at = strstr(text, from);
    assert_non_null(at);
    assert_true(strlen(to) == strlen(from));
    memcpy(at, to, strlen(to));
    file = fopen(path, "wb");
    assert_int_equal(fwrite(text, 1, n, file), n);
    fclose(file);
}

static void expect_refused(world *w, gyre_status want, const char *text)
{
    expect(&w->f,
           gyre_store_open(w->f.context, w->f.path, NULL, &w->f.store,
                           &w->f.error),
           want);
    unit_assert_text(&w->f.error, text);
    assert_null(w->f.store);
}

static void test_the_plugin_is_found_again_or_named(void **state)
{
    world *w = *state;
    gyre_store_options options = plain_options();
    gyre_fsck_report report = {.size = sizeof(report)};
    gyre_setting setting = {"ratio", 0.25};
    snapshot before, after;
    double value = 0;

    w->spec.compressor_settings = &setting;
    w->spec.compressor_setting_count = 1;
    fixture_create(&w->f, &w->m, &w->spec, NULL);
    before = snapshot_of(&w->f, &w->m);
    reopen(w);
    for (size_t i = 0; value == 0; i++) {
        const char *name = gyre_store_compressor_setting(w->f.store, i, &value);

        assert_non_null(name);
        if (strcmp(name, "ratio") != 0)
            value = 0;
    }
    assert_true(value == 0.25);
    fixture_close(&w->f);
    edit_manifest(w, "\"name\": \"topk\"", "\"name\": \"nope\"");
    expect_refused(w, GYRE_NOT_FOUND, "nope");
    unit_assert_text(&w->f.error, w->f.path);
    /* what needs no compressor works without */
    options.read_only = 1;
    fixture_open(&w->f, &options);
    after = snapshot_of(&w->f, &w->m);
    expect_same_contents(&before, &after);
    fixture_close(&w->f);
    good(&w->f, gyre_store_fsck(w->f.context, w->f.path, NULL, 0, NULL, NULL,
                                &report, &w->f.error));
    assert_int_equal(report.problems, 0);
    edit_manifest(w, "\"name\": \"nope\"", "\"name\": \"topk\"");
    edit_manifest(w, "\"residual\": \"committed\"",
                  "\"residual\": \"comitteed\"");
    expect_refused(w, GYRE_FORMAT, "committed, volatile or off");
    edit_manifest(w, "\"residual\": \"comitteed\"",
                  "\"residual\": \"committed\"");
    edit_manifest(w, "\"format\": 1", "\"format\": 9");
    expect_refused(w, GYRE_LAYOUT, "format 9");
    edit_manifest(w, "\"format\": 9", "\"format\": 1");
    fixture_open(&w->f, NULL);
}

static void expect_no_store(world *w, gyre_status want, const char *text)
{
    expect(&w->f,
           gyre_store_create(w->f.context, w->f.path, &w->spec, NULL,
                             &w->f.store, &w->f.error),
           want);
    unit_assert_text(&w->f.error, text);
    assert_null(w->f.store);
    assert_int_not_equal(access(w->f.path, F_OK), 0);
}

static void test_nonsense_is_refused_by_name(void **state)
{
    world *w = *state;
    gyre_setting setting = {"ration", 0.25};

    w->spec.compressor = "topq";
    expect_no_store(w, GYRE_NOT_FOUND, "topq");
    w->spec.compressor = "topk";
    w->spec.compressor_settings = &setting;
    w->spec.compressor_setting_count = 1;
    expect_no_store(w, GYRE_PARAMETER, "ration");
    unit_assert_text(&w->f.error, "ratio");
    setting = (gyre_setting){"ratio", -1};
    expect_no_store(w, GYRE_PARAMETER, "ratio");
    setting.value = 0.5;
    w->spec.compressor = NULL;
    expect_no_store(w, GYRE_INVALID, "no compressor");
    w->spec.compressor_setting_count = 0;
    w->spec.residual = (gyre_residual)3;
    expect_no_store(w, GYRE_RANGE, "residual is 3");
    /* without a compressor it says nothing */
    w->spec.residual = GYRE_RESIDUAL_VOLATILE;
    fixture_create(&w->f, &w->m, &w->spec, NULL);
    assert_int_equal(info_of(&w->f).residual, GYRE_RESIDUAL_OFF);
}

/* Once said, for good: by the manifest, and by each record should a copy of
 * the manifest have to stand in. */
static void test_an_inexact_device_is_on_record(void **state)
{
    world *w = *state;
    gyre_store_spec spec = {.size = sizeof(spec), .chunk_elements = 2048};

    fixture_create(&w->f, &w->m, &w->spec, NULL);
    assert_true(info_of(&w->f).exact);
    reopen(w);
    assert_true(info_of(&w->f).exact);
    good(&w->f, gyre_manifest_note_inexact(w->f.store, &w->f.error));
    assert_false(info_of(&w->f).exact);
    reopen(w); /* by the manifest */
    assert_false(info_of(&w->f).exact);
    commit(w);
    fixture_close(&w->f);
    edit_manifest(w, "\"exact\": false", "\"exact\":  true");
    fixture_open(&w->f, NULL); /* by the record */
    assert_false(info_of(&w->f).exact);
    fixture_close(&w->f);
    good(&w->f, gyre_store_reshard(w->f.context, w->f.path, &spec, NULL, NULL,
                                   NULL, &w->f.error));
    fixture_open(&w->f, NULL);
    assert_false(info_of(&w->f).exact);
}

/* ---- room for gradients ----------------------------------------------- */

static void test_spill_reserves_a_region_beside_each_chunk(void **state)
{
    world *w = *state;
    uint64_t without, regions = 0;
    const gyre_layout *layout;

    fixture_create(&w->f, &w->m, &w->spec, NULL);
    without = info_of(&w->f).disk_bytes;
    assert_false(info_of(&w->f).spill);
    fixture_close(&w->f);
    snprintf(w->f.path, sizeof(w->f.path), "%s/spill", w->f.root);
    w->spec.spill = 1;
    w->spec.seed = 0xfedcba9876543210u;
    fixture_create(&w->f, &w->m, &w->spec, NULL);
    layout = &w->f.store->layout;
    for (uint64_t c = 0; c < layout->train_chunks; c++) {
        size_t cursor = GYRE_RUN_FIRST;
        uint64_t blocks = 0;
        gyre_run run;

        while (gyre_layout_next_run(layout, c, &cursor, &run))
            blocks += gyre_codec_bound(w->f.store->codec, run.n);
        assert_true(gyre_layout_gradient_bytes(layout, c) >= blocks);
        assert_true(gyre_layout_gradient_bytes(layout, c) >=
                    gyre_layout_chunk_elements(layout, c) * 4);
        regions += gyre_layout_gradient_bytes(layout, c);
    }
    assert_int_equal(info_of(&w->f).disk_bytes, without + regions);
    reopen(w);
    assert_true(info_of(&w->f).spill);
    assert_int_equal(info_of(&w->f).disk_bytes, without + regions);
    assert_true(info_of(&w->f).seed == 0xfedcba9876543210u);
    fixture_round(&w->f, &w->m, 1, NULL, NULL);
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_a_commit_keeps_it_and_an_open_brings_it_back),
        IN_A_WORLD(test_only_what_changed_is_written),
        IN_A_WORLD(test_kappa_goes_into_what_is_stored),
        IN_A_WORLD(test_volatile_and_off_take_no_room),
        IN_A_WORLD(test_in_place_there_is_one_version),
        IN_A_WORLD(test_digest_and_export_know_nothing_of_it),
        IN_A_WORLD(test_a_reshard_carries_it),
        IN_A_WORLD(test_an_import_zeroes_it_where_values_are_taken),
        IN_A_WORLD(test_damage_is_told_and_the_whole_store_goes_back),
        IN_A_WORLD(test_the_plugin_is_found_again_or_named),
        IN_A_WORLD(test_nonsense_is_refused_by_name),
        IN_A_WORLD(test_an_inexact_device_is_on_record),
        IN_A_WORLD(test_spill_reserves_a_region_beside_each_chunk),
    };

    return cmocka_run_group_tests_name("store: residual", tests, NULL, NULL);
}
