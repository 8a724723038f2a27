/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_layers.c - what the gpt does row by row or column by column outside
 * the matrix products: embedding, LayerNorm, GELU, biases, cross-entropy.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_internal.h"
#include "gpt_math.h"

#include <math.h>

#define EPSILON 1e-5f
/* gelu(x) = x * sigmoid(2 * ROOT * (x + CUBIC * x^3)), Hendrycks and Gimpel,
 * arXiv:1606.08415, the tanh form. */
#define TWO_ROOT 1.5957691216057308f /* 2 * sqrt(2 / pi) */
#define CUBIC 0.044715f
/* Long columns are summed in pieces, which keeps the rounding error that of
 * a sum of sqrt-like length. */
enum { COLUMN_CHUNK = 64, ROW_CHUNK = 64 };

GPT_VECTOR
void gpt_embed(float *x, const float *wte, const float *wpe,
               const int32_t *tokens, size_t row0, size_t row1, size_t length,
               size_t width)
{
    for (size_t r = row0; r < row1; r++) {
        const float *token = wte + (size_t)tokens[r] * width;
        const float *position = wpe + r % length * width;

        for (size_t c = 0; c < width; c++)
            x[r * width + c] = token[c] + position[c];
    }
}

GPT_VECTOR
void gpt_layernorm(float *y, float *mean, float *rstd, const float *x,
                   const float *w, const float *b, size_t rows, size_t width)
{
    const float inverse = 1.0f / (float)width;

    for (size_t r = 0; r < rows; r++, x += width, y += width) {
        float sum = 0.0f, square = 0.0f;

#pragma omp simd reduction(+ : sum)
        for (size_t c = 0; c < width; c++)
            sum += x[c];
        const float m = sum * inverse;
        /* Two passes: the difference of squares would cancel. */
#pragma omp simd reduction(+ : square)
        for (size_t c = 0; c < width; c++)
            square += (x[c] - m) * (x[c] - m);
        const float s = 1.0f / sqrtf(square * inverse + EPSILON);
#pragma omp simd
        for (size_t c = 0; c < width; c++)
            y[c] = (x[c] - m) * s * w[c] + b[c];
        mean[r] = m;
        rstd[r] = s;
    }
}

/*
 * With n = (x - mean) rstd and g = dy w:
 * dx = rstd (g - mean(g) - n mean(g n)).
 */
GPT_VECTOR
void gpt_layernorm_backward(float *dx, const float *carry, const float *dy,
                            const float *x, const float *w, const float *mean,
                            const float *rstd, size_t rows, size_t width)
{
    const float inverse = 1.0f / (float)width;

    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * width, *dyr = dy + r * width;
        float *dxr = dx + r * width;
        const float m = mean[r], s = rstd[r];
        float sum = 0.0f, product = 0.0f;

#pragma omp simd reduction(+ : sum, product)
        for (size_t c = 0; c < width; c++) {
            float g = dyr[c] * w[c];

            sum += g;
            product += g * ((xr[c] - m) * s);
        }
        sum *= inverse;
        product *= inverse;
        if (carry) {
            const float *cr = carry + r * width;
#pragma omp simd
            for (size_t c = 0; c < width; c++)
                dxr[c] = cr[c] +
                         s * (dyr[c] * w[c] - sum - (xr[c] - m) * s * product);
        } else {
#pragma omp simd
            for (size_t c = 0; c < width; c++)
                dxr[c] = s * (dyr[c] * w[c] - sum - (xr[c] - m) * s * product);
        }
    }
}

