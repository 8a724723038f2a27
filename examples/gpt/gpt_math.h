/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_math.h - the exponential and the compiler hints that let plain loops
 * become vector code.
 *
 * Loops that reduce carry "omp simd" (needs -fopenmp-simd, no run-time
 * library): the order of summation is then the compiler's, but one and the
 * same in every run, because all rows start at fixed offsets of aligned
 * blocks.
 */
#ifndef GYRE_EXAMPLE_GPT_MATH_H
#define GYRE_EXAMPLE_GPT_MATH_H

#include <stdint.h>
#include <string.h>

/*
 * Several versions of a hot function in one binary, chosen when it is loaded,
 * so that a distribution build for plain x86-64 is not four times slower.
 * Not under the sanitizers: the resolver runs before they are ready.
 */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && \
    !defined(__clang__) && !defined(__SANITIZE_THREAD__) &&               \
    !defined(__SANITIZE_ADDRESS__) && !defined(GPT_NO_CLONES)
#define GPT_VECTOR  \
    __attribute__(( \
        target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define GPT_VECTOR
#endif

/*
 * e^x. Range reduction and polynomial are those of Cephes' expf (S. Moshier,
 * netlib cephes/single/expf.c): x = n ln 2 + r, |r| <= ln(2)/2, ln 2 in two
 * pieces, degree 5 in r beyond 1 + r. Within 1.5 ulp of the exact value for
 * -87 <= x <= 88 (tests/unit/gpt measures it); arguments outside are clamped,
 * so the result is never 0 or infinite. A NaN comes back as a NaN.
 * Rounds to the nearest n by adding 1.5 * 2^23, whose low bits then hold n:
 * must not be compiled with -fassociative-math (-ffast-math).
 */
static inline float gpt_expf(float x)
{
    x = x > 88.0f ? 88.0f : x;
    x = x < -87.0f ? -87.0f : x;
    float shifted = x * 1.44269504088896341f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127u) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

#endif
