/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closed forms of bytes and memory: the law of tiles, the lightest tile, and
 * every form against what the plans hold, op by op.
 */
#include "../unit.h"
#include "counted.h"
#include "in_context.h"
#include "schedules.h"

#include "attention/make.h"

#include <stdio.h>

/* ---- the law of tiles ---------------------------------------------------- */

static uint64_t formula_sent(const gyre_plan_request *request, uint32_t rank)
{
    gyre_phase_bytes bytes[GYRE_PLAN_PHASES];
    uint32_t count = 0;
    uint64_t memory = 0, sent = 0;
    gyre_error error = {0};

    if (gyre_plan_formula(context, request, rank, bytes, &count, &memory,
                          &error) != GYRE_OK)
        fail_msg("%s", error.text);
    for (uint32_t i = 0; i < count; i++)
        sent += bytes[i].sent;
    return sent;
}

/* Forward 2 (a - 1) H u + 2 (c - 1) K u + (a - 1) e, backward
 * (a - 1)(3 H u + 2 e) + (c - 1) 4 K u. */
static void hold_law(uint32_t ranks, uint32_t a, uint32_t kv,
                     const char *travels)
{
    const uint64_t heads = 8, tokens = 4, dim = 32;
    uint64_t u = tokens * dim * 2, e = 4 * tokens * heads, c = ranks / a;
    schedule_request q;
    char words[64];

    memset(&q, 0, sizeof(q));
    snprintf(words, sizeof(words), "tile a=%u travels=%s", a, travels);
    schedule_set(context, &q, words);
    q.request.ranks = ranks;
    q.request.heads = (uint32_t)heads;
    q.request.kv_heads = kv;
    q.request.head_dim = (uint32_t)dim;
    q.request.dtype = q.request.wire_dtype = GYRE_BF16;
    q.request.tokens = tokens * ranks;
    assert_int_equal(formula_sent(&q.request, ranks - 1),
                     2 * (a - 1) * heads * u + 2 * (c - 1) * kv * u +
                         (a - 1) * e);
    q.request.pass = GYRE_PASS_BACKWARD;
    assert_int_equal(formula_sent(&q.request, ranks / 2),
                     (a - 1) * (3 * heads * u + 2 * e) + (c - 1) * 4 * kv * u);
}

static void test_law(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 256; ranks++)
        for (uint32_t a = 1; a <= ranks; a++)
            if (ranks % a == 0) {
                hold_law(ranks, a, 8, "kv");
                hold_law(ranks, a, 2, "kv");
                hold_law(ranks, a, 2, "q");
            }
}

static uint64_t formula_total(const gyre_plan_request *request)
{
    uint64_t sum = 0;

    for (uint32_t r = 0; r < request->ranks; r++)
        sum += formula_sent(request, r);
    return sum;
}

/* What a tile without a number picks is as light as any. */
static void hold_lightest(schedule_request *q, const char *options)
{
    uint32_t ranks = q->request.ranks;
    uint64_t least = UINT64_MAX;
    char words[96];

    for (uint32_t a = 1; a <= ranks; a++) {
        if (ranks % a != 0)
            continue;
        snprintf(words, sizeof(words), "tile a=%u%s", a, options);
        schedule_set(context, q, words);
        uint64_t sent = formula_total(&q->request);
        least = sent < least ? sent : least;
    }
    snprintf(words, sizeof(words), "tile%s", options);
    schedule_set(context, q, words);
    if (formula_total(&q->request) != least)
        fail_msg("%s, %u ranks, %u KV heads, dtype %u, wire %u, pass %u: %llu "
                 "bytes, and %llu would do",
                 words, ranks, q->request.kv_heads, q->request.dtype,
                 q->request.wire_dtype, q->request.pass,
                 (unsigned long long)formula_total(&q->request),
                 (unsigned long long)least);
}

