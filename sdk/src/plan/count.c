/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes and memory of a program, counted op by op and buf by buf. */
#include "plan/prove.h"

void gyre_plan_count_bytes(const gyre_plan *plan, uint32_t rank, uint64_t *sent,
                           uint64_t *received)
{
    const gyre_plan_program *program = &plan->programs[rank];
    for (uint32_t i = 0; i < plan->phase_count; i++)
        sent[i] = received[i] = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const gyre_plan_op *op = &program->ops[i];
        if (op->code != GYRE_OP_PUT && op->code != GYRE_OP_GET)
            continue;
        uint32_t phase = program->groups[op->group].phase;
        uint64_t bytes = gyre_view_bytes(plan, program, op->view[0]);
        *(op->code == GYRE_OP_PUT ? &sent[phase] : &received[phase]) += bytes;
    }
}

void gyre_plan_count_outer(const gyre_plan *plan, uint32_t rank,
                           const gyre_shift *shift, uint64_t *sent,
                           uint64_t *received)
{
    const gyre_plan_program *program =
        &plan->programs[shift != NULL ? 0 : rank];
    uint32_t node = plan->problem.node;
    for (uint32_t i = 0; i < plan->phase_count; i++)
        sent[i] = received[i] = 0;
    for (uint32_t i = 0; node > 0 && i < program->op_count; i++) {
        const gyre_plan_op *op = &program->ops[i];
        if (op->code != GYRE_OP_PUT && op->code != GYRE_OP_GET)
            continue;
        uint32_t peer = shift != NULL ? gyre_shift_add(shift, rank, op->view[1])
                                      : op->view[1];
        if (peer / node == rank / node)
            continue;
        uint32_t phase = program->groups[op->group].phase;
        uint64_t bytes = gyre_view_bytes(plan, program, op->view[0]);
        *(op->code == GYRE_OP_PUT ? &sent[phase] : &received[phase]) += bytes;
    }
}

gyre_status gyre_plan_count_memory(const gyre_plan *plan, uint32_t rank,
                                   uint64_t *bytes, uint64_t *external,
                                   gyre_error *error)
{
    const gyre_plan_program *program = &plan->programs[rank];
    *bytes = *external = 0;
    if (program->buf_count == 0)
        return GYRE_OK;
    /* Largest tenant by buf, then whether the user owns it. */
    uint64_t *largest = gyre_alloc_zero(plan->context, program->buf_count,
                                        2 * sizeof(*largest));
    if (largest == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "plan '%s': no memory to count",
                         plan->name);
    for (uint32_t i = 0; i < program->slot_count; i++) {
        const gyre_plan_slot *slot = &program->slots[i];
        uint64_t size = gyre_slot_bytes(plan, slot);
        uint64_t *buf = &largest[2 * slot->buf];
        if (size > buf[0])
            buf[0] = size;
        buf[1] |= slot->flags & GYRE_SLOT_EXTERNAL;
    }
    for (uint32_t i = 0; i < program->buf_count; i++) {
        *bytes += largest[2 * i];
        if (largest[2 * i + 1])
            *external += largest[2 * i];
    }
    gyre_free(plan->context, largest, program->buf_count, 2 * sizeof(*largest));
    return GYRE_OK;
}
