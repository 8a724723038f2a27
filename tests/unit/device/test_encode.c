/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compression on the device where gradients are born is that of the host, bit
 * for bit: wire block, residual, leaves, overflow, and the sums before it, for
 * every compressor in every form, over runs of odd lengths and data that are
 * hard: ties, zeros, denormals, the largest floats, one value far above.
 *
 * GYRE_TEST_COMPUTE=cuda takes a GPU; without a device it skips.
 */
#include "config.h"

#include "../born.h"

#include "base/base.h"
#include "device/birth.h"
#include "device/device.h"

#include "matrix.h"

#include <math.h>

enum { GRAINS = 9, ELEMENTS = GRAINS * GYRE_GRAIN, FORMS = 8 };

typedef struct bench {
    unit_memory memory;
    gyre_context *context;
    gyre_isa isa;
    gyre_codec *codec;
    gyre_birth *birth;
    float g[ELEMENTS], e[ELEMENTS], next[ELEMENTS], back[ELEMENTS];
    double leaves[GRAINS], leaves_there[GRAINS];
    uint64_t wire[ELEMENTS * 2], wire_there[ELEMENTS * 2];
} bench;

/* ---- data ------------------------------------------------------------- */

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static void fill(float *x, size_t n, int form, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t r = next_random(&seed);
        float unit = (float)r / 8388608.0f - 1.0f; /* [-1, 1) */

        switch (form) {
        case 0:
            x[i] = unit;
            break;
        case 1:
            x[i] = (float)((int)(r % 7) - 3);
            break; /* ties */
        case 2:
            x[i] = r % 9 == 0 ? unit : 0.0f;
            break;
        case 3:
            x[i] = float_of((r % 2000) | (r & 1024) << 21);
            break;
        case 4:
            x[i] = unit * 3e38f;
            break;
        case 5:
            x[i] = i % 700 == 5 ? unit * 1e6f : unit * 1e-6f;
            break;
        case 6:
            x[i] = ldexpf(unit, (int)(r % 200) - 120);
            break;
        default:
            x[i] = -0.0f;
            break;
        }
    }
}

/* ---- one run on both sides -------------------------------------------- */

static void give_all(bench *b, size_t n, uint64_t at)
{
    gyre_gradient piece = {.kind = born.kind, .dtype = GYRE_F32};
    void *memory = born_make(0, n * sizeof(float), b->g);
    gyre_error error;

    piece.data = memory;
    if (b->birth == NULL) {
        gyre_birth_spec spec = {&piece, b->codec, GRAINS + 2, true};

        if (gyre_birth_open(b->context, &spec, &b->birth, &error) != GYRE_OK)
            fail_msg("%s", error.text);
    }
    assert_true(gyre_birth_reaches(b->birth, &piece, n * sizeof(float)));
    assert_false(gyre_birth_reaches(b->birth, &piece, (uint64_t)1 << 40));
    assert_int_equal(gyre_birth_take(b->birth, &piece, at, n, false, NULL),
                     GYRE_OK);
    born_drop(memory);
}

static void same(const void *want, const void *have, size_t bytes,
                 const char *what, const bench *b, size_t n, int form)
{
    if (memcmp(want, have, bytes) == 0)
        return;
    for (size_t i = 0; i < bytes; i += 4)
        if (memcmp((const char *)want + i, (const char *)have + i, 4) != 0)
            fail_msg("%s, form %d, %zu elements: %s differs at word %zu of "
                     "%zu",
                     gyre_codec_name(b->codec), form, n, what, i / 4,
                     bytes / 4);
}

