/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merging partial outputs (attention by blocks, log-sum-exp weights).
 *
 *     l = max + log1p(exp(min - max))     o = exp(a - l) o_a + exp(b - l) o_b
 *
 * Both -inf would make NaN of -inf - -inf: the identity is told apart first.
 */
#include "config.h"

#include "attention/kernel_inner.h"

#include <math.h>

gyre_weights gyre_merge_weights(double a, double b)
{
    if (a == -INFINITY)
        return (gyre_weights){0.0, 1.0, b};
    if (b == -INFINITY)
        return (gyre_weights){1.0, 0.0, a};
    double high = a > b ? a : b, low = a > b ? b : a;
    double lse = high + log1p(exp(low - high));
    return (gyre_weights){exp(a - lse), exp(b - lse), lse};
}

static double load(gyre_dtype dtype, const char *at)
{
    float f;

    if (dtype == GYRE_F64)
        return *(const double *)(const void *)at;
    gyre_to_f32(dtype, at, 1, &f, 1);
    return (double)f;
}

static void merge_row(uint32_t dim, gyre_dtype from, const char *a, char *b,
                      gyre_dtype sum, const gyre_weights *w)
{
    size_t bytes = gyre_dtype_bytes(from);

    /* A side without weight is not read into the sum: 0 * garbage. */
    if (w->a == 0.0)
        return;
    for (uint32_t d = 0; d < dim; d++) {
        double x = w->a * load(from, a + d * bytes);

        if (sum == GYRE_F64) {
            double *o = (double *)(void *)b + d;
            *o = x + (w->b == 0.0 ? 0.0 : w->b * *o);
        } else {
            float *o = (float *)(void *)b + d;
            *o = (float)(x + (w->b == 0.0 ? 0.0 : w->b * (double)*o));
        }
    }
}

void gyre_merge_sums(const gyre_reach *reach, gyre_dtype from,
                     const gyre_plane *a_o, const gyre_plane *a_lse,
                     const gyre_plane *b_o, const gyre_plane *b_lse,
                     gyre_dtype sum)
{
    for (uint32_t b = 0; b < reach->batch; b++)
        for (uint32_t h = reach->h0; h < reach->h1; h++)
            for (uint32_t r = 0; r < reach->count; r++)
                for (uint64_t i = 0; i < reach->rows[r].length; i++) {
                    uint64_t at = reach->rows[r].from + i;
                    uint64_t to = reach->rows[r].to + i;
                    char *l = gyre_row_at(b_lse, b, h, to);
                    gyre_weights w = gyre_merge_weights(
                        load(sum, gyre_row_at(a_lse, b, h, at)), load(sum, l));

                    merge_row(reach->dim, from, gyre_row_at(a_o, b, h, at),
                              gyre_row_at(b_o, b, h, to), sum, &w);
                    if (sum == GYRE_F64)
                        *(double *)(void *)l = w.lse;
                    else
                        *(float *)(void *)l = (float)w.lse;
                }
}
