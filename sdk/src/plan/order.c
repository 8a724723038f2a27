/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits that nobody writes: from the views of ops in program order.
 *
 *     buf   tenant slot, and by lane the last unit that touched the tenant
 *           before (each op of the new tenant waits for those) and the last
 *           that touched this one
 *     slot  by row: marks {unit, lane, heads, planes, write}
 *
 * An access waits for every mark on its rows that meets its heads (of KV, the
 * whole KV heads) and planes
 * where one of the two writes.  It then replaces the marks that it covers and
 * waits for, and those of its own lane that it covers: their waiters wait for
 * it.  Lanes run in order, so only the latest unit of each lane is kept, and
 * the rows of a slot hold few marks at a time.
 */
#include "plan/plan.h"

#include <string.h>

enum { LANES = GYRE_PLAN_LANES };

typedef struct order_mark {
    uint32_t unit, next; /* of the row's list; id + 1, 0 ends */
    uint16_t h0, h1;
    uint8_t lane, planes;
    bool write;
} order_mark;

typedef struct tenancy {
    uint32_t slot;
    uint32_t evicted[LANES]; /* unit + 1, 0: none */
    uint32_t touched[LANES];
} tenancy;

typedef struct order_walk {
    const gyre_plan *plan;
    const gyre_plan_program *program;
    gyre_plan_order *order;
    tenancy *bufs;      /* [buf_count] */
    uint32_t *slot_row; /* [slot_count + 1]: first of its rows in `heads` */
    uint32_t *heads;    /* row -> first mark */
    order_mark *marks;
    uint32_t mark_count, mark_room, free_mark;
    uint32_t waits[LANES]; /* of the unit at hand; unit + 1 */
    uint32_t row_total;
    bool out_of_memory;
} order_walk;

static void wait_for(order_walk *w, uint32_t unit, uint32_t other,
                     uint32_t lane)
{
    if (other == unit) {
        if (w->order->clash_unit == GYRE_NO_VIEW)
            w->order->clash_unit = unit;
    } else if (other + 1 > w->waits[lane]) {
        w->waits[lane] = other + 1;
    }
}

static uint32_t new_mark(order_walk *w)
{
    if (w->free_mark != 0) {
        uint32_t id = w->free_mark;
        w->free_mark = w->marks[id - 1].next;
        return id;
    }
    if (w->mark_count == w->mark_room) {
        uint32_t room = w->mark_room ? w->mark_room * 2 : 256;
        order_mark *grown = gyre_grow(w->plan->context, w->marks, w->mark_room,
                                      room, sizeof(*grown));
        if (grown == NULL) {
            w->out_of_memory = true;
            return 0;
        }
        w->marks = grown;
        w->mark_room = room;
    }
    return ++w->mark_count;
}

/* One row: wait for marks in conflict, drop the covered, add this access. */
static void touch_row(order_walk *w, uint32_t *head, const order_mark *access)
{
    uint32_t *link = head;
    while (*link != 0) {
        order_mark *m = &w->marks[*link - 1];
        bool meets = m->h0 < access->h1 && access->h0 < m->h1 &&
                     (m->planes & access->planes) != 0;
        bool conflict = meets && (m->write || access->write);
        if (conflict)
            wait_for(w, access->unit, m->unit, m->lane);
        bool covered = m->h0 >= access->h0 && m->h1 <= access->h1 &&
                       (m->planes & ~access->planes) == 0;
        /* A read may replace a read of its lane, not a write. */
        bool stands_for = m->write == access->write || access->write;
        if (m->unit != access->unit && covered &&
            ((conflict && access->write) ||
             (stands_for && m->lane == access->lane))) {
            uint32_t id = *link;
            *link = m->next;
            m->next = w->free_mark;
            w->free_mark = id;
        } else {
            link = &m->next;
        }
    }
    uint32_t id = new_mark(w);
    if (id == 0)
        return;
    w->marks[id - 1] = *access;
    w->marks[id - 1].next = *head;
    *head = id;
}

static void drop_marks(order_walk *w, uint32_t slot)
{
    for (uint32_t r = w->slot_row[slot]; r < w->slot_row[slot + 1]; r++)
        while (w->heads[r] != 0) {
            uint32_t id = w->heads[r];
            w->heads[r] = w->marks[id - 1].next;
            w->marks[id - 1].next = w->free_mark;
            w->free_mark = id;
        }
}

/* The buf's tenant is `slot` from now on. */
static void enter(order_walk *w, tenancy *buf, uint32_t slot)
{
    if (buf->slot == slot)
        return;
    if (buf->slot != GYRE_NO_VIEW)
        drop_marks(w, buf->slot);
    /* A lane that has not touched the tenant before still keeps the one before
     * it: the new tenant waits for both. */
    for (int lane = 0; lane < LANES; lane++) {
        if (buf->touched[lane] > buf->evicted[lane])
            buf->evicted[lane] = buf->touched[lane];
        buf->touched[lane] = 0;
    }
    buf->slot = slot;
}

