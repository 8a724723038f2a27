/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plugin gives to Gyre: the only header that a plugin includes.
 *
 *     gyre_module_entry() -> gyre_module -> gyre_plugin ... -> descriptor
 *
 * A plugin is a shared object that exports one function, or the same file
 * compiled with GYRE_STATIC_MODULE and linked in.  Everything that it returns
 * is static and constant.  It links to the C library and libm, nothing else.
 *
 * Growth.  Every struct starts with its size and grows at its end only; a
 * reader takes a field as absent when the size does not reach it.  The stride
 * of an array of structs is the size of its first element.  A new capability
 * is an extension, asked for by a string "name/revision".  Only a change of
 * the major number breaks old plugins.
 *
 * What the kinds of plugin have in common stands here; each has a header of its
 * own, which this one includes at its end:
 *
 *     gyre/plugin_optimizer.h   four lists and a kernel, then this header
 *     gyre/plugin_compressor.h  GY_COMPRESSOR and parameters, then this header
 *     gyre/plugin_schedule.h    GY_SCHEDULE and parameters, then this header
 */
#ifndef GYRE_PLUGIN_H
#define GYRE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GYRE_PLUGIN_MAGIC UINT64_C(0x3145525947204447) /* "GD GYRE1" */
#define GYRE_PLUGIN_ABI_MAJOR 1
#define GYRE_PLUGIN_ABI_MINOR 0

/* ---- how it was built -------------------------------------------------- */

/* Instruction sets of a loop table, in this order.  New ones are appended. */
enum { GYRE_LOOP_SCALAR, GYRE_LOOP_AVX2, GYRE_LOOP_AVX512, GYRE_LOOP_COUNT };

/* out[i] = a[i] * b[i] + c[i], written plainly: the host runs it at load to
 * find out whether the compiler fuses what the source keeps apart. */
typedef void (*gyre_probe_function)(size_t n, const float *a, const float *b,
                                    const float *c, float *out);

enum {
    GYRE_BUILT_NO_MATH_ERRNO = 1u << 0, /* -fno-math-errno */
    GYRE_BUILT_FAST_MATH = 1u << 1,     /* -ffast-math or a part of it */
    GYRE_BUILT_OPTIMIZED = 1u << 2      /* -O1 or more */
};

typedef struct gyre_build {
    size_t size;
    const char *compiler;
    uint32_t flags; /* GYRE_BUILT_... */
    uint32_t pointer_bytes;
    uint32_t byte_order; /* 1234 little, 4321 big */
    uint32_t probe_count;
    const gyre_probe_function *probes; /* by instruction set, NULL: none */
} gyre_build;

/* ---- plugin and parameters --------------------------------------------- */

typedef enum gyre_parameter_type {
    GYRE_TYPE_SWITCH = 0, /* 0 or 1 */
    GYRE_TYPE_INT = 1,    /* a whole number */
    GYRE_TYPE_FLOAT = 2,
    GYRE_TYPE_CHOICE = 3 /* index of one of `words` */
} gyre_parameter_type;

typedef enum gyre_parameter_class {
    GYRE_STRUCTURAL = 0, /* fixed when the state is created */
    GYRE_STEP = 1        /* per parameter group, may change every step */
} gyre_parameter_class;

/* Values are doubles, always finite.  `ends` tells whether the limits belong
 * to the range: "[]", "[)", "(]" or "()"; an infinite limit is no limit. */
typedef struct gyre_parameter {
    size_t size;
    const char *name; /* [a-z][a-z0-9_]* */
    const char *doc;  /* one line */
    uint32_t klass;   /* gyre_parameter_class */
    uint32_t type;    /* gyre_parameter_type */
    double initial;   /* the default */
    double min, max;
    const char *ends;
    const char *words; /* of a choice: "torch|ema"; else NULL */
} gyre_parameter;

/* Claims.  The verifier tries to refute every one that is set. */
enum {
    GYRE_CLAIM_DETERMINISTIC = 1u << 0,   /* same input, same bits */
    GYRE_CLAIM_CHUNK_INVARIANT = 1u << 1, /* cut anywhere, same bits */
    GYRE_CLAIM_EXACT_KEPT = 1u << 2,      /* compressor: kept values exact */
    GYRE_CLAIM_UNBIASED = 1u << 3         /* compressor: mean is the input */
};

