/* SPDX-License-Identifier: Apache-2.0 */
/* What each op does to the cells of slots. */
#include "plan/prove.h"

#include <string.h>

static const uint32_t NONE = GYRE_NO_VIEW;

/* The op at hand. */
typedef struct effect {
    gyre_prover *v;
    uint32_t rank, op;
    const gyre_plan_op *ops;
    const uint32_t *views;
} effect;

static effect effect_of(gyre_prover *v, uint32_t rank, uint32_t op)
{
    const gyre_plan_op *ops = v->plan->programs[rank].ops;
    return (effect){v, rank, op, ops, ops[op].view};
}

static bool fail_row(const effect *e, const gyre_prove_view *view,
                     uint32_t chunk, uint32_t atom, const char *what)
{
    bool q = gyre_value_side(view->slot->kind) == GYRE_SIDE_Q;
    return gyre_prove_fail(
        e->v, e->rank, e->op, q ? chunk : NONE, q ? NONE : chunk,
        gyre_prove_head(e->v, e->v->atom[view->view->h0] + atom),
        "%s %s of slot %u (%s)", gyre_op_name(e->ops[e->op].code), what,
        view->view->slot, gyre_value_name(view->slot->kind));
}

/* A cell (q, kv) in the order of the side of the sum. */
static bool fail_cell(const effect *e, const gyre_prove_view *view,
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

static uint64_t *scratch(const effect *e, uint32_t i)
{
    return e->v->scratch + (size_t)i * e->v->sets.words;
}

static bool has(const uint64_t *bits, uint32_t chunk)
{
    return bits[chunk / 64] >> chunk % 64 & 1;
}

static uint32_t first_bit(const uint64_t *x, const uint64_t *y, bool inverse,
                          uint32_t words)
{
    for (uint32_t i = 0; i < words; i++) {
        uint64_t both = x[i] & (inverse ? ~y[i] : y[i]);
        if (both != 0)
            return i * 64 + (uint32_t)__builtin_ctzll(both);
    }
    return NONE;
}

/* ---- values ---------------------------------------------------------------
 */

static void mark(gyre_prover *v, uint32_t piece)
{
    if (piece > GYRE_PIECE_GIVEN)
        v->pieces[piece] |= GYRE_PIECE_USED | GYRE_PIECE_NEEDED;
}

/* All must be written; those whose chunk is in `used` are marked. */
static bool read_value(const effect *e, uint32_t id, const uint64_t *used)
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
                    return fail_row(e, &a, a.rows[i], t,
                                    "reads an unwritten row");
                if (use)
                    mark(e->v, cell[p]);
            }
    }
    return true;
}

static bool is_final(uint32_t kind)
{
    return kind == GYRE_VALUE_O || kind == GYRE_VALUE_DQ ||
           kind == GYRE_VALUE_DKV;
}

/* Row i of view b becomes `piece`, copied from the row of a, or from nothing.
 */
static bool write_row(const effect *e, const gyre_prove_view *b, uint32_t chunk,
                      uint32_t *to, const gyre_prove_view *a, uint32_t *from,
                      uint32_t piece, uint32_t local)
{
    uint32_t last = GYRE_PIECE_NONE;
    for (uint32_t t = 0; t < b->atoms; t++)
        for (uint32_t p = 0; p < b->planes; p++) {
            if (!(b->view->planes >> p & 1))
                continue;
            uint32_t *cell = &to[(size_t)t * b->planes + p];
            if (is_final(b->slot->kind) && *cell != GYRE_PIECE_NONE)
                return fail_row(e, b, chunk, t, "writes a final row again");
            *cell = piece;
            if (a == NULL)
                continue;
            uint32_t source = from[(size_t)t * a->planes + p];
            if (source == GYRE_PIECE_NONE)
                return fail_row(e, a, chunk, t, "reads an unwritten row");
            if (source > GYRE_PIECE_GIVEN && source != last &&
                piece > GYRE_PIECE_GIVEN &&
                !gyre_prove_edge(e->v, piece | local, source))
                return false;
            last = source;
        }
    return true;
}

