/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mixed radix: slots at home, and the all-to-all by heads and back.
 *
 * What backward finds kept: Q, KV and O at home, or all three by heads
 * (KEEP_SPLIT); and the statistics where FIN ran.  Delta is made where O is.
 */
#include "plan/radix.h"

static bool splits(const radix_work *w)
{
    return radix_count(w, DIGIT_HEADS) > 1;
}

static bool keeps_split(const radix_work *w)
{
    return splits(w) && (w->radix->flags & GYRE_RADIX_KEEP_SPLIT) != 0;
}

static radix_place head_rank(const radix_work *w, uint32_t by)
{
    return radix_move(w, w->here, DIGIT_HEADS, by);
}

static radix_part heads_of(const radix_work *w, radix_place place)
{
    return radix_heads(w, place.at[DIGIT_HEADS]);
}

static uint32_t own_rows(radix_work *w, uint32_t side, radix_place place)
{
    return w->host->owned(w->builder, side, radix_rank(w, place));
}

static uint32_t dtype_of(const radix_work *w, uint32_t kind)
{
    return kind == GYRE_VALUE_ST ? w->problem->stat_dtype : w->problem->dtype;
}

/* ---- slots ----------------------------------------------------------------
 */

static void at_home(radix_work *w, uint32_t kind, uint32_t flags)
{
    w->home[kind] = radix_slot(w, kind, w->own[gyre_value_side(kind)], w->all,
                               dtype_of(w, kind), NULL, flags);
}

static uint32_t by_heads(radix_work *w, uint32_t kind, uint32_t flags)
{
    return radix_slot(w, kind, w->block[gyre_value_side(kind)], w->mine,
                      dtype_of(w, kind), NULL, flags);
}

/* ---- all-to-all ------------------------------------------------------------
 */

static uint32_t planes_of(uint32_t kind)
{
    return kind == GYRE_VALUE_ST ? (uint32_t)GYRE_PLANE_DELTA
                                 : gyre_value_planes(kind);
}

static uint32_t view_of(radix_work *w, uint32_t slot, uint32_t rows,
                        radix_part part, uint32_t kind)
{
    return w->host->view(w->builder, slot, rows, part.h0, part.h1,
                         planes_of(kind));
}

/* From home to `held`, each kind in turn; the own part is copied. */
static void split(radix_work *w, const uint32_t *kinds, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++) {
        uint32_t kind = kinds[k], own = w->own[gyre_value_side(kind)];
        radix_op2(w, GYRE_OP_CPY, view_of(w, w->home[kind], own, w->mine, kind),
                  view_of(w, w->held[kind], own, w->mine, kind));
    }
    w->host->begin(w->builder, LANE_SPLIT, "a2a", GYRE_PATTERN_A2A);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t kind = kinds[k], side = gyre_value_side(kind);
        for (uint32_t i = 1; i < radix_count(w, DIGIT_HEADS); i++) {
            radix_place to = head_rank(w, i);
            radix_place from = head_rank(w, radix_count(w, DIGIT_HEADS) - i);

            w->host->put(
                w->builder,
                view_of(w, w->home[kind], w->own[side], heads_of(w, to), kind),
                radix_rank(w, to), LANE_SPLIT);
            w->host->get(w->builder,
                         view_of(w, w->held[kind], own_rows(w, side, from),
                                 w->mine, kind),
                         radix_rank(w, from), LANE_SPLIT);
        }
    }
    w->host->end(w->builder);
}

/* ---- open -----------------------------------------------------------------
 */

static void open_forward(radix_work *w)
{
    static const uint32_t inputs[] = {GYRE_VALUE_Q, GYRE_VALUE_KV};
    uint32_t keep = keeps_split(w) ? GYRE_SLOT_SAVED : 0;
    uint32_t flags = GYRE_SLOT_EXTERNAL | GYRE_SLOT_SAVED;

    at_home(w, GYRE_VALUE_Q, flags);
    at_home(w, GYRE_VALUE_KV, flags);
    at_home(w, GYRE_VALUE_O, flags);
    w->held[GYRE_VALUE_ST] = by_heads(w, GYRE_VALUE_ST, GYRE_SLOT_SAVED);
    if (!splits(w)) {
        w->held[GYRE_VALUE_Q] = w->home[GYRE_VALUE_Q];
        w->held[GYRE_VALUE_KV] = w->home[GYRE_VALUE_KV];
        w->final[GYRE_SIDE_Q] = w->home[GYRE_VALUE_O];
        return;
    }
    w->held[GYRE_VALUE_Q] = by_heads(w, GYRE_VALUE_Q, keep);
    w->held[GYRE_VALUE_KV] = by_heads(w, GYRE_VALUE_KV, keep);
    w->final[GYRE_SIDE_Q] = by_heads(w, GYRE_VALUE_O, keep);
    split(w, inputs, 2);
}

