/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the cuda module asks of a driver, on one that is not there (fake/): the
 * order of calls, what is given back when the n-th fails, what errors say.
 * Skips where the module was not built.
 */
#include "config.h"

#include "../unit.h"

#include "device/device.h"
#include "device/module.h"

#include "fake/fake.h"
#include "open_fake.h"

#include <sys/wait.h>

enum { GRAINS = 3, VARS = 2, BYTES = GRAINS * VARS * 4096, LANES = 2 };

static fake_cuda_state *cuda;
static fake_nvrtc_state *nvrtc;

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
} bench;

/* ---- the fakes ------------------------------------------------------- */

static void open_fakes(void)
{
    cuda = open_fake("libcuda.so.1", "fake_cuda");
    nvrtc = open_fake("libnvrtc.so.13", "fake_nvrtc");
}

/* ---- a job ---------------------------------------------------------- */

/* What the test's kernel does: shows that bytes went there and came back. */
static void turn_over(void *state, const void *input, unsigned grains)
{
    uint8_t *at = state;

    (void)input;
    for (size_t i = 0; i < (size_t)grains * VARS * 4096; i++)
        at[i] ^= 0xff;
}

static int setup(void **state)
{
    bench *b = calloc(1, sizeof(*b));

    if (cuda == NULL)
        open_fakes();
    *cuda = (fake_cuda_state){
        .devices = 1, .free_bytes = (size_t)1 << 30, .kernel = turn_over};
    *nvrtc = (fake_nvrtc_state){0};
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
    assert_int_equal(cuda->wrong, 0);
    assert_int_equal(cuda->depth, 0);
    assert_int_equal(cuda->retained, 0);
    assert_int_equal(cuda->abandoned, 0);
    assert_int_equal(nvrtc->wrong, 0);
    assert_int_equal(nvrtc->live, 0);
    free(b);
    return 0;
}

static gyre_status open_device(bench *b, gyre_device **out, gyre_error *error)
{
    gyre_device_spec spec = {.name = "cuda",
                             .opt = b->opt,
                             .states = b->states,
                             .vars = VARS,
                             .grains = GRAINS,
                             .lanes = LANES};

    return gyre_device_open(b->context, &spec, out, error);
}

static gyre_update_job job_of(bench *b, int lane)
{
    return (gyre_update_job){.opt = b->opt,
                             .data = b->data[lane],
                             .vars = b->vars,
                             .var_count = VARS,
                             .elements = GRAINS * GYRE_GRAIN,
                             .segments = &b->segment,
                             .segment_count = 1,
                             .q = 1,
                             .check = 1};
}

/* A life: open, a job on each lane, close. */
static gyre_status live(bench *b, gyre_error *error)
{
    gyre_device *device = NULL;
    gyre_update_job job[LANES] = {job_of(b, 0), job_of(b, 1)};
    gyre_status status = open_device(b, &device, error);
    gyre_status ended;

    if (status != GYRE_OK)
        return status;
    gyre_device_pin(device, b->data, sizeof(b->data));
    for (uint32_t i = 0; status == GYRE_OK && i < LANES; i++)
        status = gyre_device_submit(device, i, &job[i], error);
    for (uint32_t i = 0; i < LANES; i++) {
        ended = gyre_device_finish(device, i, &job[i],
                                   status == GYRE_OK ? error : NULL);
        if (status == GYRE_OK)
            status = ended;
    }
    gyre_device_unpin(device, b->data, sizeof(b->data));
    gyre_device_close(device);
    return status;
}

