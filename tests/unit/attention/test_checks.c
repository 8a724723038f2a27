/* SPDX-License-Identifier: Apache-2.0 */
/* What schedules refuse, and that the sentence says what would work; and what
 * users of other systems met (tests/README.md). */
#include "../unit.h"
#include "counted.h"
#include "in_context.h"
#include "schedules.h"

#include <stdio.h>

static schedule_request small(uint32_t ranks, uint32_t heads, uint32_t kv)
{
    schedule_request q;

    memset(&q, 0, sizeof(q));
    q.request.ranks = ranks;
    q.request.heads = heads;
    q.request.kv_heads = kv;
    q.request.head_dim = 8;
    q.request.dtype = GYRE_F32;
    q.request.tokens = 61;
    q.request.layout = GYRE_LAYOUT_ZIGZAG;
    return q;
}

static void refused(const char *words, schedule_request q, const char *text)
{
    gyre_error error = {0};
    gyre_plan *plan = NULL;

    schedule_set(context, &q, words);
    assert_int_equal(gyre_plan_make(context, &q.request, &plan, &error),
                     GYRE_INVALID);
    assert_null(plan);
    if (strstr(error.text, text) == NULL)
        fail_msg("%s: \"%s\" has no \"%s\"", words, error.text, text);
}

/* Made, and right in both passes. */
static void works(const char *words, schedule_request q)
{
    for (uint32_t pass = 0; pass < GYRE_PASS_COUNT; pass++) {
        gyre_error error = {0};
        gyre_plan *plan = NULL;
        char text[256];

        schedule_set(context, &q, words);
        q.request.pass = pass;
        if (gyre_plan_make(context, &q.request, &plan, &error) != GYRE_OK)
            fail_msg("%s: %s", words, error.text);
        if (!counted_run(plan, text))
            fail_msg("%s, pass %u: %s", words, pass, text);
        gyre_plan_free(plan);
    }
}

static void test_numbers(void **state)
{
    (void)state;
    refused("double-ring window=5", small(8, 4, 4),
            "window = 5 does not divide 8 ranks; window = 1, 2, 4 or 8 would "
            "work");
    refused("burst window=3", small(8, 4, 4), "1, 2, 4 or 8 would work");
    refused("multi-ring team=3", small(8, 4, 4), "team = 1 or 2 would work");
    refused("2d heads=3", small(8, 4, 4), "heads = 1, 2 or 4 would work");
    refused("2d heads=8", small(8, 4, 4),
            "heads = 8 ranks cannot share 4 heads; heads = 1, 2 or 4");
    refused("2d heads=2 context=3", small(8, 4, 4),
            "heads = 2 times context = 3 are not 8 ranks");
    refused("2d context=3", small(8, 4, 4), "are not 8 ranks");
    refused("2d heads=2 window=3", small(8, 4, 4),
            "does not divide context = 4; window = 1, 2 or 4 would work");
    refused("tile a=3", small(8, 4, 4),
            "a = 3 times c = 2 are not 8 ranks; a = 1, 2, 4 or 8 would work");
    refused("tile a_backward=5", small(8, 4, 4),
            "a_backward = 5 times c_backward = 1");
    refused("ulysses", small(8, 4, 4),
            "8 ranks cannot share 4 heads: at most 4 ranks would work");
    refused("allgather strides=5", small(8, 4, 4),
            "strides = 5 cannot cut 4 KV heads; strides = 1 to 4");
    /* A number without divisors between reads well, too. */
    refused("double-ring window=2", small(1, 4, 4), "window = 1 would work");
}

static void test_requests(void **state)
{
    schedule_request q = small(4, 4, 3);
    gyre_error error = {0};
    gyre_plan *plan = NULL;

    (void)state;
    refused("ring", q, "4 heads cannot share 3 KV heads evenly");
    q = small(4, 4, 4);
    schedule_set(context, &q, "ring");
    q.request.schedule = "rings";
    assert_int_equal(gyre_plan_make(context, &q.request, &plan, &error),
                     GYRE_NOT_FOUND);
    assert_non_null(strstr(error.text, "double-ring"));
    schedule_set(context, &q, "ring hops=published");
    q.settings[0].name = "hop";
    assert_int_equal(gyre_plan_make(context, &q.request, &plan, &error),
                     GYRE_PARAMETER);
    assert_non_null(strstr(error.text, "direction"));
    schedule_set(context, &q, "ring");
    q.request.size = 0;
    assert_int_equal(gyre_plan_make(context, &q.request, &plan, &error),
                     GYRE_INVALID);
    q.request.size = sizeof(q.request);
    q.request.pass = 2;
    assert_int_equal(gyre_plan_make(context, &q.request, &plan, &error),
                     GYRE_INVALID);
    assert_null(plan);
}

/* ---- what others met
 * ----------------------------------------------------------- */

/* "even/odd scheme hangs for odd rings", "two-rank groups need a special case",
 * "send-first on both sides hangs". */
