/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element types.  Conversions are held against tables made from the definition
 * of each format (ldexp of integers in double), over all 2^16 patterns and
 * around every rounding boundary.
 */
#include "config.h"

#include "../unit.h"

#include <gyre/dtype.h>

#include "base/base.h"

#include <math.h>
#include <stdbool.h>

enum { ALL = 1 << 16 };

/* The set under test: each test runs once with each that the machine has. */
static gyre_isa isa;

static int to_f32(gyre_dtype from, const void *src, size_t stride, float *dst,
                  size_t n)
{
    return gyre_to_f32_with(isa, from, src, stride, dst, n);
}

static int from_f32(gyre_dtype to, const float *src, void *dst, size_t n)
{
    return gyre_from_f32_with(isa, to, src, dst, n);
}

static uint32_t bits32(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

/* The value of a 16-bit pattern, by definition. */
static double value_of(uint16_t h, int mantissa_bits)
{
    int exponent_bits = 15 - mantissa_bits;
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (h & 0x7fff) >> mantissa_bits;
    int mantissa = h & ((1 << mantissa_bits) - 1);
    double sign = h & 0x8000 ? -1 : 1;

    if (exponent == (1 << exponent_bits) - 1)
        return mantissa != 0 ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits),
                        exponent - bias - mantissa_bits);
}

static void check_all_patterns(gyre_dtype dtype, int mantissa_bits)
{
    static uint16_t in[ALL], back[ALL];
    static float out[ALL];

    for (int i = 0; i < ALL; i++)
        in[i] = (uint16_t)i;
    assert_true(to_f32(dtype, in, 1, out, ALL));
    assert_true(from_f32(dtype, out, back, ALL));
    for (int i = 0; i < ALL; i++) {
        double want = value_of((uint16_t)i, mantissa_bits);

        if (isnan(want)) {
            assert_true(isnan(out[i]));
            assert_true(isnan(value_of(back[i], mantissa_bits)));
            assert_int_equal(back[i] & 0x8000, i & 0x8000);
        } else {
            assert_int_equal(bits32(out[i]), bits32((float)want));
            assert_int_equal(back[i], i);
        }
    }
}

/* Round x, positive, by its place between the patterns h and h + 1. */
static uint16_t nearest(double x, uint16_t h, double low, double high)
{
    double middle = low + (high - low) / 2;

    if (x < middle || (x == middle && (h & 1) == 0))
        return h;
    return (uint16_t)(h + 1);
}

/*
 * Between each pattern and the next: both ends, their neighbours among floats,
 * the middle and its neighbours, and two points at random; all with both
 * signs.  The step beyond the largest finite value ends at infinity.
 */
static void check_boundaries(gyre_dtype dtype, int mantissa_bits)
{
    uint16_t top = (uint16_t)(0x7fff >> mantissa_bits << mantissa_bits);
    uint32_t random = 12345;

    for (uint32_t h = 0; h < top; h++) {
        double low = value_of((uint16_t)h, mantissa_bits);
        double high =
            h + 1 < top ? value_of((uint16_t)(h + 1), mantissa_bits)
                        : 2 * low - value_of((uint16_t)(h - 1), mantissa_bits);
        float middle = (float)(low / 2 + high / 2);
        float points[20];
        uint16_t got[20];
        int count = 0;

        points[count++] = (float)low;
        points[count++] = nextafterf((float)low, INFINITY);
        points[count++] = middle;
        points[count++] = nextafterf(middle, 0);
        points[count++] = nextafterf(middle, INFINITY);
        for (int i = 0; i < 2; i++) {
            random = random * 1664525u + 1013904223u;
            points[count++] = (float)(low + (high - low) * random / 0x1p32);
        }
        if (h + 1 < top)
            points[count++] = nextafterf((float)high, 0);
        for (int i = 0; i < count; i++)
            points[count + i] = -points[i];
        assert_true(from_f32(dtype, points, got, (size_t)count * 2));
        for (int i = 0; i < count; i++) {
            uint16_t want = nearest((double)points[i], (uint16_t)h, low, high);

            if (got[i] != want || got[count + i] != (want | 0x8000))
                fail_msg("%s: %a gave %04x and %04x, not %04x",
                         gyre_dtype_name(dtype), (double)points[i], got[i],
                         got[count + i], want);
        }
    }
}

