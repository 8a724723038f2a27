/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the cuda module asks of a driver, on one that is not there (fake/), when
 * gradients are compressed where they are born: which memory a kernel may read,
 * arguments of launches, what is given back when the n-th call fails.  Skips
 * where the module was not built.
 */
#include "config.h"

#include "../unit.h"

#include "device/birth.h"
#include "device/module.h"

#include "fake/fake.h"
#include "open_fake.h"

enum { N = 1500, GRAINS = 3, RETAINED = 1 };

static fake_cuda_state *cuda;
static fake_nvrtc_state *nvrtc;
static struct {
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*take)(uint64_t *at, size_t bytes);
    int (*give)(uint64_t at);
} driver;

typedef struct bench {
    unit_memory memory;
    gyre_context *context;
    gyre_codec *codec;
    float *born; /* memory of the "GPU": N floats */
    gyre_gradient piece;
    float host[N], e[N];
    double leaves[GRAINS];
    uint64_t wire[N];
} bench;

static void find(void *library, const char *name, void *out)
{
    void *at = dlsym(library, name);

    assert_non_null(at);
    memcpy(out, &at, sizeof(at));
}

static void open_fakes(void)
{
    void *library;

    cuda = open_fake("libcuda.so.1", "fake_cuda");
    nvrtc = open_fake("libnvrtc.so.13", "fake_nvrtc");
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    find(library, "cuDevicePrimaryCtxRetain", &driver.retain);
    find(library, "cuDevicePrimaryCtxRelease_v2", &driver.release);
    find(library, "cuMemAlloc_v2", &driver.take);
    find(library, "cuMemFree_v2", &driver.give);
}

/* As the kernels would, as far as it shows that arguments are in their places:
 * a leaf is the grain's first gradient. */
static void run_kernel(const char *name, unsigned groups, void *const *blocks,
                       const unsigned *words)
{
    float *g = blocks[0];
    const float *e = blocks[1];
    float *next = blocks[2];
    uint8_t *payload = blocks[3];
    double *leaves = blocks[4];
    const char *from = blocks[5];

    if (strcmp(name, "gyre_take") == 0) {
        for (unsigned i = 0; i < words[0]; i++) {
            float x;

            memcpy(&x, from + words[3] + (size_t)i * words[5] * 4, 4);
            g[words[1] + i] = words[8] ? g[words[1] + i] + x : x;
        }
        assert_int_equal(groups, (words[0] + 255) / 256);
    } else if (strcmp(name, "gyre_leaf") == 0) {
        for (unsigned k = 0; k < words[1]; k++)
            leaves[words[0] + k] = g[(words[0] + k) * 1024];
        assert_int_equal(groups, (words[1] + 15) / 16);
    } else {
        for (unsigned k = 0; k < groups; k++) {
            size_t at = (words[0] + k) * (size_t)1024;

            memset(payload + (size_t)(words[0] + k) * words[9], 0x11,
                   k + 1 < groups ? words[9] : words[10]);
            leaves[words[11] + words[0] + k] = g[at];
            if (words[8])
                next[at] = e[at] + 1;
        }
    }
}

/* ---- a life ----------------------------------------------------------- */

/* Everything that a store does there, once. */
static gyre_status use(bench *b, gyre_birth *birth, gyre_error *error)
{
    gyre_feedback_job job = {.codec = b->codec,
                             .n = N,
                             .e = b->e,
                             .e_next = b->e,
                             .q = 1,
                             .kappa = 1,
                             .wire = (uint8_t *)b->wire,
                             .leaves = b->leaves};
    gyre_status status =
        gyre_birth_take(birth, &b->piece, 1024, N, false, error);

    if (status == GYRE_OK)
        status = gyre_birth_give(birth, b->host, 1024, N, true, error);
    if (status == GYRE_OK)
        status = gyre_birth_leaves(birth, 1, N, b->leaves, error);
    if (status == GYRE_OK) {
        assert_true(b->leaves[0] == 2 && b->leaves[1] == 1024 + 1 + 1);
        status = gyre_birth_clear(birth, 0, 1024, N, error);
    }
    if (status == GYRE_OK)
        status = gyre_birth_write(birth, 0, 1024, N, b->e, error);
    if (status == GYRE_OK)
        status = gyre_birth_copy(birth, 0, 1024, N, error);
    if (status == GYRE_OK)
        status = gyre_birth_encode(birth, &job, 1, 1, error);
    if (status == GYRE_OK) {
        assert_int_equal(job.finite, 1);
        assert_int_equal(
            gyre_wire_check(b->codec, job.wire, job.bytes, N, error), GYRE_OK);
        assert_int_equal(job.wire[GYRE_WIRE_HEAD], 0x11);
        status = gyre_birth_read(birth, 0, 1024, 1, b->host + 1, error);
    }
    if (status == GYRE_OK)
        assert_true(b->host[1] == b->e[0] + 1);
    b->host[1] = 1;
    return status;
}

static gyre_status live(bench *b, gyre_error *error)
{
    gyre_birth_spec spec = {&b->piece, b->codec, GRAINS, true};
    gyre_birth *birth = NULL;
    gyre_status status = gyre_birth_open(b->context, &spec, &birth, error);

    if (status != GYRE_OK)
        return status;
    if (gyre_birth_reaches(birth, &b->piece, N * sizeof(float)))
        status = use(b, birth, error);
    else if (error != NULL) /* the piece would be copied whole */
        snprintf(error->text, sizeof(error->text), "CUDA_ERROR_LAUNCH_FAILED");
    gyre_birth_close(birth);
    return status;
}

