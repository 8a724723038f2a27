/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of one rank, which all others are held against. */
#include "attention/face.h"

static uint32_t slot(const gyre_plan_host *host, gyre_builder *b, uint32_t kind,
                     uint32_t dtype, uint32_t flags)
{
    gyre_plan_slot given = {.kind = kind,
                            .rows = host->owned(b, gyre_value_side(kind), 0),
                            .h1 = host->problem(b)->heads,
                            .dtype = dtype,
                            .buf = GYRE_NEW_BUF,
                            .flags = flags};
    return host->slot(b, &given);
}

static void forward(const gyre_plan_host *host, gyre_builder *b)
{
    const gyre_problem *p = host->problem(b);
    uint32_t user = GYRE_SLOT_EXTERNAL | GYRE_SLOT_SAVED;
    uint32_t q = slot(host, b, GYRE_VALUE_Q, p->dtype, user);
    uint32_t kv = slot(host, b, GYRE_VALUE_KV, p->dtype, user);
    uint32_t o = slot(host, b, GYRE_VALUE_O, p->dtype, user);
    uint32_t st = slot(host, b, GYRE_VALUE_ST, p->stat_dtype, GYRE_SLOT_SAVED);
    uint32_t sum = slot(host, b, GYRE_VALUE_O_SUM, p->sum_dtype, 0);
    uint32_t attend[] = {host->whole(b, q), host->whole(b, kv),
                         host->whole(b, sum)};
    host->op(b, 0, GYRE_OP_ATT, attend, 3);
    uint32_t finish[] = {host->whole(b, sum), host->whole(b, o),
                         host->view(b, st, host->owned(b, GYRE_SIDE_Q, 0), 0,
                                    p->heads, GYRE_PLANE_LSE)};
    host->op(b, 0, GYRE_OP_FIN, finish, 3);
}

static void backward(const gyre_plan_host *host, gyre_builder *b)
{
    const gyre_problem *p = host->problem(b);
    uint32_t user = GYRE_SLOT_EXTERNAL;
    uint32_t q = slot(host, b, GYRE_VALUE_Q, p->dtype, user);
    uint32_t kv = slot(host, b, GYRE_VALUE_KV, p->dtype, user);
    uint32_t o = slot(host, b, GYRE_VALUE_O, p->dtype, GYRE_SLOT_SAVED);
    uint32_t st = slot(host, b, GYRE_VALUE_ST, p->stat_dtype, GYRE_SLOT_SAVED);
    uint32_t d_o = slot(host, b, GYRE_VALUE_DO, p->dtype, user);
    uint32_t sums[] = {slot(host, b, GYRE_VALUE_DQ_SUM, p->sum_dtype, 0),
                       slot(host, b, GYRE_VALUE_DKV_SUM, p->sum_dtype, 0)};
    uint32_t ends[] = {slot(host, b, GYRE_VALUE_DQ, p->dtype, user),
                       slot(host, b, GYRE_VALUE_DKV, p->dtype, user)};
    uint32_t dot[] = {host->whole(b, o), host->whole(b, d_o),
                      host->view(b, st, host->owned(b, GYRE_SIDE_Q, 0), 0,
                                 p->heads, GYRE_PLANE_DELTA)};
    host->op(b, 0, GYRE_OP_DLT, dot, 3);
    uint32_t grad[] = {host->whole(b, q),       host->whole(b, d_o),
                       host->whole(b, st),      host->whole(b, kv),
                       host->whole(b, sums[0]), host->whole(b, sums[1])};
    host->op(b, 0, GYRE_OP_GRD, grad, 6);
    for (int i = 0; i < 2; i++) {
        uint32_t finish[] = {host->whole(b, sums[i]), host->whole(b, ends[i])};
        host->op(b, 0, GYRE_OP_FIN, finish, 2);
    }
}

void gyre_solo_emit(void *user, uint32_t pass, uint32_t rank,
                    const gyre_plan_host *host, gyre_builder *b)
{
    (void)user;
    if (rank > 0)
        host->refuse(b, "this schedule is for one rank");
    else if (pass == GYRE_PASS_FORWARD)
        forward(host, b);
    else
        backward(host, b);
}
