/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error feedback: what is sent and what stays are what came in, in a round and
 * over rounds, the same bits on every instruction set.
 */
#include "config.h"

#include "../unit.h"

#include "../codecs.h"

#include "device/device.h"
#include "device/feedback.h"

enum { N = 5 * GYRE_CODEC_GRAIN + 77, GRAINS = 6, WIRE = 128 << 10 };

typedef struct round_of {
    float e[N], sent[N];
    double leaves[GRAINS];
    uint64_t wire[WIRE / 8];
    uint64_t bytes;
    int finite;
} round_of;

static void decide(gyre_feedback_job *job, void *decided)
{
    static uint64_t summary[(1 << 20) / 8];
    size_t bytes = gyre_codec_survey_bytes(job->codec);

    memset(decided, 0, 256);
    job->decided = decided;
    for (uint32_t pass = 0; bytes > 0; pass++) {
        memset(summary, 0, bytes);
        gyre_feedback_survey(job, pass, job->n, summary);
        job->mixed = job->e_next != NULL;
        if (!job->finite || !gyre_codec_decide(job->codec, pass, summary,
                                               job->n, job->n, decided))
            return;
    }
}

static void run(const gyre_codec *codec, const float *g, const float *e,
                float q, float kappa, round_of *r)
{
    gyre_feedback_job job = {.codec = codec,
                             .isa = gyre_codec_isa(codec),
                             .n = N,
                             .index = 3 * GYRE_CODEC_GRAIN,
                             .g = g,
                             .e = e,
                             .e_next = r->e,
                             .q = q,
                             .kappa = kappa,
                             .key = {5, 6},
                             .wire = (uint8_t *)r->wire,
                             .leaves = r->leaves};
    uint64_t decided[32];

    assert_true(gyre_codec_bound(codec, N) <= WIRE);
    job.finite = 1;
    decide(&job, decided);
    if (job.finite)
        gyre_feedback_run(&job);
    r->bytes = job.bytes;
    r->finite = job.finite;
    if (!job.finite)
        return;
    assert_int_equal(
        gyre_wire_verify(codec, (uint8_t *)r->wire, r->bytes, N, NULL),
        GYRE_OK);
    assert_int_equal(gyre_wire_decode(codec, (uint8_t *)r->wire, r->sent, NULL),
                     GYRE_OK);
}

/* a by definition. */
static float mixed(float g, const float *e, size_t i, float q, float kappa)
{
    float part;

    if (e == NULL)
        return g * q + 0.0f;
    part = kappa * e[i];
    return fmaf(g, q, part) + 0.0f;
}

static float ulp_of(float x)
{
    x = fabsf(x);
    return nextafterf(x, INFINITY) - x;
}

static void expect_identity(const codec_case *c, const round_of *r,
                            const float *g, const float *e, float q,
                            float kappa, int kind)
{
    for (size_t i = 0; i < N; i++) {
        float a = mixed(g[i], e, i, q, kappa);
        float back = r->sent[i] + r->e[i];
        float most = fmaxf(fabsf(a), fabsf(r->sent[i]));

        if (r->e[i] == 0.0f)
            assert_false(signbit(r->e[i]));
        if (c->exact ? memcmp(&back, &a, sizeof(a)) != 0
                     : !(fabsf(back - a) <= ulp_of(most)))
            fail_msg("%s: %a sent, %a left of %a (numbers %d, %zu)",
                     codec_text(c), r->sent[i], r->e[i], a, kind, i);
    }
}

static void expect_leaves(const gyre_codec *codec, const round_of *r)
{
    for (size_t k = 0; k < GRAINS; k++) {
        size_t at = k * GYRE_CODEC_GRAIN;
        int finite;
        double leaf = gyre_device_leaf(
            GYRE_ISA_SCALAR, r->sent + at,
            N - at < GYRE_CODEC_GRAIN ? N - at : GYRE_CODEC_GRAIN, &finite);

        (void)codec;
        assert_memory_equal(&leaf, &r->leaves[k], sizeof(leaf));
    }
}

