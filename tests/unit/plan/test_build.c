/* SPDX-License-Identifier: Apache-2.0 */
/* Building plans: a hand-written ring, what the builder refuses, memory. */
#include "../unit.h"
#include "hand.h"

static void a_ring_counts_as_its_formula(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    for (uint32_t ranks = 1; ranks <= 8; ranks++) {
        gyre_plan_spec spec = hand_spec(ranks, 16 * ranks);
        gyre_plan *plan;
        gyre_error error;
        assert_int_equal(gyre_plan_create(context, &spec, &plan, &error),
                         GYRE_OK);
        uint64_t block = 16 * 12 * 4; /* tokens x (8 + 4) x f32, one KV head */
        for (uint32_t r = 0; r < ranks; r++) {
            uint64_t sent[GYRE_PLAN_MAX_PHASES] = {0};
            uint64_t got[GYRE_PLAN_MAX_PHASES] = {0};
            gyre_plan_count_bytes(plan, r, sent, got);
            assert_int_equal(sent[0], (ranks - 1) * block);
            assert_int_equal(got[0], (ranks - 1) * block);
            uint64_t bytes, external;
            assert_int_equal(
                gyre_plan_count_memory(plan, r, &bytes, &external, &error),
                GYRE_OK);
            uint64_t q = 16 * 2 * 8 * 4, o = 16 * 2 * 4 * 4, e = 16 * 2 * 4;
            uint64_t extra = ranks == 1 ? 0 : ranks == 2 ? 1 : 2;
            assert_int_equal(external, q + o + block);
            assert_int_equal(bytes - external, 2 * e + o + e + extra * block);
            assert_int_equal(sizeof(plan->programs[r].ops[0]), 32);
        }
        gyre_plan_free(plan);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void every_failed_request_leaves_nothing(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan_spec spec = hand_spec(4, 61);
    uint64_t before = memory.bytes;
    uint64_t n = 1;
    for (;; n++) {
        gyre_plan *plan = NULL;
        gyre_error error;
        memory.fail_at = memory.requests + n;
        gyre_status status = gyre_plan_create(context, &spec, &plan, &error);
        memory.fail_at = 0;
        if (status == GYRE_OK) {
            gyre_plan_free(plan);
            break;
        }
        assert_int_equal(status, GYRE_NO_MEMORY);
        assert_null(plan);
        assert_int_equal(memory.bytes, before);
    }
    assert_true(n > 10);
    assert_int_equal(memory.bytes, before);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* ---- what is refused ----------------------------------------------------- */

typedef void bad_emit(const gyre_plan_host *host, gyre_builder *b);

static void no_such_chunk(const gyre_plan_host *host, gyre_builder *b)
{
    host->rows(b, GYRE_SIDE_Q, (uint32_t[]){99}, 1);
}
static void chunk_twice(const gyre_plan_host *host, gyre_builder *b)
{
    host->rows(b, GYRE_SIDE_Q, (uint32_t[]){1, 0, 1}, 3);
}
static void other_side(const gyre_plan_host *host, gyre_builder *b)
{
    uint32_t rows = host->owned(b, GYRE_SIDE_KV, 0);
    host->slot(b, &(gyre_plan_slot){.kind = GYRE_VALUE_Q,
                                    .rows = rows,
                                    .h1 = 1,
                                    .buf = GYRE_NEW_BUF});
}
static void heads_beyond(const gyre_plan_host *host, gyre_builder *b)
{
    uint32_t rows = host->owned(b, GYRE_SIDE_Q, 0);
    host->slot(b, &(gyre_plan_slot){.kind = GYRE_VALUE_Q,
                                    .rows = rows,
                                    .h1 = 3,
                                    .buf = GYRE_NEW_BUF});
}
static void no_group(const gyre_plan_host *host, gyre_builder *b)
{
    host->put(b, 0, 0, 0);
}
static void group_left_open(const gyre_plan_host *host, gyre_builder *b)
{
    host->begin(b, 1, "ring", GYRE_PATTERN_NONE);
}
static void no_lane(const gyre_plan_host *host, gyre_builder *b)
{
    host->begin(b, 8, "ring", GYRE_PATTERN_NONE);
}
static void missing_view(const gyre_plan_host *host, gyre_builder *b)
{
    host->op(b, 0, GYRE_OP_RED, NULL, 0);
}
static void no_view(const gyre_plan_host *host, gyre_builder *b)
{
    host->op(b, 0, GYRE_OP_RED, (uint32_t[]){7, 8}, 2);
}
static void unknown_flags(const gyre_plan_host *host, gyre_builder *b)
{
    host->slot(b, &(gyre_plan_slot){.kind = GYRE_VALUE_Q,
                                    .rows = host->owned(b, GYRE_SIDE_Q, 0),
                                    .h1 = 1,
                                    .buf = GYRE_NEW_BUF,
                                    .flags = 13});
}
static void too_many_phases(const gyre_plan_host *host, gyre_builder *b)
{
    static const char *const names[] = {"a", "b", "c", "d", "e",
                                        "f", "g", "h", "i"};
    for (int i = 0; i < 9; i++) {
        host->begin(b, 1, names[i], GYRE_PATTERN_NONE);
        host->end(b);
    }
}
static void said_so(const gyre_plan_host *host, gyre_builder *b)
{
    host->refuse(b, "needs an even number of ranks, 4 would do");
}

static void emit_bad(void *user, uint32_t pass, uint32_t rank,
                     const gyre_plan_host *host, gyre_builder *b)
{
    (void)pass;
    if (rank == 1)
        (*(bad_emit *const *)user)(host, b);
}

static void the_builder_refuses_ids_that_are_not(void **state)
{
    (void)state;
    static const struct {
        bad_emit *emit;
        const char *text;
    } cases[] = {
        {no_such_chunk, "plan 'hand', rank 1: there is no chunk 99"},
        {chunk_twice, "chunk 1 twice"},
        {other_side, "rows of the other side"},
        {heads_beyond, "query heads"},
        {no_group, "stands in no group"},
        {group_left_open, "never ended"},
        {no_lane, "no lane 8"},
        {missing_view, "view 0 of this op is missing"},
        {no_view, "no view 7"},
        {unknown_flags, "unknown flags"},
        {too_many_phases, "at most 8 of them"},
        {said_so, "rank 1: needs an even number of ranks, 4 would do"},
    };
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        gyre_plan_spec spec = hand_spec(2, 8);
        bad_emit *emit = cases[i].emit;
        spec.emit = emit_bad;
        spec.user = &emit;
        gyre_plan *plan = NULL;
        gyre_error error;
        assert_int_equal(gyre_plan_create(context, &spec, &plan, &error),
                         GYRE_PLAN);
        if (strstr(error.text, cases[i].text) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", error.text, cases[i].text);
        assert_null(plan);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void a_problem_is_checked(void **state)
{
    (void)state;
    static const struct {
        uint32_t ranks, heads, kv_heads, dtype, wire;
        const char *text;
    } cases[] = {
        {0, 2, 1, GYRE_F32, GYRE_F32, "number of ranks is 0"},
        {2, 5, 2, GYRE_F32, GYRE_F32, "5 heads cannot share 2 KV heads"},
        {2, 2, 1, GYRE_I32, GYRE_F32, "not i32"},
        {2, 2, 1, GYRE_BF16, GYRE_F64, "wire dtype must be f32"},
        {2, 2, 1, GYRE_F64, GYRE_BF16, "wire dtype must be f64"},
    };
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        gyre_plan_spec spec = hand_spec(cases[i].ranks, 8);
        spec.problem.heads = cases[i].heads;
        spec.problem.kv_heads = cases[i].kv_heads;
        spec.problem.dtype = cases[i].dtype;
        spec.problem.wire_dtype = cases[i].wire;
        gyre_plan *plan = NULL;
        gyre_error error;
        assert_int_equal(gyre_plan_create(context, &spec, &plan, &error),
                         GYRE_INVALID);
        if (strstr(error.text, cases[i].text) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", error.text, cases[i].text);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* Sizes are counted in 64 bits later; more than that is refused here. */
static void what_would_overflow_is_refused(void **state)
{
    (void)state;
    gyre_context *context = unit_context(&(unit_memory){0});
    gyre_plan_spec spec = hand_spec(2, 262144);
    gyre_plan *plan = NULL;
    gyre_error error;
    spec.problem.batch = UINT32_C(1) << 31;
    spec.problem.heads = spec.problem.kv_heads = 32768;
    assert_int_equal(gyre_plan_create(context, &spec, &plan, &error),
                     GYRE_INVALID);
    assert_non_null(strstr(error.text, "more than 2^62"));
    gyre_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_counts_as_its_formula),
        cmocka_unit_test(every_failed_request_leaves_nothing),
        cmocka_unit_test(the_builder_refuses_ids_that_are_not),
        cmocka_unit_test(a_problem_is_checked),
        cmocka_unit_test(what_would_overflow_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
