/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward pass of every schedule against the literal adjoint of its
 * forward: both are proven, and both give the naive gradients and counts under
 * orders drawn at random.
 */
#include "../plan/adjoint.h"
#include "../plan/interpret.h"
#include "../unit.h"
#include "in_context.h"
#include "schedules.h"

#include "attention/make.h"

#include <stdio.h>

static uint32_t seed = 7;

static const char *const schedules[] = {
    "ring",
    "ring direction=descending",
    "ring hops=published",
    "double-ring window=2",
    "double-ring window=3 hops=published",
    "2d heads=2",
    "2d heads=2 keep=split",
    "2d heads=3",
    "2d heads=4 placement=context_first",
    "multi-ring team=2",
    "tile",
    "ulysses",
    "ulysses keep=split",
    "allgather",
    "allgather strides=2",
    "burst",
    "burst hops=published",
    "tokenring",
};
enum { SCHEDULES = sizeof(schedules) / sizeof(*schedules) };

static const gyre_mask masks[] = {
    {.size = sizeof(gyre_mask), .causal = 1},
    {.size = sizeof(gyre_mask), .causal = 1, .window = 4},
};
enum { MASKS = sizeof(masks) / sizeof(*masks) };
static const uint32_t heads[][2] = {{4, 4}, {4, 2}, {6, 3}, {12, 4}};
enum { SHAPES = sizeof(heads) / sizeof(*heads) };

static void check(const gyre_plan *plan, reference *want, const char *what,
                  const char *name)
{
    gyre_proof proof;
    char text[256];
    assert_int_equal(gyre_plan_prove(plan, NULL, &proof, NULL), GYRE_OK);
    if (!proof.ok)
        fail_msg("%s, %s, %u ranks, heads %u:%u: rank %d op %d: %s", name, what,
                 plan->problem.ranks, plan->problem.heads,
                 plan->problem.kv_heads, (int)proof.rank, (int)proof.op,
                 proof.reason);
    for (int mode = 0; mode < 2; mode++) {
        want[mode].of = plan;
        if (!interpret(plan, &want[mode], &seed, text))
            fail_msg("%s, %s, %u ranks, mode %d: %s", name, what,
                     plan->problem.ranks, mode, text);
    }
}

static gyre_plan *make_adjoint(const schedule_request *r,
                               const gyre_plan *forward)
{
    gyre_plan_source source;
    gyre_plan *plan;
    gyre_error error;
    assert_int_equal(gyre_plan_source_open(context, &r->request, &source, NULL),
                     GYRE_OK);
    source.spec.emit = adjoint_emit;
    source.spec.user = (void *)forward;
    if (gyre_plan_create(context, &source.spec, &plan, &error) != GYRE_OK)
        fail_msg("%s: %s", r->text, error.text);
    gyre_plan_source_close(&source);
    return plan;
}

/* 1 when the schedule can do it. */
static uint32_t compare(schedule_request *r)
{
    gyre_plan *forward, *backward;
    r->request.pass = GYRE_PASS_FORWARD;
    if (gyre_plan_make(context, &r->request, &forward, NULL) != GYRE_OK)
        return 0;
    reference want[2] = {reference_make(forward, INTERPRET_F64),
                         reference_make(forward, INTERPRET_COUNT)};
    check(forward, want, "forward", r->text);
    r->request.pass = GYRE_PASS_BACKWARD;
    assert_int_equal(gyre_plan_make(context, &r->request, &backward, NULL),
                     GYRE_OK);
    check(backward, want, "backward", r->text);
    gyre_plan_free(backward);
    backward = make_adjoint(r, forward);
    check(backward, want, "adjoint", r->text);
    gyre_plan_free(backward);
    gyre_plan_free(forward);
    for (int mode = 0; mode < 2; mode++)
        reference_free(&want[mode]);
    return 1;
}

static void a_backward_is_the_adjoint_of_its_forward(void **state)
{
    (void)state;
    bool all = getenv("GYRE_SOAK") != NULL;
    uint32_t count = 0, turn = 0;
    for (uint32_t i = 0; i < SCHEDULES; i++)
        for (uint32_t ranks = 1; ranks <= (all ? 8u : 6u); ranks++)
            for (uint32_t s = 0; s < SHAPES; s++)
                for (uint32_t m = 0; m < MASKS; m++)
                    for (uint32_t layout = 0; layout < 3; layout++) {
                        if (!all && turn++ % 4 != 0)
                            continue;
                        schedule_request r;
                        memset(&r, 0, sizeof(r));
                        r.request.ranks = ranks;
                        r.request.heads = heads[s][0];
                        r.request.kv_heads = heads[s][1];
                        r.request.head_dim = 3;
                        r.request.v_head_dim = 2;
                        r.request.dtype = GYRE_F32;
                        r.request.wire_dtype = GYRE_F32;
                        r.request.tokens = 13;
                        r.request.mask = &masks[m];
                        r.request.layout = layout;
                        schedule_set(context, &r, schedules[i]);
                        count += compare(&r);
                    }
    print_message("# %u schedules\n", count);
    assert_true(count > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backward_is_the_adjoint_of_its_forward),
    };
    return in_context(tests);
}
