/* SPDX-License-Identifier: Apache-2.0 */
/* The units of a plan, what they wait for, and the transfers between them. */
#include "plan/time.h"

#include <stdlib.h>
#include <string.h>

/* An end of a transfer.  Sorted, the k-th PUT of a (src, dst, channel) stands
 * as far from their first as the k-th GET. */
typedef struct move_end {
    uint64_t key; /* src, dst, channel */
    uint32_t get; /* 0 PUT, 1 GET */
    uint32_t unit;
    double bytes;
} move_end;

gyre_status gyre_time_no_memory(const gyre_plan *plan, gyre_error *error)
{
    return gyre_fail(error, GYRE_NO_MEMORY, "plan '%s': no memory to time it",
                     plan->name);
}

static gyre_status count_units(const gyre_plan *plan, gyre_time_graph *g,
                               gyre_error *error)
{
    uint32_t ranks = plan->problem.ranks;
    g->ranks = ranks;
    g->first = gyre_alloc_zero(g->context, (size_t)ranks + 1, sizeof(uint32_t));
    if (g->first == NULL)
        return gyre_time_no_memory(plan, error);
    for (uint32_t r = 0; r < ranks; r++) {
        const gyre_plan_program *p = &plan->programs[r];
        g->first[r + 1] = g->first[r] + p->unit_count;
        for (uint32_t i = 0; i < p->group_count; i++)
            g->end_count += p->groups[i].count;
    }
    g->unit_count = g->first[ranks];
    size_t units = g->unit_count;
    g->units = gyre_alloc_zero(g->context, units + 1, sizeof(*g->units));
    g->after_first = gyre_alloc_zero(g->context, units + 2, sizeof(uint32_t));
    g->move_first = gyre_alloc_zero(g->context, units + 2, sizeof(uint32_t));
    g->move_of =
        gyre_alloc(g->context, (size_t)g->end_count + 1, sizeof(uint32_t));
    g->moves =
        gyre_alloc(g->context, (size_t)g->end_count / 2 + 1, sizeof(*g->moves));
    if (g->units == NULL || g->after_first == NULL || g->move_first == NULL ||
        g->move_of == NULL || g->moves == NULL)
        return gyre_time_no_memory(plan, error);
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t n = g->first[r]; n < g->first[r + 1]; n++)
            g->units[n].rank = r;
    return GYRE_OK;
}

/* ---- edges --------------------------------------------------------------- */

/* Edge "to waits for from": counted in the first walk, stored in the second. */
static void add_edge(gyre_time_graph *g, uint32_t from, uint32_t to)
{
    if (g->after == NULL) {
        g->after_first[from + 2]++;
        g->units[to].waits++;
        g->edge_count++;
    } else {
        g->after[g->after_first[from + 1]++] = to;
    }
}

static gyre_status add_rank_edges(const gyre_plan *plan, gyre_time_graph *g,
                                  uint32_t rank, gyre_error *error)
{
    const gyre_plan_program *p = &plan->programs[rank];
    uint32_t base = g->first[rank], last[GYRE_PLAN_LANES];
    gyre_plan_order order = {0};
    if (p->unit_count == 0)
        return GYRE_OK;
    gyre_status status = gyre_plan_order_make(plan, rank, &order, error);
    if (status != GYRE_OK)
        return status;
    for (int i = 0; i < GYRE_PLAN_LANES; i++)
        last[i] = GYRE_NO_VIEW;
    for (uint32_t u = 0; u < p->unit_count; u++) {
        uint32_t lane = p->units[u].lane;
        if (last[lane] != GYRE_NO_VIEW)
            add_edge(g, base + last[lane], base + u);
        last[lane] = u;
        for (uint32_t d = order.first[u]; d < order.first[u + 1]; d++)
            add_edge(g, base + order.deps[d], base + u);
    }
    gyre_plan_order_free(&order);
    return GYRE_OK;
}

static gyre_status add_edges(const gyre_plan *plan, gyre_time_graph *g,
                             gyre_error *error)
{
    gyre_status status = GYRE_OK;
    for (int pass = 0; pass < 2 && status == GYRE_OK; pass++) {
        for (uint32_t r = 0; r < g->ranks && status == GYRE_OK; r++)
            status = add_rank_edges(plan, g, r, error);
        if (pass == 1 || status != GYRE_OK)
            break;
        for (uint32_t n = 0; n < g->unit_count; n++)
            g->after_first[n + 2] += g->after_first[n + 1];
        g->after =
            gyre_alloc(g->context, (size_t)g->edge_count + 1, sizeof(uint32_t));
        if (g->after == NULL)
            status = gyre_time_no_memory(plan, error);
    }
    return status;
}

