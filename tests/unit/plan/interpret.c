/* SPDX-License-Identifier: Apache-2.0 */
#include "interpret.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = GYRE_PLAN_LANES, MOST_DIM = 16 };
static const uint32_t NONE = GYRE_NO_VIEW;

static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(*seed >> 4) * below) >> 28);
}

/* ---- inputs and the naive reference
 * ------------------------------------------ */

/* In [-1, 1), by what it is. */
static double input(uint32_t kind, uint64_t position, uint32_t head,
                    uint32_t dim)
{
    uint64_t x = kind * 0x9e3779b97f4a7c15u + position * 0xff51afd7ed558ccdu +
                 head * 0xc4ceb9fe1a85ec53u + dim * 0x2545f4914f6cdd1du;
    x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
    x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44du;
    return (double)(int64_t)(x ^ (x >> 33)) / 9223372036854775808.0;
}

static uint32_t share_of(const gyre_problem *p)
{
    return p->heads / p->kv_heads;
}

static double score(const gyre_problem *p, uint64_t q, uint64_t k,
                    uint32_t head)
{
    double sum = 0;
    for (uint32_t d = 0; d < p->head_dim; d++)
        sum += input(GYRE_VALUE_Q, q, head, d) *
               input(GYRE_VALUE_KV, k, head / share_of(p), d);
    return sum / sqrt(p->head_dim);
}

static void add_row(reference *r, uint32_t h, uint64_t q)
{
    const gyre_problem *p = &r->of->problem;
    uint64_t tq = p->tokens[0], tk = p->tokens[1];
    uint32_t dv = p->v_head_dim, dk = p->head_dim, kh = h / share_of(p);
    double *o = r->o + (h * tq + q) * dv, sum = 0, delta = 0;
    double *dq = r->dq + (h * tq + q) * dk;
    bool count = r->mode == INTERPRET_COUNT;
    for (uint64_t k = 0; k < tk; k++)
        if (gyre_mask_allows(r->of->mask, 0, q, k)) {
            double w = count ? 1 : exp(score(p, q, k, h));
            sum += w;
            for (uint32_t d = 0; d < dv; d++)
                o[d] += count ? 1 : w * input(GYRE_VALUE_KV, k, kh, dk + d);
        }
    r->lse[h * tq + q] = log(sum);
    for (uint32_t d = 0; d < dv && sum > 0 && !count; d++)
        o[d] /= sum;
    for (uint32_t d = 0; d < dv; d++)
        delta += o[d] * input(GYRE_VALUE_DO, q, h, d);
    for (uint64_t k = 0; k < tk; k++) {
        if (!gyre_mask_allows(r->of->mask, 0, q, k))
            continue;
        double *gk = r->dk + (kh * tk + k) * dk,
               *gv = r->dv + (kh * tk + k) * dv;
        double w = exp(score(p, q, k, h)) / sum, dp = 0;
        for (uint32_t d = 0; d < dv; d++) {
            double g = input(GYRE_VALUE_DO, q, h, d);
            gv[d] += count ? 1 : w * g;
            dp += g * input(GYRE_VALUE_KV, k, kh, dk + d);
        }
        double ds = w * (dp - delta) / sqrt(dk);
        for (uint32_t d = 0; d < dk; d++) {
            dq[d] += count ? 1 : ds * input(GYRE_VALUE_KV, k, kh, d);
            gk[d] += count ? 1 : ds * input(GYRE_VALUE_Q, q, h, d);
        }
    }
}

reference reference_make(const gyre_plan *plan, int mode)
{
    const gyre_problem *p = &plan->problem;
    reference r = {.of = plan, .mode = mode};
    r.o = calloc(p->heads * p->tokens[0] * p->v_head_dim, sizeof(double));
    r.lse = calloc(p->heads * p->tokens[0], sizeof(double));
    r.dq = calloc(p->heads * p->tokens[0] * p->head_dim, sizeof(double));
    r.dk = calloc(p->kv_heads * p->tokens[1] * p->head_dim, sizeof(double));
    r.dv = calloc(p->kv_heads * p->tokens[1] * p->v_head_dim, sizeof(double));
    for (uint32_t h = 0; h < p->heads; h++)
        for (uint64_t q = 0; q < p->tokens[0]; q++)
            add_row(&r, h, q);
    return r;
}

