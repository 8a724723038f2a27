/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a store with a compressor has on record: the plugin and its settings,
 * found again or named, whether a device was inexact, and the room that its
 * residual and spilled gradients take.
 */
#include "config.h"

#include "compressed.h"

#include "registry/compressor.h"
#include "store/manifest.h"

#include <unistd.h>

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

/* ---- room on storage -------------------------------------------------- */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_the_plugin_is_found_again_or_named),
        IN_A_WORLD(test_nonsense_is_refused_by_name),
        IN_A_WORLD(test_an_inexact_device_is_on_record),
        IN_A_WORLD(test_volatile_and_off_take_no_room),
        IN_A_WORLD(test_spill_reserves_a_region_beside_each_chunk),
    };

    return cmocka_run_group_tests_name("store: compressor", tests, NULL, NULL);
}
