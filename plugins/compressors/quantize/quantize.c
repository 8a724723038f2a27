/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block-wise quantisation to 8 or 4 bits (Dettmers et al., "8-bit optimizers
 * via block-wise quantization", 2022).
 *
 * linear: scale s = max|x| / L, L = 127 or 7; levels j s, j = -L..L.
 * dynamic: scale s = max|x|; levels +-table[m] s.  With b = 7 or 3 bits m, e
 *   leading zeros of m and the f bits behind its first one as k,
 *
 *       table[m] = 4^-e (1 + 3 (2k + 1) / 2^(f+1)) / 4,   table[0] = 0,
 *
 *   the last one 1: many levels near the top, few but some far below it.
 *
 * nearest: the level next to x, so that x - level is exact (Sterbenz: x is at
 *   most twice the level and at least half of it, for neighbours are within a
 *   factor of 3).  Below half of the smallest level x becomes 0: linear, since
 *   x / s then comes out as at most 1/2, which is rounded to even; dynamic, by
 *   a comparison of the very numbers.
 * stochastic: one of the two neighbours, with the chances that make the mean
 *   x, by 24 bits of gyre_hash.
 */
#define GY_COMPRESSOR
#define GY_PARAMETERS(P)                                                      \
    P(bits, GYRE_STRUCTURAL, GYRE_INT(8, 4, 8), "of an element: 8 or 4")      \
    P(map, GYRE_STRUCTURAL, GYRE_CHOICE(0, "linear|dynamic"),                 \
      "levels at even distances, or closer together near zero")               \
    P(rounding, GYRE_STRUCTURAL, GYRE_CHOICE(0, "nearest|stochastic"),        \
      "to the nearest level, or by chance to one of two with the right mean") \
    P(block, GYRE_STRUCTURAL, GYRE_INT(256, 32, 1024),                        \
      "elements of a scale: a power of two, 32 to 1024")
#include <gyre/plugin.h>

enum { MAP_LINEAR, MAP_DYNAMIC };
enum { NEAREST, STOCHASTIC };

/* ---- dynamic map ------------------------------------------------------ */

/* Level m of 2^b in binary: exact, at most nine significant bits. */
#define LZ_(m, b) (__builtin_clz(m) - (32 - (b)))
#define F_(m, b) ((b)-1 - LZ_(m, b))
#define K_(m, b) ((m) - (1 << F_(m, b)))
#define LEVEL_(m, b)                                                      \
    ((1.0f + 3.0f * (float)(2 * K_(m, b) + 1) / (float)(2 << F_(m, b))) / \
     (float)(4 << 2 * LZ_(m, b)))
#define L1_(m, b) LEVEL_(m, b),
#define L2_(m, b) L1_(m, b) L1_((m) + 1, b)
#define L4_(m, b) L2_(m, b) L2_((m) + 2, b)
#define L8_(m, b) L4_(m, b) L4_((m) + 4, b)
#define L16_(m, b) L8_(m, b) L8_((m) + 8, b)
#define L32_(m, b) L16_(m, b) L16_((m) + 16, b)

static const float dynamic8[128] = {
    0.0f,
    L1_(1, 7) L2_(2, 7) L4_(4, 7) L8_(8, 7) L16_(16, 7) L32_(32, 7) L32_(64, 7)
        L16_(96, 7) L8_(112, 7) L4_(120, 7) L2_(124, 7) L1_(126, 7) 1.0f};
static const float dynamic4[8] = {0.0f,
                                  L1_(1, 3) L2_(2, 3) L2_(4, 3) L1_(6, 3) 1.0f};

/* The same level by arithmetic, which a vector can do; bits = 7 or 3. */
GY_INLINE_ float level_of(int32_t m, int32_t bits)
{
    float whole = (float)m;
    uint32_t f = (gy_to_bits(whole) >> 23) - 127u;         /* m = 2^f + k */
    float part = whole * gy_bits((127u - f) << 23) - 1.0f; /* k / 2^f */
    float half = gy_bits((126u - f) << 23);
    float decade = gy_bits((uint32_t)(127 - 2 * (bits - (int32_t)f)) << 23);
    float level = (1.0f + 3.0f * (part + half)) * decade;

    level = m == (1 << bits) - 1 ? 1.0f : level;
    return m == 0 ? 0.0f : level;
}

/* The level at or below y, 0 <= y <= 1: the one whose cell of its decade y is
 * in, or the one before. */
GY_INLINE_ int32_t level_below(float y, int32_t bits)
{
    int32_t e = (126 - (int32_t)(gy_to_bits(y) >> 23)) >> 1;
    int32_t f, k, m;
    float cell;

    e = e < 0 ? 0 : e;
    e = e > bits - 1 ? bits - 1 : e;
    f = bits - 1 - e;
    /* 4^e y is in [1/4, 1); four times it, minus one, in [0, 3) */
    cell = (y * gy_bits((uint32_t)(129 + 2 * e) << 23) - 1.0f) *
           (gy_bits((uint32_t)(127 + f) << 23) * (1.0f / 3.0f));
    k = (int32_t)gy_max(cell, 0.0f);
    m = (1 << f) + k;
    m = m > (2 << f) - 1 ? (2 << f) - 1 : m;
    return level_of(m, bits) <= y ? m : m - 1;
}

/* ---- payload ---------------------------------------------------------- */

static size_t quantize_bytes(const double *values, size_t n)
{
    const gy_values *v = GY_VALUES_(values);
    size_t block = (size_t)v->block;
    size_t codes = (int)v->bits == 8 ? n : (n + 1) / 2;

    return 4 * ((n + block - 1) / block) + gy_round4(codes);
}

/* A scale s for which the largest level is finite. */
GY_INLINE_ float scale_of(uint32_t largest, float levels)
{
    float s = gy_bits(largest) / levels;

    if (s * levels > 3.40282346638528859812e+38f)
        s = gy_bits(gy_to_bits(s) - 1);
    return s;
}

/* 1 / s, for a product is several times as fast as a quotient; false where it
 * is not finite or s too coarse a number, and quotients are taken. */
GY_INLINE_ int inverse_of(float s, float *inverse)
{
    *inverse = 1.0f / s;
    return s >= 0x1p-126f;
}

/* Uniform in [0, 1), 24 bits. */
GY_INLINE_ float chance(const uint32_t *key, uint32_t counter)
{
    return (float)(int32_t)(gyre_hash(key[0], key[1], counter) >> 8) * 0x1p-24f;
}

/* The counter is the element's place in its tensor; its upper half goes into
 * the key, which a grain never straddles. */
GY_INLINE_ void key_of(const gyre_compress *job, uint32_t *key)
{
    key[0] = job->key[0];
    key[1] = job->key[1] ^ ((uint32_t)(job->index >> 32) * 0x9e3779b1u);
}

/* ---- rounding --------------------------------------------------------- */

/* Signed numbers of steps of one block; s > 0. */
GY_INLINE_ void round_linear(const float *x, size_t n, float s, float inverse,
                             const int fast, int32_t most, const uint32_t *key,
                             uint32_t counter, int8_t *code, float *kept)
{
    const float big = 12582912.0f; /* 1.5 2^23: rounds to whole numbers */
    const float limit = (float)most;

    GY_NO_ALIAS_
    for (size_t i = 0; i < n; i++) {
        float magnitude = gy_abs(x[i]);
        float t = gy_min(fast ? magnitude * inverse : magnitude / s, limit);
        float j = (t + big) - big;

        if (key != NULL) {
            float below = (float)(int32_t)t;

            j = below +
                (chance(key, counter + (uint32_t)i) < t - below ? 1.0f : 0.0f);
        }
        j = x[i] < 0.0f ? 0.0f - j : j;
        code[i] = (int8_t)(int32_t)j;
        kept[i] = j * s;
    }
}

GY_INLINE_ void round_dynamic(const float *x, size_t n, float s, float inverse,
                              const int fast, const int32_t bits,
                              const uint32_t *key, uint32_t counter,
                              int8_t *code, float *kept)
{
    const int32_t last = (1 << bits) - 1;
    const float least = level_of(1, bits) * s;

    GY_NO_ALIAS_
    for (size_t i = 0; i < n; i++) {
        float magnitude = gy_abs(x[i]);
        float y = gy_min(fast ? magnitude * inverse : magnitude / s, 1.0f);
        int32_t m = level_below(y, bits);
        float low = level_of(m, bits);
        float high = level_of(m < last ? m + 1 : last, bits);
        int32_t negative, up;

        if (key != NULL)
            up = chance(key, counter + (uint32_t)i) * (high - low) < y - low;
        else
            up = m == 0 ? magnitude + magnitude >= least : y - low >= high - y;
        m = up && m < last ? m + 1 : m;
        negative = x[i] < 0.0f && m > 0;
        low = level_of(m, bits) * s;
        kept[i] = negative ? -low : low;
        code[i] = (int8_t)(negative ? m | (last + 1) : m);
    }
}

/* round_linear to nearest by an inverse, without its tests: rounding is odd in
 * x; |x| inverse is at most L (1 + 2^-21), which is rounded to L; and the last
 * byte of t is the number of steps. */
GY_INLINE_ void round_nearest(const float *x, size_t n, float s, float inverse,
                              int8_t *code, float *kept)
{
    const float big = 12582912.0f;

    GY_NO_ALIAS_
    for (size_t i = 0; i < n; i++) {
        float t = x[i] * inverse + big;

        code[i] = (int8_t)(uint8_t)gy_to_bits(t);
        kept[i] = (t - big) * s;
    }
}

/* A loop for each set of constants: without tests it is one of vectors. */
GY_INLINE_ void round_by(const gy_values *v, const float *x, size_t n, float s,
                         float inverse, const int fast, const uint32_t *key,
                         uint32_t counter, int8_t *code, float *kept)
{
    const int wide = (int)v->bits == 8;

    if ((int)v->map == MAP_DYNAMIC) {
        if (wide && key != NULL)
            round_dynamic(x, n, s, inverse, fast, 7, key, counter, code, kept);
        else if (wide)
            round_dynamic(x, n, s, inverse, fast, 7, NULL, 0, code, kept);
        else
            round_dynamic(x, n, s, inverse, fast, 3, key, counter, code, kept);
    } else if (fast && key == NULL) {
        round_nearest(x, n, s, inverse, code, kept);
    } else if (key != NULL) {
        round_linear(x, n, s, inverse, fast, wide ? 127 : 7, key, counter, code,
                     kept);
    } else {
        round_linear(x, n, s, inverse, fast, wide ? 127 : 7, NULL, 0, code,
                     kept);
    }
}

GY_INLINE_ void round_block(const gy_values *v, const float *x, size_t n,
                            const uint32_t *key, uint32_t counter,
                            uint8_t *scale, int8_t *code, float *kept)
{
    const float most = (int)v->map == MAP_DYNAMIC ? 1.0f
                       : (int)v->bits == 8        ? 127.0f
                                                  : 7.0f;
    float s = scale_of(gy_largest(x, n), most), inverse;

    gy_put32(scale, gy_to_bits(s));
    if (s == 0.0f) {
        __builtin_memset(code, 0, n);
        __builtin_memset(kept, 0, n * sizeof(kept[0]));
        return;
    }
    if (inverse_of(s, &inverse))
        round_by(v, x, n, s, inverse, 1, key, counter, code, kept);
    else
        round_by(v, x, n, s, inverse, 0, key, counter, code, kept);
}

/* ---- the loops -------------------------------------------------------- */

GY_INLINE_ size_t compress(const gyre_compress *job, int isa)
{
    const gy_values *v = GY_VALUES_(job->values);
    size_t block = (size_t)v->block;
    size_t n = job->n, scales = 4 * ((n + block - 1) / block);
    uint8_t *codes = job->payload + scales;
    uint32_t key[2];
    int8_t code[GYRE_CODEC_GRAIN + 1];
    const int wide = (int)v->bits == 8;
    const uint32_t *random = (int)v->rounding == STOCHASTIC ? key : NULL;

    (void)isa;
    key_of(job, key);
    for (size_t at = 0; at < n; at += block)
        round_block(v, job->x + at, n - at < block ? n - at : block, random,
                    (uint32_t)(job->index + at), job->payload + at / block * 4,
                    wide ? (int8_t *)codes + at : code + at, job->kept + at);
    if (wide)
        return gy_pad4(job->payload, scales + n);
    code[n] = 0;
    for (size_t i = 0; i < n; i += 2)
        codes[i / 2] = (uint8_t)((code[i] & 15) | (code[i + 1] & 15) << 4);
    return gy_pad4(job->payload, scales + (n + 1) / 2);
}

/* Codes as bytes with the sign where it is for 8 bits: linear ones as numbers,
 * dynamic ones as sign and level.  Nonzero: one is never written. */
GY_INLINE_ int spread(const uint8_t *codes, size_t n, int wide, int dynamic,
                      int8_t *code)
{
    const int8_t never = dynamic ? (int8_t)-128 : wide ? -128 : -8;
    int bad = 0;

    if (wide) {
        __builtin_memcpy(code, codes, n);
    } else {
        for (size_t i = 0; i < n; i++) {
            uint32_t c = codes[i / 2] >> (i % 2 * 4) & 15u;

            code[i] = (int8_t)((c & 7u) |
                               ((c & 8u) != 0u ? dynamic ? 0x80u : 0xf8u : 0u));
        }
        bad = n % 2 == 1 && codes[n / 2] >> 4 != 0;
    }
    for (size_t i = 0; i < n; i++)
        bad |= code[i] == never;
    return bad;
}

GY_INLINE_ int decompress(const gy_values *v, size_t n, const uint8_t *payload,
                          size_t bytes, float *out, int isa)
{
    const int wide = (int)v->bits == 8;
    const int dynamic = (int)v->map == MAP_DYNAMIC;
    const float levels = dynamic ? 1.0f : wide ? 127.0f : 7.0f;
    const float *table = wide ? dynamic8 : dynamic4;
    size_t block = (size_t)v->block, scales = 4 * ((n + block - 1) / block);
    size_t used = scales + (wide ? n : (n + 1) / 2);
    int8_t code[GYRE_CODEC_GRAIN];

    (void)isa;
    if (bytes != gy_round4(used) || !gy_padded4(payload, used) ||
        spread(payload + scales, n, wide, dynamic, code))
        return 1;
    for (size_t at = 0; at < n; at += block) {
        size_t end = n - at < block ? n : at + block;
        uint32_t bits = gy_get32(payload + at / block * 4);
        float s = gy_bits(bits);

        if (bits >= 0x7f800000u || s * levels > 3.40282346638528859812e+38f)
            return 1;
        if (dynamic)
            for (size_t i = at; i < end; i++) {
                float level = table[code[i] & 127] * s;

                out[i] = code[i] < 0 ? -level : level;
            }
        else
            for (size_t i = at; i < end; i++)
                out[i] = (float)code[i] * s;
    }
    return 0;
}

/* ---- tables ----------------------------------------------------------- */

static const char *quantize_check(const double *values)
{
    const gy_values *v = GY_VALUES_(values);
    uint32_t block = (uint32_t)v->block;

    if ((int)v->bits != 8 && (int)v->bits != 4)
        return "bits must be 8 or 4";
    if ((block & (block - 1)) != 0)
        return "block must be a power of two";
    return NULL;
}

static uint32_t quantize_flags(const double *values)
{
    return (int)GY_VALUES_(values)->rounding == STOCHASTIC
               ? GYRE_CODEC_STOCHASTIC
               : 0u;
}

#define GY_NAMES(N) N(GY_BLOCK) N(GY_WIDE) N(GY_DYNAMIC) N(GY_STOCHASTIC)
#include "quantize.kernel"
#include "quantize.encode"

static void quantize_constants(const gy_values *v, int32_t *out)
{
    out[0] = (int32_t)v->block;
    out[1] = (int)v->bits == 8;
    out[2] = (int)v->map == MAP_DYNAMIC;
    out[3] = (int)v->rounding == STOCHASTIC;
}

static const float *quantize_table(const gy_values *v, size_t *count)
{
    *count = (int)v->bits == 8 ? 128 : 8;
    return (int)v->bits == 8 ? dynamic8 : dynamic4;
}

GYRE_CODEC_TEXTS(quantize_constants, quantize_table, NULL)
GYRE_CODEC_LOOPS(compress, decompress, gy_no_survey)

static const gyre_compressor quantize = {sizeof(gyre_compressor),
                                         1,
                                         0,
                                         0,
                                         0,
                                         gy_codec_loops_,
                                         GYRE_CODEC_LOOP_COUNT,
                                         0,
                                         quantize_check,
                                         quantize_flags,
                                         quantize_bytes,
                                         NULL,
                                         NULL};

GYRE_COMPRESSOR(quantize, "1.0.0", "8 or 4 bits per element, scaled by block",
                "Apache-2.0",
                GYRE_CLAIM_DETERMINISTIC | GYRE_CLAIM_CHUNK_INVARIANT,
                &quantize)
GYRE_MODULE(quantize, &gyre_plugin_quantize)
