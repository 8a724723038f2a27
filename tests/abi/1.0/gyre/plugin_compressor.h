/* SPDX-License-Identifier: Apache-2.0 */
/* Plugins of kind "gyre.compressor/1"; gyre/plugin.h includes this. */
#ifndef GYRE_PLUGIN_COMPRESSOR_H
#define GYRE_PLUGIN_COMPRESSOR_H

#include <gyre/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GYRE_KIND_COMPRESSOR "gyre.compressor/1"

/*
 * A compressor makes few bytes of many floats.  Its unit is a **grain**: n <=
 * 1,024 neighbouring elements of one tensor, from a multiple of 1,024 on (only
 * a tensor's last grain is shorter).  Grains know nothing of each other, and a
 * codec's own blocks divide 1,024, so no cut of a tensor changes a payload.
 *
 *     x[n] --compress--> payload --decompress--> out[n] == kept[n]
 *
 * A payload has exactly bytes(values, n) bytes, a multiple of 4; with
 * GYRE_CODEC_VARIABLE at most that, and may be empty.  It is little-endian and
 * says the same on every machine.
 */
enum { GYRE_CODEC_GRAIN = 1024 };
enum {
    GYRE_CODEC_VARIABLE = 1u << 0,   /* payloads differ in length */
    GYRE_CODEC_BARRIER = 1u << 1,    /* every element is surveyed before any is
                                        compressed */
    GYRE_CODEC_STOCHASTIC = 1u << 2, /* rounds by gyre_hash of key and index */
    GYRE_CODEC_SPARSE = 1u << 3 /* can list what it kept, see gyre_compress */
};

/* What a SPARSE codec kept of a grain, the rest being +0: index ascending. */
typedef struct gyre_sparse {
    size_t count;
    uint32_t index[GYRE_CODEC_GRAIN];
    float kept[GYRE_CODEC_GRAIN];
} gyre_sparse;

/* Compress one grain.  x is finite (the host skips a round that is not). */
typedef struct gyre_compress {
    size_t size;
    const double *values; /* of the parameter table */
    const void *decided;  /* BARRIER: what the survey came to; else NULL */
    size_t n;
    const float *x;
    uint64_t index;   /* of x[0] in its tensor */
    uint64_t place;   /* of x[0] among all elements of the survey, tensors one
                         behind the other; 0 without a survey */
    uint32_t key[2];  /* seed, tensor and step, mixed */
    uint8_t *payload; /* room for bytes(values, n), aligned to 4 */
    float *kept;      /* n floats: what decompress will give, bit for bit;
                         NULL with sparse */
    gyre_sparse
        *sparse; /* of a SPARSE codec that may list instead; else NULL */
} gyre_compress;

/* Look at one grain before compressing. */
typedef struct gyre_survey {
    size_t size;
    const double *values;
    uint32_t pass;       /* from 0 */
    uint32_t reserved;   /* 0 */
    const void *decided; /* after the passes before; zeros in pass 0 */
    size_t n;
    const float *x;
    uint64_t place;    /* as in gyre_compress */
    uint64_t elements; /* of the whole survey */
    void *summary; /* survey_bytes, zeros at the start of a pass; add to it */
} gyre_survey;

/*
 * The loops of one instruction set; the bits are the scalar set's.  All: any
 * thread, no allocation, no side effects, rounding and denormals pinned.
 *
 * compress: returns the bytes written.
 * decompress: out[n] from any `bytes` bytes; nonzero when they are impossible
 *   (length, index out of range or not ascending, reserved bits, a scale that
 *   is no number), with out in any state.  Never reads or writes beyond.
 * accumulate: out[i] += decompressed[i], the plain f32 sum of every element
 *   (so that -0 + 0 is 0 whatever is left out); else as decompress.
 * survey: not called without GYRE_CODEC_BARRIER.
 */
