/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressors: what they keep is what they give back, the same bytes from every
 * instruction set, the kernel text the same floats, and top-k against a sort.
 */
#include "config.h"

#include "../unit.h"

#include "../codecs.h"

/* ---- the kernel texts as C ------------------------------------------- */

typedef unsigned int uint;

static struct {
    const uint8_t *payload;
    const float *table;
    float *out;
    int n, bytes, wrong;
} device;

static uint gy_u8(int at)
{
    if (at < 0 || at >= device.bytes) {
        device.wrong++;
        return 0;
    }
    return device.payload[at];
}

static uint gy_u16(int at)
{
    device.wrong += at % 2 != 0;
    return gy_u8(at) | gy_u8(at + 1) << 8;
}

static uint gy_u32(int at)
{
    device.wrong += at % 4 != 0;
    return gy_u16(at) | gy_u16(at + 2) << 16;
}

static float gy_bits(uint u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

static float gy_f32(int at)
{
    return gy_bits(gy_u32(at));
}

static float gy_table(int i)
{
    return device.table[i];
}

static void gy_put(int i, float value)
{
    if (i >= 0 && i < device.n)
        device.out[i] = value;
}

#define GY_DECODE(...)                                           \
    static void KERNEL(const int32_t *c, int gy_n, int gy_bytes) \
    {                                                            \
        CONSTANTS(void) gy_bytes;                                \
        for (int gy_i = 0; gy_i < gy_n; gy_i++) {                \
            float g = 0.0f;                                      \
            __VA_ARGS__ device.out[gy_i] = g;                    \
        }                                                        \
    }
#define GY_SCATTER(...)                                          \
    static void KERNEL(const int32_t *c, int gy_n, int gy_bytes) \
    {                                                            \
        const int gy_lanes = 7;                                  \
        CONSTANTS                                                \
        for (int gy_lane = 0; gy_lane < gy_lanes; gy_lane++) {   \
            __VA_ARGS__                                          \
        }                                                        \
    }

#define KERNEL kernel_topk
#define CONSTANTS                                                \
    const int GY_GLOBAL = c[0], GY_BLOCK = c[1], GY_FULL = c[2], \
              GY_WIDE = c[3], GY_HALF = c[4];
#include "../../../plugins/compressors/topk/topk.kernel"
#undef KERNEL
#undef CONSTANTS
#define KERNEL kernel_quantize
#define CONSTANTS const int GY_BLOCK = c[0], GY_WIDE = c[1], GY_DYNAMIC = c[2];
#include "../../../plugins/compressors/quantize/quantize.kernel"
#undef KERNEL
#undef CONSTANTS
#define KERNEL kernel_fp8
#define CONSTANTS const int GY_BLOCK = c[0];
#include "../../../plugins/compressors/fp8/fp8.kernel"
#undef KERNEL
#define KERNEL kernel_sign
#include "../../../plugins/compressors/sign/sign.kernel"

/* Decode with the text; the constants come from the plugin. */
static void decode_by_text(const gyre_codec *codec, const uint8_t *payload,
                           size_t bytes, size_t n, float *out)
{
    const gyre_codec_kernel *kernel = gyre_codec_kernel_of(codec);
    const char *name = gyre_codec_name(codec);
    int32_t constants[32];
    size_t count;

    assert_non_null(kernel);
    kernel->constants(gyre_codec_values(codec), constants);
    device.table = kernel->table(gyre_codec_values(codec), &count);
    device.payload = payload;
    device.bytes = (int)bytes;
    device.n = (int)n;
    device.out = out;
    device.wrong = 0;
    memset(out, 0, n * sizeof(out[0]));
    if (strcmp(name, "topk") == 0)
        kernel_topk(constants, (int)n, (int)bytes);
    else if (strcmp(name, "quantize") == 0)
        kernel_quantize(constants, (int)n, (int)bytes);
    else if (strcmp(name, "fp8") == 0)
        kernel_fp8(constants, (int)n, (int)bytes);
    else
        kernel_sign(constants, (int)n, (int)bytes);
    assert_int_equal(device.wrong, 0);
}

/* ---- compressing one grain ------------------------------------------- */

enum { MOST = 16 * GYRE_CODEC_GRAIN };

typedef struct packed {
    uint8_t payload[MOST];
    float kept[GYRE_CODEC_GRAIN];
    size_t bytes;
} packed;

/* Passes until it is decided, as a caller of BARRIER codecs makes them. */
static void survey_all(const gyre_codec *codec, const float *x, size_t n,
                       void *decided)
{
    size_t bytes = gyre_codec_survey_bytes(codec);
    void *summary = malloc(bytes > 0 ? bytes : 1);
    uint32_t pass = 0;

    memset(decided, 0, 256);
    if (bytes > 0)
        do {
            memset(summary, 0, bytes);
            for (size_t at = 0; at < n; at += GYRE_CODEC_GRAIN)
                gyre_codec_survey(codec, pass, decided, x + at,
                                  n - at < GYRE_CODEC_GRAIN ? n - at
                                                            : GYRE_CODEC_GRAIN,
                                  at, n, summary);
        } while (gyre_codec_decide(codec, pass++, summary, n, n, decided));
    free(summary);
}

static void pack_with(const gyre_codec *codec, const void *decided,
                      const float *x, size_t n, uint64_t place, packed *p)
{
    gyre_compress job = {.decided = decided,
                         .n = n,
                         .x = x,
                         .index = 7 * GYRE_CODEC_GRAIN,
                         .place = place,
                         .key = {3, 4},
                         .payload = p->payload,
                         .kept = p->kept};

    memset(p, 0x5a, sizeof(*p));
    p->bytes = gyre_codec_compress(codec, &job);
}

static void pack(const gyre_codec *codec, const float *x, size_t n, packed *p)
{
    uint64_t decided[32];

    survey_all(codec, x, n, decided);
    pack_with(codec, decided, x, n, 0, p);
}

static const size_t lengths[] = {1024, 1,   2,   3,   7,   8,   9,    31,
                                 32,   33,  63,  64,  65,  127, 128,  129,
                                 255,  256, 257, 500, 700, 800, 1000, 1023};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

static void expect_packed(const codec_case *c, const gyre_codec *scalar,
                          const gyre_codec *codec, const float *x, size_t n,
                          int kind)
{
    static packed want, have;
    float out[GYRE_CODEC_GRAIN], text[GYRE_CODEC_GRAIN];

    pack(scalar, x, n, &want);
    pack(codec, x, n, &have);
    if (want.bytes != have.bytes ||
        memcmp(want.payload, have.payload, want.bytes) != 0 ||
        memcmp(want.kept, have.kept, n * sizeof(float)) != 0)
        fail_msg("%s: %s differs from scalar, numbers %d, length %zu",
                 codec_text(c), gyre_isa_name(gyre_codec_isa(codec)), kind, n);
    if (gyre_codec_flags(codec) & GYRE_CODEC_VARIABLE)
        assert_true(have.bytes <= gyre_codec_grain_bytes(codec, n));
    else
        assert_int_equal(have.bytes, gyre_codec_grain_bytes(codec, n));
    assert_int_equal(have.payload[have.bytes], 0x5a);
    if (gyre_codec_decode(codec, have.payload, have.bytes, n, out) != 0)
        fail_msg("%s refuses its own, numbers %d, length %zu", codec_text(c),
                 kind, n);
    decode_by_text(codec, have.payload, have.bytes, n, text);
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&out[i], &have.kept[i], sizeof(float)) != 0)
            fail_msg("%s: kept %a, gives %a (%a at %zu of %zu, numbers %d)",
                     codec_text(c), have.kept[i], out[i], x[i], i, n, kind);
        if (memcmp(&out[i], &text[i], sizeof(float)) != 0)
            fail_msg("%s: gives %a, its text %a (%a at %zu of %zu, numbers %d)",
                     codec_text(c), out[i], text[i], x[i], i, n, kind);
        assert_true(isfinite(out[i]));
    }
    for (size_t i = 0; i < n; i++)
        text[i] = (float)i - 3.0f;
    assert_int_equal(
        gyre_codec_accumulate(codec, have.payload, have.bytes, n, text), 0);
    for (size_t i = 0; i < n; i++)
        assert_true(text[i] == ((float)i - 3.0f) + out[i]);
}