static void test_lightest_tile(void **state)
{
    static const char *const options[] = {"", " travels=q", " travels=burst",
                                          " hops=published",
                                          " travels=q hops=published"};
    static const gyre_dtype types[][2] = {{GYRE_BF16, GYRE_BF16},
                                          {GYRE_BF16, GYRE_F32},
                                          {GYRE_F32, GYRE_F32},
                                          {GYRE_F32, GYRE_BF16}};
    static const uint32_t sizes[] = {1, 2, 6, 12, 16, 36};

    (void)state;
    for (uint32_t i = 0; i < 6 * 4 * 5 * 2 * 2 * 2; i++) {
        schedule_request q;

        memset(&q, 0, sizeof(q));
        q.request.ranks = sizes[i % 6];
        q.request.dtype = types[i / 6 % 4][0];
        q.request.wire_dtype = types[i / 6 % 4][1];
        q.request.heads = 8;
        q.request.kv_heads = i / 240 % 2 ? 2 : 8;
        q.request.pass = i / 480 % 2;
        q.request.head_dim = 32;
        q.request.v_head_dim = 16;
        q.request.tokens = 4 * (uint64_t)q.request.ranks;
        q.request.kv_tokens = i / 120 % 2 ? 3 * q.request.tokens : 0;
        hold_lightest(&q, options[i / 24 % 5]);
    }
}

/* ---- closed forms -------------------------------------------------------- */

/* Phase by phase, whatever their order. */
static void same_phases(const char *what, const gyre_phase_bytes *a,
                        uint32_t a_count, const gyre_phase_bytes *b,
                        uint32_t b_count)
{
    if (a_count != b_count)
        fail_msg("%s: %u phases counted, %u by the form", what, a_count,
                 b_count);
    for (uint32_t i = 0; i < a_count; i++) {
        uint32_t j = 0;

        while (j < b_count && strcmp(a[i].phase, b[j].phase) != 0)
            j++;
        if (j == b_count || a[i].sent != b[j].sent ||
            a[i].received != b[j].received)
            fail_msg("%s, phase %s: counted %llu sent, %llu received; the form "
                     "has %llu, %llu",
                     what, a[i].phase, (unsigned long long)a[i].sent,
                     (unsigned long long)a[i].received,
                     (unsigned long long)(j < b_count ? b[j].sent : 0),
                     (unsigned long long)(j < b_count ? b[j].received : 0));
        if (a[i].outer_sent != b[j].outer_sent ||
            a[i].outer_received != b[j].outer_received)
            fail_msg("%s, phase %s: counted %llu sent, %llu received between "
                     "nodes; the form has %llu, %llu",
                     what, a[i].phase, (unsigned long long)a[i].outer_sent,
                     (unsigned long long)a[i].outer_received,
                     (unsigned long long)b[j].outer_sent,
                     (unsigned long long)b[j].outer_received);
    }
}

static void hold_forms(const schedule_request *q, const char *words)
{
    gyre_error error = {0};
    gyre_plan_source source;
    gyre_plan *plan = NULL;
    char what[256];

    if (gyre_plan_source_open(context, &q->request, &source, &error) !=
            GYRE_OK ||
        gyre_plan_create(context, &source.spec, &plan, &error) != GYRE_OK)
        fail_msg("%s: %s", words, error.text);
    for (uint32_t r = 0; r < q->request.ranks; r++) {
        gyre_phase_bytes counted[GYRE_PLAN_PHASES], formed[GYRE_PLAN_PHASES];
        uint32_t counts[2] = {0, 0};
        uint64_t memory = 0, form = 0, external = 0;

        snprintf(what, sizeof(what), "%s, %u ranks, pass %u, rank %u", words,
                 q->request.ranks, q->request.pass, r);
        assert_int_equal(
            gyre_plan_rank_bytes(plan, r, counted, &counts[0], &error),
            GYRE_OK);
        assert_int_equal(
            gyre_plan_rank_memory(plan, r, &memory, &external, &error),
            GYRE_OK);
        gyre_plan_source_formula(&source, &plan->problem, r, formed, &counts[1],
                                 &form);
        same_phases(what, counted, counts[0], formed, counts[1]);
        if (memory != form)
            fail_msg("%s: %llu bytes of bufs, the form has %llu", what,
                     (unsigned long long)memory, (unsigned long long)form);
    }
    if (!counted_run(plan, what))
        fail_msg("%s, %u ranks, pass %u: %s", words, q->request.ranks,
                 q->request.pass, what);
    gyre_plan_free(plan);
    gyre_plan_source_close(&source);
}

