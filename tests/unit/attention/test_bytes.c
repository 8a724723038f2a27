/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of the schedules as the plans hold them, op by op: the published table,
 * nodes, uneven heads.  What a mask leaves out: test_prune; closed forms:
 * test_forms.
 */
#include "../unit.h"
#include "in_context.h"
#include "schedules.h"

/* ---- the table ----------------------------------------------------------- */

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

    schedule_table(&q, kv_heads);
    schedule_set(context, &q, r->words);
    q.request.pass = r->pass;
    q.request.wire_dtype = wire;
    gyre_plan *plan = schedule_plan(context, &q);
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

/* ---- nodes and heads ----------------------------------------------------- */

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
        gyre_error error = {0};

        schedule_table(&q, 32);
        q.request.ranks = 8;
        q.request.tokens = 64;
        q.request.node = 4;
        schedule_set(context, &q, cases[i].words);
        gyre_plan *plan = schedule_plan(context, &q);

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

/* 24 heads that share 8 KV heads over 12 ranks: a KV head is on the wire once
 * for each rank that has a head of it, 16 in all. */
static void test_uneven_heads(void **state)
{
    const int64_t u = 12 * 4 * 8 * 2; /* tokens x dim x bytes, of one rank */
    schedule_request q;

    (void)state;
    memset(&q, 0, sizeof(q));
    schedule_set(context, &q, "ulysses");
    q.request.ranks = 12;
    q.request.heads = 24;
    q.request.kv_heads = 8;
    q.request.head_dim = 8;
    q.request.dtype = GYRE_BF16;
    q.request.tokens = 12 * 4 * 12;
    gyre_plan *plan = schedule_plan(context, &q);

    assert_int_equal(schedule_sent(plan, "a2a"),
                     (2 * 24 + 2 * 16) * u * 11 / 12 * 12);
    gyre_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_uneven_heads),
    };

    return in_context(tests);
}
