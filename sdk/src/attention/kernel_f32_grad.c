/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grad of the tiled kernel: KV tiles outside, all queries of the KV head's
 * group inside, so that a KV tile is loaded once.  The five products of
 *
 *     S = scale Q K^T    dP = dO V^T
 *     DV += P^T dO       DQ += dS K     DK += dS^T Q
 *
 * add to DQ where it lies.  DK and DV of a KV tile are summed in scratch and
 * added to the outputs once: these may be sums of all that came before, and a
 * rounding at their size for each query tile and head is one too many.  Fixed
 * tiles are made in scratch and added one by one, in their own order.
 */
#include "config.h"

#include "attention/kernel_f32.h"

#include <math.h>
#include <string.h>

typedef struct job {
    const gyre_kernel *kernel;
    const gyre_block *block;
    const gyre_kernel_run *run;
    size_t scratch;
} job;

/* ---- rows --------------------------------------------------------------- */

/* Scores into P and dP into dS; P is left with the dropout factor in. */
static void weights(gyre_tiler *t, uint32_t r, uint32_t c0, uint32_t n,
                    float *p, float *dp)
{
    uint32_t padded = (n + 15) / 16 * 16;
    bool drops = t->block->params.dropout > 0.0;

    if (t->lse[r] == -INFINITY) {
        memset(p, 0, padded * sizeof(float));
        memset(dp, 0, padded * sizeof(float));
        return;
    }
    for (uint32_t c = n; c < padded; c++)
        dp[c] = 0.0f;
    t->loops->weigh(p, padded, t->lse[r]);
    if (drops)
        gyre_tiler_drop(t, r, c0, n, dp);
    t->loops->slope(p, dp, padded, t->delta[r], t->scale);
    if (drops)
        gyre_tiler_drop(t, r, c0, n, p);
}

/* ---- products ----------------------------------------------------------- */

static void weighted(const gyre_tiler *t, const gyre_product *product)
{
    if (t->masked)
        gyre_multiply_masked(product);
    else
        gyre_multiply(product);
}

/* to += weight rows; of fixed tiles to = */
static void by_rows(const gyre_tiler *t, const float *weight, uint32_t m,
                    uint32_t n, const float *rows, size_t ld, uint32_t dim,
                    float *to, size_t ldc)
{
    gyre_product product = {.m = m,
                            .n = dim,
                            .k = n,
                            .alpha = 1.0f,
                            .beta = t->q.fixed ? 0.0f : 1.0f,
                            .a = weight,
                            .lda = t->columns,
                            .b = rows,
                            .ldb = ld,
                            .c = to,
                            .ldc = ldc};

    weighted(t, &product);
}

static void by_columns(const gyre_tiler *t, const float *weight, uint32_t m,
                       uint32_t n, const float *rows, size_t ld, uint32_t dim,
                       float *to)
{
    gyre_product product = {.a_transposed = true,
                            .m = n,
                            .n = dim,
                            .k = m,
                            .alpha = 1.0f,
                            .beta = t->kv.fixed ? 0.0f : 1.0f,
                            .a = weight,
                            .lda = t->columns,
                            .b = rows,
                            .ldb = ld,
                            .c = to,
                            .ldc = dim};

    weighted(t, &product);
}

/* Rows in scratch to those of an output. */
static void add_rows(const gyre_tile *tile, const gyre_plane *plane, uint32_t b,
                     uint32_t h, const float *room, uint32_t dim)
{
    for (uint32_t i = 0; i < tile->n; i++) {
        if (!gyre_tile_has(tile, i))
            continue;
        float *to = (float *)(void *)gyre_tile_row(tile, plane, b, h, i);

        for (uint32_t d = 0; d < dim; d++)
            to[d] += room[(size_t)i * dim + d];
    }
}

static void add_keys(const gyre_tiler *t)
{
    const gyre_block *block = t->block;

    add_rows(&t->kv, &block->DK, t->b, t->kv_head, t->dk, block->head_dim);
    add_rows(&t->kv, &block->DV, t->b, t->kv_head, t->dv, block->v_head_dim);
}

static void add_queries(gyre_tiler *t, uint32_t r0, uint32_t m, uint32_t c0,
                        uint32_t n)
{
    const gyre_plane *plane = &t->block->DQ;
    uint32_t dim = t->block->head_dim;
    const float *k = t->K + c0 * t->ldk;

    if (!t->q.fixed) {
        float *to =
            (float *)(void *)gyre_tile_row(&t->q, plane, t->b, t->head, r0);
        by_rows(t, t->slope, m, n, k, t->ldk, dim, to,
                plane->row / sizeof(float));
        return;
    }
    by_rows(t, t->slope, m, n, k, t->ldk, dim, t->dq, dim);
    add_rows(&t->q, plane, t->b, t->head, t->dq, dim);
}

