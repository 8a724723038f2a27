/* SPDX-License-Identifier: Apache-2.0 */
/* A ring written op by op, run on threads and held against the definition. */
#include "../unit.h"

#include "../plan/hand.h"
#include "attention/attention.h"

#include <stdio.h>

static gyre_plan *make(gyre_context *context, uint32_t ranks, uint64_t tokens,
                       uint32_t dtype)
{
    gyre_plan_spec spec = hand_spec(ranks, tokens);
    gyre_error error = {0};
    gyre_plan *plan = NULL;
    spec.problem.dtype = dtype;
    if (gyre_plan_create(context, &spec, &plan, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    return plan;
}

static void run(const char *kernel, uint32_t dtype, uint32_t ranks,
                uint64_t tokens, uint32_t tiles)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan *plan = make(context, ranks, tokens, dtype);
    gyre_attention_options options = {.size = sizeof(options),
                                      .forward = plan,
                                      .kernel = kernel,
                                      .tiles = tiles,
                                      .delay = 100000,
                                      .delay_seed = ranks};
    gyre_trial trial = {.size = sizeof(trial)};
    gyre_error error = {0};
    if (gyre_attention_trial(context, NULL, &options, NULL, &trial, &error) !=
        GYRE_OK)
        fail_msg("%s", error.text);
    for (int i = 0; i < GYRE_TRIAL_TENSORS; i++) {
        const gyre_trial_tensor *t = &trial.tensor[i];
        if (t->compared && !t->ok)
            fail_msg("%s %s: error %g, bound %g", kernel, t->name,
                     t->max_abs_error, t->bound);
    }
    assert_int_equal(trial.tensor[GYRE_TRIAL_O].compared, 1);
    assert_int_equal(trial.ledger_ok, 1);
    assert_int_equal(trial.ok, 1);
    gyre_plan_free(plan);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_forward_equals_the_definition(void **state)
{
    (void)state;
    run("f64", GYRE_F64, 4, 64, 0);
    run("f64", GYRE_F64, 3, 37, 0);
    run("f64", GYRE_F64, 1, 5, 0);
}

static void test_pairs_are_counted_exactly(void **state)
{
    (void)state;
    run("count", GYRE_F64, 4, 64, 0);
    run("count", GYRE_F64, 5, 7, 0);
}

static void test_leaves(void **state)
{
    (void)state;
    run("f64", GYRE_F64, 4, 64, 16);
    run("f64", GYRE_F64, 3, 37, 240);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_equals_the_definition),
        cmocka_unit_test(test_pairs_are_counted_exactly),
        cmocka_unit_test(test_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