static void test_bytes_go_there_and_come_back(void **state)
{
    bench *b = *state;
    gyre_device *device = NULL;
    gyre_update_job job = job_of(b, 0);

    assert_int_equal(open_device(b, &device, NULL), GYRE_OK);
    assert_true(gyre_device_memory(device) >= LANES * BYTES);
    memset(b->data[0], 0x5a, BYTES);
    cuda->pending = 1;
    assert_int_equal(gyre_device_submit(device, 1, &job, NULL), GYRE_OK);
    assert_false(gyre_device_ready(device, 1));
    assert_true(gyre_device_ready(device, 1));
    assert_true(gyre_device_ready(device, 0));
    assert_int_equal(gyre_device_finish(device, 1, &job, NULL), GYRE_OK);
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(b->data[0][i], 0xa5);
    assert_int_equal(job.after, gyre_device_hash(b->data[0], b->vars, VARS,
                                                 GRAINS * GYRE_GRAIN, 0));
    assert_int_equal(cuda->launches, 1);
    gyre_device_close(device);
    assert_int_equal(cuda->live, 0);
}

/* What work-groups share has no other place than the launch to be asked for. */
static void test_shared_memory_is_asked_for(void **state)
{
    bench *b = *state;
    gyre_device *device = NULL;
    gyre_update_job job = job_of(b, 0);

    assert_int_equal(open_device(b, &device, NULL), GYRE_OK);
    assert_int_equal(gyre_device_submit(device, 0, &job, NULL), GYRE_OK);
    assert_int_equal(gyre_device_finish(device, 0, &job, NULL), GYRE_OK);
    assert_int_equal(cuda->shared, 0);
    gyre_device_close(device);
    b->states[1] = GYRE_STATE_Q8; /* waits there until it is encoded */
    b->vars[1] = (gyre_var){GYRE_STATE_Q8, GRAINS * 4096,
                            gyre_state_stride(GYRE_STATE_Q8)};
    assert_int_equal(open_device(b, &device, NULL), GYRE_OK);
    cuda->kernel = NULL;
    assert_int_equal(gyre_device_submit(device, 0, &job, NULL), GYRE_OK);
    assert_int_equal(gyre_device_finish(device, 0, &job, NULL), GYRE_OK);
    assert_true(cuda->shared >= 1024 * sizeof(float));
    gyre_device_close(device);
}

/* Whichever call of the driver fails, nothing stays and the text names it. */
static void test_every_call_fails_once(void **state)
{
    bench *b = *state;
    gyre_error error;
    gyre_status status;

    assert_int_equal(live(b, NULL), GYRE_OK); /* module and slots are there */
    for (unsigned n = 1;; n++) {
        uint64_t before = b->memory.bytes;

        assert_true(n < 200);
        cuda->fail_at = cuda->calls + n;
        cuda->failed = NULL;
        status = live(b, &error);
        cuda->fail_at = 0;
        if (cuda->failed == NULL)
            break;
        if (status != GYRE_OK)
            unit_assert_text(&error, "CUDA_ERROR_LAUNCH_FAILED");
        assert_int_equal(b->memory.bytes, before);
        assert_int_equal(cuda->retained, 0);
        /* Without the context nothing can be given back but the context. */
        if (strstr(cuda->failed, "cuCtxPushCurrent") == NULL)
            assert_int_equal(cuda->abandoned, 0);
        cuda->abandoned = 0;
        assert_int_equal(cuda->live, 0);
    }
    assert_int_equal(status, GYRE_OK);
}

static void test_every_call_of_the_compiler_fails_once(void **state)
{
    bench *b = *state;
    gyre_error error;

    for (unsigned n = 1; n <= 4; n++) {
        nvrtc->fail_at = nvrtc->calls + n;
        assert_int_equal(live(b, &error), GYRE_PLUGIN_BAD);
        nvrtc->fail_at = 0;
        unit_assert_text(&error, "cuda: ");
        if (n == 2)
            unit_assert_text(&error, "line 7: this does not build");
        assert_int_equal(cuda->live, 0);
    }
}

static void test_memory_runs_out(void **state)
{
    bench *b = *state;

    assert_int_equal(live(b, NULL), GYRE_OK);
    for (uint64_t n = 1;; n++) {
        uint64_t before = b->memory.bytes;
        gyre_status status;

        b->memory.fail_at = b->memory.requests + n;
        status = live(b, NULL);
        b->memory.fail_at = 0;
        if (status == GYRE_OK)
            break;
        assert_int_equal(status, GYRE_NO_MEMORY);
        assert_int_equal(b->memory.bytes, before);
        assert_int_equal(cuda->live, 0);
    }
}