static void touch(order_walk *w, uint32_t unit, uint32_t lane, uint32_t view_id,
                  bool write)
{
    const gyre_plan_view *v = &w->program->views[view_id];
    tenancy *buf = &w->bufs[w->program->slots[v->slot].buf];
    enter(w, buf, v->slot);
    for (uint32_t l = 0; l < LANES; l++)
        if (buf->evicted[l] != 0)
            wait_for(w, unit, buf->evicted[l] - 1, l);
    buf->touched[lane] = unit + 1;
    const gyre_plan *plan = w->plan;
    const gyre_plan_rows *in = &plan->rows[w->program->slots[v->slot].rows];
    const gyre_plan_rows *of = &plan->rows[v->rows];
    const uint32_t *all = plan->row_chunks + in->first;
    const uint32_t *some = plan->row_chunks + of->first;
    uint32_t h0 = v->h0, h1 = v->h1;
    /* Query heads of one KV head share its storage. */
    if (gyre_value_side(w->program->slots[v->slot].kind) == GYRE_SIDE_KV) {
        const gyre_problem *p = &plan->problem;
        uint32_t share = p->heads / p->kv_heads, k0, k1;
        gyre_kv_heads(p, h0, h1, &k0, &k1);
        h0 = k0 * share;
        h1 = k1 * share;
    }
    order_mark access = {.unit = unit,
                         .h0 = (uint16_t)h0,
                         .h1 = (uint16_t)h1,
                         .lane = (uint8_t)lane,
                         .planes = (uint8_t)v->planes,
                         .write = write};
    /* Both lists are sorted; a row outside the slot is the prover's. */
    for (uint32_t i = 0, at = 0; i < of->count; i++) {
        while (at < in->count && all[at] < some[i])
            at++;
        if (at < in->count && all[at] == some[i])
            touch_row(w, &w->heads[w->slot_row[v->slot] + at], &access);
    }
}

static void touch_op(order_walk *w, uint32_t unit, uint32_t lane,
                     const gyre_plan_op *op)
{
    uint32_t writes = gyre_op_writes(op->code);
    for (uint32_t i = 0; i < gyre_op_views(op->code); i++)
        if (op->view[i] != GYRE_NO_VIEW)
            touch(w, unit, lane, op->view[i], writes >> i & 1);
}

static bool save_waits(order_walk *w, uint32_t lane)
{
    gyre_plan_order *order = w->order;
    if (order->dep_count + LANES > order->dep_room) {
        uint32_t room = order->dep_room * 2 + 256;
        uint32_t *grown = gyre_grow(order->context, order->deps,
                                    order->dep_room, room, sizeof(*grown));
        if (grown == NULL)
            return false;
        order->deps = grown;
        order->dep_room = room;
    }
    for (uint32_t l = 0; l < LANES; l++)
        if (w->waits[l] != 0 && l != lane)
            order->deps[order->dep_count++] = w->waits[l] - 1;
    return true;
}

static bool run(order_walk *w)
{
    const gyre_plan_program *p = w->program;
    for (uint32_t u = 0; u < p->unit_count; u++) {
        memset(w->waits, 0, sizeof(w->waits));
        w->order->first[u] = w->order->dep_count;
        const gyre_plan_unit *unit = &p->units[u];
        for (uint32_t i = 0; i < unit->count; i++)
            touch_op(w, u, unit->lane, &p->ops[unit->first + i]);
        if (w->out_of_memory || !save_waits(w, unit->lane))
            return false;
    }
    w->order->first[p->unit_count] = w->order->dep_count;
    return true;
}

static bool start(order_walk *w)
{
    const gyre_plan_program *p = w->program;
    gyre_context *context = w->plan->context;
    w->slot_row =
        gyre_alloc(context, (size_t)p->slot_count + 1, sizeof(uint32_t));
    w->bufs =
        gyre_alloc_zero(context, (size_t)p->buf_count + 1, sizeof(*w->bufs));
    w->order->first =
        gyre_alloc(context, (size_t)p->unit_count + 1, sizeof(uint32_t));
    if (w->slot_row == NULL || w->bufs == NULL || w->order->first == NULL)
        return false;
    for (uint32_t i = 0; i < p->buf_count; i++)
        w->bufs[i].slot = GYRE_NO_VIEW;
    for (uint32_t s = 0; s < p->slot_count; s++) {
        w->slot_row[s] = w->row_total;
        w->row_total += w->plan->rows[p->slots[s].rows].count;
    }
    w->slot_row[p->slot_count] = w->row_total;
    w->heads =
        gyre_alloc_zero(context, (size_t)w->row_total + 1, sizeof(uint32_t));
    return w->heads != NULL;
}

gyre_status gyre_plan_order_make(const gyre_plan *plan, uint32_t rank,
                                 gyre_plan_order *out, gyre_error *error)
{
    const gyre_plan_program *p = &plan->programs[rank];
    gyre_plan_order order = {.context = plan->context,
                             .unit_count = p->unit_count,
                             .clash_unit = GYRE_NO_VIEW};
    order_walk w = {.plan = plan, .program = p, .order = &order};
    bool good = start(&w) && run(&w);
    gyre_context *context = plan->context;
    gyre_free(context, w.slot_row, (size_t)p->slot_count + 1, sizeof(uint32_t));
    gyre_free(context, w.bufs, (size_t)p->buf_count + 1, sizeof(*w.bufs));
    gyre_free(context, w.heads, (size_t)w.row_total + 1, sizeof(uint32_t));
    gyre_free(context, w.marks, w.mark_room, sizeof(*w.marks));
    if (!good) {
        gyre_plan_order_free(&order);
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "plan '%s', rank %u: no memory for its order",
                         plan->name, rank);
    }
    *out = order;
    return GYRE_OK;
}

void gyre_plan_order_free(gyre_plan_order *order)
{
    gyre_free(order->context, order->first, (size_t)order->unit_count + 1,
              sizeof(uint32_t));
    gyre_free(order->context, order->deps, order->dep_room, sizeof(uint32_t));
    *order = (gyre_plan_order){.clash_unit = GYRE_NO_VIEW};
}
