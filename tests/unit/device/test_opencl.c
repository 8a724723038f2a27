/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the opencl module refuses and gives back, on a loader that is not there
 * (fake/); that programs which do not build tell why is also tried on a real
 * one in test_compute.  Skips where the module was not built.
 */
#include "config.h"

#include "device/device.h"
#include "device/module.h"

#include "fake/fake.h"
#include "open_fake.h"

enum { GRAINS = 3, VARS = 2, BYTES = GRAINS * VARS * 4096, LANES = 2 };

/* CL_FP_...: denormals, infinities, to nearest, division. */
enum { DENORM = 1, INF_NAN = 2, NEAREST = 4, DIVIDE = 128 };

static fake_opencl_state *opencl;

typedef struct bench {
    unit_memory memory;
    gyre_context *context;
    gyre_opt *opt;
    gyre_var vars[VARS];
    gyre_state_codec states[VARS];
    gyre_segment segment;
    float scalars[GYRE_OPT_MAX_SCALARS];
    float g[GRAINS * GYRE_GRAIN];
    uint8_t data[LANES][BYTES];
    int allow_inexact;
} bench;

static int setup(void **state)
{
    bench *b = calloc(1, sizeof(*b));

    if (opencl == NULL)
        opencl = open_fake("libOpenCL.so.1", "fake_opencl");
    *opencl = (fake_opencl_state){
        .platforms = 1,
        .bytes = 1ul << 30,
        .fp_config = DENORM | INF_NAN | NEAREST | DIVIDE,
        .compiler = 1,
    };
    b->context = unit_context(&b->memory);
    assert_int_equal(
        gyre_opt_create(b->context, "lion", NULL, 0, &b->opt, NULL), GYRE_OK);
    for (size_t v = 0; v < VARS; v++)
        b->vars[v] = (gyre_var){GYRE_STATE_F32, v * GRAINS * 4096, 4096};
    b->segment = (gyre_segment){
        .n = GRAINS * GYRE_GRAIN, .g = b->g, .scalars = b->scalars};
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    bench *b = *state;

    gyre_opt_destroy(b->opt);
    gyre_context_destroy(b->context);
    unit_memory_check(&b->memory);
    assert_int_equal(opencl->wrong, 0);
    assert_int_equal(opencl->live, 0);
    free(b);
    return 0;
}

static gyre_status open_named(bench *b, const char *name, gyre_device **out,
                              gyre_error *error)
{
    gyre_device_spec spec = {.name = name,
                             .opt = b->opt,
                             .states = b->states,
                             .vars = VARS,
                             .grains = GRAINS,
                             .lanes = LANES,
                             .allow_inexact = b->allow_inexact};

    return gyre_device_open(b->context, &spec, out, error);
}

/* A life: open, a job on each lane, close. */
static gyre_status live(bench *b, gyre_error *error)
{
    gyre_device *device = NULL;
    gyre_update_job job[LANES];
    gyre_status status = open_named(b, "opencl", &device, error);

    if (status != GYRE_OK)
        return status;
    for (uint32_t i = 0; i < LANES; i++) {
        job[i] = (gyre_update_job){.opt = b->opt,
                                   .data = b->data[i],
                                   .vars = b->vars,
                                   .var_count = VARS,
                                   .elements = GRAINS * GYRE_GRAIN,
                                   .segments = &b->segment,
                                   .segment_count = 1,
                                   .q = 1};
        if (status == GYRE_OK)
            status = gyre_device_submit(device, i, &job[i], error);
    }
    for (uint32_t i = 0; i < LANES; i++) {
        gyre_status ended = gyre_device_finish(
            device, i, &job[i], status == GYRE_OK ? error : NULL);

        if (status == GYRE_OK)
            status = ended;
    }
    gyre_device_close(device);
    return status;
}

static void test_every_call_fails_once(void **state)
{
    bench *b = *state;
    gyre_error error;

    assert_int_equal(live(b, NULL), GYRE_OK);
    for (unsigned n = 1;; n++) {
        uint64_t before = b->memory.bytes;
        gyre_status status;

        assert_true(n < 200);
        opencl->calls = 0;
        opencl->fail_at = n;
        status = live(b, &error);
        if (opencl->calls < n)
            break;
        assert_int_not_equal(status, GYRE_OK);
        unit_assert_text(&error, "opencl: ");
        assert_int_equal(b->memory.bytes, before);
        assert_int_equal(opencl->live, 0);
    }
}

