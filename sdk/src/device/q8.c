/* SPDX-License-Identifier: Apache-2.0 */
/* q8: a grain is 1,024 codes, then the scales of its four blocks. */
#include "config.h"

#include "device/state.h"

#include "device/element.h"

enum { BLOCK = 256, BLOCKS = GYRE_GRAIN / BLOCK };

/* Where the dither of a block comes from. */
typedef struct dither {
    int random; /* 0: 1/2, to nearest */
    uint32_t key[2];
    uint32_t index;
} dither;

/* One body, compiled for each instruction set; loops are made for a known
 * map and a known dither, so that nothing is left to decide inside. */
#define INLINE static inline __attribute__((always_inline))

INLINE void codes_of(const float *x, float scale, uint32_t whole, int random,
                     const dither *d, uint8_t *out)
{
    for (uint32_t i = 0; i < BLOCK; i++) {
        uint32_t h =
            random ? gyre_hash(d->key[0], d->key[1], d->index + i) : 0x80000000;

        out[i] = (uint8_t)gy_q8_code(x[i], scale, whole,
                                     (float)(int)(h >> 16) * 0x1p-16f);
    }
}

INLINE void encode_block(const float *x, const dither *d, uint8_t *out,
                         float *scale_out)
{
    uint32_t most = 0, below = 0, bits;
    float scale;

    for (uint32_t i = 0; i < BLOCK; i++) {
        uint32_t u = gy_as_uint(x[i]), size = u & 0x7fffffffu;

        most = most > size ? most : size;
        below |= u > 0x80000000u;
    }
    bits = gy_q8_scale(most, 1u - below);
    *scale_out = gy_as_float(bits);
    scale = gy_as_float(bits & 0x7fffffffu);
    if (!(scale > 0.0f))
        memset(out, 0, BLOCK);
    else if (below != 0)
        d->random ? codes_of(x, scale, 0, 1, d, out)
                  : codes_of(x, scale, 0, 0, d, out);
    else
        d->random ? codes_of(x, scale, 1, 1, d, out)
                  : codes_of(x, scale, 1, 0, d, out);
}

INLINE void decode_block(const uint8_t *codes, float stored, float *out)
{
    uint32_t bits = gy_as_uint(stored);
    float scale = gy_as_float(bits & 0x7fffffffu);

    if (bits >> 31)
        for (uint32_t i = 0; i < BLOCK; i++)
            out[i] = gy_q8_value(codes[i], scale, 1);
    else
        for (uint32_t i = 0; i < BLOCK; i++)
            out[i] = gy_q8_value(codes[i], scale, 0);
}

#define GRAIN_BODY(set, target)                                           \
    target static void encode_##set(const float *restrict in, dither *d,  \
                                    uint8_t *restrict out)                \
    {                                                                     \
        float scales[BLOCKS];                                             \
        for (uint32_t b = 0; b < BLOCKS; b++, d->index += BLOCK)          \
            encode_block(in + b * BLOCK, d, out + b * BLOCK, &scales[b]); \
        memcpy(out + GYRE_GRAIN, scales, sizeof(scales));                 \
    }                                                                     \
    target static void decode_##set(const uint8_t *restrict src,          \
                                    float *restrict out)                  \
    {                                                                     \
        float scales[BLOCKS];                                             \
        memcpy(scales, src + GYRE_GRAIN, sizeof(scales));                 \
        for (uint32_t b = 0; b < BLOCKS; b++)                             \
            decode_block(src + b * BLOCK, scales[b], out + b * BLOCK);    \
    }

GRAIN_BODY(scalar, )
#if defined(__x86_64__)
GRAIN_BODY(avx2, __attribute__((target("avx2"))))
GRAIN_BODY(avx512,
           __attribute__((target("avx2,avx512f,avx512vl,avx512dq,avx512bw"))))
#endif

void gyre_q8_decode(gyre_isa isa, const uint8_t *src, float *out)
{
#if defined(__x86_64__)
    if (isa == GYRE_ISA_AVX512) {
        decode_avx512(src, out);
        return;
    }
    if (isa == GYRE_ISA_AVX2) {
        decode_avx2(src, out);
        return;
    }
#endif
    (void)isa;
    decode_scalar(src, out);
}

void gyre_q8_encode(gyre_isa isa, const float *in, uint8_t *dst,
                    const uint32_t key[2], uint64_t index)
{
    dither d = {key != NULL, {0, 0}, (uint32_t)index};

    if (key != NULL)
        memcpy(d.key, key, sizeof(d.key));
#if defined(__x86_64__)
    if (isa == GYRE_ISA_AVX512) {
        encode_avx512(in, &d, dst);
        return;
    }
    if (isa == GYRE_ISA_AVX2) {
        encode_avx2(in, &d, dst);
        return;
    }
#endif
    (void)isa;
    encode_scalar(in, &d, dst);
}
