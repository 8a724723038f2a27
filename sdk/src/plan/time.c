/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When each unit of a plan runs, if things take what the caller says.
 *
 *     begin(u) = max(end of the one before on its lane, ends of what it waits
 *                    for)
 *     end(u)   = begin(u) + cost                      of a compute op
 *              = max(begin of it and its partners) + cost      of a group
 *
 * Nodes are the units of all ranks in one list; a queue holds those whose time
 * is known, so that each edge is walked once.
 */
#include "plan/plan.h"

#include <stdlib.h>

/* An end of a transfer.  Sorted, the k-th PUT of a (src, dst, channel) stands
 * as far from their first as the k-th GET. */
typedef struct transfer {
    uint64_t key; /* src, dst, channel */
    uint32_t get; /* 0 PUT, 1 GET */
    uint32_t node;
} transfer;

typedef struct node {
    double begin, end;
    uint32_t waits;    /* units that are not done yet */
    uint32_t partners; /* of transfers, that have not begun yet */
    uint32_t begun, ended;
} node;

typedef struct clock_work {
    const gyre_plan *plan;
    const gyre_plan_rates *rates;
    gyre_context *context;
    uint32_t *first; /* [ranks + 1] node of unit 0 */
    node *nodes;
    uint32_t *after_first, *after; /* who waits for a node: [nodes + 1], list */
    uint32_t *mate_first, *mates;  /* the partners of a node, once a transfer */
    transfer *transfers;
    uint32_t *queue;
    uint32_t node_count, edge_count, transfer_count, queued;
} clock_work;

/* ---- what things take ---------------------------------------------------- */

static double op_seconds(const gyre_plan *plan, const gyre_plan_rates *rates,
                         const gyre_plan_step *step)
{
    double dk = plan->problem.head_dim, dv = plan->problem.v_head_dim;
    if (step->code == GYRE_OP_ATT) /* Q K^T, P V */
        return (double)step->pairs * 2 * (dk + dv) / rates->flops;
    if (step->code == GYRE_OP_GRD) /* S, dP, dV, dQ, dK */
        return (double)step->pairs * (6 * dk + 4 * dv) / rates->flops;
    double bytes = 0;
    for (uint32_t i = 0; i < step->part_count; i++)
        bytes += (double)step->parts[i].bytes;
    return bytes / rates->memory;
}

static double unit_seconds(const clock_work *w, uint32_t rank, uint32_t u)
{
    const gyre_plan_program *p = &w->plan->programs[rank];
    const gyre_plan_unit *unit = &p->units[u];
    if (unit->group == GYRE_NO_VIEW) {
        double sum = 0;
        for (uint32_t i = 0; i < unit->count; i++) {
            gyre_plan_step step;
            gyre_plan_step_fill(w->plan, rank, u, unit->first + i, &step);
            sum += op_seconds(w->plan, w->rates, &step);
        }
        return sum;
    }
    uint64_t bytes[2] = {0, 0};
    for (uint32_t i = 0; i < unit->count; i++) {
        const gyre_plan_op *op = &p->ops[unit->first + i];
        bytes[op->code == GYRE_OP_GET] +=
            gyre_view_bytes(w->plan, p, op->view[0]);
    }
    double most = (double)(bytes[0] > bytes[1] ? bytes[0] : bytes[1]);
    return w->rates->latency + most / w->rates->link;
}

/* ---- edges --------------------------------------------------------------- */

static gyre_status no_memory(const clock_work *w, gyre_error *error)
{
    return gyre_fail(error, GYRE_NO_MEMORY, "plan '%s': no memory to time it",
                     w->plan->name);
}

static gyre_status count_nodes(clock_work *w, gyre_error *error)
{
    uint32_t ranks = w->plan->problem.ranks;
    w->first = gyre_alloc_zero(w->context, (size_t)ranks + 1, sizeof(uint32_t));
    if (w->first == NULL)
        return no_memory(w, error);
    for (uint32_t r = 0; r < ranks; r++) {
        const gyre_plan_program *p = &w->plan->programs[r];
        w->first[r + 1] = w->first[r] + p->unit_count;
        for (uint32_t g = 0; g < p->group_count; g++)
            w->transfer_count += p->groups[g].count;
    }
    w->node_count = w->first[ranks];
    size_t nodes = w->node_count;
    w->nodes = gyre_alloc_zero(w->context, nodes + 1, sizeof(node));
    w->queue = gyre_alloc(w->context, nodes + 1, sizeof(uint32_t));
    w->after_first = gyre_alloc_zero(w->context, nodes + 2, sizeof(uint32_t));
    w->mate_first = gyre_alloc_zero(w->context, nodes + 2, sizeof(uint32_t));
    w->mates =
        gyre_alloc(w->context, (size_t)w->transfer_count + 1, sizeof(uint32_t));
    w->transfers =
        gyre_alloc(w->context, (size_t)w->transfer_count + 1, sizeof(transfer));
    return w->nodes && w->queue && w->after_first && w->mate_first &&
                   w->mates && w->transfers
               ? GYRE_OK
               : no_memory(w, error);
}

