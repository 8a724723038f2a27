/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program text of a device.
 *
 * Every name of ours begins with gy_ or gyre_, so that the plugins' own names
 * (slots, scalars, constants, locals) are free; a local named like a built-in
 * function ("step") hides it, which both languages allow.
 */
#include "config.h"

#include "device/source.h"

#include "device/pack.h"
#include "registry/compressor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { KERNEL_NAMES = 64 };

/* ---- growing text ---------------------------------------------------- */

static bool reserve(gyre_text *text, size_t more)
{
    size_t wanted = text->length + more + 1, room = text->room;
    char *fresh;

    if (wanted <= room)
        return true;
    while (room < wanted)
        room = room == 0 ? 4096 : 2 * room;
    fresh = gyre_grow(text->context, text->at, text->room, room, 1);
    if (fresh == NULL) {
        text->failed = true;
        return false;
    }
    text->at = fresh;
    text->room = room;
    return true;
}

void gyre_text_add(gyre_text *text, const char *format, ...)
{
    va_list list, again;
    int n;

    va_start(list, format);
    va_copy(again, list);
    n = vsnprintf(NULL, 0, format, list);
    if (n < 0)
        text->failed = true;
    if (!text->failed && reserve(text, (size_t)n)) {
        vsnprintf(text->at + text->length, (size_t)n + 1, format, again);
        text->length += (size_t)n;
    }
    va_end(again);
    va_end(list);
}

void gyre_text_free(gyre_text *text)
{
    gyre_free(text->context, text->at, text->room, 1);
}

/* ---- what differs between the languages ------------------------------ */

static const char opencl_words[] =
    "#pragma OPENCL FP_CONTRACT OFF\n"
    "#define GYRE_KERNEL_ __kernel void\n"
    "#define GY_FN static\n"
    "#define GYRE_GLOBAL_ __global\n"
    "#define GYRE_SHARED_ , __local float *gy_shared\n"
    "#define GYRE_SHARED_HERE_\n"
    "#define GYRE_LOCAL_ __local\n"
    "#define GYRE_TABLE_ __constant\n"
    "#define half gy_half\n" /* words of OpenCL that are names in C */
    "#define global gy_global\n"
    "#define local gy_local\n"
    "#define constant gy_constant\n"
    "#define private gy_private\n"
    "#define kernel gy_kernel\n"
    "#define gy_group() ((uint)get_group_id(0))\n"
    "#define gy_item() ((uint)get_local_id(0))\n"
    "#define gy_items() ((uint)get_local_size(0))\n"
    "#define gy_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)\n"
    "#define gy_as_float(x) as_float((uint)(x))\n"
    "#define gy_as_uint(x) as_uint((float)(x))\n"
    "GY_FN float gy_fma(float a, float b, float c) { return fma(a, b, c); }\n"
    "GY_FN float gy_sqrt(float a) { return sqrt(a); }\n"
    "GY_FN float gy_abs(float a) { return fabs(a); }\n";

static const char cuda_words[] =
    "typedef unsigned char uchar;\n"
    "typedef unsigned short ushort;\n"
    "typedef unsigned int uint;\n"
    "typedef unsigned long long ulong;\n"
    "#define GYRE_KERNEL_ extern \"C\" __global__ void\n"
    "#define GY_FN static __device__ __forceinline__\n"
    "#define GYRE_GLOBAL_\n"
    "#define GYRE_SHARED_\n"
    "#define GYRE_SHARED_HERE_ extern __shared__ float gy_shared[];\n"
    "#define GYRE_LOCAL_\n"
    "#define GYRE_TABLE_ static __device__ const\n"
    "#define gy_group() (blockIdx.x)\n"
    "#define gy_item() (threadIdx.x)\n"
    "#define gy_items() (blockDim.x)\n"
    "#define gy_barrier() __syncthreads()\n"
    "#define gy_as_float(x) __uint_as_float((uint)(x))\n"
    "#define gy_as_uint(x) __float_as_uint((float)(x))\n"
    "GY_FN float gy_fma(float a, float b, float c) { return fmaf(a, b, c); }\n"
    "GY_FN float gy_sqrt(float a) { return sqrtf(a); }\n"
    "GY_FN float gy_abs(float a) { return fabsf(a); }\n";

static const char common_words[] =
    "GY_FN float gy_min(float a, float b) { return a < b ? a : b; }\n"
    "GY_FN float gy_max(float a, float b) { return a > b ? a : b; }\n"
    "GY_FN float gy_select(int c, float a, float b) { return c ? a : b; }\n"
    "#define gy_bits(u) gy_as_float(u)\n"
    "#define gy_u32(at) (gy_payload[(uint)(at) >> 2])\n"
    "#define gy_u16(at) ((gy_u32(at) >> (((uint)(at) & 2u) * 8u)) & 0xffffu)\n"
    "#define gy_u8(at) ((gy_u32(at) >> (((uint)(at) & 3u) * 8u)) & 0xffu)\n"
    "#define gy_f32(at) gy_as_float(gy_u32(at))\n"
    "#define gy_put(i, x) { const int gy_to = (int)(i); if (gy_to >= 0 && "
    "gy_to < "
    "gy_n) gy_grain_g[gy_to] = (x); }\n";

