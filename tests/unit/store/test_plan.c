/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declared, then held against what happened: disk, and the bytes of a step, by
 * closed formula and by a recorder below the store.  Memory: test_plan_memory.
 */
#include "config.h"

#include "planned.h"

#include "io/io.h"
#include "store/store.h"

#include <sys/stat.h>

/* ---- bytes of a step -------------------------------------------------- */

static uint64_t recorded_writes(const gyre_io_recorder *recorder, size_t from)
{
    uint64_t bytes = 0;

    for (size_t i = from; i < gyre_io_recorder_count(recorder); i++)
        if (gyre_io_recorder_at(recorder, i)->kind == GYRE_IO_WRITE_START)
            bytes += gyre_io_recorder_at(recorder, i)->bytes;
    return bytes;
}

static void check_bytes(world *w, const char *optimizer, gyre_dtype dtype,
                        gyre_io_recorder *recorder)
{
    gyre_store_spec spec = spec_of(&w->m);
    gyre_store_options options = plain_options();
    gyre_round_report r = {.size = sizeof(r)};
    uint64_t n = model_trainable(&w->m);
    float *out[MODEL_MOST];
    gyre_store_plan plan;
    uint64_t vars;
    size_t from;

    spec.optimizer = optimizer;
    spec.chunk_elements = 4096;
    fixture_devices(&w->f, &spec, 3);
    options.recorder = recorder;
    plan = plan_of(w, &spec, &options);
    fixture_create(&w->f, &w->m, &spec, &options);
    vars = 1 + info_of(&w->f).slots;
    for (size_t i = 0; i < w->m.count; i++) {
        out[i] = malloc(w->m.elements[i] * 4 + 1);
        good(&w->f, gyre_store_bind(w->f.store, i, dtype, out[i], &w->f.error));
    }
    from = gyre_io_recorder_count(recorder);
    fixture_round(&w->f, &w->m, 1, NULL, &r);
    assert_int_equal(r.gradient_bytes, 4 * n);
    assert_int_equal(r.parameter_bytes, gyre_dtype_bytes(dtype) * n);
    assert_int_equal(r.read_bytes, 4 * n * vars);
    assert_int_equal(r.write_bytes, 4 * n * vars);
    assert_int_equal(r.padding_bytes % 2, 0);
    assert_int_equal(recorded_writes(recorder, from),
                     r.write_bytes + r.padding_bytes / 2 + r.commit_bytes);
    assert_int_equal(plan.read_bytes_per_step,
                     r.read_bytes + r.padding_bytes / 2);
    assert_int_equal(plan.write_bytes_per_step,
                     r.write_bytes + r.padding_bytes / 2 + r.commit_bytes);
    assert_true(r.exposed_ns <= r.store_ns);
    fixture_close(&w->f);
    for (size_t i = 0; i < w->m.count; i++)
        free(out[i]);
}

static void test_bytes_are_the_closed_forms(void **state)
{
    static const char *const optimizers[] = {"adamw", "adam", "sgd", "adagrad",
                                             "lion"};
    world *w = *state;

    model_mixed(&w->m);
    for (size_t i = 0; i < 5; i++) {
        gyre_io_recorder *recorder = NULL;

        good(&w->f,
             gyre_io_recorder_create(w->f.context, &recorder, &w->f.error));
        snprintf(w->f.path, sizeof(w->f.path), "%s/%s", w->f.root,
                 optimizers[i]);
        check_bytes(w, optimizers[i], i % 2 ? GYRE_BF16 : GYRE_F32, recorder);
        gyre_io_recorder_destroy(recorder);
    }
}

typedef struct scheme {
    const char *compressor, *optimizer;
    gyre_setting setting;
    gyre_residual residual;
    int spill, in_memory;
    gyre_placement placement;
    uint32_t commit_every;
    gyre_state_codec codec; /* of all slots */
} scheme;

