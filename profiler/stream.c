/* SPDX-License-Identifier: Apache-2.0 */
/* Loops of the stream: per instruction set, shape and number of arrays. */
#include "config.h"

#include "stream.h"

#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define NO_ALIAS _Pragma("clang loop vectorize(assume_safety)")
#else
#define NO_ALIAS _Pragma("GCC ivdep")
#endif

/* An absent array costs nothing: the count is a constant after inlining. */
#define ADD(k)      \
    if (k < arrays) \
        x##k[i] += g[i];
INLINE void fused(size_t n, const float *g, float *const *x, int arrays)
{
    float *x0 = x[0], *x1 = arrays > 1 ? x[1] : NULL,
          *x2 = arrays > 2 ? x[2] : NULL, *x3 = arrays > 3 ? x[3] : NULL,
          *x4 = arrays > 4 ? x[4] : NULL, *x5 = arrays > 5 ? x[5] : NULL,
          *x6 = arrays > 6 ? x[6] : NULL, *x7 = arrays > 7 ? x[7] : NULL;

    NO_ALIAS
    for (size_t i = 0; i < n; i++) {
        ADD(0) ADD(1) ADD(2) ADD(3) ADD(4) ADD(5) ADD(6) ADD(7)
    }
}

/* The same with each line fetched AHEAD elements before its turn. */
enum { BLOCK = 64, LINE = 16, AHEAD = 256 };
INLINE void ahead(size_t n, const float *g, float *const *x, int arrays)
{
    float *block[STREAM_MAX];
    size_t at = 0;

    for (; at + BLOCK <= n; at += BLOCK) {
        for (size_t i = at + AHEAD; i < at + AHEAD + BLOCK; i += LINE) {
            __builtin_prefetch(g + i);
            for (int k = 0; k < arrays; k++)
                __builtin_prefetch(x[k] + i);
        }
        for (int k = 0; k < arrays; k++)
            block[k] = x[k] + at;
        fused(BLOCK, g + at, block, arrays);
    }
    for (int k = 0; k < arrays; k++)
        block[k] = x[k] + at;
    fused(n - at, g + at, block, arrays);
}

INLINE void split(size_t n, const float *g, float *const *x, int arrays)
{
    for (int k = 0; k < arrays; k++) {
        float *one = x[k];

        NO_ALIAS
        for (size_t i = 0; i < n; i++)
            one[i] += g[i];
    }
}

#define FUNCTION(isa, target, shape, arrays)                              \
    target static void shape##_##isa##_##arrays(size_t n, const float *g, \
                                                float *const *x)          \
    {                                                                     \
        shape(n, g, x, arrays);                                           \
    }
#define SHAPE(isa, target, shape)   \
    FUNCTION(isa, target, shape, 1) \
    FUNCTION(isa, target, shape, 2) \
    FUNCTION(isa, target, shape, 3) \
    FUNCTION(isa, target, shape, 4) \
    FUNCTION(isa, target, shape, 5) \
    FUNCTION(isa, target, shape, 6) \
    FUNCTION(isa, target, shape, 7) \
    FUNCTION(isa, target, shape, 8)
#define TABLE(isa, shape)                                            \
    {                                                                \
        shape##_##isa##_1, shape##_##isa##_2, shape##_##isa##_3,     \
            shape##_##isa##_4, shape##_##isa##_5, shape##_##isa##_6, \
            shape##_##isa##_7, shape##_##isa##_8                     \
    }
#define ISA(isa, target)                                            \
    SHAPE(isa, target, fused)                                       \
    SHAPE(isa, target, split)                                       \
    SHAPE(isa, target, ahead)                                       \
    static const stream_function isa[STREAM_SHAPES][STREAM_MAX] = { \
        TABLE(isa, fused), TABLE(isa, split), TABLE(isa, ahead)};

ISA(plain, )
#if defined(__x86_64__)
ISA(avx2, __attribute__((target("avx2"))))
ISA(avx512, __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw"))))
#endif

stream_function stream_best(size_t arrays, int shape)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        return avx512[shape][arrays - 1];
    if (__builtin_cpu_supports("avx2"))
        return avx2[shape][arrays - 1];
#endif
    return plain[shape][arrays - 1];
}

const char *stream_isa(void)
{
#if defined(__x86_64__)
    if (stream_best(1, 0) == avx512[0][0])
        return "avx512";
    if (stream_best(1, 0) == avx2[0][0])
        return "avx2";
#endif
    return "plain";
}
