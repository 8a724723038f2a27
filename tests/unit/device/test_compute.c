/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device beside the CPU: every optimizer and variant, every state codec,
 * over several steps and lanes, must leave the same bytes and checksums.
 *
 * GYRE_TEST_COMPUTE names the device ("opencl" when it is not set); a machine
 * without it skips.
 */
#include "config.h"

#include "../unit.h"

#include "device/device.h"
#include "device/feedback.h"

#include "matrix.h"

#include <math.h>
#include <stdio.h>

enum {
    GRAINS = 11,
    ELEMENTS = GRAINS * GYRE_GRAIN,
    MAX_VARS = 1 + GYRE_OPT_MAX_SLOTS,
    STEPS = 3,
    LANES = 2
};

typedef struct bench {
    unit_memory memory;
    gyre_context *context;
    gyre_opt *opt;
    gyre_codec *codec; /* NULL: raw gradients */
    uint8_t *wire;     /* of segment 3 */
    size_t wire_bytes;
    size_t var_count;
    size_t bytes;
    gyre_var vars[MAX_VARS];
    gyre_state_codec states[MAX_VARS];
    float g[ELEMENTS];
    float scalars[STEPS][2][GYRE_OPT_MAX_SCALARS];
} bench;

static const char *compute(void)
{
    const char *name = getenv("GYRE_TEST_COMPUTE");

    return name != NULL ? name : "opencl";
}

/* ---- what is computed ------------------------------------------------ */

/* Over the whole range: denormals, zeros of both signs, large ones. */
static float value(uint64_t *seed)
{
    uint32_t word;

    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    word = (uint32_t)(*seed >> 32);
    if (word % 17 == 0)
        return word & 64 ? -0.0f : 0.0f;
    if (word % 13 == 0)
        return ldexpf((float)(int32_t)word, -31 - 120 - (int)(word >> 8) % 24);
    return ldexpf((float)(int32_t)word, -31 - (int)(word >> 8) % 24);
}

static void make_vars(bench *b, gyre_state_codec parameter,
                      gyre_state_codec slots)
{
    b->var_count = 1 + gyre_opt_slot_count(b->opt);
    b->bytes = 0;
    for (size_t v = 0; v < b->var_count; v++) {
        gyre_state_codec codec = v == 0 ? parameter : slots;

        b->states[v] = codec;
        b->vars[v] = (gyre_var){codec, b->bytes, gyre_state_stride(codec)};
        b->bytes += GRAINS * b->vars[v].stride;
    }
}

