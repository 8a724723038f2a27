/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program of a device on which gradients are born.
 *
 * Its sums are those of gyre_device_leaf, its mix that of feedback.c, term by
 * term: a lane of 16 is a work-item, and one of them folds.  Where an a is not
 * finite zeros are compressed instead, so that every work-item takes the same
 * way to the barriers; the leaf tells.
 *
 * Memory of a work-group, in doubles: 512 of scratch, then a, then D(c).
 */
#include "config.h"

#include "device/source.h"

#include "registry/compressor.h"

#include <string.h>

enum { SCRATCH = 512, SHARED = SCRATCH + GYRE_GRAIN };

static const char opencl_kernel[] =
    "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
    "#define GYRE_ROOM_ , __local double *gy_room) {\n"
    "#define gy_as_double(u) as_double((ulong)(u))\n";

static const char cuda_kernel[] =
    "#define GYRE_ROOM_ ) { extern __shared__ double gy_room[];\n"
    "#define gy_as_double(u) __longlong_as_double((long long)(u))\n";

static const char birth_words[] =
    "#define GYRE_BIRTH_(name) GYRE_KERNEL_ name(\\\n"
    "    GYRE_GLOBAL_ float *gy_g, GYRE_GLOBAL_ const float *gy_e,\\\n"
    "    GYRE_GLOBAL_ float *gy_e_next, GYRE_GLOBAL_ uchar *gy_out,\\\n"
    "    GYRE_GLOBAL_ double *gy_leaves, GYRE_GLOBAL_ const uchar *gy_from,\\\n"
    "    const uint gy_w0, const uint gy_w1, const uint gy_w2,\\\n"
    "    const uint gy_w3, const uint gy_w4, const uint gy_w5,\\\n"
    "    const uint gy_w6, const uint gy_w7, const uint gy_w8,\\\n"
    "    const uint gy_w9, const uint gy_w10, const uint gy_w11 GYRE_ROOM_\n"
    "#define gy_both(low, high) ((ulong)(low) | (ulong)(high) << 32)\n"
    "#define gy_to_bits(x) gy_as_uint(x)\n"
    "#define gy_word(i) (((GYRE_LOCAL_ uint *)gy_room)[i])\n"
    "#define gy_wide(i) (gy_room[i])\n"
    "#define gy_a(i) (((GYRE_LOCAL_ float *)(gy_room + 512))[i])\n"
    "#define gy_x(i) gy_a(i)\n"
    "#define gy_kept(i) (((GYRE_LOCAL_ float *)(gy_room + 1024))[i])\n"
    "#define gy_keep(i, x) gy_kept(i) = (x)\n"
    "#define gy_put8(at, u) gy_payload[at] = (uchar)(u)\n"
    "#define gy_put16(at, u) *(GYRE_GLOBAL_ ushort *)(gy_payload + (at)) = "
    "(ushort)(u)\n"
    "#define gy_put32(at, u) *(GYRE_GLOBAL_ uint *)(gy_payload + (at)) = "
    "(uint)(u)\n";