static void test_sent_and_left_are_what_came(void **state)
{
    static const float factors[][2] = {
        {1.0f, 1.0f}, {0x1p-10f, 1.0f}, {0.37f, 0.81f}};
    gyre_context *contexts[GYRE_ISA_COUNT];
    size_t sets = codec_contexts(contexts);
    static float g[N], e[N];
    static round_of want, have;

    (void)state;
    for (size_t c = 0; c < CODEC_CASES; c++)
        for (size_t s = 0; s < sets; s++) {
            const codec_case *this = &codec_cases[c];
            gyre_codec *codec = codec_open(contexts[s], this);
            gyre_codec *scalar = codec_open(contexts[0], this);

            for (int kind = 0; kind < NUMBER_KINDS; kind++)
                for (size_t f = 0; f < 3; f++) {
                    const float *residual = f == 1 ? NULL : e;
                    float q = factors[f][0], kappa = factors[f][1];

                    codec_fill(kind, 11, g, N);
                    codec_fill(kind, 12, e, N);
                    run(codec, g, residual, q, kappa, &have);
                    run(scalar, g, residual, q, kappa, &want);
                    assert_int_equal(want.finite, have.finite);
                    if (!have.finite)
                        continue;
                    assert_int_equal(want.bytes, have.bytes);
                    assert_memory_equal(want.wire, have.wire, want.bytes);
                    assert_memory_equal(want.e, have.e, sizeof(want.e));
                    assert_memory_equal(want.leaves, have.leaves,
                                        sizeof(want.leaves));
                    expect_identity(this, &have, g, residual, q, kappa, kind);
                    expect_leaves(codec, &have);
                }
            gyre_codec_destroy(codec);
            gyre_codec_destroy(scalar);
        }
    for (size_t s = 0; s < sets; s++)
        gyre_context_destroy(contexts[s]);
}

/*
 * Whole-number gradients whose sums stay below 2^24: a codec that sends whole
 * numbers of them (a whole number cut to fewer significant bits is one) leaves
 * whole numbers, and nothing is ever rounded: what was sent over all rounds and
 * what is left add up to what came.
 */
static void test_nothing_is_lost_over_rounds(void **state)
{
    enum { ROUNDS = 60 };
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    static float g[N], e[N];
    static double came[N], sent[N];
    static round_of r;

    (void)state;
    for (size_t c = 0; c < CODEC_CASES; c++) {
        gyre_codec *codec;
        uint64_t seed = 3;

        if (strcmp(codec_cases[c].name, "topk") != 0 &&
            strcmp(codec_cases[c].name, "fp8") != 0)
            continue;
        codec = codec_open(context, &codec_cases[c]);
        memset(e, 0, sizeof(e));
        memset(came, 0, sizeof(came));
        memset(sent, 0, sizeof(sent));
        for (int t = 0; t < ROUNDS; t++) {
            for (size_t i = 0; i < N; i++) {
                g[i] = (float)(int)(codec_draw(&seed) % 200001) - 100000.0f;
                came[i] += (double)g[i];
            }
            run(codec, g, e, 1.0f, 1.0f, &r);
            memcpy(e, r.e, sizeof(e));
            for (size_t i = 0; i < N; i++)
                sent[i] += (double)r.sent[i];
        }
        for (size_t i = 0; i < N; i++)
            if (sent[i] + (double)e[i] != came[i])
                fail_msg("%s: %.17g came, %.17g sent, %.9g left",
                         codec_text(&codec_cases[c]), came[i], sent[i], e[i]);
        gyre_codec_destroy(codec);
    }
    gyre_context_destroy(context);
}

/*
 * Any gradients, any codec: each round errs by half an ulp of a (the fma) and,
 * of codecs that are not exact, one ulp of max(|a|, |D|) more; ulp(x) <= 2^-23
 * |x|.  Over T rounds the difference stays below the sum of these.
 */
