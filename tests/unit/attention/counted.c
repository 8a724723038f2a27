/* SPDX-License-Identifier: Apache-2.0 */
#include "counted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Cells by row, query head and, of sums, chunk of the other side. */
typedef struct value {
    uint8_t *cells;
    bool alive, evicted;
} value;

typedef struct message {
    struct message *next;
    uint32_t kind, rows, dtype, h0, h1, planes;
    uint8_t cells[];
} message;

typedef struct rank_state {
    value *values;    /* by slot */
    uint32_t *tenant; /* by buf */
    uint32_t at;      /* next op */
    uint32_t posted;  /* groups whose puts are on their way */
} rank_state;

typedef struct run_state {
    const gyre_plan *plan;
    rank_state *ranks;
    message **queues; /* first by (src, dst, channel below 8) */
    char *text;
    uint32_t rank; /* at hand */
} run_state;

static bool wrong(run_state *s, const char *what)
{
    const rank_state *r = &s->ranks[s->rank];

    snprintf(s->text, 256, "rank %u, op %u (%s): %s", s->rank, r->at,
             gyre_op_name(s->plan->programs[s->rank].ops[r->at].code), what);
    return false;
}

static uint32_t width_of(const gyre_plan *plan, uint32_t kind)
{
    return gyre_value_is_sum(kind)
               ? plan->problem.chunk_count[!gyre_value_side(kind)]
               : 1;
}

static const gyre_plan_slot *slot_of(const run_state *s, uint32_t view)
{
    const gyre_plan_program *p = &s->plan->programs[s->rank];

    return &p->slots[p->views[view].slot];
}

/* The value behind a view, born at first touch; NULL when its buf went on to
 * another slot. */
static value *value_of(run_state *s, uint32_t view)
{
    const gyre_plan_program *p = &s->plan->programs[s->rank];
    uint32_t id = p->views[view].slot;
    const gyre_plan_slot *slot = &p->slots[id];
    rank_state *r = &s->ranks[s->rank];
    value *v = &r->values[id];

    if (!v->alive) {
        size_t size = (size_t)s->plan->rows[slot->rows].count *
                      s->plan->problem.heads * width_of(s->plan, slot->kind);

        v->cells = calloc(size + 1, 1);
        v->alive = true;
        if (slot->flags & (GYRE_SLOT_EXTERNAL | GYRE_SLOT_SAVED))
            memset(v->cells, slot->kind == GYRE_VALUE_ST ? GYRE_PLANE_LSE : 1,
                   size);
        if (r->tenant[slot->buf] != GYRE_NO_VIEW)
            r->values[r->tenant[slot->buf]].evicted = true;
        r->tenant[slot->buf] = id;
    }
    return v->evicted ? NULL : v;
}

/* Cells of the i-th row of a view at head h, or NULL: not in the slot. */
static uint8_t *cell(run_state *s, uint32_t view, uint32_t row, uint32_t h)
{
    const gyre_plan *plan = s->plan;
    const gyre_plan_view *v = &plan->programs[s->rank].views[view];
    const gyre_plan_slot *slot = slot_of(s, view);
    const uint32_t *rows = gyre_plan_row_list(plan, slot->rows);
    uint32_t chunk = gyre_plan_row_list(plan, v->rows)[row];
    value *at = value_of(s, view);

    for (uint32_t i = 0; at != NULL && i < plan->rows[slot->rows].count; i++)
        if (rows[i] == chunk && h >= slot->h0 && h < slot->h1)
            return at->cells + ((size_t)i * plan->problem.heads + h) *
                                   width_of(plan, slot->kind);
    return NULL;
}

static uint32_t row_count(const run_state *s, uint32_t view)
{
    return s->plan->rows[s->plan->programs[s->rank].views[view].rows].count;
}

static message **queue(run_state *s, uint32_t from, uint32_t to,
                       uint32_t channel)
{
    uint32_t ranks = s->plan->problem.ranks;
    message **at = &s->queues[((size_t)from * ranks + to) * 8 + channel % 8];

    while (*at != NULL)
        at = &(*at)->next;
    return at;
}

