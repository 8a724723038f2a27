/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients that are not finite: the round changes nothing but what says that
 * it was tried; and the loss scale that such rounds govern.
 */
#include "config.h"

#include "fixture.h"

typedef struct world {
    fixture f;
    model m;
} world;

static void create(world *w, uint32_t commit_every)
{
    gyre_store_spec spec = spec_of(&w->m);
    gyre_store_options options = plain_options();

    spec.chunk_elements = 4096;
    fixture_devices(&w->f, &spec, 2);
    options.commit_every = commit_every;
    fixture_create(&w->f, &w->m, &spec, &options);
}

static int setup(void **state)
{
    world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    model_mixed(&w->m);
    fixture_begin(&w->f);
    create(w, 1);
    *state = w;
    return 0;
}

/* One tensor of one element, for many rounds. */
static int setup_tiny(void **state)
{
    world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    model_add(&w->m, "x", 1, 0, 0);
    fixture_begin(&w->f);
    create(w, 500);
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

/* Everything finite but one element of one tensor. */
static gyre_round_report poisoned_round(world *w, size_t tensor, uint64_t at,
                                        gyre_dtype dtype, const void *bits,
                                        const gyre_round_options *options,
                                        const char *blob)
{
    gyre_round *round = fixture_open_round(&w->f, options);
    gyre_round_report report = {.size = sizeof(report)};
    gyre_gradient bad = {.dtype = dtype, .data = bits};
    size_t n = (size_t)w->m.elements[tensor];
    float *g = malloc(n * sizeof(float));

    for (size_t i = 0; i < w->m.count; i++)
        if (i != tensor && !(w->m.tensors[i].flags & GYRE_TENSOR_FROZEN))
            give_tensor(&w->f, round, &w->m, i, 77);
    gradient_fill(77, tensor, 0, n, g);
    good(&w->f, give(&w->f, round, tensor, 0, at, g));
    good(&w->f, give(&w->f, round, tensor, at + 1, n - at - 1, g + at + 1));
    good(&w->f, gyre_round_gradient(round, tensor, at, 1, &bad, &w->f.error));
    free(g);
    good(&w->f, gyre_round_finish(round, blob, blob != NULL ? strlen(blob) : 0,
                                  &report, &w->f.error));
    return report;
}

/* ---- skips ------------------------------------------------------------ */

/* DS#8035: one bf16 infinity poisoned weights and both moments. */
static void test_one_bad_element_skips_the_round(void **state)
{
    static const float nan_f32 = NAN, inf_f32 = INFINITY;
    static const double wide_f64 = -1e300;
    static const uint16_t inf_bf16 = 0x7f80, inf_f16 = 0xfc00;
    static const struct {
        gyre_dtype dtype;
        const void *bits;
    } bad[] = {
        {GYRE_F32, &nan_f32},   {GYRE_F32, &inf_f32}, {GYRE_F64, &wide_f64},
        {GYRE_BF16, &inf_bf16}, {GYRE_F16, &inf_f16},
    };
    world *w = *state;
    uint64_t seed = 1;
    snapshot before;

    fixture_round(&w->f, &w->m, 1, NULL, NULL);
    before = snapshot_of(&w->f, &w->m);
    for (size_t k = 0; k < 25; k++) {
        size_t tensor = (size_t[]){0, 3, 4, 8, 9}[k / 5];
        uint64_t n = w->m.elements[tensor];
        uint64_t at = k % 3 == 0 ? n - 1 : random_next(&seed) % n;
        gyre_round_options options = round_options();
        gyre_round_report report;
        snapshot after;

        options.clip = k % 2 ? 1 : 0;
        report = poisoned_round(w, tensor, at, bad[k % 5].dtype,
                                bad[k % 5].bits, &options, NULL);
        assert_int_equal(report.skipped, 1);
        assert_int_equal(report.committed, 1);
        assert_int_equal(report.step, 1);
        assert_int_equal(report.round, 2 + k);
        assert_false(isfinite(report.norm));
        assert_string_equal(report.nonfinite, w->m.names[tensor]);
        assert_int_equal(report.nonfinite_tensors, 1);
        after = snapshot_of(&w->f, &w->m);
        expect_same_contents(&before, &after);
        assert_int_equal(after.round, 2 + k);
    }
}

static void test_first_of_several_is_named(void **state)
{
    world *w = *state;
    gyre_round *round = fixture_open_round(&w->f, NULL);
    gyre_round_report report = {.size = sizeof(report)};
    float nan = NAN;

    for (size_t i = 0; i < w->m.count; i++) {
        if (w->m.tensors[i].flags & GYRE_TENSOR_FROZEN)
            continue;
        if (w->m.elements[i] != 1)
            give_tensor(&w->f, round, &w->m, i, 3);
        else
            good(&w->f, give(&w->f, round, i, 0, 1, &nan));
    }
    good(&w->f, gyre_round_update(round, &report, &w->f.error));
    assert_string_equal(report.nonfinite, "bias");
    assert_int_equal(report.nonfinite_tensors, 2);
    assert_int_equal(report.skipped, 1);
    good(&w->f, gyre_round_wait(round, 0, &w->f.error));
    good(&w->f, gyre_round_finish(round, NULL, 0, NULL, &w->f.error));
}

/* Finite pieces whose sum over micro-batches is not. */
static void test_sums_that_overflow_skip(void **state)
{
    world *w = *state;
    snapshot before = snapshot_of(&w->f, &w->m), after;
    gyre_round_options options = round_options();
    gyre_round_report report = {.size = sizeof(report)};
    gyre_round *round;
    float large = 3e38f;

    options.micro_batches = 2;
    round = fixture_open_round(&w->f, &options);
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < w->m.count; i++)
            if (i == 3)
                good(&w->f, give(&w->f, round, 3, 0, 1, &large));
            else if (!(w->m.tensors[i].flags & GYRE_TENSOR_FROZEN))
                give_tensor(&w->f, round, &w->m, i, 3);
        good(&w->f, gyre_round_next(round, &w->f.error));
    }
    good(&w->f, gyre_round_finish(round, NULL, 0, &report, &w->f.error));
    assert_int_equal(report.skipped, 1);
    assert_string_equal(report.nonfinite, "bias");
    after = snapshot_of(&w->f, &w->m);
    expect_same_contents(&before, &after);
}

