/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work on rows of scores, for each instruction set.
 *
 * Rows are padded to whole lots of 16 and aligned to 64.  Sums and maxima run
 * in 64 lanes by index mod 64 (what is beyond the last 64 in the first 16),
 * folded 4 x 16, then 8-4-2-1, and the exponential is SLEEF's
 * form that gives the same bits everywhere (1 ulp): all sets agree to the bit.
 * Without SLEEF the exponential is libm's.
 */
#ifndef GYRE_SRC_ATTENTION_KERNEL_ROWS_H
#define GYRE_SRC_ATTENTION_KERNEL_ROWS_H

#include "base/base.h"

typedef struct gyre_row_loops {
    /* s = exp(s - m2) with m2 = max(m, max s), -inf giving 0; returns m2, and
     * the sum of what s became.  m2 = -inf: s = 0, sum 0. */
    float (*soften)(float *s, size_t n, float m, float *sum);
    /* s = exp(s - l); l is finite. */
    void (*weigh)(float *s, size_t n, float l);
    /* ds = p (dp - delta) scale, into dp; 0 where p is, whatever dp is. */
    void (*slope)(const float *p, float *dp, size_t n, float delta,
                  float scale);
    /* x *= w */
    void (*scale)(float *x, size_t n, float w);
    float (*exponential)(float x);
} gyre_row_loops;

/* Loops of one set; of the machine's best when it has not got that one. */
const gyre_row_loops *gyre_row_loops_of(gyre_isa isa);
/* The best set this machine has. */
gyre_isa gyre_row_isa(void);
/* "SLEEF 3.5.1", "libm". */
const char *gyre_row_exponential(void);

#endif
