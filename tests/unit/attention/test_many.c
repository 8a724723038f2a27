/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As test_proofs, on more ranks and with more between: sequences of a batch,
 * bf16 sums on the wire, uneven heads; each also safe on one lane.
 */
#include "../unit.h"
#include "in_context.h"
#include "schedules.h"

#include "attention/make.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const shapes[] = {
    "ring",
    "ring direction=descending hops=published",
    "double-ring",
    "double-ring window=2 hops=published",
    "double-ring window=3 direction=descending",
    "double-ring window=4",
    "2d",
    "2d heads=2 window=2",
    "2d heads=4 placement=context_first keep=split",
    "2d heads=3",
    "multi-ring",
    "multi-ring team=4 placement=ring_first",
    "multi-ring team=2 hops=published direction=descending",
    "tile",
    "tile a=2 a_backward=4",
    "tile a=4 travels=burst",
    "multi-ring travels=q hops=published",
    "ulysses",
    "ulysses keep=split",
    "allgather",
    "allgather strides=2",
    "burst",
    "burst window=2 hops=published",
    "tokenring",
};

/* ---- masks ------------------------------------------------------------------
 */

enum { TOKENS = 331 };
static const uint64_t bounds[] = {0, 5, 60, 61, 200, TOKENS};
static const gyre_documents packed = {bounds, 5, 0};

static const gyre_mask masks[] = {
    {.size = sizeof(gyre_mask), .causal = 1},
    {.size = sizeof(gyre_mask)},
    {.size = sizeof(gyre_mask), .causal = 1, .window = 40},
    {.size = sizeof(gyre_mask),
     .causal = 1,
     .document_count = 1,
     .documents = &packed},
};

typedef struct heads {
    uint32_t heads, kv_heads, head_dim, v_head_dim;
} heads;

static const heads head_shapes[] = {
    {8, 8, 4, 4}, {24, 8, 4, 4}, {10, 5, 4, 8}, {7, 7, 8, 4}, {8, 2, 4, 4}};

/* ---- one proof
 * ---------------------------------------------------------------- */

typedef struct expected {
    const gyre_plan_source *source;
    const gyre_problem *problem;
} expected;

static uint32_t expect(void *user, uint32_t rank, gyre_phase_bytes *phases,
                       uint64_t *memory)
{
    const expected *e = user;
    uint32_t count = 0;

    gyre_plan_source_formula(e->source, e->problem, rank, phases, &count,
                             memory);
    return count;
}

static void complain(const schedule_request *q, const char *words,
                     const gyre_proof *proof, const char *what)
{
    fail_msg("%s, %u ranks, %u:%u heads, layout %u, causal %u, window %llu, "
             "pass %u%s: rank %u, op %u, cell (%u, %u), head %u: %s",
             words, q->request.ranks, q->request.heads, q->request.kv_heads,
             q->request.layout, q->request.mask->causal,
             (unsigned long long)q->request.mask->window, q->request.pass, what,
             proof->rank, proof->op, proof->q_chunk, proof->kv_chunk,
             proof->head, proof->reason);
}

static void prove(const schedule_request *q, const char *words)
{
    gyre_error error = {0};
    gyre_plan_source source;
    gyre_plan *plan = NULL, *forward = NULL;
    expected e = {.source = &source};
    gyre_proof_options options = {
        .size = sizeof(options), .expect = expect, .user = &e};
    gyre_proof proof = {.size = sizeof(proof)};

    if (gyre_plan_source_open(context, &q->request, &source, &error) !=
            GYRE_OK ||
        gyre_plan_create(context, &source.spec, &plan, &error) != GYRE_OK)
        fail_msg("%s: %s", words, error.text);
    if (q->request.pass == GYRE_PASS_BACKWARD) {
        gyre_plan_request request = q->request;

        request.pass = GYRE_PASS_FORWARD;
        if (gyre_plan_make(context, &request, &forward, &error) != GYRE_OK)
            fail_msg("%s: %s", words, error.text);
        options.forward = forward;
    }
    e.problem = &plan->problem;
    if (gyre_plan_prove(plan, &options, &proof, &error) != GYRE_OK)
        fail_msg("%s: %s", words, error.text);
    if (!proof.ok)
        complain(q, words, &proof, "");
    if (!proof.one_lane)
        complain(q, words, &proof, ": not safe on one lane");
    if (gyre_plan_prune(plan, &error) != GYRE_OK)
        fail_msg("%s: %s", words, error.text);
    options.expect = NULL;
    options.forward = NULL;
    uint64_t sent = proof.sent_bytes;

    if (gyre_plan_prove(plan, &options, &proof, &error) != GYRE_OK)
        fail_msg("%s: %s", words, error.text);
    if (!proof.ok)
        complain(q, words, &proof, ", pruned");
    assert_true(proof.sent_bytes <= sent);
    gyre_plan_free(plan);
    gyre_plan_free(forward);
    gyre_plan_source_close(&source);
}

/* ---- all of them
 * ---------------------------------------------------------------- */

static uint32_t walk(uint32_t ranks, uint32_t step, uint32_t shift)
{
    uint32_t held = 0, n = shift;

    for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++)
        for (uint32_t m = 0; m < 4; m++)
            for (uint32_t layout = 0; layout < GYRE_LAYOUT_COUNT; layout++)
                for (uint32_t h = 0; h < 5; h++)
                    for (uint32_t pass = 0; pass < 2; pass++) {
                        schedule_request q;
                        gyre_plan_source source;

                        if (n++ % step != 0 ||
                            (layout == GYRE_LAYOUT_DOCUMENTS && m != 3))
                            continue;
                        memset(&q, 0, sizeof(q));
                        schedule_set(context, &q, shapes[s]);
                        q.request.ranks = ranks;
                        q.request.node = ranks / 2;
                        q.request.batch = 1 + n % 2;
                        q.request.heads = head_shapes[h].heads;
                        q.request.kv_heads = head_shapes[h].kv_heads;
                        q.request.head_dim = head_shapes[h].head_dim;
                        q.request.v_head_dim = head_shapes[h].v_head_dim;
                        q.request.dtype = GYRE_BF16;
                        q.request.wire_dtype = n % 3 ? GYRE_F32 : GYRE_BF16;
                        q.request.tokens = TOKENS;
                        q.request.layout = layout;
                        q.request.mask = &masks[m];
                        q.request.pass = pass;
                        if (gyre_plan_source_open(context, &q.request, &source,
                                                  NULL) != GYRE_OK)
                            continue;
                        gyre_plan_source_close(&source);
                        prove(&q, shapes[s]);
                        held++;
                    }
    return held;
}

/* A part of the product; all of it with GYRE_SOAK. */
static void test_many(void **state)
{
    static const uint32_t ranks[] = {7, 12, 16, 32, 64};
    bool soak = getenv("GYRE_SOAK") != NULL;

    (void)state;
    for (size_t r = 0; r < sizeof(ranks) / sizeof(*ranks); r++)
        assert_true(walk(ranks[r], soak ? 1 : ranks[r] * 2 + 5, (uint32_t)r) >
                    5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),
    };

    return in_context(tests);
}