/* Pieces for the rows of an op; in a quotient nobody asks. */
static bool new_pieces(const effect *e, uint32_t count, uint32_t *first)
{
    *first = GYRE_PIECE_GIVEN;
    if (e->v->shift != NULL)
        return true;
    *first = gyre_prove_pieces(e->v, count);
    e->v->made[e->v->rank[e->rank].op_base + e->op] = *first;
    return *first != 0;
}

static uint32_t piece_at(const effect *e, uint32_t first, uint32_t i)
{
    return e->v->shift != NULL ? GYRE_PIECE_GIVEN : first + i;
}

/* ---- sums -----------------------------------------------------------------
 */

/* A KV head that is shared by query heads within and beyond the view moves as
 * a whole: then nothing may have been added for those beyond. */
static bool heads_apart(const effect *e, const gyre_prove_view *a)
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
                    e->v, e->rank, e->op, NONE, a->rows[i],
                    gyre_prove_head(e->v, t),
                    "%s of heads %u..%u parts a KV head of slot %u, which "
                    "holds sums of its other queries too",
                    gyre_op_name(e->ops[e->op].code), h0, h1, a->view->slot);
    }
    return true;
}

/* Add the cells of the view's rows with the chunks in `others`. */
static bool add_cells(const effect *e, uint32_t id, const uint64_t *others)
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
        if (first_bit(need, others, false, words) == NONE)
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
                    return fail_cell(
                        e, &a, a.rows[i],
                        w * 64 + (uint32_t)__builtin_ctzll(bits[w] & add), t,
                        "is added twice");
            }
        }
    }
    return true;
}

