/* SPDX-License-Identifier: Apache-2.0 */
/* What a transfer does to the cells of both ends. */
#include "plan/prove_effect.h"

/* The set moved by a rank's coordinates. */
static uint32_t moved(gyre_prover *v, uint32_t side, uint32_t set, uint32_t by)
{
    if (set == 0 || by == 0)
        return gyre_set_keep(&v->sets, set), set;
    uint32_t fresh = gyre_set_own(&v->sets, 0);
    if (fresh == 0)
        return 0;
    uint64_t *to = gyre_set_bits(&v->sets, fresh);
    const uint64_t *bits = gyre_set_bits(&v->sets, set);
    for (uint32_t w = 0; w < v->sets.words; w++)
        for (uint64_t left = bits[w]; left != 0; left &= left - 1) {
            uint32_t chunk = gyre_shift_chunk(
                v->shift, side, w * 64 + (uint32_t)__builtin_ctzll(left), by);
            to[chunk / 64] |= UINT64_C(1) << chunk % 64;
        }
    return fresh;
}

static uint32_t find_row(const gyre_prove_view *b, uint32_t chunk)
{
    uint32_t low = 0, high = b->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (b->rows[middle] < chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* As a transfer between equal ranks: what the peer holds is what this rank
 * holds, moved. */
static bool move_shifted(const gyre_effect *get, gyre_prove_view *a,
                         gyre_prove_view *b, uint32_t by)
{
    gyre_prover *v = get->v;
    uint32_t side = gyre_value_side(a->slot->kind);
    uint32_t other = side == GYRE_SIDE_Q ? GYRE_SIDE_KV : GYRE_SIDE_Q;
    uint32_t from = 0;
    /* All heads stay all heads, but which of them a sum has got would have to
     * move: for the expanded proof to say. */
    if (gyre_value_is_sum(a->slot->kind) && a->view->h0 == 0 &&
        a->view->h1 == v->plan->problem.heads &&
        gyre_shift_heads(v->shift, by) != 0)
        return gyre_prove_fail(v, get->rank, get->op, GYRE_NO_VIEW,
                               GYRE_NO_VIEW, GYRE_NO_VIEW,
                               "sums of all heads go to a rank of other heads");
    for (uint32_t i = 0; i < a->count; i++) {
        uint32_t *x = gyre_prove_row(a, i, &from), at = 0;
        uint32_t chunk = gyre_shift_chunk(v->shift, side, a->rows[i], by);
        uint32_t *y = gyre_prove_row(b, find_row(b, chunk), &at);
        if (!gyre_value_is_sum(a->slot->kind)) {
            if (!gyre_effect_write_row(get, b, chunk, y, a, x, GYRE_PIECE_GIVEN,
                                       0))
                return false;
            continue;
        }
        for (uint32_t t = 0; t < a->atoms; t++) {
            uint32_t set = x[t] &= ~GYRE_CELL_UNREAD;
            uint32_t there = moved(v, other, set, by);
            if (set != 0 && there == 0)
                return gyre_prove_no_memory(v);
            gyre_effect_put_set(v, &y[t], there);
            gyre_set_drop(&v->sets, there);
        }
    }
    return true;
}

static bool move_plain(const gyre_effect *get, gyre_prove_view *a,
                       gyre_prove_view *b)
{
    uint32_t first, from_a = 0, from_b = 0;
    if (!gyre_effect_pieces(get, b->count, &first))
        return false;
    for (uint32_t i = 0; i < a->count; i++) {
        uint32_t *x = gyre_prove_row(a, i, &from_a);
        uint32_t *y = gyre_prove_row(b, i, &from_b);
        if (gyre_value_is_sum(a->slot->kind))
            gyre_effect_copy_sums(get, b, y, x, first + i);
        else if (!gyre_effect_write_row(get, b, a->rows[i], y, a, x, first + i,
                                        0))
            return false;
    }
    return true;
}

/* Blame the sender for a row it has not got. */
static bool sendable(const gyre_effect *put, const gyre_prove_view *a)
{
    uint32_t from = 0;
    for (uint32_t i = 0; i < a->count && !gyre_value_is_sum(a->slot->kind);
         i++) {
        const uint32_t *x = gyre_prove_row(a, i, &from);
        for (uint32_t t = 0; t < a->atoms; t++)
            for (uint32_t p = 0; p < a->planes; p++)
                if ((a->view->planes >> p & 1) && x[t * a->planes + p] == 0)
                    return gyre_effect_fail_row(put, a, a->rows[i], t,
                                                "sends an unwritten row");
    }
    return gyre_effect_heads_apart(put, a);
}

bool gyre_prove_move(gyre_prover *v, uint32_t put, uint32_t get)
{
    const gyre_prove_transfer *s = &v->transfers[put], *d = &v->transfers[get];
    gyre_effect from = gyre_effect_of(v, s->rank, s->op);
    gyre_effect to = gyre_effect_of(v, d->rank, d->op);
    gyre_prove_view a, b;
    if (!gyre_prove_open(v, s->rank, s->op, from.views[0], &a) ||
        !gyre_prove_open(v, d->rank, d->op, to.views[0], &b) ||
        !sendable(&from, &a) || !gyre_effect_heads_apart(&to, &b))
        return false;
    gyre_effect_pass_depth(v, s->rank, a.view->slot, d->rank, b.view->slot);
    if (v->shift != NULL)
        return move_shifted(&to, &a, &b, to.views[1]);
    return move_plain(&to, &a, &b);
}