static void test_every_set_and_the_text_agree(void **state)
{
    gyre_context *contexts[GYRE_ISA_COUNT];
    size_t sets = codec_contexts(contexts);
    static float x[GYRE_CODEC_GRAIN + 1];

    (void)state;
    for (size_t c = 0; c < CODEC_CASES; c++) {
        gyre_codec *codecs[GYRE_ISA_COUNT];
        const size_t step = unit_sampled() ? 3 : 1;

        for (size_t s = 0; s < sets; s++)
            codecs[s] = codec_open(contexts[s], &codec_cases[c]);
        for (int kind = 0; kind < NUMBER_KINDS; kind++)
            for (size_t l = (size_t)kind % step; l < LENGTHS; l += step) {
                codec_fill(kind, 1 + (uint64_t)l, x, lengths[l]);
                for (size_t s = 0; s < sets; s++)
                    expect_packed(&codec_cases[c], codecs[0], codecs[s], x,
                                  lengths[l], kind);
            }
        for (size_t s = 0; s < sets; s++)
            gyre_codec_destroy(codecs[s]);
    }
    for (size_t s = 0; s < sets; s++)
        gyre_context_destroy(contexts[s]);
}

/* ---- top-k by definition --------------------------------------------- */

typedef struct ranked {
    float magnitude;
    size_t place;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;

    if (x->magnitude != y->magnitude)
        return x->magnitude < y->magnitude ? 1 : -1;
    return x->place > y->place ? 1 : -1;
}