void reference_free(reference *r)
{
    free(r->o);
    free(r->lse);
    free(r->dq);
    free(r->dk);
    free(r->dv);
}

/* ---- a machine
 * ----------------------------------------------------------------- */

typedef struct rank_state {
    gyre_plan_order order;
    double **buf;
    uint32_t *tenant;
    uint8_t *phase; /* by unit: 0 waits, 1 started, 2 ended */
    uint32_t *left; /* by unit: transfers not done */
    uint32_t ended;
} rank_state;

typedef struct message {
    uint32_t src, dst, channel;
    uint32_t put, get; /* ops, or NONE */
    uint32_t put_unit, get_unit;
    bool done;
} message;

typedef struct machine {
    const gyre_plan *plan;
    const reference *want;
    rank_state *rank;
    message *messages;
    uint32_t message_count;
    uint32_t *seed;
    const char *failed;
} machine;

static uint32_t width(const machine *m, uint32_t kind)
{
    uint32_t dk = m->plan->problem.head_dim, dv = m->plan->problem.v_head_dim;
    switch (kind) {
    case GYRE_VALUE_Q:
    case GYRE_VALUE_DQ:
    case GYRE_VALUE_DQ_SUM:
        return dk;
    case GYRE_VALUE_O:
    case GYRE_VALUE_DO:
        return dv;
    case GYRE_VALUE_O_SUM:
        return dv + 1; /* LSE last */
    case GYRE_VALUE_ST:
        return 2;
    default:
        return dk + dv;
    }
}

static void slot_heads(const machine *m, const gyre_plan_slot *slot,
                       uint32_t *a, uint32_t *b)
{
    *a = slot->h0;
    *b = slot->h1;
    if (gyre_value_side(slot->kind) == GYRE_SIDE_KV)
        gyre_kv_heads(&m->plan->problem, slot->h0, slot->h1, a, b);
}

/* Position of token `row` (over all chunks of the slot). */
static double *element(const machine *m, uint32_t rank, uint32_t s,
                       uint64_t row, uint32_t head)
{
    const gyre_plan_slot *slot = &m->plan->programs[rank].slots[s];
    uint32_t a, b;
    slot_heads(m, slot, &a, &b);
    return m->rank[rank].buf[slot->buf] +
           (row * (b - a) + head - a) * width(m, slot->kind);
}

static size_t slot_size(const machine *m, const gyre_plan_slot *slot)
{
    uint32_t a, b;
    slot_heads(m, slot, &a, &b);
    return m->plan->rows[slot->rows].tokens * (b - a) * width(m, slot->kind);
}

static uint64_t position(const gyre_chunk *chunk, uint64_t i)
{
    return chunk->start + i * chunk->stride;
}

/* What the reference or the user has of a value. */
static void known(const machine *m, uint32_t kind, uint64_t t, uint32_t head,
                  double *out)
{
    const gyre_problem *p = &m->plan->problem;
    const reference *r = m->want;
    if (kind == GYRE_VALUE_O)
        memcpy(out, r->o + (head * p->tokens[0] + t) * p->v_head_dim,
               p->v_head_dim * sizeof(*out));
    else if (kind == GYRE_VALUE_ST)
        out[0] = r->lse[head * p->tokens[0] + t];
    else if (kind == GYRE_VALUE_DQ)
        memcpy(out, r->dq + (head * p->tokens[0] + t) * p->head_dim,
               p->head_dim * sizeof(*out));
    else if (kind == GYRE_VALUE_DKV) {
        memcpy(out, r->dk + (head * p->tokens[1] + t) * p->head_dim,
               p->head_dim * sizeof(*out));
        memcpy(out + p->head_dim,
               r->dv + (head * p->tokens[1] + t) * p->v_head_dim,
               p->v_head_dim * sizeof(*out));
    } else
        for (uint32_t d = 0; d < width(m, kind); d++)
            out[d] = input(kind, t, head, d);
}

static bool given(const machine *m, const gyre_plan_slot *slot)
{
    bool backward = m->plan->pass == GYRE_PASS_BACKWARD;
    bool in = slot->kind == GYRE_VALUE_Q || slot->kind == GYRE_VALUE_KV;
    if (slot->flags & GYRE_SLOT_EXTERNAL && (in || slot->kind == GYRE_VALUE_DO))
        return true;
    return backward && (slot->flags & GYRE_SLOT_SAVED) &&
           (in || slot->kind == GYRE_VALUE_O || slot->kind == GYRE_VALUE_ST);
}

