/* SPDX-License-Identifier: Apache-2.0 */
/* What the outside may ask of a plan. */
#include "plan/plan.h"

#include <string.h>

void gyre_plan_get_info(const gyre_plan *plan, gyre_plan_info *info)
{
    gyre_plan_info full = {.size = info->size,
                           .schedule = plan->name,
                           .pass = plan->pass,
                           .ranks = plan->problem.ranks};

    for (uint32_t r = 0; r < plan->problem.ranks; r++) {
        full.op_count += plan->programs[r].op_count;
        full.unit_count += plan->programs[r].unit_count;
    }
    for (uint32_t i = 0; i < plan->phase_count && i < GYRE_PLAN_PHASES; i++)
        full.phases[full.phase_count++] = plan->phases[i];
    memcpy(info, &full, info->size < sizeof(full) ? info->size : sizeof(full));
}

static gyre_status check_rank(const gyre_plan *plan, uint32_t rank,
                              gyre_error *error)
{
    if (rank < plan->problem.ranks)
        return GYRE_OK;
    return gyre_fail(error, GYRE_RANGE, "plan '%s': there is no rank %u of %u",
                     plan->name, rank, plan->problem.ranks);
}

gyre_status gyre_plan_rank_bytes(const gyre_plan *plan, uint32_t rank,
                                 gyre_phase_bytes *out, uint32_t *count,
                                 gyre_error *error)
{
    uint64_t sent[GYRE_PLAN_MAX_PHASES], received[GYRE_PLAN_MAX_PHASES];
    uint64_t outer_sent[GYRE_PLAN_MAX_PHASES];
    uint64_t outer_received[GYRE_PLAN_MAX_PHASES];
    uint32_t n = 0;
    gyre_status status = check_rank(plan, rank, error);

    if (status != GYRE_OK)
        return status;
    gyre_plan_count_bytes(plan, rank, sent, received);
    gyre_plan_count_outer(plan, rank, NULL, outer_sent, outer_received);
    for (uint32_t i = 0; i < plan->phase_count; i++) {
        if (sent[i] == 0 && received[i] == 0)
            continue;
        if (n == GYRE_PLAN_PHASES)
            return gyre_fail(error, GYRE_RANGE,
                             "plan '%s': more than %d phases have bytes",
                             plan->name, GYRE_PLAN_PHASES);
        out[n++] = (gyre_phase_bytes){plan->phases[i], sent[i], received[i],
                                      outer_sent[i], outer_received[i]};
    }
    *count = n;
    return GYRE_OK;
}

gyre_status gyre_plan_rank_memory(const gyre_plan *plan, uint32_t rank,
                                  uint64_t *bytes, uint64_t *external,
                                  gyre_error *error)
{
    gyre_status status = check_rank(plan, rank, error);

    return status != GYRE_OK
               ? status
               : gyre_plan_count_memory(plan, rank, bytes, external, error);
}
