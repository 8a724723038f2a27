/* SPDX-License-Identifier: Apache-2.0 */
/* Compression with error feedback, grain by grain. */
#include "config.h"

#include "device/device.h"
#include "device/feedback.h"

#include <string.h>

/* The next grain's lines are asked for while this one is worked on: selection
 * and rounding leave the processor no sight of it. */
enum { LINE = 64 };

/*
 * a = fma(g, q, kappa e) + 0: adding zero makes -0 a +0, so that what is sent
 * and what stays always add up to the same bits.  |bits| of a non-finite number
 * exceed those of any finite one; their maximum tells.
 */
#define MIX_BODY(name, attribute)                                          \
    attribute static int32_t name(const float *g, const float *e, float q, \
                                  float kappa, size_t n, float *a)         \
    {                                                                      \
        int32_t most = 0;                                                  \
                                                                           \
        if (e == NULL)                                                     \
            for (size_t i = 0; i < n; i++)                                 \
                a[i] = g[i] * q + 0.0f;                                    \
        else                                                               \
            for (size_t i = 0; i < n; i++) {                               \
                float kept = kappa * e[i];                                 \
                                                                           \
                a[i] = __builtin_fmaf(g[i], q, kept) + 0.0f;               \
            }                                                              \
        for (size_t i = 0; i < n; i++) {                                   \
            int32_t bits;                                                  \
                                                                           \
            memcpy(&bits, &a[i], sizeof(bits));                            \
            bits &= 0x7fffffff;                                            \
            most = bits > most ? bits : most;                              \
        }                                                                  \
        return most;                                                       \
    }                                                                      \
    attribute static void name##_rest(const float *a, const float *kept,   \
                                      size_t n, float *e)                  \
    {                                                                      \
        for (size_t i = 0; i < n; i++)                                     \
            e[i] = a[i] - kept[i];                                         \
    }

MIX_BODY(mix_scalar, )
#if defined(__x86_64__)
MIX_BODY(mix_avx2, __attribute__((target("avx2,fma"))))
MIX_BODY(mix_avx512, __attribute__((target("avx512f,avx512dq,avx512vl,fma"))))
#endif

static int32_t mix(gyre_isa isa, const float *g, const float *e, float q,
                   float kappa, size_t n, float *a)
{
#if defined(__x86_64__)
    if (isa == GYRE_ISA_AVX512)
        return mix_avx512(g, e, q, kappa, n, a);
    if (isa == GYRE_ISA_AVX2)
        return mix_avx2(g, e, q, kappa, n, a);
#endif
    (void)isa;
    return mix_scalar(g, e, q, kappa, n, a);
}

static void take_rest(gyre_isa isa, const float *a, const float *kept, size_t n,
                      float *e)
{
#if defined(__x86_64__)
    if (isa == GYRE_ISA_AVX512) {
        mix_avx512_rest(a, kept, n, e);
        return;
    }
    if (isa == GYRE_ISA_AVX2) {
        mix_avx2_rest(a, kept, n, e);
        return;
    }
#endif
    (void)isa;
    mix_scalar_rest(a, kept, n, e);
}

static void fetch(const float *array, size_t n)
{
    if (array == NULL)
        return;
    for (size_t i = 0; i < n; i += LINE / sizeof(float))
        __builtin_prefetch(array + i);
}

/* a of the grain at `at`; its length; *finite cleared when need be. */
static size_t grain_mix(const gyre_feedback_job *job, uint64_t at, float *a,
                        int *finite)
{
    const float *e = job->e == NULL ? NULL : job->e + at;
    size_t n = job->n - at < GYRE_CODEC_GRAIN ? (size_t)(job->n - at)
                                              : (size_t)GYRE_CODEC_GRAIN;
    size_t next = job->n - at - n < n ? (size_t)(job->n - at - n) : n;
    int32_t most = mix(job->isa, job->g + at, e, job->q, job->kappa, n, a);

    fetch(job->g + at + n, next);
    fetch(e == NULL ? NULL : e + n, next);
    if (most >= 0x7f800000)
        *finite = 0;
    return n;
}

void gyre_feedback_run(gyre_feedback_job *job)
{
    float a[GYRE_CODEC_GRAIN], kept[GYRE_CODEC_GRAIN];
    gyre_fp saved = gyre_fp_pin();
    gyre_wire_writer writer;
    int finite = 1, unused;

    gyre_wire_begin(&writer, job->codec, job->n, job->wire);
    for (uint64_t at = 0; at < job->n && finite; at += GYRE_CODEC_GRAIN) {
        size_t n = grain_mix(job, at, a, &finite);
        gyre_compress grain = {.decided = job->decided,
                               .n = n,
                               .x = a,
                               .index = job->index + at,
                               .place = job->place + at,
                               .key = {job->key[0], job->key[1]},
                               .payload = gyre_wire_next(&writer),
                               .kept = kept};

        if (!finite)
            break;
        gyre_wire_add(&writer, gyre_codec_compress(job->codec, &grain));
        if (job->e_next != NULL)
            take_rest(job->isa, a, kept, n, job->e_next + at);
        if (job->leaves != NULL)
            job->leaves[at / GYRE_CODEC_GRAIN] =
                gyre_device_leaf(job->isa, kept, n, &unused);
    }
    job->bytes = finite ? gyre_wire_end(&writer) : 0;
    job->finite = finite;
    gyre_fp_restore(saved);
}

void gyre_feedback_survey(gyre_feedback_job *job, uint32_t pass,
                          uint64_t elements, void *summary)
{
    float a[GYRE_CODEC_GRAIN];
    gyre_fp saved = gyre_fp_pin();
    int finite = 1;

    for (uint64_t at = 0; at < job->n && finite; at += GYRE_CODEC_GRAIN) {
        size_t n = grain_mix(job, at, a, &finite);

        if (finite)
            gyre_codec_survey(job->codec, pass, job->decided, a, n,
                              job->place + at, elements, summary);
    }
    job->finite = finite;
    gyre_fp_restore(saved);
}

/* splitmix64's finisher (Steele, Lea, Flood 2014) after each word. */
static uint64_t stir(uint64_t z, uint64_t word)
{
    z = (z ^ word) + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void gyre_feedback_key(uint64_t seed, uint64_t name_hash, uint32_t slot,
                       uint64_t t, uint32_t key[2])
{
    uint64_t z = stir(stir(stir(stir(0, seed), name_hash), slot), t);

    key[0] = (uint32_t)z;
    key[1] = (uint32_t)(z >> 32);
}