typedef struct gyre_codec_loop {
    size_t size;
    size_t (*compress)(const gyre_compress *job);
    int (*decompress)(const double *values, size_t n, const uint8_t *payload,
                      size_t bytes, float *out);
    int (*accumulate)(const double *values, size_t n, const uint8_t *payload,
                      size_t bytes, float *out);
    void (*survey)(const gyre_survey *job);
} gyre_codec_loop;

/*
 * check: NULL, or one sentence about values that do not go together.
 * flags: GYRE_CODEC_... for these values; or'ed with those of the descriptor.
 * bytes: of a payload of n elements; n = 1..1024; not falling with n.
 * merge: into += from, two summaries of one pass; commutative and associative
 *   (integers, no floats), so that threads may survey in any order.
 * decide: fill decided[decided_bytes] from the whole summary of a pass over
 *   `elements` elements in places below `extent`; 1: another pass, 0: done.
 */
typedef struct gyre_compressor {
    size_t size;
    uint32_t format; /* raised when the same payload would mean something else
                      */
    uint32_t flags;
    uint32_t survey_bytes;        /* BARRIER, else 0; at most 1 MiB */
    uint32_t decided_bytes;       /* BARRIER, else 0; at most 256 */
    const gyre_codec_loop *loops; /* by instruction set; an entry without
                                     compress: none; scalar is a must */
    uint32_t loop_count;
    uint32_t reserved;
    const char *(*check)(const double *values);
    uint32_t (*flags_of)(const double *values); /* NULL: those above */
    size_t (*bytes)(const double *values, size_t n);
    void (*merge)(void *into, const void *from);
    int (*decide)(const double *values, uint32_t pass, const void *summary,
                  uint64_t elements, uint64_t extent, void *decided);
} gyre_compressor;

/*
 * Extension "gyre.compressor.kernel/1": the decoder as text in the common
 * subset of C, OpenCL C and CUDA C, for a device that decodes beside its
 * update.  It sees
 *
 *     int gy_n, gy_bytes               elements and payload bytes of the grain
 *     gy_u8(at) gy_u16(at) gy_u32(at)  payload readers: uint; `at` in bytes,
 *     gy_f32(at)                       aligned to the size read
 *     gy_bits(u)                       the float with these bits
 *     gy_table(i)                      element of `table`
 *     every name of `names`            an int constant
 *
 * and may use int, uint and float locals, + - * / % & | ^ << >> (unsigned for
 * the last four), comparison, if, ?:, for, while.  Sums and products of floats
 * stand in statements of their own where one follows the other.
 *
 * DECODE: statements for one element gy_i that set the float g.
 * SCATTER: statements for one of gy_lanes workers, gy_lane; they call
 *   gy_put(i, value) for what is not zero, no element twice.  gy_put ignores
 *   an i outside 0..gy_n - 1.
 *
 * Bytes that decompress would refuse may decode to anything, but reads must
 * stay within gy_bytes.
 */
#define GYRE_CODEC_KERNEL "gyre.compressor.kernel/1"

enum { GYRE_KERNEL_DECODE = 0, GYRE_KERNEL_SCATTER = 1 };

typedef struct gyre_codec_kernel {
    size_t size;
    uint32_t form; /* GYRE_KERNEL_... */
    uint32_t name_count;
    uint32_t reserved;
    const char *text;
    const char *const *names;
    void (*constants)(const double *values, int32_t *out); /* out[name_count] */
    const float *(*table)(const double *values, size_t *count); /* or NULL */
} gyre_codec_kernel;

