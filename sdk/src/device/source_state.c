/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State codecs in a device's program.  Their arithmetic is the text of
 * element.h; here is where it reads and writes.
 *
 * f32 and bf16 go element by element.  A q8 block needs the largest of its new
 * values first: they wait in shared memory (gy_new), and the work-group
 * encodes the grain behind the loop.
 */
#include "config.h"

#include "device/source.h"

#include "device/element.h"

/* Words that the work-group shares while it encodes. */
enum { Q8_WORK = 2 * GYRE_SOURCE_GROUP + 8 };

static const char plain_words[] =
    "GY_FN float gy_get_f32(GYRE_GLOBAL_ const uchar *at, int i)\n"
    "{ return ((GYRE_GLOBAL_ const float *)at)[i]; }\n"
    "GY_FN void gy_set_f32(GYRE_GLOBAL_ uchar *at, int i, float x)\n"
    "{ ((GYRE_GLOBAL_ float *)at)[i] = x; }\n"
    "GY_FN float gy_get_bf16(GYRE_GLOBAL_ const uchar *at, int i)\n"
    "{ return gy_as_float((uint)((GYRE_GLOBAL_ const ushort *)at)[i] << 16); "
    "}\n"
    "GY_FN void gy_set_bf16(GYRE_GLOBAL_ uchar *at, int i, float x)\n"
    "{\n"
    "const uint u = gy_as_uint(x);\n"
    "const uint near = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;\n"
    "const uint quiet = (u >> 16) | 0x40u;\n"
    "((GYRE_GLOBAL_ ushort *)at)[i] =\n"
    "    (ushort)((u & 0x7fffffffu) > 0x7f800000u ? quiet : near);\n"
    "}\n";

/* key: two words of the grain and variable; index: of its first element. */
static const char random_words[] =
    "GY_FN void gy_set_bf16_random(GYRE_GLOBAL_ uchar *at, int i, float x,\n"
    "    uint key0, uint key1, uint index)\n"
    "{\n"
    "const uint r = gyre_hash(key0, key1, index + (uint)i) >> 16;\n"
    "((GYRE_GLOBAL_ ushort *)at)[i] =\n"
    "    (ushort)gy_bf16_dither(gy_as_uint(x), r);\n"
    "}\n"
    "GY_FN float gy_get_q8(GYRE_GLOBAL_ const uchar *at, int i)\n"
    "{\n"
    "const uint stored = ((GYRE_GLOBAL_ const uint *)(at + 1024))[i >> 8];\n"
    "return gy_q8_value(at[i], gy_as_float(stored & 0x7fffffffu),\n"
    "    stored >> 31);\n"
    "}\n";

/* A quarter of the work-group looks at each block; then one work-item per
 * block decides the scale, and all encode. */
static const char q8_words[] =
    "GY_FN void gy_put_q8(GYRE_GLOBAL_ uchar *at, GYRE_LOCAL_ const float *x,\n"
    "    GYRE_LOCAL_ uint *work, int lane, uint key0, uint key1, uint index)\n"
    "{\n"
    "uint most = 0u, below = 0u;\n"
    "for (int i = 0; i < 4; i++) {\n"
    "const uint u = gy_as_uint(x[(lane >> 6) * 256 + (lane & 63) + i * 64]);\n"
    "const uint size = u & 0x7fffffffu;\n"
    "most = most > size ? most : size;\n"
    "below |= u > 0x80000000u ? 1u : 0u;\n"
    "}\n"
    "work[lane] = most; work[256 + lane] = below;\n"
    "gy_barrier();\n"
    "if (lane < 4) {\n"
    "for (int i = 0; i < 64; i++) {\n"
    "const uint size = work[lane * 64 + i];\n"
    "most = i == 0 || size > most ? size : most;\n"
    "below = i == 0 ? work[256 + lane * 64] : below | work[256 + lane * 64 + "
    "i];\n"
    "}\n"
    "work[512 + lane] = gy_q8_scale(most, 1u - below);\n"
    "work[516 + lane] = 1u - below;\n"
    "}\n"
    "gy_barrier();\n"
    "for (int i = lane; i < 1024; i += 256) {\n"
    "const float scale = gy_as_float(work[512 + (i >> 8)] & 0x7fffffffu);\n"
    "const uint h = gyre_hash(key0, key1, index + (uint)i);\n"
    "const float dither = (float)(int)(h >> 16) * 1.52587890625e-05f;\n"
    "at[i] = (uchar)(scale > 0.0f\n"
    "    ? gy_q8_code(x[i], scale, work[516 + (i >> 8)], dither) : 0u);\n"
    "}\n"
    "if (lane < 4) ((GYRE_GLOBAL_ uint *)(at + 1024))[lane] = work[512 + "
    "lane];\n"
    "gy_barrier();\n"
    "}\n";

