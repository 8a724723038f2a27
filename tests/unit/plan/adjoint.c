/* SPDX-License-Identifier: Apache-2.0 */
#include "adjoint.h"

#include <stdlib.h>

static const uint32_t NONE = GYRE_NO_VIEW;
enum { BOTH = GYRE_PLANE_LSE | GYRE_PLANE_DELTA, BACK = 1000 };

/* What stands for a forward slot. */
typedef struct twin {
    uint32_t value; /* Q, KV: the replay; of home O the kept one */
    uint32_t sum;   /* Q, KV: DQ*, DKV* */
    uint32_t d_out; /* O, O*: DO */
    uint32_t st;    /* O, O*: statistics; ST: the kept one */
} twin;

typedef struct walk {
    const gyre_plan *plan;
    const gyre_plan_program *p;
    const gyre_plan_host *host;
    gyre_builder *b;
    twin *twins;
    uint32_t rank;
} walk;

static const gyre_plan_slot *slot_of(const walk *w, uint32_t view)
{
    return &w->p->slots[w->p->views[view].slot];
}

static uint32_t kind_of(const walk *w, uint32_t view)
{
    return slot_of(w, view)->kind;
}

static uint32_t rows_of(const walk *w, uint32_t rows)
{
    const gyre_plan_rows *r = &w->plan->rows[rows];
    return w->host->rows(w->b, r->side, gyre_plan_row_list(w->plan, rows),
                         r->count);
}

static uint32_t new_slot(const walk *w, uint32_t rows, uint32_t h0, uint32_t h1,
                         uint32_t kind, uint32_t flags)
{
    const gyre_problem *p = w->host->problem(w->b);
    uint32_t dtype = gyre_value_is_sum(kind) ? p->sum_dtype
                     : kind == GYRE_VALUE_ST ? p->stat_dtype
                                             : p->dtype;
    gyre_plan_slot slot = {.kind = kind,
                           .rows = rows_of(w, rows),
                           .h0 = h0,
                           .h1 = h1,
                           .dtype = dtype,
                           .buf = GYRE_NEW_BUF,
                           .flags = flags};
    return w->host->slot(w->b, &slot);
}

static uint32_t twin_slot(const walk *w, uint32_t s, uint32_t kind,
                          uint32_t flags)
{
    const gyre_plan_slot *slot = &w->p->slots[s];
    return new_slot(w, slot->rows, slot->h0, slot->h1, kind, flags);
}

static void make_twins(const walk *w)
{
    for (uint32_t s = 0; s < w->p->slot_count; s++) {
        const gyre_plan_slot *slot = &w->p->slots[s];
        twin *t = &w->twins[s];
        uint32_t home = slot->flags & GYRE_SLOT_EXTERNAL;
        *t = (twin){NONE, NONE, NONE, NONE};
        switch (slot->kind) {
        case GYRE_VALUE_Q:
        case GYRE_VALUE_KV:
            t->value = twin_slot(w, s, slot->kind, home ? slot->flags : 0);
            t->sum = twin_slot(w, s,
                               slot->kind == GYRE_VALUE_Q ? GYRE_VALUE_DQ_SUM
                                                          : GYRE_VALUE_DKV_SUM,
                               0);
            break;
        case GYRE_VALUE_O:
            if (home)
                t->value = twin_slot(w, s, GYRE_VALUE_O, GYRE_SLOT_SAVED);
            t->d_out = twin_slot(w, s, GYRE_VALUE_DO, home);
            t->st = twin_slot(w, s, GYRE_VALUE_ST, 0);
            break;
        case GYRE_VALUE_O_SUM:
            t->d_out = twin_slot(w, s, GYRE_VALUE_DO, 0);
            t->st = twin_slot(w, s, GYRE_VALUE_ST, 0);
            break;
        default: /* ST */
            t->st = twin_slot(w, s, GYRE_VALUE_ST, GYRE_SLOT_SAVED);
        }
    }
}

/* The rows and heads of a forward view in a slot of the adjoint. */
static uint32_t view_in(const walk *w, uint32_t slot, uint32_t view,
                        uint32_t planes)
{
    const gyre_plan_view *v = &w->p->views[view];
    return w->host->view(w->b, slot, rows_of(w, v->rows), v->h0, v->h1, planes);
}

