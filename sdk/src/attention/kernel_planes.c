/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise work on planes: identities, sums, casts, delta. */
#include "config.h"

#include "attention/kernel_inner.h"

#include <string.h>

enum { PART = 256 }; /* elements at a time */

/* Calls body for each row with its place in a (`from`) and in b (`to`). */
typedef void row_body(void *state, char *const at[3]);
static void each_row(const gyre_reach *reach, const gyre_plane *a,
                     const gyre_plane *a2, const gyre_plane *b, row_body *body,
                     void *state)
{
    for (uint32_t s = 0; s < reach->batch; s++)
        for (uint32_t h = reach->h0; h < reach->h1; h++)
            for (uint32_t r = 0; r < reach->count; r++)
                for (uint64_t i = 0; i < reach->rows[r].length; i++) {
                    uint64_t from = reach->rows[r].from + i;
                    char *at[3] = {NULL, NULL, NULL};

                    if (a != NULL)
                        at[0] = gyre_row_at(a, s, h, from);
                    if (a2 != NULL)
                        at[1] = gyre_row_at(a2, s, h, from);
                    at[2] = gyre_row_at(b, s, h, reach->rows[r].to + i);
                    body(state, at);
                }
}

typedef struct cast {
    uint32_t dim;
    gyre_dtype from, to;
    double value;
} cast;

static void fill_row(void *state, char *const at[3])
{
    const cast *c = state;
    float value = (float)c->value;
    size_t bytes = gyre_dtype_bytes(c->to);

    if (c->to == GYRE_F64)
        for (uint32_t d = 0; d < c->dim; d++)
            ((double *)(void *)at[2])[d] = c->value;
    else if (c->to == GYRE_F32)
        for (uint32_t d = 0; d < c->dim; d++)
            ((float *)(void *)at[2])[d] = value;
    else
        for (uint32_t d = 0; d < c->dim; d++)
            gyre_from_f32(c->to, &value, at[2] + d * bytes, 1);
}

void gyre_identity(const gyre_reach *reach, gyre_dtype dtype, double value,
                   const gyre_plane *plane)
{
    cast c = {reach->dim, dtype, dtype, value};

    each_row(reach, NULL, NULL, plane, fill_row, &c);
}

/* ---- sums -------------------------------------------------------------- */

static void add_part_f64(const cast *c, const char *a, double *b, uint32_t n)
{
    float part[PART];

    if (c->from == GYRE_F64) {
        for (uint32_t d = 0; d < n; d++)
            b[d] += ((const double *)(const void *)a)[d];
        return;
    }
    gyre_to_f32(c->from, a, 1, part, n);
    for (uint32_t d = 0; d < n; d++)
        b[d] += (double)part[d];
}

/* Into f32 or narrower: in f32, rounded once. */
static void add_part_f32(const cast *c, const char *a, char *b, uint32_t n)
{
    float x[PART], y[PART];

    gyre_to_f32(c->from, a, 1, x, n);
    gyre_to_f32(c->to, b, 1, y, n);
    for (uint32_t d = 0; d < n; d++)
        y[d] += x[d];
    gyre_from_f32(c->to, y, b, n);
}

static void add_row(void *state, char *const at[3])
{
    const cast *c = state;
    size_t a = gyre_dtype_bytes(c->from), b = gyre_dtype_bytes(c->to);

    for (uint32_t d = 0; d < c->dim; d += PART) {
        uint32_t n = c->dim - d < PART ? c->dim - d : PART;

        if (c->to == GYRE_F64)
            add_part_f64(c, at[0] + d * a, (double *)(void *)at[2] + d, n);
        else
            add_part_f32(c, at[0] + d * a, at[2] + d * b, n);
    }
}

void gyre_add_planes(const gyre_reach *reach, gyre_dtype from,
                     const gyre_plane *a, gyre_dtype to, const gyre_plane *b)
{
    cast c = {reach->dim, from, to, 0.0};

    each_row(reach, a, NULL, b, add_row, &c);
}

