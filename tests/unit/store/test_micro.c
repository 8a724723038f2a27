/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Micro-batches, absent tensors, parameter groups, scale and clip, all against
 * the textbook in memory.
 */
#include "config.h"

#include "fixture.h"

typedef struct world {
    fixture f;
    model m;
    oracle o;
} world;

static int setup(void **state)
{
    world *w = calloc(1, sizeof(*w));
    gyre_store_spec spec;

    assert_non_null(w);
    model_mixed(&w->m);
    fixture_begin(&w->f);
    spec = spec_of(&w->m);
    spec.chunk_elements = 3072;
    fixture_devices(&w->f, &spec, 3);
    fixture_create(&w->f, &w->m, &spec, NULL);
    oracle_begin(&w->o, &w->m);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;

    fixture_end(&w->f);
    oracle_end(&w->o);
    model_free(&w->m);
    free(w);
    return 0;
}

static bool trainable(const world *w, size_t tensor)
{
    return !(w->m.tensors[tensor].flags & GYRE_TENSOR_FROZEN);
}

static gyre_round_report finish(world *w, gyre_round *round)
{
    gyre_round_report report = {.size = sizeof(report)};

    good(&w->f, gyre_round_finish(round, NULL, 0, &report, &w->f.error));
    return report;
}

/* The same bits, not merely the same number. */
static void expect_bits(double have, double want)
{
    if (memcmp(&have, &want, sizeof(have)) != 0)
        fail_msg("%a, wanted is %a", have, want);
}

/* ---- micro-batches ---------------------------------------------------- */

/* DS#6550, #7981: all micro-steps but one were dropped and the norm came out
 * too small.  DS#7985: the last one was not averaged. */
static void test_micro_batches_add_in_order(void **state)
{
    world *w = *state;
    gyre_round_options options = round_options();

    options.micro_batches = 4;
    options.denominator = 4;
    for (uint64_t t = 0; t < 3; t++) {
        gyre_round *round = fixture_open_round(&w->f, &options);
        double norm;

        for (uint64_t k = 0; k < 4; k++) {
            give_all(&w->f, round, &w->m, t * 4 + k);
            oracle_give_all(&w->o, t * 4 + k);
            if (k < 3)
                good(&w->f, gyre_round_next(round, &w->f.error));
        }
        norm = oracle_norm(&w->o, 1, 4);
        expect_bits(finish(w, round).norm, norm);
        oracle_step(&w->o, 1, 4, 0);
        expect_oracle(&w->f, &w->o);
    }
}

static void test_next_is_a_barrier(void **state)
{
    world *w = *state;
    gyre_round_options options = round_options();
    gyre_round *round;
    float x = 1;

    options.micro_batches = 2;
    round = fixture_open_round(&w->f, &options);
    give_all(&w->f, round, &w->m, 1);
    expect(&w->f, give(&w->f, round, 3, 0, 1, &x), GYRE_DUPLICATE);
    expect(&w->f, gyre_round_update(round, NULL, &w->f.error), GYRE_MISSING);
    unit_assert_text(&w->f.error, "1 of 2 micro-batches");
    expect(&w->f, gyre_round_finish(round, NULL, 0, NULL, &w->f.error),
           GYRE_MISSING);
    good(&w->f, gyre_round_next(round, &w->f.error));
    expect(&w->f, gyre_round_next(round, &w->f.error), GYRE_MISSING);
    unit_assert_text(&w->f.error, "micro-batch 2 of 2");
    give_all(&w->f, round, &w->m, 2);
    (void)finish(w, round);
    oracle_give_all(&w->o, 1);
    oracle_give_all(&w->o, 2);
    oracle_step(&w->o, 1, 1, 0);
    expect_oracle(&w->f, &w->o);
}

