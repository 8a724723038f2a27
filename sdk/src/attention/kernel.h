/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block kernels: what a rank computes for one op of a plan.
 *
 *     Q rows x KV rows, heads h0 .. h1, every sequence of the batch
 *
 *                 allowed pairs only (mask, by global positions)
 *     attend      (O, LSE)  merge=  softmax(scale Q K^T + bias) V
 *     grad        DQ += dS K    DK += dS^T Q    DV += P^T DO
 *     merge, add  sums of two partial values      convert  change of dtype
 *     delta       rowsum(DO * O)
 *
 * With s = scale q.k - slope |q - k|, L the natural-log LSE of the row and Z
 * the dropout factor (0 or 1 / (1 - p); 1 without):
 *
 *     O = sum Z exp(s - L) v     P = exp(s - L)      dP = Z (DO . v)
 *     DV += Z P DO               dS = P (dP - delta) scale
 *
 * A partial value (O, LSE) is normalised: its weights sum to one over its own
 * keys.  The identity is O = 0, LSE = -inf; a row without an allowed key stays
 * what it was, gets no gradient, and merging identities gives the identity, no
 * NaN.  Kernels always add to what the outputs hold: the caller fills in
 * identities (gyre_identity) at birth.
 *
 * Planes.  Element (b, h, r, d) lies at
 *     at + b * batch + (h - head0) * head + r * row + d * bytes of the dtype
 * h counts query heads in Q, O, LSE, DO, delta and DQ, KV heads in K, V, DK and
 * DV.  Statistics (LSE, delta) have no d.  Strides are in bytes and whole
 * elements; planes are aligned to their element.  Outputs do not overlap.
 *
 * Order of arithmetic.  A query head's rows are cut into tiles inside a piece;
 * for each, KV tiles follow in the order of the pieces with a running maximum;
 * sums over head dims and over the keys of a tile are the BLAS's.  What a row
 * gets does not depend on the number of workers.  With `tile` > 0, tiles are
 * the squares of that many positions at multiples of it, and a row lies at
 * (position mod tile) of its tile whatever else lies there: one leaf (one Q
 * tile against one KV tile) then has the same bits from any layout, batch or
 * schedule, given the same keys of that tile.
 *
 * Dropout and ALiBi depend on positions and heads alone: the pair (b, h, q, k)
 * is kept when gyre_keeps says so, on every kernel and device.
 *
 * Threads: all functions may run on any thread, side by side on different
 * outputs.  None allocates; none pins the FP control word: the caller does.
 */
#ifndef GYRE_SRC_ATTENTION_KERNEL_H
#define GYRE_SRC_ATTENTION_KERNEL_H

#include "base/base.h"
#include "plan/plan.h"

/* Tokens at positions start, start + stride, ...; the first is row `row` of the
 * plane, the others follow it. */
typedef struct gyre_piece {
    uint64_t start, length, stride;
    uint64_t row;
} gyre_piece;

typedef struct gyre_plane {
    char *at; /* NULL: absent */
    size_t batch, head, row;
    uint32_t head0; /* the head at `at` */
    uint32_t reserved;
} gyre_plane;

typedef struct gyre_kernel_params {
    double scale;        /* 0: 1 / sqrt(head_dim) */
    double dropout;      /* 0 <= p < 1 */
    uint64_t seed;       /* of dropout */
    const float *slopes; /* [heads] of ALiBi, at query heads; or NULL */
    uint32_t tile;       /* 0, or the positions of a fixed tile, 8 to 256 */
    uint32_t batch0;     /* the first sequence's number, for dropout and mask */
} gyre_kernel_params;

/* One ATT or GRD. */
typedef struct gyre_block {
    uint32_t batch, heads, kv_heads; /* of the problem: h's KV head is
                                        h / (heads / kv_heads) */
    uint32_t h0, h1;                 /* query heads to compute */
    uint32_t head_dim, v_head_dim;
    const gyre_mask *mask;    /* NULL: full */
    const gyre_piece *q, *kv; /* positions never twice on a side */
    uint32_t q_count, kv_count;
    gyre_kernel_params params;
    gyre_plane Q, K, V;    /* kernel->dtype */
    gyre_plane O, LSE;     /* attend: in and out; sum, stat */
    gyre_plane DO, L, D;   /* grad: in; dtype, stat, stat (LSE and delta) */
    gyre_plane DQ, DK, DV; /* grad: sum; DQ absent, or DK and DV absent */
} gyre_block;