static void check_extremes(gyre_dtype dtype, uint16_t infinity)
{
    static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff,
                                    0xff800001, 0xffffffff, 0x7f80ffff};
    const float large[] = {INFINITY, -INFINITY, 3.4028235e38f, -3.4028235e38f};
    uint16_t got[4];

    assert_true(from_f32(dtype, large, got, 4));
    assert_int_equal(got[0], infinity);
    assert_int_equal(got[1], infinity | 0x8000);
    assert_int_equal(got[2], infinity); /* FLT_MAX is above both formats */
    assert_int_equal(got[3], infinity | 0x8000);
    for (size_t i = 0; i < sizeof(nans) / sizeof(nans[0]); i++) {
        float x;

        memcpy(&x, &nans[i], sizeof(x));
        assert_true(from_f32(dtype, &x, got, 1));
        assert_true((got[0] & 0x7fff) > infinity);
        assert_int_equal(got[0] >> 15, nans[i] >> 31);
    }
}

static void test_bf16(void **state)
{
    (void)state;
    check_all_patterns(GYRE_BF16, 7);
    check_boundaries(GYRE_BF16, 7);
    check_extremes(GYRE_BF16, 0x7f80);
}

static void test_f16(void **state)
{
    (void)state;
    check_all_patterns(GYRE_F16, 10);
    check_boundaries(GYRE_F16, 10);
    check_extremes(GYRE_F16, 0x7c00);
}

#if defined(__x86_64__)
#include <xmmintrin.h>

/* The 16-bit conversions do not even need the control word pinned. */
static void test_ftz_and_daz_change_nothing(void **state)
{
    static uint16_t in[ALL], back[2][ALL];
    static float out[2][ALL], tiny[ALL];
    unsigned before = _mm_getcsr();

    (void)state;
    for (uint32_t i = 0; i < ALL; i++) {
        uint32_t u = i << 12; /* floats below 2^-94, denormals among them */

        in[i] = (uint16_t)i;
        memcpy(&tiny[i], &u, sizeof(u));
    }
    for (int ftz = 0; ftz < 2; ftz++) {
        for (int dtype = GYRE_BF16; dtype <= GYRE_F16; dtype++) {
            _mm_setcsr(before | (ftz ? 0x8040u : 0));
            to_f32((gyre_dtype)dtype, in, 1, out[ftz], ALL);
            from_f32((gyre_dtype)dtype, tiny, back[ftz], ALL);
            _mm_setcsr(before);
            if (ftz) {
                to_f32((gyre_dtype)dtype, in, 1, out[0], ALL);
                from_f32((gyre_dtype)dtype, tiny, back[0], ALL);
                assert_memory_equal(out[0], out[1], sizeof(out[0]));
                assert_memory_equal(back[0], back[1], sizeof(back[0]));
            }
        }
    }
}
#endif

static void test_f32_and_f64(void **state)
{
    const double in[] = {0.0,
                         -0.0,
                         1.0,
                         1 + 0x1p-24,
                         1 + 0x1.000001p-24,
                         1 + 3 * 0x1p-24,
                         0x1p-149,
                         0x1p-150,
                         0x1.000001p-150,
                         1e300,
                         -INFINITY,
                         0x1.ffffffp127};
    const uint32_t want[] = {0,          0x80000000, 0x3f800000, 0x3f800000,
                             0x3f800001, 0x3f800002, 1,          0,
                             1,          0x7f800000, 0xff800000, 0x7f800000};
    enum { N = sizeof(in) / sizeof(in[0]) };
    float out[N], copy[N];
    double wide[N];
    const double nan = NAN;

    (void)state;
    assert_true(to_f32(GYRE_F64, in, 1, out, N));
    for (int i = 0; i < N; i++)
        assert_int_equal(bits32(out[i]), want[i]);
    assert_true(to_f32(GYRE_F64, &nan, 1, copy, 1));
    assert_true(isnan(copy[0]));
    assert_true(to_f32(GYRE_F32, out, 1, copy, N));
    assert_memory_equal(copy, out, sizeof(out));
    memset(copy, 0, sizeof(copy));
    assert_true(from_f32(GYRE_F32, out, copy, N));
    assert_memory_equal(copy, out, sizeof(out));
    assert_true(from_f32(GYRE_F64, out, wide, N));
    for (int i = 0; i < N; i++)
        assert_true(wide[i] == (double)out[i]);
}

