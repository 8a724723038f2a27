/* SPDX-License-Identifier: Apache-2.0 */
/* Plugins of kind "gyre.optimizer/1"; gyre/plugin.h includes this. */
#ifndef GYRE_PLUGIN_OPTIMIZER_H
#define GYRE_PLUGIN_OPTIMIZER_H

#include <gyre/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GYRE_KIND_OPTIMIZER "gyre.optimizer/1"

/* The host's arithmetic for step scalars: the same bits on every machine. */
typedef struct gyre_math {
    size_t size;
    double (*sqrt)(double x);
    double (*powi)(double x, uint64_t n); /* x to the n-th */
    double (*exp)(double x);
    double (*log)(double x);
    double (*pow)(double x, double y);
} gyre_math;

/*
 * One call updates n <= 4096 neighbouring elements of one tensor in place.
 * g is the gradient, scaled, and is not written.  slot[0] is the parameter;
 * the variant's state slots follow in the order of the slot list.  The arrays
 * do not overlap and are aligned to 4 bytes only.  Any thread; the host has
 * pinned rounding and denormals.
 */
typedef struct gyre_loop {
    size_t size;
    size_t n;
    const float *g;
    float *const *slot;
    const float *scalar;
    uint64_t index; /* of the first element in its tensor */
} gyre_loop;

typedef void (*gyre_loop_function)(const gyre_loop *loop);

typedef struct gyre_slot {
    size_t size;
    const char *name; /* a C identifier, PyTorch's where it has one */
    double initial;
    const char *parameter; /* the parameter that gives it instead, or NULL */
} gyre_slot;

/* A subset of the slots with the loops compiled for it.  Every slot, scalar
 * and switch name is known in every variant's kernel; an absent slot reads as
 * zero and is not stored. */
typedef struct gyre_variant {
    size_t size;
    const char *name;
    uint32_t slots;                  /* bit k: slot k is there */
    uint32_t switches;               /* bit k: switch k is 1 */
    const gyre_loop_function *loops; /* by instruction set; NULL: none */
    uint32_t loop_count;             /* at least 1: scalar is a must */
} gyre_variant;

/*
 * values[] is indexed as the parameter table.  All functions: any thread, no
 * allocation, no side effects.
 *
 * select: index of the variant for these values.  A later variant must also do
 *   what an earlier one does, when only step-class values tell them apart.
 * check: NULL, or one sentence about values that do not go together.
 * scalars: out[scalar_count] of the t-th applied step (first: 1), in double;
 *   the host rounds each once to f32.
 */
typedef struct gyre_optimizer {
    size_t size;
    uint32_t state_version; /* raised when old state means something else */
    uint32_t slot_count;
    uint32_t scalar_count;
    uint32_t switch_count;
    uint32_t variant_count;
    uint32_t reserved;
    const gyre_slot *slots;
    const char *const *scalar_names;
    const char *const *switch_names;
    const gyre_variant *variants;
    const char *kernel; /* the text between the brackets of GY_KERNEL */
    uint32_t (*select)(const double *values);
    const char *(*check)(const double *values);
    void (*scalars)(const double *values, uint64_t t, const gyre_math *math,
                    double *out);
} gyre_optimizer;

/* ---- writing an optimizer ---------------------------------------------- */

/*
 * Before including this header, define
 *
 *     #define GY_PARAMETERS(P) P(lr, GYRE_STEP, GYRE_FLOAT(...), "doc") ...
 *     #define GY_SLOTS(S)      S(exp_avg, 0.0, NULL) ...      (may be empty)
 *     #define GY_SCALARS(S)    S(step) ...
 *     #define GY_SWITCHES(S)   S(GY_AMSGRAD) ...              (optional)
 *     #define GY_VARIANTS(V)   V(name, slot mask, switch mask) ...  (optional)
 *
 * A mask is an OR of GY_SLOT(exp_avg) or GY_ON(GY_AMSGRAD), GY_ALL, or 0.
 * Then include "name.kernel", which holds one GY_KERNEL( statements ): the
 * update of one element in the common subset of C, OpenCL C and CUDA C.  It
 * sees g, p, every slot and scalar as floats and every switch as 0 or 1, and
 * may use + - * /, comparison, if, float locals, f-suffixed literals and
 *
 *     gy_fma(a, b, c)  a * b + c, rounded once     gy_sqrt(a)   gy_abs(a)
 *     gy_min(a, b)     a < b ? a : b
 *     gy_max(a, b)     a > b ? a : b       gy_select(c, a, b)   c ? a : b
 *
 * No preprocessor line may stand between the brackets.  Then define functions
 * over gy_values (a struct of the parameters) and gy_scalars and end with
 *
 *     GYRE_OPTIMIZER(name, "1.0.0", "summary", "licence", claims,
 *                    state version, select, check, scalars)
 *     GYRE_MODULE(name, &gyre_plugin_name)
 *
 * gy_first_variant and gy_no_check serve where there is nothing to say.
 */