/* A new tenant: identities, what was given, or nothing that can be used. */
static void enter(machine *m, uint32_t rank, uint32_t s)
{
    const gyre_plan_slot *slot = &m->plan->programs[rank].slots[s];
    uint32_t *tenant = &m->rank[rank].tenant[slot->buf];
    if (*tenant == s)
        return;
    *tenant = s;
    double *at = m->rank[rank].buf[slot->buf];
    size_t size = slot_size(m, slot);
    for (size_t i = 0; i < size; i++)
        at[i] = gyre_value_is_sum(slot->kind) ? 0 : NAN;
    uint32_t w = width(m, slot->kind);
    if (slot->kind == GYRE_VALUE_O_SUM)
        for (size_t i = w - 1; i < size; i += w)
            at[i] = m->want->mode == INTERPRET_COUNT ? 0 : -INFINITY;
    if (!given(m, slot))
        return;
    const gyre_plan_rows *rows = &m->plan->rows[slot->rows];
    uint32_t a, b;
    slot_heads(m, slot, &a, &b);
    uint64_t row = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        const gyre_chunk *chunk =
            &m->plan->problem
                 .chunks[rows->side][m->plan->row_chunks[rows->first + i]];
        for (uint64_t t = 0; t < chunk->length; t++, row++)
            for (uint32_t h = a; h < b; h++)
                known(m, slot->kind, position(chunk, t), h,
                      element(m, rank, s, row, h));
    }
}

/* ---- rows of views
 * --------------------------------------------------------------- */

typedef struct token_row {
    uint64_t in_slot, position;
} token_row;

/* Tokens of a view; returns how many. */
static uint64_t view_rows(machine *m, uint32_t rank, uint32_t id,
                          token_row *out)
{
    const gyre_plan *plan = m->plan;
    const gyre_plan_view *view = &plan->programs[rank].views[id];
    const gyre_plan_slot *slot = &plan->programs[rank].slots[view->slot];
    const gyre_plan_rows *all = &plan->rows[slot->rows];
    const gyre_plan_rows *some = &plan->rows[view->rows];
    uint64_t count = 0, row_in = 0;
    enter(m, rank, view->slot);
    for (uint32_t i = 0, j = 0; i < all->count; i++) {
        uint32_t chunk_id = plan->row_chunks[all->first + i];
        const gyre_chunk *chunk = &plan->problem.chunks[all->side][chunk_id];
        if (j < some->count && plan->row_chunks[some->first + j] == chunk_id) {
            for (uint64_t t = 0; t < chunk->length; t++)
                out[count++] = (token_row){row_in + t, position(chunk, t)};
            j++;
        }
        row_in += chunk->length;
    }
    return count;
}

static void view_heads(const machine *m, uint32_t rank, uint32_t id,
                       uint32_t *a, uint32_t *b)
{
    const gyre_plan_view *v = &m->plan->programs[rank].views[id];
    const gyre_plan_slot *slot = &m->plan->programs[rank].slots[v->slot];
    *a = v->h0;
    *b = v->h1;
    if (gyre_value_side(slot->kind) == GYRE_SIDE_KV)
        gyre_kv_heads(&m->plan->problem, v->h0, v->h1, a, b);
}

static uint32_t slot_of(const machine *m, uint32_t rank, uint32_t id)
{
    return m->plan->programs[rank].views[id].slot;
}

static uint32_t kind_of(const machine *m, uint32_t rank, uint32_t id)
{
    return m->plan->programs[rank].slots[slot_of(m, rank, id)].kind;
}

enum { MOST_ROWS = 512 };

/* ---- ops
 * ------------------------------------------------------------------------- */

/* (o, lse) of both into b. */
static void merge(const machine *m, double *b, const double *a)
{
    uint32_t dv = m->plan->problem.v_head_dim;
    if (m->want->mode == INTERPRET_COUNT) {
        for (uint32_t d = 0; d <= dv; d++)
            b[d] += a[d];
        return;
    }
    double most = fmax(a[dv], b[dv]);
    if (most == -INFINITY)
        return;
    double x = exp(a[dv] - most), y = exp(b[dv] - most);
    for (uint32_t d = 0; d < dv; d++)
        b[d] = (a[d] * x + b[d] * y) / (x + y);
    b[dv] = most + log(x + y);
}

