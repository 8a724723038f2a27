/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block problem for tests of kernels: random values that are exact in the
 * kernel's dtype, planes with gaps between rows and heads, a naive reference
 * in double and a plain one in float.
 *
 * Outputs are one value a row and dim, [batch][head][row][dim], in double
 * whatever the kernel's dtypes are.
 */
#ifndef GYRE_TESTS_UNIT_ATTENTION_KERNEL_CASE_H
#define GYRE_TESTS_UNIT_ATTENTION_KERNEL_CASE_H

#include "attention/kernel_device.h"
#include "../unit.h"

enum { CASE_PIECES = 64 };

typedef struct kernel_shape {
    const char *name;
    uint32_t batch, heads, kv_heads, dim, v_dim;
    uint64_t q_rows, kv_rows; /* tokens of a side, all of them in the block */
    gyre_mask mask;
    gyre_kernel_params params;
    uint32_t layout; /* of both sides: enum below */
} kernel_shape;

enum { CASE_WHOLE, CASE_ZIGZAG, CASE_STRIPED, CASE_ODD, CASE_LAYOUTS };

typedef struct kernel_values {
    double *o, *lse, *dq, *dk, *dv;
    size_t o_n, lse_n, dq_n, dk_n, dv_n;
} kernel_values;

typedef struct kernel_case {
    kernel_shape shape;
    gyre_piece q[CASE_PIECES], kv[CASE_PIECES];
    uint32_t q_count, kv_count;
    double *q_in, *k_in, *v_in, *do_in; /* [batch][head][row][dim] */
} kernel_case;

/* Values rounded to `dtype`; seed makes others. */
void case_make(kernel_case *c, const kernel_shape *shape, gyre_dtype dtype,
               uint64_t seed);
void case_free(kernel_case *c);
void values_free(kernel_values *v);

/* All five results, every pair one after the other. */
kernel_values case_naive(const kernel_case *c);
kernel_values case_plain(const kernel_case *c); /* in float */

/* How to call the kernel. */
typedef struct case_how {
    const char *kernel;
    uint32_t workers;
    uint32_t split;            /* KV pieces go in this many calls; 0: one */
    bool by_head;              /* one call a query head */
    uint32_t gap;              /* elements between rows */
    double before;             /* in DK and DV when grad begins */
    gyre_block_device *device; /* runs it; kernel: whose dtypes it has */
} case_how;
/* attend with the partial value built up, then grad with its own LSE and the
 * delta of its own O. */
kernel_values case_run(const kernel_case *c, const case_how *how);

/* max |a - b| and max |b|. */
double values_error(const double *a, const double *b, size_t n);
double values_most(const double *a, size_t n);

/* The rule: at most twice the error of `plain`, or 4 eps max |ref|. */
void values_check(const char *what, const kernel_values *got,
                  const kernel_values *plain, const kernel_values *ref,
                  double eps);

/* A parallel-for with threads. */
void case_each(void *user, size_t count,
               void (*body)(void *state, size_t index, uint32_t worker),
               void *state);

#endif
