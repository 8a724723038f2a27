/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Burst attention: forward a ring (or double ring) of KV; backward KV stays and
 * Q, dO and the statistics pass by, with the gradient of Q behind them: a
 * quarter less than a ring's backward when every query head has its own KV.
 *
 * Sun and others, "BurstAttention" (2024).
 */
#define GY_SCHEDULE
#define GY_PARAMETERS(P)                                                  \
    P(window, GYRE_STRUCTURAL, GYRE_INT(0, 0, 65536),                     \
      "ranks of an inner ring; 0: one ring")                              \
    P(direction, GYRE_STRUCTURAL, GYRE_CHOICE(0, "ascending|descending"), \
      "blocks pass on to the rank above, or below")                       \
    P(hops, GYRE_STRUCTURAL, GYRE_CHOICE(0, "home|published"),            \
      "gradients under way: own part stays home, or makes every hop")
#include <gyre/plugin.h>

#include "../form.h"

static int check(const double *values, const gyre_problem *p, char *text,
                 size_t size)
{
    const gy_values *v = GY_VALUES_(values);
    uint32_t window = (uint32_t)v->window;
    char list[160];

    if (window == 0 || p->ranks % window == 0)
        return 0;
    return form_say(
        text, size,
        "window = %u does not divide %u ranks; window = %s would work", window,
        p->ranks, form_divisors(p->ranks, p->ranks, 1, list));
}

static gyre_radix radix_of(const gy_values *v, const gyre_problem *p,
                           uint32_t pass)
{
    gyre_radix radix = form_one_ring(p);
    uint32_t window = v->window > 0 ? (uint32_t)v->window : p->ranks;

    radix.inner = form_digit(window, 1);
    radix.outer = form_digit(p->ranks / window, window);
    if (v->window > 0)
        radix.flags |= GYRE_RADIX_NESTED;
    if (pass == GYRE_PASS_BACKWARD)
        radix.flags |= GYRE_RADIX_MOVE_Q;
    if (v->direction > 0)
        radix.flags |= GYRE_RADIX_DESCENDING;
    if (v->hops > 0)
        radix.flags |= GYRE_RADIX_PUBLISHED;
    return radix;
}

FORM_SCHEDULE(burst, "burst", "KV ring forward, ring of Q, dO and dQ backward")