/* Delta of slots that all have the same rows and heads. */
static void make_delta(radix_work *w, uint32_t o, uint32_t d_o, uint32_t st,
                       radix_part part)
{
    uint32_t rows = st < w->builder->program.slot_count
                        ? w->builder->program.slots[st].rows
                        : 0;
    uint32_t views[] = {radix_view(w, o, part), radix_view(w, d_o, part),
                        view_of(w, st, rows, part, GYRE_VALUE_ST)};

    w->host->op(w->builder, LANE_COMPUTE, GYRE_OP_DLT, views, 3);
}

static void open_kept_split(radix_work *w)
{
    static const uint32_t inputs[] = {GYRE_VALUE_DO};

    w->held[GYRE_VALUE_Q] = by_heads(w, GYRE_VALUE_Q, GYRE_SLOT_SAVED);
    w->held[GYRE_VALUE_KV] = by_heads(w, GYRE_VALUE_KV, GYRE_SLOT_SAVED);
    w->held[GYRE_VALUE_O] = by_heads(w, GYRE_VALUE_O, GYRE_SLOT_SAVED);
    w->held[GYRE_VALUE_DO] = by_heads(w, GYRE_VALUE_DO, 0);
    split(w, inputs, 1);
    make_delta(w, w->held[GYRE_VALUE_O], w->held[GYRE_VALUE_DO],
               w->held[GYRE_VALUE_ST], w->mine);
}

static void open_kept_home(radix_work *w)
{
    static const uint32_t inputs[] = {GYRE_VALUE_Q, GYRE_VALUE_KV,
                                      GYRE_VALUE_DO, GYRE_VALUE_ST};

    at_home(w, GYRE_VALUE_Q, GYRE_SLOT_EXTERNAL);
    at_home(w, GYRE_VALUE_KV, GYRE_SLOT_EXTERNAL);
    at_home(w, GYRE_VALUE_O, GYRE_SLOT_SAVED);
    if (splits(w)) {
        at_home(w, GYRE_VALUE_ST, 0);
        for (int i = 0; i < 3; i++)
            w->held[inputs[i]] = by_heads(w, inputs[i], 0);
    } else {
        w->home[GYRE_VALUE_ST] = w->held[GYRE_VALUE_ST];
        for (int i = 0; i < 3; i++)
            w->held[inputs[i]] = w->home[inputs[i]];
    }
    make_delta(w, w->home[GYRE_VALUE_O], w->home[GYRE_VALUE_DO],
               w->home[GYRE_VALUE_ST], w->all);
    if (splits(w))
        split(w, inputs, 4);
}

void radix_open(radix_work *w)
{
    if (!w->backward) {
        open_forward(w);
        return;
    }
    at_home(w, GYRE_VALUE_DO, GYRE_SLOT_EXTERNAL);
    at_home(w, GYRE_VALUE_DQ, GYRE_SLOT_EXTERNAL);
    at_home(w, GYRE_VALUE_DKV, GYRE_SLOT_EXTERNAL);
    w->held[GYRE_VALUE_ST] = by_heads(w, GYRE_VALUE_ST, GYRE_SLOT_SAVED);
    if (keeps_split(w))
        open_kept_split(w);
    else
        open_kept_home(w);
    w->final[GYRE_SIDE_Q] =
        splits(w) ? by_heads(w, GYRE_VALUE_DQ, 0) : w->home[GYRE_VALUE_DQ];
    w->final[GYRE_SIDE_KV] = w->home[GYRE_VALUE_DKV];
}

/* ---- close ----------------------------------------------------------------
 */

/* DKV* by heads stays a sum: ranks that share a KV head each have a part. */
void radix_finish(radix_work *w, uint32_t side, radix_part part, uint32_t sum)
{
    uint32_t block = w->block[side], count = 2;
    uint32_t views[3];

    if (side == GYRE_SIDE_KV && splits(w))
        return;
    views[0] = radix_rows(w, sum, block, part);
    views[1] = radix_rows(w, w->final[side], block, part);
    if (!w->backward) {
        views[2] = w->host->view(w->builder, w->held[GYRE_VALUE_ST], block,
                                 part.h0, part.h1, GYRE_PLANE_LSE);
        count = 3;
    }
    w->host->op(w->builder, LANE_COMPUTE, GYRE_OP_FIN, views, count);
}

