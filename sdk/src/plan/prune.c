/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prune pass.  A proof run tells of every row that an op moved whether it
 * was needed; each program is then written anew with the rows that were, and
 * all programs change together.
 */
#include "plan/prove.h"

#include <string.h>

static const uint32_t NONE = GYRE_NO_VIEW;

typedef struct pruner {
    gyre_prover v;
    gyre_plan *plan;
    gyre_plan_program *fresh; /* by rank */
    bool changed[GYRE_PLAN_MAX_PHASES];
    uint8_t *keep;      /* by chunk: of the rows at hand; two sides */
    uint32_t *list;     /* of kept chunks */
    uint32_t most;      /* chunks of the longer side */
    uint8_t *touched;   /* by slot row: some op kept it */
    uint32_t *row_base; /* by slot: of its rows in touched */
} pruner;

static uint32_t rows_of(const pruner *p, uint32_t rank, uint32_t view)
{
    return p->plan->programs[rank].views[view].rows;
}

/* ---- which rows of an op stay
 * ------------------------------------------------ */

static bool meets(const uint64_t *need, const gyre_plan *plan, uint32_t rows)
{
    const uint32_t *list = gyre_plan_row_list(plan, rows);
    for (uint32_t i = 0; i < plan->rows[rows].count; i++)
        if (need[list[i] / 64] >> list[i] % 64 & 1)
            return true;
    return false;
}

/* Keep bits of a row list by the flags of its pieces. */
static void keep_pieces(pruner *p, uint32_t rows, uint32_t first)
{
    for (uint32_t i = 0; i < p->plan->rows[rows].count; i++)
        p->keep[i] = p->v.pieces[first + i] & GYRE_PIECE_NEEDED;
}

/* By whether the row has a cell with the rows of the other side. */
static bool keep_cells(pruner *p, uint32_t rows, uint32_t others)
{
    const gyre_plan_rows *r = &p->plan->rows[rows];
    for (uint32_t i = 0; i < r->count; i++) {
        const uint64_t *need = gyre_prove_need(
            &p->v, r->side, gyre_plan_row_list(p->plan, rows)[i]);
        if (need == NULL)
            return false;
        p->keep[i] = meets(need, p->plan, others);
    }
    return true;
}

/* Keep bits of view i of an op; op-wide rules, so that views stay alike. */
static bool keep_rows(pruner *p, uint32_t rank, uint32_t o, uint32_t i)
{
    const gyre_plan_program *program = &p->plan->programs[rank];
    const gyre_plan_op *op = &program->ops[o];
    uint32_t rows = rows_of(p, rank, op->view[i]);
    const uint32_t *made = p->v.made;
    switch (op->code) {
    case GYRE_OP_ATT:
    case GYRE_OP_GRD: {
        uint32_t kv = op->code == GYRE_OP_ATT ? 1 : 3;
        bool q_side = p->plan->rows[rows].side == GYRE_SIDE_Q;
        return keep_cells(p, rows, rows_of(p, rank, op->view[q_side ? kv : 0]));
    }
    case GYRE_OP_FIN:
        memset(p->keep, 1, p->plan->rows[rows].count);
        return true;
    default:
        keep_pieces(p, rows, made[p->v.rank[rank].op_base + o]);
        return true;
    }
}

/* Of a transfer: what its GET says. */
static void keep_transfer(pruner *p, uint32_t t)
{
    const gyre_prove_transfer *at = &p->v.transfers[t];
    const gyre_plan_op *op = &p->plan->programs[at->rank].ops[at->op];
    uint32_t rows = rows_of(p, at->rank, op->view[0]);
    if (op->code == GYRE_OP_PUT)
        at = &p->v.transfers[at->mate];
    keep_pieces(p, rows, p->v.made[p->v.rank[at->rank].op_base + at->op]);
}

/* The set of kept rows; NONE without memory.  May move the plan's tables. */
static uint32_t kept_set(pruner *p, uint32_t rows)
{
    const gyre_plan_rows *r = &p->plan->rows[rows];
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->count; i++)
        if (p->keep[i])
            p->list[count++] = gyre_plan_row_list(p->plan, rows)[i];
    if (count == r->count)
        return rows;
    return gyre_plan_intern_rows(p->plan, r->side, p->list, count);
}

/* ---- slots
 * ------------------------------------------------------------------- */

