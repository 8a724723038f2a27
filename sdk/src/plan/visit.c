/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at a plan op by op, from outside. */
#include "plan/plan.h"

const char *gyre_plan_kind_name(uint32_t kind)
{
    return gyre_value_name(kind);
}

const char *gyre_plan_op_name(uint32_t code)
{
    return gyre_op_name(code);
}

const gyre_problem *gyre_plan_problem(const gyre_plan *plan)
{
    return &plan->problem;
}

const gyre_mask *gyre_plan_mask(const gyre_plan *plan)
{
    return plan->mask;
}

const char *gyre_plan_name(const gyre_plan *plan)
{
    return plan->name;
}

uint32_t gyre_plan_pass(const gyre_plan *plan)
{
    return plan->pass;
}

/* ---- one op -------------------------------------------------------------- */

static void fill_part(const gyre_plan *plan, const gyre_plan_program *program,
                      uint32_t view, gyre_plan_part *out)
{
    if (view == GYRE_NO_VIEW) {
        *out = (gyre_plan_part){.absent = 1};
        return;
    }
    const gyre_plan_view *v = &program->views[view];
    const gyre_plan_slot *slot = &program->slots[v->slot];
    const gyre_plan_rows *rows = &plan->rows[v->rows];
    *out = (gyre_plan_part){.kind = slot->kind,
                            .dtype = slot->dtype,
                            .slot = v->slot,
                            .buf = slot->buf,
                            .flags = slot->flags,
                            .h0 = v->h0,
                            .h1 = v->h1,
                            .planes = v->planes,
                            .side = rows->side,
                            .chunk_count = rows->count,
                            .chunks = gyre_plan_row_list(plan, v->rows),
                            .tokens = rows->tokens,
                            .bytes = gyre_view_bytes(plan, program, view)};
}

/* Allowed pairs of all cells, times heads. */
static uint64_t count_pairs(const gyre_plan *plan, const gyre_plan_part *q,
                            const gyre_plan_part *kv)
{
    if (q->side != GYRE_SIDE_Q || kv->side != GYRE_SIDE_KV)
        return 0; /* a wrong plan */
    const gyre_problem *p = &plan->problem;
    uint64_t pairs = 0;
    for (uint32_t i = 0; i < q->chunk_count; i++)
        for (uint32_t k = 0; k < kv->chunk_count; k++)
            pairs += gyre_mask_area(plan->mask, p->batch,
                                    &p->chunks[GYRE_SIDE_Q][q->chunks[i]],
                                    &p->chunks[GYRE_SIDE_KV][kv->chunks[k]]);
    return pairs * (q->h1 - q->h0);
}

void gyre_plan_step_fill(const gyre_plan *plan, uint32_t rank, uint32_t unit,
                         uint32_t index, gyre_plan_step *out)
{
    const gyre_plan_program *program = &plan->programs[rank];
    const gyre_plan_op *op = &program->ops[index];
    *out = (gyre_plan_step){.size = sizeof(*out),
                            .rank = rank,
                            .op = index,
                            .unit = unit,
                            .code = op->code,
                            .lane = op->lane,
                            .peer = GYRE_NO_VIEW,
                            .phase = "",
                            .part_count = gyre_op_views(op->code)};
    for (uint32_t i = 0; i < out->part_count; i++)
        fill_part(plan, program, op->view[i], &out->parts[i]);
    if (op->code == GYRE_OP_PUT || op->code == GYRE_OP_GET) {
        out->peer = op->view[1];
        out->channel = op->channel;
        out->phase = plan->phases[program->groups[op->group].phase];
        out->pattern = program->groups[op->group].pattern;
    } else if (op->code == GYRE_OP_ATT) {
        out->pairs = count_pairs(plan, &out->parts[0], &out->parts[1]);
    } else if (op->code == GYRE_OP_GRD) {
        out->pairs = count_pairs(plan, &out->parts[0], &out->parts[3]);
    }
}

gyre_status gyre_plan_walk(const gyre_plan *plan, uint32_t rank,
                           gyre_plan_each *each, void *user, gyre_error *error)
{
    if (rank >= plan->problem.ranks)
        return gyre_fail(error, GYRE_RANGE, "plan '%s' has %u ranks, not %u",
                         plan->name, plan->problem.ranks, rank);
    const gyre_plan_program *program = &plan->programs[rank];
    gyre_status status = GYRE_OK;
    for (uint32_t u = 0; u < program->unit_count; u++)
        for (uint32_t i = 0; i < program->units[u].count; i++) {
            gyre_plan_step step;
            gyre_plan_step_fill(plan, rank, u, program->units[u].first + i,
                                &step);
            status = each(user, &step, error);
            if (status != GYRE_OK)
                return status;
        }
    return GYRE_OK;
}