/* want[i]: is i among the k largest, lowest place first among equals? */
static void choose_by_sorting(const float *x, size_t n, size_t k, char *want)
{
    ranked *r = malloc(n * sizeof(*r));

    for (size_t i = 0; i < n; i++)
        r[i] = (ranked){fabsf(x[i]), i};
    qsort(r, n, sizeof(*r), by_rank);
    memset(want, 0, n);
    for (size_t i = 0; i < k; i++)
        want[r[i].place] = 1;
    free(r);
}

static size_t part(double ratio, size_t n)
{
    size_t k = (size_t)floor(ratio * (double)n);

    return k < 1 ? 1 : k;
}

/* The entries of a 32-bit payload in f32, one block. */
static void expect_entries(const packed *p, const float *x, size_t n, size_t k,
                           const char *want)
{
    uint32_t index, seen = 0;
    float value;

    assert_int_equal(p->bytes, 8 * k);
    for (size_t i = 0; i < k; i++) {
        memcpy(&index, p->payload + 4 * i, 4);
        memcpy(&value, p->payload + 4 * k + 4 * i, 4);
        assert_true(index < n && (i == 0 || index > seen));
        assert_true(want[index]);
        assert_memory_equal(&value, &x[index], 4);
        seen = index;
    }
}

static void test_topk_is_the_sorted_head(void **state)
{
    static const double ratios[] = {0.001, 0.01, 0.03, 0.1, 0.5, 0.999, 1.0};
    gyre_context *contexts[GYRE_ISA_COUNT];
    size_t sets = codec_contexts(contexts);
    static float x[GYRE_CODEC_GRAIN];
    static char want[GYRE_CODEC_GRAIN];
    static packed p;

    (void)state;
    for (size_t r = 0; r < sizeof(ratios) / sizeof(ratios[0]); r++)
        for (size_t s = 0; s < sets; s++) {
            codec_case c = {"topk", {{"ratio", ratios[r]}}, 1, 1};
            gyre_codec *codec = codec_open(contexts[s], &c);

            for (int kind = 0; kind < NUMBER_KINDS; kind++)
                for (size_t l = 0; l < LENGTHS; l++) {
                    size_t n = lengths[l], k = part(ratios[r], n);

                    codec_fill(kind, 99 + (uint64_t)kind, x, n);
                    choose_by_sorting(x, n, k, want);
                    pack(codec, x, n, &p);
                    expect_entries(&p, x, n, k, want);
                }
            gyre_codec_destroy(codec);
        }
    for (size_t s = 0; s < sets; s++)
        gyre_context_destroy(contexts[s]);
}