static void attend(machine *m, uint32_t rank, const uint32_t *views)
{
    token_row q[MOST_ROWS], k[MOST_ROWS], o[MOST_ROWS];
    uint64_t nq = view_rows(m, rank, views[0], q);
    uint64_t nk = view_rows(m, rank, views[1], k);
    const gyre_problem *p = &m->plan->problem;
    const gyre_plan_view *v = &m->plan->programs[rank].views[views[0]];
    bool count = m->want->mode == INTERPRET_COUNT;
    view_rows(m, rank, views[2], o);
    for (uint64_t i = 0; i < nq; i++)
        for (uint64_t j = 0; j < nk; j++) {
            if (!gyre_mask_allows(m->plan->mask, 0, q[i].position,
                                  k[j].position))
                continue;
            for (uint32_t h = v->h0; h < v->h1; h++) {
                double *x = element(m, rank, slot_of(m, rank, views[0]),
                                    q[i].in_slot, h);
                double *y = element(m, rank, slot_of(m, rank, views[1]),
                                    k[j].in_slot, h / share_of(p));
                double one[MOST_DIM + 1], s = 0;
                for (uint32_t d = 0; d < p->head_dim; d++)
                    s += x[d] * y[d];
                for (uint32_t d = 0; d < p->v_head_dim; d++)
                    one[d] = count ? 1 + 0 * s : y[p->head_dim + d];
                one[p->v_head_dim] = count ? 0 : s / sqrt(p->head_dim);
                merge(m,
                      element(m, rank, slot_of(m, rank, views[2]), o[i].in_slot,
                              h),
                      one);
            }
        }
}

static void grad(machine *m, uint32_t rank, const uint32_t *views)
{
    token_row r[6][MOST_ROWS];
    uint64_t n[6] = {0};
    for (int i = 0; i < 6; i++)
        if (views[i] != NONE)
            n[i] = view_rows(m, rank, views[i], r[i]);
    const gyre_problem *p = &m->plan->problem;
    const gyre_plan_view *v = &m->plan->programs[rank].views[views[0]];
    bool count = m->want->mode == INTERPRET_COUNT;
    uint32_t dk = p->head_dim, dv = p->v_head_dim;
    for (uint64_t i = 0; i < n[0]; i++)
        for (uint64_t j = 0; j < n[3]; j++) {
            if (!gyre_mask_allows(m->plan->mask, 0, r[0][i].position,
                                  r[3][j].position))
                continue;
            for (uint32_t h = v->h0; h < v->h1; h++) {
                double *e[6] = {NULL};
                for (int x = 0; x < 6; x++)
                    if (views[x] != NONE)
                        e[x] = element(m, rank, slot_of(m, rank, views[x]),
                                       r[x][x == 3 || x == 5 ? j : i].in_slot,
                                       x == 3 || x == 5 ? h / share_of(p) : h);
                double s = 0, dp = 0;
                for (uint32_t d = 0; d < dk; d++)
                    s += e[0][d] * e[3][d];
                double w = exp(s / sqrt(dk) - e[2][0]);
                for (uint32_t d = 0; d < dv; d++)
                    dp += e[1][d] * e[3][dk + d];
                double ds = w * (dp - e[2][1]) / sqrt(dk);
                for (uint32_t d = 0; d < dk && e[4] != NULL; d++)
                    e[4][d] += count ? 1 + 0 * s : ds * e[3][d];
                for (uint32_t d = 0; d < dk && e[5] != NULL; d++)
                    e[5][d] += count ? 1 + 0 * s : ds * e[0][d];
                for (uint32_t d = 0; d < dv && e[5] != NULL; d++)
                    e[5][dk + d] += count ? 1 + 0 * dp : w * e[1][d];
            }
        }
}

static void reduce(machine *m, uint32_t rank, const uint32_t *views)
{
    token_row x[MOST_ROWS], y[MOST_ROWS];
    uint64_t n = view_rows(m, rank, views[0], x);
    uint32_t a, b, kind = kind_of(m, rank, views[0]);
    view_rows(m, rank, views[1], y);
    view_heads(m, rank, views[0], &a, &b);
    for (uint64_t i = 0; i < n; i++)
        for (uint32_t h = a; h < b; h++) {
            double *from =
                element(m, rank, slot_of(m, rank, views[0]), x[i].in_slot, h);
            double *to =
                element(m, rank, slot_of(m, rank, views[1]), y[i].in_slot, h);
            if (kind == GYRE_VALUE_O_SUM)
                merge(m, to, from);
            else
                for (uint32_t d = 0; d < width(m, kind); d++)
                    to[d] += from[d];
        }
}