/* Line by line, over as many rounds as a commit covers. */
static void expect_ledger(const gyre_ledger *planned, const gyre_ledger *have,
                          uint32_t rounds, size_t k)
{
    const uint64_t *a = (const uint64_t *)(const void *)planned;
    const uint64_t *b = (const uint64_t *)(const void *)have;

    /* each is of whole bytes, so a share of a commit may be one off a round */
    for (size_t i = 0; i < sizeof(*planned) / sizeof(*a); i++)
        if (a[i] * rounds > b[i] || b[i] - a[i] * rounds > 3ull * (rounds - 1))
            fail_msg("scheme %d, field %d: %d planned, %d counted", (int)k,
                     (int)i, (int)(a[i] * rounds), (int)b[i]);
}

static void check_model(world *w, const scheme *s, size_t k)
{
    const gyre_slot_codec codec = {"*", s->codec};
    gyre_store_spec spec = spec_of(&w->m);
    gyre_store_options options = plain_options();
    gyre_ledger before = {0}, after = {0}, rounds = {0};
    float *out[MODEL_MOST];
    gyre_store_plan plan;
    uint64_t flash;

    spec.optimizer = s->optimizer;
    spec.chunk_elements = 4096;
    spec.compressor = s->compressor;
    spec.compressor_settings = &s->setting;
    spec.compressor_setting_count = s->setting.name != NULL;
    spec.residual = s->residual;
    spec.spill = s->spill;
    spec.codecs = &codec;
    spec.codec_count = 1;
    options.gradients_in_memory = s->in_memory;
    options.placement = s->placement;
    options.commit_every = s->commit_every;
    fixture_devices(&w->f, &spec, 3);
    snprintf(w->f.path, sizeof(w->f.path), "%s/s%zu", w->f.root, k);
    plan = plan_of(w, &spec, &options);
    fixture_create(&w->f, &w->m, &spec, &options);
    for (size_t i = 0; i < w->m.count; i++) {
        out[i] = malloc(w->m.elements[i] * 4 + 1);
        good(&w->f,
             gyre_store_bind(w->f.store, i, GYRE_F32, out[i], &w->f.error));
    }
    good(&w->f, gyre_store_ledger(w->f.store, &before, &w->f.error));
    flash = w->f.store->flash;
    for (uint32_t t = 0; t < s->commit_every; t++)
        fixture_round(&w->f, &w->m, t, NULL, NULL);
    flash = w->f.store->flash - flash;
    good(&w->f, gyre_store_ledger(w->f.store, &after, &w->f.error));
    for (size_t i = 0; i < sizeof(rounds) / sizeof(uint64_t); i++)
        ((uint64_t *)(void *)&rounds)[i] =
            ((uint64_t *)(void *)&after)[i] - ((uint64_t *)(void *)&before)[i];
    expect_ledger(&plan.model, &rounds, s->commit_every, k);
    assert_int_equal(flash, rounds.flash_bytes);
    fixture_close(&w->f);
    for (size_t i = 0; i < w->m.count; i++)
        free(out[i]);
}