/* Gradients that are large but finite are no reason. */
static void test_large_gradients_are_applied(void **state)
{
    world *w = *state;
    float large = 3e38f;
    gyre_round_options options = round_options();
    gyre_round_report report;

    options.clip = 1;
    report = poisoned_round(w, 3, 0, GYRE_F32, &large, &options, NULL);
    assert_int_equal(report.skipped, 0);
    assert_true(report.norm > 2.9e38 && report.norm_clipped <= 1);
}

/* accelerate#4242: the skipped step moved the schedule on; OLMo-core#309: it
 * never did when it should.  Round and blob count attempts, t does not. */
static void test_skip_commits_round_and_blob_but_no_step(void **state)
{
    world *w = *state;
    float nan = NAN;
    gyre_store_info info;
    size_t bytes;
    snapshot before, after;
    oracle o;

    fixture_round(&w->f, &w->m, 1, NULL, NULL);
    before = snapshot_of(&w->f, &w->m);
    (void)poisoned_round(w, 0, 4, GYRE_F32, &nan, NULL, "row 8");
    fixture_close(&w->f);
    fixture_open(&w->f, NULL);
    info = info_of(&w->f);
    assert_int_equal(info.round, 2);
    assert_int_equal(info.committed_round, 2);
    assert_int_equal(info.step, 1);
    assert_memory_equal(gyre_store_blob(w->f.store, &bytes), "row 8", 5);
    assert_int_equal(bytes, 5);
    after = snapshot_of(&w->f, &w->m);
    expect_same_contents(&before, &after);
    fixture_round(&w->f, &w->m, 2, NULL, NULL);
    oracle_begin(&o, &w->m); /* as if the skipped round had not been */
    for (uint64_t seed = 1; seed <= 2; seed++) {
        oracle_give_all(&o, seed);
        oracle_step(&o, 1, 1, 0);
    }
    expect_oracle(&w->f, &o);
    oracle_end(&o);
}

/* ---- dynamic loss scale ----------------------------------------------- */

static double scaled_round(world *w, float gradient)
{
    gyre_round_options options = round_options();
    gyre_round_report report = {.size = sizeof(report)};
    gyre_round *round;

    options.dynamic_scale = 1;
    round = fixture_open_round(&w->f, &options);
    good(&w->f, give(&w->f, round, 0, 0, 1, &gradient));
    good(&w->f, gyre_round_finish(round, NULL, 0, &report, &w->f.error));
    assert_int_equal(report.skipped, !isfinite(gradient));
    return report.loss_scale;
}

