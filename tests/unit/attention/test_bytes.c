/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of the schedules: the published table, the law of tiles, and the closed
 * forms of bytes and memory against what the plans hold, op by op.
 */
#include "../unit.h"
#include "counted.h"
#include "schedules.h"

#include "attention/make.h"

#include <stdio.h>

static gyre_context *context;

/* ---- the table ------------------------------------------------------------
 */

typedef struct row {
    const char *words, *phase;
    uint32_t pass;
    double mha, gqa; /* MiB a rank, mean; sums in bf16 on the wire */
} row;

enum { FORWARD = GYRE_PASS_FORWARD, BACKWARD = GYRE_PASS_BACKWARD };

static const row table[] = {
    {"ring", "ring", FORWARD, 1984, 496},
    {"ring direction=descending", "ring", FORWARD, 1984, 496},
    {"allgather", "gather", FORWARD, 1984, 496},
    {"allgather strides=4", "gather", FORWARD, 1984, 496},
    {"ring hops=published", "ring", BACKWARD, 4032, 1008},
    {"ring", "ring", BACKWARD, 3968, 992},
    {"allgather", NULL, BACKWARD, 3968, 992},
    {"allgather", "reduce", BACKWARD, 1984, 496},
    {"double-ring window=8", "inner", FORWARD, 1792, 448},
    {"double-ring window=8", "outer", FORWARD, 192, 48},
    {"double-ring window=8 hops=published", "inner", BACKWARD, 3840, 960},
    {"double-ring window=8 hops=published", "outer", BACKWARD, 448, 112},
    {"double-ring window=8", "inner", BACKWARD, 3584, 896},
    {"double-ring window=8", "outer", BACKWARD, 384, 96},
    {"double-ring window=4", "inner", FORWARD, 1536, 384},
    {"double-ring window=4", "outer", FORWARD, 448, 112},
    {"ulysses", "a2a", FORWARD, 124, 124},
    {"ulysses keep=split", "a2a", BACKWARD, 124, 124},
    {"ulysses", "a2a", BACKWARD, 217.484375, 217.484375},
    {"2d heads=8 context=4", "a2a", FORWARD, 112, 70},
    {"2d heads=8 context=4", "ring", FORWARD, 192, 48},
    {"2d heads=8 placement=context_first", "a2a", FORWARD, 112, 70},
    {"2d heads=16 context=2", "a2a", FORWARD, 120, 90},
    {"2d heads=16 context=2", "ring", FORWARD, 64, 32},
    {"2d heads=8 keep=split", "a2a", BACKWARD, 112, 70},
    {"2d heads=8 keep=split", "ring", BACKWARD, 384, 96},
    {"2d heads=16 keep=split", "a2a", BACKWARD, 120, 90},
    {"2d heads=16 keep=split", "ring", BACKWARD, 128, 64},
    {"multi-ring team=2", "gather", FORWARD, 96, 48},
    {"multi-ring team=2", "ring", FORWARD, 896, 224},
    {"multi-ring team=2", "reduce", FORWARD, 32.5, 32.5},
    {"multi-ring team=4", "gather", FORWARD, 288, 144},
    {"multi-ring team=4", "ring", FORWARD, 256, 64},
    {"multi-ring team=4", "reduce", FORWARD, 97.5, 97.5},
    {"multi-ring team=2", "gather", BACKWARD, 129, 81},
    {"multi-ring team=2", "ring", BACKWARD, 1792, 448},
    {"multi-ring team=2", "reduce", BACKWARD, 96, 48},
    {"multi-ring team=4", "gather", BACKWARD, 387, 243},
    {"multi-ring team=4", "ring", BACKWARD, 512, 128},
    {"multi-ring team=4", "reduce", BACKWARD, 288, 144},
    {"burst", "ring", FORWARD, 1984, 496},
    {"burst hops=published", "ring", BACKWARD, 3039, 3039},
    {"burst", "ring", BACKWARD, 3007, 3007},
    {"multi-ring team=2 travels=burst", "ring", FORWARD, 896, 224},
    /* (R - 1) C (3 H u + 2 e), R = P / C^2 */
    {"multi-ring team=2 travels=burst", "ring", BACKWARD, 1358, 1358},
    /* (P - 1)(2 H u + e), two ways */
    {"tile a=32 travels=q", "ring", FORWARD, 1999.5, 1999.5},
    {"tokenring", "ring", FORWARD, 992, 992},
    {"tokenring", "reduce", FORWARD, 1007.5, 1007.5},
    {"tokenring", NULL, BACKWARD, 3007, 3007},
};