/*
 * Where a kernel runs.  each: calls body(state, i, worker) for every i below
 * count and returns when all are done; calls side by side have different
 * workers, below `workers`.  NULL: one after the other on this thread.
 * scratch: kernel->scratch(block) bytes a worker, aligned to 64.
 */
typedef struct gyre_kernel_run {
    void *user;
    void (*each)(void *user, size_t count,
                 void (*body)(void *state, size_t index, uint32_t worker),
                 void *state);
    uint32_t workers; /* at least 1 */
    uint32_t reserved;
    char *scratch;
    size_t scratch_bytes; /* of all workers */
} gyre_kernel_run;

/* Elements [batch][h0 .. h1][rows of the pieces][dim] of two or three planes.
 * Rows: `count` runs, `from` in a (and in O, DO), `to` in b. */
typedef struct gyre_run_of_rows {
    uint64_t from, to, length;
} gyre_run_of_rows;
typedef struct gyre_reach {
    uint32_t batch, h0, h1, dim; /* heads as the planes count them */
    const gyre_run_of_rows *rows;
    uint32_t count;
    uint32_t reserved;
} gyre_reach;

typedef struct gyre_kernel {
    const char *name;
    gyre_dtype dtype; /* of Q, K, V, DO */
    gyre_dtype sum;   /* of O, DQ, DK, DV */
    gyre_dtype stat;  /* of LSE and delta */
    /* Bytes of scratch a worker needs, a multiple of 64; may be 0. */
    size_t (*scratch)(const gyre_block *block);
    /* Errors: INVALID for a block that gyre_block_check refuses or too little
     * scratch; outputs untouched. */
    gyre_status (*attend)(const gyre_block *block, const gyre_kernel_run *run,
                          gyre_error *error);
    gyre_status (*grad)(const gyre_block *block, const gyre_kernel_run *run,
                        gyre_error *error);
    /* (O, LSE) at b merged with (O, LSE) at a, whose O is of dtype `from`.
     * count: O is added, LSE left alone. */
    void (*merge)(const gyre_reach *reach, gyre_dtype from,
                  const gyre_plane *a_o, const gyre_plane *a_lse,
                  const gyre_plane *b_o, const gyre_plane *b_lse);
} gyre_kernel;

/* By name; NULL when there is none. */
const gyre_kernel *gyre_kernel_find(const char *name);
/* Names in order, NULL at the end. */
const char *const *gyre_kernel_names(void);

/* Is a scale a finite number where sums are of this dtype? */
bool gyre_scale_fits(double scale, gyre_dtype sum);
/* Is the block well formed for this kernel?  `grad` asks about DO .. DV. */
gyre_status gyre_block_check(const gyre_kernel *kernel, const gyre_block *block,
                             bool grad, gyre_error *error);

/* Fill with a value: 0 for sums, -inf for an LSE (dim 1).  Rows: `to`. */
void gyre_identity(const gyre_reach *reach, gyre_dtype dtype, double value,
                   const gyre_plane *plane);
/* b += a, each of its dtype; sums are made in b's.  f32, f64, bf16, f16. */
void gyre_add_planes(const gyre_reach *reach, gyre_dtype from,
                     const gyre_plane *a, gyre_dtype to, const gyre_plane *b);
/* b = a with one rounding to nearest even; same dtype: a copy of the bits. */
void gyre_convert(const gyre_reach *reach, gyre_dtype from, const gyre_plane *a,
                  gyre_dtype to, const gyre_plane *b);
/* delta = rowsum(DO * O): in order in f64 when dtype is, else in 16 f32 lanes
 * folded 8-4-2-1.  dim: v_head_dim; rows `from` in O and DO, `to` in delta. */
void gyre_delta(const gyre_reach *reach, gyre_dtype dtype, const gyre_plane *o,
                const gyre_plane *d_o, gyre_dtype stat,
                const gyre_plane *delta);

/*
 * Dropout: the pair is kept when hash(seed, b, h, q, k) >= p 2^32.  The row's
 * keys are hashed once (gyre_drop_row), then one hash a key: b, h and both
 * halves of q and seed go into the two key words, k is the counter (its upper
 * half into the second key word).
 */
typedef struct gyre_drop_key {
    uint32_t key0, key1, below; /* dropped below this */
    float keep;                 /* 1 / (1 - p) */
} gyre_drop_key;
gyre_drop_key gyre_drop_row(const gyre_kernel_params *params, uint32_t b,
                            uint32_t head, uint64_t q);
static inline bool gyre_keeps(const gyre_drop_key *drop, uint64_t k)
{
    return gyre_hash(drop->key0, drop->key1 + (uint32_t)(k >> 32),
                     (uint32_t)k) >= drop->below;
}

#endif
