/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk whose variables are encoded and whose gradient may come as a wire
 * block: the same as decoding everything, updating, and encoding, grain by
 * grain; and bytes that no compressor writes.
 */
#include "config.h"

#include "../unit.h"

#include "device/device.h"

#include <math.h>
#include <stdio.h>

/* Grains: a run of 3 1/2, a run of 2, a run of 1 that is left alone, 2 of
 * padding. */
enum { GRAINS = 9, ELEMENTS = GRAINS * GYRE_GRAIN, VARS = 3, RUNS = 3 };

static const struct {
    size_t at, n;
    uint64_t index;
} runs[RUNS] = {{0, 3 * GYRE_GRAIN + 500, 5 * GYRE_GRAIN},
                {4 * GYRE_GRAIN, 2 * GYRE_GRAIN, 0},
                {6 * GYRE_GRAIN, 700, 0}};

static const gyre_state_codec layouts[][VARS] = {
    {GYRE_STATE_F32, GYRE_STATE_F32, GYRE_STATE_F32},
    {GYRE_STATE_BF16, GYRE_STATE_F32, GYRE_STATE_Q8},
    {GYRE_STATE_BF16_STOCHASTIC, GYRE_STATE_Q8, GYRE_STATE_BF16},
    {GYRE_STATE_F32, GYRE_STATE_Q8, GYRE_STATE_Q8},
};
enum { LAYOUTS = sizeof(layouts) / sizeof(*layouts) };

typedef struct bench {
    unit_memory memory;
    gyre_context *context;
    gyre_opt *opt;
    float scalars[GYRE_OPT_MAX_SCALARS];
    gyre_isa isa;
    gyre_var vars[VARS];
    uint8_t data[VARS * ELEMENTS * sizeof(float)];
    uint8_t want[VARS * ELEMENTS * sizeof(float)];
    float g[ELEMENTS];
    float sent[ELEMENTS]; /* what the wire blocks hold */
    uint8_t *wire[RUNS];
    gyre_segment segments[RUNS];
} bench;

static float small(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*seed >> 32) * 0x1p-33f;
}

static void set_up(bench *b, gyre_isa isa, size_t layout)
{
    double values[GYRE_OPT_MAX_PARAMETERS];
    uint64_t seed = 42;
    size_t at = 0;

    b->isa = isa;
    b->context = unit_context(&b->memory);
    assert_int_equal(
        gyre_opt_create(b->context, "adamw", NULL, 0, &b->opt, NULL), GYRE_OK);
    assert_int_equal(gyre_opt_values(b->opt, NULL, 0, values, NULL), GYRE_OK);
    assert_int_equal(gyre_opt_scalars(b->opt, values, 3, b->scalars, NULL),
                     GYRE_OK);
    for (size_t v = 0; v < VARS; v++) {
        gyre_var *var = &b->vars[v];

        *var = (gyre_var){layouts[layout][v], at,
                          gyre_state_stride(layouts[layout][v])};
        at += GRAINS * var->stride;
        for (size_t k = 0; k < GRAINS; k++) {
            float x[GYRE_GRAIN];

            for (size_t i = 0; i < GYRE_GRAIN; i++)
                x[i] = v == 1 ? small(&seed) : fabsf(small(&seed));
            gyre_state_encode(var->codec, isa, x,
                              b->data + var->at + k * var->stride, NULL, 0);
        }
    }
    for (size_t i = 0; i < ELEMENTS; i++)
        b->g[i] = small(&seed);
    memcpy(b->want, b->data, sizeof(b->data));
    for (size_t r = 0; r < RUNS; r++)
        b->segments[r] = (gyre_segment){runs[r].at,
                                        runs[r].n,
                                        runs[r].index,
                                        r < 2 ? b->g + runs[r].at : NULL,
                                        NULL,
                                        b->scalars,
                                        {77 + (uint32_t)r, 9}};
}

static void tear_down(bench *b)
{
    for (size_t r = 0; r < RUNS; r++)
        free(b->wire[r]);
    gyre_opt_destroy(b->opt);
    gyre_context_destroy(b->context);
    unit_memory_check(&b->memory);
    free(b);
}

static gyre_update_job job_of(bench *b)
{
    gyre_update_job job = {
        .opt = b->opt,
        .data = b->data,
        .vars = b->vars,
        .var_count = VARS,
        .elements = ELEMENTS,
        .segments = b->segments,
        .segment_count = RUNS,
        .q = 0.37f,
        .check = 1,
        .isa = b->isa,
        .seed_before = 7,
        .seed_after = 8,
    };

    return job;
}

/* One grain, all of it in the open; g: the first `n` of its gradient. */
static void update_openly(bench *b, const gyre_segment *s, size_t k, size_t n,
                          const float *g)
{
    float value[VARS][GYRE_GRAIN], x[GYRE_GRAIN];
    float *slot[VARS];
    size_t grain = s->at / GYRE_GRAIN + k;
    uint64_t index = s->index + k * GYRE_GRAIN;

    for (size_t v = 0; v < VARS; v++) {
        slot[v] = value[v];
        gyre_state_decode(b->vars[v].codec, GYRE_ISA_SCALAR,
                          b->want + b->vars[v].at + grain * b->vars[v].stride,
                          value[v]);
    }
    for (size_t i = 0; i < n; i++)
        x[i] = g[i] * 0.37f;
    gyre_opt_update(b->opt, n, x, slot, s->scalars, index);
    for (size_t v = 0; v < VARS; v++) {
        uint32_t key[2];

        gyre_state_grain_key(s->key, (uint32_t)v, index, key);
        gyre_state_encode(b->vars[v].codec, GYRE_ISA_SCALAR, value[v],
                          b->want + b->vars[v].at + grain * b->vars[v].stride,
                          key, index);
    }
}

