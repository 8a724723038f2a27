/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counting: each allowed pair adds 1 to every element of its row of O, or of
 * its rows of DQ, DK and DV.  Whole numbers in f64, so exact below 2^53: what a
 * plan computes twice or not at all shows as a wrong number.
 */
#include "config.h"

#include "attention/kernel_inner.h"

typedef struct job {
    const gyre_block *block;
} job;

static size_t scratch_bytes(const gyre_block *block)
{
    (void)block;
    return 0;
}

static void add(const gyre_plane *plane, uint32_t b, uint32_t h, uint64_t row,
                uint32_t dim, double n)
{
    double *at = (double *)(void *)gyre_row_at(plane, b, h, row);

    for (uint32_t d = 0; d < dim; d++)
        at[d] += n;
}

/* Allowed keys of one query; each gets 1 in DK and DV when asked. */
static uint64_t pairs_of(const gyre_block *block, uint32_t b, uint32_t kv_head,
                         uint64_t q, bool columns)
{
    uint64_t n = 0;

    for (uint32_t p = 0; p < block->kv_count; p++) {
        const gyre_piece *kv = &block->kv[p];
        uint64_t i0, i1;

        for (uint64_t from = 0; gyre_piece_run(
                 block->mask, block->params.batch0 + b, q, kv, from, &i0, &i1);
             from = i1) {
            n += i1 - i0;
            for (uint64_t i = i0; columns && i < i1; i++) {
                add(&block->DK, b, kv_head, kv->row + i, block->head_dim, 1.0);
                add(&block->DV, b, kv_head, kv->row + i, block->v_head_dim,
                    1.0);
            }
        }
    }
    return n;
}

enum { ROWS = 64 };

static void attend_task(void *state, size_t index, uint32_t worker)
{
    const gyre_block *block = ((const job *)state)->block;
    gyre_task task = gyre_attend_task(block, ROWS, index);
    uint32_t kv_head = gyre_block_kv_head(block, task.head);

    (void)worker;
    for (uint64_t i = task.i0; i < task.i1; i++)
        add(&block->O, task.b, task.head, task.piece->row + i,
            block->v_head_dim,
            (double)pairs_of(block, task.b, kv_head,
                             gyre_piece_position(task.piece, i), false));
}

static void grad_task(void *state, size_t index, uint32_t worker)
{
    const gyre_block *block = ((const job *)state)->block;
    gyre_task task = gyre_grad_task(block, index);
    uint32_t h0, h1;

    (void)worker;
    gyre_block_group(block, task.head, &h0, &h1);
    for (uint32_t h = h0; h < h1; h++)
        for (uint32_t p = 0; p < block->q_count; p++)
            for (uint64_t i = 0; i < block->q[p].length; i++) {
                uint64_t q = gyre_piece_position(&block->q[p], i);
                uint64_t n =
                    pairs_of(block, task.b, task.head, q, block->DK.at != NULL);

                if (block->DQ.at != NULL)
                    add(&block->DQ, task.b, h, block->q[p].row + i,
                        block->head_dim, (double)n);
            }
}

static gyre_status attend(const gyre_block *block, const gyre_kernel_run *run,
                          gyre_error *error)
{
    job j = {block};
    gyre_status status =
        gyre_kernel_ready(&gyre_kernel_count, block, run, false, error);

    if (status == GYRE_OK)
        gyre_kernel_each(run, gyre_attend_tasks(block, ROWS), attend_task, &j);
    return status;
}

static gyre_status grad(const gyre_block *block, const gyre_kernel_run *run,
                        gyre_error *error)
{
    job j = {block};
    gyre_status status =
        gyre_kernel_ready(&gyre_kernel_count, block, run, true, error);

    if (status == GYRE_OK)
        gyre_kernel_each(run, gyre_grad_tasks(block), grad_task, &j);
    return status;
}

static void merge(const gyre_reach *reach, gyre_dtype from,
                  const gyre_plane *a_o, const gyre_plane *a_lse,
                  const gyre_plane *b_o, const gyre_plane *b_lse)
{
    (void)a_lse;
    (void)b_lse;
    gyre_add_planes(reach, from, a_o, GYRE_F64, b_o);
}

const gyre_kernel gyre_kernel_count = {
    .name = "count",
    .dtype = GYRE_F64,
    .sum = GYRE_F64,
    .stat = GYRE_F64,
    .scratch = scratch_bytes,
    .attend = attend,
    .grad = grad,
    .merge = merge,
};
