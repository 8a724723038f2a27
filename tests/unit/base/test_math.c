/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Step scalars against the machine's long double functions (64 bits of
 * mantissa: its own error is 2^-11 of our unit).  The bounds are those that
 * base/math.h promises.
 */
#include "config.h"

#include "../unit.h"

#include "base/math.h"

#include <math.h>
#include <stdbool.h>

static uint64_t random_state = 88172645463325252u;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* In [0, 1). */
static double uniform(void)
{
    return (double)(random_bits() >> 11) * 0x1p-53;
}

/* Distance from the exact value in units of the last place of a double. */
static double ulps(double got, long double exact)
{
    int e;
    long double unit;

    if (isnan(exact))
        return isnan(got) ? 0 : 1e9;
    if (fabsl(exact) >= 0x1.fffffffffffff8p1023L)
        return got == (exact > 0 ? INFINITY : -INFINITY) ? 0 : 1e9;
    if (exact == 0)
        return got == 0 ? 0 : fabs(got) / 0x1p-1074;
    frexpl(exact, &e);
    unit = ldexpl(1, e - 53 < -1074 ? -1074 : e - 53);
    return (double)(fabsl((long double)got - exact) / unit);
}

static double bound; /* of the function under test */
static double worst;

static void hold(double got, long double exact, double x, double y)
{
    double error = ulps(got, exact);

    if (error > worst)
        worst = error;
    if (!(error <= bound))
        fail_msg("x = %a, y = %a: got %a, exact %La, %g ulp", x, y, got, exact,
                 error);
}

static int say_worst(void **state)
{
    (void)state;
    print_message("# worst error %.4f of %.2f\n", worst, bound);
    worst = 0;
    return 0;
}

static void test_exp(void **state)
{
    (void)state;
    bound = 0.75;
    for (int i = 0; i < 200000; i++) {
        double x = (uniform() - 0.5) * (i % 2 ? 1500 : 4);

        hold(gyre_math_exp(x), expl((long double)x), x, 0);
    }
    for (int i = -1075; i < 1025; i++) { /* where the reduction switches */
        double x = (i + 0.5) * 0x1.62e42fefa39efp-1;

        for (int j = -2; j <= 2; j++) {
            double near = x + j * 0x1p-50 * fabs(x);

            hold(gyre_math_exp(near), expl((long double)near), near, 0);
        }
    }
    assert_true(gyre_math_exp(0) == 1);
    assert_true(gyre_math_exp(-0.0) == 1);
    assert_true(gyre_math_exp(INFINITY) == INFINITY);
    assert_true(gyre_math_exp(-INFINITY) == 0);
    assert_true(gyre_math_exp(710) == INFINITY);
    assert_true(gyre_math_exp(-746) == 0);
    assert_true(gyre_math_exp(1e300) == INFINITY);
    assert_true(gyre_math_exp(-1e300) == 0);
    assert_true(isnan(gyre_math_exp(NAN)));
    assert_true(gyre_math_exp(0x1p-60) == 1);
}

static void test_log(void **state)
{
    (void)state;
    bound = 0.51;
    for (int i = 0; i < 300000; i++) {
        double x;

        if (i % 3 == 0) {
            uint64_t u = random_bits() >> 1; /* any positive bits */

            memcpy(&x, &u, sizeof(x));
            if (!(x > 0) || isinf(x))
                continue;
        } else {
            x = i % 3 == 1 ? 0.5 + uniform() * 1.5
                           : 1 + (uniform() - 0.5) * 0x1p-10;
        }
        hold(gyre_math_log(x), logl((long double)x), x, 0);
    }
    for (uint64_t u = 1; u < 4000; u++) { /* denormals */
        double x = (double)u * 0x1p-1074;

        hold(gyre_math_log(x), logl((long double)x), x, 0);
    }
    assert_true(gyre_math_log(1) == 0);
    assert_true(gyre_math_log(0) == -INFINITY);
    assert_true(gyre_math_log(-0.0) == -INFINITY);
    assert_true(gyre_math_log(INFINITY) == INFINITY);
    assert_true(isnan(gyre_math_log(-1)));
    assert_true(isnan(gyre_math_log(-INFINITY)));
    assert_true(isnan(gyre_math_log(NAN)));
}

static void test_pow(void **state)
{
    (void)state;
    bound = 0.75;
    for (int i = 0; i < 300000; i++) {
        double x, y;

        switch (i % 3) {
        case 0: /* any magnitude */
            x = ldexp(1 + uniform(), (int)(random_bits() % 2000) - 1000);
            y = (uniform() - 0.5) * 4;
            break;
        case 1: /* near 1, large exponents: betas and steps */
            x = 1 - uniform() * 0.1;
            y = floor(uniform() * 20000);
            break;
        default: /* results over the whole range */
            x = 0.01 + uniform() * 100;
            y = (uniform() - 0.5) * 2 * 750 / fabs(log(x));
        }
        hold(gyre_math_pow(x, y), powl((long double)x, (long double)y), x, y);
    }
    for (int i = 0; i < 100000; i++) {
        double x = -uniform() * 10;
        double y = floor((uniform() - 0.5) * 400);

        hold(gyre_math_pow(x, y), powl((long double)x, (long double)y), x, y);
    }
}