/* Each tensor is absent in some of the micro-batches, one in all. */
static void test_absent_in_some_micro_batches(void **state)
{
    world *w = *state;
    gyre_round_options options = round_options();

    options.micro_batches = 3;
    for (uint64_t t = 0; t < 4; t++) {
        gyre_round *round = fixture_open_round(&w->f, &options);
        double norm;

        for (uint64_t k = 0; k < 3; k++) {
            for (size_t i = 0; i < w->m.count; i++) {
                float *g;

                if (!trainable(w, i))
                    continue;
                if ((i + t) % 8 >> k & 1) {
                    good(&w->f, gyre_round_absent(round, i, &w->f.error));
                    continue;
                }
                give_tensor(&w->f, round, &w->m, i, 50 * t + k);
                g = malloc(w->m.elements[i] * sizeof(float) + 1);
                gradient_fill(50 * t + k, i, 0, (size_t)w->m.elements[i], g);
                oracle_give(&w->o, i, g);
                free(g);
            }
            good(&w->f, gyre_round_next(round, &w->f.error));
        }
        norm = oracle_norm(&w->o, 1, 1);
        /* an empty tensor counts as given when it was not absent */
        expect_bits(finish(w, round).norm, norm);
        oracle_step(&w->o, 1, 1, 0);
        expect_oracle(&w->f, &w->o);
    }
}

static void test_absent_leaves_contents_and_step_alone(void **state)
{
    world *w = *state;

    for (uint64_t t = 0; t < 3; t++) {
        gyre_round *round = fixture_open_round(&w->f, NULL);

        for (size_t i = 0; i < w->m.count; i++) {
            float *g = malloc(w->m.elements[i] * sizeof(float) + 1);

            gradient_fill(t, i, 0, (size_t)w->m.elements[i], g);
            if (trainable(w, i) && (i + t) % 2) {
                good(&w->f, gyre_round_absent(round, i, &w->f.error));
            } else if (trainable(w, i)) {
                give_tensor(&w->f, round, &w->m, i, t);
                oracle_give(&w->o, i, g);
            }
            free(g);
        }
        assert_int_equal(finish(w, round).step, t + 1);
        oracle_step(&w->o, 1, 1, 0);
        expect_oracle(&w->f, &w->o);
    }
    fixture_close(&w->f);
    fixture_open(&w->f, NULL); /* each tensor's own t was committed */
    expect_oracle(&w->f, &w->o);
}

static void test_all_absent_is_a_round_without_change(void **state)
{
    world *w = *state;
    snapshot before = snapshot_of(&w->f, &w->m), after;
    gyre_round *round = fixture_open_round(&w->f, NULL);
    gyre_round_report report;

    for (size_t i = 0; i < w->m.count; i++)
        good(&w->f, gyre_round_absent(round, i, &w->f.error));
    report = finish(w, round);
    assert_int_equal(report.skipped, 0);
    assert_int_equal(report.read_bytes, 0);
    expect_bits(report.norm, 0);
    after = snapshot_of(&w->f, &w->m);
    assert_string_equal(before.digest, after.digest);
    assert_int_equal(before.slots, after.slots);
}

static void test_absent_and_pieces_exclude_each_other(void **state)
{
    world *w = *state;
    fixture *f = &w->f;
    gyre_round *round = fixture_open_round(f, NULL);
    float x = 1;

    good(f, gyre_round_absent(round, 3, &f->error));
    expect(f, gyre_round_absent(round, 3, &f->error), GYRE_DUPLICATE);
    unit_assert_text(&f->error, "bias");
    expect(f, give(f, round, 3, 0, 1, &x), GYRE_DUPLICATE);
    unit_assert_text(&f->error, "absent");
    good(f, give(f, round, 0, 17, 1, &x));
    expect(f, gyre_round_absent(round, 0, &f->error), GYRE_DUPLICATE);
    expect(f, gyre_round_absent(round, 10, &f->error), GYRE_RANGE);
    good(f, gyre_round_absent(round, 1, &f->error)); /* frozen: always */
    good(f, gyre_round_abort(round, &f->error));
    expect_oracle(f, &w->o);
}

/* ---- groups ----------------------------------------------------------- */