/* Also of a FIN: the first `dims` of each, and of ST the planes. */
static void copy(machine *m, uint32_t from_rank, uint32_t a_view,
                 uint32_t to_rank, uint32_t b_view)
{
    token_row x[MOST_ROWS], y[MOST_ROWS];
    uint64_t n = view_rows(m, from_rank, a_view, x);
    uint64_t other = view_rows(m, to_rank, b_view, y);
    uint32_t a, b, c, e, kind = kind_of(m, to_rank, b_view);
    uint32_t planes = m->plan->programs[to_rank].views[b_view].planes;
    view_heads(m, from_rank, a_view, &a, &b);
    view_heads(m, to_rank, b_view, &c, &e);
    if (n != other || b - a != e - c) {
        m->failed = "what meets is of different size";
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        for (uint32_t h = 0; h < b - a; h++) {
            double *from = element(m, from_rank, slot_of(m, from_rank, a_view),
                                   x[i].in_slot, a + h);
            double *to = element(m, to_rank, slot_of(m, to_rank, b_view),
                                 y[i].in_slot, c + h);
            for (uint32_t d = 0; d < width(m, kind); d++)
                if (kind != GYRE_VALUE_ST || (planes >> d & 1))
                    to[d] = from[d];
        }
}

static void finish(machine *m, uint32_t rank, const uint32_t *views)
{
    token_row x[MOST_ROWS], y[MOST_ROWS];
    uint32_t dv = m->plan->problem.v_head_dim;
    copy(m, rank, views[0], rank, views[1]);
    if (views[2] == NONE)
        return;
    const gyre_plan_view *v = &m->plan->programs[rank].views[views[0]];
    uint64_t n = view_rows(m, rank, views[0], x);
    view_rows(m, rank, views[2], y);
    for (uint64_t i = 0; i < n; i++)
        for (uint32_t h = v->h0; h < v->h1; h++)
            *element(m, rank, slot_of(m, rank, views[2]), y[i].in_slot, h) =
                element(m, rank, slot_of(m, rank, views[0]), x[i].in_slot,
                        h)[dv];
}

static void delta(machine *m, uint32_t rank, const uint32_t *views)
{
    token_row r[3][MOST_ROWS];
    uint64_t n = 0;
    for (int i = 0; i < 3; i++)
        n = view_rows(m, rank, views[i], r[i]);
    const gyre_plan_view *v = &m->plan->programs[rank].views[views[0]];
    for (uint64_t i = 0; i < n; i++)
        for (uint32_t h = v->h0; h < v->h1; h++) {
            double *e[3], sum = 0;
            for (int x = 0; x < 3; x++)
                e[x] = element(m, rank, slot_of(m, rank, views[x]),
                               r[x][i].in_slot, h);
            for (uint32_t d = 0; d < m->plan->problem.v_head_dim; d++)
                sum += e[0][d] * e[1][d];
            e[2][1] = sum;
        }
}

static void compute(machine *m, uint32_t rank, uint32_t o)
{
    const gyre_plan_op *op = &m->plan->programs[rank].ops[o];
    switch (op->code) {
    case GYRE_OP_ATT:
        attend(m, rank, op->view);
        break;
    case GYRE_OP_GRD:
        grad(m, rank, op->view);
        break;
    case GYRE_OP_RED:
        reduce(m, rank, op->view);
        break;
    case GYRE_OP_CPY:
        copy(m, rank, op->view[0], rank, op->view[1]);
        break;
    case GYRE_OP_FIN:
        finish(m, rank, op->view);
        break;
    default:
        delta(m, rank, op->view);
    }
}

/* ---- events
 * ---------------------------------------------------------------------- */

static void post(machine *m, uint32_t rank, uint32_t unit, uint32_t o)
{
    const gyre_plan_op *op = &m->plan->programs[rank].ops[o];
    bool is_put = op->code == GYRE_OP_PUT;
    uint32_t src = is_put ? rank : op->view[1];
    uint32_t dst = is_put ? op->view[1] : rank;
    for (uint32_t i = 0; i < m->message_count; i++) {
        message *at = &m->messages[i];
        if (at->src != src || at->dst != dst || at->channel != op->channel ||
            (is_put ? at->put : at->get) != NONE)
            continue;
        *(is_put ? &at->put : &at->get) = o;
        *(is_put ? &at->put_unit : &at->get_unit) = unit;
        return;
    }
    m->messages[m->message_count++] =
        (message){src,  dst,  op->channel, is_put ? o : NONE, is_put ? NONE : o,
                  unit, unit, false};
}

static bool can_start(const machine *m, uint32_t rank, uint32_t unit)
{
    const rank_state *r = &m->rank[rank];
    const gyre_plan_program *p = &m->plan->programs[rank];
    if (r->phase[unit] != 0)
        return false;
    for (uint32_t u = unit; u-- > 0;)
        if (p->units[u].lane == p->units[unit].lane) {
            if (r->phase[u] != 2)
                return false;
            break;
        }
    for (uint32_t d = r->order.first[unit]; d < r->order.first[unit + 1]; d++)
        if (r->phase[r->order.deps[d]] != 2)
            return false;
    return true;
}

/* One event of this rank, from a random unit on; false when there is none. */
static bool step(machine *m, uint32_t rank)
{
    rank_state *r = &m->rank[rank];
    const gyre_plan_program *p = &m->plan->programs[rank];
    /* Only a lane's first unit can do anything. */
    uint32_t heads[LANES], count = 0, seen = 0;
    for (uint32_t u = 0; u < p->unit_count; u++)
        if (r->phase[u] != 2 && !(seen >> p->units[u].lane & 1)) {
            seen |= 1u << p->units[u].lane;
            heads[count++] = u;
        }
    uint32_t turn = count ? draw(m->seed, count) : 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t u = heads[(turn + i) % count];
        const gyre_plan_unit *unit = &p->units[u];
        if (r->phase[u] == 0 && can_start(m, rank, u)) {
            r->phase[u] = 1;
            if (unit->group == NONE)
                return true;
            r->left[u] = unit->count;
            for (uint32_t k = 0; k < unit->count; k++)
                post(m, rank, u, unit->first + k);
            return true;
        }
        if (r->phase[u] == 1 && (unit->group == NONE || r->left[u] == 0)) {
            if (unit->group == NONE)
                compute(m, rank, unit->first);
            r->phase[u] = 2;
            r->ended++;
            return true;
        }
    }
    return false;
}