/*
 * Extension "gyre.compressor.encode/1": the compressor as text in the same
 * subset, for a device on which gradients are born.  gy_lanes workers run it
 * for one grain, each as gy_lane.  Names, constants and table are those of the
 * decoder, which must be there too.  It sees
 *
 *     int gy_n, gy_bytes           elements, and bytes(values, gy_n)
 *     gy_x(i)                      element i: finite, never -0
 *     gy_keep(i, x)                what decompress will give for it
 *     gy_put8(at, u) gy_put16(at, u) gy_put32(at, u)
 *                                  payload writers; `at` as for the readers
 *     gy_word(i)                   uint, i < 1024, shared by the workers
 *     gy_wide(i)                   double, i < 512, in the same memory
 *     gy_barrier()                 all workers wait for each other: none may
 *                                  come by a way that another does not take
 *     uint gy_index, gy_index_high place of element 0 in its tensor
 *     uint gy_key, gy_key_high     as key[2] of gyre_compress
 *     gyre_hash(key0, key1, counter), gy_to_bits(x)
 *     gy_bits, gy_table and the names as the decoder does
 *
 * and may use double locals for sums.  Every element is kept by one worker and
 * every byte written, zeros at the end too.  gy_n and gy_bytes are the same for
 * all workers, shared words hold anything at the start, gy_lanes is not known.
 * Payload and kept values are those of `compress`, bit for bit.
 */
#define GYRE_CODEC_ENCODE "gyre.compressor.encode/1"

typedef struct gyre_codec_encoder {
    size_t size;
    const char *text;
    int (*able)(const double *values); /* of these too?  NULL: of all */
} gyre_codec_encoder;

/*
 * A random word for each counter: 32-bit integer operations alone, so that
 * every device has the same.  Two rounds of a multiply-and-shift mix with a key
 * word before each; every input bit flips every output bit about half the time.
 * GYRE_HASH_TEXT is the function as text for a device, over `uint`.
 */
#define GY_HASH_(kind, U)                            \
    kind U gyre_hash(U key0, U key1, U counter)      \
    {                                                \
        U x = (counter ^ key0) * 0x9e3779b1u + key1; \
        x = (x ^ (x >> 16)) * 0x7feb352du;           \
        x = (x ^ (x >> 15)) * 0x846ca68bu;           \
        x = (x ^ (x >> 16)) + key0;                  \
        x = (x ^ (x >> 17)) * 0xed5ad4bbu;           \
        x = (x ^ (x >> 11)) * 0xac4c1b51u;           \
        x = (x ^ (x >> 15)) * 0x31848babu;           \
        return x ^ (x >> 14);                        \
    }
#define GY_TEXT_(...) #__VA_ARGS__
#define GY_TEXT_OF_(...) GY_TEXT_(__VA_ARGS__)
#define GYRE_HASH_TEXT GY_TEXT_OF_(GY_HASH_(, uint))
GY_HASH_(__attribute__((unused)) static inline, uint32_t)

/* ---- writing a compressor ---------------------------------------------- */

/*
 * Before including this header, define GY_COMPRESSOR and
 *
 *     #define GY_PARAMETERS(P) P(ratio, GYRE_STRUCTURAL, ...) ...
 *
 * all of them structural and at least one.  Then write, with `isa` a constant
 * in each copy (GYRE_LOOP_...), so that a body may branch to faster code,
 *
 *     GY_INLINE_ size_t compress(const gyre_compress *job, int isa)
 *     GY_INLINE_ int decompress(const gy_values *v, size_t n,
 *                               const uint8_t *payload, size_t bytes,
 *                               float *out, int isa)
 *     GY_INLINE_ void survey(const gyre_survey *job, int isa)
 *
 * and functions over gy_values, and end with
 *
 *     GY_DECODE(statements)  or  GY_SCATTER(statements), from "name.kernel",
 *         after defining GY_NAMES(N) as N(GY_ONE) N(GY_TWO) ..., with
 *     GYRE_CODEC_TEXT(constants, table)  where constants(v, out) fills one
 *         int32_t for each name and table(v, &count) returns floats; or, with
 *         GY_ENCODE(statements), from "name.encode", before it,
 *     GYRE_CODEC_TEXTS(constants, table, able)
 *     GYRE_CODEC_LOOPS(compress, decompress, survey)
 *     static const gyre_compressor name = {... gy_codec_loops_ ...};
 *     GYRE_COMPRESSOR(id, "1.0.0", "summary", "licence", claims, &name)
 *     GYRE_MODULE(id, &gyre_plugin_id)
 *
 * gy_no_survey, gy_no_table serve where there is nothing to say.
 */
