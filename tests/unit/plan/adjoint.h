/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The literal adjoint of a forward plan, op by op: right for any of them, and
 * with one buf a slot far too large to be used.  An oracle for the backward
 * passes that schedules write.
 *
 *     replay    Q and KV go where they went
 *     then backwards, for each forward slot: Q has a DQ*, KV a DKV*, O* and O
 *     the DO and statistics of their rows
 *     FIN RED CPY PUT/GET of O     copies of DO and ST the other way
 *     ATT                          GRD
 *     CPY PUT/GET of Q and KV      RED of what comes back
 */
#ifndef GYRE_TESTS_UNIT_PLAN_ADJOINT_H
#define GYRE_TESTS_UNIT_PLAN_ADJOINT_H

#include "plan/plan.h"

/* gyre_plan_spec.emit with the forward plan as user. */
void adjoint_emit(void *forward, uint32_t pass, uint32_t rank,
                  const gyre_plan_host *host, gyre_builder *builder);

#endif
