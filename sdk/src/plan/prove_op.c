/* SPDX-License-Identifier: Apache-2.0 */
/* What each op does to the cells of slots. */
#include "plan/prove_effect.h"

#include <string.h>

static const uint32_t NONE = GYRE_NO_VIEW;

static bool has(const uint64_t *bits, uint32_t chunk)
{
    return bits[chunk / 64] >> chunk % 64 & 1;
}

static uint64_t *scratch(const gyre_effect *e, uint32_t i)
{
    return e->v->scratch + (size_t)i * e->v->sets.words;
}

/* ---- values ---------------------------------------------------------------
 */

/* All must be written; those whose chunk is in `used` are marked. */
static bool read_value(const gyre_effect *e, uint32_t id, const uint64_t *used)
{
    gyre_prove_view a;
    if (!gyre_prove_open(e->v, e->rank, e->op, id, &a))
        return false;
    uint32_t from = 0;
    for (uint32_t i = 0; i < a.count; i++) {
        uint32_t *cell = gyre_prove_row(&a, i, &from);
        bool use = used != NULL && has(used, a.rows[i]);
        for (uint32_t t = 0; t < a.atoms; t++, cell += a.planes)
            for (uint32_t p = 0; p < a.planes; p++) {
                if (!(a.view->planes >> p & 1))
                    continue;
                if (cell[p] == GYRE_PIECE_NONE)
                    return gyre_effect_fail_row(e, &a, a.rows[i], t,
                                                "reads an unwritten row");
                if (use)
                    gyre_effect_mark(e->v, cell[p]);
            }
    }
    return true;
}

/* ---- sums -----------------------------------------------------------------
 */

/* Add the cells of the view's rows with the chunks in `others`. */
static bool add_cells(const gyre_effect *e, uint32_t id, const uint64_t *others)
{
    gyre_prover *v = e->v;
    gyre_prove_view a;
    if (!gyre_prove_open(v, e->rank, e->op, id, &a))
        return false;
    uint32_t side = gyre_value_side(a.slot->kind), words = v->sets.words;
    uint32_t from = 0;
    for (uint32_t i = 0; i < a.count; i++) {
        const uint64_t *need = gyre_prove_need(v, side, a.rows[i]);
        if (need == NULL)
            return false;
        uint32_t *cell = gyre_prove_row(&a, i, &from);
        if (gyre_effect_first_bit(need, others, false, words) == NONE)
            continue;
        for (uint32_t t = 0; t < a.atoms; t++) {
            uint32_t set = gyre_set_own(&v->sets, cell[t] & ~GYRE_CELL_UNREAD);
            if (set == 0)
                return gyre_prove_no_memory(v);
            cell[t] = set | GYRE_CELL_UNREAD;
            uint64_t *bits = gyre_set_bits(&v->sets, set), twice = 0;
            for (uint32_t w = 0; w < words; w++) {
                uint64_t add = need[w] & others[w];
                twice |= bits[w] & add;
                if (twice == 0)
                    bits[w] |= add;
                else if ((bits[w] & add) != 0)
                    return gyre_effect_fail_cell(
                        e, &a, a.rows[i],
                        w * 64 + (uint32_t)__builtin_ctzll(bits[w] & add), t,
                        "is added twice");
            }
        }
    }
    return true;
}

static bool reduce(const gyre_effect *e)
{
    gyre_prover *v = e->v;
    gyre_prove_view a, b;
    if (!gyre_prove_open(v, e->rank, e->op, e->views[0], &a) ||
        !gyre_prove_open(v, e->rank, e->op, e->views[1], &b) ||
        !gyre_effect_heads_apart(e, &a))
        return false;
    uint32_t first, from_a = 0, from_b = 0, words = v->sets.words;
    if (!gyre_effect_pieces(e, a.count, &first))
        return false;
    for (uint32_t i = 0; i < a.count; i++) {
        uint32_t *x = gyre_prove_row(&a, i, &from_a);
        uint32_t *y = gyre_prove_row(&b, i, &from_b);
        for (uint32_t t = 0; t < a.atoms; t++) {
            uint32_t add = x[t] &= ~GYRE_CELL_UNREAD;
            uint32_t into = y[t] & ~GYRE_CELL_UNREAD;
            if (add == 0)
                continue;
            gyre_effect_mark(v, gyre_effect_piece(e, first, i));
            if (into == 0) {
                gyre_set_keep(&v->sets, add);
                y[t] = add | GYRE_CELL_UNREAD;
                continue;
            }
            uint64_t *p = gyre_set_bits(&v->sets, add);
            uint32_t twice = gyre_effect_first_bit(
                p, gyre_set_bits(&v->sets, into), false, words);
            if (twice != NONE)
                return gyre_effect_fail_cell(e, &b, a.rows[i], twice, t,
                                             "is added twice");
            into = gyre_set_own(&v->sets, into);
            if (into == 0)
                return gyre_prove_no_memory(v);
            y[t] = into | GYRE_CELL_UNREAD;
            uint64_t *q = gyre_set_bits(&v->sets, into);
            p = gyre_set_bits(&v->sets, add);
            for (uint32_t w = 0; w < words; w++)
                q[w] |= p[w];
        }
    }
    uint8_t *depth = v->rank[e->rank].depth;
    if (depth[a.view->slot] > depth[b.view->slot])
        depth[b.view->slot] = depth[a.view->slot];
    return true;
}