#ifdef GY_COMPRESSOR

/* A float's bits and back; payload words, little-endian, aligned or not. */
GY_INLINE_ uint32_t gy_to_bits(float x)
{
    uint32_t u;

    __builtin_memcpy(&u, &x, sizeof(u));
    return u;
}
GY_INLINE_ float gy_bits(uint32_t u)
{
    float x;

    __builtin_memcpy(&x, &u, sizeof(x));
    return x;
}
GY_INLINE_ uint32_t gy_get32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
           (uint32_t)at[3] << 24;
}
GY_INLINE_ uint32_t gy_get16(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}
GY_INLINE_ void gy_put32(uint8_t *at, uint32_t u)
{
    at[0] = (uint8_t)u;
    at[1] = (uint8_t)(u >> 8);
    at[2] = (uint8_t)(u >> 16);
    at[3] = (uint8_t)(u >> 24);
}
GY_INLINE_ void gy_put16(uint8_t *at, uint32_t u)
{
    at[0] = (uint8_t)u;
    at[1] = (uint8_t)(u >> 8);
}
/* Bits of the largest |x|. */
GY_INLINE_ uint32_t gy_largest(const float *x, size_t n)
{
    int32_t most = 0;

    for (size_t i = 0; i < n; i++) {
        int32_t bits = (int32_t)(gy_to_bits(x[i]) & 0x7fffffffu);

        most = bits > most ? bits : most;
    }
    return (uint32_t)most;
}
/* Grows a payload's size to a multiple of 4. */
GY_INLINE_ size_t gy_round4(size_t bytes)
{
    return (bytes + 3) / 4 * 4;
}
/* Zeros from `used` to the multiple of 4 that it returns; and are they? */
GY_INLINE_ size_t gy_pad4(uint8_t *payload, size_t used)
{
    size_t bytes = gy_round4(used);

    while (used < bytes)
        payload[used++] = 0;
    return bytes;
}
GY_INLINE_ int gy_padded4(const uint8_t *payload, size_t used)
{
    size_t bytes = gy_round4(used);
    uint8_t any = 0;

    while (used < bytes)
        any |= payload[used++];
    return any == 0;
}

/*
 * A small float: `mantissa` bits behind the point, smallest normal exponent
 * `low`, largest value `most`.  gy_mini_round rounds y >= 0 to the nearest,
 * even for ties, and saturates: adding and taking off a number whose last bit
 * is the one to round to.  gy_mini_code numbers the rounded value.
 */
typedef struct gy_mini {
    int mantissa, low;
    float most;
    int scale_low, scale_high; /* exponents of a block's power-of-two scale */
} gy_mini;

GY_INLINE_ float gy_power(int e) /* 2^e, e = -126 .. 127 */
{
    return gy_bits((uint32_t)(e + 127) << 23);
}
GY_INLINE_ float gy_mini_round(const gy_mini mini, float y)
{
    uint32_t exponent = gy_to_bits(y) & 0x7f800000u;
    uint32_t low = (uint32_t)(mini.low + 127) << 23;
    float big;

    exponent = exponent > low ? exponent : low;
    big = gy_bits((exponent + ((uint32_t)(23 - mini.mantissa) << 23)) |
                  0x400000u);
    y = gy_min(y, 2.0f * mini.most);
    y = (y + big) - big;
    return gy_min(y, mini.most);
}
GY_INLINE_ uint32_t gy_mini_code(const gy_mini mini, float y)
{
    uint32_t normal = (gy_to_bits(y) >> (23 - mini.mantissa)) -
                      ((uint32_t)(126 + mini.low) << mini.mantissa);
    uint32_t small = (uint32_t)(int32_t)(gy_min(y, gy_power(mini.low)) *
                                         gy_power(mini.mantissa - mini.low));

    return y >= gy_power(mini.low) ? normal : small;
}
GY_INLINE_ float gy_mini_value(const gy_mini mini, uint32_t code)
{
    uint32_t exponent = code >> mini.mantissa;
    uint32_t part = code & ((1u << mini.mantissa) - 1u);

    if (exponent == 0)
        return (float)(int32_t)part * gy_power(mini.low - mini.mantissa);
    return gy_bits(((uint32_t)(126 + mini.low) + exponent) << 23 |
                   part << (23 - mini.mantissa));
}
/* Exponent of the smallest scale at which a block whose largest |x| has these
 * bits does not saturate, within the limits. */
