/* SPDX-License-Identifier: Apache-2.0 */
/* What a trial holds results to, and what it lets nobody pass with. */
#include "../unit.h"
#include "trial.h"

#include <math.h>

static const trial_case small = {.words = "ring",
                                 .ranks = 4,
                                 .kernel = "f32",
                                 .dtype = GYRE_F32,
                                 .tokens = 24};

/* Narrowings that the prover finds in a pass. */
static uint32_t casts_of(gyre_context *context, const trial_case *c,
                         uint32_t pass)
{
    trial_options t;
    gyre_plan *plan = NULL;
    gyre_proof proof = {.size = sizeof(proof)};
    gyre_error error = {0};
    trial_prepare(context, c, &t);
    t.request.request.pass = pass;
    assert_int_equal(gyre_plan_make(context, &t.request.request, &plan, &error),
                     GYRE_OK);
    assert_int_equal(gyre_plan_prove(plan, NULL, &proof, &error), GYRE_OK);
    assert_int_equal(proof.ok, 1);
    gyre_plan_free(plan);
    return proof.cast_depth;
}

/* (1 + casts) / 256 of the largest value: O passes those of forward alone, LSE
 * is never narrowed. */
static void a_narrow_wire_widens_by_its_own_casts(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    static const char *const words[] = {"ring", "multi-ring team=2", "burst"};
    bool seen[2] = {false, false}; /* more casts in backward; in forward */
    for (int w = 0; w < 3; w++) {
        trial_case c = small;
        gyre_trial trial;
        c.words = words[w];
        c.wire_dtype = GYRE_BF16;
        uint32_t forward = casts_of(context, &c, GYRE_PASS_FORWARD);
        uint32_t backward = casts_of(context, &c, GYRE_PASS_BACKWARD);
        uint32_t both = forward > backward ? forward : backward;
        seen[0] |= backward > forward;
        seen[1] |= forward > 0;
        assert_true(trial_run(context, &c, &trial));
        assert_int_equal(trial.ok, 1);
        for (int i = 0; i < GYRE_TRIAL_TENSORS; i++) {
            const gyre_trial_tensor *t = &trial.tensor[i];
            double most = t->max_abs_error / t->max_rel_error;
            uint32_t casts = i == GYRE_TRIAL_O ? forward : both;
            double bound = (1 + casts) * 0x1p-8 * most;
            if (i == GYRE_TRIAL_LSE)
                assert_true(t->bound < 0x1p-18 * most);
            else
                assert_true(fabs(t->bound - bound) <= 1e-9 * bound);
        }
    }
    assert_true(seen[0] && seen[1]);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static gyre_status run_scaled(gyre_context *context, const trial_case *c,
                              double scale, gyre_trial *trial,
                              gyre_error *error)
{
    trial_options t;
    trial_prepare(context, c, &t);
    t.options.scale = scale;
    *trial = (gyre_trial){.size = sizeof(*trial)};
    return gyre_attention_trial(context, NULL, &t.options, NULL, trial, error);
}

/* Scores beyond f32: the kernel has NaN with and without a schedule, which must
 * not pass for agreement. */
static void what_is_not_finite_is_not_right(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_error error = {0};
    gyre_trial trial;
    trial_case c = small;
    for (int kind = 0; kind < 2; kind++) {
        c.kernel = kind == 0 ? "f32" : "bf16";
        c.dtype = kind == 0 ? GYRE_F32 : GYRE_BF16;
        for (c.ranks = 1; c.ranks <= 4; c.ranks *= 4) {
            assert_int_equal(run_scaled(context, &c, 3e38, &trial, &error),
                             GYRE_OK);
            assert_int_equal(trial.ok, 0);
            assert_int_equal(trial.ledger_ok, 1);
            for (int i = 0; i < GYRE_TRIAL_TENSORS; i++) {
                assert_int_equal(trial.tensor[i].compared, 1);
                assert_int_equal(trial.tensor[i].ok, 0);
                assert_true(trial.tensor[i].max_abs_error == INFINITY);
            }
        }
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* ... and a scale that is none in the dtype of sums runs nowhere. */
static void a_scale_is_finite_in_its_sums(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_trial trial;
    static const double bad[] = {1e39, INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        gyre_error error = {0};
        assert_int_equal(run_scaled(context, &small, bad[i], &trial, &error),
                         GYRE_RANGE);
        assert_non_null(strstr(error.text, "scale"));
        assert_non_null(strstr(error.text, "f32"));
    }
    trial_case wide = small;
    gyre_error error = {0};
    wide.kernel = NULL; /* f64 */
    assert_int_equal(run_scaled(context, &wide, 1e39, &trial, &error), GYRE_OK);
    assert_int_equal(run_scaled(context, &wide, NAN, &trial, &error),
                     GYRE_RANGE);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* Nor a slope that is none: it makes NaN of every row of its head. */
static void slopes_are_finite(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_trial trial;
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        gyre_error error = {0};
        const float slopes[] = {0.5f, bad[i]};
        trial_case c = small;
        c.heads = 2;
        c.slopes = slopes;
        assert_int_equal(run_scaled(context, &c, 0, &trial, &error),
                         GYRE_RANGE);
        assert_non_null(strstr(error.text, "slope of head 1"));
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_narrow_wire_widens_by_its_own_casts),
        cmocka_unit_test(what_is_not_finite_is_not_right),
        cmocka_unit_test(a_scale_is_finite_in_its_sums),
        cmocka_unit_test(slopes_are_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
