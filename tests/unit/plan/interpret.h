/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a plan on numbers in one thread, in any order that its lanes and waits
 * allow, drawn at random: starts, ends and transfers are separate events, and a
 * PUT and a GET meet in the order in which they were started, whatever the
 * program says.  All values are f64 and lie in the bufs of the plan, so that a
 * tenant overwrites the one before.  Shares nothing with the prover or with
 * the kernels.
 */
#ifndef GYRE_TESTS_UNIT_PLAN_INTERPRET_H
#define GYRE_TESTS_UNIT_PLAN_INTERPRET_H

#include "plan/plan.h"

enum { INTERPRET_F64, INTERPRET_COUNT };

typedef struct reference {
    const gyre_plan *of; /* its problem and mask */
    int mode;
    double *o, *lse, *dq, *dk, *dv; /* [head][position][dim] */
} reference;

/* Of the problem alone: any plan of it may be compared. */
reference reference_make(const gyre_plan *plan, int mode);
void reference_free(reference *reference);

/* Whether all ranks end and every output equals the reference; else a sentence
 * in text[256].  seed is drawn on. */
bool interpret(const gyre_plan *plan, const reference *want, uint32_t *seed,
               char *text);

#endif