GY_INLINE_ int gy_mini_scale(const gy_mini mini, uint32_t largest)
{
    int top = (int)(gy_to_bits(mini.most) >> 23) - 127;
    int e = (int)(largest >> 23) - 127 - top;

    e = e < mini.scale_low ? mini.scale_low : e;
    e = e > mini.scale_high ? mini.scale_high : e;
    if (gy_bits(largest) * gy_power(-e) > mini.most && e < mini.scale_high)
        e++;
    return e;
}

GY_INLINE_ void gy_no_survey(const gyre_survey *job, int isa)
{
    (void)job;
    (void)isa;
}
GY_INLINE_ const float *gy_no_table(const gy_values *values, size_t *count)
{
    (void)values;
    *count = 0;
    return NULL;
}

/* Rounding loops are bound by the processor, so that the widest vectors pay. */
#if defined(__clang__)
#define GY_AVX512_WIDE_ GY_AVX512_
#else
#define GY_AVX512_WIDE_                                                  \
    __attribute__((target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw," \
                          "prefer-vector-width=512")))
#endif

#define GY_CODEC_FACE_(suffix, isa, target, C, D, S)                         \
    target static size_t gy_compress_##suffix(const gyre_compress *job)      \
    {                                                                        \
        return C(job, isa);                                                  \
    }                                                                        \
    target static int gy_decompress_##suffix(const double *values, size_t n, \
                                             const uint8_t *payload,         \
                                             size_t bytes, float *out)       \
    {                                                                        \
        return D(GY_VALUES_(values), n, payload, bytes, out, isa);           \
    }                                                                        \
    target static int gy_accumulate_##suffix(const double *values, size_t n, \
                                             const uint8_t *payload,         \
                                             size_t bytes, float *out)       \
    {                                                                        \
        float more[GYRE_CODEC_GRAIN];                                        \
                                                                             \
        if (D(GY_VALUES_(values), n, payload, bytes, more, isa) != 0)        \
            return 1;                                                        \
        for (size_t i = 0; i < n; i++)                                       \
            out[i] += more[i];                                               \
        return 0;                                                            \
    }                                                                        \
    target static void gy_survey_##suffix(const gyre_survey *job)            \
    {                                                                        \
        S(job, isa);                                                         \
    }
#define GY_CODEC_ROW_(suffix)                                                  \
    {                                                                          \
        sizeof(gyre_codec_loop), gy_compress_##suffix, gy_decompress_##suffix, \
            gy_accumulate_##suffix, gy_survey_##suffix                         \
    }
#if defined(__x86_64__)
#define GYRE_CODEC_LOOPS(C, D, S)                                      \
    GY_CODEC_FACE_(scalar, GYRE_LOOP_SCALAR, , C, D, S)                \
    GY_CODEC_FACE_(avx2, GYRE_LOOP_AVX2, GY_AVX2_, C, D, S)            \
    GY_CODEC_FACE_(avx512, GYRE_LOOP_AVX512, GY_AVX512_WIDE_, C, D, S) \
    static const gyre_codec_loop gy_codec_loops_[] = {                 \
        GY_CODEC_ROW_(scalar), GY_CODEC_ROW_(avx2), GY_CODEC_ROW_(avx512)};
