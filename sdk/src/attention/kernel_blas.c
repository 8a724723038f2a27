/* SPDX-License-Identifier: Apache-2.0 */
/* Products by the serial BLAS, and the loops that stand in for it. */
#include "config.h"

#include "attention/kernel_blas.h"

#include "attention/kernel_library.h"

#include <string.h>

enum { ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112 };

const char *gyre_multiply_name(void)
{
    return gyre_blas_name();
}

/* ---- loops ------------------------------------------------------------- */

/* A sum along contiguous elements of both, in 16 lanes. */
static float dot(const float *a, const float *b, uint32_t n)
{
    float lanes[16] = {0.0f};
    uint32_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (uint32_t j = 0; j < 16; j++)
            lanes[j] += a[i + j] * b[i + j];
    for (uint32_t j = 0; i < n; i++, j++)
        lanes[j] += a[i] * b[i];
    for (uint32_t half = 8; half > 0; half /= 2)
        for (uint32_t j = 0; j < half; j++)
            lanes[j] += lanes[j + half];
    return lanes[0];
}

static void row_by_dots(const gyre_product *p, uint32_t i, float *c)
{
    for (uint32_t j = 0; j < p->n; j++)
        c[j] += p->alpha * dot(p->a + i * p->lda, p->b + j * p->ldb, p->k);
}

static void row_by_rows(const gyre_product *p, uint32_t i, float *c)
{
    for (uint32_t l = 0; l < p->k; l++) {
        float x = p->a_transposed ? p->a[l * p->lda + i] : p->a[i * p->lda + l];
        const float *b = p->b + l * p->ldb;

        x *= p->alpha;
        if (x == 0.0f)
            continue;
        for (uint32_t j = 0; j < p->n; j++)
            c[j] += x * b[j];
    }
}

/* A transposed and B transposed together are never asked for. */
void gyre_multiply_plain(const gyre_product *p)
{
    for (uint32_t i = 0; i < p->m; i++) {
        float *c = p->c + i * p->ldc;

        /* beta = 0 forgets even a NaN. */
        for (uint32_t j = 0; j < p->n; j++)
            c[j] = p->beta == 0.0f ? 0.0f : p->beta * c[j];
        if (p->b_transposed)
            row_by_dots(p, i, c);
        else
            row_by_rows(p, i, c);
    }
}

/* Is there an infinity or NaN?  Their exponent is all ones. */
static bool finite_rows(const float *x, size_t ld, uint32_t rows, uint32_t n)
{
    uint32_t bad = 0;

    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < n; j++) {
            uint32_t bits;

            memcpy(&bits, &x[i * ld + j], sizeof(bits));
            bad |= (bits & 0x7f800000u) == 0x7f800000u;
        }
    return bad == 0;
}

void gyre_multiply_masked(const gyre_product *p)
{
    if (finite_rows(p->b, p->ldb, p->k, p->n)) {
        gyre_multiply(p);
        return;
    }
    for (uint32_t i = 0; i < p->m; i++) {
        float *c = p->c + i * p->ldc;

        for (uint32_t j = 0; j < p->n; j++)
            c[j] = p->beta == 0.0f ? 0.0f : p->beta * c[j];
        row_by_rows(p, i, c);
    }
}

void gyre_multiply(const gyre_product *p)
{
    gyre_sgemm *sgemm = NULL;
    if (p->m == 0 || p->n == 0)
        return;
    gyre_blas_copy *copy = gyre_blas_take(&sgemm);
    if (copy == NULL) {
        gyre_multiply_plain(p);
        return;
    }
    sgemm(ROW_MAJOR, p->a_transposed ? TRANSPOSED : AS_IT_IS,
          p->b_transposed ? TRANSPOSED : AS_IT_IS, (int)p->m, (int)p->n,
          (int)p->k, p->alpha, p->a, (int)p->lda, p->b, (int)p->ldb, p->beta,
          p->c, (int)p->ldc);
    gyre_blas_give(copy);
}