static bool deliver(machine *m)
{
    uint32_t from = m->message_count ? draw(m->seed, m->message_count) : 0;
    for (uint32_t i = 0; i < m->message_count; i++) {
        message *at = &m->messages[(from + i) % m->message_count];
        if (at->done || at->put == NONE || at->get == NONE)
            continue;
        uint32_t a = m->plan->programs[at->src].ops[at->put].view[0];
        uint32_t b = m->plan->programs[at->dst].ops[at->get].view[0];
        if (kind_of(m, at->src, a) != kind_of(m, at->dst, b)) {
            m->failed = "what meets is of different kind";
            return false;
        }
        copy(m, at->src, a, at->dst, b);
        at->done = true;
        m->rank[at->src].left[at->put_unit]--;
        m->rank[at->dst].left[at->get_unit]--;
        return true;
    }
    return false;
}

/* ---- the end
 * --------------------------------------------------------------------- */

static bool compare_slot(machine *m, uint32_t rank, uint32_t s, char *text)
{
    const gyre_plan *plan = m->plan;
    const gyre_plan_slot *slot = &plan->programs[rank].slots[s];
    const gyre_plan_rows *rows = &plan->rows[slot->rows];
    uint32_t a, b, w = slot->kind == GYRE_VALUE_ST ? 1 : width(m, slot->kind);
    slot_heads(m, slot, &a, &b);
    enter(m, rank, s);
    if (slot->kind == GYRE_VALUE_ST && m->want->mode == INTERPRET_COUNT)
        return true;
    uint64_t row = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        const gyre_chunk *chunk =
            &plan->problem
                 .chunks[rows->side][plan->row_chunks[rows->first + i]];
        for (uint64_t t = 0; t < chunk->length; t++, row++)
            for (uint32_t h = a; h < b; h++) {
                double want[2 * MOST_DIM];
                const double *got = element(m, rank, s, row, h);
                known(m, slot->kind, position(chunk, t), h, want);
                for (uint32_t d = 0; d < w; d++)
                    if (!(fabs(got[d] - want[d]) <= 1e-11) &&
                        got[d] != want[d]) {
                        snprintf(text, 256,
                                 "rank %u, %s of position %u, head %u: %g, "
                                 "not %g",
                                 rank, gyre_value_name(slot->kind),
                                 (unsigned)position(chunk, t), h, got[d],
                                 want[d]);
                        return false;
                    }
            }
    }
    return true;
}