/* Over many grains: exactly the k largest of all, ties by place, whatever the
 * order of the survey and however many summaries it had. */
enum { WIDE = 300 * GYRE_CODEC_GRAIN + 123 };

static void survey_in_parts(const gyre_codec *codec, const float *x, size_t n,
                            void *decided)
{
    size_t bytes = gyre_codec_survey_bytes(codec);
    size_t grains = (n + GYRE_CODEC_GRAIN - 1) / GYRE_CODEC_GRAIN;
    char *summary[3];
    uint32_t pass = 0;

    for (int t = 0; t < 3; t++)
        summary[t] = malloc(bytes);
    memset(decided, 0, 256);
    do {
        for (int t = 0; t < 3; t++)
            memset(summary[t], 0, bytes);
        for (size_t k = grains; k-- > 0;) { /* backwards, dealt out */
            size_t at = k * GYRE_CODEC_GRAIN;

            gyre_codec_survey(codec, pass, decided, x + at,
                              n - at < GYRE_CODEC_GRAIN ? n - at
                                                        : GYRE_CODEC_GRAIN,
                              at, n, summary[k % 3]);
        }
        gyre_codec_merge(codec, summary[1], summary[2]);
        gyre_codec_merge(codec, summary[1], summary[0]);
    } while (gyre_codec_decide(codec, pass++, summary[1], n, n, decided));
    for (int t = 0; t < 3; t++)
        free(summary[t]);
}

static void expect_global(const gyre_codec *codec, const float *x, size_t n,
                          double ratio, int parts, const char *want)
{
    static packed p;
    uint64_t decided[32];
    float out[GYRE_CODEC_GRAIN];

    if (parts)
        survey_in_parts(codec, x, n, decided);
    else
        survey_all(codec, x, n, decided);
    for (size_t at = 0; at < n; at += GYRE_CODEC_GRAIN) {
        size_t m = n - at < GYRE_CODEC_GRAIN ? n - at : GYRE_CODEC_GRAIN;
        size_t k = 0;

        pack_with(codec, decided, x + at, m, at, &p);
        for (size_t i = 0; i < m; i++)
            k += (size_t)want[at + i];
        if (p.bytes != 8 * k)
            fail_msg("ratio %g: %zu bytes for %zu entries in grain %zu", ratio,
                     p.bytes, k, at / GYRE_CODEC_GRAIN);
        assert_int_equal(gyre_codec_decode(codec, p.payload, p.bytes, m, out),
                         0);
        for (size_t i = 0; i < m; i++)
            assert_true(out[i] == (want[at + i] ? x[at + i] : 0.0f));
    }
}

static void test_global_topk_is_the_sorted_head(void **state)
{
    static const double ratios[] = {1e-9, 0.01, 0.2, 1.0};
    gyre_context *contexts[GYRE_ISA_COUNT];
    size_t sets = codec_contexts(contexts);
    static float x[WIDE];
    static char want[WIDE];

    (void)state;
    for (size_t r = 0; r < 4; r++) {
        codec_case c = {"topk", {{"ratio", ratios[r]}, {"scope", 1}}, 2, 1};
        gyre_codec *codecs[GYRE_ISA_COUNT];
        const size_t step = unit_sampled() ? 3 : 1;

        for (size_t s = 0; s < sets; s++)
            codecs[s] = codec_open(contexts[s], &c);
        for (size_t kind = r % step; kind < NUMBER_KINDS; kind += step) {
            codec_fill((int)kind, 5, x, WIDE);
            choose_by_sorting(x, WIDE, part(ratios[r], WIDE), want);
            for (size_t parts = 0; parts < 2; parts++)
                expect_global(codecs[(kind + parts + r) % sets], x, WIDE,
                              ratios[r], (int)parts, want);
        }
        for (size_t s = 0; s < sets; s++)
            gyre_codec_destroy(codecs[s]);
    }
    for (size_t s = 0; s < sets; s++)
        gyre_context_destroy(contexts[s]);
}