/* Element i of memory of a dtype; halves as base/dtype.c has them. */
static const char take_kernel[] =
    "GY_FN float gy_half_of(uint h)\n"
    "{\n"
    "const uint rest = (h & 0x7fffu) << 13;\n"
    "const float small = gy_as_float(rest + 0x38800000u) - "
    "gy_as_float(0x38800000u);\n"
    "uint u = rest + 0x38000000u;\n"
    "if (rest >= 0x0f800000u) u = u + 0x38000000u;\n"
    "if (rest < 0x00800000u) u = gy_as_uint(small);\n"
    "return gy_as_float(u | (h & 0x8000u) << 16);\n"
    "}\n"
    "GYRE_BIRTH_(gyre_take)\n"
    "const ulong gy_i = (ulong)gy_group() * gy_items() + gy_item();\n"
    "const ulong gy_to = gy_both(gy_w1, gy_w2) + gy_i;\n"
    "GYRE_GLOBAL_ const uchar *at = gy_from + gy_both(gy_w3, gy_w4);\n"
    "const ulong gy_nth = gy_i * gy_both(gy_w5, gy_w6);\n"
    "float x;\n"
    "if (gy_i >= gy_w0) return;\n"
    "if (gy_w7 == %uu) x = ((GYRE_GLOBAL_ const float *)at)[gy_nth];\n"
    "else if (gy_w7 == %uu)\n"
    "x = (float)((GYRE_GLOBAL_ const double *)at)[gy_nth];\n"
    "else if (gy_w7 == %uu) x = gy_as_float(\n"
    "(uint)((GYRE_GLOBAL_ const ushort *)at)[gy_nth] << 16);\n"
    "else x = gy_half_of(((GYRE_GLOBAL_ const ushort *)at)[gy_nth]);\n"
    "gy_g[gy_to] = gy_w8 != 0u ? gy_g[gy_to] + x : x;\n"
    "}\n";

static const char leaf_kernel[] =
    "GYRE_BIRTH_(gyre_leaf)\n"
    "const uint gy_k = gy_group() * 16u + gy_item() / 16u;\n"
    "const uint gy_lane = gy_item() % 16u;\n"
    "const ulong gy_at = (ulong)gy_k * 1024u;\n"
    "const ulong gy_all = gy_both(gy_w2, gy_w3);\n"
    "GYRE_GLOBAL_ const float *gy_of = gy_g + ((ulong)gy_w0 * 1024u + gy_at);\n"
    "double sum = 0.0;\n"
    "if (gy_k < gy_w1)\n"
    "for (uint i = gy_lane; i < 1024u && gy_at + i < gy_all; i += 16u) {\n"
    "const double x = (double)gy_of[i];\n"
    "sum = sum + x * x;\n"
    "}\n"
    "gy_wide(gy_item()) = sum;\n"
    "gy_barrier();\n"
    "if (gy_lane == 0u && gy_k < gy_w1) {\n"
    "for (uint half = 8u; half > 0u; half /= 2u)\n"
    "for (uint l = 0u; l < half; l++)\n"
    "gy_wide(gy_item() + l) = gy_wide(gy_item() + l) + "
    "gy_wide(gy_item() + l + half);\n"
    "gy_leaves[gy_w0 + gy_k] = gy_wide(gy_item());\n"
    "}\n"
    "}\n";

/* a, and whether it is finite, in word 256. */
static const char mix[] =
    "GYRE_BIRTH_(gyre_encode)\n"
    "const uint gy_k = gy_group();\n"
    "const uint gy_left = gy_w1 - gy_k * 1024u;\n"
    "const int gy_n = gy_left < 1024u ? (int)gy_left : 1024;\n"
    "const int gy_lane = (int)gy_item();\n"
    "const int gy_lanes = (int)gy_items();\n"
    "const int gy_bytes = gy_left <= 1024u ? (int)gy_w10 : (int)gy_w9;\n"
    "const ulong gy_at = ((ulong)gy_w0 + gy_k) * 1024u;\n"
    "const ulong gy_place = gy_both(gy_w2, gy_w3) + (ulong)gy_k * 1024u;\n"
    "const uint gy_index = (uint)gy_place;\n"
    "const uint gy_index_high = (uint)(gy_place >> 32);\n"
    "const uint gy_key = gy_w6;\n"
    "const uint gy_key_high = gy_w7;\n"
    "const float gy_q = gy_as_float(gy_w4);\n"
    "const float gy_kappa = gy_as_float(gy_w5);\n"
    "GYRE_GLOBAL_ uchar *gy_payload = gy_out + ((ulong)gy_w0 + gy_k) * gy_w9;\n"
    "uint gy_most = 0u;\n"
    "for (int i = gy_lane; i < gy_n; i += gy_lanes) {\n"
    "float sum;\n"
    "uint bits;\n"
    "if (gy_w8 != 0u) {\n"
    "const float kept = gy_kappa * gy_e[gy_at + (ulong)i];\n"
    "sum = gy_fma(gy_g[gy_at + (ulong)i], gy_q, kept);\n"
    "} else {\n"
    "sum = gy_g[gy_at + (ulong)i] * gy_q;\n"
    "}\n"
    "sum = sum + 0.0f;\n"
    "bits = gy_as_uint(sum) & 0x7fffffffu;\n"
    "gy_most = bits > gy_most ? bits : gy_most;\n"
    "gy_a(i) = sum;\n"
    "}\n"
    "gy_word(gy_lane) = gy_most;\n"
    "gy_barrier();\n"
    "if (gy_lane == 0) {\n"
    "for (int i = 1; i < gy_lanes; i++)\n"
    "gy_most = gy_word(i) > gy_most ? gy_word(i) : gy_most;\n"
    "gy_word(256) = gy_most;\n"
    "}\n"
    "gy_barrier();\n"
    "const uint gy_bad = gy_word(256) >= 0x7f800000u;\n"
    "gy_barrier();\n"
    "for (int i = gy_lane; i < gy_n; i += gy_lanes)\n"
    "if (gy_bad != 0u) gy_a(i) = 0.0f;\n"
    "gy_barrier();\n"
    "{\n";

