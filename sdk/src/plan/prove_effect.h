/* SPDX-License-Identifier: Apache-2.0 */
/* What ops (prove_op.c) and transfers (prove_move.c) do alike to cells. */
#ifndef GYRE_SRC_PLAN_PROVE_EFFECT_H
#define GYRE_SRC_PLAN_PROVE_EFFECT_H

#include "plan/prove.h"

/* The op at hand. */
typedef struct gyre_effect {
    gyre_prover *v;
    uint32_t rank, op;
    const gyre_plan_op *ops;
    const uint32_t *views;
} gyre_effect;

static inline gyre_effect gyre_effect_of(gyre_prover *v, uint32_t rank,
                                         uint32_t op)
{
    const gyre_plan_op *ops = v->plan->programs[rank].ops;
    return (gyre_effect){v, rank, op, ops, ops[op].view};
}

/* Say what is wrong with a row, or with a cell (chunk, other) in the order of
 * the side of the sum.  Always false. */
bool gyre_effect_fail_row(const gyre_effect *e, const gyre_prove_view *view,
                          uint32_t chunk, uint32_t atom, const char *what);
bool gyre_effect_fail_cell(const gyre_effect *e, const gyre_prove_view *view,
                           uint32_t chunk, uint32_t other, uint32_t atom,
                           const char *what);

/* A chunk in x and y, or in x and not y; GYRE_NO_VIEW: none. */
static inline uint32_t gyre_effect_first_bit(const uint64_t *x,
                                             const uint64_t *y, bool inverse,
                                             uint32_t words)
{
    for (uint32_t i = 0; i < words; i++) {
        uint64_t both = x[i] & (inverse ? ~y[i] : y[i]);
        if (both != 0)
            return i * 64 + (uint32_t)__builtin_ctzll(both);
    }
    return GYRE_NO_VIEW;
}

/* The piece was read by a cell or an output. */
static inline void gyre_effect_mark(gyre_prover *v, uint32_t piece)
{
    if (piece > GYRE_PIECE_GIVEN)
        v->pieces[piece] |= GYRE_PIECE_USED | GYRE_PIECE_NEEDED;
}

/* Pieces for the rows of an op, the first in `first`; in a quotient nobody
 * asks.  False without memory. */
bool gyre_effect_pieces(const gyre_effect *e, uint32_t count, uint32_t *first);
static inline uint32_t gyre_effect_piece(const gyre_effect *e, uint32_t first,
                                         uint32_t i)
{
    return e->v->shift != NULL ? GYRE_PIECE_GIVEN : first + i;
}

/* A row of view b at `to` becomes `piece`, copied from the row of a at `from`,
 * or from nothing (NULL).  `local`: GYRE_CELL_UNREAD when a is of this rank. */
bool gyre_effect_write_row(const gyre_effect *e, const gyre_prove_view *b,
                           uint32_t chunk, uint32_t *to,
                           const gyre_prove_view *a, uint32_t *from,
                           uint32_t piece, uint32_t local);

/* A KV head that is shared by query heads within and beyond the view moves as
 * a whole: then nothing may have been added for those beyond. */
bool gyre_effect_heads_apart(const gyre_effect *e, const gyre_prove_view *a);

/* A sum's cell becomes `set`, unread. */
void gyre_effect_put_set(gyre_prover *v, uint32_t *cell, uint32_t set);
/* A row of sums: b = a.  The piece is needed when it changes anything. */
void gyre_effect_copy_sums(const gyre_effect *e, const gyre_prove_view *b,
                           uint32_t *to, uint32_t *from, uint32_t piece);
/* Narrowings behind slot b after b = a. */
void gyre_effect_pass_depth(gyre_prover *v, uint32_t from_rank, uint32_t a,
                            uint32_t to_rank, uint32_t b);

#endif
