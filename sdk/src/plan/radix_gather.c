/* SPDX-License-Identifier: Apache-2.0 */
/* The mixed radix: all-gathers within a team, and reduce-scatters of sums. */
#include "plan/radix.h"

/* ---- all-gather -----------------------------------------------------------
 */

typedef struct gathering {
    uint32_t from, to; /* slots: a block's, the team's */
} gathering;

/* The block that `held` has, into the team's slot. */
static gathering copy_own(radix_work *w, uint32_t kind, radix_part part,
                          uint32_t *buf)
{
    uint32_t side = gyre_value_side(kind);
    uint32_t dtype = w->builder->program.slots[w->held[kind]].dtype;
    gathering g = {w->held[kind],
                   radix_slot(w, kind, w->team[side], part, dtype, buf, 0)};

    radix_op2(w, GYRE_OP_CPY, radix_view(w, g.from, part),
              radix_rows(w, g.to, w->block[side], part));
    return g;
}

static void transfer(radix_work *w, const gathering *g, uint32_t side,
                     int digit, radix_part part)
{
    for (uint32_t i = 1; i < radix_count(w, digit); i++) {
        radix_place to = radix_move(w, w->here, digit, i);
        radix_place from = radix_move(w, w->here, digit, -(int64_t)i);

        w->host->put(w->builder, radix_view(w, g->from, part),
                     radix_rank(w, to), LANE_GATHER);
        w->host->get(w->builder,
                     radix_rows(w, g->to, radix_block(w, side, from), part),
                     radix_rank(w, from), LANE_GATHER);
    }
}

void radix_gather_q(radix_work *w)
{
    uint32_t kinds[3], count = radix_inputs(w, GYRE_SIDE_Q, kinds);
    gathering g[3];

    if (radix_count(w, DIGIT_Q_GATHER) == 1 || w->builder->status != GYRE_OK)
        return;
    for (uint32_t i = 0; i < count; i++)
        g[i] = copy_own(w, kinds[i], w->mine, NULL);
    w->host->begin(w->builder, LANE_GATHER, "gather", GYRE_PATTERN_AG);
    for (uint32_t i = 0; i < count; i++)
        transfer(w, &g[i], GYRE_SIDE_Q, DIGIT_Q_GATHER, w->mine);
    w->host->end(w->builder);
    for (uint32_t i = 0; i < count; i++)
        w->held[kinds[i]] = g[i].to;
}

uint32_t radix_gather_kv(radix_work *w, radix_part part, uint32_t *buf)
{
    if (w->builder->status != GYRE_OK)
        return 0;
    gathering g = copy_own(w, GYRE_VALUE_KV, part, buf);

    w->host->begin(w->builder, LANE_GATHER, "gather", GYRE_PATTERN_AG);
    transfer(w, &g, GYRE_SIDE_KV, DIGIT_KV_GATHER, part);
    w->host->end(w->builder);
    return g.to;
}

/* ---- reduce-scatter -------------------------------------------------------
 */

/* The slot to send from: the sum itself, or all but the own block of it in the
 * dtype of the wire. */
static uint32_t for_wire(radix_work *w, radix_reduction *r)
{
    if (!w->cast)
        return r->sum;
    uint32_t rows = radix_union(w, r->side, w->here, r->digit, 1);
    uint32_t out = radix_slot(w, radix_sum_kind(w, r->side), rows, r->part,
                              w->problem->wire_dtype, &r->send_buf, 0);
    radix_op2(w, GYRE_OP_CPY, radix_rows(w, r->sum, rows, r->part),
              radix_view(w, out, r->part));
    return out;
}

void radix_reduce_send(radix_work *w, radix_reduction *r)
{
    uint32_t count = radix_count(w, r->digit);

    if (count == 1 || w->builder->status != GYRE_OK)
        return;
    uint32_t out = for_wire(w, r);

    for (uint32_t i = 1; i < count; i++) {
        uint32_t buf =
            r->first_buf == GYRE_NEW_BUF ? GYRE_NEW_BUF : r->first_buf + i - 1;
        uint32_t slot =
            radix_slot(w, radix_sum_kind(w, r->side), w->block[r->side],
                       r->part, w->problem->wire_dtype, &buf, 0);
        if (i == 1)
            r->first_slot = slot;
        if (i + 1 == count)
            r->first_buf = buf + 2 - count;
    }
    w->host->begin(w->builder, LANE_REDUCE, "reduce", GYRE_PATTERN_RS);
    for (uint32_t i = 1; i < count; i++) {
        radix_place to = radix_move(w, w->here, r->digit, i);
        radix_place from = radix_move(w, w->here, r->digit, -(int64_t)i);
        uint32_t rows = radix_block(w, r->side, to);

        w->host->put(w->builder, radix_rows(w, out, rows, r->part),
                     radix_rank(w, to), LANE_REDUCE);
        w->host->get(w->builder, radix_view(w, r->first_slot + i - 1, r->part),
                     radix_rank(w, from), LANE_REDUCE);
    }
    w->host->end(w->builder);
}

void radix_reduce_add(radix_work *w, const radix_reduction *r)
{
    for (uint32_t i = 1; i < radix_count(w, r->digit); i++)
        radix_op2(w, GYRE_OP_RED, radix_view(w, r->first_slot + i - 1, r->part),
                  radix_rows(w, r->sum, w->block[r->side], r->part));
}
