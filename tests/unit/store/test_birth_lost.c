/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device on which gradients are born fails, call by call: the round is lost
 * with an error that names tensor and driver, the store stands where it stood,
 * the residual too, and later rounds are those of the host.  The driver is a
 * fake whose kernels are the host's own functions (unit/device/fake).
 */
#include "config.h"

#include "fixture.h"

#include "device/device.h"
#include "device/module.h"
#include "registry/compressor.h"
#include "store/store.h"

#include "../device/fake/fake.h"
#include "../device/open_fake.h"

enum { ELEMENTS = 3000, MOST = 4096 };

static fake_cuda_state *cuda;
static fake_nvrtc_state *nvrtc;
static const gyre_codec *codec;
static gyre_isa isa;

/* ---- the kernels ------------------------------------------------------ */

static float float_of(unsigned bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static void take(float *g, const char *from, const unsigned *words)
{
    for (unsigned i = 0; i < words[0]; i++) {
        float x;

        memcpy(&x, from + words[3] + (size_t)i * words[5] * 4, 4);
        g[words[1] + i] = words[8] ? g[words[1] + i] + x : x;
    }
}

static void encode(void *const *blocks, unsigned groups, const unsigned *words)
{
    for (unsigned k = 0; k < groups; k++) {
        size_t at = (size_t)(words[0] + k) * GYRE_GRAIN;
        size_t left = words[1] - (size_t)k * GYRE_GRAIN;
        const float *g = (const float *)blocks[0] + at;
        const float *e = (const float *)blocks[1] + at;
        float a[GYRE_GRAIN], kept[GYRE_GRAIN];
        gyre_compress job = {.n = left < GYRE_GRAIN ? left : GYRE_GRAIN,
                             .x = a,
                             .index = (uint64_t)words[3] << 32 | words[2],
                             .key = {words[6], words[7]},
                             .payload = (uint8_t *)blocks[3] +
                                        (size_t)(words[0] + k) * words[9],
                             .kept = kept};

        job.index += (uint64_t)k * GYRE_GRAIN;
        for (size_t i = 0; i < job.n; i++)
            a[i] = fmaf(g[i], float_of(words[4]), float_of(words[5]) * e[i]) +
                   0.0f;
        gyre_codec_compress(codec, &job);
        for (size_t i = 0; i < job.n; i++)
            ((float *)blocks[2])[at + i] = a[i] - kept[i];
        ((double *)blocks[4])[words[11] + words[0] + k] =
            gyre_device_leaf_finite(isa, kept, job.n);
    }
}

static void run_kernel(const char *name, unsigned groups, void *const *blocks,
                       const unsigned *words)
{
    if (strcmp(name, "gyre_take") == 0) {
        take(blocks[0], blocks[5], words);
    } else if (strcmp(name, "gyre_encode") == 0) {
        encode(blocks, groups, words);
    } else {
        for (unsigned k = 0; k < words[1]; k++) {
            size_t left = words[2] - (size_t)k * GYRE_GRAIN;

            ((double *)blocks[4])[words[0] + k] = gyre_device_leaf_finite(
                isa,
                (const float *)blocks[0] + (size_t)(words[0] + k) * GYRE_GRAIN,
                left < GYRE_GRAIN ? left : GYRE_GRAIN);
        }
    }
}

/* ---- rounds ----------------------------------------------------------- */

static float *born; /* memory of the "GPU" */

static void open_fakes(void)
{
    int (*alloc)(uint64_t * at, size_t bytes);
    int (*retain)(void **context, int device);
    void *library, *at, *made;
    uint64_t memory = 0;

    cuda = open_fake("libcuda.so.1", "fake_cuda");
    nvrtc = open_fake("libnvrtc.so.13", "fake_nvrtc");
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *cuda = (fake_cuda_state){
        .devices = 1, .free_bytes = (size_t)1 << 30, .birth = run_kernel};
    at = dlsym(library, "cuDevicePrimaryCtxRetain");
    memcpy(&retain, &at, sizeof(at));
    at = dlsym(library, "cuMemAlloc_v2");
    memcpy(&alloc, &at, sizeof(at));
    assert_int_equal(retain(&made, 0), 0); /* it stays: we use it too */
    cuda->depth++;
    assert_int_equal(alloc(&memory, MOST * sizeof(float)), 0);
    cuda->depth--;
    born = (float *)(uintptr_t)memory;
}

/* Both tensors, then the end; the first error ends it. */
static gyre_status one_round(fixture *f, const model *m, uint64_t seed,
                             bool away, gyre_round **open)
{
    gyre_round *round = *open = fixture_open_round(f, NULL);
    gyre_status status = GYRE_OK;

    for (size_t i = 0; status == GYRE_OK && i < m->count; i++) {
        size_t n = (size_t)m->elements[i];
        float *g = calloc(n, sizeof(float));
        gyre_gradient piece = {.kind =
                                   away ? GYRE_CUDA_MEMORY : GYRE_HOST_MEMORY,
                               .dtype = GYRE_F32,
                               .data = away ? born : g};

        gradient_fill(seed, i, 0, n, g);
        memcpy(born, g, n * sizeof(float));
        status = gyre_round_gradient(round, i, 0, n, &piece, &f->error);
        free(g);
    }
    if (status != GYRE_OK)
        return status;
    *open = NULL;
    return gyre_round_finish(round, NULL, 0, NULL, &f->error);
}

static void begin(fixture *f, const model *m)
{
    gyre_store_spec spec = spec_of(m);

    fixture_begin(f);
    spec.compressor = "quantize";
    spec.chunk_elements = 1024;
    fixture_create(f, m, &spec, NULL);
    codec = f->store->codec;
    isa = gyre_context_isa(f->context);
}

static snapshot host_rounds(const model *m, uint64_t rounds)
{
    gyre_round *round;
    snapshot end;
    fixture f;

    begin(&f, m);
    for (uint64_t r = 1; r <= rounds; r++)
        good(&f, one_round(&f, m, r, false, &round));
    end = snapshot_of(&f, m);
    fixture_end(&f);
    return end;
}

static void test_every_call_fails_once(void **state)
{
    model m = {0};
    fixture f;
    snapshot want, have;
    gyre_round *round;
    unsigned n, failures = 0;

    (void)state;
    model_add(&m, "first", ELEMENTS, 0, 0);
    model_add(&m, "second", 700, 0, 0);
    begin(&f, &m);
    good(&f, one_round(&f, &m, 1, true, &round));
    assert_non_null(f.store->birth);
    want = snapshot_of(&f, &m);
    for (n = 1;; n++) {
        gyre_status status;

        assert_true(n < 400);
        cuda->failed = NULL;
        cuda->fail_at = cuda->calls + n;
        status = one_round(&f, &m, 2, true, &round);
        cuda->fail_at = 0;
        if (status == GYRE_OK && cuda->failed == NULL)
            break;
        /* what only asks whose memory it is sends the piece to the host */
        if (status == GYRE_OK) {
            fixture_end(&f);
            begin(&f, &m);
            good(&f, one_round(&f, &m, 1, true, &round));
            continue;
        }
        failures++;
        assert_int_equal(status, GYRE_IO);
        unit_assert_text(&f.error, "CUDA_ERROR_LAUNCH_FAILED");
        if (round != NULL) {
            unit_assert_text(&f.error, "tensor ");
            /* lost, or as if the piece had not been given */
            if (gyre_round_update(round, NULL, &f.error) == GYRE_OK)
                fail_msg("call %u: %s: a round without all of its gradients", n,
                         cuda->failed);
            good(&f, gyre_round_abort(round, &f.error));
        }
        have = snapshot_of(&f, &m);
        expect_same_contents(&want, &have);
    }
    assert_true(failures > 20);
    good(&f, one_round(&f, &m, 3, false, &round));
    good(&f, one_round(&f, &m, 4, true, &round));
    have = snapshot_of(&f, &m);
    fixture_end(&f);
    want = host_rounds(&m, 4);
    expect_same_contents(&want, &have);
    assert_int_equal(cuda->wrong, 0);
    model_free(&m);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_call_fails_once),
    };

    if (!there())
        return 0;
    open_fakes();
    return cmocka_run_group_tests_name("store: a birthplace fails", tests, NULL,
                                       NULL);
}