static const char *const shapes[] = {
    "ring",
    "ring direction=descending",
    "ring hops=published",
    "double-ring window=1",
    "double-ring window=2",
    "double-ring window=3 hops=published",
    "double-ring window=4 direction=descending",
    "double-ring window=2 hops=published",
    "double-ring window=6 hops=published direction=descending",
    "2d heads=2",
    "2d heads=3 placement=context_first",
    "2d heads=4 window=1",
    "2d heads=2 window=2 keep=split hops=published",
    "2d heads=6 keep=split",
    "2d heads=2 window=3 placement=context_first direction=descending",
    "multi-ring",
    "multi-ring team=2 placement=ring_first",
    "multi-ring team=2 hops=published",
    "multi-ring team=4",
    "tile",
    "tile a=2 a_backward=3",
    "tile a=4 direction=descending",
    "tile a=3 travels=q",
    "tile a=4 travels=burst hops=published",
    "multi-ring team=2 travels=q",
    "multi-ring travels=burst",
    "ulysses",
    "ulysses keep=split",
    "allgather",
    "allgather strides=2",
    "burst",
    "burst window=2",
    "burst window=2 hops=published",
    "tokenring",
    "tokenring direction=descending",
};

typedef struct heads {
    uint32_t heads, kv_heads, head_dim, v_head_dim;
} heads;

static const heads head_shapes[] = {
    {24, 8, 8, 8}, {10, 5, 8, 16}, {7, 7, 16, 8}, {8, 8, 4, 4}, {12, 2, 4, 12}};

/* Every shape that fits, on lengths that leave empty and uneven chunks. */
static void test_forms(void **state)
{
    static const uint32_t ranks[] = {1, 2, 3, 4, 5, 6, 8, 12, 16};
    static const uint64_t tokens[] = {1, 29, 100};
    uint32_t held = 0, fitting = 0;

    (void)state;
    for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++)
        for (size_t r = 0; r < sizeof(ranks) / sizeof(*ranks); r++)
            for (uint32_t n = 0; n < 10; n++, fitting++) {
                const heads *h = &head_shapes[n % 5];
                schedule_request q;
                gyre_plan_source source;

                memset(&q, 0, sizeof(q));
                schedule_set(context, &q, shapes[s]);
                q.request.ranks = ranks[r];
                q.request.batch = 1 + n % 2;
                q.request.heads = h->heads;
                q.request.kv_heads = h->kv_heads;
                q.request.head_dim = h->head_dim;
                q.request.v_head_dim = h->v_head_dim;
                q.request.dtype = n % 2 ? GYRE_BF16 : GYRE_F32;
                q.request.wire_dtype = n % 3 ? GYRE_F32 : GYRE_BF16;
                q.request.tokens = tokens[(n + r) % 3];
                q.request.kv_tokens = n == 4 ? 41 : 0;
                q.request.layout = n % 3;
                q.request.pass = n < 5 ? GYRE_PASS_FORWARD : GYRE_PASS_BACKWARD;
                q.request.node = (n + s) % 5;
                if (gyre_plan_source_open(context, &q.request, &source, NULL) !=
                    GYRE_OK)
                    continue;
                gyre_plan_source_close(&source);
                hold_forms(&q, shapes[s]);
                held++;
            }
    assert_true(held * 2 > fitting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_law),
        cmocka_unit_test(test_lightest_tile),
        cmocka_unit_test(test_forms),
    };

    return in_context(tests);
}