static bool copy(const gyre_effect *e)
{
    gyre_prover *v = e->v;
    gyre_prove_view a, b;
    if (!gyre_prove_open(v, e->rank, e->op, e->views[0], &a) ||
        !gyre_prove_open(v, e->rank, e->op, e->views[1], &b) ||
        !gyre_effect_heads_apart(e, &a) || !gyre_effect_heads_apart(e, &b))
        return false;
    uint32_t first, from_a = 0, from_b = 0;
    if (!gyre_effect_pieces(e, a.count, &first))
        return false;
    for (uint32_t i = 0; i < a.count; i++) {
        uint32_t *x = gyre_prove_row(&a, i, &from_a);
        uint32_t *y = gyre_prove_row(&b, i, &from_b);
        uint32_t piece = gyre_effect_piece(e, first, i);
        if (gyre_value_is_sum(a.slot->kind))
            gyre_effect_copy_sums(e, &b, y, x, piece);
        else if (!gyre_effect_write_row(e, &b, a.rows[i], y, &a, x, piece,
                                        GYRE_CELL_UNREAD))
            return false;
    }
    gyre_effect_pass_depth(v, e->rank, a.view->slot, e->rank, b.view->slot);
    return true;
}

/* ---- ATT, GRD, FIN, DLT ----------------------------------------------------
 */

static bool list_bits(const gyre_effect *e, uint32_t view, uint64_t *bits)
{
    const gyre_plan *plan = e->v->plan;
    const gyre_plan_rows *rows =
        &plan->rows[plan->programs[e->rank].views[view].rows];
    memset(bits, 0, e->v->sets.words * sizeof(*bits));
    for (uint32_t i = 0; i < rows->count; i++) {
        uint32_t chunk = plan->row_chunks[rows->first + i];
        bits[chunk / 64] |= UINT64_C(1) << chunk % 64;
    }
    return true;
}

/* Which rows of both sides have a cell in this op. */
static bool used_bits(const gyre_effect *e, uint32_t q_view)
{
    gyre_prover *v = e->v;
    uint64_t *kv = scratch(e, 1), *q_used = scratch(e, 2);
    uint64_t *kv_used = scratch(e, 3);
    uint32_t words = v->sets.words;
    memset(q_used, 0, 2 * (size_t)words * sizeof(*q_used));
    const gyre_plan_rows *rows =
        &v->plan->rows[v->plan->programs[e->rank].views[q_view].rows];
    for (uint32_t i = 0; i < rows->count; i++) {
        uint32_t q = v->plan->row_chunks[rows->first + i];
        const uint64_t *need = gyre_prove_need(v, GYRE_SIDE_Q, q);
        if (need == NULL)
            return false;
        uint64_t any = 0;
        for (uint32_t w = 0; w < words; w++) {
            any |= need[w] & kv[w];
            kv_used[w] |= need[w] & kv[w];
        }
        if (any != 0)
            q_used[q / 64] |= UINT64_C(1) << q % 64;
    }
    return true;
}

static bool attend(const gyre_effect *e, uint32_t kv)
{
    return list_bits(e, e->views[0], scratch(e, 0)) &&
           list_bits(e, e->views[kv], scratch(e, 1)) &&
           used_bits(e, e->views[0]) &&
           read_value(e, e->views[0], scratch(e, 2)) &&
           read_value(e, e->views[kv], scratch(e, 3));
}

static bool grad(const gyre_effect *e)
{
    if (!attend(e, 3) || !read_value(e, e->views[1], scratch(e, 2)) ||
        !read_value(e, e->views[2], scratch(e, 2)))
        return false;
    return (e->views[4] == NONE || add_cells(e, e->views[4], scratch(e, 1))) &&
           (e->views[5] == NONE || add_cells(e, e->views[5], scratch(e, 0)));
}

/* Every cell of the row was added. */
static bool complete(const gyre_effect *e, const gyre_prove_view *a,
                     uint32_t chunk, uint32_t *cell)
{
    gyre_prover *v = e->v;
    static const char what[] = "is missing";
    const uint64_t *need =
        gyre_prove_need(v, gyre_value_side(a->slot->kind), chunk);
    if (need == NULL)
        return false;
    for (uint32_t t = 0; t < a->atoms; t++) {
        uint32_t set = cell[t] &= ~GYRE_CELL_UNREAD;
        uint32_t lacks =
            set == 0 ? gyre_effect_first_bit(need, need, false, v->sets.words)
                     : gyre_effect_first_bit(need, gyre_set_bits(&v->sets, set),
                                             true, v->sets.words);
        if (lacks != NONE)
            return gyre_effect_fail_cell(e, a, chunk, lacks, t, what);
    }
    return true;
}

