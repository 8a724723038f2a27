/* SPDX-License-Identifier: Apache-2.0 */
/* The mixed radix: what it refuses, and what hides behind what.  That its plans
 * are right is shown in unit/attention. */
#include "../unit.h"
#include "hand.h"

static gyre_context *context;

static void emit(void *user, uint32_t pass, uint32_t rank,
                 const gyre_plan_host *host, gyre_builder *b)
{
    (void)pass, (void)rank;
    host->radix(b, user);
}

static const gyre_radix ring8 = {sizeof(ring8), {1, 1}, {1, 1}, {1, 1},
                                 {1, 1},        {8, 1}, 0,      1};

static gyre_plan *make(gyre_radix *radix, uint32_t pass, uint32_t wire)
{
    gyre_plan_spec spec = hand_spec(8, 64);
    gyre_error error = {0};
    gyre_plan *plan = NULL;

    spec.emit = emit;
    spec.user = radix;
    spec.pass = pass;
    spec.problem.wire_dtype = wire;
    if (gyre_plan_create(context, &spec, &plan, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    return plan;
}

static void refused(gyre_radix radix, const char *text)
{
    gyre_plan_spec spec = hand_spec(8, 64);
    gyre_error error = {0};
    gyre_plan *plan = NULL;

    spec.emit = emit;
    spec.user = &radix;
    assert_int_equal(gyre_plan_create(context, &spec, &plan, &error),
                     GYRE_PLAN);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" has no \"%s\"", error.text, text);
}

static void test_refusals(void **state)
{
    const char *strides = "each stride be the product of the counts below";
    gyre_radix r = ring8;

    (void)state;
    r.inner.count = 7;
    refused(r, strides);
    r.inner.count = 0;
    refused(r, strides);
    r = ring8;
    r.inner.stride = 2;
    refused(r, strides);
    r.inner = (gyre_radix_digit){4, 1};
    r.outer = (gyre_radix_digit){2, 1};
    refused(r, strides);
    r.outer = (gyre_radix_digit){2, 8};
    refused(r, strides);
    r.outer = (gyre_radix_digit){UINT32_MAX, 4};
    refused(r, strides);
    r = ring8;
    r.heads = (gyre_radix_digit){4, 1};
    r.inner = (gyre_radix_digit){2, 4};
    refused(r, "more ranks on the digit of heads than heads");
    r = ring8;
    r.strides = 0;
    refused(r, "strides must be from 1 to the number of KV heads");
    r.strides = 2;
    refused(r, "strides must be from 1 to the number of KV heads");
}

/* ---- what waits for what
 * ----------------------------------------------------- */

/* Does unit `u` wait for unit `other`, by waits and lanes? */
static bool waits(const gyre_plan_program *p, const gyre_plan_order *order,
                  uint32_t u, uint32_t other)
{
    bool *after = calloc(p->unit_count, sizeof(*after));
    bool found = false;

    after[other] = true;
    for (uint32_t i = other + 1; i <= u; i++) {
        for (uint32_t d = order->first[i]; d < order->first[i + 1]; d++)
            after[i] |= after[order->deps[d]];
        for (uint32_t j = i; j-- > other;)
            if (p->units[j].lane == p->units[i].lane) {
                after[i] |= after[j];
                break;
            }
    }
    found = after[u];
    free(after);
    return found;
}

/* The k-th unit whose first op has this code (and lane); or UINT32_MAX. */
static uint32_t unit_of(const gyre_plan_program *p, uint32_t code,
                        uint32_t lane, uint32_t k)
{
    for (uint32_t u = 0; u < p->unit_count; u++)
        if (p->ops[p->units[u].first].code == code &&
            p->units[u].lane == lane && k-- == 0)
            return u;
    return UINT32_MAX;
}

enum { COMPUTE = 0, MOVES = 1, SUMS = 2 };

/* Step s waits for transfer s - 1 that brings its block, not for s; and the
 * transfer of the sum of step s - 1 is not waited for by step s. */
static void hold_overlap(gyre_radix radix, uint32_t pass, uint32_t wire)
{
    uint32_t code = pass == GYRE_PASS_FORWARD ? GYRE_OP_ATT : GYRE_OP_GRD;
    gyre_plan *plan = make(&radix, pass, wire);
    const gyre_plan_program *p = &plan->programs[3];
    gyre_plan_order order;

    assert_int_equal(gyre_plan_order_make(plan, 3, &order, NULL), GYRE_OK);
    assert_int_equal(order.clash_unit, GYRE_NO_VIEW);
    for (uint32_t s = 0; s < 8; s++) {
        uint32_t step = unit_of(p, code, COMPUTE, s);

        assert_int_not_equal(step, UINT32_MAX);
        if (s > 0)
            assert_true(
                waits(p, &order, step, unit_of(p, GYRE_OP_PUT, MOVES, s - 1)));
        if (s < 7) {
            uint32_t next = unit_of(p, GYRE_OP_PUT, MOVES, s);

            assert_true(next < step);
            assert_false(waits(p, &order, step, next));
        }
        if (pass == GYRE_PASS_BACKWARD && s > 1) {
            uint32_t sum = unit_of(p, GYRE_OP_PUT, SUMS, s - 2);

            assert_true(sum < step);
            assert_false(waits(p, &order, step, sum));
        }
    }
    gyre_plan_order_free(&order);
    gyre_plan_free(plan);
}

static void test_overlap(void **state)
{
    gyre_radix q = ring8, straight = ring8;

    (void)state;
    q.flags = GYRE_RADIX_MOVE_Q;
    straight.flags = GYRE_RADIX_MOVE_Q | GYRE_RADIX_STRAIGHT;
    hold_overlap(ring8, GYRE_PASS_FORWARD, GYRE_F32);
    for (int narrow = 0; narrow < 2; narrow++) {
        uint32_t wire = narrow ? GYRE_BF16 : GYRE_F32;

        hold_overlap(ring8, GYRE_PASS_BACKWARD, wire);
        hold_overlap(q, GYRE_PASS_FORWARD, wire);
        hold_overlap(q, GYRE_PASS_BACKWARD, wire);
        hold_overlap(straight, GYRE_PASS_BACKWARD, wire);
    }
}

/* An outer transfer has its whole window: no step of window t waits for what
 * brings window t + 1. */
static void test_outer_hides(void **state)
{
    gyre_radix radix = ring8;

    (void)state;
    radix.inner = (gyre_radix_digit){4, 1};
    radix.outer = (gyre_radix_digit){2, 4};
    gyre_plan *plan = make(&radix, GYRE_PASS_BACKWARD, GYRE_F32);
    const gyre_plan_program *p = &plan->programs[5];
    gyre_plan_order order;
    uint32_t outer = unit_of(p, GYRE_OP_PUT, 3, 0);

    assert_int_equal(gyre_plan_order_make(plan, 5, &order, NULL), GYRE_OK);
    for (uint32_t s = 0; s < 8; s++) {
        uint32_t step = unit_of(p, GYRE_OP_GRD, COMPUTE, s);

        assert_true(outer < step);
        assert_int_equal(waits(p, &order, step, outer), s >= 4);
    }
    gyre_plan_order_free(&order);
    gyre_plan_free(plan);
}

/* A radix of an earlier header, without what it ends with. */
static void test_short_radix(void **state)
{
    gyre_plan_spec spec = hand_spec(8, 64);
    gyre_radix radix = ring8;
    gyre_error error = {0};
    gyre_plan *plan = NULL;

    (void)state;
    radix.size = offsetof(gyre_radix, strides);
    spec.emit = emit;
    spec.user = &radix;
    assert_int_equal(gyre_plan_create(context, &spec, &plan, &error),
                     GYRE_PLAN);
    assert_non_null(strstr(error.text, "strides must be from 1"));
}

static int open_context(void **state)
{
    (void)state;
    return gyre_context_create(NULL, &context, NULL) != GYRE_OK;
}

/* A gather of all ranks keeps the rows of each, of all, and of all but one, and
 * none of the sets on the way there. */
static void test_gather_rows(void **state)
{
    gyre_radix gather = ring8;

    (void)state;
    gather.kv_gather = gather.inner;
    gather.inner = (gyre_radix_digit){1, 1};
    gyre_plan *plan = make(&gather, GYRE_PASS_BACKWARD, GYRE_BF16);

    assert_true(plan->row_count <= 2 * 8 + 1 + 8);
    gyre_plan_free(plan);
}

static int close_context(void **state)
{
    (void)state;
    gyre_context_destroy(context);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_outer_hides), cmocka_unit_test(test_short_radix),
        cmocka_unit_test(test_gather_rows),
    };

    return cmocka_run_group_tests(tests, open_context, close_context);
}
