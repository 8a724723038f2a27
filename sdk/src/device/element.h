/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State codecs, element by element: the one definition of their arithmetic, as
 * C and, word for word, as text for a device that builds its own program.
 *
 * Integers are 32-bit unsigned and floats f32; every operation is one of IEEE
 * 754, rounded to nearest, with denormals.  Where a product is followed by a
 * sum either is a statement of its own, so that nothing is contracted.
 *
 * bf16-stochastic.  The upper half of the bits is kept, after a number of 0 to
 * 0xffff has been added to the lower one.  A value between two neighbours of
 * bf16 thus goes up with the probability of its distance from the lower one,
 * in steps of 2^-16 of the gap, of which a finite x is a multiple (both are
 * bits): the expectation is x, exactly.  A value of bf16 stays as it is.
 * Finite values stay finite: beyond the largest they become the largest.
 *     |D - x| < 2^-7 |x| for 2^-126 <= |x| <= 0x1.fep127, else < 2^-133
 *
 * q8.  A block of 256 elements has the scale s = max |x|, at least 2^-126 (0
 * when all are 0), and each element a code c whose share of s is, with
 * f = floor(log2 c),
 *     m(c) = 8^(f - F - 1) (7 (c + 1) / 2^f - 6)       m(0) = 0
 * that is: zones (8^-(z+1), 8^-z], each cut into 2^f equal steps, f = F - z.
 *     F = 6  codes 1..127 and a sign; smallest share 8^-6 = 3.8e-6
 *     F = 7  codes 1..255 for blocks without negative values; 8^-7 = 4.8e-7
 * D = s m(c), rounded once.  The largest element comes back exactly.  All
 * shares of F = 6 are shares of F = 7.  The step around x in zone z is
 *     d = 7/8 s 2^-(F + 2z)           d <= 7 2^(z - F) |x|
 * and code + dither, cut off, is what is stored: dither 1/2 gives the nearest,
 * dither r 2^-16 with r of 0 to 0xffff goes up with the probability of the
 * distance.  The step below the smallest share is that share.  The position in
 * steps, y A + B with y = x / s, is off by at most
 * (3 * 147 + 110 + 64 + 128 + 128) 2^-24 < 2^-14 of a step: y, A and their
 * product, up to 146.3; B, two roundings; two sums up to 256.  So
 *     |D - x| <= (1/2 + 2^-14) d + 2^-24 |D| + 2^-150    nearest
 *     |D - x| <  (1   + 2^-14) d + 2^-24 |D| + 2^-150    dithered
 *     |E D - x| <= 2^-13 d + 2^-24 |D| + 2^-150          dithered
 * the last two but for F = 7 below the smallest share: what is not 0 never
 * becomes 0 there, but at least 8^-7 s.  Hence an Adam whose first moment is
 * not 0 never divides by the root of a second moment that rounding has taken
 * away: too small a denominator would make the step lr m / eps, too large a
 * one only a smaller step.
 *
 * Dithered, since a second moment moves by 1 - beta2 of its distance: 0.001 of
 * itself in a step where d is 0.05 of it.  To nearest it would stay where it
 * is for ever.
 *
 * A block with an infinity or a NaN has the scale NaN and decodes to NaN.
 */
#ifndef GYRE_SRC_DEVICE_ELEMENT_H
#define GYRE_SRC_DEVICE_ELEMENT_H

#include <gyre/plugin.h>
#include <stdint.h>
#include <string.h>

/*
 * Wanted: gy_as_uint(float), gy_as_float(U).
 *     gy_bf16_dither  bits of bf16 from bits of f32; r: 0 to 0xffff
 *     gy_q8_scale     what is stored: the scale, its sign bit set for F = 7.
 *                     most: largest |x| of the block, as bits; whole: 1 when
 *                     no element is below 0
 *     gy_q8_code      of x; scale without the sign bit
 *     gy_q8_value     of a code
 */
#define GY_STATE_(U, FN)                                                  \
    FN U gy_bf16_dither(U bits, U r)                                      \
    {                                                                     \
        const U most = bits & 0x7fffffffu;                                \
        const U moved = (most + r) >> 16;                                 \
        const U kept = moved > 0x7f7fu ? 0x7f7fu : moved;                 \
        const U quiet = most > 0x7f800000u ? 0x40u : 0u;                  \
        const U high = most >= 0x7f800000u ? (most >> 16) | quiet : kept; \
        return high | ((bits >> 16) & 0x8000u);                           \
    }                                                                     \
    FN U gy_q8_scale(U most, U whole)                                     \
    {                                                                     \
        const U scale = most < 0x00800000u ? 0x00800000u : most;          \
        return most == 0u              ? 0u                               \
               : (most >= 0x7f800000u) ? 0x7fc00000u                      \
                                       : (scale | (whole << 31));         \
    }                                                                     \
    FN U gy_q8_code(float x, float scale, U whole, float dither)          \
    {                                                                     \
        const U top = 6u + whole;                                         \
        const U bits = gy_as_uint(x);                                     \
        const U most = bits & 0x7fffffffu;                                \
        const float y = gy_as_float(most) / scale;                        \
        const U power = gy_as_uint(y) >> 23;                              \
        const U back = 126u - (power < 126u ? power : 126u);              \
        const U low = power < 127u - 3u * top ? 1u : 0u;                  \
        const U reach = (back * 43u) >> 7;                                \
        const U zone = reach < top ? reach : top;                         \
        const float steps = gy_as_float((127u + top - zone) << 23);       \
        const float slope =                                               \
            gy_as_float((127u + top + 2u * zone) << 23) * 1.14285719f;    \
        const float part = steps * 0.857142866f;                          \
        const float base = part - 1.0f;                                   \
        const float place =                                               \
            y * (low ? (whole ? 2097152.0f : 262144.0f) : slope);         \
        const float from = place + (low ? 0.0f : base);                   \
        const float to = from + dither;                                   \
        const U rounded = (U)(int)to;                                     \
        const U last = whole ? 255u : 127u;                               \
        const U least = whole && most > 0u ? 1u : 0u;                     \
        const U cut = rounded > last ? last : rounded;                    \
        const U code = cut < least ? least : cut;                         \
        const U sign = whole || code == 0u ? 0u : (bits >> 24) & 0x80u;   \
        return scale > 0.0f ? code | sign : 0u;                           \
    }                                                                     \
    FN float gy_q8_value(U byte, float scale, U whole)                    \
    {                                                                     \
        const U code = whole ? byte : byte & 0x7fu;                       \
        const U power = gy_as_uint((float)(int)code) >> 23;               \
        const float steps = gy_as_float((254u - power) << 23);            \
        const float next = (float)(int)(7u * code + 7u);                  \
        const float place = next * steps;                                 \
        const float share = place - 6.0f;                                 \
        const float zone =                                                \
            gy_as_float((3u * power - 275u - 3u * whole) << 23);          \
        const float value = (code == 0u ? 0.0f : share * zone) * scale;   \
        const U sign = whole ? 0u : (byte & 0x80u) << 24;                 \
        return gy_as_float(gy_as_uint(value) | sign);                     \
    }

/* The text wants GY_FN, uint, gy_as_uint and gy_as_float. */
#define GYRE_STATE_TEXT GY_TEXT_OF_(GY_STATE_(uint, GY_FN))

static inline __attribute__((always_inline)) uint32_t gy_as_uint(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static inline __attribute__((always_inline)) float gy_as_float(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

#define GY_STATE_FN_ __attribute__((always_inline, unused)) static inline
GY_STATE_(uint32_t, GY_STATE_FN_)

#endif