static bool put(run_state *s, const gyre_plan_op *op)
{
    const gyre_plan_view *v = &s->plan->programs[s->rank].views[op->view[0]];
    const gyre_plan_slot *slot = slot_of(s, op->view[0]);
    uint32_t width = width_of(s->plan, slot->kind);
    uint32_t rows = row_count(s, op->view[0]);
    message *m =
        calloc(1, sizeof(*m) + (size_t)rows * (v->h1 - v->h0) * width + 1);
    uint8_t *to = m->cells;

    *m = (message){NULL,  slot->kind, v->rows,  slot->dtype,
                   v->h0, v->h1,      v->planes};
    *queue(s, s->rank, op->view[1], op->channel) = m;
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t h = v->h0; h < v->h1; h++, to += width) {
            uint8_t *from = cell(s, op->view[0], i, h);

            if (from == NULL)
                return wrong(s, "a view outside of its slot, or of one gone");
            if (width == 1 && (*from & v->planes) != v->planes)
                return wrong(s, "sends what is not there");
            memcpy(to, from, width);
        }
    return true;
}

/* 1: done, 0: nothing has come, -1: wrong. */
static int get(run_state *s, const gyre_plan_op *op)
{
    uint32_t ranks = s->plan->problem.ranks;
    const gyre_plan_view *v = &s->plan->programs[s->rank].views[op->view[0]];
    const gyre_plan_slot *slot = slot_of(s, op->view[0]);
    message **first = &s->queues[((size_t)op->view[1] * ranks + s->rank) * 8 +
                                 op->channel % 8];
    message *m = *first;
    uint32_t width = width_of(s->plan, slot->kind);

    if (m == NULL)
        return 0;
    if (m->kind != slot->kind || m->rows != v->rows || m->h0 != v->h0 ||
        m->h1 != v->h1 || m->planes != v->planes || m->dtype != slot->dtype)
        return wrong(s, "receives another view than was sent") - 1;
    const uint8_t *from = m->cells;
    for (uint32_t i = 0; i < row_count(s, op->view[0]); i++)
        for (uint32_t h = v->h0; h < v->h1; h++, from += width) {
            uint8_t *to = cell(s, op->view[0], i, h);

            if (to == NULL)
                return wrong(s, "receives outside of its slot") - 1;
            if (slot->kind == GYRE_VALUE_ST)
                *to |= *from & (uint8_t)v->planes;
            else
                memcpy(to, from, width);
        }
    *first = m->next;
    free(m);
    return 1;
}

/* ---- compute ----------------------------------------------------------------
 */

static bool has(run_state *s, uint32_t view, uint32_t row, uint32_t h,
                uint8_t planes)
{
    uint8_t *at = cell(s, view, row, h);

    return at != NULL && (*at & planes) == planes;
}

/* Add every pair of chunks to the sums. */
static bool pairs(run_state *s, const gyre_plan_op *op, uint32_t q, uint32_t kv,
                  uint32_t q_sum, uint32_t kv_sum)
{
    const gyre_plan_program *p = &s->plan->programs[s->rank];
    const gyre_plan_view *v = &p->views[q], *k = &p->views[kv];

    for (uint32_t h = v->h0; h < v->h1; h++)
        for (uint32_t i = 0; i < row_count(s, q); i++)
            for (uint32_t j = 0; j < row_count(s, kv); j++) {
                uint32_t qi = gyre_plan_row_list(s->plan, v->rows)[i];
                uint32_t kj = gyre_plan_row_list(s->plan, k->rows)[j];

                if (!has(s, q, i, h, 1) || !has(s, kv, j, h, 1))
                    return wrong(s, "Q or KV is not there");
                if (op->code == GYRE_OP_GRD && (!has(s, op->view[1], i, h, 1) ||
                                                !has(s, op->view[2], i, h, 3)))
                    return wrong(s, "DO or ST is not there");
                uint8_t *a = cell(s, q_sum, i, h);
                uint8_t *b =
                    kv_sum == GYRE_NO_VIEW ? NULL : cell(s, kv_sum, j, h);
                if (a == NULL || (b == NULL && kv_sum != GYRE_NO_VIEW))
                    return wrong(s, "a sum has not these rows");
                a[kj]++;
                if (b != NULL)
                    b[qi]++;
            }
    return true;
}