/* f32 on the wire: what differs, and what must not. */
static const row wide[] = {
    {"ring hops=published", "ring", BACKWARD, 6080, 1520},
    {"multi-ring team=2", "reduce", FORWARD, 64.5, 64.5},
    {"multi-ring team=4", "reduce", FORWARD, 193.5, 193.5},
    {"ring", "ring", FORWARD, 1984, 496},
    {"2d heads=8 context=4", "a2a", FORWARD, 112, 70},
};

static void hold_row(const row *r, uint32_t wire, uint32_t kv_heads, double mib)
{
    schedule_request q;
    gyre_error error = {0};
    gyre_plan *plan = NULL;

    schedule_table(&q, kv_heads);
    schedule_set(context, &q, r->words);
    q.request.pass = r->pass;
    q.request.wire_dtype = wire;
    if (gyre_plan_make(context, &q.request, &plan, &error) != GYRE_OK)
        fail_msg("%s: %s", r->words, error.text);
    int64_t sent = schedule_sent(plan, r->phase);
    int64_t want = (int64_t)(mib * 1048576 * 32);

    if (sent != want)
        fail_msg("%s, pass %u, phase %s, %u KV heads: %lld bytes, not %lld",
                 r->words, r->pass, r->phase ? r->phase : "all", kv_heads,
                 (long long)sent, (long long)want);
    gyre_plan_free(plan);
}

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        hold_row(&table[i], GYRE_BF16, 32, table[i].mha);
        hold_row(&table[i], GYRE_BF16, 8, table[i].gqa);
    }
    for (size_t i = 0; i < sizeof(wide) / sizeof(*wide); i++) {
        hold_row(&wide[i], GYRE_F32, 32, wide[i].mha);
        hold_row(&wide[i], GYRE_F32, 8, wide[i].gqa);
    }
}

/* ---- what drop=dead leaves out
 * ------------------------------------------------ */

static gyre_plan *dropped(schedule_request *q, const char *words)
{
    gyre_error error = {0};
    gyre_plan *plan = NULL;

    schedule_set(context, q, words);
    q->request.drop = GYRE_DROP_DEAD;
    if (gyre_plan_make(context, &q->request, &plan, &error) != GYRE_OK)
        fail_msg("%s: %s", words, error.text);
    return plan;
}

static gyre_phase_bytes ring_bytes(const gyre_plan *plan, uint32_t rank)
{
    gyre_phase_bytes bytes[GYRE_PLAN_PHASES];
    uint32_t count = 0;

    assert_int_equal(gyre_plan_rank_bytes(plan, rank, bytes, &count, NULL),
                     GYRE_OK);
    assert_int_equal(count, 1);
    return bytes[0];
}

/* The second half of a block is of no use beyond rank 0: a quarter less in all;
 * a rank sends 992 to 1984 MiB, and rank 0 still receives everything. */
static void test_half_drop(void **state)
{
    static const gyre_mask causal = {.size = sizeof(causal), .causal = 1};

    (void)state;
    for (uint32_t kv = 8; kv <= 32; kv += 24) {
        int64_t mib = (int64_t)kv * 1048576 / 32, least = INT64_MAX, most = 0;
        schedule_request q;

        schedule_table(&q, kv);
        q.request.mask = &causal;
        gyre_plan *plan = dropped(&q, "ring direction=descending");

        assert_int_equal(schedule_sent(plan, "ring"), 1488 * mib * 32);
        for (uint32_t r = 0; r < 32; r++) {
            int64_t sent = (int64_t)ring_bytes(plan, r).sent;

            least = sent < least ? sent : least;
            most = sent > most ? sent : most;
        }
        assert_int_equal(least, 992 * mib);
        assert_int_equal(most, 1984 * mib);
        assert_int_equal(ring_bytes(plan, 0).received, 1984 * mib);
        gyre_plan_free(plan);
    }
}

/* A window of one block leaves the hop to the neighbour: 1 of P - 1. */
static void test_halo(void **state)
{
    const gyre_mask window = {
        .size = sizeof(window), .causal = 1, .window = 16};
    schedule_request q;

    (void)state;
    memset(&q, 0, sizeof(q));
    q.request.ranks = 8;
    q.request.heads = 2;
    q.request.head_dim = 4;
    q.request.tokens = 8 * 16;
    q.request.layout = GYRE_LAYOUT_CONTIGUOUS;
    q.request.mask = &window;
    gyre_plan *plan = dropped(&q, "ring");

    /* All but the last rank pass their own 16 rows of K and V on, once. */
    assert_int_equal(schedule_sent(plan, "ring"), 7 * 16 * 2 * 2 * 4 * 4);
    gyre_plan_free(plan);
}