static bool reduce(const effect *e)
{
    gyre_prover *v = e->v;
    gyre_prove_view a, b;
    if (!gyre_prove_open(v, e->rank, e->op, e->views[0], &a) ||
        !gyre_prove_open(v, e->rank, e->op, e->views[1], &b) ||
        !heads_apart(e, &a))
        return false;
    uint32_t first, from_a = 0, from_b = 0, words = v->sets.words;
    if (!new_pieces(e, a.count, &first))
        return false;
    for (uint32_t i = 0; i < a.count; i++) {
        uint32_t *x = gyre_prove_row(&a, i, &from_a);
        uint32_t *y = gyre_prove_row(&b, i, &from_b);
        for (uint32_t t = 0; t < a.atoms; t++) {
            uint32_t add = x[t] &= ~GYRE_CELL_UNREAD;
            uint32_t into = y[t] & ~GYRE_CELL_UNREAD;
            if (add == 0)
                continue;
            mark(v, piece_at(e, first, i));
            if (into == 0) {
                gyre_set_keep(&v->sets, add);
                y[t] = add | GYRE_CELL_UNREAD;
                continue;
            }
            uint64_t *p = gyre_set_bits(&v->sets, add);
            uint32_t twice =
                first_bit(p, gyre_set_bits(&v->sets, into), false, words);
            if (twice != NONE)
                return fail_cell(e, &b, a.rows[i], twice, t, "is added twice");
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

static void put_set(gyre_prover *v, uint32_t *cell, uint32_t set)
{
    gyre_set_keep(&v->sets, set);
    gyre_set_drop(&v->sets, *cell & ~GYRE_CELL_UNREAD);
    *cell = set != 0 ? set | GYRE_CELL_UNREAD : 0;
}

/* Row i of sums: b = a.  The piece is needed when it changes anything. */
static void copy_sums(const effect *e, const gyre_prove_view *b, uint32_t *to,
                      uint32_t *from, uint32_t piece)
{
    for (uint32_t t = 0; t < b->atoms; t++) {
        from[t] &= ~GYRE_CELL_UNREAD;
        if (from[t] != 0 || to[t] != 0)
            mark(e->v, piece);
        put_set(e->v, &to[t], from[t]);
    }
}

/* Narrowings behind b after b = a. */
static void pass_depth(gyre_prover *v, uint32_t from_rank, uint32_t a,
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

static bool copy(const effect *e)
{
    gyre_prover *v = e->v;
    gyre_prove_view a, b;
    if (!gyre_prove_open(v, e->rank, e->op, e->views[0], &a) ||
        !gyre_prove_open(v, e->rank, e->op, e->views[1], &b) ||
        !heads_apart(e, &a) || !heads_apart(e, &b))
        return false;
    uint32_t first, from_a = 0, from_b = 0;
    if (!new_pieces(e, a.count, &first))
        return false;
    for (uint32_t i = 0; i < a.count; i++) {
        uint32_t *x = gyre_prove_row(&a, i, &from_a);
        uint32_t *y = gyre_prove_row(&b, i, &from_b);
        uint32_t piece = piece_at(e, first, i);
        if (gyre_value_is_sum(a.slot->kind))
            copy_sums(e, &b, y, x, piece);
        else if (!write_row(e, &b, a.rows[i], y, &a, x, piece,
                            GYRE_CELL_UNREAD))
            return false;
    }
    pass_depth(v, e->rank, a.view->slot, e->rank, b.view->slot);
    return true;
}

/* ---- ATT, GRD, FIN, DLT ----------------------------------------------------
 */

static bool list_bits(const effect *e, uint32_t view, uint64_t *bits)
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
static bool used_bits(const effect *e, uint32_t q_view)
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

static bool attend(const effect *e, uint32_t kv)
{
    return list_bits(e, e->views[0], scratch(e, 0)) &&
           list_bits(e, e->views[kv], scratch(e, 1)) &&
           used_bits(e, e->views[0]) &&
           read_value(e, e->views[0], scratch(e, 2)) &&
           read_value(e, e->views[kv], scratch(e, 3));
}

static bool grad(const effect *e)
{
    if (!attend(e, 3) || !read_value(e, e->views[1], scratch(e, 2)) ||
        !read_value(e, e->views[2], scratch(e, 2)))
        return false;
    return (e->views[4] == NONE || add_cells(e, e->views[4], scratch(e, 1))) &&
           (e->views[5] == NONE || add_cells(e, e->views[5], scratch(e, 0)));
}

/* Every cell of the row was added. */
static bool complete(const effect *e, const gyre_prove_view *a, uint32_t chunk,
                     uint32_t *cell)
{
    gyre_prover *v = e->v;
    static const char what[] = "is missing";
    const uint64_t *need =
        gyre_prove_need(v, gyre_value_side(a->slot->kind), chunk);
    if (need == NULL)
        return false;
    for (uint32_t t = 0; t < a->atoms; t++) {
        uint32_t set = cell[t] &= ~GYRE_CELL_UNREAD;
        uint32_t lacks = set == 0
                             ? first_bit(need, need, false, v->sets.words)
                             : first_bit(need, gyre_set_bits(&v->sets, set),
                                         true, v->sets.words);
        if (lacks != NONE)
            return fail_cell(e, a, chunk, lacks, t, what);
    }
    return true;
}

static bool finish(const effect *e)
{
    gyre_prover *v = e->v;
    gyre_prove_view a, b, st;
    bool has_st = e->views[2] != NONE;
    if (!gyre_prove_open(v, e->rank, e->op, e->views[0], &a) ||
        !gyre_prove_open(v, e->rank, e->op, e->views[1], &b) ||
        (has_st && !gyre_prove_open(v, e->rank, e->op, e->views[2], &st)))
        return false;
    uint32_t first, from[3] = {0};
    if (!new_pieces(e, a.count, &first))
        return false;
    for (uint32_t i = 0; i < a.count; i++) {
        uint32_t piece = piece_at(e, first, i);
        if (!complete(e, &a, a.rows[i], gyre_prove_row(&a, i, &from[0])) ||
            !write_row(e, &b, a.rows[i], gyre_prove_row(&b, i, &from[1]), NULL,
                       NULL, piece, 0))
            return false;
        if (has_st &&
            !write_row(e, &st, a.rows[i], gyre_prove_row(&st, i, &from[2]),
                       NULL, NULL, piece, 0))
            return false;
    }
    uint32_t depth = v->rank[e->rank].depth[a.view->slot];
    if (depth > v->proof->cast_depth)
        v->proof->cast_depth = depth;
    return true;
}

/* Delta of a row is made from O and DO: needed when delta is. */
static bool delta(const effect *e)
{
    gyre_prove_view o, d, st;
    if (!read_value(e, e->views[0], NULL) ||
        !read_value(e, e->views[1], NULL) ||
        !gyre_prove_open(e->v, e->rank, e->op, e->views[0], &o) ||
        !gyre_prove_open(e->v, e->rank, e->op, e->views[1], &d) ||
        !gyre_prove_open(e->v, e->rank, e->op, e->views[2], &st))
        return false;
    uint32_t first, from[3] = {0};
    if (!new_pieces(e, st.count, &first))
        return false;
    for (uint32_t i = 0; i < st.count; i++) {
        uint32_t piece = piece_at(e, first, i);
        if (!write_row(e, &st, st.rows[i], gyre_prove_row(&st, i, &from[2]),
                       NULL, NULL, piece, 0))
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
    effect e = effect_of(v, rank, op);
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

/* ---- transfers -------------------------------------------------------------
 */

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
static bool move_shifted(const effect *get, gyre_prove_view *a,
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
            if (!write_row(get, b, chunk, y, a, x, GYRE_PIECE_GIVEN, 0))
                return false;
            continue;
        }
        for (uint32_t t = 0; t < a->atoms; t++) {
            uint32_t set = x[t] &= ~GYRE_CELL_UNREAD;
            uint32_t there = moved(v, other, set, by);
            if (set != 0 && there == 0)
                return gyre_prove_no_memory(v);
            put_set(v, &y[t], there);
            gyre_set_drop(&v->sets, there);
        }
    }
    return true;
}

static bool move_plain(const effect *get, gyre_prove_view *a,
                       gyre_prove_view *b)
{
    uint32_t first, from_a = 0, from_b = 0;
    if (!new_pieces(get, b->count, &first))
        return false;
    for (uint32_t i = 0; i < a->count; i++) {
        uint32_t *x = gyre_prove_row(a, i, &from_a);
        uint32_t *y = gyre_prove_row(b, i, &from_b);
        if (gyre_value_is_sum(a->slot->kind))
            copy_sums(get, b, y, x, first + i);
        else if (!write_row(get, b, a->rows[i], y, a, x, first + i, 0))
            return false;
    }
    return true;
}

/* Blame the sender for a row it has not got. */
static bool sendable(const effect *put, const gyre_prove_view *a)
{
    uint32_t from = 0;
    for (uint32_t i = 0; i < a->count && !gyre_value_is_sum(a->slot->kind);
         i++) {
        const uint32_t *x = gyre_prove_row(a, i, &from);
        for (uint32_t t = 0; t < a->atoms; t++)
            for (uint32_t p = 0; p < a->planes; p++)
                if ((a->view->planes >> p & 1) && x[t * a->planes + p] == 0)
                    return fail_row(put, a, a->rows[i], t,
                                    "sends an unwritten row");
    }
    return heads_apart(put, a);
}

bool gyre_prove_move(gyre_prover *v, uint32_t put, uint32_t get)
{
    const gyre_prove_transfer *s = &v->transfers[put], *d = &v->transfers[get];
    effect from = effect_of(v, s->rank, s->op);
    effect to = effect_of(v, d->rank, d->op);
    gyre_prove_view a, b;
    if (!gyre_prove_open(v, s->rank, s->op, from.views[0], &a) ||
        !gyre_prove_open(v, d->rank, d->op, to.views[0], &b) ||
        !sendable(&from, &a) || !heads_apart(&to, &b))
        return false;
    pass_depth(v, s->rank, a.view->slot, d->rank, b.view->slot);
    if (v->shift != NULL)
        return move_shifted(&to, &a, &b, to.views[1]);
    return move_plain(&to, &a, &b);
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