void gyre_source_words(gyre_text *text, const char *language)
{
    gyre_text_add(text, "%s%s",
                  strcmp(language, "cuda") == 0 ? cuda_words : opencl_words,
                  common_words);
}

/* ---- parts of the kernel --------------------------------------------- */

/* "-DNAME=V -DNAME=V" as lines of #define. */
static void add_defines(gyre_text *text, const char *defines)
{
    for (const char *at = strstr(defines, "-D"); at != NULL;
         at = strstr(at, " -D")) {
        const char *name = at + (*at == ' ' ? 3 : 2);
        const char *equals = strchr(name, '=');
        size_t length = strcspn(name, " ");

        if (equals == NULL || equals > name + length)
            return;
        gyre_text_add(text, "#define %.*s %.*s\n", (int)(equals - name), name,
                      (int)(name + length - equals - 1), equals + 1);
        at = name + length;
    }
}

/* Each variable's grain, and the fields of the record. */
static void add_head(gyre_text *text, const gyre_device_spec *spec)
{
    size_t before = 0;

    gyre_text_add(
        text,
        "GYRE_KERNEL_ gyre_update(GYRE_GLOBAL_ uchar *gy_state,\n"
        "    GYRE_GLOBAL_ const uint *gy_input, const uint gy_grains "
        "GYRE_SHARED_)\n"
        "{\nGYRE_SHARED_HERE_\n"
        "const uint gy_grain = gy_group();\n"
        "const int gy_lane = (int)gy_item();\n"
        "const int gy_lanes = (int)gy_items();\n"
        "GYRE_GLOBAL_ const uint *gy_record = gy_input + "
        "(ulong)gy_grain * %uu;\n"
        "const int gy_n = (int)gy_record[%u];\n"
        "GYRE_GLOBAL_ const float *gy_scalar = (GYRE_GLOBAL_ const float "
        "*)(gy_input + gy_record[%u]);\n"
        "GYRE_GLOBAL_ const uint *gy_payload = gy_input + "
        "gy_record[%u];\n"
        "const float gy_q = gy_as_float(gy_record[%u]);\n"
        "const uint gy_index = gy_record[%u];\n"
        "const uint gy_index_high = gy_record[%u];\n"
        "const uint gy_key = gy_record[%u];\n"
        "const uint gy_key_high = gy_record[%u];\n",
        GYRE_RECORD_WORDS, GYRE_RECORD_N, GYRE_RECORD_SCALARS,
        GYRE_RECORD_GRADIENT, GYRE_RECORD_Q, GYRE_RECORD_INDEX,
        GYRE_RECORD_INDEX_HIGH, GYRE_RECORD_KEY, GYRE_RECORD_KEY_HIGH);
    for (size_t v = 0; v < spec->vars; v++) {
        size_t stride = gyre_state_stride(spec->states[v]);

        gyre_text_add(text,
                      "GYRE_GLOBAL_ uchar *const gy_at%zu = gy_state + "
                      "(ulong)gy_grains * %zuu + (ulong)gy_grain * %zuu;\n",
                      v, before, stride);
        before += stride;
    }
}

void gyre_source_constants(gyre_text *text, const gyre_codec *codec)
{
    const gyre_codec_kernel *kernel = gyre_codec_kernel_of(codec);
    int32_t value[KERNEL_NAMES];

    kernel->constants(gyre_codec_values(codec), value);
    for (uint32_t i = 0; i < kernel->name_count; i++)
        gyre_text_add(text, "const int %s = %d;\n", kernel->names[i],
                      (int)value[i]);
}

/* A scattering decoder fills the grain that all work-items then read. */
static void add_scatter(gyre_text *text, const gyre_codec *codec)
{
    gyre_text_add(text, "if (gy_wire) {\n"
                        "for (int gy_i = gy_lane; gy_i < gy_n; gy_i += "
                        "gy_lanes) gy_grain_g[gy_i] = 0.0f;\n"
                        "gy_barrier();\n{\n");
    gyre_source_constants(text, codec);
    gyre_text_add(text, "%s\n}\ngy_barrier();\n}\n",
                  gyre_codec_kernel_of(codec)->text);
}

/* `g` of element gy_i, scaled. */
static void add_gradient(gyre_text *text, const gyre_codec *codec)
{
    const gyre_codec_kernel *kernel =
        codec != NULL ? gyre_codec_kernel_of(codec) : NULL;

    gyre_text_add(text, "float g = 0.0f;\n");
    if (kernel != NULL && kernel->form == GYRE_KERNEL_SCATTER) {
        gyre_text_add(text, "if (gy_wire) g = gy_grain_g[gy_i]; else ");
    } else if (kernel != NULL) {
        gyre_text_add(text, "if (gy_wire) {\n");
        gyre_source_constants(text, codec);
        gyre_text_add(text, "%s\n} else ", kernel->text);
    }
    gyre_text_add(text, "g = gy_f32(4 * gy_i);\ng = g * gy_q;\n");
}

