/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events.  A unit starts when the one before it on its lane and those it waits
 * for have ended; a compute op ends at once, a group when all partners of its
 * transfers have started.  What can happen happens, in any order: the events
 * only grow, so what never happens is a deadlock.  A transfer takes effect when
 * the later of its groups starts.
 *
 * Two events a group are needed: one node a pair of groups would call plans
 * stuck in which A waits for B's start alone.
 */
#include "plan/prove.h"

static const uint32_t NONE = GYRE_NO_VIEW;
enum { LANES = GYRE_PLAN_LANES };

typedef struct unit_event {
    double time;      /* of its start, then of its end */
    double reached;   /* when the partners so far had started */
    uint32_t pending; /* WAITS, else partners not started: 0 ended */
} unit_event;

typedef struct events {
    gyre_prover *v;
    bool one_lane;    /* groups of a rank in one queue; without effects */
    unit_event *unit; /* by unit over all ranks */
    uint32_t *head;   /* by rank and lane: first unit not ended */
    uint32_t *last;   /* by rank: groups ended, in program order */
    uint32_t *queue;  /* ranks to look at, the last one first: its partners
                       * are in the cache */
    bool *queued;
    uint32_t queue_count;
    uint32_t current; /* rank that is looked at */
    uint32_t ended;
} events;
static const uint32_t WAITS = GYRE_NO_VIEW;

static const gyre_plan_program *program(const events *e, uint32_t rank)
{
    return &e->v->plan->programs[rank];
}

static void look_at(events *e, uint32_t rank)
{
    if (e->queued[rank] || e->current == rank)
        return;
    e->queued[rank] = true;
    e->queue[e->queue_count++] = rank;
}

/* The first unit of a lane at or after `unit`. */
static uint32_t next_on(const gyre_plan_program *p, uint32_t lane,
                        uint32_t unit)
{
    while (unit < p->unit_count && p->units[unit].lane != lane)
        unit++;
    return unit;
}

/* The unit whose end this one waits for, or NONE when it can start. */
static uint32_t blocker(const events *e, uint32_t rank, uint32_t unit)
{
    const gyre_prove_rank *r = &e->v->rank[rank];
    const gyre_plan_unit *u = &program(e, rank)->units[unit];
    const unit_event *mine = e->unit + r->unit_base;
    uint32_t head = e->head[rank * LANES + u->lane];
    if (head < unit)
        return head;
    for (uint32_t d = r->order.first[unit]; d < r->order.first[unit + 1]; d++)
        if (mine[r->order.deps[d]].pending != 0)
            return r->order.deps[d];
    /* Nobody asks which. */
    if (e->one_lane && u->group != NONE && u->group != e->last[rank])
        return unit;
    return NONE;
}

/* ---- time ------------------------------------------------------------------
 */

static void start_time(events *e, uint32_t rank, uint32_t unit)
{
    const gyre_prove_rank *r = &e->v->rank[rank];
    const gyre_plan_program *p = program(e, rank);
    unit_event *mine = e->unit + r->unit_base;
    double start = 0;
    for (uint32_t d = r->order.first[unit]; d < r->order.first[unit + 1]; d++)
        if (mine[r->order.deps[d]].time > start)
            start = mine[r->order.deps[d]].time;
    for (uint32_t i = unit; i-- > 0;)
        if (p->units[i].lane == p->units[unit].lane) {
            if (mine[i].time > start)
                start = mine[i].time;
            break;
        }
    mine[unit].time = mine[unit].reached = start;
}

static double group_cost(const events *e, uint32_t rank, uint32_t unit)
{
    const gyre_plan_program *p = program(e, rank);
    const gyre_plan_unit *u = &p->units[unit];
    double bytes[2] = {0, 0};
    for (uint32_t i = u->first; i < u->first + u->count; i++)
        bytes[p->ops[i].code == GYRE_OP_GET] +=
            (double)gyre_view_bytes(e->v->plan, p, p->ops[i].view[0]);
    return (bytes[0] > bytes[1] ? bytes[0] : bytes[1]) *
           e->v->options->byte_cost;
}

