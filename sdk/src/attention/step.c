/* SPDX-License-Identifier: Apache-2.0 */
/* The ops that compute: from views to planes, then the kernel. */
#include "attention/executor.h"

#include <math.h>

static const gyre_plan_view *view_of(const gyre_executor *x, uint32_t id)
{
    return &x->program->views[id];
}

static const gyre_plan_slot *slot_of(const gyre_executor *x, uint32_t id)
{
    return &x->program->slots[view_of(x, id)->slot];
}

static const gyre_slot_place *place_of(const gyre_executor *x, uint32_t id)
{
    return &x->places[view_of(x, id)->slot];
}

const gyre_slot_place *gyre_executor_place(const gyre_executor *x,
                                           uint32_t slot)
{
    return &x->places[slot];
}

/* A plane of a view, or absent. */
static gyre_plane plane_of(const gyre_executor *x, uint32_t id, uint32_t part)
{
    if (id == GYRE_NO_VIEW)
        return (gyre_plane){0};
    return place_of(x, id)->part[part].plane;
}

static gyre_plane leaf_plane(const gyre_part *part, uint32_t leaf)
{
    gyre_plane plane = part->plane;
    plane.at += leaf * part->leaf;
    return plane;
}

/* ---- birth --------------------------------------------------------------- */

/* Everything of a sum becomes the identity. */
static void fill(const gyre_plan *plan, const gyre_plan_slot *slot,
                 const gyre_slot_place *place)
{
    gyre_run_of_rows all = {0, 0, plan->rows[slot->rows].tokens};
    for (uint32_t i = 0; i < place->count; i++) {
        const gyre_part *part = &place->part[i];
        bool lse = slot->kind == GYRE_VALUE_O_SUM && i == 1;
        gyre_reach reach = {.batch = plan->problem.batch,
                            .h0 = part->plane.head0,
                            .h1 = part->plane.head0 + part->heads,
                            .dim = part->dim,
                            .rows = &all,
                            .count = 1};
        for (uint32_t leaf = 0; leaf < place->leaves; leaf++) {
            gyre_plane plane = leaf_plane(part, leaf);
            gyre_identity(&reach, part->dtype, lse ? -INFINITY : 0, &plane);
        }
    }
}

/* GET and CPY of a whole slot write all of it. */
static bool overwrites(const gyre_executor *x, const gyre_plan_op *op,
                       uint32_t i)
{
    const gyre_plan_view *v = view_of(x, op->view[i]);
    const gyre_plan_slot *s = slot_of(x, op->view[i]);
    return (op->code == GYRE_OP_GET || (op->code == GYRE_OP_CPY && i == 1)) &&
           v->rows == s->rows && v->h0 == s->h0 && v->h1 == s->h1;
}

void gyre_executor_birth(gyre_executor *x, const gyre_plan_op *op)
{
    for (uint32_t i = 0; i < gyre_op_views(op->code); i++) {
        if (op->view[i] == GYRE_NO_VIEW)
            continue;
        uint32_t id = view_of(x, op->view[i])->slot;
        const gyre_plan_slot *slot = &x->program->slots[id];
        if (x->tenants[slot->buf] == id)
            continue;
        x->tenants[slot->buf] = id;
        if (gyre_value_is_sum(slot->kind) && !overwrites(x, op, i))
            fill(x->plan, slot, &x->places[id]);
    }
}

/* ---- ATT, GRD --------------------------------------------------------------
 */

enum { Q_VIEWS = 4 }; /* at most, of one op: Q DO ST DQ* */

/* The views of one side of an ATT or GRD.  Their slots hold the rows at
 * different offsets: a block is a run of pieces that lie alike in all. */
typedef struct side_views {
    uint32_t view[Q_VIEWS];
    gyre_plane *plane[Q_VIEWS][GYRE_MAX_PARTS]; /* of the block, or NULL */
    gyre_piece *pieces[Q_VIEWS];
    uint32_t views, count;
} side_views;

static void add_view(gyre_executor *x, side_views *side, uint32_t id,
                     gyre_plane *a, gyre_plane *b)
{
    if (id == GYRE_NO_VIEW)
        return;
    uint32_t i = side->views++;
    bool q = slot_of(x, id)->kind != GYRE_VALUE_KV &&
             slot_of(x, id)->kind != GYRE_VALUE_DKV_SUM;
    side->view[i] = id;
    side->plane[i][0] = a;
    side->plane[i][1] = b;
    side->pieces[i] = gyre_executor_list(x, q ? i : Q_VIEWS + i);
    side->count = gyre_slot_pieces(x->plan, view_of(x, id)->rows,
                                   slot_of(x, id)->rows, side->pieces[i]);
}