static void test_loss_over_rounds_is_bounded(void **state)
{
    enum { ROUNDS = 50 };
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    static float g[N], e[N];
    static double came[N], sent[N], bound[N];
    static round_of r;

    (void)state;
    for (size_t c = 0; c < CODEC_CASES; c++) {
        gyre_codec *codec = codec_open(context, &codec_cases[c]);

        memset(e, 0, sizeof(e));
        memset(came, 0, sizeof(came));
        memset(sent, 0, sizeof(sent));
        memset(bound, 0, sizeof(bound));
        for (int t = 0; t < ROUNDS; t++) {
            codec_fill(0, 100 + (uint64_t)t, g, N);
            run(codec, g, e, 0.3f, 1.0f, &r);
            for (size_t i = 0; i < N; i++) {
                float a = mixed(g[i], e, i, 0.3f, 1.0f);

                came[i] += (double)g[i] * (double)0.3f;
                sent[i] += (double)r.sent[i];
                bound[i] += 0.5 * 0x1p-23 * fabs((double)a) +
                            (codec_cases[c].exact
                                 ? 0.0
                                 : 0x1p-23 * fmax(fabs((double)a),
                                                  fabs((double)r.sent[i]))) +
                            1e-14 * fabs(sent[i]);
            }
            memcpy(e, r.e, sizeof(e));
        }
        for (size_t i = 0; i < N; i++)
            if (!(fabs(sent[i] + (double)e[i] - came[i]) <= bound[i]))
                fail_msg("%s: %g apart, bound %g", codec_text(&codec_cases[c]),
                         sent[i] + (double)e[i] - came[i], bound[i]);
        gyre_codec_destroy(codec);
    }
    gyre_context_destroy(context);
}

/* Where a tensor is cut into runs changes neither payloads nor residual, in
 * place or not. */
static void test_cuts_change_nothing(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    static float g[N], e[N], f[N], out[N];
    static round_of whole, piece;

    (void)state;
    for (size_t c = 0; c < CODEC_CASES; c++) {
        gyre_codec *codec = codec_open(context, &codec_cases[c]);
        uint64_t decided[32];

        codec_fill(0, 1, g, N);
        codec_fill(0, 2, e, N);
        memcpy(f, e, sizeof(e));
        run(codec, g, e, 0.5f, 0.25f, &whole);
        for (size_t at = 0; at < N; at += 2 * GYRE_CODEC_GRAIN) {
            gyre_feedback_job job = {.codec = codec,
                                     .isa = gyre_codec_isa(codec),
                                     .n = N,
                                     .g = g,
                                     .e = e,
                                     .q = 0.5f,
                                     .kappa = 0.25f,
                                     .key = {5, 6}};

            decide(&job, decided);
            job.n =
                N - at < 2 * GYRE_CODEC_GRAIN ? N - at : 2 * GYRE_CODEC_GRAIN;
            job.index = 3 * GYRE_CODEC_GRAIN + at;
            job.place = at;
            job.g = g + at;
            job.e = f + at;
            job.e_next = f + at;
            job.wire = (uint8_t *)piece.wire;
            gyre_feedback_run(&job);
            assert_int_equal(job.finite, 1);
            assert_int_equal(
                gyre_wire_decode(codec, (uint8_t *)piece.wire, out + at, NULL),
                GYRE_OK);
        }
        assert_memory_equal(out, whole.sent, sizeof(out));
        assert_memory_equal(f, whole.e, sizeof(f));
        gyre_codec_destroy(codec);
    }
    gyre_context_destroy(context);
}

static void test_overflow_is_told(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_codec *codec = codec_open(context, &codec_cases[0]);
    static float g[N], e[N];
    static round_of r;

    (void)state;
    g[N - 1] = 3e38f;
    e[N - 1] = 3e38f;
    run(codec, g, e, 1.0f, 1.0f, &r);
    assert_int_equal(r.finite, 0);
    assert_int_equal(r.bytes, 0);
    g[N - 1] = -3e38f;
    run(codec, g, e, 1.0f, 1.0f, &r);
    assert_int_equal(r.finite, 1);
    gyre_codec_destroy(codec);
    gyre_context_destroy(context);
}

/* Seed, name, slot and step each change the key. */
static void test_keys_differ(void **state)
{
    uint32_t keys[5][2];

    (void)state;
    gyre_feedback_key(1, 2, 3, 4, keys[0]);
    gyre_feedback_key(2, 2, 3, 4, keys[1]);
    gyre_feedback_key(1, 3, 3, 4, keys[2]);
    gyre_feedback_key(1, 2, 4, 4, keys[3]);
    gyre_feedback_key(1, 2, 3, 5, keys[4]);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(keys[i], keys[j], sizeof(keys[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sent_and_left_are_what_came),
        cmocka_unit_test(test_nothing_is_lost_over_rounds),
        cmocka_unit_test(test_loss_over_rounds_is_bounded),
        cmocka_unit_test(test_cuts_change_nothing),
        cmocka_unit_test(test_overflow_is_told),
        cmocka_unit_test(test_keys_differ),
    };

    return cmocka_run_group_tests_name("device/feedback", tests, NULL, NULL);
}