static bool finish(const gyre_effect *e)
{
    gyre_prover *v = e->v;
    gyre_prove_view a, b, st;
    bool has_st = e->views[2] != NONE;
    if (!gyre_prove_open(v, e->rank, e->op, e->views[0], &a) ||
        !gyre_prove_open(v, e->rank, e->op, e->views[1], &b) ||
        (has_st && !gyre_prove_open(v, e->rank, e->op, e->views[2], &st)))
        return false;
    uint32_t first, from[3] = {0};
    if (!gyre_effect_pieces(e, a.count, &first))
        return false;
    for (uint32_t i = 0; i < a.count; i++) {
        uint32_t piece = gyre_effect_piece(e, first, i);
        if (!complete(e, &a, a.rows[i], gyre_prove_row(&a, i, &from[0])) ||
            !gyre_effect_write_row(e, &b, a.rows[i],
                                   gyre_prove_row(&b, i, &from[1]), NULL, NULL,
                                   piece, 0))
            return false;
        if (has_st && !gyre_effect_write_row(e, &st, a.rows[i],
                                             gyre_prove_row(&st, i, &from[2]),
                                             NULL, NULL, piece, 0))
            return false;
    }
    uint32_t depth = v->rank[e->rank].depth[a.view->slot];
    if (depth > v->proof->cast_depth)
        v->proof->cast_depth = depth;
    return true;
}

/* Delta of a row is made from O and DO: needed when delta is. */
static bool delta(const gyre_effect *e)
{
    gyre_prove_view o, d, st;
    if (!read_value(e, e->views[0], NULL) ||
        !read_value(e, e->views[1], NULL) ||
        !gyre_prove_open(e->v, e->rank, e->op, e->views[0], &o) ||
        !gyre_prove_open(e->v, e->rank, e->op, e->views[1], &d) ||
        !gyre_prove_open(e->v, e->rank, e->op, e->views[2], &st))
        return false;
    uint32_t first, from[3] = {0};
    if (!gyre_effect_pieces(e, st.count, &first))
        return false;
    for (uint32_t i = 0; i < st.count; i++) {
        uint32_t piece = gyre_effect_piece(e, first, i);
        if (!gyre_effect_write_row(e, &st, st.rows[i],
                                   gyre_prove_row(&st, i, &from[2]), NULL, NULL,
                                   piece, 0))
            return false;
        uint32_t *both[2] = {gyre_prove_row(&o, i, &from[0]),
                             gyre_prove_row(&d, i, &from[1])};
        for (uint32_t t = 0; t < 2 * st.atoms; t++) {
            uint32_t source = both[t % 2][t / 2];
            if (source > GYRE_PIECE_GIVEN && piece > GYRE_PIECE_GIVEN &&
                !gyre_prove_edge(e->v, piece | GYRE_CELL_UNREAD, source))
                return false;
        }
    }
    return true;
}

bool gyre_prove_compute(gyre_prover *v, uint32_t rank, uint32_t op)
{
    gyre_effect e = gyre_effect_of(v, rank, op);
    switch (e.ops[op].code) {
    case GYRE_OP_ATT:
        return attend(&e, 1) && add_cells(&e, e.views[2], scratch(&e, 1));
    case GYRE_OP_GRD:
        return grad(&e);
    case GYRE_OP_RED:
        return reduce(&e);
    case GYRE_OP_CPY:
        return copy(&e);
    case GYRE_OP_FIN:
        return finish(&e);
    default:
        return delta(&e);
    }
}

/* ---- work ------------------------------------------------------------------
 */

static double area(const gyre_plan *plan, const gyre_chunk *q,
                   const gyre_chunk *kv, bool full)
{
    double all = (double)q->length * (double)kv->length * plan->problem.batch;
    gyre_cell cell =
        full ? GYRE_CELL_FULL
             : gyre_mask_cells(plan->mask, plan->problem.batch, q, kv);
    if (cell == GYRE_CELL_PARTIAL)
        return (double)gyre_mask_area(plan->mask, plan->problem.batch, q, kv);
    return cell == GYRE_CELL_FULL ? all : 0;
}

double gyre_prove_work(const gyre_prover *v, uint32_t rank, uint32_t op)
{
    const gyre_plan *plan = v->plan;
    const gyre_plan_program *p = &plan->programs[rank];
    uint32_t code = p->ops[op].code;
    if (code != GYRE_OP_ATT && code != GYRE_OP_GRD)
        return 0;
    const gyre_plan_view *q = &p->views[p->ops[op].view[0]];
    const gyre_plan_view *kv =
        &p->views[p->ops[op].view[code == GYRE_OP_ATT ? 1 : 3]];
    const uint32_t *x = gyre_plan_row_list(plan, q->rows);
    const uint32_t *y = gyre_plan_row_list(plan, kv->rows);
    double sum = 0;
    for (uint32_t i = 0; i < plan->rows[q->rows].count; i++)
        for (uint32_t j = 0; j < plan->rows[kv->rows].count; j++)
            sum += area(plan, &plan->problem.chunks[GYRE_SIDE_Q][x[i]],
                        &plan->problem.chunks[GYRE_SIDE_KV][y[j]],
                        v->shift != NULL);
    return sum * (q->h1 - q->h0);
}
