/* SPDX-License-Identifier: Apache-2.0 */
/* What the block kernels share: rows of pieces, allowed runs, tasks. */
#ifndef GYRE_SRC_ATTENTION_KERNEL_INNER_H
#define GYRE_SRC_ATTENTION_KERNEL_INNER_H

#include "attention/kernel.h"

extern const gyre_kernel gyre_kernel_f32, gyre_kernel_bf16, gyre_kernel_f64,
    gyre_kernel_count;

static inline char *gyre_row_at(const gyre_plane *plane, uint32_t b, uint32_t h,
                                uint64_t row)
{
    return plane->at + b * plane->batch + (h - plane->head0) * plane->head +
           row * plane->row;
}

static inline uint64_t gyre_piece_position(const gyre_piece *piece, uint64_t i)
{
    return piece->start + i * piece->stride;
}

/* Indices of a piece at positions in [low, high). */
static inline uint64_t gyre_piece_index(const gyre_piece *piece, uint64_t at)
{
    uint64_t i =
        at <= piece->start ? 0 : (at - piece->start - 1) / piece->stride + 1;

    return i < piece->length ? i : piece->length;
}

/* The first run [*i0, *i1) of the piece's keys at or after index `from` that
 * the query at position q may see.  b counts from the mask's first sequence. */
static inline bool gyre_piece_run(const gyre_mask *mask, uint32_t b, uint64_t q,
                                  const gyre_piece *piece, uint64_t from,
                                  uint64_t *i0, uint64_t *i1)
{
    while (from < piece->length) {
        uint64_t low, high;
        uint64_t end = gyre_piece_position(piece, piece->length - 1) + 1;

        if (mask == NULL) {
            *i0 = from;
            *i1 = piece->length;
            return true;
        }
        if (!gyre_mask_span(mask, b, q, gyre_piece_position(piece, from), end,
                            &low, &high))
            return false;
        *i0 = gyre_piece_index(piece, low);
        *i1 = gyre_piece_index(piece, high);
        if (*i0 < *i1)
            return true;
        from = *i1;
        if (high >= end)
            return false;
    }
    return false;
}

static inline double gyre_block_scale(const gyre_block *block)
{
    return block->params.scale != 0.0
               ? block->params.scale
               : 1.0 / __builtin_sqrt((double)block->head_dim);
}

static inline uint32_t gyre_block_kv_head(const gyre_block *block, uint32_t h)
{
    return h / (block->heads / block->kv_heads);
}

static inline uint64_t gyre_block_kv_rows(const gyre_block *block)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < block->kv_count; i++)
        rows += block->kv[i].length;
    return rows;
}

/*
 * Tasks.  Of attend: sequence x query head x q tile, tiles of `rows` rows that
 * do not leave their piece.  Of grad: sequence x KV head, since that is what DK
 * and DV are added up over.
 */
typedef struct gyre_task {
    uint32_t b, head; /* query head; of grad, KV head */
    const gyre_piece *piece;
    uint64_t i0, i1; /* rows of the piece */
} gyre_task;

size_t gyre_attend_tasks(const gyre_block *block, uint64_t rows);
gyre_task gyre_attend_task(const gyre_block *block, uint64_t rows,
                           size_t index);
size_t gyre_grad_tasks(const gyre_block *block);
gyre_task gyre_grad_task(const gyre_block *block, size_t index);
/* Query heads of the block that read this KV head. */
static inline void gyre_block_group(const gyre_block *block, uint32_t kv_head,
                                    uint32_t *h0, uint32_t *h1)
{
    uint32_t group = block->heads / block->kv_heads;

    *h0 = kv_head * group > block->h0 ? kv_head * group : block->h0;
    *h1 = (kv_head + 1) * group < block->h1 ? (kv_head + 1) * group : block->h1;
}

void gyre_kernel_each(const gyre_kernel_run *run, size_t count,
                      void (*body)(void *state, size_t index, uint32_t worker),
                      void *state);
/* check the block and that run has scratch for its workers. */
gyre_status gyre_kernel_ready(const gyre_kernel *kernel,
                              const gyre_block *block,
                              const gyre_kernel_run *run, bool grad,
                              gyre_error *error);
static inline char *gyre_worker_scratch(const gyre_kernel_run *run,
                                        size_t bytes, uint32_t worker)
{
    return run->scratch + bytes * worker;
}

/* (o, l) of one row merged with (o2, l2): the weights of the two sides, and
 * the new l.  Identities give weights 1 and 0, two of them l = -inf. */
typedef struct gyre_weights {
    double a, b, lse;
} gyre_weights;
gyre_weights gyre_merge_weights(double a, double b);

void gyre_merge_sums(const gyre_reach *reach, gyre_dtype from,
                     const gyre_plane *a_o, const gyre_plane *a_lse,
                     const gyre_plane *b_o, const gyre_plane *b_lse,
                     gyre_dtype sum);

#endif
