/* SPDX-License-Identifier: Apache-2.0 */
/* The control word of a host linked with -ffast-math, pinned and given back. */
#include "config.h"

#include "../unit.h"

#include "base/base.h"

#include <fenv.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

enum {
    FTZ = 1 << 15,
    DAZ = 1 << 6,
    DOWN = 1 << 13,
    MASKS = 0x1f80,
    FLAGS = 0x3f,
};

/* Operands and results are in memory, so that the compiler neither folds the
 * arithmetic nor moves it past a change of the control word. */
static volatile float least_normal = 0x1p-126f;
static volatile float denormal = 0x1p-130f;
static volatile float one = 1;
static volatile float third_of = 3;

static void test_host_with_ftz_and_daz(void **state)
{
    unsigned before = _mm_getcsr();
    volatile float flushed, zeroed, kept, as_is;
    gyre_fp saved;

    (void)state;
    _mm_setcsr(MASKS | FTZ | DAZ);
    flushed = least_normal * 0.5f;
    zeroed = denormal * 4096;
    saved = gyre_fp_pin();
    kept = least_normal * 0.5f;
    as_is = denormal * 4096;
    gyre_fp_restore(saved);
    assert_int_equal(_mm_getcsr() & ~FLAGS, MASKS | FTZ | DAZ);
    _mm_setcsr(before);

    assert_true(flushed == 0); /* the test would see nothing otherwise */
    assert_true(zeroed == 0);
    assert_true(kept == 0x1p-127f);
    assert_true(as_is == 0x1p-118f);
}

static void test_rounding_mode(void **state)
{
    unsigned before = _mm_getcsr();
    volatile float down, pinned, again;
    gyre_fp saved;

    (void)state;
    _mm_setcsr(MASKS | DOWN);
    down = -one / third_of;
    saved = gyre_fp_pin();
    pinned = -one / third_of;
    gyre_fp_restore(saved);
    again = -one / third_of;
    _mm_setcsr(before);
    assert_true(down == -0x1.555556p-2f);
    assert_true(pinned == -0x1.555556p-2f || pinned == -0x1.555554p-2f);
    assert_true(pinned == -1.0f / 3.0f);
    assert_true(again == down);
}

/* A host that traps on division by zero is not stopped by our arithmetic, and
 * finds its flags as they were. */
static void test_traps_and_flags(void **state)
{
    unsigned before = _mm_getcsr();
    volatile float infinite;
    volatile float zero = 0;
    gyre_fp saved;
    unsigned after;

    (void)state;
    _mm_setcsr(0);
    saved = gyre_fp_pin();
    infinite = one / zero;
    gyre_fp_restore(saved);
    after = _mm_getcsr();
    _mm_setcsr(before);
    assert_true(infinite > 1e38f);
    assert_int_equal(after, 0);
}
#else
static void test_rounding_mode(void **state)
{
    volatile float one = 1, three = 3;
    float pinned;
    gyre_fp saved;

    (void)state;
    fesetround(FE_UPWARD);
    saved = gyre_fp_pin();
    pinned = one / three;
    gyre_fp_restore(saved);
    assert_int_equal(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
    assert_true(pinned == one / three);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#if defined(__x86_64__)
        cmocka_unit_test(test_host_with_ftz_and_daz),
        cmocka_unit_test(test_traps_and_flags),
#endif
        cmocka_unit_test(test_rounding_mode),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