static void gather_views(gyre_executor *x, const gyre_plan_op *op,
                         gyre_block *block, side_views side[GYRE_SIDE_COUNT])
{
    const uint32_t *v = op->view;
    side_views *q = &side[GYRE_SIDE_Q], *kv = &side[GYRE_SIDE_KV];
    q->views = kv->views = 0;
    add_view(x, q, v[0], &block->Q, NULL);
    if (op->code == GYRE_OP_ATT) {
        add_view(x, kv, v[1], &block->K, &block->V);
        add_view(x, q, v[2], &block->O, &block->LSE);
        return;
    }
    add_view(x, q, v[1], &block->DO, NULL);
    add_view(x, q, v[2], &block->L, &block->D);
    add_view(x, kv, v[3], &block->K, &block->V);
    add_view(x, q, v[4], &block->DQ, NULL);
    add_view(x, kv, v[5], &block->DK, &block->DV);
}

/* How many pieces from `first` on lie alike in all slots of the side; writes
 * them with rows counted from the first. */
static uint32_t alike(const side_views *side, uint32_t first, gyre_piece *out)
{
    uint32_t n = 0;
    for (; first + n < side->count; n++) {
        uint64_t row = side->pieces[0][first + n].row;
        uint64_t ahead = row - side->pieces[0][first].row;
        for (uint32_t i = 1; i < side->views; i++)
            if (side->pieces[i][first + n].row - side->pieces[i][first].row !=
                ahead)
                return n;
        out[n] = side->pieces[0][first + n];
        out[n].row = ahead;
    }
    return n;
}

static void set_planes(const gyre_executor *x, const side_views *side,
                       uint32_t first)
{
    for (uint32_t i = 0; i < side->views; i++) {
        const gyre_slot_place *place = place_of(x, side->view[i]);
        for (uint32_t p = 0; p < place->count; p++) {
            gyre_plane *plane = side->plane[i][p];
            if (plane == NULL)
                continue;
            *plane = place->part[p].plane;
            plane->at += side->pieces[i][first].row * plane->row;
        }
    }
}

gyre_status gyre_executor_blocks(gyre_executor *x, const gyre_plan_op *op,
                                 gyre_block_each each, gyre_error *error)
{
    const gyre_problem *p = &x->plan->problem;
    side_views side[GYRE_SIDE_COUNT];
    gyre_block block = {.batch = p->batch,
                        .heads = p->heads,
                        .kv_heads = p->kv_heads,
                        .h0 = view_of(x, op->view[0])->h0,
                        .h1 = view_of(x, op->view[0])->h1,
                        .head_dim = p->head_dim,
                        .v_head_dim = p->v_head_dim,
                        .mask = x->plan->mask,
                        .params = x->options.params,
                        .q = gyre_executor_list(x, GYRE_PIECES_BLOCK),
                        .kv = gyre_executor_list(x, GYRE_PIECES_BLOCK + 1)};
    gather_views(x, op, &block, side);
    for (uint32_t i = 0; i < side[0].count; i += block.q_count) {
        block.q_count =
            alike(&side[0], i, gyre_executor_list(x, GYRE_PIECES_BLOCK));
        set_planes(x, &side[0], i);
        for (uint32_t j = 0; j < side[1].count; j += block.kv_count) {
            block.kv_count = alike(
                &side[1], j, gyre_executor_list(x, GYRE_PIECES_BLOCK + 1));
            set_planes(x, &side[1], j);
            gyre_status status =
                x->leaves.count[0] > 0
                    ? gyre_leaves_block(x, op, &block, each, error)
                    : each(x, op, &block, error);
            if (status != GYRE_OK)
                return status;
        }
    }
    return GYRE_OK;
}

/* ---- RED, CPY, FIN, DLT
 * ------------------------------------------------------ */

/* Rows of two views as runs; they are of the same rows. */
static uint32_t runs_of(gyre_executor *x, uint32_t a, uint32_t b)
{
    gyre_piece *from = gyre_executor_list(x, 0), *to = gyre_executor_list(x, 1);
    uint32_t count = gyre_slot_pieces(x->plan, view_of(x, a)->rows,
                                      slot_of(x, a)->rows, from);
    uint32_t runs = 0;
    gyre_slot_pieces(x->plan, view_of(x, b)->rows, slot_of(x, b)->rows, to);
    for (uint32_t i = 0; i < count; i++) {
        gyre_run_of_rows *last = runs > 0 ? &x->runs[runs - 1] : NULL;
        if (last != NULL && last->from + last->length == from[i].row &&
            last->to + last->length == to[i].row)
            last->length += from[i].length;
        else
            x->runs[runs++] =
                (gyre_run_of_rows){from[i].row, to[i].row, from[i].length};
    }
    return runs;
}

static gyre_reach reach_of(const gyre_executor *x, uint32_t id,
                           const gyre_part *part, uint32_t runs)
{
    const gyre_plan_view *v = view_of(x, id);
    gyre_reach reach = {.batch = x->plan->problem.batch,
                        .dim = part->dim,
                        .rows = x->runs,
                        .count = runs};
    gyre_part_heads(&x->plan->problem, part, v->h0, v->h1, &reach.h0,
                    &reach.h1);
    return reach;
}

