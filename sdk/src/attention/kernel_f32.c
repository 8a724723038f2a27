/* SPDX-License-Identifier: Apache-2.0 */
/* What attend and grad of the tiled kernel share: scratch, scores, bands. */
#include "config.h"

#include "attention/kernel_f32.h"

#include <math.h>

/* ---- scratch ----------------------------------------------------------- */

static float *take(char *at, size_t *used, size_t floats)
{
    float *here = at == NULL ? NULL : (float *)(void *)(at + *used);

    *used += (size_t)gyre_round_up(floats * sizeof(float), 64);
    return here;
}

size_t gyre_tiler_lay(gyre_tiler *t, const gyre_block *block, bool grad,
                      char *at)
{
    uint32_t tile = block->params.tile;
    uint32_t rows = grad ? GYRE_GRAD_ROWS : GYRE_ATTEND_ROWS;
    uint32_t keys = grad ? GYRE_GRAD_KEYS : GYRE_ATTEND_KEYS;
    size_t used = 0, dim = block->head_dim, v_dim = block->v_head_dim;

    rows = tile > 0 ? tile : rows;
    keys = tile > 0 ? tile : keys;
    t->columns = (keys + 15) / 16 * 16;
    t->q_room = take(at, &used, rows * dim);
    t->k_room = take(at, &used, keys * dim);
    t->v_room = take(at, &used, keys * v_dim);
    t->score = take(at, &used, (size_t)rows * t->columns);
    if (grad) {
        t->do_room = take(at, &used, rows * v_dim);
        t->slope = take(at, &used, (size_t)rows * t->columns);
        t->lse = take(at, &used, rows);
        t->delta = take(at, &used, rows);
        t->dq = take(at, &used, tile * dim);
        t->dk = take(at, &used, keys * dim);
        t->dv = take(at, &used, keys * v_dim);
    } else {
        t->sum = take(at, &used, rows * v_dim);
        t->most = take(at, &used, rows);
        t->total = take(at, &used, rows);
    }
    t->q_rows = (uint64_t *)(void *)take(at, &used, 2 * tile);
    t->kv_rows = (uint64_t *)(void *)take(at, &used, 2 * tile);
    return used;
}

size_t gyre_f32_scratch(const gyre_block *block)
{
    gyre_tiler t;
    size_t attend = gyre_tiler_lay(&t, block, false, NULL);
    size_t grad = gyre_tiler_lay(&t, block, true, NULL);

    return attend > grad ? attend : grad;
}

/* ---- scores ------------------------------------------------------------ */

/* s -= slope |q - k|; distances in double, exact. */
static void add_bias(const gyre_tiler *t, uint32_t r, uint32_t c0, uint32_t n,
                     float *s)
{
    double slope = (double)t->block->params.slopes[t->head];
    double first = (double)gyre_piece_position(&t->kv.span, c0) -
                   (double)gyre_piece_position(&t->q.span, r);
    double stride = (double)t->kv.span.stride;

    for (uint32_t c = 0; c < n; c++)
        s[c] -= (float)(slope * fabs(first + (double)c * stride));
}

void gyre_tiler_scores(gyre_tiler *t, uint32_t r0, uint32_t r1, uint32_t c0,
                       uint32_t c1, bool masked)
{
    const gyre_block *block = t->block;
    uint32_t n = c1 - c0, padded = (n + 15) / 16 * 16;
    gyre_product product = {.b_transposed = true,
                            .m = r1 - r0,
                            .n = n,
                            .k = block->head_dim,
                            .alpha = t->scale,
                            .a = t->Q + r0 * t->ldq,
                            .lda = t->ldq,
                            .b = t->K + c0 * t->ldk,
                            .ldb = t->ldk,
                            .c = t->score,
                            .ldc = t->columns};

    gyre_multiply(&product);
    if (!masked && block->params.slopes == NULL && padded == n)
        return;
    for (uint32_t r = r0; r < r1; r++) {
        float *s = t->score + (size_t)(r - r0) * t->columns;

        if (block->params.slopes != NULL)
            add_bias(t, r, c0, n, s);
        if (masked)
            gyre_tile_mask(block->mask, block->params.batch0 + t->b, &t->q, r,
                           &t->kv, c0, c1, s);
        for (uint32_t c = n; c < padded; c++)
            s[c] = -INFINITY;
    }
}