#ifdef GY_SCALARS

#ifndef GY_SWITCHES
#define GY_SWITCHES(S)
#endif
#ifndef GY_VARIANTS
#define GY_VARIANTS(V) V(plain, GY_ALL, 0)
#endif

/* The tables and structs behind the lists. */
#define GY_SCALAR_FIELD_(name) double name;
#define GY_NAME_(name) #name,
typedef struct gy_scalars {
    GY_SCALARS(GY_SCALAR_FIELD_)
} gy_scalars;

#define GY_SLOT_ENUM_(name, initial, parameter) gy_slot_##name##_,
#define GY_SCALAR_ENUM_(name) gy_scalar_##name##_,
#define GY_SWITCH_ENUM_(name) gy_switch_##name##_,
#define GY_VARIANT_ENUM_(name, slots, switches) gy_variant_##name,
enum { GY_SLOTS(GY_SLOT_ENUM_) gy_slot_count_ };
enum { GY_SCALARS(GY_SCALAR_ENUM_) gy_scalar_count_ };
enum { GY_SWITCHES(GY_SWITCH_ENUM_) gy_switch_count_ };
enum { GY_VARIANTS(GY_VARIANT_ENUM_) gy_variant_count_ };
#define GY_SLOT(name) (1u << gy_slot_##name##_)
#define GY_ON(name) (1u << gy_switch_##name##_)
#define GY_ALL ((1u << gy_slot_count_) - 1u)

GY_INLINE_ uint32_t gy_first_variant(const gy_values *values)
{
    (void)values;
    return 0;
}
/* Loops: one body, inlined with constant masks into a function per variant and
 * instruction set, so that an absent slot costs nothing. */
#define GY_COUNT_BITS_(mask) ((unsigned)__builtin_popcount(mask))
#define GY_SLOT_POINTER_(name, initial, parameter)                          \
    float *gy_at_##name =                                                   \
        (gy_slots & GY_SLOT(name))                                          \
            ? gy->slot[1 + GY_COUNT_BITS_(gy_slots & (GY_SLOT(name) - 1u))] \
            : NULL;                                                         \
    (void)gy_at_##name;
#define GY_SLOT_LOAD_(name, initial, parameter) \
    float name = (gy_slots & GY_SLOT(name)) ? gy_at_##name[gy_i] : 0.0f;
#define GY_SLOT_STORE_(name, initial, parameter) \
    if (gy_slots & GY_SLOT(name))                \
        gy_at_##name[gy_i] = name;