static void test_arguments_are_in_their_places(void **state)
{
    bench *b = *state;

    assert_int_equal(live(b, NULL), GYRE_OK);
    assert_int_equal(cuda->shared, (512 + 1024) * 8);
    assert_true(cuda->launches >= 4);
}

static void test_only_what_the_driver_knows_is_read(void **state)
{
    bench *b = *state;
    gyre_birth_spec spec = {&b->piece, b->codec, GRAINS, false};
    gyre_birth *birth = NULL;
    gyre_gradient piece = b->piece;

    assert_int_equal(gyre_birth_open(b->context, &spec, &birth, NULL), GYRE_OK);
    assert_true(gyre_birth_reaches(birth, &piece, N * 4));
    assert_false(gyre_birth_reaches(birth, &piece, N * 4 + 1));
    piece.offset = 4;
    assert_true(gyre_birth_reaches(birth, &piece, N * 4 - 4));
    assert_false(gyre_birth_reaches(birth, &piece, N * 4));
    piece.offset = 2; /* a float that is not on its place */
    assert_false(gyre_birth_reaches(birth, &piece, 4));
    piece.offset = 0;
    piece.data = (char *)b->born + 8;
    assert_true(gyre_birth_reaches(birth, &piece, N * 4 - 8));
    assert_false(gyre_birth_reaches(birth, &piece, N * 4));
    piece.data = b->host;
    assert_false(gyre_birth_reaches(birth, &piece, 4));
    piece = b->piece;
    piece.device = 1;
    assert_false(gyre_birth_reaches(birth, &piece, 4));
    piece.device = 0;
    piece.kind = GYRE_OPENCL_MEMORY;
    assert_false(gyre_birth_reaches(birth, &piece, 4));
    gyre_birth_close(birth);
}

static void test_every_call_fails_once(void **state)
{
    bench *b = *state;
    int live_before = cuda->live;
    gyre_error error;
    gyre_status status;

    assert_int_equal(live(b, NULL), GYRE_OK);
    for (unsigned n = 1;; n++) {
        uint64_t before = b->memory.bytes;

        assert_true(n < 200);
        cuda->fail_at = cuda->calls + n;
        cuda->failed = NULL;
        error.text[0] = '\0';
        status = live(b, &error);
        cuda->fail_at = 0;
        if (cuda->failed == NULL)
            break;
        if (status != GYRE_OK)
            unit_assert_text(&error, "CUDA_ERROR_LAUNCH_FAILED");
        assert_int_equal(b->memory.bytes, before);
        assert_int_equal(cuda->retained, RETAINED);
        /* only without a context can nothing be given back */
        if (strstr(cuda->failed, "cuCtxPushCurrent") == NULL)
            assert_int_equal(cuda->live, live_before);
        live_before = cuda->live;
    }
    assert_int_equal(status, GYRE_OK);
}

static void test_a_text_that_does_not_build(void **state)
{
    bench *b = *state;
    gyre_error error;

    for (unsigned n = 1; n <= 4; n++) {
        nvrtc->fail_at = nvrtc->calls + n;
        assert_int_equal(live(b, &error), GYRE_PLUGIN_BAD);
        nvrtc->fail_at = 0;
        unit_assert_text(&error, "compressor quantize, encoder");
        if (n == 2)
            unit_assert_text(&error, "line 7: this does not build");
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
    }
}

/* ---- frame ------------------------------------------------------------ */

static int setup(void **state)
{
    bench *b = calloc(1, sizeof(*b));
    void *context;
    uint64_t at = 0;

    if (cuda == NULL)
        open_fakes();
    *cuda = (fake_cuda_state){
        .devices = 1, .free_bytes = (size_t)1 << 30, .birth = run_kernel};
    *nvrtc = (fake_nvrtc_state){0};
    b->context = unit_context(&b->memory);
    assert_int_equal(
        gyre_codec_create(b->context, "quantize", NULL, 0, &b->codec, NULL),
        GYRE_OK);
    assert_int_equal(driver.retain(&context, 0), 0);
    cuda->depth++;
    assert_int_equal(driver.take(&at, N * sizeof(float)), 0);
    cuda->depth--;
    b->born = (float *)(uintptr_t)at;
    for (int i = 0; i < N; i++) {
        b->born[i] = (float)(i + 1);
        b->host[i] = 1;
        b->e[i] = (float)i + 5;
    }
    b->piece = (gyre_gradient){
        .kind = GYRE_CUDA_MEMORY, .dtype = GYRE_F32, .data = b->born};
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    bench *b = *state;

    cuda->depth++;
    driver.give((uint64_t)(uintptr_t)b->born);
    cuda->depth--;
    driver.release(0);
    gyre_codec_destroy(b->codec);
    gyre_context_destroy(b->context);
    unit_memory_check(&b->memory);
    assert_int_equal(cuda->wrong, 0);
    assert_int_equal(cuda->depth, 0);
    assert_int_equal(cuda->retained, 0);
    assert_int_equal(nvrtc->wrong, 0);
    assert_int_equal(nvrtc->live, 0);
    free(b);
    return 0;
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

#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(test_arguments_are_in_their_places),
        WITH(test_only_what_the_driver_knows_is_read),
        WITH(test_every_call_fails_once),
        WITH(test_a_text_that_does_not_build),
        WITH(test_memory_runs_out),
    };

    if (!there())
        return 0;
    return cmocka_run_group_tests_name("device: cuda, where gradients are born",
                                       tests, NULL, NULL);
}
