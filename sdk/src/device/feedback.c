/* SPDX-License-Identifier: Apache-2.0 */
/* Compression with error feedback, grain by grain. */
#include "config.h"

#include "device/device.h"
#include "device/feedback.h"

#include <string.h>

/*
 * a = fma(g, q, kappa e) + 0: adding zero makes -0 a +0, so that what is sent
 * and what stays always add up to the same bits.  |bits| of a non-finite number
 * exceed those of any finite one; their maximum is returned.  a may be e.
 */
#define MIX_BODY(name, attribute)                                            \
    attribute static int32_t name(const float *g, const float *e, float q,   \
                                  float kappa, size_t n, float *a)           \
    {                                                                        \
        int32_t most = 0;                                                    \
                                                                             \
        NO_ALIAS                                                             \
        for (size_t i = 0; i < n; i++) {                                     \
            float kept = kappa * e[i];                                       \
            float sum = __builtin_fmaf(g[i], q, kept) + 0.0f;                \
            int32_t bits;                                                    \
                                                                             \
            memcpy(&bits, &sum, sizeof(bits));                               \
            bits &= 0x7fffffff;                                              \
            most = bits > most ? bits : most;                                \
            a[i] = sum;                                                      \
        }                                                                    \
        return most;                                                         \
    }                                                                        \
    attribute static int32_t name##_plain(const float *g, float q, size_t n, \
                                          float *a)                          \
    {                                                                        \
        int32_t most = 0;                                                    \
                                                                             \
        NO_ALIAS                                                             \
        for (size_t i = 0; i < n; i++) {                                     \
            float sum = g[i] * q + 0.0f;                                     \
            int32_t bits;                                                    \
                                                                             \
            memcpy(&bits, &sum, sizeof(bits));                               \
            bits &= 0x7fffffff;                                              \
            most = bits > most ? bits : most;                                \
            a[i] = sum;                                                      \
        }                                                                    \
        return most;                                                         \
    }

/*
 * e = a - kept, and the leaf of kept: lane by lane as gyre_device_leaf, in the
 * same loop, for both would wait for the same loads.  Meanwhile the lines of
 * the next grain are asked for, one of either array for each that is worked on.
 */
enum { LANES = 16, HALF = LANES / 2 };
typedef float floats __attribute__((vector_size(HALF * sizeof(float))));
typedef double lanes __attribute__((vector_size(HALF * sizeof(double))));

#define REST_BODY(name, attribute)                                            \
    attribute static double name(const float *a, const float *kept, size_t n, \
                                 float *e, const float *const *next)          \
    {                                                                         \
        lanes sum[2] = {{0}};                                                 \
        double lane[LANES];                                                   \
        size_t i = 0;                                                         \
                                                                              \
        for (; i + LANES <= n; i += LANES) {                                  \
            __builtin_prefetch(next[0] + i);                                  \
            __builtin_prefetch(next[1] + i);                                  \
            for (size_t h = 0; h < 2; h++) {                                  \
                floats x, y;                                                  \
                lanes wide;                                                   \
                                                                              \
                memcpy(&x, kept + i + h * HALF, sizeof(x));                   \
                memcpy(&y, a + i + h * HALF, sizeof(y));                      \
                y -= x;                                                       \
                memcpy(e + i + h * HALF, &y, sizeof(y));                      \
                wide = __builtin_convertvector(x, lanes);                     \
                sum[h] += wide * wide;                                        \
            }                                                                 \
        }                                                                     \
        memcpy(lane, sum, sizeof(lane));                                      \
        for (size_t l = 0; i + l < n; l++) {                                  \
            double x = (double)kept[i + l];                                   \
                                                                              \
            e[i + l] = a[i + l] - kept[i + l];                                \
            lane[l] += x * x;                                                 \
        }                                                                     \
        for (size_t half = LANES / 2; half > 0; half /= 2)                    \
            for (size_t l = 0; l < half; l++)                                 \
                lane[l] += lane[l + half];                                    \
        return lane[0];                                                       \
    }

#if defined(__clang__)
#define NO_ALIAS _Pragma("clang loop vectorize(assume_safety)")
#else
#define NO_ALIAS _Pragma("GCC ivdep")
#endif

#if defined(__clang__)
#define WIDE ""
#else
#define WIDE ",prefer-vector-width=512"
#endif
#define AVX512 __attribute__((target("avx512f,avx512dq,avx512vl,fma" WIDE)))

MIX_BODY(mix_scalar, )
#if defined(__x86_64__)
MIX_BODY(mix_avx2, __attribute__((target("avx2,fma"))))
MIX_BODY(mix_avx512, AVX512)
#endif

REST_BODY(rest_scalar, )
#if defined(__x86_64__)
REST_BODY(rest_avx2, __attribute__((target("avx2,fma"))))
REST_BODY(rest_avx512, AVX512)
#endif

typedef struct loops {
    int32_t (*mix)(const float *g, const float *e, float q, float kappa,
                   size_t n, float *a);
    int32_t (*plain)(const float *g, float q, size_t n, float *a);
    double (*rest)(const float *a, const float *kept, size_t n, float *e,
                   const float *const *next);
} loops;

static const loops by_isa[GYRE_ISA_COUNT] = {
    {mix_scalar, mix_scalar_plain, rest_scalar},
#if defined(__x86_64__)
    {mix_avx2, mix_avx2_plain, rest_avx2},
    {mix_avx512, mix_avx512_plain, rest_avx512},
#endif
};