GPT_VECTOR
void gpt_layernorm_columns(float *dw, float *db, const float *dy,
                           const float *x, const float *mean, const float *rstd,
                           size_t rows, size_t width, size_t c0, size_t c1)
{
    for (size_t c = c0; c < c1; c++)
        dw[c] = db[c] = 0.0f;
    for (size_t r0 = 0; r0 < rows; r0 += ROW_CHUNK) {
        size_t r1 = rows - r0 < ROW_CHUNK ? rows : r0 + ROW_CHUNK;

        for (size_t k = c0; k < c1; k += COLUMN_CHUNK) {
            size_t n = c1 - k < COLUMN_CHUNK ? c1 - k : COLUMN_CHUNK;
            float w[COLUMN_CHUNK] = {0}, b[COLUMN_CHUNK] = {0};

            for (size_t r = r0; r < r1; r++) {
                const float *xr = x + r * width + k;
                const float *dyr = dy + r * width + k;
                const float m = mean[r], s = rstd[r];
#pragma omp simd
                for (size_t c = 0; c < n; c++) {
                    w[c] += dyr[c] * ((xr[c] - m) * s);
                    b[c] += dyr[c];
                }
            }
            for (size_t c = 0; c < n; c++) {
                dw[k + c] += w[c];
                db[k + c] += b[c];
            }
        }
    }
}

GPT_VECTOR
void gpt_fill_bias(float *out, const float *carry, const float *bias,
                   size_t rows, size_t width)
{
    for (size_t r = 0; r < rows; r++, out += width) {
        if (carry) {
            for (size_t c = 0; c < width; c++)
                out[c] = carry[c] + bias[c];
            carry += width;
        } else {
            memcpy(out, bias, width * sizeof *out);
        }
    }
}

GPT_VECTOR
void gpt_column_sums(float *out, const float *x, size_t rows, size_t width,
                     size_t c0, size_t c1)
{
    for (size_t c = c0; c < c1; c++)
        out[c] = 0.0f;
    for (size_t r0 = 0; r0 < rows; r0 += ROW_CHUNK) {
        size_t r1 = rows - r0 < ROW_CHUNK ? rows : r0 + ROW_CHUNK;

        for (size_t k = c0; k < c1; k += COLUMN_CHUNK) {
            size_t n = c1 - k < COLUMN_CHUNK ? c1 - k : COLUMN_CHUNK;
            float sum[COLUMN_CHUNK] = {0};

            for (size_t r = r0; r < r1; r++) {
                const float *xr = x + r * width + k;
#pragma omp simd
                for (size_t c = 0; c < n; c++)
                    sum[c] += xr[c];
            }
            for (size_t c = 0; c < n; c++)
                out[k + c] += sum[c];
        }
    }
}

GPT_VECTOR
void gpt_gelu(float *y, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float v = x[i];
        float e = gpt_expf(-TWO_ROOT * (v + CUBIC * v * v * v));

        y[i] = v / (1.0f + e);
    }
}

/*
 * With s = sigmoid(u), 1 - s = e s for e = exp(-u), which does not cancel:
 * gelu'(x) = s + x s (1 - s) u'(x).
 */
GPT_VECTOR
void gpt_gelu_backward(float *dy_to_dx, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float v = x[i];
        float e = gpt_expf(-TWO_ROOT * (v + CUBIC * v * v * v));
        float s = 1.0f / (1.0f + e);
        float slope = TWO_ROOT * (1.0f + 3.0f * CUBIC * v * v);

        dy_to_dx[i] *= s + v * (s * (e * s)) * slope;
    }
}

GPT_VECTOR
double gpt_cross_entropy(float *logits, int32_t target, bool gradient,
                         float scale)
{
    float largest = logits[0], sum = 0.0f;
    const float wanted = logits[target];

#pragma omp simd reduction(max : largest)
    for (size_t i = 0; i < GPT_VOCABULARY; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    if (!gradient) {
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < GPT_VOCABULARY; i++)
            sum += gpt_expf(logits[i] - largest);
        return log((double)sum) + ((double)largest - (double)wanted);
    }
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < GPT_VOCABULARY; i++) {
        logits[i] = gpt_expf(logits[i] - largest);
        sum += logits[i];
    }
    const float factor = scale / sum;
    const float kept = logits[target];

    for (size_t i = 0; i < GPT_VOCABULARY; i++)
        logits[i] *= factor;
    /* p - 1 as -(sum - e) / sum: exact where p is close to 1. */
    logits[target] = (kept - sum) * factor;
    return log((double)sum) + ((double)largest - (double)wanted);
}
