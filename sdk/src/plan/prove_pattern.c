/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declared patterns: what a backend may hand to a library's collective.
 *
 *     team   the rank and its peers; everyone of it has a group of the same
 *            pattern whose team is the same, and each pair meets in those
 *     a2a    at least one transfer each way with everyone
 *     ag     and all puts of one view go to everyone
 *     rs     and all carry sums, and all gets are of the same rows and heads
 *
 * In a quotient peers are offsets, a transfer's mate must be in this very
 * group, and the team must be closed under adding its offsets.
 */
#include "plan/prove.h"

#include <stdlib.h>

static const uint32_t NONE = GYRE_NO_VIEW;

typedef struct pattern_walk {
    gyre_prover *v;
    uint32_t *puts, *gets; /* by rank: of the group at hand */
    uint32_t *team;        /* peers of it, sorted */
    uint32_t *fresh;       /* by rank: the stamp of who counted last */
    uint32_t *uses;        /* by view */
    uint32_t stamp;
} pattern_walk;

static bool wrong(pattern_walk *w, uint32_t rank, const gyre_plan_group *group,
                  uint32_t peer, const char *what)
{
    return gyre_prove_fail(w->v, rank, group->first, NONE, NONE, NONE,
                           "group in phase '%s' is no %s: %s (rank %u)",
                           w->v->plan->phases[group->phase],
                           gyre_pattern_name(group->pattern), what, peer);
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Peers of a group, sorted into `team`; counts by peer. */
static uint32_t gather(pattern_walk *w, uint32_t rank,
                       const gyre_plan_group *group)
{
    const gyre_plan_op *ops = w->v->plan->programs[rank].ops + group->first;
    uint32_t count = 0;
    w->stamp++;
    for (uint32_t i = 0; i < group->count; i++) {
        uint32_t peer = ops[i].view[1];
        if (w->fresh[peer] != w->stamp) {
            w->fresh[peer] = w->stamp;
            w->puts[peer] = w->gets[peer] = 0;
            w->team[count++] = peer;
        }
        (ops[i].code == GYRE_OP_PUT ? w->puts : w->gets)[peer]++;
    }
    qsort(w->team, count, sizeof(*w->team), compare);
    return count;
}

/* The group that holds a transfer's mate. */
static const gyre_plan_group *mate_group(const gyre_prover *v, uint32_t t)
{
    const gyre_prove_transfer *mate = &v->transfers[v->transfers[t].mate];
    const gyre_plan_program *p = &v->plan->programs[mate->rank];
    return &p->groups[p->ops[mate->op].group];
}

/* Peers declare the same pattern, and my team is that of its lowest rank, as
 * everyone's is. */
static bool team_agrees(pattern_walk *w, uint32_t rank,
                        const gyre_plan_group *group, uint32_t first,
                        uint32_t count)
{
    const gyre_plan *plan = w->v->plan;
    uint32_t low = w->team[0] < rank ? w->team[0] : rank;
    bool looked = false;
    for (uint32_t i = 0; i < group->count; i++) {
        uint32_t peer = plan->programs[rank].ops[group->first + i].view[1];
        const gyre_plan_group *other = mate_group(w->v, first + i);
        if (other->pattern != group->pattern)
            return wrong(w, rank, group, peer, "a peer declares another");
        if (peer != low || looked)
            continue;
        looked = true;
        const gyre_plan_op *ops = plan->programs[peer].ops + other->first;
        uint32_t there = 0;
        w->stamp++;
        for (uint32_t j = 0; j < other->count; j++)
            if (w->fresh[ops[j].view[1]] != w->stamp) {
                w->fresh[ops[j].view[1]] = w->stamp;
                there++;
            }
        bool same = there == count && w->fresh[rank] == w->stamp;
        for (uint32_t j = 0; j < count; j++)
            same &= w->team[j] == peer || w->fresh[w->team[j]] == w->stamp;
        if (!same)
            return wrong(w, rank, group, peer, "a peer has another team");
    }
    return true;
}

static bool one_group_each(pattern_walk *w, uint32_t rank,
                           const gyre_plan_group *group, uint32_t first)
{
    const gyre_plan *plan = w->v->plan;
    /* puts[] is free again: the peer's group + 1. */
    w->stamp++;
    for (uint32_t i = 0; i < group->count; i++) {
        uint32_t peer = plan->programs[rank].ops[group->first + i].view[1];
        uint32_t id = (uint32_t)(mate_group(w->v, first + i) -
                                 plan->programs[peer].groups);
        if (w->fresh[peer] == w->stamp && w->puts[peer] != id)
            return wrong(w, rank, group, peer, "a peer has it in two groups");
        w->fresh[peer] = w->stamp;
        w->puts[peer] = id;
    }
    return true;
}

/* All puts of one view go to everyone: each view as often as there are peers.
 */
static bool gathers(pattern_walk *w, uint32_t rank,
                    const gyre_plan_group *group, uint32_t count)
{
    const gyre_plan_op *ops = w->v->plan->programs[rank].ops + group->first;
    for (uint32_t i = 0; i < group->count; i++)
        w->uses[ops[i].view[0]] = 0;
    for (uint32_t i = 0; i < group->count; i++)
        w->uses[ops[i].view[0]] += ops[i].code == GYRE_OP_PUT;
    for (uint32_t i = 0; i < group->count; i++)
        if (ops[i].code == GYRE_OP_PUT && w->uses[ops[i].view[0]] != count)
            return wrong(w, rank, group, ops[i].view[1],
                         "a view does not go to everyone once");
    return true;
}

static bool scatters(pattern_walk *w, uint32_t rank,
                     const gyre_plan_group *group)
{
    const gyre_plan_program *p = &w->v->plan->programs[rank];
    const gyre_plan_view *like[GYRE_VALUE_COUNT] = {NULL};
    for (uint32_t i = 0; i < group->count; i++) {
        const gyre_plan_op *op = &p->ops[group->first + i];
        const gyre_plan_view *view = &p->views[op->view[0]];
        uint32_t kind = p->slots[view->slot].kind;
        if (!gyre_value_is_sum(kind))
            return wrong(w, rank, group, op->view[1], "not all are sums");
        if (op->code != GYRE_OP_GET)
            continue;
        if (like[kind] == NULL)
            like[kind] = view;
        else if (like[kind]->rows != view->rows || like[kind]->h0 != view->h0 ||
                 like[kind]->h1 != view->h1)
            return wrong(w, rank, group, op->view[1],
                         "gets are of different rows or heads");
    }
    return true;
}

/* The same of equal ranks. */
static bool team_closed(pattern_walk *w, const gyre_plan_group *group,
                        uint32_t first, uint32_t count)
{
    const gyre_shift *shift = w->v->shift;
    for (uint32_t i = 0; i < group->count; i++)
        if (mate_group(w->v, first + i) != group)
            return wrong(w, 0, group, w->team[0], "a peer has it elsewhere");
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < count; j++) {
            uint32_t sum = gyre_shift_add(shift, w->team[i], w->team[j]);
            if (sum != 0 && w->fresh[sum] != w->stamp)
                return wrong(w, 0, group, sum, "a peer has another team");
        }
    return true;
}