static void add_element(gyre_text *text, const gyre_device_spec *spec)
{
    const gyre_opt *opt = spec->opt;
    size_t count = gyre_opt_kernel_slot_count(opt), place;

    gyre_source_load(text, spec, 0, "p");
    for (size_t i = 0; i < count; i++) {
        const char *name = gyre_opt_kernel_slot_name(opt, i, &place);

        if (place > 0)
            gyre_source_load(text, spec, place, name);
        else
            gyre_text_add(text, "float %s = 0.0f;\n", name);
    }
    gyre_text_add(text, "{ %s }\n", gyre_opt_kernel_text(opt));
    gyre_source_store(text, spec, 0, "p");
    for (size_t i = 0; i < count; i++) {
        const char *name = gyre_opt_kernel_slot_name(opt, i, &place);

        if (place > 0)
            gyre_source_store(text, spec, place, name);
    }
}

/* Returns the words of shared memory. */
static size_t add_kernel(gyre_text *text, const gyre_device_spec *spec)
{
    const gyre_codec *codec = spec->codec;
    size_t shared = 0;
    bool scatter = codec != NULL &&
                   gyre_codec_kernel_of(codec)->form == GYRE_KERNEL_SCATTER;

    add_head(text, spec);
    if (scatter) {
        gyre_text_add(text, "GYRE_LOCAL_ float *gy_grain_g = gy_shared;\n");
        shared = GYRE_GRAIN;
    }
    shared = gyre_source_shared(text, spec, shared);
    gyre_text_add(text, "if (gy_n == 0) return;\n");
    gyre_source_keys(text, spec);
    if (codec != NULL)
        gyre_text_add(text,
                      "const int gy_wire = (int)gy_record[%u];\n"
                      "const int gy_bytes = (int)gy_record[%u];\n",
                      GYRE_RECORD_WIRE, GYRE_RECORD_BYTES);
    if (scatter)
        add_scatter(text, codec);
    for (size_t i = 0; i < gyre_opt_scalar_count(spec->opt); i++)
        gyre_text_add(text, "const float %s = gy_scalar[%zu];\n",
                      gyre_opt_scalar_name(spec->opt, i), i);
    gyre_text_add(text, "for (int gy_i = gy_lane; gy_i < gy_n; "
                        "gy_i += gy_lanes) {\n");
    add_gradient(text, codec);
    add_element(text, spec);
    gyre_text_add(text, "}\n");
    gyre_source_encode(text, spec);
    gyre_text_add(text, "}\n");
    return shared;
}

/* The codec's table, bit for bit. */
void gyre_source_table(gyre_text *text, const gyre_codec *codec)
{
    const gyre_codec_kernel *kernel = gyre_codec_kernel_of(codec);
    size_t count = 0;
    const float *table = kernel->table != NULL
                             ? kernel->table(gyre_codec_values(codec), &count)
                             : NULL;

    if (table == NULL || count == 0)
        return;
    gyre_text_add(text, "GYRE_TABLE_ uint gy_codec_table[%zu] = {\n", count);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &table[i], sizeof(bits));
        gyre_text_add(text, "0x%08xu,%s", bits, i % 8 == 7 ? "\n" : "");
    }
    gyre_text_add(text, "};\n#define gy_table(i) "
                        "gy_as_float(gy_codec_table[i])\n");
}

static gyre_status check_codec(const gyre_codec *codec, gyre_error *error)
{
    const gyre_codec_kernel *kernel = gyre_codec_kernel_of(codec);

    if (kernel == NULL)
        return gyre_fail(error, GYRE_UNSUPPORTED,
                         "compressor %s has no portable decoder (extension "
                         "%s), so a device cannot decode beside its update; "
                         "use compute \"cpu\" or another compressor",
                         gyre_codec_name(codec), GYRE_CODEC_KERNEL);
    if (kernel->name_count > KERNEL_NAMES)
        return gyre_fail(error, GYRE_PLUGIN_BAD,
                         "compressor %s: its decoder has %u constants, at "
                         "most %d are allowed",
                         gyre_codec_name(codec), kernel->name_count,
                         KERNEL_NAMES);
    return GYRE_OK;
}

gyre_status gyre_source_make(gyre_context *context, const char *language,
                             const gyre_device_spec *spec, char **out,
                             size_t *shared, gyre_error *error)
{
    gyre_text text = {.context = context};
    char *copy = NULL;
    size_t words;

    if (spec->codec != NULL) {
        gyre_status status = check_codec(spec->codec, error);

        if (status != GYRE_OK)
            return status;
    }
    gyre_source_words(&text, language);
    gyre_source_states(&text);
    if (spec->codec != NULL)
        gyre_source_table(&text, spec->codec);
    add_defines(&text, gyre_opt_defines(spec->opt));
    words = add_kernel(&text, spec);
    if (!text.failed)
        copy = gyre_copy_text(context, text.at);
    gyre_text_free(&text);
    if (copy == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "device program: no memory");
    *out = copy;
    *shared = words * sizeof(float);
    return GYRE_OK;
}
