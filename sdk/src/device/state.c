/* SPDX-License-Identifier: Apache-2.0 */
/* State codecs: names, sizes, keys, and the ways to each. */
#include "config.h"

#include "device/state.h"

#include "device/element.h"

#include <xxhash.h>

static const struct {
    const char *name;
    size_t stride;
} table[GYRE_STATE_CODECS] = {
    [GYRE_STATE_F32] = {"f32", 4 * GYRE_GRAIN},
    [GYRE_STATE_BF16] = {"bf16", 2 * GYRE_GRAIN},
    [GYRE_STATE_BF16_STOCHASTIC] = {"bf16-stochastic", 2 * GYRE_GRAIN},
    [GYRE_STATE_Q8] = {"q8", GYRE_GRAIN + 4 * sizeof(float)},
};

const char *gyre_state_name(gyre_state_codec codec)
{
    return (unsigned)codec < GYRE_STATE_CODECS ? table[codec].name : NULL;
}

bool gyre_state_parse(const char *name, gyre_state_codec *codec)
{
    for (unsigned i = 0; name != NULL && i < GYRE_STATE_CODECS; i++)
        if (strcmp(name, table[i].name) == 0) {
            *codec = (gyre_state_codec)i;
            return true;
        }
    return false;
}

size_t gyre_state_stride(gyre_state_codec codec)
{
    return table[codec].stride;
}

uint64_t gyre_state_bytes(gyre_state_codec codec, uint64_t n)
{
    if (codec == GYRE_STATE_F32)
        return 4 * n;
    if (codec == GYRE_STATE_Q8)
        return n + 4 * ((n + 255) / 256);
    return 2 * n;
}

bool gyre_state_is_random(gyre_state_codec codec)
{
    return codec == GYRE_STATE_BF16_STOCHASTIC || codec == GYRE_STATE_Q8;
}

/* ---- keys ------------------------------------------------------------- */

void gyre_state_key(uint64_t seed, const char *name, uint64_t t,
                    uint32_t key[2])
{
    uint64_t parts[3] = {seed, XXH3_64bits(name, strlen(name)), t};
    uint64_t hash = XXH3_64bits(parts, sizeof(parts));

    key[0] = (uint32_t)hash;
    key[1] = (uint32_t)(hash >> 32);
}

void gyre_state_grain_key(const uint32_t key[2], uint32_t v, uint64_t index,
                          uint32_t out[2])
{
    uint32_t high = (uint32_t)(index >> 32);

    out[0] = gyre_hash(key[0], key[1], v);
    out[1] = gyre_hash(key[1], out[0], high);
}

/* ---- bf16 by a counter ------------------------------------------------- */

#define DITHER_BODY(set, target)                                           \
    target static void dither_##set(const float *restrict in,              \
                                    uint16_t *restrict out, uint32_t key0, \
                                    uint32_t key1, uint32_t index)         \
    {                                                                      \
        for (uint32_t i = 0; i < GYRE_GRAIN; i++) {                        \
            uint32_t r = gyre_hash(key0, key1, index + i) >> 16;           \
            out[i] = (uint16_t)gy_bf16_dither(gy_as_uint(in[i]), r);       \
        }                                                                  \
    }

DITHER_BODY(scalar, )
#if defined(__x86_64__)
DITHER_BODY(avx2, __attribute__((target("avx2"))))
DITHER_BODY(avx512,
            __attribute__((target("avx2,avx512f,avx512vl,avx512dq,avx512bw"))))
#endif

static void encode_dither(gyre_isa isa, const float *in, void *dst,
                          const uint32_t key[2], uint64_t index)
{
#if defined(__x86_64__)
    if (isa == GYRE_ISA_AVX512) {
        dither_avx512(in, dst, key[0], key[1], (uint32_t)index);
        return;
    }
    if (isa == GYRE_ISA_AVX2) {
        dither_avx2(in, dst, key[0], key[1], (uint32_t)index);
        return;
    }
#endif
    (void)isa;
    dither_scalar(in, dst, key[0], key[1], (uint32_t)index);
}

/* ---- one grain --------------------------------------------------------- */

void gyre_state_decode(gyre_state_codec codec, gyre_isa isa, const uint8_t *src,
                       float *out)
{
    if (codec == GYRE_STATE_F32)
        memcpy(out, src, GYRE_GRAIN * sizeof(float));
    else if (codec == GYRE_STATE_Q8)
        gyre_q8_decode(isa, src, out);
    else
        gyre_to_f32_with(isa, GYRE_BF16, src, 1, out, GYRE_GRAIN);
}

void gyre_state_encode(gyre_state_codec codec, gyre_isa isa, const float *in,
                       uint8_t *dst, const uint32_t key[2], uint64_t index)
{
    if (codec == GYRE_STATE_F32)
        memcpy(dst, in, GYRE_GRAIN * sizeof(float));
    else if (codec == GYRE_STATE_Q8)
        gyre_q8_encode(isa, in, dst, key, index);
    else if (codec == GYRE_STATE_BF16_STOCHASTIC && key != NULL)
        encode_dither(isa, in, dst, key, index);
    else
        gyre_from_f32_with(isa, GYRE_BF16, in, dst, GYRE_GRAIN);
}

const float *gyre_state_view(const gyre_var *var, gyre_isa isa,
                             const uint8_t *data, size_t at, size_t *n,
                             float *scratch)
{
    const uint8_t *grain = data + var->at + at / GYRE_GRAIN * var->stride;
    size_t in = at % GYRE_GRAIN;

    if (var->codec == GYRE_STATE_F32)
        return (const float *)(const void *)grain + in;
    gyre_state_decode(var->codec, isa, grain, scratch);
    if (*n > GYRE_GRAIN - in)
        *n = GYRE_GRAIN - in;
    return scratch + in;
}

/* ---- for tools --------------------------------------------------------- */

size_t gyre_state_grain_bytes(gyre_state_codec codec)
{
    return (unsigned)codec < GYRE_STATE_CODECS ? table[codec].stride : 0;
}

void gyre_state_pack(const gyre_context *context, gyre_state_codec codec,
                     const float *values, const uint32_t key[2], uint64_t index,
                     void *grain)
{
    gyre_fp saved = gyre_fp_pin();

    gyre_state_encode(codec, gyre_context_isa(context), values, grain, key,
                      index);
    gyre_fp_restore(saved);
}

void gyre_state_unpack(const gyre_context *context, gyre_state_codec codec,
                       const void *grain, float *values)
{
    gyre_fp saved = gyre_fp_pin();

    gyre_state_decode(codec, gyre_context_isa(context), grain, values);
    gyre_fp_restore(saved);
}
