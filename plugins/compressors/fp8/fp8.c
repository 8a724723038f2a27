/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit floating point with a power-of-two scale per block: e4m3 (largest 448,
 * no infinity) and e5m2 (largest 57,344), as in Micikevicius et al., "FP8
 * formats for deep learning" (2022).
 *
 * The scale is the smallest at which the block's largest value is in range, so
 * nothing saturates but what lies beyond the largest value at the largest scale
 * (448 2^119, 57,344 2^112).  Codes for infinity and NaN are never written.
 * Rounding is to the nearest, even for ties; x minus its rounded value is
 * exact, for both are whole multiples of one power of two and neighbours are
 * within a factor of two.
 */
#define GY_COMPRESSOR
#define GY_PARAMETERS(P)                                          \
    P(format, GYRE_STRUCTURAL, GYRE_CHOICE(0, "e4m3|e5m2"),       \
      "four bits of exponent and three of mantissa, or five and " \
      "two")                                                      \
    P(block, GYRE_STRUCTURAL, GYRE_INT(256, 32, 1024),            \
      "elements of a scale: a power of two, 32 to 1024")
#include <gyre/plugin.h>

enum { E4M3, E5M2 };
enum { CODES_E4M3 = 0x7f, CODES_E5M2 = 0x7c };

static const gy_mini e4m3 = {3, -6, 448.0f, -126, 119};
static const gy_mini e5m2 = {2, -14, 57344.0f, -126, 112};

static size_t fp8_bytes(const double *values, size_t n)
{
    size_t block = (size_t)GY_VALUES_(values)->block;

    return gy_round4(n + (n + block - 1) / block);
}

GY_INLINE_ int round_block(const gy_mini mini, const float *x, size_t n,
                           uint8_t *code, float *kept)
{
    int e = gy_mini_scale(mini, gy_largest(x, n));
    float down = gy_power(-e), up = gy_power(e);

    GY_NO_ALIAS_
    for (size_t i = 0; i < n; i++) {
        float y = gy_mini_round(mini, gy_abs(x[i]) * down);
        uint32_t sign = gy_to_bits(x[i]) >> 24 & 0x80u;

        code[i] = (uint8_t)(gy_mini_code(mini, y) | sign);
        y = y * up;
        kept[i] = gy_bits(gy_to_bits(y) | sign << 24);
    }
    return e;
}

GY_INLINE_ size_t compress(const gyre_compress *job, int isa)
{
    const gy_values *v = GY_VALUES_(job->values);
    size_t block = (size_t)v->block, n = job->n;
    uint8_t *scale = job->payload + n;

    (void)isa;
    for (size_t at = 0; at < n; at += block) {
        size_t part = n - at < block ? n - at : block;
        int e = (int)v->format == E4M3
                    ? round_block(e4m3, job->x + at, part, job->payload + at,
                                  job->kept + at)
                    : round_block(e5m2, job->x + at, part, job->payload + at,
                                  job->kept + at);

        *scale++ = (uint8_t)(int8_t)e;
    }
    return gy_pad4(job->payload, n + (n + block - 1) / block);
}

GY_INLINE_ int read_block(const gy_mini mini, uint32_t codes, uint8_t scale,
                          const uint8_t *code, size_t n, float *out)
{
    int e = (int8_t)scale;
    int bad = e < mini.scale_low || e > mini.scale_high;
    float up;

    if (bad)
        return 1;
    up = gy_power(e);
    for (size_t i = 0; i < n; i++) {
        uint32_t c = code[i] & 127u;
        float y = gy_mini_value(mini, c) * up;

        bad |= c >= codes;
        out[i] = gy_bits(gy_to_bits(y) | (code[i] & 128u) << 24);
    }
    return bad;
}

GY_INLINE_ int decompress(const gy_values *v, size_t n, const uint8_t *payload,
                          size_t bytes, float *out, int isa)
{
    size_t block = (size_t)v->block, used = n + (n + block - 1) / block;
    int bad = 0;

    (void)isa;
    if (bytes != gy_round4(used) || !gy_padded4(payload, used))
        return 1;
    for (size_t at = 0; at < n; at += block) {
        size_t part = n - at < block ? n - at : block;

        bad |= (int)v->format == E4M3
                   ? read_block(e4m3, CODES_E4M3, payload[n + at / block],
                                payload + at, part, out + at)
                   : read_block(e5m2, CODES_E5M2, payload[n + at / block],
                                payload + at, part, out + at);
    }
    return bad;
}

static const char *fp8_check(const double *values)
{
    uint32_t block = (uint32_t)GY_VALUES_(values)->block;

    if ((block & (block - 1)) != 0)
        return "block must be a power of two";
    return NULL;
}

#define GY_NAMES(N) N(GY_BLOCK) N(GY_E5M2)
#include "fp8.kernel"
#include "fp8.encode"

static void fp8_constants(const gy_values *v, int32_t *out)
{
    out[0] = (int32_t)v->block;
    out[1] = (int)v->format == E5M2;
}

/* Value of each code: (2^m + part) 2^(exponent + low - 1 - m) */
#define V_(exponent, part, m, low)                                       \
    ((exponent) == 0                                                     \
         ? (float)(part) / (float)(1 << ((m) - (low)))                   \
         : ((float)((1 << (m)) + (part)) * (float)(1ull << (exponent)) / \
            (float)(1ull << ((m) - (low) + 1))))
#define V4_(exponent)                                                          \
    V_(exponent, 0, 2, -14), V_(exponent, 1, 2, -14), V_(exponent, 2, 2, -14), \
        V_(exponent, 3, 2, -14),
#define V8_(exponent)                                                       \
    V_(exponent, 0, 3, -6), V_(exponent, 1, 3, -6), V_(exponent, 2, 3, -6), \
        V_(exponent, 3, 3, -6), V_(exponent, 4, 3, -6),                     \
        V_(exponent, 5, 3, -6), V_(exponent, 6, 3, -6),                     \
        V_(exponent, 7, 3, -6),
#define ALL8_(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define ALL16_(X) ALL8_(X) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
static const float values_e4m3[128] = {ALL16_(V8_)};
static const float values_e5m2[128] = {
    ALL16_(V4_) V4_(16) V4_(17) V4_(18) V4_(19) V4_(20) V4_(21) V4_(22) V4_(23)
        V4_(24) V4_(25) V4_(26) V4_(27) V4_(28) V4_(29) V4_(30) V4_(31)};

static const float *fp8_table(const gy_values *v, size_t *count)
{
    *count = 128;
    return (int)v->format == E4M3 ? values_e4m3 : values_e5m2;
}

GYRE_CODEC_TEXTS(fp8_constants, fp8_table, NULL)
GYRE_CODEC_LOOPS(compress, decompress, gy_no_survey)

static const gyre_compressor fp8 = {sizeof(gyre_compressor),
                                    1,
                                    0,
                                    0,
                                    0,
                                    gy_codec_loops_,
                                    GYRE_CODEC_LOOP_COUNT,
                                    0,
                                    fp8_check,
                                    NULL,
                                    fp8_bytes,
                                    NULL,
                                    NULL};

GYRE_COMPRESSOR(fp8, "1.0.0", "8-bit floating point, scaled by block",
                "Apache-2.0",
                GYRE_CLAIM_DETERMINISTIC | GYRE_CLAIM_CHUNK_INVARIANT, &fp8)
GYRE_MODULE(fp8, &gyre_plugin_fp8)