/* ---- waits --------------------------------------------------------------- */

static gyre_status
hand_waits(const gyre_plan_program *program, const gyre_plan_order *order,
           gyre_status (*each)(void *user, uint32_t unit, const uint32_t *waits,
                               uint32_t count, gyre_error *error),
           void *user, gyre_error *error)
{
    uint32_t last[GYRE_PLAN_LANES];
    for (int i = 0; i < GYRE_PLAN_LANES; i++)
        last[i] = GYRE_NO_VIEW;
    for (uint32_t u = 0; u < program->unit_count; u++) {
        uint32_t waits[GYRE_PLAN_LANES + 1], count = 0;
        uint32_t lane = program->units[u].lane;
        if (last[lane] != GYRE_NO_VIEW)
            waits[count++] = last[lane];
        for (uint32_t d = order->first[u];
             d < order->first[u + 1] && count <= GYRE_PLAN_LANES; d++)
            if (order->deps[d] != last[lane])
                waits[count++] = order->deps[d];
        last[lane] = u;
        gyre_status status = each(user, u, waits, count, error);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

gyre_status gyre_plan_waits(const gyre_plan *plan, uint32_t rank,
                            gyre_status (*each)(void *user, uint32_t unit,
                                                const uint32_t *waits,
                                                uint32_t count,
                                                gyre_error *error),
                            void *user, gyre_error *error)
{
    if (rank >= plan->problem.ranks)
        return gyre_fail(error, GYRE_RANGE, "plan '%s' has %u ranks, not %u",
                         plan->name, plan->problem.ranks, rank);
    if (plan->programs[rank].unit_count == 0)
        return GYRE_OK;
    gyre_plan_order order = {0};
    gyre_status status = gyre_plan_order_make(plan, rank, &order, error);
    if (status != GYRE_OK)
        return status;
    status = hand_waits(&plan->programs[rank], &order, each, user, error);
    gyre_plan_order_free(&order);
    return status;
}

/* ---- as text ------------------------------------------------------------- */

typedef struct pen {
    char *text;
    size_t size, used;
} pen;

#define print(p, ...) \
    ((p)->used = gyre_print((p)->text, (p)->size, (p)->used, __VA_ARGS__))

/* "0 3-5" */
static void print_chunks(pen *p, const gyre_plan_part *part)
{
    for (uint32_t i = 0; i < part->chunk_count; i++) {
        uint32_t from = i;
        while (i + 1 < part->chunk_count &&
               part->chunks[i + 1] == part->chunks[i] + 1)
            i++;
        print(p, from > 0 ? " %u" : "%u", part->chunks[from]);
        if (i > from)
            print(p, i > from + 1 ? "-%u" : " %u", part->chunks[i]);
    }
}

static void print_part(pen *p, const gyre_plan *plan,
                       const gyre_plan_part *part)
{
    if (part->absent) {
        print(p, " -");
        return;
    }
    print(p, " %s", gyre_value_name(part->kind));
    if (part->kind == GYRE_VALUE_ST && part->planes == GYRE_PLANE_LSE)
        print(p, ".lse");
    if (part->kind == GYRE_VALUE_ST && part->planes == GYRE_PLANE_DELTA)
        print(p, ".delta");
    print(p, "[");
    print_chunks(p, part);
    print(p, "]");
    if (part->h0 != 0 || part->h1 != plan->problem.heads)
        print(p, "h%u-%u", part->h0, part->h1);
}

const char *gyre_plan_step_text(const gyre_plan *plan,
                                const gyre_plan_step *step, char *text,
                                size_t size)
{
    pen p = {text, size, 0};
    uint32_t writes = gyre_op_writes(step->code);
    bool transfer = step->peer != GYRE_NO_VIEW;
    print(&p, "%s", gyre_op_name(step->code));
    for (uint32_t i = 0; i < step->part_count; i++) {
        bool first = (writes >> i & 1) && (i == 0 || !(writes >> (i - 1) & 1));
        if (first && !transfer)
            print(&p, " ->");
        print_part(&p, plan, &step->parts[i]);
    }
    if (transfer) {
        const char *dtype = gyre_dtype_name((gyre_dtype)step->parts[0].dtype);
        print(&p, " %s %s rank %u (%s, lane %u", dtype ? dtype : "?",
              step->code == GYRE_OP_PUT ? "to" : "from", step->peer,
              step->phase, step->lane);
        if (step->channel != 0)
            print(&p, ", channel %u", step->channel);
        print(&p, ")");
    } else if (step->code == GYRE_OP_CPY) {
        const char *dtype = gyre_dtype_name((gyre_dtype)step->parts[1].dtype);
        print(&p, " %s", dtype ? dtype : "?");
    }
    return text;
}