static const twin *twin_of(const walk *w, uint32_t view)
{
    return &w->twins[w->p->views[view].slot];
}

/* ---- forwards
 * ----------------------------------------------------------------- */

static bool is_input(uint32_t kind)
{
    return kind == GYRE_VALUE_Q || kind == GYRE_VALUE_KV;
}

static void replay(const walk *w, const gyre_plan_unit *unit)
{
    if (unit->group != NONE)
        w->host->begin(w->b, unit->lane, "replay", GYRE_PATTERN_NONE);
    for (uint32_t i = unit->first; i < unit->first + unit->count; i++) {
        const gyre_plan_op *op = &w->p->ops[i];
        if (!is_input(kind_of(w, op->view[0])))
            continue;
        uint32_t a = view_in(w, twin_of(w, op->view[0])->value, op->view[0], 1);
        if (op->code == GYRE_OP_PUT)
            w->host->put(w->b, a, op->view[1], op->channel);
        else if (op->code == GYRE_OP_GET)
            w->host->get(w->b, a, op->view[1], op->channel);
        else if (op->code == GYRE_OP_CPY) {
            uint32_t b =
                view_in(w, twin_of(w, op->view[1])->value, op->view[1], 1);
            w->host->op(w->b, unit->lane, GYRE_OP_CPY, (uint32_t[]){a, b}, 2);
        }
    }
    if (unit->group != NONE)
        w->host->end(w->b);
}

/* ---- backwards
 * ---------------------------------------------------------------- */

/* DO and the planes of ST from the twin of b's slot to that of a's. */
static void pass_back(const walk *w, uint32_t lane, uint32_t a, uint32_t b,
                      uint32_t planes)
{
    const twin *to = twin_of(w, a), *from = twin_of(w, b);
    uint32_t d[] = {view_in(w, from->d_out, b, 1), view_in(w, to->d_out, a, 1)};
    uint32_t s[] = {view_in(w, from->st, b, planes),
                    view_in(w, to->st, a, planes)};
    w->host->op(w->b, lane, GYRE_OP_CPY, d, 2);
    w->host->op(w->b, lane, GYRE_OP_CPY, s, 2);
}

static void compute_back(const walk *w, const gyre_plan_op *op)
{
    const uint32_t *v = op->view;
    switch (op->code) {
    case GYRE_OP_FIN: {
        pass_back(w, op->lane, v[0], v[1], GYRE_PLANE_DELTA);
        uint32_t lse[] = {
            view_in(w, twin_of(w, v[2])->st, v[2], GYRE_PLANE_LSE),
            view_in(w, twin_of(w, v[0])->st, v[0], GYRE_PLANE_LSE)};
        w->host->op(w->b, op->lane, GYRE_OP_CPY, lse, 2);
        break;
    }
    case GYRE_OP_ATT: {
        const twin *q = twin_of(w, v[0]), *kv = twin_of(w, v[1]);
        const twin *o = twin_of(w, v[2]);
        uint32_t views[] = {
            view_in(w, q->value, v[0], 1), view_in(w, o->d_out, v[2], 1),
            view_in(w, o->st, v[2], BOTH), view_in(w, kv->value, v[1], 1),
            view_in(w, q->sum, v[0], 1),   view_in(w, kv->sum, v[1], 1)};
        w->host->op(w->b, op->lane, GYRE_OP_GRD, views, 6);
        break;
    }
    default: /* RED, CPY */
        if (is_input(kind_of(w, v[0]))) {
            uint32_t views[] = {view_in(w, twin_of(w, v[1])->sum, v[1], 1),
                                view_in(w, twin_of(w, v[0])->sum, v[0], 1)};
            w->host->op(w->b, op->lane, GYRE_OP_RED, views, 2);
        } else {
            pass_back(w, op->lane, v[0], v[1],
                      kind_of(w, v[0]) == GYRE_VALUE_O ? GYRE_PLANE_DELTA
                                                       : BOTH);
        }
    }
}

