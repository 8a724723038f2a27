/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attend of the tiled kernel: a running softmax over KV tiles.
 *
 * A partial value goes on where it stopped: (O, LSE) is the running state with
 * maximum LSE, total 1 and sum O.
 */
#include "config.h"

#include "attention/kernel_f32.h"

#include <math.h>
#include <string.h>

typedef struct job {
    const gyre_kernel *kernel;
    const gyre_block *block;
    const gyre_kernel_run *run;
    size_t scratch, tiles;
} job;

/* One row of scores into weights; the sum so far is brought to the new
 * maximum. */
static void weights(gyre_tiler *t, uint32_t r, uint32_t c0, uint32_t n,
                    float *s)
{
    uint32_t v_dim = t->block->v_head_dim;
    float part, before = t->most[r];
    float most = t->loops->soften(s, (n + 15) / 16 * 16, before, &part);

    if (most != before && before != -INFINITY) {
        float w = t->loops->exponential(before - most);

        t->total[r] *= w;
        t->loops->scale(t->sum + (size_t)r * v_dim, v_dim, w);
    }
    t->most[r] = most;
    t->total[r] += part;
    if (t->block->params.dropout > 0.0)
        gyre_tiler_drop(t, r, c0, n, s);
}

static void part(gyre_tiler *t, uint32_t r0, uint32_t r1, uint32_t c0,
                 uint32_t c1, bool masked)
{
    uint32_t v_dim = t->block->v_head_dim;

    gyre_tiler_scores(t, r0, r1, c0, c1, masked);
    for (uint32_t r = r0; r < r1; r++)
        weights(t, r, c0, c1 - c0, t->score + (size_t)(r - r0) * t->columns);
    gyre_product product = {.m = r1 - r0,
                            .n = v_dim,
                            .k = c1 - c0,
                            .alpha = 1.0f,
                            .beta = 1.0f,
                            .a = t->score,
                            .lda = t->columns,
                            .b = t->V + c0 * t->ldv,
                            .ldb = t->ldv,
                            .c = t->sum + (size_t)r0 * v_dim,
                            .ldc = v_dim};
    if (masked)
        gyre_multiply_masked(&product);
    else
        gyre_multiply(&product);
}

static void begin(gyre_tiler *t)
{
    const gyre_block *block = t->block;
    uint32_t v_dim = block->v_head_dim;

    for (uint32_t r = 0; r < t->q.n; r++) {
        float *sum = t->sum + (size_t)r * v_dim, lse = -INFINITY;

        if (gyre_tile_has(&t->q, r))
            lse = *(float *)(void *)gyre_tile_row(&t->q, &block->LSE, t->b,
                                                  t->head, r);
        t->most[r] = lse;
        t->total[r] = lse == -INFINITY ? 0.0f : 1.0f;
        if (lse == -INFINITY)
            memset(sum, 0, v_dim * sizeof(float));
        else
            memcpy(sum, gyre_tile_row(&t->q, &block->O, t->b, t->head, r),
                   v_dim * sizeof(float));
    }
}

static void end(gyre_tiler *t)
{
    const gyre_block *block = t->block;
    uint32_t v_dim = block->v_head_dim;

    for (uint32_t r = 0; r < t->q.n; r++) {
        if (!gyre_tile_has(&t->q, r) || t->most[r] == -INFINITY)
            continue;
        const float *sum = t->sum + (size_t)r * v_dim;
        float *o =
            (float *)(void *)gyre_tile_row(&t->q, &block->O, t->b, t->head, r);
        float *lse = (float *)(void *)gyre_tile_row(&t->q, &block->LSE, t->b,
                                                    t->head, r);

        for (uint32_t d = 0; d < v_dim; d++)
            o[d] = sum[d] / t->total[r];
        *lse = (float)((double)t->most[r] + log((double)t->total[r]));
    }
}

static void tile(gyre_tiler *t)
{
    const gyre_block *block = t->block;
    gyre_tiles keys = {.pieces = block->kv,
                       .count = block->kv_count,
                       .most = GYRE_ATTEND_KEYS,
                       .fixed = block->params.tile,
                       .rows = t->kv_rows};

    begin(t);
    t->Q = gyre_tile_load(&t->q, &block->Q, t->b, t->head, block->head_dim,
                          t->dtype, t->q_room, &t->ldq);
    while (gyre_tiles_next(&keys, &t->kv)) {
        if (gyre_tile_cell(block->mask, block->params.batch0 + t->b, &t->q,
                           &t->kv) == GYRE_CELL_EMPTY)
            continue;
        t->K = gyre_tile_load(&t->kv, &block->K, t->b, t->kv_head,
                              block->head_dim, t->dtype, t->k_room, &t->ldk);
        t->V = gyre_tile_load(&t->kv, &block->V, t->b, t->kv_head,
                              block->v_head_dim, t->dtype, t->v_room, &t->ldv);
        gyre_tiler_each(t, part);
    }
    end(t);
}

static void task(void *state, size_t index, uint32_t worker)
{
    const job *j = state;
    const gyre_block *block = j->block;
    uint32_t heads = block->h1 - block->h0;
    gyre_tiler t = {.block = block,
                    .loops = gyre_row_loops_of(gyre_row_isa()),
                    .dtype = j->kernel->dtype,
                    .scale = (float)gyre_block_scale(block)};

    gyre_tiler_lay(&t, block, false,
                   gyre_worker_scratch(j->run, j->scratch, worker));
    gyre_tiles rows = {.pieces = block->q,
                       .count = block->q_count,
                       .most = GYRE_ATTEND_ROWS,
                       .fixed = block->params.tile,
                       .rows = t.q_rows};
    t.b = (uint32_t)(index / j->tiles / heads);
    t.head = block->h0 + (uint32_t)(index / j->tiles % heads);
    t.kv_head = gyre_block_kv_head(block, t.head);
    for (size_t i = 0; i <= index % j->tiles; i++)
        gyre_tiles_next(&rows, &t.q);
    tile(&t);
}

gyre_status gyre_f32_attend(const gyre_kernel *kernel, const gyre_block *block,
                            const gyre_kernel_run *run, gyre_error *error)
{
    job j = {.kernel = kernel, .block = block, .run = run};
    gyre_status status = gyre_kernel_ready(kernel, block, run, false, error);

    if (status != GYRE_OK)
        return status;
    uint64_t rows[256];
    gyre_tiles tiles = {.pieces = block->q,
                        .count = block->q_count,
                        .most = GYRE_ATTEND_ROWS,
                        .fixed = block->params.tile,
                        .rows = rows};
    j.tiles = gyre_tiles_count(tiles);
    j.scratch = gyre_f32_scratch(block);
    gyre_kernel_each(run, j.tiles * block->batch * (block->h1 - block->h0),
                     task, &j);
    return GYRE_OK;
}