static void test_odd_rings_and_pairs(void **state)
{
    static const char *const all[] = {"ring",
                                      "ring direction=descending",
                                      "ring hops=published",
                                      "burst",
                                      "tokenring",
                                      "allgather",
                                      "tile",
                                      "double-ring window=1",
                                      "multi-ring team=1",
                                      "2d heads=1"};

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        works(all[i], small(1, 6, 2));
        works(all[i], small(2, 6, 2));
        works(all[i], small(3, 6, 2));
        works(all[i], small(5, 6, 2));
        works(all[i], small(7, 6, 2));
    }
    works("double-ring window=3", small(9, 2, 2));
    works("double-ring window=2", small(6, 2, 2));
    works("double-ring window=3", small(6, 2, 2));
}

/* "groups are right only if w * w = R": every factorisation. */
static void test_every_window(void **state)
{
    char words[64];

    (void)state;
    for (uint32_t ranks = 2; ranks <= 12; ranks++)
        for (uint32_t w = 1; w <= ranks; w++)
            if (ranks % w == 0) {
                snprintf(words, sizeof(words), "double-ring window=%u", w);
                works(words, small(ranks, 2, 1));
                snprintf(words, sizeof(words),
                         "double-ring window=%u hops=published", w);
                works(words, small(ranks, 2, 1));
            }
}

/* "2 KV heads -> at most 2 ranks", "48 heads, degree 64 wanted", "KV replicated
 * before the wire", uneven heads. */
static void test_kv_heads_are_no_limit(void **state)
{
    (void)state;
    works("ulysses", small(12, 24, 8));
    works("ulysses", small(4, 10, 5));
    works("ulysses keep=split", small(4, 7, 7));
    works("ulysses", small(8, 8, 1));
    works("2d heads=4", small(8, 4, 2));
    works("2d heads=6 window=2", small(12, 6, 2));
    works("ring", small(6, 4, 1));
}

/* "length 7 with two ranks treated as 6", "2999 tokens on 4 ranks", "S not
 * divisible", one token and fewer tokens than ranks. */
static void test_any_length(void **state)
{
    static const uint64_t lengths[] = {1, 2, 7, 31};
    static const char *const all[] = {"ring",       "double-ring window=2",
                                      "2d heads=2", "multi-ring",
                                      "allgather",  "ulysses"};

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        for (size_t n = 0; n < sizeof(lengths) / sizeof(*lengths); n++)
            for (uint32_t layout = 0; layout < 3; layout++) {
                schedule_request q = small(4, 4, 2);

                q.request.tokens = lengths[n];
                q.request.layout = layout;
                works(all[i], q);
            }
}

/* "asserts equal lengths": Q and KV of different lengths. */
static void test_cross_attention(void **state)
{
    schedule_request q = small(6, 6, 3);

    (void)state;
    q.request.kv_tokens = 17;
    works("ring", q);
    works("2d heads=3", q);
    works("tile a=2", q);
    works("burst", q);
}

/* "zigzag must be re-ordered by (ring, head) degrees": the zigzag goes over the
 * places of the context, and each place's runs are cut for its head ranks. */
static void test_zigzag_by_context(void **state)
{
    static const char *const words[] = {"2d heads=2",
                                        "2d heads=2 placement=context_first"};

    (void)state;
    for (int n = 0; n < 2; n++) {
        schedule_request q = small(4, 4, 4);
        gyre_error error = {0};
        gyre_plan *plan = NULL;
        gyre_phase_bytes bytes[GYRE_PLAN_PHASES];
        uint32_t count = 0;

        q.request.tokens = 32;
        schedule_set(context, &q, words[n]);
        assert_int_equal(gyre_plan_make(context, &q.request, &plan, &error),
                         GYRE_OK);
        const gyre_problem *p = &plan->problem;

        for (uint32_t i = 0; i < p->chunk_count[0]; i++) {
            const gyre_chunk *chunk = &p->chunks[0][i];
            uint32_t place = n == 0 ? chunk->owner / 2 : chunk->owner % 2;
            uint32_t part = n == 0 ? chunk->owner % 2 : chunk->owner / 2;
            uint64_t run = chunk->start / 8; /* of 4 */

            assert_int_equal(chunk->length, 4);
            assert_int_equal(run < 2 ? run : 3 - run, place);
            assert_int_equal(chunk->start % 8 / 4, part);
        }
        assert_int_equal(gyre_plan_rank_bytes(plan, 4, bytes, &count, &error),
                         GYRE_RANGE);
        gyre_plan_free(plan);
    }
}

/* "gradient right in forward, the local KV of step 0 used again in backward":
 * after the first step no GRD may read the slot at home. */
static void test_no_stale_kv(void **state)
{
    schedule_request q = small(4, 2, 2);
    gyre_error error = {0};
    gyre_plan *plan = NULL;

    (void)state;
    schedule_set(context, &q, "ring");
    q.request.pass = GYRE_PASS_BACKWARD;
    assert_int_equal(gyre_plan_make(context, &q.request, &plan, &error),
                     GYRE_OK);
    for (uint32_t r = 0; r < 4; r++) {
        const gyre_plan_program *p = &plan->programs[r];
        uint32_t seen = 0, rows[4];

        for (uint32_t i = 0; i < p->op_count; i++) {
            if (p->ops[i].code != GYRE_OP_GRD)
                continue;
            rows[seen] = p->views[p->ops[i].view[3]].rows;
            for (uint32_t j = 0; j < seen; j++)
                assert_int_not_equal(rows[seen], rows[j]);
            seen++;
        }
        assert_int_equal(seen, 4);
    }
    gyre_plan_free(plan);
}

