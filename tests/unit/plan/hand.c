/* SPDX-License-Identifier: Apache-2.0 */
#include "hand.h"

const gyre_mask hand_causal = {.size = sizeof(gyre_mask), .causal = 1};

gyre_plan_spec hand_spec(uint32_t ranks, uint64_t tokens)
{
    gyre_plan_spec spec = {
        .name = "hand",
        .problem = {.ranks = ranks,
                    .batch = 1,
                    .heads = 2,
                    .kv_heads = 1,
                    .head_dim = 8,
                    .v_head_dim = 4,
                    .dtype = GYRE_F32,
                    .wire_dtype = GYRE_F32,
                    .tokens = {tokens, tokens}},
        .layout = GYRE_LAYOUT_ZIGZAG,
        .mask = &hand_causal,
        .pass = GYRE_PASS_FORWARD,
        .emit = hand_ring,
    };
    return spec;
}

static uint32_t whole_slot(const gyre_plan_host *host, gyre_builder *b,
                           uint32_t kind, uint32_t rows, uint32_t dtype,
                           uint32_t buf, uint32_t flags)
{
    gyre_plan_slot slot = {.kind = kind,
                           .rows = rows,
                           .h0 = 0,
                           .h1 = host->problem(b)->heads,
                           .dtype = dtype,
                           .buf = buf,
                           .flags = flags};
    return host->slot(b, &slot);
}

void hand_ring(void *user, uint32_t pass, uint32_t rank,
               const gyre_plan_host *host, gyre_builder *b)
{
    (void)user, (void)pass;
    const gyre_problem *p = host->problem(b);
    uint32_t ranks = p->ranks, in = GYRE_SLOT_EXTERNAL | GYRE_SLOT_SAVED;
    uint32_t mine_q = host->owned(b, GYRE_SIDE_Q, rank);
    uint32_t mine_kv = host->owned(b, GYRE_SIDE_KV, rank);
    uint32_t q =
        whole_slot(host, b, GYRE_VALUE_Q, mine_q, p->dtype, GYRE_NEW_BUF, in);
    uint32_t kv =
        whole_slot(host, b, GYRE_VALUE_KV, mine_kv, p->dtype, GYRE_NEW_BUF, in);
    uint32_t o =
        whole_slot(host, b, GYRE_VALUE_O, mine_q, p->dtype, GYRE_NEW_BUF, in);
    uint32_t st = whole_slot(host, b, GYRE_VALUE_ST, mine_q, p->stat_dtype,
                             GYRE_NEW_BUF, GYRE_SLOT_SAVED);
    uint32_t sum = whole_slot(host, b, GYRE_VALUE_O_SUM, mine_q, p->sum_dtype,
                              GYRE_NEW_BUF, 0);
    uint32_t bufs[2] = {GYRE_NEW_BUF, GYRE_NEW_BUF};
    uint32_t held = host->whole(b, kv);
    for (uint32_t i = 0; i < ranks; i++) {
        uint32_t next = GYRE_NO_VIEW;
        if (i + 1 < ranks) {
            uint32_t from = (rank + 2 * ranks - i - 1) % ranks;
            uint32_t slot = whole_slot(host, b, GYRE_VALUE_KV,
                                       host->owned(b, GYRE_SIDE_KV, from),
                                       p->dtype, bufs[i % 2], 0);
            if (bufs[i % 2] == GYRE_NEW_BUF)
                bufs[i % 2] = 5 + i; /* after the five above */
            next = host->whole(b, slot);
            host->begin(b, 1, "ring", GYRE_PATTERN_NONE);
            host->put(b, held, (rank + 1) % ranks, 0);
            host->get(b, next, (rank + ranks - 1) % ranks, 0);
            host->end(b);
        }
        uint32_t views[] = {host->whole(b, q), held, host->whole(b, sum)};
        host->op(b, 0, GYRE_OP_ATT, views, 3);
        held = next;
    }
    uint32_t views[] = {host->whole(b, sum), host->whole(b, o),
                        host->view(b, st, mine_q, 0, p->heads, GYRE_PLANE_LSE)};
    host->op(b, 0, GYRE_OP_FIN, views, 3);
}
