/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program text of a device.
 *
 * Every name of ours begins with gy_, so that the plugin's own names (slots,
 * scalars, locals) are free; a local named like a built-in function ("step")
 * hides it, which both languages allow.
 */
#include "config.h"

#include "device/source.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
    "#define GY_KERNEL __kernel void\n"
    "#define GY_FN static\n"
    "#define GY_GLOBAL __global\n"
    "#define GY_SHARED __local\n"
    "#define GY_LOCAL __local\n"
    "#define GY_TABLE __constant\n"
    "#define gy_group() ((uint)get_group_id(0))\n"
    "#define gy_item() ((uint)get_local_id(0))\n"
    "#define gy_items() ((uint)get_local_size(0))\n"
    "#define gy_barrier() barrier(CLK_LOCAL_MEM_FENCE)\n"
    "#define gy_atomic_max(at, x) atomic_max(at, x)\n"
    "#define gy_atomic_or(at, x) atomic_or(at, x)\n"
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
    "#define GY_KERNEL extern \"C\" __global__ void\n"
    "#define GY_FN static __device__ __forceinline__\n"
    "#define GY_GLOBAL\n"
    "#define GY_SHARED __shared__\n"
    "#define GY_LOCAL\n"
    "#define GY_TABLE static __device__ const\n"
    "#define gy_group() (blockIdx.x)\n"
    "#define gy_item() (threadIdx.x)\n"
    "#define gy_items() (blockDim.x)\n"
    "#define gy_barrier() __syncthreads()\n"
    "#define gy_atomic_max(at, x) atomicMax(at, x)\n"
    "#define gy_atomic_or(at, x) atomicOr(at, x)\n"
    "#define gy_as_float(x) __uint_as_float((uint)(x))\n"
    "#define gy_as_uint(x) __float_as_uint((float)(x))\n"
    "GY_FN float gy_fma(float a, float b, float c) { return fmaf(a, b, c); }\n"
    "GY_FN float gy_sqrt(float a) { return sqrtf(a); }\n"
    "GY_FN float gy_abs(float a) { return fabsf(a); }\n";

static const char common_words[] =
    "GY_FN float gy_min(float a, float b) { return a < b ? a : b; }\n"
    "GY_FN float gy_max(float a, float b) { return a > b ? a : b; }\n"
    "GY_FN float gy_select(int c, float a, float b) { return c ? a : b; }\n";

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

    gyre_text_add(text,
                  "GY_KERNEL gyre_update(GY_GLOBAL uchar *gy_state,\n"
                  "    GY_GLOBAL const uint *gy_input, const uint gy_grains)\n"
                  "{\n"
                  "const uint gy_grain = gy_group();\n"
                  "const uint gy_lane = gy_item();\n"
                  "const uint gy_lanes = gy_items();\n"
                  "GY_GLOBAL const uint *gy_record = gy_input + "
                  "(ulong)gy_grain * %du;\n"
                  "const uint gy_n = gy_record[%d];\n"
                  "GY_GLOBAL const float *gy_scalar = (GY_GLOBAL const float "
                  "*)(gy_input + gy_record[%d]);\n"
                  "GY_GLOBAL const float *gy_raw = (GY_GLOBAL const float "
                  "*)(gy_input + gy_record[%d]);\n"
                  "const float gy_q = gy_as_float(gy_record[%d]);\n",
                  GYRE_RECORD_WORDS, GYRE_RECORD_N, GYRE_RECORD_SCALARS,
                  GYRE_RECORD_GRADIENT, GYRE_RECORD_Q);
    for (size_t v = 0; v < spec->vars; v++) {
        size_t stride = gyre_state_stride(spec->states[v]);

        gyre_text_add(text,
                      "GY_GLOBAL uchar *const gy_at%zu = gy_state + "
                      "(ulong)gy_grains * %zuu + (ulong)gy_grain * %zuu;\n",
                      v, before, stride);
        before += stride;
    }
}

static void add_element(gyre_text *text, const gyre_device_spec *spec)
{
    const gyre_opt *opt = spec->opt;
    size_t count = gyre_opt_kernel_slot_count(opt), place;

    gyre_source_load(text, spec->states[0], 0, "p");
    for (size_t i = 0; i < count; i++) {
        const char *name = gyre_opt_kernel_slot_name(opt, i, &place);

        if (place > 0)
            gyre_source_load(text, spec->states[place], place, name);
        else
            gyre_text_add(text, "float %s = 0.0f;\n", name);
    }
    gyre_text_add(text, "{ %s }\n", gyre_opt_kernel_text(opt));
    gyre_source_store(text, spec->states[0], 0, "p");
    for (size_t i = 0; i < count; i++) {
        const char *name = gyre_opt_kernel_slot_name(opt, i, &place);

        if (place > 0)
            gyre_source_store(text, spec->states[place], place, name);
    }
}

static void add_kernel(gyre_text *text, const gyre_device_spec *spec)
{
    add_head(text, spec);
    gyre_text_add(text, "if (gy_n == 0u) return;\n");
    for (size_t i = 0; i < gyre_opt_scalar_count(spec->opt); i++)
        gyre_text_add(text, "const float %s = gy_scalar[%zu];\n",
                      gyre_opt_scalar_name(spec->opt, i), i);
    gyre_text_add(text, "for (uint gy_i = gy_lane; gy_i < gy_n; "
                        "gy_i += gy_lanes) {\n"
                        "float g = gy_raw[gy_i] * gy_q;\n");
    add_element(text, spec);
    gyre_text_add(text, "}\n}\n");
}

gyre_status gyre_source_make(gyre_context *context, const char *language,
                             const gyre_device_spec *spec, char **out,
                             gyre_error *error)
{
    gyre_text text = {.context = context};
    char *copy = NULL;

    gyre_text_add(&text, "%s%s%s",
                  strcmp(language, "cuda") == 0 ? cuda_words : opencl_words,
                  common_words, gyre_source_state);
    add_defines(&text, gyre_opt_defines(spec->opt));
    add_kernel(&text, spec);
    if (!text.failed)
        copy = gyre_copy_text(context, text.at);
    gyre_text_free(&text);
    if (copy == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "device program: no memory");
    *out = copy;
    return GYRE_OK;
}
