/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions for the scalars of a step (bias corrections, decay), the same bits
 * on every machine: they use + - * / and fma alone, in a fixed order, and no
 * table or routine of the machine's libm.
 *
 *     function    error in units of the last place, at most
 *     powi        0.51 for n up to 2^42; beyond that it grows by n 2^-50
 *     sqrt        0.5, as IEEE 754 demands
 *     log         0.51
 *     exp, pow    0.75
 *
 * Special cases follow C11 Annex F (powi(NaN, 0) and pow(NaN, 0) are 1); errno
 * and exception flags are not set on purpose.  The caller has pinned the FP
 * control word (gyre_fp_pin), else denormals are lost.  Any thread.
 */
#ifndef GYRE_SRC_BASE_MATH_H
#define GYRE_SRC_BASE_MATH_H

#include <stdint.h>

double gyre_math_powi(double x, uint64_t n);
double gyre_math_sqrt(double x);
double gyre_math_exp(double x);
double gyre_math_log(double x);
double gyre_math_pow(double x, double y);

#endif