void gyre_source_states(gyre_text *text)
{
    gyre_text_add(text, "%sGY_FN %s\n%s\n%s%s", plain_words, GYRE_HASH_TEXT,
                  GYRE_STATE_TEXT, random_words, q8_words);
}

static bool is_q8(const gyre_device_spec *spec, size_t v)
{
    return spec->states[v] == GYRE_STATE_Q8;
}

size_t gyre_source_shared(gyre_text *text, const gyre_device_spec *spec,
                          size_t used)
{
    size_t before = used;

    for (size_t v = 0; v < spec->vars; v++)
        if (is_q8(spec, v)) {
            gyre_text_add(text,
                          "GYRE_LOCAL_ float *gy_new%zu = gy_shared + %zu;\n",
                          v, used);
            used += GYRE_GRAIN;
        }
    if (used == before)
        return used;
    gyre_text_add(
        text,
        "GYRE_LOCAL_ uint *gy_work = (GYRE_LOCAL_ uint *)(gy_shared + "
        "%zu);\n",
        used);
    return used + Q8_WORK;
}

void gyre_source_keys(gyre_text *text, const gyre_device_spec *spec)
{
    for (size_t v = 0; v < spec->vars; v++)
        if (gyre_state_is_random(spec->states[v]))
            gyre_text_add(text,
                          "const uint gy_key%zu = gyre_hash(gy_key, "
                          "gy_key_high, %zuu);\n"
                          "const uint gy_key_high%zu = gyre_hash(gy_key_high, "
                          "gy_key%zu, gy_index_high);\n",
                          v, v, v, v);
}

void gyre_source_load(gyre_text *text, const gyre_device_spec *spec, size_t v,
                      const char *name)
{
    static const char *const word[GYRE_STATE_CODECS] = {
        [GYRE_STATE_F32] = "f32",
        [GYRE_STATE_BF16] = "bf16",
        [GYRE_STATE_BF16_STOCHASTIC] = "bf16",
        [GYRE_STATE_Q8] = "q8",
    };

    gyre_text_add(text, "float %s = gy_get_%s(gy_at%zu, gy_i);\n", name,
                  word[spec->states[v]], v);
}

void gyre_source_store(gyre_text *text, const gyre_device_spec *spec, size_t v,
                       const char *name)
{
    switch (spec->states[v]) {
    case GYRE_STATE_F32:
        gyre_text_add(text, "gy_set_f32(gy_at%zu, gy_i, %s);\n", v, name);
        break;
    case GYRE_STATE_BF16:
        gyre_text_add(text, "gy_set_bf16(gy_at%zu, gy_i, %s);\n", v, name);
        break;
    case GYRE_STATE_BF16_STOCHASTIC:
        gyre_text_add(text,
                      "gy_set_bf16_random(gy_at%zu, gy_i, %s, gy_key%zu, "
                      "gy_key_high%zu, gy_index);\n",
                      v, name, v, v);
        break;
    case GYRE_STATE_Q8:
        gyre_text_add(text, "gy_new%zu[gy_i] = %s;\n", v, name);
        break;
    }
}

void gyre_source_encode(gyre_text *text, const gyre_device_spec *spec)
{
    for (size_t v = 0; v < spec->vars; v++)
        if (is_q8(spec, v))
            gyre_text_add(text,
                          "for (int gy_i = gy_n + gy_lane; gy_i < %d; gy_i += "
                          "gy_lanes)\n"
                          "gy_new%zu[gy_i] = gy_get_q8(gy_at%zu, gy_i);\n",
                          GYRE_GRAIN, v, v);
    for (size_t v = 0; v < spec->vars; v++)
        if (is_q8(spec, v))
            gyre_text_add(text,
                          "gy_barrier();\n"
                          "gy_put_q8(gy_at%zu, gy_new%zu, gy_work, gy_lane, "
                          "gy_key%zu, gy_key_high%zu, gy_index);\n",
                          v, v, v, v);
}
