/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank for all must not prove: sums of all heads that are filled by
 * halves, each rank's half another. */
#include "../unit.h"

#include <gyre/plan.h>

enum { HEADS = 4 };

typedef struct emitter {
    const gyre_plan_host *host;
    gyre_builder *builder;
} emitter;

static uint32_t slot(const emitter *e, uint32_t kind, uint32_t rows,
                     uint32_t flags)
{
    gyre_plan_slot slot = {.kind = kind,
                           .rows = rows,
                           .h1 = HEADS,
                           .dtype = GYRE_F64,
                           .buf = GYRE_NEW_BUF,
                           .flags = flags};
    return e->host->slot(e->builder, &slot);
}

static void attend(const emitter *e, uint32_t q, uint32_t q_rows, uint32_t kv,
                   uint32_t kv_rows, uint32_t sum, uint32_t h0, uint32_t h1)
{
    uint32_t views[] = {e->host->view(e->builder, q, q_rows, h0, h1, 1),
                        e->host->view(e->builder, kv, kv_rows, h0, h1, 1),
                        e->host->view(e->builder, sum, q_rows, h0, h1, 1)};
    e->host->op(e->builder, 0, GYRE_OP_ATT, views, 3);
}

/* Both ranks have Q and KV of both.  Rank r attends the peer's Q to its own KV
 * with half r of the heads, and sends the sum.  The rest it does itself: with
 * half r where *right (the peer sends the other), else with half 1 - r, which
 * the peer sends as well. */
static void emit(void *user, uint32_t pass, uint32_t r, const gyre_plan_host *h,
                 gyre_builder *b)
{
    emitter e = {h, b};
    uint32_t o = 1 - r, rest = *(const bool *)user ? r : o;
    uint32_t q_mine = h->owned(b, 0, r), q_peer = h->owned(b, 0, o);
    uint32_t kv_mine = h->owned(b, 1, r), kv_peer = h->owned(b, 1, o);
    uint32_t q = slot(&e, GYRE_VALUE_Q, q_mine, GYRE_SLOT_EXTERNAL);
    uint32_t kv = slot(&e, GYRE_VALUE_KV, kv_mine, GYRE_SLOT_EXTERNAL);
    uint32_t out = slot(&e, GYRE_VALUE_O, q_mine, GYRE_SLOT_EXTERNAL);
    uint32_t sum = slot(&e, GYRE_VALUE_O_SUM, q_mine, 0);
    uint32_t part = slot(&e, GYRE_VALUE_O_SUM, q_peer, 0);
    uint32_t in = slot(&e, GYRE_VALUE_O_SUM, q_mine, 0);
    uint32_t q2 = slot(&e, GYRE_VALUE_Q, q_peer, 0);
    uint32_t kv2 = slot(&e, GYRE_VALUE_KV, kv_peer, 0);
    (void)pass;
    h->begin(b, 1, "x", GYRE_PATTERN_NONE);
    h->put(b, h->whole(b, q), o, 0);
    h->get(b, h->whole(b, q2), o, 0);
    h->put(b, h->whole(b, kv), o, 1);
    h->get(b, h->whole(b, kv2), o, 1);
    h->end(b);
    attend(&e, q, q_mine, kv, kv_mine, sum, 0, HEADS);
    attend(&e, q2, q_peer, kv, kv_mine, part, 2 * r, 2 * r + 2);
    attend(&e, q, q_mine, kv2, kv_peer, sum, 2 * rest, 2 * rest + 2);
    h->begin(b, 1, "y", GYRE_PATTERN_NONE);
    h->put(b, h->whole(b, part), o, 2);
    h->get(b, h->whole(b, in), o, 2);
    h->end(b);
    uint32_t add[] = {h->whole(b, in), h->whole(b, sum)};
    h->op(b, 0, GYRE_OP_RED, add, 2);
    uint32_t fin[] = {h->whole(b, sum), h->whole(b, out)};
    h->op(b, 0, GYRE_OP_FIN, fin, 2);
}

static void halves_of_heads_are_told_apart(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    for (int right = 0; right < 2; right++)
        for (uint32_t expanded = 0; expanded < 2; expanded++) {
            bool given = right;
            gyre_plan_request request = {.size = sizeof(request),
                                         .schedule = "halves",
                                         .ranks = 2,
                                         .heads = HEADS,
                                         .head_dim = 4,
                                         .dtype = GYRE_F64,
                                         .tokens = 8,
                                         .emit = emit,
                                         .emit_user = &given};
            gyre_proof_options options = {.size = sizeof(options),
                                          .expanded = expanded};
            gyre_proof proof = {.size = sizeof(proof)};
            gyre_error error = {0};
            assert_int_equal(gyre_plan_prove_request(context, &request,
                                                     &options, &proof, &error),
                             GYRE_OK);
            if (proof.ok != (uint32_t)right)
                fail_msg("right %d, expanded %u: %s", right, expanded,
                         proof.reason);
        }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_of_heads_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