/* Host memory stands for the GPU's; each call fails once. */
static void test_gradients_come_from_a_gpu(void **state)
{
    bench *b = *state;
    const char text[] = "gradients";
    gyre_status status = GYRE_IO;
    gyre_error error;
    char host[6];

    for (unsigned n = 1; status != GYRE_OK; n++) {
        assert_true(n < 20);
        cuda->fail_at = cuda->calls + n;
        memset(host, 0, sizeof(host));
        status = gyre_device_fetch(b->context, GYRE_CUDA_MEMORY, 0, text, 4, 5,
                                   host, &error);
        if (status != GYRE_OK)
            unit_assert_text(&error, "CUDA_ERROR_LAUNCH_FAILED");
        assert_int_equal(cuda->retained, 0);
    }
    assert_string_equal(host, "ients");
    assert_int_equal(gyre_device_fetch(b->context, GYRE_CUDA_MEMORY, 3, text, 0,
                                       1, host, &error),
                     GYRE_NOT_FOUND);
    unit_assert_text(&error, "no CUDA device 3");
}

static void test_what_is_missing_is_named(void **state)
{
    bench *b = *state;
    gyre_device *device = NULL;
    gyre_error error;

    cuda->devices = 0;
    assert_int_equal(open_device(b, &device, &error), GYRE_NOT_FOUND);
    unit_assert_text(&error, "no CUDA device 0; the driver sees 0");
    cuda->init_result = 100; /* CUDA_ERROR_NO_DEVICE */
    assert_int_equal(open_device(b, &device, &error), GYRE_NOT_FOUND);
    unit_assert_text(&error, "it sees no GPU");
    cuda->init_result = 803;
    assert_int_equal(open_device(b, &device, &error), GYRE_UNSUPPORTED);
    unit_assert_text(&error, "nvidia-smi");
    cuda->init_result = 0;
    cuda->devices = 1;
    cuda->free_bytes = 1000;
    assert_int_equal(open_device(b, &device, &error), GYRE_NO_MEMORY);
    unit_assert_text(&error, "use smaller chunks");
}

/* Before the fakes are opened, on a machine without a driver; one that is
 * there must not come into this process. */
static void test_no_driver(void **state)
{
    bench b = {0};
    gyre_device *device = NULL;
    gyre_error error;
    int ended = 0;
    pid_t child = fork();

    (void)state;
    if (child == 0)
        unit_end_child(dlopen("libcuda.so.1", RTLD_NOW) == NULL);
    assert_int_equal(waitpid(child, &ended, 0), child);
    if (ended != 0)
        skip();
    b.context = unit_context(&b.memory);
    assert_int_equal(gyre_opt_create(b.context, "lion", NULL, 0, &b.opt, NULL),
                     GYRE_OK);
    assert_int_equal(open_device(&b, &device, &error), GYRE_UNSUPPORTED);
    unit_assert_text(&error, "no NVIDIA driver: libcuda.so.1 not found");
    gyre_opt_destroy(b.opt);
    gyre_context_destroy(b.context);
    unit_memory_check(&b.memory);
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
        gyre_plugin_find(context, GYRE_KIND_DEVICE, "cuda", &plugin, &error);
    if (status == GYRE_NOT_FOUND)
        printf("1..0 # SKIP %s\n", error.text);
    gyre_context_destroy(context);
    return status != GYRE_NOT_FOUND;
}

#define WITH_BENCH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_driver),
        WITH_BENCH(test_bytes_go_there_and_come_back),
        WITH_BENCH(test_shared_memory_is_asked_for),
        WITH_BENCH(test_every_call_fails_once),
        WITH_BENCH(test_every_call_of_the_compiler_fails_once),
        WITH_BENCH(test_memory_runs_out),
        WITH_BENCH(test_gradients_come_from_a_gpu),
        WITH_BENCH(test_what_is_missing_is_named),
    };

    if (!there())
        return 0;
    return cmocka_run_group_tests_name("device: cuda calls", tests, NULL, NULL);
}