/* e NULL: no residual. */
static void one_run(bench *b, size_t n, int form, bool residual,
                    uint32_t version, uint64_t index)
{
    const uint64_t grain = 1, at = grain * GYRE_GRAIN;
    uint64_t grains = (n + GYRE_GRAIN - 1) / GYRE_GRAIN;
    double sums[GRAINS];
    gyre_feedback_job job = {
        .codec = b->codec, .isa = b->isa, .n = n, .index = index, .g = b->g};
    gyre_feedback_job there;

    fill(b->g, n, form, (uint32_t)n + 1);
    fill(b->e, n, (form + 1) % 3, (uint32_t)n + 7);
    give_all(b, n, at);
    assert_int_equal(gyre_birth_leaves(b->birth, grain, n, sums, NULL),
                     GYRE_OK);
    for (uint64_t k = 0; k < grains; k++) {
        size_t left = n - (size_t)k * GYRE_GRAIN;
        int finite;
        double leaf =
            gyre_device_leaf(b->isa, b->g + k * GYRE_GRAIN,
                             left < GYRE_GRAIN ? left : GYRE_GRAIN, &finite);

        same(&leaf, &sums[k], sizeof(leaf), "leaf of G", b, n, form);
    }
    job.q = 0.37f;
    job.kappa = 0.9f;
    gyre_feedback_key(5, n, GYRE_FEEDBACK_SLOT, 3, job.key);
    job.wire = (uint8_t *)b->wire;
    job.leaves = b->leaves;
    if (residual) {
        job.e = b->e;
        job.e_next = b->next;
        assert_int_equal(gyre_birth_write(b->birth, version, at, n, b->e, NULL),
                         GYRE_OK);
    }
    there = job;
    there.wire = (uint8_t *)b->wire_there;
    there.leaves = b->leaves_there;
    gyre_feedback_run(&job);
    assert_int_equal(gyre_birth_encode(b->birth, &there, grain, version, NULL),
                     GYRE_OK);
    assert_int_equal(there.finite, job.finite);
    assert_int_equal(there.bytes, job.bytes);
    if (!job.finite)
        return;
    same(job.wire, there.wire, (size_t)job.bytes, "wire block", b, n, form);
    same(job.leaves, there.leaves, (size_t)grains * sizeof(double),
         "leaf of D(c)", b, n, form);
    if (!residual)
        return;
    assert_int_equal(
        gyre_birth_read(b->birth, 1 - version, at, n, b->back, NULL), GYRE_OK);
    same(b->next, b->back, n * sizeof(float), "residual", b, n, form);
}

static void test_encoders(void **state)
{
    static const size_t lengths[] = {1,    2,    31,   33,           127,
                                     1000, 1024, 1025, 3 * 1024 + 7, ELEMENTS};
    bench *b = *state;

    for (int k = 0; k < MATRIX_CODECS; k++) {
        assert_int_equal(gyre_codec_create(b->context, matrix_codecs[k].name,
                                           matrix_codecs[k].settings,
                                           matrix_codecs[k].count, &b->codec,
                                           NULL),
                         GYRE_OK);
        for (size_t i = 0; gyre_codec_encoder_of(b->codec) != NULL &&
                           i < sizeof(lengths) / sizeof(lengths[0]);
             i++)
            for (int form = 0; form < FORMS; form++)
                one_run(b, lengths[i], form, (form + i) % 3 != 0, form % 2,
                        (i % 2 * ((uint64_t)1 << 32)) + 2048);
        gyre_birth_close(b->birth);
        gyre_codec_destroy(b->codec);
        b->birth = NULL;
        b->codec = NULL;
    }
}

/* ---- what an a that is not finite does -------------------------------- */

static void test_overflow_is_told(void **state)
{
    bench *b = *state;
    gyre_feedback_job job = {.n = 2000, .isa = b->isa, .q = 4.0f};

    assert_int_equal(
        gyre_codec_create(b->context, "topk", NULL, 0, &b->codec, NULL),
        GYRE_OK);
    fill(b->g, 2000, 0, 1);
    b->g[1500] = 1.2e38f;
    give_all(b, 2000, 0);
    job.codec = b->codec;
    job.wire = (uint8_t *)b->wire;
    job.leaves = b->leaves;
    assert_int_equal(gyre_birth_encode(b->birth, &job, 0, 0, NULL), GYRE_OK);
    assert_int_equal(job.finite, 0);
    assert_int_equal(job.bytes, 0);
    job.q = 2.0f;
    assert_int_equal(gyre_birth_encode(b->birth, &job, 0, 0, NULL), GYRE_OK);
    assert_int_equal(job.finite, 1);
}

/* ---- gradients -------------------------------------------------------- */

/* Every half there is, with the numbers around them in double, at a stride, and
 * added to what lies there. */
