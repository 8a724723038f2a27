/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When each unit of a plan runs, if things take what the caller says.
 *
 *     begin(u) = max(end of the one before on its lane, ends of what it waits
 *                    for)
 *     end(u)   = begin(u) + cost                         of a compute op
 *              = last of its transfers + latency         of a group
 *
 * A transfer is ready when both of its groups have begun.  From then on it has
 * its turn at two ports: where it leaves and where it comes in.  Ports serve in
 * the order of readiness and each for itself, which for even traffic ends when
 * flows that share a link would.
 *
 * Things happen in the order of time: a heap holds the begins and ends that are
 * known, one at most for each unit.
 */
#include "plan/time.h"

#include <string.h>

typedef struct event {
    double at;
    uint64_t order; /* of those at one time: as they became known */
    uint32_t unit;
    bool ends;
} event;

/* When a port has served all that is ready. */
typedef struct port {
    double out, in;
} port;

typedef struct clock_work {
    gyre_time_graph graph;
    const gyre_plan *plan;
    const gyre_plan_rates *rates;
    uint32_t of_node; /* ranks of a node */
    port *far, *near; /* by node, by rank */
    event *heap;
    uint32_t heap_count, ended;
    uint64_t known;
} clock_work;

/* ---- what things take ---------------------------------------------------- */

double gyre_plan_step_flops(const gyre_plan *plan, const gyre_plan_step *step)
{
    double dk = plan->problem.head_dim, dv = plan->problem.v_head_dim;
    if (step->code == GYRE_OP_ATT) /* Q K^T, P V */
        return (double)step->pairs * 2 * (dk + dv);
    if (step->code == GYRE_OP_GRD) /* S, dP, dV, dQ, dK */
        return (double)step->pairs * (6 * dk + 4 * dv);
    return 0;
}

static double op_seconds(const gyre_plan *plan, const gyre_plan_rates *rates,
                         const gyre_plan_step *step)
{
    if (step->code == GYRE_OP_ATT || step->code == GYRE_OP_GRD)
        return gyre_plan_step_flops(plan, step) / rates->flops;
    double bytes = 0;
    for (uint32_t i = 0; i < step->part_count; i++)
        bytes += (double)step->parts[i].bytes;
    return bytes / rates->memory;
}

/* Of a unit that computes. */
static double unit_seconds(const clock_work *w, uint32_t rank, uint32_t u)
{
    const gyre_plan_unit *unit = &w->plan->programs[rank].units[u];
    double sum = 0;
    for (uint32_t i = 0; i < unit->count; i++) {
        gyre_plan_step step;
        gyre_plan_step_fill(w->plan, rank, u, unit->first + i, &step);
        sum += op_seconds(w->plan, w->rates, &step);
    }
    return sum;
}

/* ---- events -------------------------------------------------------------- */

static bool sooner(const event *a, const event *b)
{
    return a->at < b->at || (a->at <= b->at && a->order < b->order);
}