/* Documents as long as a block: nothing is sent at all. */
static void test_documents_apart(void **state)
{
    static const uint64_t bounds[] = {0, 16, 32, 48, 64};
    static const gyre_documents packed = {bounds, 4, 0};
    static const gyre_mask mask = {.size = sizeof(mask),
                                   .causal = 1,
                                   .document_count = 1,
                                   .documents = &packed};

    (void)state;
    for (uint32_t pass = 0; pass < 2; pass++) {
        schedule_request q;

        memset(&q, 0, sizeof(q));
        q.request.ranks = 4;
        q.request.heads = 2;
        q.request.head_dim = 4;
        q.request.tokens = 64;
        q.request.layout = GYRE_LAYOUT_CONTIGUOUS;
        q.request.mask = &mask;
        q.request.pass = pass;
        gyre_plan *plan = dropped(&q, "double-ring window=2");

        assert_int_equal(schedule_sent(plan, NULL), 0);
        gyre_plan_free(plan);
    }
}

/* ---- the law of tiles
 * -------------------------------------------------------- */

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
    q.request.pass = BACKWARD;
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

/* ---- closed forms
 * -------------------------------------------------------------- */

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

/* Eight ranks on nodes of four: of a ring two hops in eight cross, of a double
 * ring with a window a node only the outer ring, of an all-gather four in
 * seven. */
static void test_nodes(void **state)
{
    static const struct {
        const char *words;
        uint32_t of[2]; /* this part crosses */
    } cases[] = {{"ring", {2, 8}},
                 {"double-ring window=4", {1, 7}},
                 {"2d heads=4 placement=head_first", {0, 0}},
                 {"allgather", {4, 7}},
                 {"ulysses", {4, 7}}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint64_t all = 0, outer = 0, a2a_outer = 0;
        schedule_request q;
        gyre_plan *plan = NULL;
        gyre_error error = {0};

        schedule_table(&q, 32);
        q.request.ranks = 8;
        q.request.tokens = 64;
        q.request.node = 4;
        schedule_set(context, &q, cases[i].words);
        if (gyre_plan_make(context, &q.request, &plan, &error) != GYRE_OK)
            fail_msg("%s", error.text);
        for (uint32_t r = 0; r < 8; r++) {
            gyre_phase_bytes bytes[GYRE_PLAN_PHASES];
            uint32_t count = 0;

            gyre_plan_rank_bytes(plan, r, bytes, &count, NULL);
            for (uint32_t k = 0; k < count; k++) {
                all += bytes[k].sent;
                outer += bytes[k].outer_sent;
                if (strcmp(bytes[k].phase, "a2a") == 0)
                    a2a_outer += bytes[k].outer_sent;
            }
        }
        if (cases[i].of[1] == 0)
            assert_true(a2a_outer == 0 && outer > 0);
        else
            assert_int_equal(outer * cases[i].of[1], all * cases[i].of[0]);
        gyre_plan_free(plan);
        for (uint32_t expanded = 0; expanded < 2; expanded++) {
            gyre_proof_options options = {.size = sizeof(options),
                                          .expanded = expanded};
            gyre_proof proof;

            assert_int_equal(gyre_plan_prove_request(context, &q.request,
                                                     &options, &proof, &error),
                             GYRE_OK);
            if (!proof.ok)
                fail_msg("%s: %s", cases[i].words, proof.reason);
            assert_int_equal(proof.quotient, !expanded);
        }
    }
}

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
                q.request.pass = n < 5 ? FORWARD : BACKWARD;
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

/* 24 heads that share 8 KV heads over 12 ranks: a KV head is on the wire once
 * for each rank that has a head of it, 16 in all. */
static void test_uneven_heads(void **state)
{
    const int64_t u = 12 * 4 * 8 * 2; /* tokens x dim x bytes, of one rank */
    schedule_request q;
    gyre_error error = {0};
    gyre_plan *plan = NULL;

    (void)state;
    memset(&q, 0, sizeof(q));
    schedule_set(context, &q, "ulysses");
    q.request.ranks = 12;
    q.request.heads = 24;
    q.request.kv_heads = 8;
    q.request.head_dim = 8;
    q.request.dtype = GYRE_BF16;
    q.request.tokens = 12 * 4 * 12;
    if (gyre_plan_make(context, &q.request, &plan, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    assert_int_equal(schedule_sent(plan, "a2a"),
                     (2 * 24 + 2 * 16) * u * 11 / 12 * 12);
    gyre_plan_free(plan);
}

static int open_context(void **state)
{
    (void)state;
    return gyre_context_create(NULL, &context, NULL) != GYRE_OK;
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
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_half_drop),
        cmocka_unit_test(test_halo),
        cmocka_unit_test(test_documents_apart),
        cmocka_unit_test(test_law),
        cmocka_unit_test(test_lightest_tile),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_uneven_heads),
    };

    return cmocka_run_group_tests(tests, open_context, close_context);
}