static void test_dtypes(void **state)
{
    static const gyre_dtype dtypes[] = {GYRE_F32, GYRE_F64, GYRE_BF16,
                                        GYRE_F16};
    enum { HALVES = 65536, STRIDE = 3, AT = 8 };
    bench *b = *state;
    size_t grains = HALVES / GYRE_GRAIN;
    char *bytes = calloc(HALVES * STRIDE + 2, sizeof(double));
    float *want = calloc(HALVES, sizeof(float));
    double *leaves = calloc(grains, sizeof(double));

    assert_int_equal(
        gyre_codec_create(b->context, "sign", NULL, 0, &b->codec, NULL),
        GYRE_OK);
    for (size_t d = 0; d < 4; d++) {
        size_t size = gyre_dtype_bytes(dtypes[d]);
        gyre_gradient piece = {.kind = born.kind,
                               .dtype = dtypes[d],
                               .stride = STRIDE,
                               .offset = AT};

        for (size_t i = 0; i < HALVES; i++) {
            char *to = bytes + AT + i * STRIDE * size;
            double wide = ldexp((double)i - 32768.3, (int)(i % 290) - 160);
            float narrow = (float)i * 1e-40f;
            uint16_t half = (uint16_t)i;

            memcpy(to,
                   d == 0   ? (void *)&narrow
                   : d == 1 ? (void *)&wide
                            : (void *)&half,
                   size);
        }
        gyre_to_f32(dtypes[d], bytes + AT, STRIDE, want, HALVES);
        piece.data =
            born_make(0, (HALVES * STRIDE + 2) * sizeof(double), bytes);
        if (b->birth == NULL) {
            gyre_birth_spec spec = {&piece, b->codec, grains, false};

            assert_int_equal(
                gyre_birth_open(b->context, &spec, &b->birth, NULL), GYRE_OK);
        }
        for (int twice = 0; twice < 2; twice++) {
            assert_int_equal(
                gyre_birth_take(b->birth, &piece, 0, HALVES, twice != 0, NULL),
                GYRE_OK);
            assert_int_equal(
                gyre_birth_leaves(b->birth, 0, HALVES, leaves, NULL), GYRE_OK);
            for (size_t k = 0; k < grains; k++) {
                int finite;
                double leaf = gyre_device_leaf(b->isa, want + k * GYRE_GRAIN,
                                               GYRE_GRAIN, &finite);

                assert_int_equal(finite, isfinite(leaves[k]) != 0);
                if (finite)
                    assert_memory_equal(&leaf, &leaves[k], sizeof(leaf));
            }
            for (size_t i = 0; i < HALVES; i++)
                want[i] = want[i] + want[i];
        }
        born_drop((void *)(uintptr_t)piece.data);
    }
    free(leaves);
    free(want);
    free(bytes);
}

/* ---- refusals --------------------------------------------------------- */

static void test_a_codec_without_a_text_is_refused(void **state)
{
    static const gyre_setting global = {"scope", 1};
    bench *b = *state;
    gyre_gradient piece = {.kind = born.kind, .dtype = GYRE_F32};
    gyre_birth_spec spec = {&piece, NULL, 1, false};
    gyre_error error;

    assert_int_equal(
        gyre_codec_create(b->context, "topk", &global, 1, &b->codec, NULL),
        GYRE_OK);
    spec.codec = b->codec;
    assert_int_equal(gyre_birth_memory(b->codec, 1, false), 0);
    assert_int_equal(gyre_birth_open(b->context, &spec, &b->birth, &error),
                     GYRE_UNSUPPORTED);
    unit_assert_text(&error, "topk has no portable encoder");
}

/* ---- frame ------------------------------------------------------------ */

static int setup(void **state)
{
    bench *b = calloc(1, sizeof(*b));

    b->context = unit_context(&b->memory);
    b->isa = gyre_context_isa(b->context);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    bench *b = *state;

    gyre_birth_close(b->birth);
    gyre_codec_destroy(b->codec);
    gyre_context_destroy(b->context);
    unit_memory_check(&b->memory);
    free(b);
    return 0;
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(test_encoders),
        WITH(test_overflow_is_told),
        WITH(test_dtypes),
        WITH(test_a_codec_without_a_text_is_refused),
    };

    return born_run("device: encoders", tests);
}
