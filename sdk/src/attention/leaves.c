/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deterministic mode.  A sum in floating point depends on the order of adding,
 * and the order on the schedule.  So nothing is added on the way: each pair of
 * tiles is computed by one call of the kernel, of one shape, into a place of
 * its own,
 *
 *     O*, DQ*   leaf = KV tile
 *     DKV*      leaf = Q tile x heads of the group + query head of the group
 *
 * RED then only fills places that hold the identity, which changes no bits, and
 * FIN folds them in ascending order, in f64: there are as many leaves as tiles,
 * and a sum in f32 would be rounded as often.
 */
#include "attention/executor.h"
#include "attention/kernel_inner.h"

#include <math.h>

/* First position of tile i of n. */
static uint64_t edge(uint64_t tokens, uint32_t i, uint32_t n)
{
    return tokens / n * i + tokens % n * i / n;
}

static uint32_t tile_of(const gyre_leaves *leaves, uint32_t side, uint64_t at)
{
    uint32_t low = 0, high = leaves->count[side] - 1;
    while (low < high) { /* the last tile that begins at or before `at` */
        uint32_t middle = low + (high - low + 1) / 2;
        if (edge(leaves->tokens[side], middle, leaves->count[side]) <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static uint64_t tile_begin(const gyre_leaves *leaves, uint32_t side, uint32_t i)
{
    return edge(leaves->tokens[side], i, leaves->count[side]);
}

static gyre_status check_chunk(const gyre_leaves *leaves, uint32_t side,
                               const gyre_chunk *chunk, uint32_t index,
                               gyre_error *error)
{
    if (chunk->length == 0)
        return GYRE_OK;
    uint64_t last = chunk->start + (chunk->length - 1) * chunk->stride;
    uint32_t first_tile = tile_of(leaves, side, chunk->start);
    uint32_t last_tile = tile_of(leaves, side, last);
    bool whole = tile_begin(leaves, side, first_tile) == chunk->start &&
                 tile_begin(leaves, side, last_tile + 1) == last + 1;
    bool single = leaves->count[side] == leaves->tokens[side];
    if (single || (whole && (chunk->stride == 1 || chunk->length == 1)))
        return GYRE_OK;
    return gyre_fail(error, GYRE_INVALID,
                     "deterministic mode: %s chunk %u (positions %llu to %llu, "
                     "stride %llu) holds part of one of the %u tiles of %llu "
                     "tokens: take a number of tiles that the chunks divide, "
                     "or one tile a token",
                     side == GYRE_SIDE_Q ? "Q" : "KV", index,
                     (unsigned long long)chunk->start, (unsigned long long)last,
                     (unsigned long long)chunk->stride, leaves->count[side],
                     (unsigned long long)leaves->tokens[side]);
}

gyre_status gyre_leaves_make(const gyre_plan *plan, uint32_t tiles,
                             gyre_leaves *out, gyre_error *error)
{
    const gyre_problem *p = &plan->problem;
    gyre_leaves leaves = {.group = p->heads / p->kv_heads};
    for (uint32_t side = 0; tiles > 0 && side < GYRE_SIDE_COUNT; side++) {
        leaves.tokens[side] = p->tokens[side];
        leaves.count[side] =
            p->tokens[side] < tiles ? (uint32_t)p->tokens[side] : tiles;
        for (uint32_t i = 0; i < p->chunk_count[side]; i++) {
            gyre_status status =
                check_chunk(&leaves, side, &p->chunks[side][i], i, error);
            if (status != GYRE_OK)
                return status;
        }
    }
    if (tiles > 0 && p->wire_dtype != p->sum_dtype)
        return gyre_fail(error, GYRE_INVALID,
                         "deterministic mode needs wire dtype %s, not %s: a "
                         "sum that is rounded on the way depends on the way",
                         gyre_dtype_name((gyre_dtype)p->sum_dtype),
                         gyre_dtype_name((gyre_dtype)p->wire_dtype));
    *out = leaves;
    return GYRE_OK;
}

uint32_t gyre_leaves_of(const gyre_leaves *leaves, uint32_t kind)
{
    if (leaves->count[0] == 0 || !gyre_value_is_sum(kind))
        return 1;
    return kind == GYRE_VALUE_DKV_SUM
               ? leaves->count[GYRE_SIDE_Q] * leaves->group
               : leaves->count[GYRE_SIDE_KV];
}

/* ---- ATT, GRD ---------------------------------------------------------------
 */

/* The part of `piece` from row `from` on that is in one tile. */
static gyre_piece cut_piece(const gyre_leaves *leaves, uint32_t side,
                            const gyre_piece *piece, uint64_t from,
                            uint32_t *tile)
{
    uint64_t at = piece->start + from * piece->stride;
    *tile = tile_of(leaves, side, at);
    uint64_t end = tile_begin(leaves, side, *tile + 1);
    uint64_t length = (end - at - 1) / piece->stride + 1;
    if (length > piece->length - from)
        length = piece->length - from;
    return (gyre_piece){at, length, piece->stride, piece->row + from};
}

static void shift(gyre_plane *plane, const gyre_part *part, uint32_t leaf)
{
    if (plane->at != NULL)
        plane->at += leaf * part->leaf;
}

/* One pair of tiles, head by head. */
static gyre_status pair(gyre_executor *x, const gyre_plan_op *op,
                        const gyre_block *block, uint32_t q_tile,
                        uint32_t kv_tile, gyre_block_each each,
                        gyre_error *error)
{
    const gyre_plan_view *views = x->program->views;
    bool grad = op->code == GYRE_OP_GRD;
    uint32_t q_sum = op->view[grad ? 4 : 2], kv_sum = op->view[5];
    for (uint32_t h = block->h0; h < block->h1; h++) {
        gyre_block one = *block;
        one.h0 = h;
        one.h1 = h + 1;
        if (q_sum != GYRE_NO_VIEW) {
            const gyre_part *part = x->places[views[q_sum].slot].part;
            shift(&one.O, &part[0], kv_tile);
            shift(&one.LSE, &part[1], kv_tile);
            shift(&one.DQ, &part[0], kv_tile);
        }
        if (grad && kv_sum != GYRE_NO_VIEW) {
            const gyre_part *part = x->places[views[kv_sum].slot].part;
            uint32_t leaf = q_tile * x->leaves.group + h % x->leaves.group;
            shift(&one.DK, &part[0], leaf);
            shift(&one.DV, &part[1], leaf);
        }
        gyre_status status = each(x, op, &one, error);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

static bool is_empty(const gyre_executor *x, const gyre_piece *q,
                     const gyre_piece *kv)
{
    gyre_chunk a = {q->start, q->length, q->stride, 0, 0};
    gyre_chunk b = {kv->start, kv->length, kv->stride, 0, 0};
    return gyre_mask_cells(x->plan->mask, x->plan->problem.batch, &a, &b) ==
           GYRE_CELL_EMPTY;
}

static gyre_status across(gyre_executor *x, const gyre_plan_op *op,
                          gyre_block *block, uint32_t q_tile,
                          const gyre_block *whole, gyre_block_each each,
                          gyre_error *error)
{
    for (uint32_t i = 0; i < whole->kv_count; i++) {
        const gyre_piece *piece = &whole->kv[i];
        for (uint64_t row = 0; row < piece->length;) {
            uint32_t tile;
            gyre_piece kv =
                cut_piece(&x->leaves, GYRE_SIDE_KV, piece, row, &tile);
            row += kv.length;
            if (is_empty(x, block->q, &kv))
                continue;
            block->kv = &kv;
            gyre_status status = pair(x, op, block, q_tile, tile, each, error);
            if (status != GYRE_OK)
                return status;
        }
    }
    return GYRE_OK;
}

gyre_status gyre_leaves_block(gyre_executor *x, const gyre_plan_op *op,
                              const gyre_block *whole, gyre_block_each each,
                              gyre_error *error)
{
    gyre_block block = *whole;
    block.q_count = block.kv_count = 1;
    for (uint32_t i = 0; i < whole->q_count; i++) {
        const gyre_piece *piece = &whole->q[i];
        for (uint64_t row = 0; row < piece->length;) {
            uint32_t tile;
            gyre_piece q =
                cut_piece(&x->leaves, GYRE_SIDE_Q, piece, row, &tile);
            row += q.length;
            block.q = &q;
            gyre_status status =
                across(x, op, &block, tile, whole, each, error);
            if (status != GYRE_OK)
                return status;
        }
    }
    return GYRE_OK;
}

/* ---- FIN
 * ---------------------------------------------------------------------- */

typedef struct fold_at {
    gyre_plane sum, lse; /* dense, one head, one run of rows */
    gyre_reach reach;    /* of them */
    gyre_run_of_rows run;
} fold_at;

static gyre_plane at_head(const gyre_part *part, uint32_t leaf, uint32_t b,
                          uint32_t h, uint64_t row)
{
    gyre_plane plane = part->plane;
    plane.at += leaf * part->leaf + b * plane.batch +
                (h - plane.head0) * plane.head + row * plane.row;
    plane.head0 = 0;
    return plane;
}

size_t gyre_leaves_fold_bytes(uint64_t rows, uint32_t dim, gyre_dtype sum)
{
    size_t planes = sum == GYRE_F64 ? 1 : 2; /* a narrow leaf, widened */
    return rows * planes * ((size_t)dim + 1) * sizeof(double);
}

/* Planes of O and LSE, or of one sum, in f64; returns what is behind them. */
static char *lay_wide(char *at, uint64_t rows, uint32_t dim, gyre_plane *sum,
                      gyre_plane *lse)
{
    *sum = (gyre_plane){.at = at, .row = dim * sizeof(double)};
    *lse = (gyre_plane){.at = at + rows * dim * sizeof(double),
                        .row = sizeof(double)};
    return lse->at + rows * sizeof(double);
}

/* One leaf of (O, LSE): narrow ones are widened first. */
static void merge_leaf(gyre_executor *x, const gyre_part *o, gyre_plane from,
                       const gyre_part *l, gyre_plane from_lse, char *wide,
                       const fold_at *out)
{
    gyre_reach reach = out->reach;
    if (o->dtype == GYRE_F64) {
        x->kernel->merge(&reach, GYRE_F64, &from, &from_lse, &out->sum,
                         &out->lse);
        return;
    }
    gyre_plane sum, lse;
    lay_wide(wide, out->run.length, o->dim, &sum, &lse);
    gyre_convert(&reach, o->dtype, &from, GYRE_F64, &sum);
    reach.dim = 1;
    gyre_convert(&reach, l->dtype, &from_lse, GYRE_F64, &lse);
    gyre_merge_sums(&out->reach, GYRE_F64, &sum, &lse, &out->sum, &out->lse,
                    GYRE_F64);
}

/* Fold the leaves of `length` rows of one head of one part, into f64. */
static void fold(gyre_executor *x, const gyre_slot_place *place, uint32_t which,
                 bool merge, uint32_t b, uint32_t h, uint64_t row,
                 uint64_t length, fold_at *out)
{
    const gyre_part *part = &place->part[which];
    out->run = (gyre_run_of_rows){0, 0, length};
    out->reach = (gyre_reach){
        .batch = 1, .h1 = 1, .dim = part->dim, .rows = &out->run, .count = 1};
    char *wide = lay_wide(x->fold, length, part->dim, &out->sum, &out->lse);
    gyre_identity(&out->reach, GYRE_F64, 0, &out->sum);
    gyre_reach one = out->reach;
    one.dim = 1;
    if (merge)
        gyre_identity(&one, GYRE_F64, -INFINITY, &out->lse);
    for (uint32_t leaf = 0; leaf < place->leaves; leaf++) {
        gyre_plane from = at_head(part, leaf, b, h, row);
        if (merge)
            merge_leaf(x, part, from, &place->part[1],
                       at_head(&place->part[1], leaf, b, h, row), wide, out);
        else
            gyre_add_planes(&out->reach, part->dtype, &from, GYRE_F64,
                            &out->sum);
    }
}

/* Row offset in a view's slot of the i-th piece. */
static uint32_t rows_at(gyre_executor *x, uint32_t id, gyre_piece *out)
{
    const gyre_plan_view *v = &x->program->views[id];
    return gyre_slot_pieces(x->plan, v->rows, x->program->slots[v->slot].rows,
                            out);
}

static void put_piece(gyre_executor *x, const gyre_plan_op *op, uint32_t i,
                      uint32_t which, uint32_t b, uint32_t h)
{
    const gyre_plan_view *views = x->program->views;
    const gyre_slot_place *from = &x->places[views[op->view[0]].slot];
    const gyre_slot_place *to = &x->places[views[op->view[1]].slot];
    bool merge =
        x->program->slots[views[op->view[0]].slot].kind == GYRE_VALUE_O_SUM;
    const gyre_piece *piece = &gyre_executor_list(x, 0)[i];
    fold_at folded;
    fold(x, from, which, merge, b, h, piece->row, piece->length, &folded);
    gyre_plane out =
        at_head(&to->part[which], 0, b, h, gyre_executor_list(x, 1)[i].row);
    gyre_convert(&folded.reach, GYRE_F64, &folded.sum, to->part[which].dtype,
                 &out);
    if (!merge || op->view[2] == GYRE_NO_VIEW)
        return;
    const gyre_part *lse = &x->places[views[op->view[2]].slot].part[0];
    out = at_head(lse, 0, b, h, gyre_executor_list(x, 2)[i].row);
    folded.reach.dim = 1;
    gyre_convert(&folded.reach, GYRE_F64, &folded.lse, lse->dtype, &out);
}

void gyre_leaves_finish(gyre_executor *x, const gyre_plan_op *op)
{
    const gyre_plan_view *v = &x->program->views[op->view[0]];
    const gyre_slot_place *from = &x->places[v->slot];
    bool merge = x->program->slots[v->slot].kind == GYRE_VALUE_O_SUM;
    uint32_t count = 0, a, z;
    for (uint32_t i = 0; i < 3; i++)
        if (op->view[i] != GYRE_NO_VIEW)
            count = rows_at(x, op->view[i], gyre_executor_list(x, i));
    for (uint32_t which = 0; which < (merge ? 1 : from->count); which++) {
        gyre_part_heads(&x->plan->problem, &from->part[which], v->h0, v->h1, &a,
                        &z);
        for (uint32_t b = 0; b < x->plan->problem.batch; b++)
            for (uint32_t h = a; h < z; h++)
                for (uint32_t i = 0; i < count; i++)
                    put_piece(x, op, i, which, b, h);
    }
}
