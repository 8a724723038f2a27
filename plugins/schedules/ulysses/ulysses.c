/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ulysses: an all-to-all gives each rank some heads of the whole sequence, and
 * another brings O back.
 *
 * Jacobs and others, "DeepSpeed-Ulysses" (2023).  The heads need not divide by
 * the ranks, and there may be more ranks than KV heads.
 */
#define GY_SCHEDULE
#define GY_PARAMETERS(P)                                   \
    P(keep, GYRE_STRUCTURAL, GYRE_CHOICE(0, "home|split"), \
      "kept for backward: Q, KV, O at home, or as split by heads")
#include <gyre/plugin.h>

#include "../form.h"

static int check(const double *values, const gyre_problem *p, char *text,
                 size_t size)
{
    char list[160];

    (void)values;
    if (p->ranks <= p->heads)
        return 0;
    return form_say(text, size,
                    "%u ranks cannot share %u heads: at most %u ranks would "
                    "work; or take schedule 2d with heads = %s",
                    p->ranks, p->heads, p->heads,
                    form_divisors(p->ranks, p->heads, 1, list));
}

static gyre_radix radix_of(const gy_values *v, const gyre_problem *p,
                           uint32_t pass)
{
    gyre_radix radix = form_one_ring(p);

    (void)pass;
    radix.heads = form_digit(p->ranks, 1);
    radix.inner = form_digit(1, 1);
    if (v->keep > 0)
        radix.flags |= GYRE_RADIX_KEEP_SPLIT;
    return radix;
}

FORM_SCHEDULE(ulysses, "ulysses", "all-to-all over heads alone")