/* DS#8440, #7905, #6878: groups merged, lost, or their rates mixed up. */
static void test_groups_keep_their_own_values_and_steps(void **state)
{
    world *w = *state;
    gyre_setting first[] = {{"lr", 3e-3}, {"weight_decay", 0}};
    gyre_setting second[] = {{"beta1", 0.5}, {"beta2", 0.9}, {"eps", 1e-4}};
    gyre_group groups[2] = {{first, 2}, {second, 3}};
    gyre_round_options options = round_options();

    options.groups = groups;
    options.group_count = 2;
    for (uint64_t t = 0; t < 4; t++) {
        gyre_round *round;

        first[0].value = 3e-3 / (double)(t + 1); /* a schedule */
        w->o.group[0] = (adamw){first[0].value, 0.9, 0.999, 1e-8, 0};
        w->o.group[1] = (adamw){1e-3, 0.5, 0.9, 1e-4, 1e-2};
        round = fixture_open_round(&w->f, &options);
        give_all(&w->f, round, &w->m, t);
        (void)finish(w, round);
        oracle_give_all(&w->o, t);
        oracle_step(&w->o, 1, 1, 0);
        expect_oracle(&w->f, &w->o);
    }
}

static void test_bad_groups_are_refused_by_number_and_name(void **state)
{
    world *w = *state;
    fixture *f = &w->f;
    gyre_setting unknown = {"learning_rate", 1}, far = {"beta1", 2};
    gyre_setting structural = {"amsgrad", 1};
    gyre_group groups[3] = {{NULL, 0}, {&unknown, 1}, {NULL, 0}};
    gyre_round_options options = round_options();
    gyre_round *round = NULL;

    options.groups = groups;
    options.group_count = 2;
    expect(f, gyre_round_begin(f->store, &options, &round, &f->error),
           GYRE_PARAMETER);
    unit_assert_text(&f->error, "group 1");
    unit_assert_text(&f->error, "learning_rate");
    groups[1].settings = &far;
    expect(f, gyre_round_begin(f->store, &options, &round, &f->error),
           GYRE_PARAMETER);
    unit_assert_text(&f->error, "beta1");
    groups[1].settings = &structural;
    expect(f, gyre_round_begin(f->store, &options, &round, &f->error),
           GYRE_PARAMETER);
    options.group_count = 3;
    expect(f, gyre_round_begin(f->store, &options, &round, &f->error),
           GYRE_INVALID);
    options.group_count = 1;
    expect(f, gyre_round_begin(f->store, &options, &round, &f->error),
           GYRE_INVALID);
    options.group_count = 0; /* forgotten: not silently the defaults */
    expect(f, gyre_round_begin(f->store, &options, &round, &f->error),
           GYRE_INVALID);
    options.groups = NULL;
    options.group_count = 2;
    expect(f, gyre_round_begin(f->store, &options, &round, &f->error),
           GYRE_INVALID);
    assert_null(round);
    fixture_round(f, &w->m, 0, NULL, NULL); /* none of it left a round open */
}

static void test_bad_numbers_are_refused(void **state)
{
    static const double bad_scale[] = {3, -2, 0.3, INFINITY, NAN};
    static const double bad_other[] = {-1, INFINITY, NAN};
    world *w = *state;
    fixture *f = &w->f;
    gyre_round *round = NULL;
    gyre_round_options o = round_options();

    for (size_t i = 0; i < 5; i++) {
        o = round_options();
        o.loss_scale = bad_scale[i];
        expect(f, gyre_round_begin(f->store, &o, &round, &f->error),
               GYRE_RANGE);
    }
    for (size_t i = 0; i < 3; i++) {
        o = round_options();
        o.denominator = bad_other[i];
        expect(f, gyre_round_begin(f->store, &o, &round, &f->error),
               GYRE_RANGE);
        o = round_options();
        o.clip = bad_other[i];
        expect(f, gyre_round_begin(f->store, &o, &round, &f->error),
               GYRE_RANGE);
    }
    o = round_options();
    o.size = 8;
    expect(f, gyre_round_begin(f->store, &o, &round, &f->error), GYRE_INVALID);
    assert_null(round);
}

