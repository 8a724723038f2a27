/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of tiles, one thread each.
 *
 *     C (m x n) = alpha op(A) op(B) + beta C,   row-major
 *
 * op(A) is m x k: A itself, or the transpose of a k x m A; likewise B.  Leading
 * dimensions are in elements.
 *
 * The library is a serial OpenBLAS, with a copy of it for each processor that
 * calls (kernel_library.h): callers side by side do not wait for each other,
 * and a threaded BLAS that somebody else has loaded is left alone.  Without one
 * the products are plain loops.
 */
#ifndef GYRE_SRC_ATTENTION_KERNEL_BLAS_H
#define GYRE_SRC_ATTENTION_KERNEL_BLAS_H

#include "base/base.h"

typedef struct gyre_product {
    bool a_transposed, b_transposed;
    uint32_t m, n, k;
    float alpha, beta;
    const float *a, *b;
    float *c;
    size_t lda, ldb, ldc;
} gyre_product;

void gyre_multiply(const gyre_product *product);
/* The same where A is weights, some of them 0 by a mask, and B not transposed:
 * a weight of 0 hides even a NaN or an infinity of its row of B. */
void gyre_multiply_masked(const gyre_product *product);
/* The plain loops, for tests. */
void gyre_multiply_plain(const gyre_product *product);
/* "OpenBLAS 0.3.21 SkylakeX", or "plain C" and why. */
const char *gyre_multiply_name(void);

#endif