#define GY_SCALAR_LOAD_(name)                           \
    const float name = gy->scalar[gy_scalar_##name##_]; \
    (void)name;
#define GY_SWITCH_LOAD_(name)                          \
    const int name = (gy_switches & GY_ON(name)) != 0; \
    (void)name;
#define GY_LOOP_(name, target, slots, switches)  \
    target static void name(const gyre_loop *gy) \
    {                                            \
        gy_body_(gy, slots, switches);           \
    }
#define GY_VARIANT_LOOPS_(name, slots, switches)          \
    GY_BY_ISA_(GY_LOOP_, gy_loop_##name, slots, switches) \
    static const gyre_loop_function gy_loops_##name[] =   \
        GY_ISA_LIST_(gy_loop_##name);

/*
 * Lines are fetched AHEAD elements before their turn, also past the tile's end,
 * where the next tile usually is: division and root fill the processor's
 * window, so that it sees less far ahead by itself than a plain copy does.
 * Fetching harms nothing where there is no memory.
 */
enum { GY_BLOCK_ = 64, GY_LINE_ = 16, GY_AHEAD_ = 256 };
#define GY_FETCH_(array) \
    __builtin_prefetch(  \
        (const void *)((uintptr_t)(array) + gy_next * sizeof(float)));
#define GY_SLOT_FETCH_(name, initial, parameter) \
    if (gy_slots & GY_SLOT(name))                \
    GY_FETCH_(gy_at_##name)
#define GY_ELEMENTS_(from, to, ...)                   \
    GY_NO_ALIAS_                                      \
    for (size_t gy_i = (from); gy_i < (to); gy_i++) { \
        float g = gy_at_g[gy_i];                      \
        float p = gy_at_p[gy_i];                      \
        GY_SLOTS(GY_SLOT_LOAD_){__VA_ARGS__}(void)g;  \
        gy_at_p[gy_i] = p;                            \
        GY_SLOTS(GY_SLOT_STORE_)                      \
    }

#define GY_KERNEL(...)                                                     \
    static const char gy_kernel_[] = #__VA_ARGS__;                         \
    GY_INLINE_ void gy_body_(const gyre_loop *gy, const uint32_t gy_slots, \
                             const uint32_t gy_switches)                   \
    {                                                                      \
        const size_t gy_n = gy->n;                                         \
        size_t gy_block = 0;                                               \
        const float *gy_at_g = gy->g;                                      \
        float *gy_at_p = gy->slot[0];                                      \
        GY_SLOTS(GY_SLOT_POINTER_)                                         \
        GY_SCALARS(GY_SCALAR_LOAD_)                                        \
        GY_SWITCHES(GY_SWITCH_LOAD_)                                       \
        (void)gy_slots;                                                    \
        (void)gy_switches;                                                 \
        for (; gy_block + GY_BLOCK_ <= gy_n; gy_block += GY_BLOCK_) {      \
            for (size_t gy_line = 0; gy_line < GY_BLOCK_;                  \
                 gy_line += GY_LINE_) {                                    \
                const size_t gy_next = gy_block + gy_line + GY_AHEAD_;     \
                GY_FETCH_(gy_at_g)                                         \
                GY_FETCH_(gy_at_p)                                         \
                GY_SLOTS(GY_SLOT_FETCH_)                                   \
            }                                                              \
            GY_ELEMENTS_(gy_block, gy_block + GY_BLOCK_, __VA_ARGS__)      \
        }                                                                  \
        GY_ELEMENTS_(gy_block, gy_n, __VA_ARGS__)                          \
    }                                                                      \
    GY_VARIANTS(GY_VARIANT_LOOPS_)

#define GY_SLOT_ENTRY_(name, initial, parameter) \
    {sizeof(gyre_slot), #name, initial, parameter},
#define GY_VARIANT_ENTRY_(name, slots, switches)            \
    {sizeof(gyre_variant), #name,          slots, switches, \
     gy_loops_##name,      GYRE_LOOP_COUNT},

#define GYRE_OPTIMIZER(id, version, summary, licence, claims, state, select,   \
                       check, scalars)                                         \
    static uint32_t gy_select_(const double *v)                                \
    {                                                                          \
        return select((const gy_values *)(const void *)v);                     \
    }                                                                          \
    static const char *gy_check_(const double *v)                              \
    {                                                                          \
        return check((const gy_values *)(const void *)v);                      \
    }                                                                          \
    static void gy_scalars_(const double *v, uint64_t t,                       \
                            const gyre_math *math, double *out)                \
    {                                                                          \
        scalars((const gy_values *)(const void *)v, t, math,                   \
                (gy_scalars *)(void *)out);                                    \
    }                                                                          \
    static const gyre_parameter gy_parameter_table_[] = {                      \
        GY_PARAMETERS(GY_PARAMETER_ENTRY_)};                                   \
    static const gyre_slot gy_slot_table_[] = {                                \
        GY_SLOTS(GY_SLOT_ENTRY_){sizeof(gyre_slot), NULL, 0.0, NULL}};         \
    static const char *const gy_scalar_names_[] = {GY_SCALARS(GY_NAME_) NULL}; \
    static const char *const gy_switch_names_[] = {GY_SWITCHES(GY_NAME_)       \
                                                       NULL};                  \
    static const gyre_variant gy_variant_table_[] = {                          \
        GY_VARIANTS(GY_VARIANT_ENTRY_)};                                       \
    static const gyre_optimizer gy_optimizer_ = {sizeof(gyre_optimizer),       \
                                                 state,                        \
                                                 gy_slot_count_,               \
                                                 gy_scalar_count_,             \
                                                 gy_switch_count_,             \
                                                 gy_variant_count_,            \
                                                 0,                            \
                                                 gy_slot_table_,               \
                                                 gy_scalar_names_,             \
                                                 gy_switch_names_,             \
                                                 gy_variant_table_,            \
                                                 gy_kernel_,                   \
                                                 gy_select_,                   \
                                                 gy_check_,                    \
                                                 gy_scalars_};                 \
    GY_EXTERN_ __attribute__((visibility("hidden")))                           \
    const gyre_plugin gyre_plugin_##id;                                        \
    const gyre_plugin gyre_plugin_##id = {sizeof(gyre_plugin),                 \
                                          GYRE_KIND_OPTIMIZER,                 \
                                          #id,                                 \
                                          version,                             \
                                          summary,                             \
                                          licence,                             \
                                          gy_parameter_table_,                 \
                                          sizeof(gy_parameter_table_) /        \
                                              sizeof(gy_parameter_table_[0]),  \
                                          claims,                              \
                                          &gy_build_,                          \
                                          &gy_optimizer_,                      \
                                          NULL};

#endif /* GY_SCALARS */

#ifdef __cplusplus
}
#endif

#endif