static bool add(run_state *s, const gyre_plan_op *op, bool fresh)
{
    const gyre_plan_view *v = &s->plan->programs[s->rank].views[op->view[0]];
    uint32_t kind = slot_of(s, op->view[0])->kind;
    uint32_t width = width_of(s->plan, kind);

    if (kind != slot_of(s, op->view[1])->kind)
        return wrong(s, "of two kinds");
    for (uint32_t i = 0; i < row_count(s, op->view[0]); i++)
        for (uint32_t h = v->h0; h < v->h1; h++) {
            uint8_t *from = cell(s, op->view[0], i, h);
            uint8_t *to = cell(s, op->view[1], i, h);

            if (from == NULL || to == NULL)
                return wrong(s, "a view outside of its slot, or of one gone");
            for (uint32_t w = 0; w < width; w++)
                if (kind == GYRE_VALUE_ST)
                    *to |= *from & (uint8_t)v->planes;
                else
                    to[w] = (uint8_t)(from[w] + (fresh ? 0 : to[w]));
        }
    return true;
}

/* Each chunk of the other side exactly once; 2 marks that FIN wrote it. */
static bool end_sum(run_state *s, const gyre_plan_op *op)
{
    const gyre_plan_view *v = &s->plan->programs[s->rank].views[op->view[0]];
    uint32_t width = width_of(s->plan, slot_of(s, op->view[0])->kind);

    for (uint32_t i = 0; i < row_count(s, op->view[0]); i++)
        for (uint32_t h = v->h0; h < v->h1; h++) {
            uint8_t *from = cell(s, op->view[0], i, h);
            uint8_t *to = cell(s, op->view[1], i, h);

            if (from == NULL || to == NULL)
                return wrong(s, "a view outside of its slot, or of one gone");
            for (uint32_t w = 0; w < width; w++)
                if (from[w] != 1)
                    return wrong(s, "a pair is not in the sum, or twice");
            *to = 3;
        }
    return true;
}

static bool compute(run_state *s, const gyre_plan_op *op)
{
    switch (op->code) {
    case GYRE_OP_ATT:
        return pairs(s, op, op->view[0], op->view[1], op->view[2],
                     GYRE_NO_VIEW);
    case GYRE_OP_GRD:
        return pairs(s, op, op->view[0], op->view[3], op->view[4], op->view[5]);
    case GYRE_OP_RED:
        return add(s, op, false);
    case GYRE_OP_CPY:
        return add(s, op, true);
    case GYRE_OP_FIN:
        return end_sum(s, op);
    default:
        break;
    }
    const gyre_plan_view *v = &s->plan->programs[s->rank].views[op->view[2]];
    for (uint32_t i = 0; i < row_count(s, op->view[2]); i++)
        for (uint32_t h = v->h0; h < v->h1; h++) {
            uint8_t *to = cell(s, op->view[2], i, h);

            if (!has(s, op->view[0], i, h, 1) ||
                !has(s, op->view[1], i, h, 1) || to == NULL)
                return wrong(s, "O or DO is not there");
            *to |= GYRE_PLANE_DELTA;
        }
    return true;
}

/* ---- the run
 * ------------------------------------------------------------------ */

