/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The k-th PUT and the k-th GET of (src, dst, channel).  One walk: a transfer
 * meets the oldest one of the other kind that waits under its key, or waits
 * itself.
 */
#include "plan/prove.h"

#include <string.h>

static const uint32_t NONE = GYRE_NO_VIEW;

typedef struct wire {
    uint64_t key;         /* + 1; 0: free */
    uint32_t first, last; /* that wait, all of one kind */
    uint8_t lane[2];      /* of PUT and GET, + 1 */
} wire;

typedef struct match_walk {
    gyre_prover *v;
    wire *table;
    uint32_t size, used;
    uint32_t *next; /* by transfer */
} match_walk;

static const gyre_plan_op *op_of(const gyre_prover *v, uint32_t t)
{
    const gyre_prove_transfer *at = &v->transfers[t];
    return &v->plan->programs[at->rank].ops[at->op];
}

/* ---- the table ------------------------------------------------------------
 */

static wire *place(const match_walk *w, uint64_t key)
{
    uint64_t hash = (key + 1) * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(hash >> 32) & (w->size - 1);
    while (w->table[at].key != 0 && w->table[at].key != key + 1)
        at = (at + 1) & (w->size - 1);
    return &w->table[at];
}

static bool grow(match_walk *w)
{
    match_walk old = *w;
    w->size = old.size ? old.size * 2 : 256;
    w->table = gyre_alloc_zero(w->v->context, w->size, sizeof(*w->table));
    if (w->table == NULL) {
        *w = old;
        return gyre_prove_no_memory(w->v);
    }
    for (uint32_t i = 0; i < old.size; i++)
        if (old.table[i].key != 0)
            *place(w, old.table[i].key - 1) = old.table[i];
    gyre_free(w->v->context, old.table, old.size, sizeof(*old.table));
    return true;
}

static wire *find(match_walk *w, uint64_t key)
{
    if (w->used * 2 >= w->size && !grow(w))
        return NULL;
    wire *at = place(w, key);
    if (at->key == 0) {
        *at = (wire){.key = key + 1, .first = NONE, .last = NONE};
        w->used++;
    }
    return at;
}

/* ---- one pair --------------------------------------------------------------
 */

/* In a quotient, rows of the sender moved to where the peer has them. */
static bool same_rows(const gyre_prover *v, uint32_t a, uint32_t b, uint32_t by)
{
    if (v->shift == NULL || by == 0)
        return a == b;
    const gyre_plan_rows *x = &v->plan->rows[a], *y = &v->plan->rows[b];
    if (x->side != y->side || x->count != y->count)
        return false;
    const uint32_t *list = gyre_plan_row_list(v->plan, b);
    for (uint32_t i = 0; i < x->count; i++) {
        uint32_t chunk = gyre_shift_chunk(
            v->shift, x->side, gyre_plan_row_list(v->plan, a)[i], by);
        uint32_t low = 0, high = y->count;
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (list[middle] < chunk)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == y->count || list[low] != chunk)
            return false;
    }
    return true;
}

static bool pair(match_walk *w, uint32_t put, uint32_t get)
{
    gyre_prover *v = w->v;
    const gyre_prove_transfer *s = &v->transfers[put], *d = &v->transfers[get];
    const gyre_plan_program *p = &v->plan->programs[s->rank];
    const gyre_plan_program *q = &v->plan->programs[d->rank];
    const gyre_plan_view *a = &p->views[p->ops[s->op].view[0]];
    const gyre_plan_view *b = &q->views[q->ops[d->op].view[0]];
    const gyre_plan_slot *x = &p->slots[a->slot], *y = &q->slots[b->slot];
    uint32_t by = v->shift ? q->ops[d->op].view[1] : 0;
    uint32_t heads = v->shift ? gyre_shift_heads(v->shift, by) : 0;
    uint32_t all = v->plan->problem.heads;
    const char *what = NULL;
    if (x->kind != y->kind)
        what = "kinds";
    else if (x->dtype != y->dtype)
        what = "dtypes";
    else if (!same_rows(v, a->rows, b->rows, by))
        what = "rows";
    else if ((uint32_t)a->h1 - a->h0 != (uint32_t)b->h1 - b->h0 ||
             ((uint32_t)a->h1 - a->h0 != all && (a->h0 + heads) % all != b->h0))
        what = "heads";
    else if (a->planes != b->planes)
        what = "planes";
    if (what != NULL)
        return gyre_prove_fail(
            v, d->rank, d->op, NONE, NONE, NONE,
            "GET of %s (slot %u) meets op %u of rank %u, PUT of %s (slot %u): "
            "%s differ",
            gyre_value_name(y->kind), b->slot, s->op, s->rank,
            gyre_value_name(x->kind), a->slot, what);
    v->transfers[put].mate = get;
    v->transfers[get].mate = put;
    return true;
}

static bool one_lane(match_walk *w, wire *at, uint32_t t, bool is_put)
{
    const gyre_plan_op *op = op_of(w->v, t);
    uint8_t *lane = &at->lane[is_put];
    if (*lane != 0 && *lane != op->lane + 1)
        return gyre_prove_fail(w->v, w->v->transfers[t].rank,
                               w->v->transfers[t].op, NONE, NONE, NONE,
                               "%s on channel %u with rank %u is on lane %u, "
                               "one before it on lane %u: which is first?",
                               gyre_op_name(op->code), op->channel, op->view[1],
                               op->lane, *lane - 1u);
    *lane = (uint8_t)(op->lane + 1);
    return true;
}

static bool meet(match_walk *w, uint32_t t)
{
    gyre_prover *v = w->v;
    const gyre_plan_op *op = op_of(v, t);
    bool is_put = op->code == GYRE_OP_PUT;
    uint64_t src = v->transfers[t].rank, dst = op->view[1];
    if (!is_put) {
        uint64_t peer = dst;
        dst = v->shift ? gyre_shift_negate(v->shift, (uint32_t)peer) : src;
        src = v->shift ? src : peer;
    }
    wire *at = find(w, src << 32 | dst << 16 | op->channel);
    if (at == NULL || !one_lane(w, at, t, is_put))
        return false;
    w->next[t] = NONE;
    if (at->first == NONE) {
        at->first = at->last = t;
        return true;
    }
    if ((op_of(v, at->first)->code == GYRE_OP_PUT) == is_put) {
        w->next[at->last] = t;
        at->last = t;
        return true;
    }
    uint32_t other = at->first;
    at->first = w->next[other];
    return is_put ? pair(w, t, other) : pair(w, other, t);
}

bool gyre_prove_match(gyre_prover *v)
{
    if (v->transfer_count == 0)
        return true;
    match_walk w = {.v = v};
    w.next = gyre_alloc(v->context, v->transfer_count, sizeof(*w.next));
    bool good = w.next != NULL || gyre_prove_no_memory(v);
    for (uint32_t t = 0; good && t < v->transfer_count; t++)
        good = meet(&w, t);
    for (uint32_t t = 0; good && t < v->transfer_count; t++)
        if (v->transfers[t].mate == NONE) {
            const gyre_plan_op *op = op_of(v, t);
            bool put = op->code == GYRE_OP_PUT;
            good = gyre_prove_fail(
                v, v->transfers[t].rank, v->transfers[t].op, NONE, NONE, NONE,
                "%s %s rank %u on channel %u meets no %s", put ? "PUT" : "GET",
                put ? "to" : "from", op->view[1], op->channel,
                put ? "GET" : "PUT");
        }
    gyre_free(v->context, w.next, v->transfer_count, sizeof(*w.next));
    gyre_free(v->context, w.table, w.size, sizeof(*w.table));
    return good;
}
