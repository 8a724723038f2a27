/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoders' texts as C: payload and kept values are those of `compress`,
 * every byte is written, nothing beyond, every element is kept, and workers
 * that are threads do not race (a thread sanitizer looks on).
 */
#include "config.h"

#include "../unit.h"

#include "../codecs.h"

#include <pthread.h>

typedef unsigned int uint;

enum { WORDS = GYRE_CODEC_GRAIN, WIDES = WORDS / 2, WORKERS = 3 };
enum { MOST = 16 * GYRE_CODEC_GRAIN };

static struct {
    const float *x, *table;
    int n, bytes;
    uint index, index_high, key[2];
    uint8_t payload[MOST], written[MOST];
    float kept[GYRE_CODEC_GRAIN];
    uint8_t keeps[GYRE_CODEC_GRAIN];
    _Alignas(8) uint8_t shared[WORDS * 4];
    int workers;
    pthread_barrier_t barrier;
    _Atomic int wrong;
} device;

static void need(int good)
{
    if (!good)
        device.wrong++;
}

/* ---- what a text sees ------------------------------------------------- */

static float gy_x(int i)
{
    need(i >= 0 && i < device.n);
    return device.x[i];
}

static void gy_keep(int i, float x)
{
    need(i >= 0 && i < device.n);
    device.kept[i] = x;
    device.keeps[i]++;
}

static void put(int at, uint u, int bytes)
{
    need(at >= 0 && at + bytes <= device.bytes && at % bytes == 0);
    for (int i = 0; i < bytes; i++) {
        device.payload[at + i] = (uint8_t)(u >> 8 * i);
        device.written[at + i]++;
    }
}

#define gy_put8(at, u) put(at, u, 1)
#define gy_put16(at, u) put(at, u, 2)
#define gy_put32(at, u) put(at, u, 4)

static uint *word_at(int i)
{
    need(i >= 0 && i < WORDS);
    return (uint *)(void *)(device.shared + (size_t)i * 4);
}

static double *wide_at(int i)
{
    need(i >= 0 && i < WIDES);
    return (double *)(void *)(device.shared + (size_t)i * 8);
}

#define gy_word(i) (*word_at(i))
#define gy_wide(i) (*wide_at(i))

static void gy_barrier(void)
{
    if (device.workers > 1)
        pthread_barrier_wait(&device.barrier);
}