void gyre_tiler_drop(const gyre_tiler *t, uint32_t r, uint32_t c0, uint32_t n,
                     float *s)
{
    const gyre_kernel_params *params = &t->block->params;
    gyre_drop_key drop = gyre_drop_row(params, params->batch0 + t->b, t->head,
                                       gyre_piece_position(&t->q.span, r));

    for (uint32_t c = 0; c < n; c++)
        s[c] = gyre_keeps(&drop, gyre_piece_position(&t->kv.span, c0 + c))
                   ? s[c] * drop.keep
                   : 0.0f;
}

/* ---- bands ------------------------------------------------------------- */

static void band(gyre_tiler *t, uint32_t r0, uint32_t r1, gyre_tiler_part *part)
{
    uint32_t c0, c1, batch = t->block->params.batch0 + t->b;

    if (gyre_tile_columns(t->block->mask, batch, &t->q, r0, r1, &t->kv, &c0,
                          &c1))
        part(t, r0, r1, c0, c1, true);
}

void gyre_tiler_each(gyre_tiler *t, gyre_tiler_part *part)
{
    gyre_cell cell = gyre_tile_cell(
        t->block->mask, t->block->params.batch0 + t->b, &t->q, &t->kv);

    if (cell == GYRE_CELL_EMPTY)
        return;
    /* A fixed tile is never cut: its shape decides bits. */
    if (cell == GYRE_CELL_FULL || t->q.fixed) {
        part(t, 0, t->q.n, 0, t->kv.n, cell != GYRE_CELL_FULL);
        return;
    }
    for (uint32_t r = 0; r < t->q.n; r += GYRE_BAND)
        band(t, r, r + GYRE_BAND < t->q.n ? r + GYRE_BAND : t->q.n, part);
}

/* ---- the two kernels ---------------------------------------------------- */

static gyre_status attend_f32(const gyre_block *block,
                              const gyre_kernel_run *run, gyre_error *error)
{
    return gyre_f32_attend(&gyre_kernel_f32, block, run, error);
}

static gyre_status grad_f32(const gyre_block *block, const gyre_kernel_run *run,
                            gyre_error *error)
{
    return gyre_f32_grad(&gyre_kernel_f32, block, run, error);
}

static gyre_status attend_bf16(const gyre_block *block,
                               const gyre_kernel_run *run, gyre_error *error)
{
    return gyre_f32_attend(&gyre_kernel_bf16, block, run, error);
}

static gyre_status grad_bf16(const gyre_block *block,
                             const gyre_kernel_run *run, gyre_error *error)
{
    return gyre_f32_grad(&gyre_kernel_bf16, block, run, error);
}

static void merge(const gyre_reach *reach, gyre_dtype from,
                  const gyre_plane *a_o, const gyre_plane *a_lse,
                  const gyre_plane *b_o, const gyre_plane *b_lse)
{
    gyre_merge_sums(reach, from, a_o, a_lse, b_o, b_lse, GYRE_F32);
}

const gyre_kernel gyre_kernel_f32 = {
    .name = "f32",
    .dtype = GYRE_F32,
    .sum = GYRE_F32,
    .stat = GYRE_F32,
    .scratch = gyre_f32_scratch,
    .attend = attend_f32,
    .grad = grad_f32,
    .merge = merge,
};

const gyre_kernel gyre_kernel_bf16 = {
    .name = "bf16",
    .dtype = GYRE_BF16,
    .sum = GYRE_F32,
    .stat = GYRE_F32,
    .scratch = gyre_f32_scratch,
    .attend = attend_bf16,
    .grad = grad_bf16,
    .merge = merge,
};