/* As far as it goes.  1: something was done, 0: nothing, -1: wrong. */
static int advance(run_state *s)
{
    const gyre_plan_program *p = &s->plan->programs[s->rank];
    rank_state *r = &s->ranks[s->rank];
    uint32_t from = r->at;

    for (; r->at < p->op_count; r->at++) {
        const gyre_plan_op *op = &p->ops[r->at];

        if (op->group != GYRE_NO_VIEW && op->group + 1 > r->posted) {
            r->posted = op->group + 1;
            for (uint32_t i = 0; i < p->groups[op->group].count; i++)
                if (op[i].code == GYRE_OP_PUT && !put(s, &op[i]))
                    return -1;
        }
        if (op->code == GYRE_OP_PUT)
            continue;
        if (op->code == GYRE_OP_GET) {
            int done = get(s, op);

            if (done < 0)
                return -1;
            if (done == 0)
                break;
            continue;
        }
        if (!compute(s, op))
            return -1;
    }
    return r->at > from;
}

/* External outputs carry the mark of FIN, or of a copy of what FIN wrote. */
static bool outputs(run_state *s)
{
    const gyre_plan *plan = s->plan;
    uint32_t kinds[] = {GYRE_VALUE_O, GYRE_VALUE_DQ, GYRE_VALUE_DKV};
    uint32_t found = 0;
    const gyre_plan_program *p = &plan->programs[s->rank];

    for (uint32_t i = 0; i < p->slot_count; i++)
        for (int k = 0; k < 3; k++) {
            const gyre_plan_slot *slot = &p->slots[i];
            const value *v = &s->ranks[s->rank].values[i];
            uint32_t rows = plan->rows[slot->rows].count;

            if (slot->kind != kinds[k] || !(slot->flags & GYRE_SLOT_EXTERNAL))
                continue;
            found++;
            for (size_t n = 0; n < (size_t)rows * plan->problem.heads; n++)
                if (!v->alive || v->cells[n] != 3) {
                    snprintf(s->text, 256, "rank %u: %s is not all there",
                             s->rank, gyre_value_name(slot->kind));
                    return false;
                }
        }
    if (found == (plan->pass == GYRE_PASS_FORWARD ? 1u : 2u))
        return true;
    snprintf(s->text, 256, "rank %u has %u outputs", s->rank, found);
    return false;
}

static bool run(run_state *s)
{
    uint32_t ranks = s->plan->problem.ranks;

    for (bool moved = true; moved;) {
        moved = false;
        for (s->rank = 0; s->rank < ranks; s->rank++) {
            int did = advance(s);

            if (did < 0)
                return false;
            moved |= did > 0;
        }
    }
    for (s->rank = 0; s->rank < ranks; s->rank++) {
        if (s->ranks[s->rank].at < s->plan->programs[s->rank].op_count)
            return wrong(s, "waits for ever");
        if (!outputs(s))
            return false;
    }
    return true;
}

bool counted_run(const gyre_plan *plan, char *text)
{
    uint32_t ranks = plan->problem.ranks;
    run_state s = {.plan = plan, .text = text};
    size_t queues = (size_t)ranks * ranks * 8;

    s.ranks = calloc(ranks, sizeof(*s.ranks));
    s.queues = calloc(queues, sizeof(message *));
    for (uint32_t r = 0; r < ranks; r++) {
        const gyre_plan_program *p = &plan->programs[r];

        s.ranks[r].values = calloc(p->slot_count + 1, sizeof(value));
        s.ranks[r].tenant = malloc((p->buf_count + 1) * sizeof(uint32_t));
        memset(s.ranks[r].tenant, 0xff, (p->buf_count + 1) * sizeof(uint32_t));
    }
    bool good = run(&s);

    for (uint32_t r = 0; r < ranks; r++) {
        for (uint32_t i = 0; i < plan->programs[r].slot_count; i++)
            free(s.ranks[r].values[i].cells);
        free(s.ranks[r].values);
        free(s.ranks[r].tenant);
    }
    for (size_t i = 0; i < queues; i++)
        for (message *m = s.queues[i]; m != NULL;) {
            message *next = m->next;

            free(m);
            m = next;
        }
    free(s.queues);
    free(s.ranks);
    return good;
}