/* Edge "to waits for from": counted in the first walk, stored in the second. */
static void add_edge(clock_work *w, uint32_t from, uint32_t to)
{
    if (w->after == NULL) {
        w->after_first[from + 2]++;
        w->nodes[to].waits++;
        w->edge_count++;
    } else {
        w->after[w->after_first[from + 1]++] = to;
    }
}

static gyre_status add_rank_edges(clock_work *w, uint32_t rank,
                                  gyre_error *error)
{
    const gyre_plan_program *p = &w->plan->programs[rank];
    uint32_t base = w->first[rank], last[GYRE_PLAN_LANES];
    gyre_plan_order order = {0};
    if (p->unit_count == 0)
        return GYRE_OK;
    gyre_status status = gyre_plan_order_make(w->plan, rank, &order, error);
    if (status != GYRE_OK)
        return status;
    for (int i = 0; i < GYRE_PLAN_LANES; i++)
        last[i] = GYRE_NO_VIEW;
    for (uint32_t u = 0; u < p->unit_count; u++) {
        uint32_t lane = p->units[u].lane;
        if (last[lane] != GYRE_NO_VIEW)
            add_edge(w, base + last[lane], base + u);
        last[lane] = u;
        for (uint32_t d = order.first[u]; d < order.first[u + 1]; d++)
            add_edge(w, base + order.deps[d], base + u);
    }
    gyre_plan_order_free(&order);
    return GYRE_OK;
}

static gyre_status add_edges(clock_work *w, gyre_error *error)
{
    gyre_status status = GYRE_OK;
    for (int pass = 0; pass < 2 && status == GYRE_OK; pass++) {
        for (uint32_t r = 0; r < w->plan->problem.ranks && status == GYRE_OK;
             r++)
            status = add_rank_edges(w, r, error);
        if (pass == 1 || status != GYRE_OK)
            break;
        for (uint32_t n = 0; n < w->node_count; n++)
            w->after_first[n + 2] += w->after_first[n + 1];
        w->after =
            gyre_alloc(w->context, (size_t)w->edge_count + 1, sizeof(uint32_t));
        if (w->after == NULL)
            status = no_memory(w, error);
    }
    return status;
}

/* ---- partners ------------------------------------------------------------ */

static int by_key(const void *a, const void *b)
{
    const transfer *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->get != y->get)
        return x->get < y->get ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static void gather_transfers(clock_work *w)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < w->plan->problem.ranks; r++) {
        const gyre_plan_program *p = &w->plan->programs[r];
        for (uint32_t u = 0; u < p->unit_count; u++) {
            const gyre_plan_unit *unit = &p->units[u];
            for (uint32_t i = 0; unit->group != GYRE_NO_VIEW && i < unit->count;
                 i++) {
                const gyre_plan_op *op = &p->ops[unit->first + i];
                bool get = op->code == GYRE_OP_GET;
                uint64_t src = get ? op->view[1] : r;
                uint64_t dst = get ? r : op->view[1];
                w->transfers[n++] = (transfer){
                    src << 40 | dst << 16 | op->channel, get, w->first[r] + u};
            }
        }
    }
}

static uint32_t rank_of(const clock_work *w, uint32_t n)
{
    uint32_t r = 0;
    while (w->first[r + 1] <= n)
        r++;
    return r;
}

/* Pair the k-th PUT with the k-th GET; count or store, as add_edge. */
static gyre_status pair(clock_work *w, bool store, gyre_error *error)
{
    for (uint32_t i = 0; i < w->transfer_count;) {
        uint32_t puts = 0, all = 0;
        while (i + all < w->transfer_count &&
               w->transfers[i + all].key == w->transfers[i].key)
            puts += !w->transfers[i + all++].get;
        if (all != 2 * puts)
            return gyre_fail(
                error, GYRE_PLAN,
                "plan '%s': rank %u puts %u times to rank %u, which gets "
                "%u times: prove the plan",
                w->plan->name, (uint32_t)(w->transfers[i].key >> 40), puts,
                (uint32_t)(w->transfers[i].key >> 16 & 0xffffff), all - puts);
        for (uint32_t k = 0; k < puts; k++) {
            uint32_t a = w->transfers[i + k].node;
            uint32_t b = w->transfers[i + puts + k].node;
            if (store) {
                w->mates[w->mate_first[a + 1]++] = b;
                w->mates[w->mate_first[b + 1]++] = a;
            } else {
                w->mate_first[a + 2]++;
                w->mate_first[b + 2]++;
                w->nodes[a].partners++;
                w->nodes[b].partners++;
            }
        }
        i += all;
    }
    return GYRE_OK;
}

