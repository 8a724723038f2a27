/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast are the block kernels of attention?
 *
 *     bench --> round, round, ...   product | attend | product | grad | product
 *
 * A round computes attention of one block and its gradients on one thread and,
 * before, between and after, a square product of the same BLAS, so that a busy
 * machine slows down both.  With more workers than one, it then computes both
 * again, on one thread and on all, by the clock on the wall.
 */
#ifndef GYRE_KERNEL_H
#define GYRE_KERNEL_H

#include <gyre/context.h>
#include <gyre/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero everything, set `size`, then what differs. */
typedef struct gyre_kernel_bench_request {
    size_t size;
    const char *kernel;         /* NULL: "f32"; or "bf16" */
    uint64_t tokens, kv_tokens; /* 0: 4096, and as many */
    uint32_t heads, kv_heads;   /* 0: 1, and as many */
    uint32_t head_dim;          /* 0: 128; of Q, K, V and O */
    uint32_t full;              /* 1: no causal mask */
    uint32_t square;            /* of the product; 0: 1024 */
    uint32_t workers;           /* 0: 1; at most 1024 */
} gyre_kernel_bench_request;

typedef struct gyre_kernel_times {
    size_t size;
    /* Nanoseconds of this thread's processor time. */
    double product[3], attend, grad;
    /* Nanoseconds that passed, with one worker and with all; 0 when one is all.
     * Attend shares out tiles of queries and heads, grad KV heads. */
    double attend_passed[2], grad_passed[2];
} gyre_kernel_times;

/* What a round computes.  area: allowed (q, k) pairs over all heads.  Of a
 * pair, attend has 4 head_dim operations and grad 10. */
typedef struct gyre_kernel_bench_info {
    size_t size;
    double area, attend_flops, grad_flops, product_flops;
    const char *blas, *exponential; /* "OpenBLAS 0.3.21 ...", "SLEEF" */
} gyre_kernel_bench_info;

typedef struct gyre_kernel_bench gyre_kernel_bench;

/* Errors: NOT_FOUND for a kernel, UNSUPPORTED for one that is not of f32 or
 * bf16, INVALID, NO_MEMORY.  The context outlives it. */
GYRE_API gyre_status gyre_kernel_bench_open(
    gyre_context *context, const gyre_kernel_bench_request *request,
    gyre_kernel_bench **out, gyre_error *error);
GYRE_API void gyre_kernel_bench_close(gyre_kernel_bench *bench);
GYRE_API void gyre_kernel_bench_get_info(const gyre_kernel_bench *bench,
                                         gyre_kernel_bench_info *out);
/* One round.  One thread at a time. */
GYRE_API gyre_status gyre_kernel_bench_round(gyre_kernel_bench *bench,
                                             gyre_kernel_times *out,
                                             gyre_error *error);

#ifdef __cplusplus
}
#endif

#endif
