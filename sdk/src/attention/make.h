/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a request to a plan: the schedule plugin with its settings, ready to
 * emit.
 *
 *     open --> spec --> gyre_plan_create, or gyre_plan_begin and one
 *                       gyre_plan_emit a rank
 *
 * gyre_plan_make is open, create, prune, close.
 */
#ifndef GYRE_SRC_ATTENTION_MAKE_H
#define GYRE_SRC_ATTENTION_MAKE_H

#include "plan/plan.h"
#include "registry/registry.h"

/* Stays where it is while open: spec.user points to it. */
typedef struct gyre_plan_source {
    gyre_context *context;
    const gyre_schedule *schedule; /* the context's */
    double values[GYRE_OPT_MAX_PARAMETERS];
    gyre_grid *grid;     /* [problem.ranks] */
    uint32_t drop;       /* gyre_drop */
    gyre_plan_spec spec; /* points into the request */
} gyre_plan_source;

/* Checks everything that can be checked before a rank is emitted.  Errors: as
 * gyre_plan_make. */
gyre_status gyre_plan_source_open(gyre_context *context,
                                  const gyre_plan_request *request,
                                  gyre_plan_source *out, gyre_error *error);
void gyre_plan_source_close(gyre_plan_source *source);

/* The plugin's closed forms for one rank; `problem` is that of a plan begun
 * with the source's spec. */
void gyre_plan_source_formula(const gyre_plan_source *source,
                              const gyre_problem *problem, uint32_t rank,
                              gyre_phase_bytes *out, uint32_t *count,
                              uint64_t *memory);

#endif
