/* SPDX-License-Identifier: Apache-2.0 */
/* What attention costs: planned bytes and memory, and what was moved. */
#include "attention/face.h"

#include <string.h>

void gyre_planned_bytes(const gyre_plan *plan, uint32_t rank,
                        const gyre_leaves *leaves, const char *phase,
                        const gyre_world *world, uint32_t klass, uint64_t *sent,
                        uint64_t *received)
{
    const gyre_plan_program *p = &plan->programs[rank];
    *sent = *received = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        const gyre_plan_op *op = &p->ops[i];
        if (op->code > GYRE_OP_GET)
            continue;
        if (phase != NULL &&
            strcmp(plan->phases[p->groups[op->group].phase], phase) != 0)
            continue;
        if (world != NULL &&
            gyre_transport_class(world, rank, op->view[1]) != klass)
            continue;
        uint64_t bytes = gyre_view_bytes(plan, p, op->view[0]);
        if (leaves != NULL)
            bytes *= gyre_leaves_of(leaves,
                                    p->slots[p->views[op->view[0]].slot].kind);
        *(op->code == GYRE_OP_PUT ? sent : received) += bytes;
    }
}

static gyre_status measure_pass(const gyre_attention_options *options,
                                const gyre_plan *plan, uint32_t rank,
                                gyre_attention_cost *out, gyre_error *error)
{
    uint32_t pass = plan->pass;
    gyre_executor_options with = gyre_attention_executor_options(options, plan);
    gyre_executor_memory memory;
    gyre_leaves leaves;
    gyre_status status = gyre_leaves_make(plan, options->tiles, &leaves, error);
    if (status == GYRE_OK)
        status = gyre_executor_measure(plan, rank, &with, &memory, error);
    if (status != GYRE_OK)
        return status;
    out->bufs[pass] = memory.bufs;
    out->external[pass] = memory.external;
    out->leaves[pass] = memory.leaves;
    out->scratch[pass] = memory.scratch;
    if (pass == GYRE_PASS_BACKWARD)
        out->saved = memory.saved;
    gyre_planned_bytes(plan, rank, NULL, NULL, NULL, 0, &out->sent[pass],
                       &out->received[pass]);
    gyre_planned_bytes(plan, rank, &leaves, NULL, NULL, 0,
                       &out->leaves_sent[pass], &out->leaves_received[pass]);
    out->leaves_sent[pass] -= out->sent[pass];
    out->leaves_received[pass] -= out->received[pass];
    return GYRE_OK;
}

gyre_status gyre_attention_measure(gyre_context *context,
                                   const gyre_attention_options *given,
                                   uint32_t rank, gyre_attention_cost *out,
                                   gyre_error *error)
{
    gyre_attention_options options;
    gyre_plan *made[GYRE_PASS_COUNT];
    const gyre_plan *plans[GYRE_PASS_COUNT];
    gyre_attention_cost cost = {0};
    size_t size = out->size < sizeof(cost) ? out->size : sizeof(cost);
    if (size == 0)
        return gyre_fail(error, GYRE_INVALID,
                         "attention cost: size is 0; set it to "
                         "sizeof(gyre_attention_cost)");
    gyre_status status = gyre_attention_take(given, &options, error);
    if (status == GYRE_OK)
        status = gyre_attention_plans(context, &options, made, plans, error);
    if (status != GYRE_OK)
        return status;
    if (rank >= plans[0]->problem.ranks)
        status = gyre_fail(error, GYRE_RANGE, "there is no rank %u: %u ranks",
                           rank, plans[0]->problem.ranks);
    for (uint32_t pass = 0; pass < 2 && status == GYRE_OK; pass++)
        if (plans[pass] != NULL)
            status = measure_pass(&options, plans[pass], rank, &cost, error);
    gyre_plan_free(made[0]);
    gyre_plan_free(made[1]);
    if (status == GYRE_OK) {
        cost.size = out->size;
        memcpy(out, &cost, size);
    }
    return status;
}

gyre_status
gyre_attention_ledger(const gyre_attention *a, uint32_t pass, uint32_t rank,
                      int (*each)(void *user, const gyre_attention_link *link),
                      void *user, gyre_error *error)
{
    if (pass >= GYRE_PASS_COUNT || !a->ran[pass])
        return gyre_fail(error, GYRE_STATE, "this pass has not run yet");
    if (rank < a->first || rank >= a->first + a->count)
        return gyre_fail(error, GYRE_RANGE, "rank %u is not here: %u to %u are",
                         rank, a->first, a->first + a->count - 1);
    const gyre_executor *x = a->executors[pass][rank - a->first];
    const gyre_link_count *at =
        a->moved[pass] + (size_t)(rank - a->first) * a->phases * a->classes;
    for (uint32_t phase = 0; phase < a->phases; phase++)
        for (uint32_t c = 0; c < a->classes; c++, at++) {
            gyre_attention_link link = {
                .phase = gyre_transport_phase_name(a->world, phase),
                .klass = gyre_transport_class_name(a->world, c),
                .sent = at->sent,
                .received = at->received};
            gyre_planned_bytes(x->plan, rank, &x->leaves, link.phase, a->world,
                               c, &link.planned_sent, &link.planned_received);
            if (link.sent + link.received + link.planned_sent +
                    link.planned_received >
                0)
                if (each(user, &link) != 0)
                    return GYRE_OK;
        }
    return GYRE_OK;
}