#else
#define GYRE_CODEC_LOOPS(C, D, S)                       \
    GY_CODEC_FACE_(scalar, GYRE_LOOP_SCALAR, , C, D, S) \
    static const gyre_codec_loop gy_codec_loops_[] = {GY_CODEC_ROW_(scalar)};
#endif
#define GYRE_CODEC_LOOP_COUNT \
    ((uint32_t)(sizeof(gy_codec_loops_) / sizeof(gy_codec_loops_[0])))

#define GY_DECODE(...)                                  \
    static const char gy_decode_text_[] = #__VA_ARGS__; \
    enum { gy_decode_form_ = GYRE_KERNEL_DECODE };
#define GY_SCATTER(...)                                 \
    static const char gy_decode_text_[] = #__VA_ARGS__; \
    enum { gy_decode_form_ = GYRE_KERNEL_SCATTER };

#define GY_CONSTANT_NAME_(name) #name,
#define GY_ENCODE(...) static const char gy_encode_text_[] = #__VA_ARGS__;
#define GYRE_CODEC_TEXTS(constants, table, able)            \
    static const gyre_codec_encoder gy_codec_encoder_ = {   \
        sizeof(gyre_codec_encoder), gy_encode_text_, able}; \
    GY_CODEC_TEXTS_(constants, table, &gy_codec_encoder_)
#define GYRE_CODEC_TEXT(constants, table) \
    GY_CODEC_TEXTS_(constants, table, NULL)
#define GY_CODEC_TEXTS_(constants, table, encoder)                        \
    static void gy_constants_(const double *values, int32_t *out)         \
    {                                                                     \
        constants(GY_VALUES_(values), out);                               \
    }                                                                     \
    static const float *gy_table_of_(const double *values, size_t *count) \
    {                                                                     \
        return table(GY_VALUES_(values), count);                          \
    }                                                                     \
    static const char *const gy_constant_names_[] = {                     \
        GY_NAMES(GY_CONSTANT_NAME_)};                                     \
    static const gyre_codec_kernel gy_codec_kernel_ = {                   \
        sizeof(gyre_codec_kernel),                                        \
        gy_decode_form_,                                                  \
        sizeof(gy_constant_names_) / sizeof(gy_constant_names_[0]),       \
        0,                                                                \
        gy_decode_text_,                                                  \
        gy_constant_names_,                                               \
        gy_constants_,                                                    \
        gy_table_of_};                                                    \
    static const void *gy_extension_(const char *id)                      \
    {                                                                     \
        if (__builtin_strcmp(id, GYRE_CODEC_ENCODE) == 0)                 \
            return encoder;                                               \
        return __builtin_strcmp(id, GYRE_CODEC_KERNEL) == 0               \
                   ? &gy_codec_kernel_                                    \
                   : NULL;                                                \
    }

#define GYRE_COMPRESSOR(id, version, summary, licence, claims, descriptor)    \
    static const gyre_parameter gy_parameter_table_[] = {                     \
        GY_PARAMETERS(GY_PARAMETER_ENTRY_)};                                  \
    GY_EXTERN_ __attribute__((visibility("hidden")))                          \
    const gyre_plugin gyre_plugin_##id;                                       \
    const gyre_plugin gyre_plugin_##id = {sizeof(gyre_plugin),                \
                                          GYRE_KIND_COMPRESSOR,               \
                                          #id,                                \
                                          version,                            \
                                          summary,                            \
                                          licence,                            \
                                          gy_parameter_table_,                \
                                          sizeof(gy_parameter_table_) /       \
                                              sizeof(gy_parameter_table_[0]), \
                                          claims,                             \
                                          &gy_build_,                         \
                                          descriptor,                         \
                                          gy_extension_};

#endif /* GY_COMPRESSOR */

#ifdef __cplusplus
}
#endif

#endif