static bool check(pattern_walk *w, uint32_t rank, const gyre_plan_group *group,
                  uint32_t first)
{
    uint32_t count = gather(w, rank, group);
    for (uint32_t i = 0; i < count; i++)
        if (w->puts[w->team[i]] == 0 || w->gets[w->team[i]] == 0)
            return wrong(w, rank, group, w->team[i], "one way alone");
    if (w->v->shift != NULL ? !team_closed(w, group, first, count)
                            : !one_group_each(w, rank, group, first) ||
                                  !team_agrees(w, rank, group, first, count))
        return false;
    if (group->pattern == GYRE_PATTERN_AG)
        return gathers(w, rank, group, count);
    return group->pattern != GYRE_PATTERN_RS || scatters(w, rank, group);
}

bool gyre_prove_patterns(gyre_prover *v)
{
    uint32_t ranks = v->plan->problem.ranks;
    pattern_walk w = {.v = v};
    uint32_t views = 1;
    for (uint32_t r = 0; r < v->ranks; r++)
        if (v->plan->programs[r].view_count > views)
            views = v->plan->programs[r].view_count;
    uint32_t *all = gyre_alloc_zero(v->context, ranks, 4 * sizeof(*all));
    w.uses = gyre_alloc_zero(v->context, views, sizeof(*w.uses));
    bool good = (all != NULL && w.uses != NULL) || gyre_prove_no_memory(v);
    w.puts = all;
    for (uint32_t r = 0; good && r < v->ranks; r++) {
        const gyre_plan_program *p = &v->plan->programs[r];
        w.gets = all + ranks;
        w.team = all + 2 * (size_t)ranks;
        w.fresh = all + 3 * (size_t)ranks;
        for (uint32_t u = 0; good && u < p->unit_count; u++) {
            uint32_t g = p->units[u].group;
            if (g != NONE && p->groups[g].pattern != GYRE_PATTERN_NONE)
                good =
                    check(&w, r, &p->groups[g], v->rank[r].first_transfer[u]);
        }
    }
    gyre_free(v->context, all, ranks, 4 * sizeof(*all));
    gyre_free(v->context, w.uses, views, sizeof(*w.uses));
    return good;
}