/* Rows of a view that stay are rows of the slot that stay. */
static void touch(pruner *p, uint32_t rank, uint32_t view)
{
    const gyre_plan *plan = p->plan;
    const gyre_plan_program *program = &plan->programs[rank];
    uint32_t slot = program->views[view].slot;
    const gyre_plan_rows *some = &plan->rows[program->views[view].rows];
    const gyre_plan_rows *all = &plan->rows[program->slots[slot].rows];
    uint8_t *touched = p->touched + p->row_base[slot];
    for (uint32_t i = 0, at = 0; i < some->count; i++) {
        uint32_t chunk = plan->row_chunks[some->first + i];
        while (plan->row_chunks[all->first + at] != chunk)
            at++;
        touched[at] |= p->keep[i] != 0;
    }
}

static bool touch_all(pruner *p, uint32_t rank)
{
    const gyre_plan_program *program = &p->plan->programs[rank];
    for (uint32_t u = 0; u < program->unit_count; u++) {
        const gyre_plan_unit *unit = &program->units[u];
        for (uint32_t k = 0; k < unit->count; k++) {
            uint32_t o = unit->first + k;
            const gyre_plan_op *op = &program->ops[o];
            for (uint32_t i = 0; i < gyre_op_views(op->code); i++) {
                if (op->view[i] == NONE)
                    continue;
                if (unit->group != NONE)
                    keep_transfer(p, p->v.rank[rank].first_transfer[u] + k);
                else if (!keep_rows(p, rank, o, i))
                    return false;
                touch(p, rank, op->view[i]);
            }
        }
    }
    return true;
}

static void copy_slots(pruner *p, uint32_t rank, gyre_builder *b)
{
    const gyre_plan_program *program = &p->plan->programs[rank];
    for (uint32_t s = 0; s < program->slot_count; s++) {
        gyre_plan_slot slot = program->slots[s];
        if (slot.flags == 0) {
            memcpy(p->keep, p->touched + p->row_base[s],
                   p->plan->rows[slot.rows].count);
            slot.rows = kept_set(p, slot.rows);
        }
        if (slot.buf == b->program.buf_count)
            slot.buf = GYRE_NEW_BUF;
        if (slot.rows == NONE)
            b->status = GYRE_NO_MEMORY;
        else
            gyre_plan_host_table.slot(b, &slot);
    }
}

/* ---- ops
 * ---------------------------------------------------------------------- */

/* The view with kept rows; NONE when no row is left. */
static uint32_t kept_view(pruner *p, uint32_t rank, uint32_t id,
                          gyre_builder *b)
{
    gyre_plan_view view = p->plan->programs[rank].views[id];
    uint32_t rows = kept_set(p, view.rows);
    if (rows == NONE) {
        b->status = GYRE_NO_MEMORY;
        return NONE;
    }
    if (p->plan->rows[rows].count == 0 && rows != view.rows)
        return NONE;
    return gyre_plan_host_table.view(b, view.slot, rows, view.h0, view.h1,
                                     view.planes);
}

static void copy_group(pruner *p, uint32_t rank, uint32_t u, gyre_builder *b)
{
    const gyre_plan_host *host = &gyre_plan_host_table;
    const gyre_plan_program *program = &p->plan->programs[rank];
    const gyre_plan_group *group = &program->groups[program->units[u].group];
    host->begin(b, group->lane, p->plan->phases[group->phase],
                p->changed[group->phase] ? GYRE_PATTERN_NONE : group->pattern);
    for (uint32_t i = 0; i < group->count && b->status == GYRE_OK; i++) {
        const gyre_plan_op *op = &program->ops[group->first + i];
        keep_transfer(p, p->v.rank[rank].first_transfer[u] + i);
        uint32_t view = kept_view(p, rank, op->view[0], b);
        if (view == NONE)
            continue;
        if (op->code == GYRE_OP_PUT)
            host->put(b, view, op->view[1], op->channel);
        else
            host->get(b, view, op->view[1], op->channel);
    }
    host->end(b);
}

static bool copy_op(pruner *p, uint32_t rank, uint32_t o, gyre_builder *b)
{
    const gyre_plan_op *op = &p->plan->programs[rank].ops[o];
    uint32_t views[GYRE_OP_VIEWS], count = gyre_op_views(op->code);
    bool empty = false;
    for (uint32_t i = 0; i < count; i++) {
        views[i] = NONE;
        if (op->view[i] == NONE)
            continue;
        if (!keep_rows(p, rank, o, i))
            return false;
        views[i] = kept_view(p, rank, op->view[i], b);
        empty |= views[i] == NONE;
    }
    if (!empty && b->status == GYRE_OK)
        gyre_plan_host_table.op(b, op->lane, op->code, views, count);
    return true;
}

