/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention blocks on a device: OpenCL, or what GYRE_TEST_COMPUTE names,
 * against the naive reference; and the CUDA text built with NVRTC for sm_80 and
 * sm_90, which needs no GPU.  Skips what is not there.
 */
#include "config.h"

#include "device/module.h"
#include "device/open.h"
#include "kernel_case.h"

#include <gyre/registry.h>

#include <float.h>
#include <stdio.h>

static unit_memory memory;
static gyre_context *context;
static const char *compute = "opencl";

static const uint64_t bounds[] = {3, 25, 26, 60};
static const gyre_documents table[] = {{bounds, 3, 0}};
static const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0625f};

/* Four programs' worth of dims: the text is the same, the room is not. */
static const kernel_shape shapes[] = {
    {"causal", 2, 2, 2, 32, 32, 50, 50, .mask = {.causal = 1}},
    {"grouped", 1, 4, 2, 40, 24, 37, 61, .mask = {.causal = 1},
     .layout = CASE_STRIPED},
    {"all of it", 2, 4, 1, 24, 40, 70, 70,
     .mask =
         {.causal = 1, .window = 30, .document_count = 1, .documents = table},
     .params = {.dropout = 0.2, .seed = 77, .slopes = slopes, .scale = 0.3},
     .layout = CASE_ODD},
    {"head dim 256", 1, 1, 1, 256, 256, 9, 17, .layout = CASE_WHOLE},
    {"one token", 1, 1, 1, 8, 8, 1, 1, .layout = CASE_WHOLE},
};

static gyre_block_device *opened(const kernel_shape *s, gyre_dtype dtype)
{
    gyre_device_room room = {s->dim,    s->v_dim,   s->heads / s->kv_heads,
                             s->q_rows, s->kv_rows, s->q_rows * 16,
                             dtype};
    gyre_block_device *device = NULL;
    gyre_error error = {0};

    if (gyre_block_device_open(context, compute, 0, &room, &device, &error) !=
        GYRE_OK)
        fail_msg("%s", error.text);
    return device;
}

static void as_good_as_plain_loops(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int narrow = 0; narrow < 2; narrow++) {
            gyre_dtype dtype = narrow ? GYRE_BF16 : GYRE_F32;
            kernel_case c;
            case_how how = {.kernel = narrow ? "bf16" : "f32",
                            .split = 1 + (uint32_t)i % 2,
                            .gap = 2};

            how.device = opened(&shapes[i], dtype);
            case_make(&c, &shapes[i], dtype, i);
            kernel_values ref = case_naive(&c), plain = case_plain(&c);
            kernel_values got = case_run(&c, &how);
            values_check(shapes[i].name, &got, &plain, &ref, FLT_EPSILON);
            gyre_block_device_close(how.device);
            values_free(&got);
            values_free(&plain);
            values_free(&ref);
            case_free(&c);
        }
}

static void what_does_not_fit_is_refused(void **state)
{
    gyre_block_device *device = opened(&shapes[4], GYRE_F32);
    float room[16] = {0};
    gyre_plane plane = {.at = (char *)room, .row = 32, .head = 32, .batch = 32};
    gyre_piece piece = {0, 2, 1, 0};
    gyre_block block = {.batch = 1,
                        .heads = 1,
                        .kv_heads = 1,
                        .h1 = 1,
                        .head_dim = 8,
                        .v_head_dim = 8,
                        .q = &piece,
                        .kv = &piece,
                        .q_count = 1,
                        .kv_count = 1,
                        .Q = plane,
                        .K = plane,
                        .V = plane,
                        .O = plane,
                        .LSE = plane};
    gyre_device_room bad = {8, 8, 1, 1, 1, 1, GYRE_F16};
    gyre_error error = {0};

    (void)state;
    assert_int_equal(gyre_block_device_attend(device, &block, &error),
                     GYRE_RANGE);
    unit_assert_text(&error, "2 rows");
    block.kv_heads = 0;
    assert_int_equal(gyre_block_device_attend(device, &block, &error),
                     GYRE_INVALID);
    gyre_block_device_close(device);
    assert_int_equal(
        gyre_block_device_open(context, compute, 0, &bad, &device, &error),
        GYRE_INVALID);
    unit_assert_text(&error, "f32 or bf16");
}

static void every_request_may_fail(void **state)
{
    gyre_device_room room = {8, 8, 1, 8, 8, 64, GYRE_F32};

    (void)state;
    for (uint64_t n = 1;; n++) {
        gyre_block_device *device = NULL;
        gyre_error error = {0};
        uint64_t before = memory.bytes;

        memory.fail_at = memory.requests + n;
        gyre_status status =
            gyre_block_device_open(context, compute, 0, &room, &device, &error);
        memory.fail_at = 0;
        if (status == GYRE_OK) {
            gyre_block_device_close(device);
            break;
        }
        assert_int_equal(status, GYRE_NO_MEMORY);
        assert_int_equal(memory.bytes, before);
    }
}

static const gyre_driver *driver_of(const char *name)
{
    const gyre_plugin *plugin;
    gyre_error error;

    if (gyre_plugin_find(context, GYRE_KIND_DEVICE, name, &plugin, &error) !=
        GYRE_OK)
        return NULL;
    return plugin->descriptor;
}

static void cuda_builds_without_a_gpu(void **state)
{
    static const char *const targets[] = {"sm_80", "sm_90"};
    const gyre_driver *driver = driver_of("cuda");
    gyre_services services;
    gyre_error error = {0};
    char *source = NULL;

    (void)state;
    if (driver == NULL)
        skip();
    gyre_device_services(context, &services);
    assert_int_equal(gyre_block_source(context, "cuda", &source, &error),
                     GYRE_OK);
    for (size_t i = 0; i < 2; i++) {
        gyre_status status =
            driver->compile(&services, source, targets[i], &error);

        if (status == GYRE_UNSUPPORTED && i == 0) {
            printf("# %s\n", error.text);
            gyre_free_text(context, source);
            skip();
        }
        if (status != GYRE_OK)
            fail_msg("%s", error.text);
    }
    gyre_free_text(context, source);
}

int main(void)
{
    const struct CMUnitTest device[] = {
        cmocka_unit_test(as_good_as_plain_loops),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(every_request_may_fail),
        cmocka_unit_test(cuda_builds_without_a_gpu),
    };
    const struct CMUnitTest text[] = {
        cmocka_unit_test(cuda_builds_without_a_gpu),
    };
    const char *named = getenv("GYRE_TEST_COMPUTE");
    const gyre_driver *driver;
    gyre_services services;
    gyre_error error = {0};
    char name[128];
    int code;

    compute = named != NULL ? named : compute;
    context = unit_context(&memory);
    driver = driver_of(compute);
    gyre_device_services(context, &services);
    if (driver != NULL &&
        driver->describe(&services, 0, name, sizeof(name), &error) == GYRE_OK)
        code = cmocka_run_group_tests_name(compute, device, NULL, NULL);
    else
        code = cmocka_run_group_tests_name("text", text, NULL, NULL);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    return code;
}