static void make_optimizer(bench *b, const matrix_row *row)
{
    double values[GYRE_OPT_MAX_PARAMETERS];
    const gyre_setting other = {"lr", 0.03125};
    gyre_error error;

    if (gyre_opt_create(b->context, row->name, row->settings, row->count,
                        &b->opt, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    for (int t = 0; t < STEPS; t++) {
        assert_int_equal(gyre_opt_values(b->opt, NULL, 0, values, NULL),
                         GYRE_OK);
        assert_int_equal(gyre_opt_scalars(b->opt, values, (uint64_t)t + 1,
                                          b->scalars[t][0], NULL),
                         GYRE_OK);
        assert_int_equal(gyre_opt_values(b->opt, &other, 1, values, NULL),
                         GYRE_OK);
        assert_int_equal(gyre_opt_scalars(b->opt, values, (uint64_t)t + 7,
                                          b->scalars[t][1], NULL),
                         GYRE_OK);
    }
}

/* Slots that roots are taken of must not be negative. */
static uint8_t *make_chunk(const bench *b)
{
    uint8_t *data = calloc(1, b->bytes);
    uint64_t seed = 5;
    float grain[GYRE_GRAIN];

    for (size_t v = 0; v < b->var_count; v++)
        for (size_t k = 0; k < GRAINS; k++) {
            for (size_t i = 0; i < GYRE_GRAIN; i++)
                grain[i] = v == 0 ? value(&seed) : fabsf(value(&seed));
            gyre_state_encode(b->states[v], GYRE_ISA_SCALAR, grain,
                              data + b->vars[v].at + k * b->vars[v].stride,
                              NULL, 0);
        }
    return data;
}

/* A whole run, a part of a grain, one element, one that is left alone; the
 * last grain is no segment's. */
static void make_segments(const bench *b, int step, gyre_segment *out)
{
    const float *first = b->scalars[step][0], *second = b->scalars[step][1];

    out[0] = (gyre_segment){.at = 0,
                            .n = 3000,
                            .index = 5 * GYRE_GRAIN,
                            .g = b->g,
                            .scalars = first,
                            .key = {7, 9}};
    out[1] = (gyre_segment){
        .at = 3 * GYRE_GRAIN, .n = 2 * GYRE_GRAIN, .g = NULL, .scalars = first};
    out[2] = (gyre_segment){.at = 5 * GYRE_GRAIN,
                            .n = 1,
                            .g = b->g + 5 * GYRE_GRAIN,
                            .scalars = second,
                            .key = {1, 2}};
    out[3] = (gyre_segment){.at = 6 * GYRE_GRAIN,
                            .n = 4 * GYRE_GRAIN,
                            .index = GYRE_GRAIN,
                            .g = b->g + 6 * GYRE_GRAIN,
                            .scalars = second,
                            .key = {3, 4}};
}

/* Compress the gradient of the last segment; the others stay raw.  A global
 * topk is given everything above a threshold, without a survey. */
static void compress(bench *b, gyre_segment *segment)
{
    uint8_t decided[256] = {0};
    gyre_feedback_job job = {.codec = b->codec,
                             .n = segment->n,
                             .index = segment->index,
                             .g = segment->g,
                             .q = 1,
                             .key = {11, 12},
                             .decided = decided,
                             .wire = b->wire};

    if (gyre_codec_survey_bytes(b->codec) > 0) {
        void *summary;

        for (uint32_t pass = 0, more = 1; more; pass++) {
            summary = calloc(1, gyre_codec_survey_bytes(b->codec));
            gyre_feedback_survey(&job, pass, segment->n, summary);
            more = (uint32_t)gyre_codec_decide(b->codec, pass, summary,
                                               segment->n, segment->n, decided);
            free(summary);
        }
    }
    gyre_feedback_run(&job);
    assert_true(job.finite);
    assert_true(job.bytes <= b->wire_bytes);
    segment->g = NULL;
    segment->wire = b->wire;
}

static gyre_update_job make_job(const bench *b, uint8_t *data, int step,
                                const gyre_segment *segments)
{
    return (gyre_update_job){.opt = b->opt,
                             .codec = b->codec,
                             .data = data,
                             .vars = b->vars,
                             .var_count = b->var_count,
                             .elements = ELEMENTS,
                             .segments = segments,
                             .segment_count = 4,
                             .q = step == 0 ? 1.0f : 0.37f,
                             .check = 1,
                             .isa = GYRE_ISA_SCALAR,
                             .seed_before = 7,
                             .seed_after = 8 + (uint64_t)step};
}

static void expect_same(const bench *b, const uint8_t *have,
                        const uint8_t *want, int step)
{
    for (size_t v = 0; v < b->var_count; v++)
        for (size_t i = 0; i < GRAINS * b->vars[v].stride; i++)
            if (have[b->vars[v].at + i] != want[b->vars[v].at + i])
                fail_msg("%s %s, %s, step %d, variable %zu as %s: byte %zu of "
                         "grain %zu is %02x, want %02x",
                         gyre_opt_plugin(b->opt)->name,
                         gyre_opt_variant(b->opt),
                         b->codec != NULL ? gyre_codec_name(b->codec) : "raw",
                         step, v, gyre_state_name(b->states[v]),
                         i % b->vars[v].stride, i / b->vars[v].stride,
                         have[b->vars[v].at + i], want[b->vars[v].at + i]);
}

/* Steps on both lanes at once; each lane has a chunk of its own. */
static void compare(bench *b, gyre_device *device)
{
    uint8_t *want = make_chunk(b);
    uint8_t *have[LANES] = {make_chunk(b), make_chunk(b)};
    uint64_t seed = 99;
    gyre_error error;

    for (int step = 0; step < STEPS; step++) {
        gyre_segment segments[4];
        gyre_update_job wanted, job[LANES];

        for (size_t i = 0; i < ELEMENTS; i++)
            b->g[i] = value(&seed);
        make_segments(b, step, segments);
        if (b->codec != NULL)
            compress(b, &segments[3]);
        wanted = make_job(b, want, step, segments);
        gyre_device_update(&wanted);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            job[lane] = make_job(b, have[lane], step, segments);
            if (gyre_device_submit(device, lane, &job[lane], &error) != GYRE_OK)
                fail_msg("%s", error.text);
        }
        for (uint32_t lane = 0; lane < LANES; lane++) {
            if (gyre_device_finish(device, lane, &job[lane], &error) != GYRE_OK)
                fail_msg("%s", error.text);
            assert_true(gyre_device_ready(device, lane));
            expect_same(b, have[lane], want, step);
            assert_int_equal(job[lane].before, wanted.before);
            assert_int_equal(job[lane].after, wanted.after);
        }
    }
    free(want);
    free(have[0]);
    free(have[1]);
}

static void try_states(bench *b, gyre_state_codec parameter,
                       gyre_state_codec slots)
{
    gyre_device_spec spec = {.name = compute(),
                             .opt = b->opt,
                             .codec = b->codec,
                             .states = b->states,
                             .grains = GRAINS,
                             .lanes = LANES};
    gyre_device *device = NULL;
    uint64_t host;
    gyre_error error;

    make_vars(b, parameter, slots);
    spec.vars = b->var_count;
    if (gyre_device_open(b->context, &spec, &device, &error) != GYRE_OK)
        fail_msg("%s: %s", gyre_state_name(slots), error.text);
    assert_int_equal(gyre_device_lanes(device), LANES);
    assert_true(gyre_device_memory(device) >= LANES * b->bytes);
    assert_int_equal(gyre_device_memory(device),
                     gyre_device_plan_memory(&spec, &host));
    compare(b, device);
    gyre_device_close(device);
}

/* A program takes PoCL a second: with GYRE_SOAK all pairs, else each codec as
 * parameter and as slot; as a sample one pair, another for the next row. */
static void try_optimizer(bench *b, int row)
{
    static const gyre_state_codec pairs[][2] = {
        {GYRE_STATE_F32, GYRE_STATE_F32},
        {GYRE_STATE_BF16, GYRE_STATE_BF16_STOCHASTIC},
        {GYRE_STATE_BF16_STOCHASTIC, GYRE_STATE_Q8}};
    const bool soak = getenv("GYRE_SOAK") != NULL;

    make_optimizer(b, &matrix_optimizers[row]);
    for (int p = 0; soak && p < GYRE_STATE_Q8; p++)
        for (int slots = 0; slots < GYRE_STATE_CODECS; slots++)
            try_states(b, (gyre_state_codec)p, (gyre_state_codec)slots);
    for (int k = 0; !soak && k < 3; k++)
        if (!unit_sampled() || k == row % 3)
            try_states(b, pairs[k][0], pairs[k][1]);
    gyre_opt_destroy(b->opt);
}

static void try_codec(bench *b, const matrix_row *row, bool coded)
{
    gyre_error error;

    if (gyre_codec_create(b->context, row->name, row->settings, row->count,
                          &b->codec, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    b->wire_bytes = (size_t)gyre_codec_bound(b->codec, 4 * GYRE_GRAIN);
    b->wire = aligned_alloc(8, b->wire_bytes);
    if (!coded || getenv("GYRE_SOAK") != NULL)
        try_states(b, GYRE_STATE_F32, GYRE_STATE_F32);
    if (coded || getenv("GYRE_SOAK") != NULL)
        try_states(b, GYRE_STATE_BF16, GYRE_STATE_Q8);
    free(b->wire);
    gyre_codec_destroy(b->codec);
    b->codec = NULL;
}

/* ---- tests ----------------------------------------------------------- */

static int setup(void **state)
{
    bench *b = calloc(1, sizeof(*b));

    b->context = unit_context(&b->memory);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    bench *b = *state;

    gyre_context_destroy(b->context);
    unit_memory_check(&b->memory);
    free(b);
    return 0;
}

static void test_every_optimizer_and_state(void **state)
{
    for (int i = 0; i < MATRIX_OPTIMIZERS; i++)
        try_optimizer(*state, i);
}

static void test_every_compressor(void **state)
{
    bench *b = *state;

    for (int i = 0; i < MATRIX_CODECS; i++) {
        make_optimizer(b, &matrix_optimizers[i % MATRIX_OPTIMIZERS]);
        try_codec(b, &matrix_codecs[i], i % 2 == 1);
        gyre_opt_destroy(b->opt);
    }
}

/* A job that is longer than what was announced is refused, and the next one
 * works. */
static void test_too_long_is_refused(void **state)
{
    bench *b = *state;
    gyre_device_spec spec = {.name = compute(),
                             .states = b->states,
                             .grains = GRAINS - 1,
                             .lanes = 1};
    gyre_segment segments[4];
    gyre_update_job job;
    gyre_device *device = NULL;
    gyre_error error;
    uint8_t *data;

    make_optimizer(b, &matrix_optimizers[0]);
    make_vars(b, GYRE_STATE_F32, GYRE_STATE_F32);
    spec.opt = b->opt;
    spec.vars = b->var_count;
    assert_int_equal(gyre_device_open(b->context, &spec, &device, NULL),
                     GYRE_OK);
    data = make_chunk(b);
    make_segments(b, 0, segments);
    job = make_job(b, data, 0, segments);
    assert_int_equal(gyre_device_submit(device, 0, &job, &error), GYRE_RANGE);
    unit_assert_text(&error, "opened for 10");
    gyre_device_close(device);
    free(data);
    gyre_opt_destroy(b->opt);
}

/* ---- a kernel that no device builds ---------------------------------- */

/* AdamW whose text for devices is not what its loops do. */
static gyre_plugin hostile_plugin;
static gyre_optimizer hostile_optimizer;
static const gyre_plugin *const hostile_plugins[] = {&hostile_plugin};
static gyre_module hostile_module;

static const gyre_module *hostile_entry(void)
{
    return &hostile_module;
}

static void test_a_failed_build_tells_its_log(void **state)
{
    static const char *const texts[] = {
        "p = no_such_name;",    "p = 1.0f; } } }", "p = \"",
        "#error no_such_thing", "while (1",
    };
    const matrix_row row = {"hostile", 0, {{0}}};
    bench *b = *state;
    const gyre_plugin *adamw = NULL;
    gyre_error error;

    assert_int_equal(gyre_plugin_find(b->context, GYRE_KIND_OPTIMIZER, "adamw",
                                      &adamw, NULL),
                     GYRE_OK);
    hostile_plugin = *adamw;
    hostile_optimizer = *(const gyre_optimizer *)adamw->descriptor;
    hostile_plugin.name = "hostile";
    hostile_plugin.descriptor = &hostile_optimizer;
    hostile_module = (gyre_module){GYRE_PLUGIN_MAGIC,
                                   sizeof(gyre_module),
                                   GYRE_PLUGIN_ABI_MAJOR,
                                   GYRE_PLUGIN_ABI_MINOR,
                                   hostile_plugin.build,
                                   hostile_plugins,
                                   1};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        gyre_context *context = unit_context(&b->memory);
        gyre_device_spec spec = {.name = compute(),
                                 .states = b->states,
                                 .grains = GRAINS,
                                 .lanes = LANES};
        gyre_device *device = NULL;
        gyre_context *kept = b->context;

        hostile_optimizer.kernel = texts[i];
        if (gyre_plugin_add(context, hostile_entry, &error) != GYRE_OK)
            fail_msg("%s", error.text);
        b->context = context;
        make_optimizer(b, &row);
        make_vars(b, GYRE_STATE_F32, GYRE_STATE_F32);
        spec.opt = b->opt;
        spec.vars = b->var_count;
        assert_int_equal(gyre_device_open(context, &spec, &device, &error),
                         GYRE_PLUGIN_BAD);
        unit_assert_text(&error, "does not build");
        unit_assert_text(&error, "build log: ");
        if (i == 0)
            unit_assert_text(&error, "no_such_name");
        gyre_opt_destroy(b->opt);
        b->context = kept;
        gyre_context_destroy(context);
    }
}

#define WITH_BENCH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* Is the device there?  Prints why not. */
static bool there(void)
{
    gyre_context *context = NULL;
    gyre_opt *opt = NULL;
    gyre_device *device = NULL;
    gyre_error error;
    const gyre_state_codec states[2] = {GYRE_STATE_F32, GYRE_STATE_F32};
    gyre_device_spec spec = {
        .name = compute(), .states = states, .vars = 2, .grains = 1};
    gyre_status status;

    if (gyre_context_create(NULL, &context, NULL) != GYRE_OK ||
        gyre_opt_create(context, "lion", NULL, 0, &opt, NULL) != GYRE_OK)
        exit(99);
    spec.opt = opt;
    status = gyre_device_open(context, &spec, &device, &error);
    gyre_device_close(device);
    gyre_opt_destroy(opt);
    gyre_context_destroy(context);
    /* Not there is no fault; not building is. */
    if (status == GYRE_UNSUPPORTED || status == GYRE_NOT_FOUND)
        printf("1..0 # SKIP %s\n", error.text);
    return status != GYRE_UNSUPPORTED && status != GYRE_NOT_FOUND;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BENCH(test_every_optimizer_and_state),
        WITH_BENCH(test_every_compressor),
        WITH_BENCH(test_a_failed_build_tells_its_log),
        WITH_BENCH(test_too_long_is_refused),
    };

    if (!there())
        return 0;
    return cmocka_run_group_tests_name("device: compute", tests, NULL, NULL);
}
