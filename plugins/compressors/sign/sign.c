/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled sign (Karimireddy et al., "Error feedback fixes SignSGD", 2019): each
 * element becomes its sign times the block's mean magnitude.  sign(0) is +1.
 *
 * The mean is a sum in 16 double lanes by index mod 16, folded 8-4-2-1, divided
 * by the count in double and rounded once to f32: the same on every machine.
 */
#define GY_COMPRESSOR
#define GY_PARAMETERS(P)                                \
    P(block, GYRE_STRUCTURAL, GYRE_INT(1024, 32, 1024), \
      "elements of a scale: a power of two, 32 to 1024")
#include <gyre/plugin.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { LANES = 16 };

static size_t sign_bytes(const double *values, size_t n)
{
    size_t block = (size_t)GY_VALUES_(values)->block;

    return 4 * ((n + block - 1) / block) + gy_round4((n + 7) / 8);
}

/* Half of the lanes: as vectors they stay in registers. */
typedef float floats __attribute__((vector_size(32)));
typedef double doubles __attribute__((vector_size(64)));

GY_INLINE_ float mean_of(const float *x, size_t n)
{
    doubles sum[2] = {{0}};
    double lane[LANES];
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (size_t h = 0; h < 2; h++) {
            floats part;

            __builtin_memcpy(&part, x + i + h * LANES / 2, sizeof(part));
            for (size_t l = 0; l < LANES / 2; l++)
                part[l] = gy_abs(part[l]);
            sum[h] += __builtin_convertvector(part, doubles);
        }
    __builtin_memcpy(lane, sum, sizeof(lane));
    for (size_t l = 0; i + l < n; l++)
        lane[l] += (double)gy_abs(x[i + l]);
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return (float)(lane[0] / (double)n);
}

/* Eight signs from eight floats; those beyond n are 0. */
GY_INLINE_ uint8_t signs_of(const float *x, size_t n)
{
    uint32_t bits = 0;

    for (size_t b = 0; b < 8 && b < n; b++)
        bits |= (uint32_t)(x[b] < 0.0f) << b;
    return (uint8_t)bits;
}

#if defined(__x86_64__)
GY_AVX2_ static void signs_avx2(const float *x, size_t n, uint8_t *bits)
{
    const __m256 zero = _mm256_setzero_ps();
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        bits[i / 8] = (uint8_t)_mm256_movemask_ps(
            _mm256_cmp_ps(_mm256_loadu_ps(x + i), zero, _CMP_LT_OQ));
    if (i < n)
        bits[i / 8] = signs_of(x + i, n - i);
}
#endif

GY_INLINE_ void put_signs(const float *x, size_t n, uint8_t *bits, int isa)
{
#if defined(__x86_64__)
    if (isa != GYRE_LOOP_SCALAR) {
        signs_avx2(x, n, bits);
        return;
    }
#endif
    (void)isa;
    for (size_t i = 0; i < n; i += 8)
        bits[i / 8] = signs_of(x + i, n - i);
}

GY_INLINE_ size_t compress(const gyre_compress *job, int isa)
{
    size_t block = (size_t)GY_VALUES_(job->values)->block, n = job->n;
    size_t scales = 4 * ((n + block - 1) / block);

    for (size_t at = 0; at < n; at += block) {
        size_t end = n - at < block ? n : at + block;
        float s = mean_of(job->x + at, end - at);

        gy_put32(job->payload + at / block * 4, gy_to_bits(s));
        for (size_t i = at; i < end; i++)
            job->kept[i] = job->x[i] < 0.0f ? -s : s;
    }
    put_signs(job->x, n, job->payload + scales, isa);
    return gy_pad4(job->payload, scales + (n + 7) / 8);
}

GY_INLINE_ int decompress(const gy_values *v, size_t n, const uint8_t *payload,
                          size_t bytes, float *out, int isa)
{
    size_t block = (size_t)v->block, scales = 4 * ((n + block - 1) / block);
    size_t used = scales + (n + 7) / 8;
    const uint8_t *bits = payload + scales;

    (void)isa;
    if (bytes != gy_round4(used) || !gy_padded4(payload, used) ||
        (n % 8 != 0 && bits[n / 8] >> (n % 8) != 0))
        return 1;
    for (size_t at = 0; at < n; at += block) {
        size_t end = n - at < block ? n : at + block;
        uint32_t s = gy_get32(payload + at / block * 4);

        if (s >= 0x7f800000u)
            return 1;
        for (size_t i = at; i < end; i++)
            out[i] = gy_bits(s | (bits[i / 8] >> i % 8 & 1u) << 31);
    }
    return 0;
}

static const char *sign_check(const double *values)
{
    uint32_t block = (uint32_t)GY_VALUES_(values)->block;

    if ((block & (block - 1)) != 0)
        return "block must be a power of two";
    return NULL;
}

#define GY_NAMES(N) N(GY_BLOCK)
#include "sign.kernel"
#include "sign.encode"

static void sign_constants(const gy_values *v, int32_t *out)
{
    out[0] = (int32_t)v->block;
}

GYRE_CODEC_TEXTS(sign_constants, gy_no_table, NULL)
GYRE_CODEC_LOOPS(compress, decompress, gy_no_survey)

static const gyre_compressor sign = {sizeof(gyre_compressor),
                                     1,
                                     0,
                                     0,
                                     0,
                                     gy_codec_loops_,
                                     GYRE_CODEC_LOOP_COUNT,
                                     0,
                                     sign_check,
                                     NULL,
                                     sign_bytes,
                                     NULL,
                                     NULL};

GYRE_COMPRESSOR(sign, "1.0.0", "signs, scaled by the block's mean magnitude",
                "Apache-2.0",
                GYRE_CLAIM_DETERMINISTIC | GYRE_CLAIM_CHUNK_INVARIANT, &sign)
GYRE_MODULE(sign, &gyre_plugin_sign)
