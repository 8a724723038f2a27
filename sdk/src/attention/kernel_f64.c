/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel that others are held against: f64 throughout, one row at a time,
 * every sum in the order of the keys.  Scratch: the scores of one row, and
 * P-weighted gradients beside them.
 */
#include "config.h"

#include "attention/kernel_inner.h"

#include <math.h>

typedef struct job {
    const gyre_block *block;
    const gyre_kernel_run *run;
    size_t scratch;
    double scale;
} job;

static size_t scratch_bytes(const gyre_block *block)
{
    size_t doubles = (size_t)gyre_block_kv_rows(block) + block->v_head_dim;

    return (size_t)gyre_round_up(doubles * sizeof(double), 64);
}

static double dot(const double *a, const double *b, uint32_t n)
{
    double sum = 0.0;

    for (uint32_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(double *to, double w, const double *from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] += w * from[i];
}

static double score(const job *j, uint32_t head, uint64_t q, uint64_t k,
                    const double *q_row, const double *k_row)
{
    const gyre_block *block = j->block;
    double s = j->scale * dot(q_row, k_row, block->head_dim);

    if (block->params.slopes != NULL)
        s -= (double)block->params.slopes[head] *
             (double)(q > k ? q - k : k - q);
    return s;
}

/* ---- attend ------------------------------------------------------------ */

/* Scores of the allowed keys, one behind the other; how many, and the most. */
static size_t scores_of(const job *j, uint32_t b, uint32_t head, uint64_t q,
                        const double *q_row, double *s, double *most)
{
    const gyre_block *block = j->block;
    uint32_t kv_head = gyre_block_kv_head(block, head);
    size_t n = 0;

    *most = -INFINITY;
    for (uint32_t p = 0; p < block->kv_count; p++) {
        const gyre_piece *kv = &block->kv[p];
        uint64_t i0, i1;

        for (uint64_t from = 0; gyre_piece_run(
                 block->mask, block->params.batch0 + b, q, kv, from, &i0, &i1);
             from = i1)
            for (uint64_t i = i0; i < i1; i++) {
                const char *k = gyre_row_at(&block->K, b, kv_head, kv->row + i);

                s[n] = score(j, head, q, gyre_piece_position(kv, i), q_row,
                             (const double *)(const void *)k);
                *most = fmax(*most, s[n]);
                n++;
            }
    }
    return n;
}

/* o = sum of Z exp(s - most) v, unnormalised; returns sum exp(s - most). */
static double values_of(const job *j, uint32_t b, uint32_t head, uint64_t q,
                        const double *s, double most, double *o)
{
    const gyre_block *block = j->block;
    uint32_t kv_head = gyre_block_kv_head(block, head);
    gyre_drop_key drop =
        gyre_drop_row(&block->params, block->params.batch0 + b, head, q);
    double keep = 1.0 / (1.0 - block->params.dropout), sum = 0.0;

    for (uint32_t d = 0; d < block->v_head_dim; d++)
        o[d] = 0.0;
    for (uint32_t p = 0; p < block->kv_count; p++) {
        const gyre_piece *kv = &block->kv[p];
        uint64_t i0, i1;

        for (uint64_t from = 0; gyre_piece_run(
                 block->mask, block->params.batch0 + b, q, kv, from, &i0, &i1);
             from = i1)
            for (uint64_t i = i0; i < i1; i++) {
                const char *v = gyre_row_at(&block->V, b, kv_head, kv->row + i);
                double w = exp(*s++ - most);

                sum += w;
                if (gyre_keeps(&drop, gyre_piece_position(kv, i)))
                    add_scaled(o, w * keep, (const double *)(const void *)v,
                               block->v_head_dim);
            }
    }
    return sum;
}

static void attend_row(const job *j, uint32_t b, uint32_t head, uint64_t q,
                       uint64_t row, double *scratch)
{
    const gyre_block *block = j->block;
    const void *q_row = gyre_row_at(&block->Q, b, head, row);
    double *o = (double *)(void *)gyre_row_at(&block->O, b, head, row);
    double *l = (double *)(void *)gyre_row_at(&block->LSE, b, head, row);
    double *fresh = scratch, *s = scratch + block->v_head_dim, most;

    if (scores_of(j, b, head, q, q_row, s, &most) == 0 || most == -INFINITY)
        return;
    double sum = values_of(j, b, head, q, s, most, fresh);
    gyre_weights w = gyre_merge_weights(most + log(sum), *l);
    for (uint32_t d = 0; d < block->v_head_dim; d++)
        o[d] = w.a * (fresh[d] / sum) + (w.b == 0.0 ? 0.0 : w.b * o[d]);
    *l = w.lse;
}

enum { ROWS = 64 };

static void attend_task(void *state, size_t index, uint32_t worker)
{
    const job *j = state;
    gyre_task task = gyre_attend_task(j->block, ROWS, index);
    void *scratch = gyre_worker_scratch(j->run, j->scratch, worker);

    for (uint64_t i = task.i0; i < task.i1; i++)
        attend_row(j, task.b, task.head, gyre_piece_position(task.piece, i),
                   task.piece->row + i, scratch);
}

static gyre_status attend(const gyre_block *block, const gyre_kernel_run *run,
                          gyre_error *error)
{
    job j = {block, run, scratch_bytes(block), gyre_block_scale(block)};
    gyre_status status =
        gyre_kernel_ready(&gyre_kernel_f64, block, run, false, error);

    if (status == GYRE_OK)
        gyre_kernel_each(run, gyre_attend_tasks(block, ROWS), attend_task, &j);
    return status;
}

/* ---- grad -------------------------------------------------------------- */

typedef struct query {
    uint32_t b, head, kv_head;
    uint64_t at; /* position */
    const double *q, *d_o;
    double lse, delta;
    double *dq;
    gyre_drop_key drop;
} query;

static void grad_pair(const job *j, const query *row, uint64_t k, uint64_t at)
{
    const gyre_block *block = j->block;
    uint32_t dim = block->head_dim, v_dim = block->v_head_dim;
    const void *k_row = gyre_row_at(&block->K, row->b, row->kv_head, at);
    const void *v_row = gyre_row_at(&block->V, row->b, row->kv_head, at);
    double s = score(j, row->head, row->at, k, row->q, k_row);
    double p = exp(s - row->lse);
    double z =
        gyre_keeps(&row->drop, k) ? 1.0 / (1.0 - block->params.dropout) : 0.0;
    double dp = z * dot(row->d_o, v_row, v_dim);
    double ds = p * (dp - row->delta) * j->scale;

    if (row->dq != NULL)
        add_scaled(row->dq, ds, k_row, dim);
    if (block->DK.at != NULL) {
        void *dk = gyre_row_at(&block->DK, row->b, row->kv_head, at);
        void *dv = gyre_row_at(&block->DV, row->b, row->kv_head, at);

        add_scaled(dk, ds, row->q, dim);
        add_scaled(dv, z * p, row->d_o, v_dim);
    }
}

static void grad_row(const job *j, const query *row)
{
    const gyre_block *block = j->block;

    for (uint32_t p = 0; p < block->kv_count; p++) {
        const gyre_piece *kv = &block->kv[p];
        uint64_t i0, i1;

        for (uint64_t from = 0;
             gyre_piece_run(block->mask, block->params.batch0 + row->b, row->at,
                            kv, from, &i0, &i1);
             from = i1)
            for (uint64_t i = i0; i < i1; i++)
                grad_pair(j, row, gyre_piece_position(kv, i), kv->row + i);
    }
}

static query query_of(const job *j, const gyre_task *task, uint32_t head,
                      const gyre_piece *piece, uint64_t i)
{
    const gyre_block *block = j->block;
    uint32_t b = task->b;
    uint64_t row = piece->row + i;
    query q = {.b = b, .head = head, .kv_head = task->head};

    q.at = gyre_piece_position(piece, i);
    q.q = (const void *)gyre_row_at(&block->Q, b, head, row);
    q.d_o = (const void *)gyre_row_at(&block->DO, b, head, row);
    q.lse = *(const double *)(void *)gyre_row_at(&block->L, b, head, row);
    q.delta = *(const double *)(void *)gyre_row_at(&block->D, b, head, row);
    if (block->DQ.at != NULL)
        q.dq = (void *)gyre_row_at(&block->DQ, b, head, row);
    q.drop =
        gyre_drop_row(&block->params, block->params.batch0 + b, head, q.at);
    return q;
}

static void grad_task(void *state, size_t index, uint32_t worker)
{
    const job *j = state;
    const gyre_block *block = j->block;
    gyre_task task = gyre_grad_task(block, index);
    uint32_t h0, h1;

    (void)worker;
    gyre_block_group(block, task.head, &h0, &h1);
    for (uint32_t h = h0; h < h1; h++)
        for (uint32_t p = 0; p < block->q_count; p++)
            for (uint64_t i = 0; i < block->q[p].length; i++) {
                query row = query_of(j, &task, h, &block->q[p], i);

                /* No key at all: no weight, so no gradient. */
                if (row.lse != -INFINITY)
                    grad_row(j, &row);
            }
}

static gyre_status grad(const gyre_block *block, const gyre_kernel_run *run,
                        gyre_error *error)
{
    job j = {block, run, scratch_bytes(block), gyre_block_scale(block)};
    gyre_status status =
        gyre_kernel_ready(&gyre_kernel_f64, block, run, true, error);

    if (status == GYRE_OK)
        gyre_kernel_each(run, gyre_grad_tasks(block), grad_task, &j);
    return status;
}

static void merge(const gyre_reach *reach, gyre_dtype from,
                  const gyre_plane *a_o, const gyre_plane *a_lse,
                  const gyre_plane *b_o, const gyre_plane *b_lse)
{
    gyre_merge_sums(reach, from, a_o, a_lse, b_o, b_lse, GYRE_F64);
}

const gyre_kernel gyre_kernel_f64 = {
    .name = "f64",
    .dtype = GYRE_F64,
    .sum = GYRE_F64,
    .stat = GYRE_F64,
    .scratch = scratch_bytes,
    .attend = attend,
    .grad = grad,
    .merge = merge,
};
