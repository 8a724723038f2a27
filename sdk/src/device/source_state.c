/* SPDX-License-Identifier: Apache-2.0 */
/* State codecs in the common subset of OpenCL C and CUDA C: what state.h
 * defines, to the bit. */
#include "config.h"

#include "device/source.h"

const char gyre_source_state[] =
    "GY_FN float gy_get_f32(GY_GLOBAL const uchar *at, uint i)\n"
    "{ return ((GY_GLOBAL const float *)at)[i]; }\n"
    "GY_FN void gy_set_f32(GY_GLOBAL uchar *at, uint i, float x)\n"
    "{ ((GY_GLOBAL float *)at)[i] = x; }\n"
    "GY_FN float gy_get_bf16(GY_GLOBAL const uchar *at, uint i)\n"
    "{ return gy_as_float((uint)((GY_GLOBAL const ushort *)at)[i] << 16); }\n"
    "GY_FN void gy_set_bf16(GY_GLOBAL uchar *at, uint i, float x)\n"
    "{\n"
    "const uint u = gy_as_uint(x);\n"
    "const uint nan = (u & 0x7fffffffu) > 0x7f800000u;\n"
    "const uint near = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;\n"
    "((GY_GLOBAL ushort *)at)[i] = (ushort)(nan ? (u >> 16) | 0x40u : near);\n"
    "}\n";

static const char *const codec_word[] = {
    [GYRE_STATE_F32] = "f32",
    [GYRE_STATE_BF16] = "bf16",
};

void gyre_source_load(gyre_text *text, gyre_state_codec codec, size_t v,
                      const char *name)
{
    gyre_text_add(text, "float %s = gy_get_%s(gy_at%zu, gy_i);\n", name,
                  codec_word[codec], v);
}

void gyre_source_store(gyre_text *text, gyre_state_codec codec, size_t v,
                       const char *name)
{
    gyre_text_add(text, "gy_set_%s(gy_at%zu, gy_i, %s);\n", codec_word[codec],
                  v, name);
}