typedef struct gyre_plugin {
    size_t size;
    const char *kind;    /* GYRE_KIND_... */
    const char *name;    /* [a-z0-9][a-z0-9_-]* */
    const char *version; /* of the plugin: "1.0.0" */
    const char *summary; /* one line */
    const char *licence; /* SPDX expression */
    const gyre_parameter *parameters;
    uint32_t parameter_count;
    uint32_t flags; /* GYRE_CLAIM_... */
    const gyre_build *build;
    const void *descriptor; /* by kind: gyre_optimizer, ... */
    /* What `id` ("reduce/1") names, or NULL.  May be NULL.  Any thread. */
    const void *(*extension)(const char *id);
} gyre_plugin;

typedef struct gyre_module {
    uint64_t magic;
    size_t size;
    uint32_t abi_major;
    uint32_t abi_minor;
    const gyre_build *build;
    const gyre_plugin *const *plugins;
    size_t count;
} gyre_module;

/* The exported function.  No side effects; any thread; never NULL. */
typedef const gyre_module *(*gyre_module_entry_function)(void);

/* ---- writing a module -------------------------------------------------- */

#ifdef __cplusplus
#define GY_EXTERN_ extern "C"
#else
#define GY_EXTERN_ extern
#endif

#ifdef __NO_MATH_ERRNO__
#define GY_BUILT_ERRNO_ GYRE_BUILT_NO_MATH_ERRNO
#else
#define GY_BUILT_ERRNO_ 0u
#endif
#ifdef __FAST_MATH__
#define GY_BUILT_FAST_ GYRE_BUILT_FAST_MATH
#else
#define GY_BUILT_FAST_ 0u
#endif
#ifdef __OPTIMIZE__
#define GY_BUILT_OPTIMIZED_ GYRE_BUILT_OPTIMIZED
#else
#define GY_BUILT_OPTIMIZED_ 0u
#endif
#define GY_BUILD_(count, probes)                                    \
    {                                                               \
        sizeof(gyre_build), __VERSION__,                            \
            GY_BUILT_ERRNO_ | GY_BUILT_FAST_ | GY_BUILT_OPTIMIZED_, \
            sizeof(void *), __BYTE_ORDER__, count, probes           \
    }

/*
 * GYRE_MODULE(name, &gyre_plugin_a, ...) defines the exported function.  With
 * GYRE_STATIC_MODULE defined it is gyre_module_entry_<name> instead, to be
 * handed to gyre_plugin_add() or put into the library's own table.
 */
#ifdef GYRE_STATIC_MODULE
#define GY_ENTRY_(name) gyre_module_entry_##name
#define GY_ENTRY_VISIBILITY_ "hidden"
#else
#define GY_ENTRY_(name) gyre_module_entry
#define GY_ENTRY_VISIBILITY_ "default"
#endif

#define GYRE_MODULE(name, ...)                                                 \
    static const gyre_build gy_module_build_ = GY_BUILD_(0, NULL);             \
    static const gyre_plugin *const gy_module_plugins_[] = {__VA_ARGS__};      \
    static const gyre_module gy_module_ = {GYRE_PLUGIN_MAGIC,                  \
                                           sizeof(gyre_module),                \
                                           GYRE_PLUGIN_ABI_MAJOR,              \
                                           GYRE_PLUGIN_ABI_MINOR,              \
                                           &gy_module_build_,                  \
                                           gy_module_plugins_,                 \
                                           sizeof(gy_module_plugins_) /        \
                                               sizeof(gy_module_plugins_[0])}; \
    GY_EXTERN_ __attribute__((visibility(GY_ENTRY_VISIBILITY_)))               \
    const gyre_module *GY_ENTRY_(name)(void);                                  \
    GY_EXTERN_ const gyre_module *GY_ENTRY_(name)(void)                        \
    {                                                                          \
        return &gy_module_;                                                    \
    }

/* Parameter table entries: P(name, class, one of these, "doc"). */
#define GYRE_NO_LIMIT __builtin_inf()
#define GYRE_SWITCH(initial) GYRE_TYPE_SWITCH, (initial), 0.0, 1.0, "[]", NULL
#define GYRE_INT(initial, min, max) \
    GYRE_TYPE_INT, (initial), (min), (max), "[]", NULL
#define GYRE_FLOAT(initial, min, max, ends) \
    GYRE_TYPE_FLOAT, (initial), (min), (max), (ends), NULL
#define GYRE_CHOICE(initial, words) \
    GYRE_TYPE_CHOICE, (initial), 0.0, GYRE_NO_LIMIT, "[)", (words)