/* What a gradient is multiplied by has to be a number that f32 has whole: one
 * that is infinite would be written into every parameter. */
static void test_an_inverse_beyond_f32_is_refused(void **state)
{
    static const double pairs[][2] = {
        {1, 1e-300}, {0x1p-140, 1}, {1, 1e300}, {0x1p100, 1e20}};
    world *w = *state;
    fixture *f = &w->f;
    gyre_round *round = NULL;

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        gyre_round_options o = round_options();

        o.loss_scale = pairs[i][0];
        o.denominator = pairs[i][1];
        expect(f, gyre_round_begin(f->store, &o, &round, &f->error),
               GYRE_RANGE);
        unit_assert_text(&f->error, "no f32 holds");
        assert_null(round);
    }
}

/* ---- scale and clip --------------------------------------------------- */

static void test_scale_and_denominator_divide_once(void **state)
{
    static const double scales[] = {1, 1024, 0x1p-10, 65536};
    world *w = *state;

    for (uint64_t t = 0; t < 4; t++) {
        gyre_round_options options = round_options();
        gyre_round *round;
        double norm;

        options.loss_scale = scales[t];
        options.denominator = (double)(3 * t + 1);
        round = fixture_open_round(&w->f, &options);
        give_all(&w->f, round, &w->m, t);
        oracle_give_all(&w->o, t);
        norm = oracle_norm(&w->o, scales[t], options.denominator);
        expect_bits(finish(w, round).norm, norm);
        oracle_step(&w->o, scales[t], options.denominator, 0);
        expect_oracle(&w->f, &w->o);
    }
}

/* DS#7292: clipping locally under offload.  DS#7220, #6480: which norm is it
 * that is shown? */
static void test_clip_is_global_and_norms_are_named(void **state)
{
    static const double clips[] = {1e-3, 0.5, 1, 1e9};
    world *w = *state;

    for (uint64_t t = 0; t < 4; t++) {
        gyre_round_options options = round_options();
        gyre_round_report early = {.size = sizeof(early)}, late;
        gyre_round *round;
        double norm, k;

        options.clip = clips[t];
        options.loss_scale = 8;
        options.denominator = 2;
        round = fixture_open_round(&w->f, &options);
        give_all(&w->f, round, &w->m, t);
        oracle_give_all(&w->o, t);
        norm = oracle_norm(&w->o, 8, 2);
        k = fmin(1, clips[t] / (norm + 1e-6));
        good(&w->f, gyre_round_update(round, &early, &w->f.error));
        late = finish(w, round);
        expect_bits(early.norm, norm);
        expect_bits(late.norm, norm);
        expect_bits(late.clip_coefficient, k);
        expect_bits(late.norm_clipped, norm * k);
        assert_true(late.norm_clipped <= clips[t]);
        expect_bits(late.loss_scale, 8);
        oracle_step(&w->o, 8, 2, clips[t]);
        expect_oracle(&w->f, &w->o);
    }
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_micro_batches_add_in_order),
        IN_A_WORLD(test_next_is_a_barrier),
        IN_A_WORLD(test_absent_in_some_micro_batches),
        IN_A_WORLD(test_absent_leaves_contents_and_step_alone),
        IN_A_WORLD(test_all_absent_is_a_round_without_change),
        IN_A_WORLD(test_absent_and_pieces_exclude_each_other),
        IN_A_WORLD(test_groups_keep_their_own_values_and_steps),
        IN_A_WORLD(test_bad_groups_are_refused_by_number_and_name),
        IN_A_WORLD(test_bad_numbers_are_refused),
        IN_A_WORLD(test_an_inverse_beyond_f32_is_refused),
        IN_A_WORLD(test_scale_and_denominator_divide_once),
        IN_A_WORLD(test_clip_is_global_and_norms_are_named),
    };

    return cmocka_run_group_tests_name("store: micro", tests, NULL, NULL);
}