static const char rest[] =
    "}\n"
    "gy_barrier();\n"
    "if (gy_w8 != 0u)\n"
    "for (int i = gy_lane; i < gy_n; i += gy_lanes)\n"
    "gy_e_next[gy_at + (ulong)i] = gy_a(i) - gy_kept(i);\n"
    "if (gy_lane < 16) {\n"
    "double sum = 0.0;\n"
    "for (int i = gy_lane; i < gy_n; i += 16) {\n"
    "const double x = (double)gy_kept(i);\n"
    "sum = sum + x * x;\n"
    "}\n"
    "gy_wide(gy_lane) = sum;\n"
    "}\n"
    "gy_barrier();\n"
    "if (gy_lane == 0) {\n"
    "for (int half = 8; half > 0; half /= 2)\n"
    "for (int l = 0; l < half; l++)\n"
    "gy_wide(l) = gy_wide(l) + gy_wide(l + half);\n"
    "gy_leaves[(ulong)gy_w11 + gy_w0 + gy_k] = gy_bad != 0u\n"
    "? gy_as_double(0x7ff8000000000000ul) : gy_wide(0);\n"
    "}\n"
    "}\n";

gyre_status gyre_source_birth(gyre_context *context, const char *language,
                              const gyre_codec *codec, char **out,
                              size_t *shared, gyre_error *error)
{
    const gyre_codec_encoder *encoder = gyre_codec_encoder_of(codec);
    gyre_text text = {.context = context};
    char *copy = NULL;

    if (encoder == NULL)
        return gyre_fail(error, GYRE_UNSUPPORTED,
                         "compressor %s has no portable encoder (extension "
                         "%s) for these settings",
                         gyre_codec_name(codec), GYRE_CODEC_ENCODE);
    gyre_source_words(&text, language);
    gyre_text_add(&text, "%s%sGY_FN %s\n",
                  strcmp(language, "cuda") == 0 ? cuda_kernel : opencl_kernel,
                  birth_words, GYRE_HASH_TEXT);
    gyre_source_table(&text, codec);
    gyre_text_add(&text, take_kernel, GYRE_F32, GYRE_F64, GYRE_BF16);
    gyre_text_add(&text, "%s%s", leaf_kernel, mix);
    gyre_source_constants(&text, codec);
    gyre_text_add(&text, "%s\n%s", encoder->text, rest);
    if (!text.failed)
        copy = gyre_copy_text(context, text.at);
    gyre_text_free(&text);
    if (copy == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "device program: no memory");
    *out = copy;
    *shared = SHARED * sizeof(double);
    return GYRE_OK;
}
