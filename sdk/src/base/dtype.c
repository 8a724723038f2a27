/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element types and their conversion to and from f32.
 *
 * The loops work on integer bits, have no branches and call nothing, so that
 * the compiler makes vector code of them and the bits do not depend on it.
 */
#include "config.h"

#include <gyre/dtype.h>

#include "base/base.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} table[] = {
    [GYRE_F32] = {"f32", 4}, [GYRE_F64] = {"f64", 8}, [GYRE_BF16] = {"bf16", 2},
    [GYRE_F16] = {"f16", 2}, [GYRE_I32] = {"i32", 4}, [GYRE_U8] = {"u8", 1},
};

enum { TABLE_COUNT = sizeof(table) / sizeof(table[0]) };

size_t gyre_dtype_bytes(gyre_dtype dtype)
{
    return (unsigned)dtype < TABLE_COUNT ? table[dtype].bytes : 0;
}

const char *gyre_dtype_name(gyre_dtype dtype)
{
    return (unsigned)dtype < TABLE_COUNT ? table[dtype].name : NULL;
}

gyre_status gyre_dtype_parse(const char *name, gyre_dtype *out,
                             gyre_error *error)
{
    if (name == NULL || out == NULL)
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_dtype_parse: name or out is NULL");
    for (unsigned i = 0; i < TABLE_COUNT; i++) {
        if (strcmp(name, table[i].name) == 0) {
            *out = (gyre_dtype)i;
            return GYRE_OK;
        }
    }
    return gyre_fail(error, GYRE_RANGE,
                     "dtype \"%s\" is not one of f32, f64, bf16, f16, i32, u8",
                     name);
}

/* ---- one element ----------------------------------------------------- */

static inline uint32_t bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static inline float float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

static inline float from_bf16(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

/* Adding half of the last place, less one when the kept part is even, rounds
 * to nearest even; a carry into the exponent is right, up to infinity. */
static inline uint16_t to_bf16(float x)
{
    uint32_t u = bits_of(x);
    uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
    uint32_t quiet = u | 0x400000u;

    return (uint16_t)(((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >>
                      16);
}

/*
 * Half precision has 5 exponent bits with bias 15, single 8 with bias 127.  A
 * half denormal m 2^-24 is made as (2^-14 + m 2^-24) - 2^-14: both terms and
 * the result are normal floats, so FTZ and DAZ cannot touch them.
 */
static inline float from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t rest = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t normal = rest + (112u << 23);
    uint32_t top = 0u - (rest >= (31u << 23));
    uint32_t low = 0u - (rest < (1u << 23));
    uint32_t small =
        bits_of(float_of(rest + (113u << 23)) - float_of(113u << 23));

    normal += top & (112u << 23);
    return float_of((((normal & ~low) | (small & low))) | sign);
}

/*
 * A result that is a half denormal is rounded by adding 0.5, whose last place
 * is 2^-24, the step of half denormals; a single denormal is far below half
 * of that step, so that DAZ changes nothing.
 */
static inline uint16_t to_f16(float x)
{
    uint32_t u = bits_of(x);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t rest = u & 0x7fffffffu;
    uint32_t normal =
        (rest - (112u << 23) + 0xfffu + ((rest >> 13) & 1u)) >> 13;
    uint32_t small = bits_of(float_of(rest) + 0.5f) - bits_of(0.5f);
    uint32_t is_small = 0u - (rest < (113u << 23));
    uint32_t is_large = 0u - (rest >= 0x477ff000u); /* 65520 */
    uint32_t is_nan = 0u - (rest > 0x7f800000u);
    uint32_t quiet = 0x7e00u | ((rest >> 13) & 0x1ffu);
    uint32_t out = (normal & ~is_small) | (small & is_small);

    out = (out & ~is_large) | (0x7c00u & is_large);
    out = (out & ~is_nan) | (quiet & is_nan);
    return (uint16_t)(out | sign);
}

static inline float from_f32(float x)
{
    return x;
}

static inline float from_f64(double x)
{
    return (float)x;
}

static inline float to_f32(float x)
{
    return x;
}

static inline double to_f64(float x)
{
    return (double)x;
}

/* ---- loops ----------------------------------------------------------- */

typedef void (*to_function)(const void *src, size_t stride, float *dst,
                            size_t n);
typedef void (*from_function)(const float *src, void *dst, size_t n);

/* By number of a float dtype, GYRE_F32 to GYRE_F16. */
typedef struct loop_table {
    to_function to[4];
    from_function from[4];
} loop_table;

/* Contiguous first: with a stride the compiler gathers one by one. */
#define LOOP_TO(set, target, convert, type)                                    \
    target static void loop_##convert##_##set(const void *from, size_t stride, \
                                              float *restrict dst, size_t n)   \
    {                                                                          \
        const type *restrict src = from;                                       \
        if (stride == 1) {                                                     \
            for (size_t i = 0; i < n; i++)                                     \
                dst[i] = convert(src[i]);                                      \
        } else {                                                               \
            for (size_t i = 0; i < n; i++)                                     \
                dst[i] = convert(src[i * stride]);                             \
        }                                                                      \
    }

#define LOOP_FROM(set, target, convert, type)                            \
    target static void loop_##convert##_##set(const float *restrict src, \
                                              void *to, size_t n)        \
    {                                                                    \
        type *restrict dst = to;                                         \
        for (size_t i = 0; i < n; i++)                                   \
            dst[i] = convert(src[i]);                                    \
    }