static void reduce(gyre_executor *x, const gyre_plan_op *op)
{
    const gyre_slot_place *a = place_of(x, op->view[0]);
    const gyre_slot_place *b = place_of(x, op->view[1]);
    uint32_t runs = runs_of(x, op->view[0], op->view[1]);
    bool merge = slot_of(x, op->view[0])->kind == GYRE_VALUE_O_SUM;
    for (uint32_t leaf = 0; leaf < a->leaves; leaf++) {
        gyre_plane from[GYRE_MAX_PARTS], to[GYRE_MAX_PARTS];
        for (uint32_t i = 0; i < a->count; i++) {
            from[i] = leaf_plane(&a->part[i], leaf);
            to[i] = leaf_plane(&b->part[i], leaf);
        }
        for (uint32_t i = 0; i < (merge ? 1 : a->count); i++) {
            gyre_reach reach = reach_of(x, op->view[0], &a->part[i], runs);
            if (merge)
                x->kernel->merge(&reach, a->part[0].dtype, &from[0], &from[1],
                                 &to[0], &to[1]);
            else
                gyre_add_planes(&reach, a->part[i].dtype, &from[i],
                                b->part[i].dtype, &to[i]);
        }
    }
}

static void convert(gyre_executor *x, uint32_t a, uint32_t a_part, uint32_t b,
                    uint32_t b_part, uint32_t runs)
{
    const gyre_part *from = &place_of(x, a)->part[a_part];
    const gyre_part *to = &place_of(x, b)->part[b_part];
    gyre_reach reach = reach_of(x, a, from, runs);
    for (uint32_t leaf = 0; leaf < place_of(x, b)->leaves; leaf++) {
        gyre_plane one = leaf_plane(from, leaf), other = leaf_plane(to, leaf);
        gyre_convert(&reach, from->dtype, &one, to->dtype, &other);
    }
}

static void copy(gyre_executor *x, const gyre_plan_op *op)
{
    uint32_t runs = runs_of(x, op->view[0], op->view[1]);
    bool st = slot_of(x, op->view[0])->kind == GYRE_VALUE_ST;
    for (uint32_t i = 0; i < place_of(x, op->view[0])->count; i++)
        if (!st || view_of(x, op->view[0])->planes >> i & 1)
            convert(x, op->view[0], i, op->view[1], i, runs);
}

static void finish(gyre_executor *x, const gyre_plan_op *op)
{
    bool o = slot_of(x, op->view[0])->kind == GYRE_VALUE_O_SUM;
    uint32_t parts = o ? 1 : place_of(x, op->view[0])->count;
    if (x->leaves.count[0] > 0) {
        gyre_leaves_finish(x, op);
        return;
    }
    uint32_t runs = runs_of(x, op->view[0], op->view[1]);
    for (uint32_t i = 0; i < parts; i++)
        convert(x, op->view[0], i, op->view[1], i, runs);
    if (!o || op->view[2] == GYRE_NO_VIEW)
        return;
    runs = runs_of(x, op->view[0], op->view[2]);
    convert(x, op->view[0], 1, op->view[2], 0, runs);
}

/* O and DO may lie differently: one run at a time. */
static void dot(gyre_executor *x, const gyre_plan_op *op)
{
    const gyre_plan *plan = x->plan;
    const gyre_part *part = &place_of(x, op->view[0])->part[0];
    gyre_piece *rows[3] = {gyre_executor_list(x, 0), gyre_executor_list(x, 1),
                           gyre_executor_list(x, 2)};
    uint32_t count = 0;
    for (uint32_t i = 0; i < 3; i++)
        count = gyre_slot_pieces(plan, view_of(x, op->view[i])->rows,
                                 slot_of(x, op->view[i])->rows, rows[i]);
    for (uint32_t i = 0; i < count; i++) {
        gyre_plane plane[3] = {plane_of(x, op->view[0], 0),
                               plane_of(x, op->view[1], 0),
                               plane_of(x, op->view[2], 1)};
        for (uint32_t v = 0; v < 3; v++)
            plane[v].at += rows[v][i].row * plane[v].row;
        x->runs[0] = (gyre_run_of_rows){0, 0, rows[0][i].length};
        gyre_reach reach = reach_of(x, op->view[0], part, 1);
        gyre_delta(&reach, part->dtype, &plane[0], &plane[1],
                   (gyre_dtype)plan->problem.stat_dtype, &plane[2]);
    }
}

gyre_status gyre_executor_step(gyre_executor *x, const gyre_plan_op *op,
                               gyre_error *error)
{
    switch (op->code) {
    case GYRE_OP_ATT:
    case GYRE_OP_GRD:
        return gyre_executor_blocks(x, op, gyre_executor_compute, error);
    case GYRE_OP_RED:
        reduce(x, op);
        return GYRE_OK;
    case GYRE_OP_CPY:
        copy(x, op);
        return GYRE_OK;
    case GYRE_OP_FIN:
        finish(x, op);
        return GYRE_OK;
    case GYRE_OP_DLT:
        dot(x, op);
        return GYRE_OK;
    default:
        return gyre_fail(error, GYRE_INTERNAL, "op %u does not compute",
                         op->code);
    }
}
