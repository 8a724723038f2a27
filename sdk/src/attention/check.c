/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program must be so that running it stays in its memory: kinds, rows
 * and heads of each op.  Whether it computes the right thing is for the prover
 * to say; wrong plans are run, too.
 */
#include "attention/executor.h"

typedef struct op_shape {
    uint32_t kinds[GYRE_OP_VIEWS]; /* bits of the kinds that a view may have */
} op_shape;

#define K(kind) (1u << GYRE_VALUE_##kind)
enum {
    SUMS = K(O_SUM) | K(DQ_SUM) | K(DKV_SUM),
    ANY = (1u << GYRE_VALUE_COUNT) - 1
};

static const op_shape shapes[GYRE_OP_COUNT] = {
    [GYRE_OP_PUT] = {{ANY}},
    [GYRE_OP_GET] = {{ANY}},
    [GYRE_OP_ATT] = {{K(Q), K(KV), K(O_SUM)}},
    [GYRE_OP_GRD] = {{K(Q), K(DO), K(ST), K(KV), K(DQ_SUM), K(DKV_SUM)}},
    [GYRE_OP_RED] = {{SUMS, SUMS}},
    [GYRE_OP_CPY] = {{ANY, ANY}},
    [GYRE_OP_FIN] = {{SUMS, K(O) | K(DQ) | K(DKV), K(ST)}},
    [GYRE_OP_DLT] = {{K(O), K(DO), K(ST)}},
};
#undef K

typedef struct checker {
    const gyre_plan *plan;
    const gyre_plan_program *program;
    uint32_t rank, op;
    gyre_piece *pieces; /* room for the longest view */
    gyre_error *error;
} checker;

static gyre_status wrong(const checker *c, const char *why)
{
    const gyre_plan_op *op = &c->program->ops[c->op];
    return gyre_fail(c->error, GYRE_PLAN, "plan '%s', rank %u, op %u (%s): %s",
                     c->plan->name, c->rank, c->op, gyre_op_name(op->code),
                     why);
}

static const gyre_plan_slot *slot_of(const checker *c, uint32_t view)
{
    return &c->program->slots[c->program->views[view].slot];
}

static gyre_status check_view(const checker *c, uint32_t id, uint32_t kinds)
{
    const gyre_plan_view *v = &c->program->views[id];
    const gyre_plan_slot *s = &c->program->slots[v->slot];
    const gyre_problem *p = &c->plan->problem;
    if (!(kinds >> s->kind & 1))
        return wrong(c, "a view has a kind that the op cannot have there");
    if (v->h0 < s->h0 || v->h1 > s->h1)
        return wrong(c, "a view has heads outside its slot");
    if (gyre_slot_pieces(c->plan, v->rows, s->rows, c->pieces) == UINT32_MAX)
        return wrong(c, "a view has rows outside its slot");
    uint32_t dtype = gyre_value_is_sum(s->kind) ? p->sum_dtype : p->dtype;
    bool moved = c->program->ops[c->op].code <= GYRE_OP_GET ||
                 c->program->ops[c->op].code == GYRE_OP_CPY ||
                 c->program->ops[c->op].code == GYRE_OP_RED;
    if (s->kind != GYRE_VALUE_ST && s->dtype != dtype &&
        !(moved && gyre_value_is_sum(s->kind) && s->dtype == p->wire_dtype))
        return wrong(c, "a view has a dtype that is not the problem's");
    return GYRE_OK;
}

/* All views of a side have the same rows, and all the same heads. */
static gyre_status check_alike(const checker *c, const gyre_plan_op *op)
{
    uint32_t rows[GYRE_SIDE_COUNT] = {GYRE_NO_VIEW, GYRE_NO_VIEW};
    const gyre_plan_view *first = &c->program->views[op->view[0]];
    for (uint32_t i = 0; i < gyre_op_views(op->code); i++) {
        if (op->view[i] == GYRE_NO_VIEW)
            continue;
        const gyre_plan_view *v = &c->program->views[op->view[i]];
        uint32_t side = gyre_value_side(slot_of(c, op->view[i])->kind);
        if (rows[side] == GYRE_NO_VIEW)
            rows[side] = v->rows;
        if (rows[side] != v->rows)
            return wrong(c, "its views have different rows");
        if (v->h0 != first->h0 || v->h1 != first->h1)
            return wrong(c, "its views have different heads");
    }
    return GYRE_OK;
}

static gyre_status check_kinds(const checker *c, const gyre_plan_op *op)
{
    uint32_t a = slot_of(c, op->view[0])->kind;
    uint32_t b = op->code == GYRE_OP_RED || op->code == GYRE_OP_CPY ||
                         op->code == GYRE_OP_FIN
                     ? slot_of(c, op->view[1])->kind
                     : a;
    static const uint32_t final[GYRE_VALUE_COUNT] = {
        [GYRE_VALUE_O_SUM] = GYRE_VALUE_O,
        [GYRE_VALUE_DQ_SUM] = GYRE_VALUE_DQ,
        [GYRE_VALUE_DKV_SUM] = GYRE_VALUE_DKV};
    if (op->code == GYRE_OP_FIN ? final[a] != b : a != b)
        return wrong(c, "its views are of kinds that do not fit");
    if (op->code == GYRE_OP_RED &&
        slot_of(c, op->view[1])->dtype != c->plan->problem.sum_dtype)
        return wrong(c, "a sum in the wire's dtype cannot be added to");
    if (op->code == GYRE_OP_CPY && !gyre_value_is_sum(a) &&
        slot_of(c, op->view[0])->dtype != slot_of(c, op->view[1])->dtype)
        return wrong(c, "only a sum may change its dtype in a copy");
    return GYRE_OK;
}

static gyre_status check_op(const checker *c)
{
    const gyre_plan_op *op = &c->program->ops[c->op];
    for (uint32_t i = 0; i < gyre_op_views(op->code); i++) {
        if (op->view[i] == GYRE_NO_VIEW)
            continue;
        gyre_status status =
            check_view(c, op->view[i], shapes[op->code].kinds[i]);
        if (status != GYRE_OK)
            return status;
    }
    if (op->code <= GYRE_OP_GET)
        return op->view[1] == c->rank
                   ? wrong(c, "a rank sends to itself: copy instead")
                   : GYRE_OK;
    if (op->code == GYRE_OP_GRD && op->view[4] == GYRE_NO_VIEW &&
        op->view[5] == GYRE_NO_VIEW)
        return wrong(c, "it writes nothing");
    gyre_status status = check_alike(c, op);
    return status == GYRE_OK ? check_kinds(c, op) : status;
}

gyre_status gyre_executor_check(const gyre_plan *plan, uint32_t rank,
                                gyre_piece *pieces, gyre_error *error)
{
    checker c = {.plan = plan,
                 .program = &plan->programs[rank],
                 .rank = rank,
                 .pieces = pieces,
                 .error = error};
    for (; c.op < c.program->op_count; c.op++) {
        gyre_status status = check_op(&c);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

uint32_t gyre_executor_piece_room(const gyre_plan *plan, uint32_t rank)
{
    const gyre_plan_program *p = &plan->programs[rank];
    uint32_t most = 1;
    for (uint32_t i = 0; i < p->view_count; i++)
        if (plan->rows[p->views[i].rows].count > most)
            most = plan->rows[p->views[i].rows].count;
    return most;
}