#define LOOPS(set, target)                                               \
    LOOP_TO(set, target, from_f32, float)                                \
    LOOP_TO(set, target, from_f64, double)                               \
    LOOP_TO(set, target, from_bf16, uint16_t)                            \
    LOOP_TO(set, target, from_f16, uint16_t)                             \
    LOOP_FROM(set, target, to_f32, float)                                \
    LOOP_FROM(set, target, to_f64, double)                               \
    LOOP_FROM(set, target, to_bf16, uint16_t)                            \
    LOOP_FROM(set, target, to_f16, uint16_t)                             \
    static const loop_table loops_##set = {                              \
        {loop_from_f32_##set, loop_from_f64_##set, loop_from_bf16_##set, \
         loop_from_f16_##set},                                           \
        {loop_to_f32_##set, loop_to_f64_##set, loop_to_bf16_##set,       \
         loop_to_f16_##set}};

LOOPS(scalar, )

#if defined(__x86_64__)
/* Packing 32 bits to 16 takes several steps in SSE2 and one here. */
LOOPS(avx2, __attribute__((target("avx2"))))
#endif

static const loop_table *loops_of(gyre_isa isa)
{
#if defined(__x86_64__)
    if (isa != GYRE_ISA_SCALAR)
        return &loops_avx2;
#endif
    (void)isa;
    return &loops_scalar;
}

/* No context here, and none is needed: the bits are the same. */
static gyre_isa isa_here(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return GYRE_ISA_AVX2;
#endif
    return GYRE_ISA_SCALAR;
}

static bool is_float(gyre_dtype dtype)
{
    return (unsigned)dtype <= GYRE_F16;
}

int gyre_to_f32_with(gyre_isa isa, gyre_dtype from, const void *src,
                     size_t stride, float *dst, size_t n)
{
    if (!is_float(from))
        return 0;
    loops_of(isa)->to[from](src, stride, dst, n);
    return 1;
}

int gyre_from_f32_with(gyre_isa isa, gyre_dtype to, const float *src, void *dst,
                       size_t n)
{
    if (!is_float(to))
        return 0;
    loops_of(isa)->from[to](src, dst, n);
    return 1;
}

int gyre_to_f32(gyre_dtype from, const void *src, size_t stride, float *dst,
                size_t n)
{
    return gyre_to_f32_with(isa_here(), from, src, stride, dst, n);
}

int gyre_from_f32(gyre_dtype to, const float *src, void *dst, size_t n)
{
    return gyre_from_f32_with(isa_here(), to, src, dst, n);
}