/* All pairs of the values that C11 Annex F treats apart, against libm. */
static void test_pow_special(void **state)
{
    static const double values[] = {
        0.0,         -0.0,      1.0,         -1.0,       0.5,
        -0.5,        2.0,       -2.0,        3.0,        -3.0,
        1e300,       -1e300,    0x1p53,      0x1p53 + 2, 0x1p52 + 1,
        -0x1p52 - 1, 2.5,       -2.5,        INFINITY,   -INFINITY,
        NAN,         0x1p-1074, 1 - 0x1p-53, 1 + 0x1p-52};
    enum { N = sizeof(values) / sizeof(values[0]) };

    (void)state;
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            double got = gyre_math_pow(values[i], values[j]);
            double want = pow(values[i], values[j]);

            if (isnan(want)) {
                assert_true(isnan(got));
                continue;
            }
            if (signbit(got) != signbit(want) ||
                !(ulps(got, (long double)want) <= 1))
                fail_msg("pow(%a, %a) = %a, not %a", values[i], values[j], got,
                         want);
        }
    }
}

/* x^n by exact long double steps is out of reach for large n; powl's error
 * grows with n log x, so the bound holds where 64 bits suffice. */
static void test_powi(void **state)
{
    (void)state;
    bound = 0.51;
    for (int i = 0; i < 200000; i++) {
        double x = i % 2 ? 1 - uniform() * 0.2 : 0.3 + uniform() * 3;
        uint64_t n = random_bits() % (i % 4 < 2 ? 40 : 4000);

        hold(gyre_math_powi(x, n), powl((long double)x, (long double)n), x,
             (double)n);
    }
    for (uint64_t n = 1; n < 20000; n++) { /* the betas of every day */
        hold(gyre_math_powi(0.9, n), powl(0.9, (long double)n), 0.9, (double)n);
        hold(gyre_math_powi(0.999, n), powl(0.999, (long double)n), 0.999,
             (double)n);
    }
    for (uint64_t n = 0; n <= 1100; n++) { /* exact, and to denormals */
        assert_true(gyre_math_powi(0.5, n) == ldexp(1, -(int)n));
        assert_true(gyre_math_powi(2, n) == ldexp(1, (int)n));
        assert_true(gyre_math_powi(-2, n) == ldexp(n % 2 ? -1 : 1, (int)n));
    }
    for (uint64_t n = 1; n <= 33; n++) { /* 3^33 has 53 bits */
        uint64_t exact = 1;

        for (uint64_t i = 0; i < n; i++)
            exact *= 3;
        assert_true(gyre_math_powi(3, n) == (double)exact);
    }
}

static void test_powi_special(void **state)
{
    (void)state;
    assert_true(gyre_math_powi(NAN, 0) == 1);
    assert_true(gyre_math_powi(0, 0) == 1);
    assert_true(isnan(gyre_math_powi(NAN, 1)));
    assert_true(gyre_math_powi(0, 5) == 0);
    assert_true(signbit(gyre_math_powi(-0.0, 5)));
    assert_false(signbit(gyre_math_powi(-0.0, 4)));
    assert_true(gyre_math_powi(INFINITY, 3) == INFINITY);
    assert_true(gyre_math_powi(-INFINITY, 3) == -INFINITY);
    assert_true(gyre_math_powi(-INFINITY, 2) == INFINITY);
    assert_true(gyre_math_powi(1, UINT64_MAX) == 1);
    assert_true(gyre_math_powi(-1, UINT64_MAX) == -1);
    assert_true(gyre_math_powi(0.999, UINT64_MAX) == 0);
    assert_true(gyre_math_powi(1.001, UINT64_MAX) == INFINITY);
    assert_true(gyre_math_powi(-1.001, UINT64_MAX) == -INFINITY);
    assert_true(gyre_math_powi(0x1p-1074, 1) == 0x1p-1074);
    assert_true(gyre_math_powi(0x1.fffffffffffffp1023, 1) ==
                0x1.fffffffffffffp1023);
    /* far beyond the steps of any run: (1 - 2^-53)^(2^48) */
    assert_true(ulps(gyre_math_powi(1 - 0x1p-53, (uint64_t)1 << 48),
                     expl(-0x1p-5L - 0x1p-59L)) <= 1);
}

/* Bits that may never change: they are in checkpoints. */
static void test_frozen_bits(void **state)
{
    (void)state;
    assert_true(gyre_math_powi(0.999, 1000) == 0x1.788526411ed72p-2);
    assert_true(gyre_math_sqrt(2) == 0x1.6a09e667f3bcdp+0);
    assert_true(gyre_math_exp(1) == 0x1.5bf0a8b145769p+1);
    assert_true(gyre_math_log(10) == 0x1.26bb1bbb55516p+1);
    assert_true(gyre_math_pow(10, -0.5) == 0x1.43d136248490fp-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_exp, say_worst),
        cmocka_unit_test_teardown(test_log, say_worst),
        cmocka_unit_test_teardown(test_pow, say_worst),
        cmocka_unit_test(test_pow_special),
        cmocka_unit_test_teardown(test_powi, say_worst),
        cmocka_unit_test(test_powi_special),
        cmocka_unit_test(test_frozen_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