/* DKV* of the block in the dtype of the wire, without the own rows. */
static uint32_t sums_for_wire(radix_work *w)
{
    uint32_t rows = 0, sum = w->sum[GYRE_SIDE_KV];

    if (!w->cast)
        return sum;
    for (uint32_t i = 1; i < radix_count(w, DIGIT_HEADS); i++) {
        uint32_t one = own_rows(w, GYRE_SIDE_KV, head_rank(w, i));
        rows = i == 1 ? one : w->host->join(w->builder, rows, one);
    }
    uint32_t out = radix_slot(w, GYRE_VALUE_DKV_SUM, rows, w->mine,
                              w->problem->wire_dtype, NULL, 0);
    radix_op2(w, GYRE_OP_CPY, radix_rows(w, sum, rows, w->mine),
              radix_view(w, out, w->mine));
    return out;
}

/* O or DQ, and DKV* (from `sums` into slots from `first` on). */
static void send_back(radix_work *w, uint32_t kind, uint32_t sums,
                      uint32_t first)
{
    uint32_t count = radix_count(w, DIGIT_HEADS);
    uint32_t q_own = w->own[GYRE_SIDE_Q];

    w->host->begin(w->builder, LANE_SPLIT, "a2a", GYRE_PATTERN_A2A);
    for (uint32_t i = 1; i < count; i++) {
        radix_place to = head_rank(w, i), from = head_rank(w, count - i);
        uint32_t rank = radix_rank(w, to);

        w->host->put(w->builder,
                     radix_rows(w, w->final[GYRE_SIDE_Q],
                                own_rows(w, GYRE_SIDE_Q, to), w->mine),
                     rank, LANE_SPLIT);
        if (w->backward)
            w->host->put(
                w->builder,
                radix_rows(w, sums, own_rows(w, GYRE_SIDE_KV, to), w->mine),
                rank, LANE_SPLIT);
        rank = radix_rank(w, from);
        w->host->get(w->builder,
                     radix_rows(w, w->home[kind], q_own, heads_of(w, from)),
                     rank, LANE_SPLIT);
        if (w->backward)
            w->host->get(w->builder,
                         radix_view(w, first + i - 1, heads_of(w, from)), rank,
                         LANE_SPLIT);
    }
    w->host->end(w->builder);
}

/* Add what came to the own part, at home. */
static void add_back(radix_work *w, uint32_t first)
{
    uint32_t count = radix_count(w, DIGIT_HEADS);
    uint32_t own = w->own[GYRE_SIDE_KV];
    uint32_t sum = radix_slot(w, GYRE_VALUE_DKV_SUM, own, w->all,
                              w->problem->sum_dtype, NULL, 0);

    radix_op2(w, GYRE_OP_RED, radix_rows(w, w->sum[GYRE_SIDE_KV], own, w->mine),
              radix_rows(w, sum, own, w->mine));
    for (uint32_t i = 1; i < count; i++) {
        radix_part part = heads_of(w, head_rank(w, count - i));
        radix_op2(w, GYRE_OP_RED, radix_view(w, first + i - 1, part),
                  radix_rows(w, sum, own, part));
    }
    radix_op2(w, GYRE_OP_FIN, radix_view(w, sum, w->all),
              radix_view(w, w->home[GYRE_VALUE_DKV], w->all));
}

void radix_close(radix_work *w)
{
    uint32_t kind = w->backward ? GYRE_VALUE_DQ : GYRE_VALUE_O;
    uint32_t count = radix_count(w, DIGIT_HEADS);
    uint32_t own = w->own[GYRE_SIDE_Q], sums = 0, first = 0;

    if (!splits(w) || w->builder->status != GYRE_OK)
        return;
    radix_op2(w, GYRE_OP_CPY,
              radix_rows(w, w->final[GYRE_SIDE_Q], own, w->mine),
              radix_rows(w, w->home[kind], own, w->mine));
    if (w->backward) {
        sums = sums_for_wire(w);
        for (uint32_t i = 1; i < count; i++) {
            uint32_t slot =
                radix_slot(w, GYRE_VALUE_DKV_SUM, w->own[GYRE_SIDE_KV],
                           heads_of(w, head_rank(w, count - i)),
                           w->problem->wire_dtype, NULL, 0);
            first = i == 1 ? slot : first;
        }
    }
    send_back(w, kind, sums, first);
    if (w->backward)
        add_back(w, first);
}
