/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mixed radix at work on one rank: what radix*.c share.  The public part is
 * gyre_radix in gyre/plugin.h.
 *
 *     home --split--> rows of all head ranks, fewer heads   (radix_split.c)
 *          --gather--> rows of the team                     (radix_gather.c)
 *          --ring--> every other block passes by            (radix_ring.c)
 *     sums --reduce--> own block --finish--> home
 *
 * Each rank does the same in the same order, so that the groups of a lane meet
 * and one lane alone would do.  The channel of a transfer is its lane.
 */
#ifndef GYRE_SRC_PLAN_RADIX_H
#define GYRE_SRC_PLAN_RADIX_H

#include "plan/plan.h"

/* Digits of a rank's number. */
enum {
    DIGIT_HEADS,
    DIGIT_Q_GATHER,
    DIGIT_KV_GATHER,
    DIGIT_OUTER,
    DIGIT_INNER,
    DIGIT_COUNT
};

enum {
    LANE_COMPUTE,
    LANE_INNER,
    LANE_INNER_SUM,
    LANE_OUTER,
    LANE_OUTER_SUM,
    LANE_GATHER,
    LANE_REDUCE,
    LANE_SPLIT
};

/* A rank by its digits. */
typedef struct radix_place {
    uint32_t at[DIGIT_COUNT];
} radix_place;

/* Query heads. */
typedef struct radix_part {
    uint32_t h0, h1;
} radix_part;

typedef struct radix_work {
    gyre_builder *builder;
    const gyre_plan_host *host;
    const gyre_problem *problem;
    const gyre_radix *radix;
    gyre_radix_digit digit[DIGIT_COUNT];
    radix_place here;
    bool backward;
    bool cast;                       /* sums change dtype for the wire */
    radix_part all;                  /* every head */
    radix_part mine;                 /* heads that this rank computes */
    uint32_t own[2];                 /* by side: rows of this rank, */
    uint32_t block[2];               /* of it and its head ranks, */
    uint32_t team[2];                /* of all blocks that it gathers */
    uint32_t home[GYRE_VALUE_COUNT]; /* slots of own rows and all heads */
    uint32_t held[GYRE_VALUE_COUNT]; /* slots to compute on */
    uint32_t final[2]; /* by side: slot of O or DQ, of DKV, where FIN writes */
    uint32_t sum[2];   /* O* or DQ*; DKV* of the part at hand */
} radix_work;

/* A reduce-scatter over one digit in two steps.  Bufs are kept for the next
 * one: start with send_buf and first_buf GYRE_NEW_BUF. */
typedef struct radix_reduction {
    int digit;
    uint32_t side;
    radix_part part;
    uint32_t sum;
    uint32_t send_buf, first_buf, first_slot;
} radix_reduction;

/* ---- helpers (radix.c) ---- */

static inline uint32_t radix_count(const radix_work *w, int digit)
{
    return w->digit[digit].count;
}
/* `by` places on along a digit, around its end; by >= -count. */
static inline radix_place radix_move(const radix_work *w, radix_place from,
                                     int digit, int64_t by)
{
    int64_t count = w->digit[digit].count, at = from.at[digit] + by;

    if (at < 0)
        at += count;
    else if (at >= count)
        at %= count;
    from.at[digit] = (uint32_t)at;
    return from;
}
uint32_t radix_rank(const radix_work *w, radix_place place);
/* Heads of a head rank. */
radix_part radix_heads(const radix_work *w, uint32_t digit);
/* Rows of the block at a place, and of the blocks that it gathers. */
uint32_t radix_block(radix_work *w, uint32_t side, radix_place place);
uint32_t radix_team(radix_work *w, uint32_t side, radix_place place);
/* Rows of the blocks that stand `first` and more places from `place` on a digit
 * (on the digit of heads: of ranks and not of blocks). */
uint32_t radix_union(radix_work *w, uint32_t side, radix_place place, int digit,
                     uint32_t first);
/* A slot in *buf; a new buf's number is put there.  buf NULL: a buf of its
 * own. */
uint32_t radix_slot(radix_work *w, uint32_t kind, uint32_t rows,
                    radix_part part, uint32_t dtype, uint32_t *buf,
                    uint32_t flags);
/* Views with all planes of the kind; radix_view of all rows. */
uint32_t radix_view(radix_work *w, uint32_t slot, radix_part part);
uint32_t radix_rows(radix_work *w, uint32_t slot, uint32_t rows,
                    radix_part part);
void radix_op2(radix_work *w, uint32_t code, uint32_t a, uint32_t b);
/* Kinds of a side that are read by ATT or GRD; returns how many (1 to 3). */
uint32_t radix_inputs(const radix_work *w, uint32_t side, uint32_t kinds[3]);
/* O*, DQ* or DKV* of a side; GYRE_VALUE_COUNT: none in this pass. */
uint32_t radix_sum_kind(const radix_work *w, uint32_t side);

/* ---- steps ---- */

/* Slots at home and by heads; delta; the all-to-all when there is one. */
void radix_open(radix_work *w);
/* FIN of own rows, or of the block when heads are split. */
void radix_finish(radix_work *w, uint32_t side, radix_part part, uint32_t sum);
/* The all-to-all back. */
void radix_close(radix_work *w);

/* The team's Q side into `held`; the team's KV of a part into a slot of its
 * own, in *buf. */
void radix_gather_q(radix_work *w);
uint32_t radix_gather_kv(radix_work *w, radix_part part, uint32_t *buf);
void radix_reduce_send(radix_work *w, radix_reduction *r);
void radix_reduce_add(radix_work *w, const radix_reduction *r);

/* Compute on everything that passes by, with `kv` as the KV at the start. */
void radix_ring(radix_work *w, radix_part part, uint32_t kv);

#endif