static void end(events *e, uint32_t rank, uint32_t unit, double at)
{
    e->unit[e->v->rank[rank].unit_base + unit].time = at;
    e->ended++;
    if (at > e->v->proof->critical_path)
        e->v->proof->critical_path = at;
    look_at(e, rank);
}

/* ---- start -----------------------------------------------------------------
 */

static void partner_started(events *e, uint32_t rank, uint32_t unit, double at)
{
    unit_event *u = &e->unit[e->v->rank[rank].unit_base + unit];
    if (at > u->reached)
        u->reached = at;
    if (--u->pending > 0)
        return;
    double cost = e->one_lane || e->v->options->byte_cost == 0
                      ? 0
                      : group_cost(e, rank, unit);
    end(e, rank, unit, u->reached + cost);
}

static bool start_group(events *e, uint32_t rank, uint32_t unit)
{
    gyre_prover *v = e->v;
    const gyre_plan_unit *u = &program(e, rank)->units[unit];
    unit_event *me = &e->unit[v->rank[rank].unit_base + unit];
    uint32_t first = v->rank[rank].first_transfer[unit];
    me->pending = u->count + 1; /* 1 more until all are looked at */
    double now = me->time;
    for (uint32_t i = 0; i < u->count; i++) {
        const gyre_prove_transfer *t = &v->transfers[first + i];
        const gyre_prove_transfer *mate = &v->transfers[t->mate];
        unit_event *there =
            &e->unit[v->rank[mate->rank].unit_base + mate->unit];
        if (there->pending == WAITS)
            continue;
        bool put = v->plan->programs[rank].ops[t->op].code == GYRE_OP_PUT;
        /* Both ends in one group, in a quotient: once, by its PUT. */
        if (!e->one_lane && (there != me || put) &&
            !gyre_prove_move(v, put ? first + i : t->mate,
                             put ? t->mate : first + i))
            return false;
        if (me->reached < there->time) /* of its start: not ended yet */
            me->reached = there->time;
        if (there != me)
            partner_started(e, mate->rank, mate->unit, now);
        me->pending--;
    }
    partner_started(e, rank, unit, now);
    return true;
}

static bool start(events *e, uint32_t rank, uint32_t unit)
{
    gyre_prover *v = e->v;
    const gyre_plan_unit *u = &program(e, rank)->units[unit];
    unit_event *me = &e->unit[v->rank[rank].unit_base + unit];
    if (!e->one_lane)
        start_time(e, rank, unit);
    if (u->group != NONE)
        return start_group(e, rank, unit);
    me->pending = 0;
    double cost = 0;
    if (!e->one_lane) {
        if (!gyre_prove_compute(v, rank, u->first))
            return false;
        cost = gyre_prove_work(v, rank, u->first);
        v->rank[rank].work += cost;
    }
    end(e, rank, unit, me->time + cost);
    return true;
}

/* All that can happen on a rank. */
static bool advance(events *e, uint32_t rank)
{
    const gyre_plan_program *p = program(e, rank);
    const unit_event *mine = e->unit + e->v->rank[rank].unit_base;
    bool moved = true;
    e->current = rank;
    while (moved) {
        moved = false;
        for (uint32_t lane = 0; lane < LANES; lane++) {
            uint32_t *head = &e->head[rank * LANES + lane];
            while (*head < p->unit_count) {
                if (mine[*head].pending == WAITS) {
                    if (blocker(e, rank, *head) != NONE)
                        break;
                    if (!start(e, rank, *head))
                        return false;
                }
                if (mine[*head].pending != 0)
                    break;
                if (p->units[*head].group != NONE)
                    e->last[rank]++;
                *head = next_on(p, lane, *head + 1);
                moved = true;
            }
        }
    }
    return true;
}

/* ---- the whole -------------------------------------------------------------
 */

