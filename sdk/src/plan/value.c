/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of values and ops: names, sides, planes, bytes. */
#include "plan/plan.h"

typedef struct kind_fact {
    const char *name;
    bool sum;
    uint8_t side, planes;
} kind_fact;

static const kind_fact kinds[GYRE_VALUE_COUNT] = {
    [GYRE_VALUE_Q] = {"Q", false, GYRE_SIDE_Q, 1},
    [GYRE_VALUE_KV] = {"KV", false, GYRE_SIDE_KV, 1},
    [GYRE_VALUE_O] = {"O", false, GYRE_SIDE_Q, 1},
    [GYRE_VALUE_DO] = {"DO", false, GYRE_SIDE_Q, 1},
    [GYRE_VALUE_ST] = {"ST", false, GYRE_SIDE_Q, 3},
    [GYRE_VALUE_DQ] = {"DQ", false, GYRE_SIDE_Q, 1},
    [GYRE_VALUE_DKV] = {"DKV", false, GYRE_SIDE_KV, 1},
    [GYRE_VALUE_O_SUM] = {"O*", true, GYRE_SIDE_Q, 1},
    [GYRE_VALUE_DQ_SUM] = {"DQ*", true, GYRE_SIDE_Q, 1},
    [GYRE_VALUE_DKV_SUM] = {"DKV*", true, GYRE_SIDE_KV, 1},
};

/* Views: how many; bits of those that may be left out and are written. */
typedef struct op_fact {
    const char *name;
    uint8_t views, optional, writes;
} op_fact;

static const op_fact ops[GYRE_OP_COUNT] = {
    [GYRE_OP_PUT] = {"PUT", 1, 0, 0},
    [GYRE_OP_GET] = {"GET", 1, 0, 1},
    [GYRE_OP_ATT] = {"ATT", 3, 0, 1 << 2},
    [GYRE_OP_GRD] = {"GRD", 6, 1 << 4 | 1 << 5, 1 << 4 | 1 << 5},
    [GYRE_OP_RED] = {"RED", 2, 0, 1 << 1},
    [GYRE_OP_CPY] = {"CPY", 2, 0, 1 << 1},
    [GYRE_OP_FIN] = {"FIN", 3, 1 << 2, 1 << 1 | 1 << 2},
    [GYRE_OP_DLT] = {"DLT", 3, 0, 1 << 2},
};

static const char *const patterns[GYRE_PATTERN_COUNT] = {"none", "a2a", "ag",
                                                         "rs"};

bool gyre_value_is_sum(uint32_t kind)
{
    return kind < GYRE_VALUE_COUNT && kinds[kind].sum;
}

uint32_t gyre_value_side(uint32_t kind)
{
    return kind < GYRE_VALUE_COUNT ? kinds[kind].side : GYRE_SIDE_Q;
}

uint32_t gyre_value_planes(uint32_t kind)
{
    return kind < GYRE_VALUE_COUNT ? kinds[kind].planes : 0;
}

const char *gyre_value_name(uint32_t kind)
{
    return kind < GYRE_VALUE_COUNT ? kinds[kind].name : "?";
}

const char *gyre_op_name(uint32_t code)
{
    return code < GYRE_OP_COUNT ? ops[code].name : "?";
}

const char *gyre_pattern_name(uint32_t pattern)
{
    return pattern < GYRE_PATTERN_COUNT ? patterns[pattern] : "?";
}

uint32_t gyre_op_writes(uint32_t code)
{
    return code < GYRE_OP_COUNT ? ops[code].writes : 0;
}

uint32_t gyre_op_optional(uint32_t code)
{
    return code < GYRE_OP_COUNT ? ops[code].optional : 0;
}

uint32_t gyre_op_views(uint32_t code)
{
    return code < GYRE_OP_COUNT ? ops[code].views : 0;
}

void gyre_kv_heads(const gyre_problem *problem, uint32_t h0, uint32_t h1,
                   uint32_t *k0, uint32_t *k1)
{
    uint32_t group = problem->heads / problem->kv_heads;
    *k0 = h0 / group;
    *k1 = (h1 + group - 1) / group;
}

/* Elements of one row and the query heads h0..h1, without statistics. */
static uint64_t row_elements(const gyre_problem *problem, uint32_t kind,
                             uint32_t h0, uint32_t h1)
{
    uint64_t heads = h1 - h0;
    uint32_t k0, k1;
    switch (kind) {
    case GYRE_VALUE_Q:
    case GYRE_VALUE_DQ:
    case GYRE_VALUE_DQ_SUM:
        return heads * problem->head_dim;
    case GYRE_VALUE_O:
    case GYRE_VALUE_DO:
    case GYRE_VALUE_O_SUM:
        return heads * problem->v_head_dim;
    case GYRE_VALUE_ST:
        return 0;
    default:
        gyre_kv_heads(problem, h0, h1, &k0, &k1);
        return (uint64_t)(k1 - k0) *
               ((uint64_t)problem->head_dim + problem->v_head_dim);
    }
}

uint64_t gyre_value_bytes(const gyre_problem *problem, uint32_t kind,
                          uint32_t dtype, uint64_t tokens, uint32_t h0,
                          uint32_t h1, uint32_t planes)
{
    uint64_t row = row_elements(problem, kind, h0, h1) *
                   gyre_dtype_bytes((gyre_dtype)dtype);
    uint64_t statistics = 0;
    if (kind == GYRE_VALUE_O_SUM)
        statistics = 1;
    else if (kind == GYRE_VALUE_ST)
        statistics = (planes & 1) + (planes >> 1 & 1);
    row += statistics * (h1 - h0) * problem->stat_bytes;
    return row * tokens * problem->batch;
}

uint64_t gyre_slot_bytes(const gyre_plan *plan, const gyre_plan_slot *slot)
{
    return gyre_value_bytes(&plan->problem, slot->kind, slot->dtype,
                            plan->rows[slot->rows].tokens, slot->h0, slot->h1,
                            gyre_value_planes(slot->kind));
}

uint64_t gyre_view_bytes(const gyre_plan *plan,
                         const gyre_plan_program *program, uint32_t view)
{
    const gyre_plan_view *v = &program->views[view];
    const gyre_plan_slot *slot = &program->slots[v->slot];
    return gyre_value_bytes(&plan->problem, slot->kind, slot->dtype,
                            plan->rows[v->rows].tokens, v->h0, v->h1,
                            v->planes);
}