/* "dK, dV cast to bf16 over every hop": sums are of f32 wherever they are
 * computed on, and on the wire too unless asked otherwise. */
static void test_sums_stay_wide(void **state)
{
    (void)state;
    for (uint32_t narrow = 0; narrow < 2; narrow++) {
        schedule_request q = small(4, 2, 2);
        gyre_error error = {0};
        gyre_plan *plan = NULL;

        schedule_set(context, &q, "double-ring window=2");
        q.request.pass = GYRE_PASS_BACKWARD;
        q.request.dtype = GYRE_BF16;
        q.request.wire_dtype = narrow ? GYRE_BF16 : GYRE_F32;
        assert_int_equal(gyre_plan_make(context, &q.request, &plan, &error),
                         GYRE_OK);
        const gyre_plan_program *p = &plan->programs[0];

        for (uint32_t i = 0; i < p->op_count; i++) {
            const gyre_plan_op *op = &p->ops[i];

            if (op->code == GYRE_OP_GRD)
                assert_int_equal(p->slots[p->views[op->view[5]].slot].dtype,
                                 GYRE_F32);
            else if (op->code == GYRE_OP_PUT &&
                     p->slots[p->views[op->view[0]].slot].kind ==
                         GYRE_VALUE_DKV_SUM)
                assert_int_equal(p->slots[p->views[op->view[0]].slot].dtype,
                                 q.request.wire_dtype);
        }
        gyre_plan_free(plan);
    }
}

/* "4x traffic": no KV row and head goes twice from one rank to another in a
 * phase, and no slot holds more KV heads than the model has. */
static void test_no_expanded_kv(void **state)
{
    schedule_request q = small(8, 8, 2);
    gyre_error error = {0};
    gyre_plan *plan = NULL;

    (void)state;
    schedule_set(context, &q, "2d heads=4");
    assert_int_equal(gyre_plan_make(context, &q.request, &plan, &error),
                     GYRE_OK);
    for (uint32_t r = 0; r < 8; r++) {
        const gyre_plan_program *p = &plan->programs[r];
        uint8_t seen[8][2][16][2] = {{{{0}}}}; /* peer, phase, chunk, KV head */

        for (uint32_t i = 0; i < p->op_count; i++) {
            const gyre_plan_op *op = &p->ops[i];
            const gyre_plan_view *v = &p->views[op->view[0]];

            if (op->code != GYRE_OP_PUT ||
                p->slots[v->slot].kind != GYRE_VALUE_KV)
                continue;
            const uint32_t *rows = gyre_plan_row_list(plan, v->rows);
            uint32_t k0 = 0, k1 = 0;

            gyre_kv_heads(&plan->problem, v->h0, v->h1, &k0, &k1);
            assert_true(k1 <= 2);
            for (uint32_t n = 0; n < plan->rows[v->rows].count; n++)
                for (uint32_t k = k0; k < k1; k++)
                    assert_int_equal(
                        seen[op->view[1]][op->lane == 7][rows[n]][k]++, 0);
        }
    }
    gyre_plan_free(plan);
}

/* Every request for memory fails once. */
static void test_no_memory(void **state)
{
    unit_memory memory = {0};
    gyre_context *poor = unit_context(&memory);
    schedule_request q = small(6, 6, 3);
    gyre_plan *plan = NULL;

    (void)state;
    schedule_set(poor, &q, "2d heads=2 window=3");
    q.request.pass = GYRE_PASS_BACKWARD;
    q.request.wire_dtype = GYRE_BF16;
    uint64_t before = memory.bytes;

    for (uint64_t n = 1;; n++) {
        memory.fail_at = memory.requests + n;
        gyre_status status = gyre_plan_make(poor, &q.request, &plan, NULL);

        memory.fail_at = 0;
        if (status == GYRE_OK)
            break;
        assert_int_equal(status, GYRE_NO_MEMORY);
        assert_int_equal(memory.bytes, before);
    }
    gyre_plan_free(plan);
    assert_int_equal(memory.bytes, before);
    gyre_context_destroy(poor);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_odd_rings_and_pairs),
        cmocka_unit_test(test_every_window),
        cmocka_unit_test(test_kv_heads_are_no_limit),
        cmocka_unit_test(test_any_length),
        cmocka_unit_test(test_cross_attention),
        cmocka_unit_test(test_zigzag_by_context),
        cmocka_unit_test(test_no_stale_kv),
        cmocka_unit_test(test_sums_stay_wide),
        cmocka_unit_test(test_no_expanded_kv),
        cmocka_unit_test(test_no_memory),
    };

    return in_context(tests);
}