static gyre_status rewrite(pruner *p, uint32_t rank, gyre_error *error)
{
    gyre_context *context = p->plan->context;
    const gyre_plan_program *program = &p->plan->programs[rank];
    uint32_t total = 0;
    p->row_base = gyre_alloc(context, (size_t)program->slot_count + 1,
                             sizeof(*p->row_base));
    for (uint32_t s = 0; p->row_base != NULL && s < program->slot_count; s++) {
        p->row_base[s] = total;
        total += p->plan->rows[program->slots[s].rows].count;
    }
    p->touched = gyre_alloc_zero(context, (size_t)total + 1, 1);
    gyre_builder b;
    gyre_builder_open(&b, p->plan, rank);
    bool good = p->row_base != NULL && p->touched != NULL && touch_all(p, rank);
    if (good)
        copy_slots(p, rank, &b);
    for (uint32_t u = 0; good && b.status == GYRE_OK && u < program->unit_count;
         u++) {
        if (program->units[u].group != NONE)
            copy_group(p, rank, u, &b);
        else
            good = copy_op(p, rank, program->units[u].first, &b);
    }
    gyre_free(context, p->row_base, (size_t)program->slot_count + 1,
              sizeof(*p->row_base));
    gyre_free(context, p->touched, (size_t)total + 1, 1);
    if (!good || b.status != GYRE_OK) {
        gyre_program_free(context, &b.program);
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "plan '%s', rank %u: no memory to prune",
                         p->plan->name, rank);
    }
    p->fresh[rank] = b.program;
    return GYRE_OK;
}

/* ---- the pass
 * ------------------------------------------------------------------ */

static void note_change(pruner *p, const gyre_prove_transfer *at)
{
    const gyre_plan_program *program = &p->plan->programs[at->rank];
    uint32_t group = program->ops[at->op].group;
    p->changed[program->groups[group].phase] = true;
}

/* The two ends may stand under different names. */
static void find_changes(pruner *p)
{
    for (uint32_t t = 0; t < p->v.transfer_count; t++) {
        const gyre_prove_transfer *at = &p->v.transfers[t];
        const gyre_plan_program *program = &p->plan->programs[at->rank];
        const gyre_plan_op *op = &program->ops[at->op];
        if (op->code == GYRE_OP_PUT)
            continue;
        uint32_t rows = rows_of(p, at->rank, op->view[0]);
        keep_transfer(p, t);
        for (uint32_t i = 0; i < p->plan->rows[rows].count; i++)
            if (!p->keep[i]) {
                note_change(p, at);
                note_change(p, &p->v.transfers[at->mate]);
                break;
            }
    }
}

static gyre_status prune(pruner *p, gyre_error *error)
{
    gyre_plan *plan = p->plan;
    uint32_t ranks = plan->problem.ranks;
    p->most = plan->problem.chunk_count[0] > plan->problem.chunk_count[1]
                  ? plan->problem.chunk_count[0]
                  : plan->problem.chunk_count[1];
    p->keep = gyre_alloc_zero(plan->context, (size_t)p->most + 1, 1);
    p->list = gyre_alloc(plan->context, (size_t)p->most + 1, sizeof(*p->list));
    p->fresh = gyre_alloc_zero(plan->context, ranks, sizeof(*p->fresh));
    gyre_status status = GYRE_OK;
    if (p->keep == NULL || p->list == NULL || p->fresh == NULL)
        status = gyre_fail(error, GYRE_NO_MEMORY,
                           "plan '%s': no memory to prune", plan->name);
    else
        find_changes(p);
    for (uint32_t r = 0; r < ranks && status == GYRE_OK; r++)
        status = rewrite(p, r, error);
    return status;
}

gyre_status gyre_plan_prune(gyre_plan *plan, gyre_error *error)
{
    pruner p = {.plan = plan};
    gyre_context *context = plan->context;
    uint32_t ranks = plan->problem.ranks;
    gyre_proof proof;
    gyre_status status = gyre_prover_run(&p.v, plan, NULL, NULL, &proof, error);
    if (status == GYRE_OK && !proof.ok)
        status = gyre_fail(error, GYRE_PLAN,
                           "plan '%s' is wrong and cannot be pruned: rank %u, "
                           "op %u: %s",
                           plan->name, proof.rank, proof.op, proof.reason);
    if (status == GYRE_OK)
        status = prune(&p, error);
    gyre_prover_free(&p.v);
    for (uint32_t r = 0; r < ranks && p.fresh != NULL; r++) {
        if (status == GYRE_OK) {
            gyre_plan_program old = plan->programs[r];
            plan->programs[r] = p.fresh[r];
            p.fresh[r] = old;
        }
        gyre_program_free(context, &p.fresh[r]);
    }
    gyre_free(context, p.fresh, ranks, sizeof(*p.fresh));
    gyre_free(context, p.keep, (size_t)p.most + 1, 1);
    gyre_free(context, p.list, (size_t)p.most + 1, sizeof(*p.list));
    return status;
}
