/* SPDX-License-Identifier: Apache-2.0 */
/* What ops and transfers do alike to the cells of slots. */
#include "plan/prove_effect.h"

bool gyre_effect_fail_row(const gyre_effect *e, const gyre_prove_view *view,
                          uint32_t chunk, uint32_t atom, const char *what)
{
    bool q = gyre_value_side(view->slot->kind) == GYRE_SIDE_Q;
    return gyre_prove_fail(
        e->v, e->rank, e->op, q ? chunk : GYRE_NO_VIEW,
        q ? GYRE_NO_VIEW : chunk,
        gyre_prove_head(e->v, e->v->atom[view->view->h0] + atom),
        "%s %s of slot %u (%s)", gyre_op_name(e->ops[e->op].code), what,
        view->view->slot, gyre_value_name(view->slot->kind));
}

bool gyre_effect_fail_cell(const gyre_effect *e, const gyre_prove_view *view,
                           uint32_t chunk, uint32_t other, uint32_t atom,
                           const char *what)
{
    bool q = gyre_value_side(view->slot->kind) == GYRE_SIDE_Q;
    return gyre_prove_fail(
        e->v, e->rank, e->op, q ? chunk : other, q ? other : chunk,
        gyre_prove_head(e->v, e->v->atom[view->view->h0] + atom),
        "%s: a cell of slot %u (%s) %s", gyre_op_name(e->ops[e->op].code),
        view->view->slot, gyre_value_name(view->slot->kind), what);
}

static bool is_final(uint32_t kind)
{
    return kind == GYRE_VALUE_O || kind == GYRE_VALUE_DQ ||
           kind == GYRE_VALUE_DKV;
}

bool gyre_effect_write_row(const gyre_effect *e, const gyre_prove_view *b,
                           uint32_t chunk, uint32_t *to,
                           const gyre_prove_view *a, uint32_t *from,
                           uint32_t piece, uint32_t local)
{
    uint32_t last = GYRE_PIECE_NONE;
    for (uint32_t t = 0; t < b->atoms; t++)
        for (uint32_t p = 0; p < b->planes; p++) {
            if (!(b->view->planes >> p & 1))
                continue;
            uint32_t *cell = &to[(size_t)t * b->planes + p];
            if (is_final(b->slot->kind) && *cell != GYRE_PIECE_NONE)
                return gyre_effect_fail_row(e, b, chunk, t,
                                            "writes a final row again");
            *cell = piece;
            if (a == NULL)
                continue;
            uint32_t source = from[(size_t)t * a->planes + p];
            if (source == GYRE_PIECE_NONE)
                return gyre_effect_fail_row(e, a, chunk, t,
                                            "reads an unwritten row");
            if (source > GYRE_PIECE_GIVEN && source != last &&
                piece > GYRE_PIECE_GIVEN &&
                !gyre_prove_edge(e->v, piece | local, source))
                return false;
            last = source;
        }
    return true;
}

bool gyre_effect_pieces(const gyre_effect *e, uint32_t count, uint32_t *first)
{
    *first = GYRE_PIECE_GIVEN;
    if (e->v->shift != NULL)
        return true;
    *first = gyre_prove_pieces(e->v, count);
    e->v->made[e->v->rank[e->rank].op_base + e->op] = *first;
    return *first != 0;
}

bool gyre_effect_heads_apart(const gyre_effect *e, const gyre_prove_view *a)
{
    const gyre_problem *p = &e->v->plan->problem;
    uint32_t share = p->heads / p->kv_heads;
    uint32_t h0 = a->view->h0, h1 = a->view->h1;
    if (a->slot->kind != GYRE_VALUE_DKV_SUM ||
        (h0 % share == 0 && h1 % share == 0))
        return true;
    uint32_t low = h0 - h0 % share, high = (h1 + share - 1) / share * share;
    if (low < a->slot->h0)
        low = a->slot->h0;
    if (high > a->slot->h1)
        high = a->slot->h1;
    uint32_t base = e->v->atom[a->slot->h0], from = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        const uint32_t *row = gyre_prove_row(a, i, &from) - a->first_atom;
        for (uint32_t t = e->v->atom[low]; t < e->v->atom[high]; t++)
            if ((t < e->v->atom[h0] || t >= e->v->atom[h1]) &&
                (row[t - base] & ~GYRE_CELL_UNREAD) != 0)
                return gyre_prove_fail(
                    e->v, e->rank, e->op, GYRE_NO_VIEW, a->rows[i],
                    gyre_prove_head(e->v, t),
                    "%s of heads %u..%u parts a KV head of slot %u, which "
                    "holds sums of its other queries too",
                    gyre_op_name(e->ops[e->op].code), h0, h1, a->view->slot);
    }
    return true;
}

void gyre_effect_put_set(gyre_prover *v, uint32_t *cell, uint32_t set)
{
    gyre_set_keep(&v->sets, set);
    gyre_set_drop(&v->sets, *cell & ~GYRE_CELL_UNREAD);
    *cell = set != 0 ? set | GYRE_CELL_UNREAD : 0;
}

void gyre_effect_copy_sums(const gyre_effect *e, const gyre_prove_view *b,
                           uint32_t *to, uint32_t *from, uint32_t piece)
{
    for (uint32_t t = 0; t < b->atoms; t++) {
        from[t] &= ~GYRE_CELL_UNREAD;
        if (from[t] != 0 || to[t] != 0)
            gyre_effect_mark(e->v, piece);
        gyre_effect_put_set(e->v, &to[t], from[t]);
    }
}

void gyre_effect_pass_depth(gyre_prover *v, uint32_t from_rank, uint32_t a,
                            uint32_t to_rank, uint32_t b)
{
    const gyre_plan_slot *x = &v->plan->programs[from_rank].slots[a];
    const gyre_plan_slot *y = &v->plan->programs[to_rank].slots[b];
    uint32_t depth = v->rank[from_rank].depth[a];
    if (gyre_dtype_bytes((gyre_dtype)y->dtype) <
            gyre_dtype_bytes((gyre_dtype)x->dtype) &&
        depth < UINT8_MAX)
        depth++;
    if (depth > v->rank[to_rank].depth[b])
        v->rank[to_rank].depth[b] = (uint8_t)depth;
}