static uint gy_to_bits(float x)
{
    uint u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static float gy_bits(uint u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

static float gy_table(int i)
{
    return device.table[i];
}

static float gy_abs(float x)
{
    return fabsf(x);
}

static float gy_min(float a, float b)
{
    return a < b ? a : b;
}

static float gy_max(float a, float b)
{
    return a > b ? a : b;
}

#define GY_ENCODE(...)                                      \
    static void KERNEL(const int32_t *set, int gy_lane)     \
    {                                                       \
        const int gy_n = device.n, gy_bytes = device.bytes; \
        const int gy_lanes = device.workers;                \
        const uint gy_index = device.index;                 \
        const uint gy_index_high = device.index_high;       \
        const uint gy_key = device.key[0];                  \
        const uint gy_key_high = device.key[1];             \
        CONSTANTS(void) gy_index, (void)gy_index_high;      \
        (void)gy_key, (void)gy_key_high;                    \
        __VA_ARGS__                                         \
    }

#define KERNEL encode_topk
#define CONSTANTS                                                    \
    const int GY_BLOCK = set[1], GY_FULL = set[2], GY_WIDE = set[3], \
              GY_HALF = set[4];
#include "../../../plugins/compressors/topk/topk.encode"
#undef KERNEL
#undef CONSTANTS
#define KERNEL encode_quantize
#define CONSTANTS                                                       \
    const int GY_BLOCK = set[0], GY_WIDE = set[1], GY_DYNAMIC = set[2], \
              GY_STOCHASTIC = set[3];
#include "../../../plugins/compressors/quantize/quantize.encode"
#undef KERNEL
#undef CONSTANTS
#define KERNEL encode_fp8
#define CONSTANTS const int GY_BLOCK = set[0], GY_E5M2 = set[1];
#include "../../../plugins/compressors/fp8/fp8.encode"
#undef KERNEL
#undef CONSTANTS
#define KERNEL encode_sign
#define CONSTANTS const int GY_BLOCK = set[0];
#include "../../../plugins/compressors/sign/sign.encode"

/* ---- running one ------------------------------------------------------ */

static int32_t constants[32];
static void (*text)(const int32_t *c, int lane);

static void *work(void *lane)
{
    gyre_fp saved = gyre_fp_pin();

    text(constants, *(int *)lane);
    gyre_fp_restore(saved);
    return NULL;
}

static void run_text(const gyre_codec *codec, int workers)
{
    static const struct {
        const char *name;
        void (*text)(const int32_t *c, int lane);
    } texts[] = {{"fp8", encode_fp8},
                 {"quantize", encode_quantize},
                 {"sign", encode_sign},
                 {"topk", encode_topk}};
    const gyre_codec_kernel *kernel = gyre_codec_kernel_of(codec);
    pthread_t threads[WORKERS];
    int lanes[WORKERS] = {0, 1, 2};
    size_t count;

    text = NULL;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (strcmp(gyre_codec_name(codec), texts[i].name) == 0)
            text = texts[i].text;
    assert_non_null(text);
    kernel->constants(gyre_codec_values(codec), constants);
    device.table = kernel->table(gyre_codec_values(codec), &count);
    device.workers = workers;
    memset(device.payload, 0x5a, sizeof(device.payload));
    memset(device.shared, 0xa5, sizeof(device.shared));
    memset(device.written, 0, sizeof(device.written));
    memset(device.keeps, 0, sizeof(device.keeps));
    device.wrong = 0;
    if (workers == 1) {
        work(&lanes[0]);
        return;
    }
    pthread_barrier_init(&device.barrier, NULL, (unsigned)workers);
    for (int i = 0; i < workers; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &lanes[i]), 0);
    for (int i = 0; i < workers; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&device.barrier);
}

/* x of an encoder is never -0, nor has the host's. */
static void expect_encoded(const codec_case *c, const gyre_codec *codec,
                           float *x, size_t n, int kind, int workers)
{
    static uint8_t payload[MOST];
    float kept[GYRE_CODEC_GRAIN];
    gyre_compress job = {.n = n,
                         .x = x,
                         .index = ((uint64_t)3 << 32) + 7 * GYRE_CODEC_GRAIN,
                         .key = {3, 4},
                         .payload = payload,
                         .kept = kept};
    size_t bytes;

    for (size_t i = 0; i < n; i++)
        x[i] += 0.0f;
    bytes = gyre_codec_compress(codec, &job);
    device.x = x;
    device.n = (int)n;
    device.bytes = (int)gyre_codec_grain_bytes(codec, n);
    device.index = (uint)job.index;
    device.index_high = (uint)(job.index >> 32);
    device.key[0] = job.key[0];
    device.key[1] = job.key[1];
    run_text(codec, workers);
    assert_int_equal(device.wrong, 0);
    assert_int_equal(device.bytes, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (device.written[i] != 1 || device.payload[i] != payload[i])
            fail_msg("%s: byte %zu of %zu is %d and written %d times, not %d "
                     "and once (numbers %d, length %zu)",
                     codec_text(c), i, bytes, device.payload[i],
                     device.written[i], payload[i], kind, n);
    for (size_t i = 0; i < n; i++)
        if (device.keeps[i] != 1 ||
            memcmp(&device.kept[i], &kept[i], sizeof(float)) != 0)
            fail_msg("%s: %a at %zu of %zu is kept as %a, %d times, not %a "
                     "(numbers %d)",
                     codec_text(c), x[i], i, n, device.kept[i], device.keeps[i],
                     kept[i], kind);
}

static void run_all(const size_t *lengths, size_t count, int workers)
{
    static float x[GYRE_CODEC_GRAIN + 1];
    gyre_context *context = NULL;
    size_t able = 0;

    assert_int_equal(gyre_context_create(NULL, &context, NULL), GYRE_OK);
    for (size_t c = 0; c < CODEC_CASES; c++) {
        gyre_codec *codec = codec_open(context, &codec_cases[c]);

        able += gyre_codec_encoder_of(codec) != NULL;
        for (int kind = 0;
             gyre_codec_encoder_of(codec) != NULL && kind < NUMBER_KINDS;
             kind++)
            for (size_t l = 0; l < count; l++) {
                codec_fill(kind, 1 + (uint64_t)l, x, lengths[l]);
                expect_encoded(&codec_cases[c], codec, x, lengths[l], kind,
                               workers);
            }
        gyre_codec_destroy(codec);
    }
    assert_true(able >= 8 && able < CODEC_CASES); /* topk global is not */
    gyre_context_destroy(context);
}

static void test_one_worker(void **state)
{
    static const size_t lengths[] = {1024, 1,   2,   3,   7,   8,    9,   31,
                                     32,   33,  63,  64,  65,  127,  128, 129,
                                     255,  256, 257, 500, 700, 1000, 1023};

    (void)state;
    run_all(lengths, sizeof(lengths) / sizeof(lengths[0]), 1);
}

static void test_workers_meet(void **state)
{
    static const size_t lengths[] = {1000};

    (void)state;
    run_all(lengths, 1, WORKERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_worker),
        cmocka_unit_test(test_workers_meet),
    };

    return cmocka_run_group_tests_name("registry: encoders", tests, NULL, NULL);
}
