/* SPDX-License-Identifier: Apache-2.0 */
/* Failures in the middle: a clean error on every rank, no hang, no leak. */
#include "../plan/hand.h"
#include "../unit.h"
#include "trial.h"

/* The whole trial with the n-th request for memory failing, for every n. */
static void every_request_for_memory_fails_once(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    trial_case c = {.words = "2d heads=2",
                    .ranks = 4,
                    .tokens = 5,
                    .heads = 2,
                    .kv_heads = 1,
                    .head_dim = 2,
                    .v_head_dim = 2};
    trial_options t;
    gyre_trial trial = {.size = sizeof(trial)};
    gyre_error error = {0};
    uint32_t failures = 0;
    trial_prepare(context, &c, &t);
    assert_int_equal(
        gyre_attention_trial(context, NULL, &t.options, NULL, &trial, &error),
        GYRE_OK); /* finds the plugin, keeps its table */
    uint64_t before = memory.bytes;
    for (uint64_t n = 1;; n++) {
        memory.fail_at = memory.requests + n;
        gyre_status status = gyre_attention_trial(context, NULL, &t.options,
                                                  NULL, &trial, &error);
        memory.fail_at = 0;
        assert_int_equal(memory.bytes, before);
        if (status == GYRE_OK)
            break;
        if (status != GYRE_NO_MEMORY)
            fail_msg("request %llu: %s", (unsigned long long)n, error.text);
        failures++;
    }
    assert_true(failures > 300);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static gyre_plan *hand_plan(gyre_context *context, uint32_t ranks)
{
    gyre_plan_spec spec = hand_spec(ranks, 8 * ranks);
    gyre_plan *plan = NULL;
    gyre_error error = {0};
    spec.problem.dtype = GYRE_F64;
    if (gyre_plan_create(context, &spec, &plan, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    return plan;
}

static gyre_status run(gyre_context *context, gyre_world *world,
                       const gyre_plan *plan, gyre_error *error)
{
    gyre_attention_options options = {.size = sizeof(options), .forward = plan};
    gyre_trial trial = {.size = sizeof(trial)};
    return gyre_attention_trial(context, world, &options, NULL, &trial, error);
}

/* The put of a middle step carries another view: its partner sees other bytes,
 * and everybody hears of it. */
static void a_message_of_the_wrong_size(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan *plan = hand_plan(context, 5);
    gyre_plan_program *p = &plan->programs[2];
    gyre_error error = {0};
    uint32_t puts = 0, at = 0;
    for (uint32_t i = 0; i < p->op_count && puts < 3; i++)
        if (p->ops[i].code == GYRE_OP_PUT && ++puts == 3)
            at = i;
    /* The first ATT's first view is Q. */
    for (uint32_t i = 0; i < p->op_count; i++)
        if (p->ops[i].code == GYRE_OP_ATT) {
            p->ops[at].view[0] = p->ops[i].view[0];
            break;
        }
    gyre_status status = run(context, NULL, plan, &error);
    assert_int_not_equal(status, GYRE_OK);
    assert_non_null(strstr(error.text, "plan 'hand', rank "));
    assert_non_null(strstr(error.text, "group 'ring'"));
    gyre_plan_free(plan);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* A put without its get: the timeout ends it, and the world stays broken. */
static void a_message_that_nobody_takes(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan *plan = hand_plan(context, 3);
    gyre_world_request request = {
        .size = sizeof(request), .ranks = 3, .timeout = 20000000};
    gyre_world *world;
    gyre_error error = {0};
    for (uint32_t i = 0; i < plan->programs[1].op_count; i++)
        if (plan->programs[1].ops[i].code == GYRE_OP_GET)
            plan->programs[1].ops[i].channel = 9;
    assert_int_equal(gyre_world_open(context, &request, &world, &error),
                     GYRE_OK);
    assert_int_not_equal(run(context, world, plan, &error), GYRE_OK);
    assert_non_null(strstr(error.text, "plan 'hand', rank "));
    gyre_plan *fine = hand_plan(context, 3);
    assert_int_not_equal(run(context, world, fine, &error), GYRE_OK);
    gyre_world_close(world);
    gyre_plan_free(plan);
    gyre_plan_free(fine);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* Wrong plans are refused where running them would leave their memory. */
/* FIN O* -> O becomes RED O* -> O*, the second in fewer bytes an element than
 * the kernel adds in. */
static void add_to_the_wire(gyre_plan *plan, gyre_plan_op *fin)
{
    gyre_plan_program *p = &plan->programs[1];
    gyre_plan_slot *o = &p->slots[p->views[fin->view[1]].slot];
    assert_int_equal(fin->code, GYRE_OP_FIN);
    fin->code = GYRE_OP_RED;
    fin->view[2] = GYRE_NO_VIEW;
    plan->problem.wire_dtype = GYRE_BF16;
    o->kind = GYRE_VALUE_O_SUM;
    o->dtype = GYRE_BF16;
    o->flags = 0;
}

static void plans_that_leave_their_slots(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "rows outside",   "heads outside",   "a kind that",
        "different rows", "sends to itself", "cannot be added to"};
    for (int i = 0; i < 6; i++) {
        unit_memory memory = {0};
        gyre_context *context = unit_context(&memory);
        gyre_plan *plan = hand_plan(context, 2);
        gyre_plan_program *p = &plan->programs[1];
        gyre_error error = {0};
        uint32_t att = 0, put = 0;
        while (p->ops[att].code != GYRE_OP_ATT)
            att++;
        while (p->ops[put].code != GYRE_OP_PUT)
            put++;
        gyre_plan_view *q = &p->views[p->ops[att].view[0]];
        if (i == 0)
            q->rows = plan->owned[GYRE_SIDE_Q][0];
        else if (i == 1)
            q->h1++;
        else if (i == 2)
            p->ops[att].view[0] = p->ops[att].view[1];
        else if (i == 3)
            p->slots[q->slot].rows = q->rows =
                plan->owned[GYRE_SIDE_Q][0]; /* but not O* */
        else if (i == 4)
            p->ops[put].view[1] = 1;
        else
            add_to_the_wire(plan, &p->ops[p->op_count - 1]);
        assert_int_equal(run(context, NULL, plan, &error), GYRE_PLAN);
        if (strstr(error.text, texts[i]) == NULL ||
            strstr(error.text, "rank 1, op") == NULL)
            fail_msg("%s", error.text);
        gyre_plan_free(plan);
        gyre_context_destroy(context);
        unit_memory_check(&memory);
    }
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan *plan = hand_plan(context, 2);
    gyre_world_request request = {.size = sizeof(request), .ranks = 3};
    gyre_world *world;
    gyre_error error = {0};
    assert_int_equal(gyre_world_open(context, &request, &world, &error),
                     GYRE_OK);
    assert_int_equal(run(context, world, plan, &error), GYRE_INVALID);
    assert_non_null(strstr(error.text, "for 2 ranks, the world has 3"));
    gyre_world_close(world);
    static const char *const phases[] = {"mine", NULL};
    request.phase_count = 2;
    request.phases = phases;
    assert_int_equal(gyre_world_open(context, &request, &world, &error),
                     GYRE_INVALID);
    assert_non_null(strstr(error.text, "2 phases, and no name of phase 1"));
    request.phases = NULL;
    assert_int_equal(gyre_world_open(context, &request, &world, &error),
                     GYRE_INVALID);
    gyre_attention_options options = {
        .size = sizeof(options), .forward = plan, .kernel = "f32"};
    gyre_trial trial = {.size = sizeof(trial)};
    assert_int_equal(
        gyre_attention_trial(context, NULL, &options, NULL, &trial, &error),
        GYRE_INVALID);
    assert_non_null(strstr(error.text, "kernel f32 is for dtype f32"));
    options.kernel = "f128";
    assert_int_equal(
        gyre_attention_trial(context, NULL, &options, NULL, &trial, &error),
        GYRE_NOT_FOUND);
    gyre_plan_free(plan);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_for_memory_fails_once),
        cmocka_unit_test(a_message_of_the_wrong_size),
        cmocka_unit_test(a_message_that_nobody_takes),
        cmocka_unit_test(plans_that_leave_their_slots),
        cmocka_unit_test(what_does_not_fit_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
