/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_attention.c - causal attention of one head over one sequence, forward
 * and backward.
 *
 * Query rows are taken GPT_QUERY_BLOCK at a time against the keys up to the
 * last of them. Only the logarithm of each row's softmax denominator is
 * kept; the backward pass computes the probabilities again from it (Dao et
 * al., arXiv:2205.14135, section 3.1), so memory stays linear in the length.
 *
 * Scratch of one worker:
 *   score  [GPT_QUERY_BLOCK][score_ld]   S, then P
 *   dscore [GPT_QUERY_BLOCK][score_ld]   dP, then dS
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_internal.h"
#include "gpt_math.h"

#include <cblas.h>
#include <math.h>

/* Row of `keys` scores, the first n of which are visible; returns the log
 * of the sum of their exponentials. */
GPT_VECTOR
static float softmax_row(float *s, size_t n, size_t keys)
{
    float largest = s[0], sum = 0.0f;

#pragma omp simd reduction(max : largest)
    for (size_t i = 0; i < n; i++)
        largest = s[i] > largest ? s[i] : largest;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) {
        s[i] = gpt_expf(s[i] - largest);
        sum += s[i];
    }
    const float inverse = 1.0f / sum;

    for (size_t i = 0; i < n; i++)
        s[i] *= inverse;
    for (size_t i = n; i < keys; i++)
        s[i] = 0.0f;
    return largest + logf(sum);
}

/* s becomes P, d becomes dS = P (dP - delta). */
GPT_VECTOR
static void softmax_row_backward(float *s, float *d, float lse, float delta,
                                 size_t n, size_t keys)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        s[i] = gpt_expf(s[i] - lse);
        d[i] = s[i] * (d[i] - delta);
    }
    for (size_t i = n; i < keys; i++)
        s[i] = d[i] = 0.0f;
}

GPT_VECTOR
static float dot(const float *a, const float *b, size_t n)
{
    float sum = 0.0f;

#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static float score_scale(const gpt_head *h)
{
    return 1.0f / sqrtf((float)h->dim);
}

/* score[r][key] = scale * q_row . k_key */
static void scores(const gpt_head *h, float *score, size_t row, size_t rows,
                   size_t keys)
{
    const int stride = (int)(3 * h->width);

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)keys,
                (int)h->dim, score_scale(h), h->q + row * 3 * h->width, stride,
                h->k, stride, 0.0f, score, (int)h->score_ld);
}

void gpt_attention(const gpt_head *h, size_t q0, size_t q1, float *scratch)
{
    for (size_t r0 = q0; r0 < q1; r0 += GPT_QUERY_BLOCK) {
        size_t r1 = q1 - r0 < GPT_QUERY_BLOCK ? q1 : r0 + GPT_QUERY_BLOCK;

        scores(h, scratch, r0, r1 - r0, r1);
        for (size_t r = r0; r < r1; r++)
            h->lse[r] =
                softmax_row(scratch + (r - r0) * h->score_ld, r + 1, r1);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)(r1 - r0),
                    (int)h->dim, (int)r1, 1.0f, scratch, (int)h->score_ld, h->v,
                    (int)(3 * h->width), 0.0f, h->out + r0 * h->width,
                    (int)h->width);
    }
}

/*
 * Query blocks from the last to the first: the last sees every key and
 * therefore sets dk and dv (beta 0), the others add to them.
 */
void gpt_attention_backward(const gpt_head *h, const float *dout, float *dq,
                            float *dk, float *dv, size_t length, float *scratch)
{
    const int ld = (int)h->score_ld, stride = (int)(3 * h->width);
    const int width = (int)h->width, dim = (int)h->dim;
    const float scale = score_scale(h);
    const size_t blocks = (length + GPT_QUERY_BLOCK - 1) / GPT_QUERY_BLOCK;
    float *score = scratch;
    float *dscore = scratch + GPT_QUERY_BLOCK * h->score_ld;

    for (size_t block = blocks; block-- > 0;) {
        const size_t r0 = block * GPT_QUERY_BLOCK;
        const size_t r1 =
            length - r0 < GPT_QUERY_BLOCK ? length : r0 + GPT_QUERY_BLOCK;
        const int rows = (int)(r1 - r0), keys = (int)r1;
        const float beta = block + 1 == blocks ? 0.0f : 1.0f;
        const float *d = dout + r0 * h->width;

        scores(h, score, r0, r1 - r0, r1);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, keys, dim,
                    1.0f, d, width, h->v, stride, 0.0f, dscore, ld);
        for (size_t r = r0; r < r1; r++) {
            /* sum_j P_j dP_j = out . dout */
            float delta =
                dot(h->out + r * h->width, dout + r * h->width, h->dim);

            softmax_row_backward(score + (r - r0) * h->score_ld,
                                 dscore + (r - r0) * h->score_ld, h->lse[r],
                                 delta, r + 1, r1);
        }
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, dim, keys,
                    scale, dscore, ld, h->k, stride, 0.0f,
                    dq + r0 * 3 * h->width, stride);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, keys, dim, rows,
                    scale, dscore, ld, h->q + r0 * 3 * h->width, stride, beta,
                    dk, stride);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, keys, dim, rows,
                    1.0f, score, ld, d, width, beta, dv, stride);
    }
}
