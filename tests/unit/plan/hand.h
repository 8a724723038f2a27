/* SPDX-License-Identifier: Apache-2.0 */
/* A ring written by hand, op by op, for tests of what reads plans. */
#ifndef GYRE_TESTS_UNIT_PLAN_HAND_H
#define GYRE_TESTS_UNIT_PLAN_HAND_H

#include "plan/plan.h"

/* Forward: two buffers beside the home KV; lane 0 computes, lane 1 sends to the
 * rank above. */
void hand_ring(void *user, uint32_t pass, uint32_t rank,
               const gyre_plan_host *host, gyre_builder *builder);

/* Causal zigzag, f32, batch 1, 2 heads sharing 1, dims 8 and 4. */
gyre_plan_spec hand_spec(uint32_t ranks, uint64_t tokens);

extern const gyre_mask hand_causal;

#endif
