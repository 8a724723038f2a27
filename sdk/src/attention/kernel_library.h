/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The serial BLAS, as often as threads call it at once.
 *
 * A serial OpenBLAS takes its work space from a table without a lock: two calls
 * at once can get the same.  So a caller holds a copy of the library for the
 * time of a call.  The first is the file itself; another one is loaded, from a
 * copy of the file in memory, when all there are have a caller, up to one a
 * processor that this process may use.  Beyond that, and where no copy can be
 * made, callers wait.
 *
 * Which copy a call gets makes no difference to a bit: they are one code.  They
 * stay for the life of the process; only their code and work space is in them.
 */
#ifndef GYRE_SRC_ATTENTION_KERNEL_LIBRARY_H
#define GYRE_SRC_ATTENTION_KERNEL_LIBRARY_H

#include "base/base.h"

typedef void gyre_sgemm(int order, int op_a, int op_b, int m, int n, int k,
                        float alpha, const float *a, int lda, const float *b,
                        int ldb, float beta, float *c, int ldc);

typedef struct gyre_blas_copy gyre_blas_copy;

/* A copy for this thread alone, until it is given back; NULL: there is no
 * serial BLAS here.  All functions: any thread. */
gyre_blas_copy *gyre_blas_take(gyre_sgemm **sgemm);
void gyre_blas_give(gyre_blas_copy *copy);

/* "OpenBLAS 0.3.21 SkylakeX", or "plain C" and why. */
const char *gyre_blas_name(void);
/* How many there are so far, of at most how many. */
uint32_t gyre_blas_copies(uint32_t *most);

#endif
