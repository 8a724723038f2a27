/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 2D attention: U ranks share the heads (all-to-all), R = P / U share the
 * context (a ring, or a double ring).
 *
 * Gu and others, "LoongTrain" (2024), section 4.1.  A KV head goes once to each
 * rank that has a query head of it, straight from where it lies: there is no
 * expanded copy, U may exceed the KV heads and need not divide the heads.
 */
#define GY_SCHEDULE
#define GY_PARAMETERS(P)                                                      \
    P(heads, GYRE_STRUCTURAL, GYRE_INT(0, 0, 65535),                          \
      "ranks that share the heads; 0: most that divide ranks and KV heads")   \
    P(context, GYRE_STRUCTURAL, GYRE_INT(0, 0, 65536),                        \
      "ranks that share the context; 0: the others")                          \
    P(window, GYRE_STRUCTURAL, GYRE_INT(0, 0, 65536),                         \
      "ranks of an inner ring within the context; 0: one ring")               \
    P(placement, GYRE_STRUCTURAL, GYRE_CHOICE(0, "head_first|context_first"), \
      "neighbouring ranks share heads, or context")                           \
    P(direction, GYRE_STRUCTURAL, GYRE_CHOICE(0, "ascending|descending"),     \
      "blocks pass on to the rank above, or below")                           \
    P(hops, GYRE_STRUCTURAL, GYRE_CHOICE(0, "home|published"),                \
      "gradients under way: own part stays home, or makes every hop")         \
    P(keep, GYRE_STRUCTURAL, GYRE_CHOICE(0, "home|split"),                    \
      "kept for backward: Q, KV, O at home, or as split by heads")
#include <gyre/plugin.h>

#include "../form.h"

typedef struct shape {
    uint32_t heads, context, window;
} shape;

static shape shape_of(const gy_values *v, const gyre_problem *p)
{
    shape s = {(uint32_t)v->heads, (uint32_t)v->context, (uint32_t)v->window};

    if (s.heads == 0 && s.context > 0 && p->ranks % s.context == 0)
        s.heads = p->ranks / s.context;
    for (uint32_t u = 1; v->heads == 0 && s.context == 0 && u <= p->kv_heads;
         u++)
        if (p->ranks % u == 0 && p->kv_heads % u == 0)
            s.heads = u;
    if (s.context == 0 && s.heads > 0)
        s.context = p->ranks / s.heads;
    return s;
}

static int check(const double *values, const gyre_problem *p, char *text,
                 size_t size)
{
    shape s = shape_of(GY_VALUES_(values), p);
    char list[160];

    if ((uint64_t)s.heads * s.context != p->ranks)
        return form_say(text, size,
                        "heads = %u times context = %u are not %u ranks; heads "
                        "= %s would work, with context = 0 for the others",
                        s.heads, s.context, p->ranks,
                        form_divisors(p->ranks, p->heads, 1, list));
    if (s.heads > p->heads)
        return form_say(text, size,
                        "heads = %u ranks cannot share %u heads; heads = %s "
                        "would work with %u ranks, with context = 0 for the "
                        "others",
                        s.heads, p->heads,
                        form_divisors(p->ranks, p->heads, 1, list), p->ranks);
    if (s.window > 0 && s.context % s.window != 0)
        return form_say(
            text, size,
            "window = %u does not divide context = %u; window = %s would work",
            s.window, s.context, form_divisors(s.context, s.context, 1, list));
    return 0;
}

static gyre_radix radix_of(const gy_values *v, const gyre_problem *p,
                           uint32_t pass)
{
    gyre_radix radix = form_one_ring(p);
    shape s = shape_of(v, p);
    uint32_t window = s.window > 0 ? s.window : s.context;
    uint32_t step = v->placement > 0 ? 1 : s.heads;

    (void)pass;
    radix.heads = form_digit(s.heads, v->placement > 0 ? s.context : 1);
    radix.inner = form_digit(window, step);
    radix.outer = form_digit(s.context / window, step * window);
    if (s.window > 0)
        radix.flags |= GYRE_RADIX_NESTED;
    if (v->direction > 0)
        radix.flags |= GYRE_RADIX_DESCENDING;
    if (v->hops > 0)
        radix.flags |= GYRE_RADIX_PUBLISHED;
    if (v->keep > 0)
        radix.flags |= GYRE_RADIX_KEEP_SPLIT;
    return radix;
}

FORM_SCHEDULE(two_d, "2d",
              "all-to-all over heads, then a ring or double ring over context")
