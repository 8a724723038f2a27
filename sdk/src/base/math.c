/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Step scalars without the machine's libm.
 *
 * A double-double hi + lo, |lo| <= ulp(hi)/2, carries about 106 bits.  powi
 * keeps mantissa and exponent apart, so that no square on the way can lose its
 * low part to underflow.  exp and log use Taylor series on small arguments,
 * whose remainder is below 2^-57 of the result; the logarithm is made in
 * double-double, since pow counts an error of it y log x times.
 */
#include "config.h"

#include "base/math.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef struct pair {
    double hi;
    double lo;
} pair;

/* ln 2 in two parts; the first has 32 bits, so that k times it is exact. */
static const double LN2_HI = 0x1.62e42feep-1;
static const double LN2_LO = 0x1.a39ef35793c76p-33;
static const double INV_LN2 = 0x1.71547652b82fep+0;

/* ---- pieces ---------------------------------------------------------- */

static uint64_t bits_of(double x)
{
    uint64_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static double double_of(uint64_t u)
{
    double x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

/* 2^e for e in [-1022, 1023]. */
static double power_of_two(int e)
{
    return double_of((uint64_t)(e + 1023) << 52);
}

/* m in [1, 2) and e with x = m 2^e, for x finite and above 0. */
static double split(double x, int *e)
{
    uint64_t u;
    int bias = 1023;

    if (x < 0x1p-1022) {
        x *= 0x1p54;
        bias += 54;
    }
    u = bits_of(x);
    *e = (int)(u >> 52) - bias;
    return double_of((u & 0xfffffffffffffu) | 0x3ff0000000000000u);
}

/* |a| >= |b| */
static pair quick_sum(double a, double b)
{
    double hi = a + b;

    return (pair){hi, b - (hi - a)};
}

static pair sum(double a, double b)
{
    double hi = a + b;
    double part = hi - a;

    return (pair){hi, (a - (hi - part)) + (b - part)};
}

static pair times(pair a, pair b)
{
    double hi = a.hi * b.hi;
    double lo = fma(a.hi, b.hi, -hi);

    lo += fma(a.hi, b.lo, a.lo * b.hi);
    return quick_sum(hi, lo);
}

static pair plus(pair a, pair b)
{
    pair s = sum(a.hi, b.hi);

    return quick_sum(s.hi, s.lo + (a.lo + b.lo));
}

/* ---- values with an exponent of their own ---------------------------- */

/* A value m 2^e with 1 <= m.hi < 2. */
typedef struct wide {
    pair m;
    int e;
} wide;

/* A denormal result is rounded here, from all of m: rounding hi, which was
 * rounded before, would go wrong where hi happens to be a tie. */
static double round_to_denormal(pair m, int shift)
{
    uint64_t all = (bits_of(m.hi) & 0xfffffffffffffu) | 0x10000000000000u;
    uint64_t half, kept, rest;

    if (shift > 54)
        return 0;
    half = (uint64_t)1 << (shift - 1);
    kept = all >> shift;
    rest = all & (2 * half - 1);
    if (rest > half ||
        (rest == half && (m.lo > 0 || (m.lo == 0 && (kept & 1)))))
        kept++;
    return double_of(kept);
}

static double wide_round(wide a)
{
    if (a.e > 1023)
        return INFINITY;
    if (a.e < -1022)
        return round_to_denormal(a.m, -1022 - a.e);
    return a.m.hi * power_of_two(a.e);
}

/* ---- integer powers -------------------------------------------------- */

static wide wide_times(wide a, wide b)
{
    wide c = {times(a.m, b.m), a.e + b.e};

    if (c.m.hi >= 2) {
        c.m.hi *= 0.5;
        c.m.lo *= 0.5;
        c.e++;
    }
    return c;
}

/*
 * Square and multiply.  Squares only move away from 1, so one beyond 2^4096 or
 * below 2^-4096 settles the result: the top bit of n is still to come.
 */
static double power_of_positive(double x, uint64_t n)
{
    wide square = {{0, 0}, 0};
    wide result = {{1, 0}, 0};

    square.m.hi = split(x, &square.e);
    for (;;) {
        if (n & 1)
            result = wide_times(result, square);
        n >>= 1;
        if (n == 0)
            return wide_round(result);
        if (square.e > 4096)
            return INFINITY;
        if (square.e < -4096)
            return 0;
        square = wide_times(square, square);
    }
}

double gyre_math_powi(double x, uint64_t n)
{
    double magnitude = fabs(x);
    double power;

    if (n == 0)
        return 1;
    if (isnan(x))
        return x;
    if (magnitude == 0 || isinf(x))
        power = magnitude;
    else
        power = power_of_positive(magnitude, n);
    return signbit(x) && (n & 1) ? -power : power;
}

double gyre_math_sqrt(double x)
{
    return sqrt(x);
}

/* ---- exponential ----------------------------------------------------- */

/* e^(x + tail), |tail| below ulp(x). */
static double exp_of(double x, double tail)
{
    static const double inverse[] = {
        1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
        1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
        1.0 / 120,        1.0 / 24,        1.0 / 6,        0.5,
    };
    double series = inverse[0];
    double upper;
    double r;
    double rest;
    pair one_r;
    pair e;
    int k;

    if (x > 710)
        return INFINITY;
    if (x < -746)
        return 0;
    k = (int)(x * INV_LN2 + (x < 0 ? -0.5 : 0.5));
    upper = fma(-(double)k, LN2_HI, x);
    tail = fma(-(double)k, LN2_LO, tail);
    r = upper + tail;
    rest = (upper - r) + tail;
    for (unsigned i = 1; i < sizeof(inverse) / sizeof(inverse[0]); i++)
        series = fma(series, r, inverse[i]);
    /* 1 + r + rest + r^2 series, with |r| <= ln(2)/2 */
    one_r = quick_sum(1, r);
    e = quick_sum(one_r.hi, one_r.lo + (rest + r * r * series));
    if (e.hi < 1)
        return wide_round((wide){{2 * e.hi, 2 * e.lo}, k - 1});
    return wide_round((wide){e, k});
}

double gyre_math_exp(double x)
{
    return isnan(x) ? x : exp_of(x, 0);
}

/* ---- logarithm ------------------------------------------------------- */

/* m in [1/sqrt 2, sqrt 2) and k with x = m 2^k, for x finite and above 0. */
static double split_near_one(double x, int *k)
{
    double m = split(x, k);

    if (m >= 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        ++*k;
    }
    return m;
}

/* 1/(2 first + 1) + z/(2 first + 3) + ... up to z^13 overall, z <= 0.0295. */
static double odd_series(double z, int first)
{
    double series = 1.0 / 27;

    for (int i = 12; i >= first; i--)
        series = fma(series, z, 1.0 / (2 * i + 1));
    return series;
}

/*
 * With f = m - 1 and s = f/(2 + f): log(1 + f) = 2 s (1 + z/3 + z^2/5 + ...),
 * z = s^2; the terms from z^3 on in double.
 */
static pair log_pair(double x)
{
    static const pair third = {0x1.5555555555555p-2, 0x1.5555555555555p-56};
    static const pair fifth = {0x1.999999999999ap-3, -0x1.999999999999ap-57};
    pair s, z, series;
    double f, below, below_lo, quotient;
    int k;

    f = split_near_one(x, &k) - 1;
    below = 2 + f;
    below_lo = f - (below - 2);
    quotient = f / below;
    s = quick_sum(quotient,
                  (fma(-quotient, below, f) - quotient * below_lo) / below);
    z = times(s, s);
    series = plus(fifth, (pair){z.hi * odd_series(z.hi, 3), 0});
    series = plus(third, times(z, series));
    series = plus((pair){1, 0}, times(z, series));
    series = times((pair){2 * s.hi, 2 * s.lo}, series);
    return plus((pair){k * LN2_HI, k * LN2_LO}, series);
}

double gyre_math_log(double x)
{
    if (isnan(x) || (isinf(x) && x > 0))
        return x;
    if (x == 0)
        return -INFINITY;
    return x < 0 ? NAN : log_pair(x).hi;
}

/* ---- powers ---------------------------------------------------------- */

/* 0: no integer, 1: odd, 2: even. */
static int integer_kind(double y)
{
    double magnitude = fabs(y);

    if (magnitude >= 0x1p53)
        return 2;
    if (magnitude != (double)(uint64_t)magnitude)
        return 0;
    return (uint64_t)magnitude & 1 ? 1 : 2;
}

/* x^y for x finite and above 0, y finite. */
static double pow_of_positive(double x, double y)
{
    pair l = log_pair(x);
    double hi = y * l.hi;
    double lo;

    if (hi > 710)
        return INFINITY;
    if (hi < -746)
        return 0;
    lo = fma(y, l.hi, -hi) + y * l.lo;
    return exp_of(hi, lo);
}

double gyre_math_pow(double x, double y)
{
    double magnitude = fabs(x);
    bool negative;
    double power;
    int kind;

    if (y == 0 || x == 1)
        return 1;
    if (isnan(x) || isnan(y))
        return x + y;
    if (isinf(y)) {
        if (magnitude == 1)
            return 1;
        return (magnitude > 1) == (y > 0) ? INFINITY : 0;
    }
    kind = integer_kind(y);
    negative = signbit(x) && kind == 1;
    if (magnitude == 0)
        power = y > 0 ? 0 : INFINITY;
    else if (isinf(x))
        power = y > 0 ? INFINITY : 0;
    else if (x < 0 && kind == 0)
        return NAN;
    else
        power = pow_of_positive(magnitude, y);
    return negative ? -power : power;
}
