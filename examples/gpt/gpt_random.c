/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_random.c - counter-based random numbers: the value at (seed, stream,
 * counter) does not depend on what was drawn before.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_internal.h"

#include <math.h>

/* Finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014; Stafford's
 * mixer 13). */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t gpt_random_bits(uint64_t seed, uint64_t stream, uint64_t counter)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t key = mix(mix(seed + golden) + stream * golden);

    return mix(key + (counter + 1) * golden);
}

/* In (0, 1): the half keeps both ends out, so log() is finite. */
double gpt_random_uniform(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint64_t bits = gpt_random_bits(seed, stream, counter) >> 12;

    return ((double)bits + 0.5) * 0x1p-52;
}

/* Box-Muller in double, both values of each pair used. */
void gpt_random_normal(float *out, size_t n, double deviation, uint64_t seed,
                       uint64_t stream)
{
    const double turn = 6.283185307179586477;

    for (size_t i = 0; i < n; i += 2) {
        double u = gpt_random_uniform(seed, stream, i);
        double v = gpt_random_uniform(seed, stream, i + 1);
        double radius = deviation * sqrt(-2.0 * log(u));

        out[i] = (float)(radius * cos(turn * v));
        if (i + 1 < n)
            out[i + 1] = (float)(radius * sin(turn * v));
    }
}
