/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tiled kernel of f32 and bf16: scores of a Q tile against a KV tile by a
 * matrix product, rows of them made into weights, a second product.
 *
 * Scratch of a worker, in floats, each part a whole number of 16:
 *
 *     q k v     tiles that are not f32 in place    [most][dim]
 *     score     weights of the tile                [rows][columns]
 *     attend:   sum [rows][v_dim], most, total [rows]
 *     grad:     dO [rows][v_dim], slope [rows][columns], DK DV of the KV tile
 *               [keys][dim], DQ of a fixed tile, L and D [rows]
 *     rows      of fixed tiles, u64
 */
#ifndef GYRE_SRC_ATTENTION_KERNEL_F32_H
#define GYRE_SRC_ATTENTION_KERNEL_F32_H

#include "attention/kernel_blas.h"
#include "attention/kernel_rows.h"
#include "attention/kernel_tile.h"

/* Rows and keys of a running tile; rows of a band of a partly masked tile,
 * which is cut to the keys that the band needs (doc/decisions.md). */
enum {
    GYRE_ATTEND_ROWS = 384,
    GYRE_ATTEND_KEYS = 384,
    GYRE_GRAD_ROWS = 256,
    GYRE_GRAD_KEYS = 256,
    GYRE_BAND = 64
};

/* One call on one worker. */
typedef struct gyre_tiler {
    const gyre_block *block;
    const gyre_row_loops *loops;
    gyre_dtype dtype;
    float scale;
    uint32_t b, head, kv_head; /* of the task */
    gyre_tile q, kv;
    const float *Q, *K, *V, *DO;
    size_t ldq, ldk, ldv, lddo;
    float *q_room, *k_room, *v_room, *do_room;
    float *score, *slope; /* leading dimension: columns */
    uint32_t columns;
    bool masked;               /* the part at hand */
    float *sum, *most, *total; /* attend */
    float *lse, *delta, *dq, *dk, *dv;
    uint64_t *q_rows, *kv_rows;
} gyre_tiler;

/* Lay the parts out from `at` (NULL: only count); bytes. */
size_t gyre_tiler_lay(gyre_tiler *t, const gyre_block *block, bool grad,
                      char *at);
/* scale s: r rows of columns c0 .. c1, products, bias and mask. */
void gyre_tiler_scores(gyre_tiler *t, uint32_t r0, uint32_t r1, uint32_t c0,
                       uint32_t c1, bool masked);
/* Multiply a row of n weights by its dropout factors. */
void gyre_tiler_drop(const gyre_tiler *t, uint32_t r, uint32_t c0, uint32_t n,
                     float *s);
/* Call part for the tile whole, or for bands of it where the mask cuts it. */
typedef void gyre_tiler_part(gyre_tiler *t, uint32_t r0, uint32_t r1,
                             uint32_t c0, uint32_t c1, bool masked);
void gyre_tiler_each(gyre_tiler *t, gyre_tiler_part *part);

gyre_status gyre_f32_attend(const gyre_kernel *kernel, const gyre_block *block,
                            const gyre_kernel_run *run, gyre_error *error);
gyre_status gyre_f32_grad(const gyre_kernel *kernel, const gyre_block *block,
                          const gyre_kernel_run *run, gyre_error *error);
size_t gyre_f32_scratch(const gyre_block *block);

#endif