/* ---- what the writing of kinds shares ----------------------------------- */

#if defined(GY_SCALARS) || defined(GY_COMPRESSOR) || defined(GY_SCHEDULE)

#define GY_INLINE_ static inline __attribute__((always_inline, unused))

/* The parameters as a struct of doubles. */
#define GY_VALUE_FIELD_(name, klass, spec, doc) double name;
typedef struct gy_values {
    GY_PARAMETERS(GY_VALUE_FIELD_)
} gy_values;
#define GY_VALUES_(values) ((const gy_values *)(const void *)(values))
#define GY_PARAMETER_ENTRY_(name, klass, spec, doc) \
    {sizeof(gyre_parameter), #name, doc, klass, spec},

#endif

#if defined(GY_SCALARS) || defined(GY_COMPRESSOR)

#ifndef __NO_MATH_ERRNO__
#error "gyre: without -fno-math-errno no root is vectorised; compile with \
-O3 -fno-math-errno -fno-trapping-math -ffp-contract=off \
(pkg-config --cflags gyre-plugin)"
#endif
#if defined(__FAST_MATH__) || defined(__RECIPROCAL_MATH__) ||        \
    defined(__ASSOCIATIVE_MATH__) || defined(__NO_SIGNED_ZEROS__) || \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "gyre: -ffast-math and its parts change results; compile with \
-O3 -fno-math-errno -fno-trapping-math -ffp-contract=off \
(pkg-config --cflags gyre-plugin)"
#endif
/* 16: each type in itself, half precision too. */
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && \
    __FLT_EVAL_METHOD__ != 16
#error "gyre: float arithmetic must not be widened; on 32-bit x86 compile \
with -msse2 -mfpmath=sse"
#endif

GY_INLINE_ float gy_fma(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
GY_INLINE_ float gy_sqrt(float a)
{
    return __builtin_sqrtf(a);
}
GY_INLINE_ float gy_abs(float a)
{
    return __builtin_fabsf(a);
}
GY_INLINE_ float gy_min(float a, float b)
{
    return a < b ? a : b;
}
GY_INLINE_ float gy_max(float a, float b)
{
    return a > b ? a : b;
}
GY_INLINE_ float gy_select(int c, float a, float b)
{
    return c ? a : b;
}

GY_INLINE_ const char *gy_no_check(const gy_values *values)
{
    (void)values;
    return NULL;
}

/* One body, inlined into a function per instruction set. */
#if defined(__x86_64__)
#define GY_AVX2_ __attribute__((target("avx2,fma")))
#define GY_AVX512_ \
    __attribute__((target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw")))
#define GY_BY_ISA_(X, name, ...)          \
    X(name##_scalar, , __VA_ARGS__)       \
    X(name##_avx2, GY_AVX2_, __VA_ARGS__) \
    X(name##_avx512, GY_AVX512_, __VA_ARGS__)
#define GY_ISA_LIST_(name)                        \
    {                                             \
        name##_scalar, name##_avx2, name##_avx512 \
    }
#else
#define GY_BY_ISA_(X, name, ...) X(name##_scalar, , __VA_ARGS__)
#define GY_ISA_LIST_(name)        \
    {                             \
        name##_scalar, NULL, NULL \
    }
#endif
#if defined(__clang__)
/* A debug or sanitizer build vectorises nothing; that is no fault. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define GY_NO_ALIAS_ _Pragma("clang loop vectorize(assume_safety)")
#else
#define GY_NO_ALIAS_ _Pragma("GCC ivdep")
#endif

#define GY_PROBE_(name, target, ...)                                  \
    target static void name(size_t n, const float *a, const float *b, \
                            const float *c, float *out)               \
    {                                                                 \
        GY_NO_ALIAS_                                                  \
        for (size_t i = 0; i < n; i++)                                \
            out[i] = a[i] * b[i] + c[i];                              \
    }
GY_BY_ISA_(GY_PROBE_, gy_probe, )
static const gyre_probe_function gy_probes_[] = GY_ISA_LIST_(gy_probe);
static const gyre_build gy_build_ = GY_BUILD_(GYRE_LOOP_COUNT, gy_probes_);

#endif /* GY_SCALARS or GY_COMPRESSOR */

#ifdef __cplusplus
}
#endif

#include <gyre/plugin_compressor.h>
#include <gyre/plugin_optimizer.h>
#include <gyre/plugin_schedule.h>

#endif