/* ---- casts ------------------------------------------------------------- */

/* f64 to bf16 or f16 through f32 rounds twice unless the first rounding is to
 * odd: the last bit of the f32 then remembers that something was cut. */
static float round_to_odd(double x)
{
    float f = (float)x;
    uint32_t bits;

    if ((double)f == x || x != x || f - f != 0.0f)
        return f;
    memcpy(&bits, &f, 4);
    if ((double)f > x ? x > 0.0 : x < 0.0) /* magnitude was rounded up */
        bits--;
    bits |= 1;
    memcpy(&f, &bits, 4);
    return f;
}

static void convert_part(const cast *c, const char *a, char *b, uint32_t n)
{
    float part[PART];

    if (c->from == GYRE_F64) {
        const double *x = (const double *)(const void *)a;

        for (uint32_t d = 0; d < n; d++)
            part[d] = c->to == GYRE_F32 ? (float)x[d] : round_to_odd(x[d]);
    } else {
        gyre_to_f32(c->from, a, 1, part, n);
    }
    if (c->to == GYRE_F64)
        for (uint32_t d = 0; d < n; d++)
            ((double *)(void *)b)[d] = (double)part[d];
    else
        gyre_from_f32(c->to, part, b, n);
}

static void convert_row(void *state, char *const at[3])
{
    const cast *c = state;
    size_t a = gyre_dtype_bytes(c->from), b = gyre_dtype_bytes(c->to);

    if (c->from == c->to) {
        memcpy(at[2], at[0], c->dim * a);
        return;
    }
    for (uint32_t d = 0; d < c->dim; d += PART) {
        uint32_t n = c->dim - d < PART ? c->dim - d : PART;

        convert_part(c, at[0] + d * a, at[2] + d * b, n);
    }
}

void gyre_convert(const gyre_reach *reach, gyre_dtype from, const gyre_plane *a,
                  gyre_dtype to, const gyre_plane *b)
{
    cast c = {reach->dim, from, to, 0.0};

    each_row(reach, a, NULL, b, convert_row, &c);
}

/* ---- delta ------------------------------------------------------------- */

static double dot_f64(const double *a, const double *b, uint32_t n)
{
    double sum = 0.0;

    for (uint32_t d = 0; d < n; d++)
        sum += a[d] * b[d];
    return sum;
}

static float dot_f32(gyre_dtype dtype, const char *a, const char *b, uint32_t n)
{
    float lanes[16] = {0.0f}, x[PART], y[PART];
    size_t bytes = gyre_dtype_bytes(dtype);

    for (uint32_t d = 0; d < n; d += PART) {
        uint32_t part = n - d < PART ? n - d : PART;

        gyre_to_f32(dtype, a + d * bytes, 1, x, part);
        gyre_to_f32(dtype, b + d * bytes, 1, y, part);
        for (uint32_t i = 0; i < part; i++)
            lanes[i % 16] += x[i] * y[i];
    }
    for (uint32_t half = 8; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

static void delta_row(void *state, char *const at[3])
{
    const cast *c = state;

    if (c->to == GYRE_F64 && c->from == GYRE_F64)
        *(double *)(void *)at[2] =
            dot_f64((const void *)at[0], (const void *)at[1], c->dim);
    else if (c->to == GYRE_F64)
        *(double *)(void *)at[2] =
            (double)dot_f32(c->from, at[0], at[1], c->dim);
    else
        *(float *)(void *)at[2] = dot_f32(c->from, at[0], at[1], c->dim);
}

void gyre_delta(const gyre_reach *reach, gyre_dtype dtype, const gyre_plane *o,
                const gyre_plane *d_o, gyre_dtype stat, const gyre_plane *delta)
{
    cast c = {reach->dim, dtype, stat, 0.0};

    each_row(reach, o, d_o, delta, delta_row, &c);
}