/* Strides, and every length around the width of a vector. */
static void test_strides_and_lengths(void **state)
{
    uint16_t bf16[128], f16[128];
    float f32[128], out[64];
    double f64[128];

    (void)state;
    for (int i = 0; i < 128; i++) {
        f32[i] = (float)(i - 64);
        f64[i] = i - 64;
    }
    from_f32(GYRE_BF16, f32, bf16, 128);
    from_f32(GYRE_F16, f32, f16, 128);
    for (size_t stride = 1; stride <= 3; stride++) {
        for (size_t n = 0; n <= 40; n++) {
            const void *sources[] = {[GYRE_F32] = f32,
                                     [GYRE_F64] = f64,
                                     [GYRE_BF16] = bf16,
                                     [GYRE_F16] = f16};

            for (int dtype = GYRE_F32; dtype <= GYRE_F16; dtype++) {
                for (int i = 0; i < 64; i++)
                    out[i] = 1000;
                assert_true(
                    to_f32((gyre_dtype)dtype, sources[dtype], stride, out, n));
                for (size_t i = 0; i < n; i++)
                    assert_true(out[i] == f32[i * stride]);
                assert_true(out[n] == 1000);
            }
        }
    }
}

static void test_not_a_float(void **state)
{
    float x = 1;
    unsigned char y[8] = {0};

    (void)state;
    assert_false(to_f32(GYRE_I32, y, 1, &x, 1));
    assert_false(to_f32(GYRE_U8, y, 1, &x, 1));
    assert_false(to_f32((gyre_dtype)99, y, 1, &x, 1));
    assert_false(from_f32(GYRE_I32, &x, y, 1));
    assert_false(from_f32((gyre_dtype)-1, &x, y, 1));
    assert_true(x == 1);
}

static void test_names(void **state)
{
    static const char *const names[] = {"f32", "f64", "bf16",
                                        "f16", "i32", "u8"};
    static const size_t bytes[] = {4, 8, 2, 2, 4, 1};
    gyre_dtype dtype = GYRE_I32;
    gyre_error error = {0};

    (void)state;
    for (int i = 0; i < 6; i++) { /* the numbers are on disk */
        assert_string_equal(gyre_dtype_name((gyre_dtype)i), names[i]);
        assert_int_equal(gyre_dtype_bytes((gyre_dtype)i), bytes[i]);
        assert_int_equal(gyre_dtype_parse(names[i], &dtype, &error), GYRE_OK);
        assert_int_equal(dtype, i);
    }
    assert_null(gyre_dtype_name((gyre_dtype)6));
    assert_int_equal(gyre_dtype_bytes((gyre_dtype)-1), 0);
    dtype = GYRE_I32;
    assert_int_equal(gyre_dtype_parse("float", &dtype, &error), GYRE_RANGE);
    assert_int_equal(dtype, GYRE_I32);
    unit_assert_text(&error, "\"float\"");
    for (int i = 0; i < 6; i++)
        unit_assert_text(&error, names[i]);
    assert_int_equal(gyre_dtype_parse(NULL, &dtype, &error), GYRE_INVALID);
}

/* The public functions are those of one set or the other. */
static void test_public(void **state)
{
    const float in[3] = {1, 1 + 0x1p-8f, -INFINITY};
    uint16_t half[3];
    float back[3];

    (void)state;
    assert_true(gyre_from_f32(GYRE_BF16, in, half, 3));
    assert_int_equal(half[1], 0x3f80);
    assert_true(gyre_to_f32(GYRE_BF16, half, 1, back, 3));
    assert_true(back[0] == 1 && back[1] == 1 && back[2] == -INFINITY);
    assert_false(gyre_from_f32(GYRE_U8, in, half, 3));
    assert_false(gyre_to_f32(GYRE_U8, half, 1, back, 3));
}

static int scalar(void **state)
{
    (void)state;
    isa = GYRE_ISA_SCALAR;
    return 0;
}

static int best(void **state)
{
    (void)state;
    isa = GYRE_ISA_SCALAR;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        isa = GYRE_ISA_AVX2;
#endif
    return 0;
}

#define TEST_BOTH(name)                          \
    {#name " scalar", name, scalar, NULL, NULL}, \
    {                                            \
#name " best", name, best, NULL, NULL    \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_BOTH(test_bf16),
        TEST_BOTH(test_f16),
#if defined(__x86_64__)
        TEST_BOTH(test_ftz_and_daz_change_nothing),
#endif
        TEST_BOTH(test_f32_and_f64),
        TEST_BOTH(test_strides_and_lengths),
        TEST_BOTH(test_not_a_float),
        cmocka_unit_test(test_public),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