/* Follow who waits for whom until in a circle, and name one of it. */
static bool say_stuck(events *e)
{
    gyre_prover *v = e->v;
    uint32_t rank = 0, unit = NONE;
    for (uint32_t r = 0; r < v->ranks && unit == NONE; r++)
        for (uint32_t l = 0; l < LANES && unit == NONE; l++)
            if (e->head[r * LANES + l] < program(e, r)->unit_count) {
                rank = r;
                unit = e->head[r * LANES + l];
            }
    uint32_t peer = NONE, at = NONE;
    for (uint32_t step = 0; step < v->unit_count + 1; step++) {
        const gyre_prove_rank *r = &v->rank[rank];
        const gyre_plan_unit *u = &program(e, rank)->units[unit];
        if (e->unit[r->unit_base + unit].pending == WAITS) {
            unit = blocker(e, rank, unit);
            continue;
        }
        for (uint32_t i = 0; i < u->count; i++) {
            const gyre_prove_transfer *t =
                &v->transfers[r->first_transfer[unit] + i];
            const gyre_prove_transfer *mate = &v->transfers[t->mate];
            if (e->unit[v->rank[mate->rank].unit_base + mate->unit].pending !=
                WAITS)
                continue;
            /* The last one seen is in the circle. */
            at = t->op;
            peer = rank;
            rank = mate->rank;
            unit = mate->unit;
            break;
        }
    }
    if (at == NONE)
        return gyre_prove_fail(v, rank, program(e, rank)->units[unit].first,
                               NONE, NONE, NONE, "deadlock: never starts");
    return gyre_prove_fail(v, peer, at, NONE, NONE, NONE,
                           "deadlock: it waits for rank %u to start op %u, "
                           "which waits in a circle for this one",
                           rank, program(e, rank)->units[unit].first);
}

static bool make(events *e)
{
    gyre_prover *v = e->v;
    gyre_context *context = v->context;
    size_t units = (size_t)v->unit_count + 1;
    e->unit = gyre_alloc_zero(context, units, sizeof(*e->unit));
    e->head = gyre_alloc(context, v->ranks, LANES * sizeof(*e->head));
    e->last = gyre_alloc_zero(context, v->ranks, sizeof(*e->last));
    e->queue = gyre_alloc(context, v->ranks, sizeof(*e->queue));
    e->queued = gyre_alloc_zero(context, v->ranks, sizeof(*e->queued));
    if (e->unit == NULL || e->head == NULL || e->last == NULL ||
        e->queue == NULL || e->queued == NULL)
        return gyre_prove_no_memory(v);
    for (size_t i = 0; i < units; i++)
        e->unit[i].pending = WAITS;
    e->current = NONE;
    for (uint32_t r = 0; r < v->ranks; r++) {
        for (uint32_t l = 0; l < LANES; l++)
            e->head[r * LANES + l] = next_on(program(e, r), l, 0);
        look_at(e, r);
    }
    return true;
}

static void drop(events *e)
{
    gyre_context *context = e->v->context;
    uint32_t ranks = e->v->ranks;
    size_t units = (size_t)e->v->unit_count + 1;
    gyre_free(context, e->unit, units, sizeof(*e->unit));
    gyre_free(context, e->head, ranks, LANES * sizeof(*e->head));
    gyre_free(context, e->last, ranks, sizeof(*e->last));
    gyre_free(context, e->queue, ranks, sizeof(*e->queue));
    gyre_free(context, e->queued, ranks, sizeof(*e->queued));
}

static bool run(events *e)
{
    while (e->queue_count > 0) {
        uint32_t rank = e->queue[--e->queue_count];
        e->queued[rank] = false;
        if (!advance(e, rank))
            return false;
    }
    return true;
}

bool gyre_prove_run(gyre_prover *v)
{
    events e = {.v = v};
    bool good = make(&e) && run(&e);
    if (good && e.ended < v->unit_count)
        good = say_stuck(&e);
    drop(&e);
    return good;
}

bool gyre_prove_one_lane(gyre_prover *v)
{
    events e = {.v = v, .one_lane = true};
    double path = v->proof->critical_path;
    bool good = make(&e) && run(&e);
    v->proof->critical_path = path;
    v->proof->one_lane = good && e.ended == v->unit_count;
    drop(&e);
    return good;
}