static void test_a_round_counts_what_the_plan_says(void **state)
{
    static const scheme schemes[] = {
        {.optimizer = "adamw", .commit_every = 1},
        {.optimizer = "adamw", .commit_every = 1, .placement = GYRE_HOST},
        {.optimizer = "adam", .spill = 1, .commit_every = 1},
        {.optimizer = "sgd",
         .spill = 1,
         .commit_every = 1,
         .placement = GYRE_HOST},
        {.optimizer = "adam", .spill = 1, .in_memory = 1, .commit_every = 2},
        {.compressor = "topk", .optimizer = "adamw", .commit_every = 1},
        {.compressor = "topk", .optimizer = "adamw", .commit_every = 5},
        {.compressor = "topk",
         .setting = {"ratio", 0.01},
         .optimizer = "adamw",
         .residual = GYRE_RESIDUAL_VOLATILE,
         .spill = 1,
         .commit_every = 1},
        {.compressor = "topk",
         .setting = {"ratio", 1},
         .optimizer = "adagrad",
         .residual = GYRE_RESIDUAL_OFF,
         .spill = 1,
         .placement = GYRE_HOST,
         .commit_every = 3},
        {.compressor = "quantize",
         .optimizer = "adamw",
         .residual = GYRE_RESIDUAL_OFF,
         .commit_every = 1,
         .placement = GYRE_HOST},
        {.compressor = "sign",
         .optimizer = "adamw",
         .spill = 1,
         .codec = GYRE_STATE_Q8,
         .commit_every = 1},
        {.compressor = "fp8",
         .optimizer = "lion",
         .spill = 1,
         .codec = GYRE_STATE_BF16,
         .commit_every = 1},
    };
    world *w = *state;

    model_mixed(&w->m);
    for (size_t k = 0; k < sizeof(schemes) / sizeof(*schemes); k++)
        check_model(w, &schemes[k], k);
}

/* ---- disk ------------------------------------------------------------- */

/* miles#2739: a sparse file dies when space runs out; here every block is
 * real before the first step. */
static void test_disk_is_reserved_as_planned(void **state)
{
    world *w = *state;
    gyre_store_spec spec;
    gyre_store_plan plan;
    uint64_t files = 0;

    model_mixed(&w->m);
    spec = spec_of(&w->m);
    fixture_devices(&w->f, &spec, 2);
    plan = plan_of(w, &spec, NULL);
    fixture_create(&w->f, &w->m, &spec, NULL);
    for (size_t d = 0; d < 2; d++) {
        DIR *dir = opendir(w->f.device[d]);
        struct dirent *entry;
        uint64_t reserved = 0;

        assert_string_equal(gyre_store_device(w->f.store, d, &reserved),
                            w->f.device[d]);
        while ((entry = readdir(dir)) != NULL) {
            char path[512];
            struct stat st;

            snprintf(path, sizeof(path), "%s/%s", w->f.device[d],
                     entry->d_name);
            if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
                continue;
            assert_int_equal(st.st_size, reserved);
            assert_true((uint64_t)st.st_blocks * 512 >= reserved);
            files += (uint64_t)st.st_size;
        }
        closedir(dir);
    }
    assert_null(gyre_store_device(w->f.store, 2, NULL));
    assert_int_equal(files, plan.disk_bytes);
    assert_int_equal(files, info_of(&w->f).disk_bytes);
    assert_int_equal(plan.chunks, info_of(&w->f).chunks);
    assert_int_equal(plan.chunk_elements, info_of(&w->f).chunk_elements);
}

static void test_plan_is_checked(void **state)
{
    world *w = *state;
    gyre_store_spec spec;
    gyre_store_plan plan = {0};

    model_mixed(&w->m);
    spec = spec_of(&w->m);
    expect(&w->f,
           gyre_store_make_plan(w->f.context, &spec, NULL, &plan, &w->f.error),
           GYRE_INVALID);
    plan.size = sizeof(plan);
    spec.chunk_elements = 1000;
    expect(&w->f,
           gyre_store_make_plan(w->f.context, &spec, NULL, &plan, &w->f.error),
           GYRE_RANGE);
    unit_assert_text(&w->f.error, "multiple of 1024");
    spec.chunk_elements = 0;
    spec.optimizer = "adamv";
    expect(&w->f,
           gyre_store_make_plan(w->f.context, &spec, NULL, &plan, &w->f.error),
           GYRE_NOT_FOUND);
    unit_assert_text(&w->f.error, "adamw");
    assert_int_equal(entries(w->f.root), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_bytes_are_the_closed_forms),
        IN_A_WORLD(test_a_round_counts_what_the_plan_says),
        IN_A_WORLD(test_disk_is_reserved_as_planned),
        IN_A_WORLD(test_plan_is_checked),
    };

    return cmocka_run_group_tests_name("store: plan", tests, NULL, NULL);
}