static double scale_now(world *w)
{
    return info_of(&w->f).loss_scale;
}

/* DS#643: overflow at nearly every step must end, not go on for ever. */
static void test_scale_shrinks_with_hysteresis_to_its_floor(void **state)
{
    world *w = *state;
    double want = 32768;

    assert_true(scale_now(w) == 65536);
    assert_true(scaled_round(w, INFINITY) == 65536); /* that round's own */
    assert_true(scale_now(w) == 65536);              /* tolerated once */
    (void)scaled_round(w, 1);
    assert_true(scaled_round(w, NAN) == 65536);
    assert_true(scale_now(w) == 32768);
    for (int i = 0; i < 20; i++) {
        assert_true(scaled_round(w, INFINITY) == want);
        want = fmax(1, want / 2);
        assert_true(scale_now(w) == want);
    }
    assert_true(scale_now(w) == 1);
}

static void test_scale_grows_after_a_thousand_good_rounds(void **state)
{
    world *w = *state;

    (void)scaled_round(w, NAN);
    (void)scaled_round(w, NAN);
    assert_true(scale_now(w) == 32768);
    for (int i = 0; i < 999; i++)
        (void)scaled_round(w, 1e-3f);
    assert_true(scale_now(w) == 32768);
    (void)scaled_round(w, 1e-3f);
    assert_true(scale_now(w) == 65536);
    assert_true(scaled_round(w, NAN) == 65536); /* tolerance is back too */
    assert_true(scale_now(w) == 65536);
    for (int i = 0; i < 999; i++)
        (void)scaled_round(w, 1e-3f);
    (void)scaled_round(w, NAN); /* and the thousand starts anew */
    assert_true(scale_now(w) == 32768);
}

static void test_scale_outlives_closing(void **state)
{
    world *w = *state;

    (void)scaled_round(w, NAN);
    good(&w->f, gyre_store_commit(w->f.store, NULL, 0, &w->f.error));
    fixture_close(&w->f);
    fixture_open(&w->f, NULL);
    (void)scaled_round(w, NAN); /* the second overflow, not the first */
    assert_true(scale_now(w) == 32768);
    fixture_close(&w->f);
    fixture_open(&w->f, NULL);
    assert_true(scale_now(w) == 32768);
}

static void test_fixed_scale_leaves_the_dynamic_one(void **state)
{
    world *w = *state;
    gyre_round_options options = round_options();
    gyre_round *round = NULL;
    float nan = NAN;

    for (int i = 0; i < 5; i++) {
        options.loss_scale = 4;
        round = fixture_open_round(&w->f, &options);
        good(&w->f, give(&w->f, round, 0, 0, 1, &nan));
        good(&w->f, gyre_round_finish(round, NULL, 0, NULL, &w->f.error));
    }
    assert_true(scale_now(w) == 65536);
    /* both: only when they agree, else gradients carry another scale */
    options.dynamic_scale = 1;
    expect(&w->f, gyre_round_begin(w->f.store, &options, &round, &w->f.error),
           GYRE_INVALID);
    unit_assert_text(&w->f.error, "65536");
    options.loss_scale = 65536;
    round = fixture_open_round(&w->f, &options);
    good(&w->f, gyre_round_abort(round, &w->f.error));
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define IN_A_TINY_WORLD(test) \
    cmocka_unit_test_setup_teardown(test, setup_tiny, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_one_bad_element_skips_the_round),
        IN_A_WORLD(test_first_of_several_is_named),
        IN_A_WORLD(test_sums_that_overflow_skip),
        IN_A_WORLD(test_large_gradients_are_applied),
        IN_A_WORLD(test_skip_commits_round_and_blob_but_no_step),
        IN_A_TINY_WORLD(test_scale_shrinks_with_hysteresis_to_its_floor),
        IN_A_TINY_WORLD(test_scale_grows_after_a_thousand_good_rounds),
        IN_A_TINY_WORLD(test_scale_outlives_closing),
        IN_A_TINY_WORLD(test_fixed_scale_leaves_the_dynamic_one),
    };

    return cmocka_run_group_tests_name("store: skip", tests, NULL, NULL);
}
