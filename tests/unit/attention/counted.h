/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a plan on counters instead of numbers, in program order with buffered
 * messages: a sum holds how often each pair of chunks was added to it, by query
 * head, and everything else whether it is there.  Shares nothing with the
 * prover or the executor.
 */
#ifndef GYRE_TESTS_UNIT_ATTENTION_COUNTED_H
#define GYRE_TESTS_UNIT_ATTENTION_COUNTED_H

#include "plan/plan.h"

#include <stdbool.h>

/* Every rank ends, every output is at its owner with each pair added once; else
 * a sentence in text[256]. */
bool counted_run(const gyre_plan *plan, char *text);

#endif