/* ---- settings -------------------------------------------------------- */

static void test_bad_settings_are_named(void **state)
{
    static const struct {
        const char *codec;
        gyre_setting setting;
        const char *text;
    } bad[] = {
        {"topk", {"ratio", 0.0}, "ratio"},
        {"topk", {"ratio", 1.5}, "ratio"},
        {"topk", {"block", 96}, "power of two"},
        {"topk", {"scope", 2}, "scope"},
        {"topk", {"rate", 1}, "ratio"},
        {"quantize", {"bits", 5}, "8 or 4"},
        {"quantize", {"block", 2048}, "block"},
        {"fp8", {"block", 33}, "power of two"},
        {"sign", {"block", 48}, "power of two"},
        {"nosuch", {"block", 48}, "topk"},
    };
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        gyre_codec *codec = NULL;
        gyre_error error = {0};
        gyre_status status = gyre_codec_create(
            context, bad[i].codec, &bad[i].setting, 1, &codec, &error);

        assert_int_equal(status, strcmp(bad[i].codec, "nosuch") == 0
                                     ? GYRE_NOT_FOUND
                                     : GYRE_PARAMETER);
        unit_assert_text(&error, bad[i].text);
        assert_null(codec);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_creating_without_memory(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_setting global = {"scope", 1};
    gyre_codec *codec = NULL;
    uint64_t before;

    (void)state;
    assert_int_equal(
        gyre_codec_create(context, "topk", &global, 1, &codec, NULL), GYRE_OK);
    gyre_codec_destroy(codec);
    before = memory.bytes;
    for (uint64_t n = 1;; n++) {
        gyre_status status;

        memory.fail_at = memory.requests + n;
        status = gyre_codec_create(context, "topk", &global, 1, &codec, NULL);
        memory.fail_at = 0;
        if (status == GYRE_OK)
            break;
        assert_int_equal(status, GYRE_NO_MEMORY);
        assert_int_equal(memory.bytes, before);
    }
    gyre_codec_destroy(codec);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_id_tells_settings_apart(void **state)
{
    uint64_t ids[CODEC_CASES];
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);

    (void)state;
    for (size_t c = 0; c < CODEC_CASES; c++) {
        gyre_codec *codec = codec_open(context, &codec_cases[c]);

        ids[c] = gyre_codec_id(codec);
        for (size_t d = 0; d < c; d++)
            assert_true(ids[c] != ids[d]);
        gyre_codec_destroy(codec);
    }
    gyre_context_destroy(context);
}

/* ---- hash ------------------------------------------------------------ */

static void test_hash_is_pinned_and_mixes(void **state)
{
    uint32_t flips = 0;

    (void)state;
    assert_int_equal(gyre_hash(1, 2, 3), 0xf65ce923u);
    for (uint32_t i = 0; i < 1000; i++)
        for (uint32_t b = 0; b < 32; b++)
            flips += (uint32_t)__builtin_popcount(
                gyre_hash(i, 7, i * 31) ^ gyre_hash(i, 7, (i * 31) ^ 1u << b));
    /* 1,024,000 coins: mean 512,000, deviation 506 */
    assert_in_range(flips, 512000 - 2600, 512000 + 2600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_set_and_the_text_agree),
        cmocka_unit_test(test_topk_is_the_sorted_head),
        cmocka_unit_test(test_global_topk_is_the_sorted_head),
        cmocka_unit_test(test_bad_settings_are_named),
        cmocka_unit_test(test_creating_without_memory),
        cmocka_unit_test(test_id_tells_settings_apart),
        cmocka_unit_test(test_hash_is_pinned_and_mixes),
    };

    return cmocka_run_group_tests_name("registry/codecs", tests, NULL, NULL);
}
