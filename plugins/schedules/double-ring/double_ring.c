/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Double ring: windows of w neighbouring ranks form inner rings; while a window
 * turns, each rank already sends its block to the same place of the next one.
 *
 * Gu and others, "LoongTrain" (2024), section 4.2: P = n x w, any
 * factorisation; n (w - 1) inner and n - 1 outer shifts.
 */
#define GY_SCHEDULE
#define GY_PARAMETERS(P)                                                  \
    P(window, GYRE_STRUCTURAL, GYRE_INT(0, 0, 65536),                     \
      "ranks of an inner ring; 0: the largest divisor up to 8")           \
    P(direction, GYRE_STRUCTURAL, GYRE_CHOICE(0, "ascending|descending"), \
      "blocks pass on to the rank above, or below")                       \
    P(hops, GYRE_STRUCTURAL, GYRE_CHOICE(0, "home|published"),            \
      "gradients under way: own part stays home, or makes every hop")
#include <gyre/plugin.h>

#include "../form.h"

static uint32_t window_of(const gy_values *v, const gyre_problem *p)
{
    return v->window > 0 ? (uint32_t)v->window : form_divisor(p->ranks, 8);
}

static int check(const double *values, const gyre_problem *p, char *text,
                 size_t size)
{
    uint32_t window = window_of(GY_VALUES_(values), p);
    char list[160];

    if (p->ranks % window == 0)
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
    uint32_t window = window_of(v, p);

    (void)pass;
    radix.inner = form_digit(window, 1);
    radix.outer = form_digit(p->ranks / window, window);
    radix.flags = GYRE_RADIX_NESTED;
    if (v->direction > 0)
        radix.flags |= GYRE_RADIX_DESCENDING;
    if (v->hops > 0)
        radix.flags |= GYRE_RADIX_PUBLISHED;
    return radix;
}

FORM_SCHEDULE(double_ring, "double-ring",
              "rings of ranks within a ring of windows")
