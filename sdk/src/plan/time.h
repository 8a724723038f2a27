/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan's times are computed on: the units of all ranks in one list, who
 * waits for whom, and which transfer is between which two (time_graph.c).
 */
#ifndef GYRE_SRC_PLAN_TIME_H
#define GYRE_SRC_PLAN_TIME_H

#include "plan/plan.h"

typedef struct gyre_time_unit {
    double begin, end;
    uint32_t rank;
    uint32_t waits; /* units that are not done yet */
    uint32_t moves; /* transfers that have no time yet; 0: it computes */
} gyre_time_unit;

/* The k-th PUT of a (src, dst, channel) and the k-th GET. */
typedef struct gyre_time_move {
    uint32_t from, to; /* units */
    double bytes;
    uint32_t begun; /* of the two units */
} gyre_time_move;

typedef struct gyre_time_graph {
    gyre_context *context;
    uint32_t ranks;
    uint32_t *first; /* [ranks + 1] unit 0 of a rank */
    gyre_time_unit *units;
    uint32_t *after_first, *after; /* who waits for a unit: [units + 1], list */
    uint32_t *move_first, *move_of; /* the transfers of a unit, likewise */
    gyre_time_move *moves;
    uint32_t unit_count, edge_count, move_count, end_count;
} gyre_time_graph;

/* Errors: NO_MEMORY; PLAN for transfers that do not match.  Free it in any
 * case. */
gyre_status gyre_time_graph_make(const gyre_plan *plan, gyre_time_graph *out,
                                 gyre_error *error);
void gyre_time_graph_free(gyre_time_graph *graph);
gyre_status gyre_time_no_memory(const gyre_plan *plan, gyre_error *error);

#endif