/* The processor's own fetching stops at the end of a page, which is a grain's
 * end too, and selection and rounding leave it no sight of the next: its first
 * lines are asked for while this grain is worked on. */
enum { LINE = 64 / sizeof(float), LINES = 16 };

static void fetch(const float *array, uint64_t left)
{
    for (size_t i = 0; i < (size_t)LINES * LINE && i < left; i += LINE)
        __builtin_prefetch(array + i);
}

static size_t grain_of(const gyre_feedback_job *job, uint64_t at)
{
    uint64_t left = job->n - at;

    return left < GYRE_CODEC_GRAIN ? (size_t)left : (size_t)GYRE_CODEC_GRAIN;
}

/* a of the grain at `at`, into `room` when it is not there already; NULL when
 * it is not finite. */
static float *mix_grain(const gyre_feedback_job *job, uint64_t at, float *room)
{
    const loops *with = &by_isa[job->isa];
    size_t n = grain_of(job, at);
    uint64_t next = at + n;
    int32_t most;

    if (job->mixed) {
        fetch(job->e_next + next, job->n - next);
        return job->e_next + at;
    }
    if (job->e == NULL)
        most = with->plain(job->g + at, job->q, n, room);
    else
        most = with->mix(job->g + at, job->e + at, job->q, job->kappa, n, room);
    fetch(job->g + next, job->n - next);
    if (job->e != NULL)
        fetch(job->e + next, job->n - next);
    return most < 0x7f800000 ? room : NULL;
}

/* Sums of squares of a list, as gyre_device_leaf would have of the whole grain:
 * adding the square of 0 to a lane changes nothing. */
static double sparse_leaf(const gyre_sparse *sparse)
{
    double lane[LANES] = {0};

    for (size_t j = 0; j < sparse->count; j++) {
        double x = (double)sparse->kept[j];

        lane[sparse->index[j] % LANES] += x * x;
    }
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

typedef struct scratch {
    float a[GYRE_CODEC_GRAIN], kept[GYRE_CODEC_GRAIN];
    gyre_sparse sparse;
} scratch;

/* A codec that lists what it kept leaves the residual where a already is. */
static void grain_sparse(const gyre_feedback_job *job, uint64_t at, float *a,
                         gyre_compress *grain, gyre_wire_writer *writer,
                         gyre_sparse *sparse)
{
    grain->sparse = sparse;
    gyre_wire_add(writer, gyre_codec_compress(job->codec, grain));
    if (job->e_next != NULL)
        for (size_t j = 0; j < sparse->count; j++)
            a[sparse->index[j]] -= sparse->kept[j];
    if (job->leaves != NULL)
        job->leaves[at / GYRE_CODEC_GRAIN] = sparse_leaf(sparse);
}

static void grain_dense(const gyre_feedback_job *job, uint64_t at,
                        const float *a, gyre_compress *grain,
                        gyre_wire_writer *writer, float *kept)
{
    double leaf = 0;

    grain->kept = kept;
    gyre_wire_add(writer, gyre_codec_compress(job->codec, grain));
    if (job->e_next != NULL) {
        /* behind the last grain there is none: its own lines do no harm */
        uint64_t to = at + grain->n < job->n ? at + grain->n : at;
        const float *next[2] = {job->g + to,
                                (job->e != NULL ? job->e : job->e_next) + to};

        leaf = by_isa[job->isa].rest(a, kept, grain->n, job->e_next + at, next);
    } else if (job->leaves != NULL) {
        leaf = gyre_device_leaf_finite(job->isa, kept, grain->n);
    }
    if (job->leaves != NULL)
        job->leaves[at / GYRE_CODEC_GRAIN] = leaf;
}

void gyre_feedback_run(gyre_feedback_job *job)
{
    const bool sparse = gyre_codec_flags(job->codec) & GYRE_CODEC_SPARSE;
    gyre_fp saved = gyre_fp_pin();
    gyre_wire_writer writer;
    bool finite = true;
    scratch s;

    gyre_wire_begin(&writer, job->codec, job->n, job->wire);
    for (uint64_t at = 0; at < job->n; at += GYRE_CODEC_GRAIN) {
        bool there = sparse && job->e_next != NULL;
        float *a = mix_grain(job, at, there ? job->e_next + at : s.a);
        gyre_compress grain = {.decided = job->decided,
                               .n = grain_of(job, at),
                               .x = a,
                               .index = job->index + at,
                               .place = job->place + at,
                               .key = {job->key[0], job->key[1]},
                               .payload = gyre_wire_next(&writer)};

        finite = a != NULL;
        if (!finite)
            break;
        if (sparse)
            grain_sparse(job, at, a, &grain, &writer, &s.sparse);
        else
            grain_dense(job, at, a, &grain, &writer, s.kept);
    }
    job->bytes = finite ? gyre_wire_end(&writer) : 0;
    job->finite = finite;
    gyre_fp_restore(saved);
}

void gyre_feedback_survey(gyre_feedback_job *job, uint32_t pass,
                          uint64_t elements, void *summary)
{
    const bool keep = pass == 0 && job->e_next != NULL;
    float room[GYRE_CODEC_GRAIN];
    gyre_fp saved = gyre_fp_pin();
    const float *a = room;

    for (uint64_t at = 0; at < job->n && a != NULL; at += GYRE_CODEC_GRAIN) {
        a = mix_grain(job, at, keep ? job->e_next + at : room);
        if (a != NULL)
            gyre_codec_survey(job->codec, pass, job->decided, a,
                              grain_of(job, at), job->place + at, elements,
                              summary);
    }
    job->finite = a != NULL;
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