static void push(clock_work *w, uint32_t unit, bool ends, double at)
{
    event e = {at, w->known++, unit, ends};
    uint32_t i = w->heap_count++;
    for (; i > 0 && sooner(&e, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = e;
}

static event pop(clock_work *w)
{
    event first = w->heap[0], last = w->heap[--w->heap_count];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < w->heap_count; i = child) {
        if (child + 1 < w->heap_count &&
            sooner(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!sooner(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = last;
    return first;
}

/* ---- time ---------------------------------------------------------------- */

static double serve(double *free, double ready, double seconds)
{
    *free = (*free > ready ? *free : ready) + seconds;
    return *free;
}

static void move(clock_work *w, const gyre_time_move *m, double ready)
{
    gyre_time_unit *ends[] = {&w->graph.units[m->from], &w->graph.units[m->to]};
    uint32_t from = ends[0]->rank, to = ends[1]->rank;
    bool near = from / w->of_node == to / w->of_node;
    double seconds = m->bytes / (near ? w->rates->near_link : w->rates->link);
    port *a = near ? &w->near[from] : &w->far[from / w->of_node];
    port *b = near ? &w->near[to] : &w->far[to / w->of_node];
    double left = serve(&a->out, ready, seconds);
    double came = serve(&b->in, ready, seconds);
    double over = left > came ? left : came;
    for (int i = 0; i < 2; i++) {
        ends[i]->end = over > ends[i]->end ? over : ends[i]->end;
        if (--ends[i]->moves == 0)
            push(w, i == 0 ? m->from : m->to, true,
                 ends[i]->end + w->rates->latency);
    }
}

static void begin(clock_work *w, uint32_t n, double at)
{
    gyre_time_graph *g = &w->graph;
    gyre_time_unit *unit = &g->units[n];
    unit->begin = at;
    if (unit->moves == 0)
        push(w, n, true,
             at + unit_seconds(w, unit->rank, n - g->first[unit->rank]));
    for (uint32_t i = g->move_first[n]; i < g->move_first[n + 1]; i++)
        if (++g->moves[g->move_of[i]].begun == 2)
            move(w, &g->moves[g->move_of[i]], at);
}

static void run(clock_work *w)
{
    gyre_time_graph *g = &w->graph;
    for (uint32_t n = 0; n < g->unit_count; n++)
        if (g->units[n].waits == 0)
            push(w, n, false, 0);
    while (w->heap_count > 0) {
        event e = pop(w);
        if (!e.ends) {
            begin(w, e.unit, e.at);
            continue;
        }
        g->units[e.unit].end = e.at;
        w->ended++;
        for (uint32_t k = g->after_first[e.unit];
             k < g->after_first[e.unit + 1]; k++)
            if (--g->units[g->after[k]].waits == 0)
                push(w, g->after[k], false, e.at);
    }
}

static gyre_status hand_out(const clock_work *w, gyre_plan_each *each,
                            void *user, gyre_error *error)
{
    for (uint32_t r = 0; r < w->plan->problem.ranks; r++) {
        const gyre_plan_program *p = &w->plan->programs[r];
        for (uint32_t u = 0; u < p->unit_count; u++)
            for (uint32_t i = 0; i < p->units[u].count; i++) {
                gyre_plan_step step;
                gyre_plan_step_fill(w->plan, r, u, p->units[u].first + i,
                                    &step);
                step.begin = w->graph.units[w->graph.first[r] + u].begin;
                step.end = w->graph.units[w->graph.first[r] + u].end;
                gyre_status status = each(user, &step, error);
                if (status != GYRE_OK)
                    return status;
            }
    }
    return GYRE_OK;
}

/* As the graph says; *last: the end of the last. */
static gyre_status time_all(clock_work *w, double *last, gyre_error *error)
{
    gyre_context *context = w->plan->context;
    uint32_t ranks = w->plan->problem.ranks, count = w->graph.unit_count;
    gyre_status status = GYRE_OK;
    w->far = gyre_alloc_zero(context, ranks, sizeof(port));
    w->near = gyre_alloc_zero(context, ranks, sizeof(port));
    w->heap = gyre_alloc(context, (size_t)count + 1, sizeof(event));
    if (w->far == NULL || w->near == NULL || w->heap == NULL)
        status = gyre_time_no_memory(w->plan, error);
    if (status == GYRE_OK) {
        run(w);
        if (w->ended < count)
            status = gyre_fail(error, GYRE_PLAN,
                               "plan '%s' deadlocks: %u of %u units never end: "
                               "prove the plan",
                               w->plan->name, count - w->ended, count);
    }
    for (uint32_t n = 0; status == GYRE_OK && n < count; n++)
        *last = w->graph.units[n].end > *last ? w->graph.units[n].end : *last;
    gyre_free(context, w->far, ranks, sizeof(port));
    gyre_free(context, w->near, ranks, sizeof(port));
    gyre_free(context, w->heap, (size_t)count + 1, sizeof(event));
    return status;
}

gyre_status gyre_plan_time(const gyre_plan *plan, const gyre_plan_rates *given,
                           gyre_plan_each *each, void *user, double *total,
                           gyre_error *error)
{
    gyre_plan_rates rates = {0};
    memcpy(&rates, given,
           given->size < sizeof(rates) ? given->size : sizeof(rates));
    if (!(rates.flops > 0 && rates.memory > 0 && rates.link > 0 &&
          rates.latency >= 0 && (rates.node <= 1 || rates.near_link > 0)))
        return gyre_fail(error, GYRE_INVALID,
                         "rates must be above 0, and latency 0 or above");
    clock_work w = {.plan = plan,
                    .rates = &rates,
                    .of_node = rates.node > 1 ? rates.node : 1};
    double last = 0;
    gyre_status status = gyre_time_graph_make(plan, &w.graph, error);
    if (status == GYRE_OK)
        status = time_all(&w, &last, error);
    if (status == GYRE_OK && each != NULL)
        status = hand_out(&w, each, user, error);
    if (status == GYRE_OK && total != NULL)
        *total = last;
    gyre_time_graph_free(&w.graph);
    return status;
}
