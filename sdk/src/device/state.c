/* SPDX-License-Identifier: Apache-2.0 */
/* State codecs: names, sizes, and the ways to each. */
#include "config.h"

#include "device/state.h"

#include <string.h>

static const struct {
    const char *name;
    uint32_t stride;
} table[GYRE_STATE_CODECS] = {
    [GYRE_STATE_F32] = {"f32", 4096},
    [GYRE_STATE_BF16] = {"bf16", 2048},
};

const char *gyre_state_name(gyre_state_codec codec)
{
    return (unsigned)codec < GYRE_STATE_CODECS ? table[codec].name : NULL;
}

bool gyre_state_parse(const char *name, gyre_state_codec *codec)
{
    for (unsigned i = 0; name != NULL && i < GYRE_STATE_CODECS; i++)
        if (table[i].name != NULL && strcmp(name, table[i].name) == 0) {
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
    return n * (codec == GYRE_STATE_F32 ? 4 : 2);
}

void gyre_state_decode(gyre_state_codec codec, gyre_isa isa, const uint8_t *src,
                       float *out)
{
    if (codec == GYRE_STATE_F32)
        memcpy(out, src, GYRE_GRAIN * sizeof(float));
    else
        gyre_to_f32_with(isa, GYRE_BF16, src, 1, out, GYRE_GRAIN);
}

void gyre_state_encode(gyre_state_codec codec, gyre_isa isa, const float *in,
                       uint8_t *dst, const uint32_t key[2], uint64_t index)
{
    (void)key;
    (void)index;
    if (codec == GYRE_STATE_F32)
        memcpy(dst, in, GYRE_GRAIN * sizeof(float));
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