static void expect_update(bench *b, gyre_update_job *job, const float *g)
{
    uint64_t before = gyre_device_hash(b->data, b->vars, VARS, ELEMENTS, 7);

    gyre_device_update(job);
    assert_null(job->refused);
    for (size_t r = 0; r < 2; r++)
        for (size_t at = 0; at < runs[r].n; at += GYRE_GRAIN) {
            size_t left = runs[r].n - at;

            update_openly(b, &b->segments[r], at / GYRE_GRAIN,
                          left < GYRE_GRAIN ? left : GYRE_GRAIN,
                          g + runs[r].at + at);
        }
    assert_memory_equal(b->data, b->want, sizeof(b->data));
    assert_int_equal(job->before, before);
    assert_int_equal(job->after,
                     gyre_device_hash(b->want, b->vars, VARS, ELEMENTS, 8));
}

static bool machine_has(gyre_isa isa)
{
    gyre_context_options options = {.size = sizeof(options)};
    gyre_context *context;

    options.instruction_set = gyre_isa_name(isa);
    if (gyre_context_create(&options, &context, NULL) != GYRE_OK)
        return false;
    gyre_context_destroy(context);
    return true;
}

static void test_encoded_variables(void **state)
{
    (void)state;
    for (int isa = 0; isa < GYRE_ISA_COUNT; isa++)
        for (size_t l = 0; machine_has((gyre_isa)isa) && l < LAYOUTS; l++) {
            bench *b = calloc(1, sizeof(*b));
            gyre_update_job job;

            set_up(b, (gyre_isa)isa, l);
            job = job_of(b);
            expect_update(b, &job, b->g);
            tear_down(b);
        }
}

/* ---- wire blocks -------------------------------------------------------- */

/* The gradients of the first two runs as wire blocks. */
static void send(bench *b, const gyre_codec *codec)
{
    for (size_t r = 0; r < 2; r++) {
        gyre_wire_writer w;

        b->wire[r] = calloc(1, gyre_codec_bound(codec, runs[r].n));
        gyre_wire_begin(&w, codec, runs[r].n, b->wire[r]);
        for (size_t at = 0; at < runs[r].n; at += GYRE_GRAIN) {
            size_t left = runs[r].n - at;
            gyre_compress c = {.size = sizeof(c),
                               .values = gyre_codec_values(codec),
                               .n = left < GYRE_GRAIN ? left : GYRE_GRAIN,
                               .x = b->g + runs[r].at + at,
                               .index = runs[r].index + at,
                               .payload = gyre_wire_next(&w),
                               .kept = b->sent + runs[r].at + at};

            gyre_wire_add(&w, gyre_codec_compress(codec, &c));
        }
        assert_true(gyre_wire_end(&w) <= gyre_codec_bound(codec, runs[r].n));
        b->segments[r].g = NULL;
        b->segments[r].wire = b->wire[r];
    }
}

static void test_wire_blocks(void **state)
{
    static const char *const names[] = {"topk", "quantize", "fp8", "sign"};

    (void)state;
    for (size_t c = 0; c < 4; c++)
        for (size_t l = 0; l < LAYOUTS; l++) {
            bench *b = calloc(1, sizeof(*b));
            gyre_codec *codec;
            gyre_update_job job;

            set_up(b, GYRE_ISA_SCALAR, l);
            assert_int_equal(
                gyre_codec_create(b->context, names[c], NULL, 0, &codec, NULL),
                GYRE_OK);
            send(b, codec);
            job = job_of(b);
            job.codec = codec;
            expect_update(b, &job, b->sent);
            gyre_codec_destroy(codec);
            tear_down(b);
        }
}

/* A block whose header is right and whose payload is not: an index beyond the
 * grain. */
static void test_an_impossible_payload_is_told(void **state)
{
    bench *b = calloc(1, sizeof(*b));
    const uint8_t *payload;
    gyre_codec *codec;
    gyre_update_job job;
    size_t bytes;

    (void)state;
    set_up(b, GYRE_ISA_SCALAR, 0);
    assert_int_equal(
        gyre_codec_create(b->context, "topk", NULL, 0, &codec, NULL), GYRE_OK);
    send(b, codec);
    gyre_wire_grain(codec, b->wire[1], 1, &payload, &bytes);
    memset(b->wire[1] + (payload - b->wire[1]), 0xff, bytes);
    job = job_of(b);
    job.codec = codec;
    gyre_device_update(&job);
    assert_ptr_equal(job.refused, &b->segments[1]);
    gyre_codec_destroy(codec);
    tear_down(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encoded_variables),
        cmocka_unit_test(test_wire_blocks),
        cmocka_unit_test(test_an_impossible_payload_is_told),
    };

    return cmocka_run_group_tests_name("device: coded", tests, NULL, NULL);
}