static gyre_status find_partners(clock_work *w, gyre_error *error)
{
    gather_transfers(w);
    qsort(w->transfers, w->transfer_count, sizeof(transfer), by_key);
    gyre_status status = pair(w, false, error);
    if (status != GYRE_OK)
        return status;
    for (uint32_t n = 0; n < w->node_count; n++)
        w->mate_first[n + 2] += w->mate_first[n + 1];
    return pair(w, true, error);
}

/* ---- time ---------------------------------------------------------------- */

static void push_if_ended(clock_work *w, uint32_t n)
{
    node *at = &w->nodes[n];
    if (!at->begun || at->partners > 0 || at->ended)
        return;
    at->ended = 1;
    w->queue[w->queued++] = n;
}

/* Its begin is known: tell the partners, and learn of theirs. */
static void begin_node(clock_work *w, uint32_t n)
{
    node *at = &w->nodes[n];
    at->begun = 1;
    at->end = at->begin > at->end ? at->begin : at->end;
    for (uint32_t i = w->mate_first[n]; i < w->mate_first[n + 1]; i++) {
        node *mate = &w->nodes[w->mates[i]];
        mate->partners--;
        if (at->begin > mate->end)
            mate->end = at->begin;
        push_if_ended(w, w->mates[i]);
    }
    push_if_ended(w, n);
}

static void run(clock_work *w)
{
    for (uint32_t n = 0; n < w->node_count; n++)
        if (w->nodes[n].waits == 0)
            begin_node(w, n);
    for (uint32_t i = 0; i < w->queued; i++) {
        uint32_t n = w->queue[i], rank = rank_of(w, n);
        node *at = &w->nodes[n];
        at->end += unit_seconds(w, rank, n - w->first[rank]);
        for (uint32_t k = w->after_first[n]; k < w->after_first[n + 1]; k++) {
            node *next = &w->nodes[w->after[k]];
            if (at->end > next->begin)
                next->begin = at->end;
            if (--next->waits == 0)
                begin_node(w, w->after[k]);
        }
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
                step.begin = w->nodes[w->first[r] + u].begin;
                step.end = w->nodes[w->first[r] + u].end;
                gyre_status status = each(user, &step, error);
                if (status != GYRE_OK)
                    return status;
            }
    }
    return GYRE_OK;
}

static void release(clock_work *w)
{
    size_t nodes = w->node_count;
    gyre_free(w->context, w->first, (size_t)w->plan->problem.ranks + 1,
              sizeof(uint32_t));
    gyre_free(w->context, w->nodes, nodes + 1, sizeof(node));
    gyre_free(w->context, w->queue, nodes + 1, sizeof(uint32_t));
    gyre_free(w->context, w->after_first, nodes + 2, sizeof(uint32_t));
    gyre_free(w->context, w->after, (size_t)w->edge_count + 1,
              sizeof(uint32_t));
    gyre_free(w->context, w->mate_first, nodes + 2, sizeof(uint32_t));
    gyre_free(w->context, w->mates, (size_t)w->transfer_count + 1,
              sizeof(uint32_t));
    gyre_free(w->context, w->transfers, (size_t)w->transfer_count + 1,
              sizeof(transfer));
}

gyre_status gyre_plan_time(const gyre_plan *plan, const gyre_plan_rates *rates,
                           gyre_plan_each *each, void *user, double *total,
                           gyre_error *error)
{
    if (!(rates->flops > 0 && rates->memory > 0 && rates->link > 0 &&
          rates->latency >= 0))
        return gyre_fail(error, GYRE_INVALID,
                         "rates must be above 0, and latency 0 or above");
    clock_work w = {.plan = plan, .rates = rates, .context = plan->context};
    gyre_status status = count_nodes(&w, error);
    if (status == GYRE_OK)
        status = add_edges(&w, error);
    if (status == GYRE_OK)
        status = find_partners(&w, error);
    if (status == GYRE_OK) {
        run(&w);
        if (w.queued < w.node_count)
            status =
                gyre_fail(error, GYRE_PLAN,
                          "plan '%s' deadlocks: %u of %u units never end: "
                          "prove the plan",
                          plan->name, w.node_count - w.queued, w.node_count);
    }
    double last = 0;
    for (uint32_t n = 0; status == GYRE_OK && n < w.node_count; n++)
        last = w.nodes[n].end > last ? w.nodes[n].end : last;
    if (status == GYRE_OK && each != NULL)
        status = hand_out(&w, each, user, error);
    if (status == GYRE_OK && total != NULL)
        *total = last;
    release(&w);
    return status;
}