/* What a GET brought goes back by a PUT; what a PUT took comes back. */
static void group_back(const walk *w, const gyre_plan_unit *unit)
{
    uint32_t *came = malloc((unit->count + 1) * sizeof(*came));
    w->host->begin(w->b, unit->lane, "back", GYRE_PATTERN_NONE);
    for (uint32_t i = 0; i < unit->count; i++) {
        const gyre_plan_op *op = &w->p->ops[unit->first + i];
        uint32_t view = op->view[0], kind = kind_of(w, view);
        const twin *t = twin_of(w, view);
        uint32_t views[2], count = 0;
        bool get = op->code == GYRE_OP_PUT;
        came[i] = NONE;
        if (is_input(kind)) {
            const gyre_plan_view *v = &w->p->views[view];
            uint32_t slot = t->sum;
            if (get) {
                slot = new_slot(w, v->rows, v->h0, v->h1,
                                kind == GYRE_VALUE_Q ? GYRE_VALUE_DQ_SUM
                                                     : GYRE_VALUE_DKV_SUM,
                                0);
                came[i] = w->host->whole(w->b, slot);
            }
            views[count++] = view_in(w, slot, view, 1);
        } else {
            views[count++] = view_in(w, t->d_out, view, 1);
            views[count++] = view_in(
                w, t->st, view, kind == GYRE_VALUE_O ? GYRE_PLANE_DELTA : BOTH);
        }
        for (uint32_t k = 0; k < count; k++)
            (get ? w->host->get : w->host->put)(w->b, views[k], op->view[1],
                                                BACK + op->channel);
    }
    w->host->end(w->b);
    for (uint32_t i = 0; i < unit->count; i++) {
        uint32_t view = w->p->ops[unit->first + i].view[0];
        if (came[i] != NONE)
            w->host->op(w->b, 0, GYRE_OP_RED,
                        (uint32_t[]){came[i], view_in(w, twin_of(w, view)->sum,
                                                      view, 1)},
                        2);
    }
    free(came);
}

/* ---- ends
 * ------------------------------------------------------------------------ */

static void begin_home(const walk *w)
{
    for (uint32_t s = 0; s < w->p->slot_count; s++) {
        const gyre_plan_slot *slot = &w->p->slots[s];
        if (slot->kind != GYRE_VALUE_O || !(slot->flags & GYRE_SLOT_EXTERNAL))
            continue;
        const twin *t = &w->twins[s];
        uint32_t views[] = {
            w->host->whole(w->b, t->value), w->host->whole(w->b, t->d_out),
            w->host->view(w->b, t->st, rows_of(w, slot->rows), slot->h0,
                          slot->h1, GYRE_PLANE_DELTA)};
        w->host->op(w->b, 0, GYRE_OP_DLT, views, 3);
    }
}

static void end_home(const walk *w)
{
    for (uint32_t s = 0; s < w->p->slot_count; s++) {
        const gyre_plan_slot *slot = &w->p->slots[s];
        if (!is_input(slot->kind) || !(slot->flags & GYRE_SLOT_EXTERNAL))
            continue;
        uint32_t out = twin_slot(
            w, s, slot->kind == GYRE_VALUE_Q ? GYRE_VALUE_DQ : GYRE_VALUE_DKV,
            GYRE_SLOT_EXTERNAL);
        uint32_t views[] = {w->host->whole(w->b, w->twins[s].sum),
                            w->host->whole(w->b, out)};
        w->host->op(w->b, 0, GYRE_OP_FIN, views, 2);
    }
}

void adjoint_emit(void *forward, uint32_t pass, uint32_t rank,
                  const gyre_plan_host *host, gyre_builder *builder)
{
    (void)pass;
    const gyre_plan *plan = forward;
    walk w = {plan, &plan->programs[rank], host, builder, NULL, rank};
    w.twins = malloc((w.p->slot_count + 1) * sizeof(*w.twins));
    make_twins(&w);
    for (uint32_t u = 0; u < w.p->unit_count; u++)
        replay(&w, &w.p->units[u]);
    begin_home(&w);
    for (uint32_t u = w.p->unit_count; u-- > 0;) {
        const gyre_plan_unit *unit = &w.p->units[u];
        if (unit->group != NONE)
            group_back(&w, unit);
        else
            compute_back(&w, &w.p->ops[unit->first]);
    }
    end_home(&w);
    free(w.twins);
}