static bool compare(machine *m, uint32_t rank, char *text)
{
    const gyre_plan_program *p = &m->plan->programs[rank];
    bool backward = m->plan->pass == GYRE_PASS_BACKWARD;
    uint32_t seen = 0;
    for (uint32_t s = 0; s < p->slot_count; s++) {
        const gyre_plan_slot *slot = &p->slots[s];
        bool output = slot->flags != 0 && !given(m, slot);
        if (output && !compare_slot(m, rank, s, text))
            return false;
        if (output && slot->flags & GYRE_SLOT_EXTERNAL)
            seen |= 1u << slot->kind;
    }
    uint32_t need = backward ? 1u << GYRE_VALUE_DQ | 1u << GYRE_VALUE_DKV
                             : 1u << GYRE_VALUE_O;
    if ((seen & need) == need)
        return true;
    snprintf(text, 256, "rank %u lacks an output", rank);
    return false;
}

static void prepare(machine *m)
{
    uint32_t transfers = 0;
    for (uint32_t r = 0; r < m->plan->problem.ranks; r++) {
        const gyre_plan_program *p = &m->plan->programs[r];
        rank_state *at = &m->rank[r];
        at->buf = calloc(p->buf_count + 1, sizeof(*at->buf));
        at->tenant = malloc((p->buf_count + 1) * sizeof(*at->tenant));
        at->phase = calloc(p->unit_count + 1, 1);
        at->left = calloc(p->unit_count + 1, sizeof(*at->left));
        memset(at->tenant, 0xff, (p->buf_count + 1) * sizeof(*at->tenant));
        size_t *size = calloc(p->buf_count + 1, sizeof(*size));
        for (uint32_t s = 0; s < p->slot_count; s++)
            if (slot_size(m, &p->slots[s]) > size[p->slots[s].buf])
                size[p->slots[s].buf] = slot_size(m, &p->slots[s]);
        for (uint32_t b = 0; b < p->buf_count; b++)
            at->buf[b] = calloc(size[b] + 1, sizeof(double));
        free(size);
        if (gyre_plan_order_make(m->plan, r, &at->order, NULL) != GYRE_OK)
            abort();
        for (uint32_t g = 0; g < p->group_count; g++)
            transfers += p->groups[g].count;
    }
    m->messages = calloc(transfers + 1, sizeof(*m->messages));
}

static void release(machine *m)
{
    for (uint32_t r = 0; r < m->plan->problem.ranks; r++) {
        rank_state *at = &m->rank[r];
        for (uint32_t b = 0; b < m->plan->programs[r].buf_count; b++)
            free(at->buf[b]);
        free(at->buf);
        free(at->tenant);
        free(at->phase);
        free(at->left);
        gyre_plan_order_free(&at->order);
    }
    free(m->rank);
    free(m->messages);
}

bool interpret(const gyre_plan *plan, const reference *want, uint32_t *seed,
               char *text)
{
    uint32_t ranks = plan->problem.ranks;
    machine m = {.plan = plan, .want = want, .seed = seed};
    m.rank = calloc(ranks, sizeof(*m.rank));
    prepare(&m);
    bool moved = true, good = true;
    while (moved && m.failed == NULL) {
        /* One event, of a rank or of the wire, whoever has one. */
        uint32_t turn = draw(seed, ranks + 1);
        moved = false;
        for (uint32_t i = 0; i <= ranks && !moved && m.failed == NULL; i++) {
            uint32_t who = (turn + i) % (ranks + 1);
            moved = who < ranks ? step(&m, who) : deliver(&m);
        }
    }
    if (m.failed != NULL) {
        snprintf(text, 256, "%s", m.failed);
        good = false;
    }
    for (uint32_t r = 0; r < ranks && good; r++) {
        good = m.rank[r].ended == plan->programs[r].unit_count;
        if (!good)
            snprintf(text, 256, "rank %u never ends", r);
    }
    for (uint32_t r = 0; r < ranks && good; r++)
        good = compare(&m, r, text);
    release(&m);
    return good;
}