/* ---- transfers ----------------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
    const move_end *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->get != y->get)
        return x->get < y->get ? -1 : 1;
    return x->unit < y->unit ? -1 : x->unit > y->unit;
}

static void gather_ends(const gyre_plan *plan, const gyre_time_graph *g,
                        move_end *ends)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < g->ranks; r++) {
        const gyre_plan_program *p = &plan->programs[r];
        for (uint32_t u = 0; u < p->unit_count; u++) {
            const gyre_plan_unit *unit = &p->units[u];
            for (uint32_t i = 0; unit->group != GYRE_NO_VIEW && i < unit->count;
                 i++) {
                const gyre_plan_op *op = &p->ops[unit->first + i];
                bool get = op->code == GYRE_OP_GET;
                uint64_t src = get ? op->view[1] : r;
                uint64_t dst = get ? r : op->view[1];
                ends[n++] = (move_end){
                    src << 40 | dst << 16 | op->channel, get, g->first[r] + u,
                    (double)gyre_view_bytes(plan, p, op->view[0])};
            }
        }
    }
}

/* Sorted ends: the k-th PUT with the k-th GET. */
static gyre_status pair(const gyre_plan *plan, gyre_time_graph *g,
                        const move_end *ends, gyre_error *error)
{
    for (uint32_t i = 0; i < g->end_count;) {
        uint32_t puts = 0, all = 0;
        while (i + all < g->end_count && ends[i + all].key == ends[i].key)
            puts += !ends[i + all++].get;
        if (all != 2 * puts)
            return gyre_fail(error, GYRE_PLAN,
                             "plan '%s': rank %u puts %u times to rank %u, "
                             "which gets %u times: prove the plan",
                             plan->name, (uint32_t)(ends[i].key >> 40), puts,
                             (uint32_t)(ends[i].key >> 16 & 0xffffff),
                             all - puts);
        for (uint32_t k = 0; k < puts; k++)
            g->moves[g->move_count++] =
                (gyre_time_move){ends[i + k].unit, ends[i + puts + k].unit,
                                 ends[i + k].bytes, 0};
        i += all;
    }
    return GYRE_OK;
}

/* The transfers of each unit, which keep the order of their keys. */
static void list_moves(gyre_time_graph *g)
{
    for (uint32_t m = 0; m < g->move_count; m++) {
        uint32_t ends[] = {g->moves[m].from, g->moves[m].to};
        for (int i = 0; i < 2; i++) {
            g->move_first[ends[i] + 2]++;
            g->units[ends[i]].moves++;
        }
    }
    for (uint32_t n = 0; n < g->unit_count; n++)
        g->move_first[n + 2] += g->move_first[n + 1];
    for (uint32_t m = 0; m < g->move_count; m++) {
        g->move_of[g->move_first[g->moves[m].from + 1]++] = m;
        g->move_of[g->move_first[g->moves[m].to + 1]++] = m;
    }
}

static gyre_status find_moves(const gyre_plan *plan, gyre_time_graph *g,
                              gyre_error *error)
{
    move_end *ends =
        gyre_alloc(g->context, (size_t)g->end_count + 1, sizeof(*ends));
    if (ends == NULL)
        return gyre_time_no_memory(plan, error);
    gather_ends(plan, g, ends);
    qsort(ends, g->end_count, sizeof(*ends), by_key);
    gyre_status status = pair(plan, g, ends, error);
    if (status == GYRE_OK)
        list_moves(g);
    gyre_free(g->context, ends, (size_t)g->end_count + 1, sizeof(*ends));
    return status;
}

/* ---- the graph ----------------------------------------------------------- */

gyre_status gyre_time_graph_make(const gyre_plan *plan, gyre_time_graph *out,
                                 gyre_error *error)
{
    *out = (gyre_time_graph){.context = plan->context};
    gyre_status status = count_units(plan, out, error);
    if (status == GYRE_OK)
        status = add_edges(plan, out, error);
    if (status == GYRE_OK)
        status = find_moves(plan, out, error);
    return status;
}

void gyre_time_graph_free(gyre_time_graph *g)
{
    size_t units = g->unit_count, ends = g->end_count;
    gyre_free(g->context, g->first, (size_t)g->ranks + 1, sizeof(uint32_t));
    gyre_free(g->context, g->units, units + 1, sizeof(*g->units));
    gyre_free(g->context, g->after_first, units + 2, sizeof(uint32_t));
    gyre_free(g->context, g->after, (size_t)g->edge_count + 1,
              sizeof(uint32_t));
    gyre_free(g->context, g->move_first, units + 2, sizeof(uint32_t));
    gyre_free(g->context, g->move_of, ends + 1, sizeof(uint32_t));
    gyre_free(g->context, g->moves, ends / 2 + 1, sizeof(*g->moves));
}