/* The transfer is accepted and fails on the way. */
static void test_a_failed_transfer_is_told(void **state)
{
    gyre_error error;

    opencl->event_state = -5;
    assert_int_equal(live(*state, &error), GYRE_IO);
    unit_assert_text(&error, "CL_OUT_OF_RESOURCES");
}

static void test_a_failed_build_tells_its_log(void **state)
{
    bench *b = *state;
    gyre_status status = GYRE_OK;
    gyre_error error;

    for (unsigned n = 1; status != GYRE_PLUGIN_BAD; n++) {
        assert_true(n < 10);
        opencl->calls = 0;
        opencl->fail_at = n;
        status = live(b, &error);
    }
    unit_assert_text(&error, "line 7: this does not build");
}

static void test_inexact_devices_are_refused(void **state)
{
    static const struct {
        int bit;
        const char *what;
    } needs[] = {
        {DENORM, "no denormals"},
        {INF_NAN, "no infinities"},
        {NEAREST, "no rounding to nearest"},
        {DIVIDE, "no correctly rounded division and root"},
    };
    bench *b = *state;
    gyre_error error;

    for (int i = 0; i < 4; i++) {
        opencl->fp_config =
            (DENORM | INF_NAN | NEAREST | DIVIDE) & ~(unsigned)needs[i].bit;
        b->allow_inexact = 0;
        assert_int_equal(live(b, &error), GYRE_UNSUPPORTED);
        unit_assert_text(&error, needs[i].what);
        unit_assert_text(&error, "allow_inexact");
        b->allow_inexact = 1;
        assert_int_equal(live(b, &error), GYRE_OK);
        assert_false(opencl->exact);
    }
    opencl->fp_config = DENORM | INF_NAN | NEAREST | DIVIDE;
    assert_int_equal(live(b, &error), GYRE_OK);
    assert_true(opencl->exact);
}

static void test_what_is_missing_is_named(void **state)
{
    bench *b = *state;
    gyre_device *device = NULL;
    gyre_error error;

    assert_int_equal(open_named(b, "opencl:3", &device, &error),
                     GYRE_NOT_FOUND);
    unit_assert_text(&error, "no OpenCL device 3; there are: opencl:0 fake");
    opencl->compiler = 0;
    assert_int_equal(live(b, &error), GYRE_UNSUPPORTED);
    unit_assert_text(&error, "no compiler");
    opencl->compiler = 1;
    opencl->bytes = 1000;
    assert_int_equal(live(b, &error), GYRE_NO_MEMORY);
    unit_assert_text(&error, "use smaller chunks");
    opencl->platforms = 0;
    assert_int_equal(live(b, &error), GYRE_NOT_FOUND);
    unit_assert_text(&error, "install pocl-opencl-icd");
    assert_int_equal(open_named(b, "opencl:", &device, &error), GYRE_INVALID);
    assert_int_equal(open_named(b, "tpu", &device, &error), GYRE_NOT_FOUND);
    unit_assert_text(&error, "there are: opencl");
}

static bool there(void)
{
    gyre_context *context = NULL;
    const gyre_plugin *plugin = NULL;
    gyre_error error;
    gyre_status status;

    if (gyre_context_create(NULL, &context, NULL) != GYRE_OK)
        exit(99);
    status =
        gyre_plugin_find(context, GYRE_KIND_DEVICE, "opencl", &plugin, &error);
    if (status == GYRE_NOT_FOUND)
        printf("1..0 # SKIP %s\n", error.text);
    gyre_context_destroy(context);
    return status != GYRE_NOT_FOUND;
}

#define WITH_BENCH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BENCH(test_every_call_fails_once),
        WITH_BENCH(test_a_failed_transfer_is_told),
        WITH_BENCH(test_a_failed_build_tells_its_log),
        WITH_BENCH(test_inexact_devices_are_refused),
        WITH_BENCH(test_what_is_missing_is_named),
    };

    if (!there())
        return 0;
    return cmocka_run_group_tests_name("device: opencl calls", tests, NULL,
                                       NULL);
}