static void part(gyre_tiler *t, uint32_t r0, uint32_t r1, uint32_t c0,
                 uint32_t c1, bool masked)
{
    const gyre_block *block = t->block;
    uint32_t m = r1 - r0, n = c1 - c0, dim = block->head_dim;
    uint32_t v_dim = block->v_head_dim;
    const float *q = t->Q + r0 * t->ldq, *d_o = t->DO + r0 * t->lddo;
    gyre_product product = {.b_transposed = true,
                            .m = m,
                            .n = n,
                            .k = v_dim,
                            .alpha = 1.0f,
                            .a = d_o,
                            .lda = t->lddo,
                            .b = t->V + c0 * t->ldv,
                            .ldb = t->ldv,
                            .c = t->slope,
                            .ldc = t->columns};

    t->masked = masked;
    gyre_tiler_scores(t, r0, r1, c0, c1, masked);
    gyre_multiply(&product);
    for (uint32_t r = 0; r < m; r++)
        weights(t, r0 + r, c0, n, t->score + (size_t)r * t->columns,
                t->slope + (size_t)r * t->columns);
    if (block->DQ.at != NULL)
        add_queries(t, r0, m, c0, n);
    if (block->DK.at == NULL)
        return;
    by_columns(t, t->score, m, n, d_o, t->lddo, v_dim,
               t->dv + (size_t)c0 * v_dim);
    by_columns(t, t->slope, m, n, q, t->ldq, dim, t->dk + (size_t)c0 * dim);
    if (t->kv.fixed)
        add_keys(t);
}

/* ---- tiles --------------------------------------------------------------- */

static void load_queries(gyre_tiler *t)
{
    const gyre_block *block = t->block;

    t->Q = gyre_tile_load(&t->q, &block->Q, t->b, t->head, block->head_dim,
                          t->dtype, t->q_room, &t->ldq);
    t->DO = gyre_tile_load(&t->q, &block->DO, t->b, t->head, block->v_head_dim,
                           t->dtype, t->do_room, &t->lddo);
    for (uint32_t r = 0; r < t->q.n; r++) {
        bool has = gyre_tile_has(&t->q, r);

        t->lse[r] = has ? *(float *)(void *)gyre_tile_row(&t->q, &block->L,
                                                          t->b, t->head, r)
                        : -INFINITY;
        t->delta[r] = has ? *(float *)(void *)gyre_tile_row(&t->q, &block->D,
                                                            t->b, t->head, r)
                          : 0.0f;
    }
}

static void head(gyre_tiler *t)
{
    const gyre_block *block = t->block;
    gyre_tiles rows = {.pieces = block->q,
                       .count = block->q_count,
                       .most = GYRE_GRAD_ROWS,
                       .fixed = block->params.tile,
                       .rows = t->q_rows};

    while (gyre_tiles_next(&rows, &t->q)) {
        if (gyre_tile_cell(block->mask, block->params.batch0 + t->b, &t->q,
                           &t->kv) == GYRE_CELL_EMPTY)
            continue;
        load_queries(t);
        gyre_tiler_each(t, part);
    }
}

static void task(void *state, size_t index, uint32_t worker)
{
    const job *j = state;
    const gyre_block *block = j->block;
    gyre_task of = gyre_grad_task(block, index);
    gyre_tiler t = {.block = block,
                    .loops = gyre_row_loops_of(gyre_row_isa()),
                    .dtype = j->kernel->dtype,
                    .scale = (float)gyre_block_scale(block),
                    .b = of.b,
                    .kv_head = of.head};
    uint32_t h0, h1;

    gyre_tiler_lay(&t, block, true,
                   gyre_worker_scratch(j->run, j->scratch, worker));
    gyre_block_group(block, of.head, &h0, &h1);
    gyre_tiles keys = {.pieces = block->kv,
                       .count = block->kv_count,
                       .most = GYRE_GRAD_KEYS,
                       .fixed = block->params.tile,
                       .rows = t.kv_rows};
    while (gyre_tiles_next(&keys, &t.kv)) {
        t.K = gyre_tile_load(&t.kv, &block->K, t.b, t.kv_head, block->head_dim,
                             t.dtype, t.k_room, &t.ldk);
        t.V = gyre_tile_load(&t.kv, &block->V, t.b, t.kv_head,
                             block->v_head_dim, t.dtype, t.v_room, &t.ldv);
        bool sums = block->DK.at != NULL && !t.kv.fixed;
        if (sums) {
            memset(t.dk, 0, (size_t)t.kv.n * block->head_dim * sizeof(float));
            memset(t.dv, 0, (size_t)t.kv.n * block->v_head_dim * sizeof(float));
        }
        for (t.head = h0; t.head < h1; t.head++)
            head(&t);
        if (sums)
            add_keys(&t);
    }
}

gyre_status gyre_f32_grad(const gyre_kernel *kernel, const gyre_block *block,
                          const gyre_kernel_run *run, gyre_error *error)
{
    job j = {.kernel = kernel, .block = block, .run = run};
    gyre_status status = gyre_kernel_ready(kernel, block, run, true, error);

    if (status != GYRE_OK)
        return status;
    j.scratch = gyre_f32_scratch(block);
    gyre_kernel_each(run, gyre_grad_tasks(block), task, &j);
    return GYRE_OK;
}
