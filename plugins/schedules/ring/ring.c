/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ring attention: KV blocks pass by every rank, in P - 1 shifts; in the
 * backward pass their gradients travel behind them.
 *
 * Liu, Zaharia, Abbeel, "Ring attention with blockwise transformers" (2023).
 * Descending, the second half of a zigzag block is of no use to the ranks that
 * follow once the wrap is passed: with drop=dead a quarter of the bytes stays
 * at home.
 */
#define GY_SCHEDULE
#define GY_PARAMETERS(P)                                                  \
    P(direction, GYRE_STRUCTURAL, GYRE_CHOICE(0, "ascending|descending"), \
      "blocks pass on to the rank above, or below")                       \
    P(hops, GYRE_STRUCTURAL, GYRE_CHOICE(0, "home|published"),            \
      "gradient of KV: own part stays home and P - 1 hops, or P hops")
#include <gyre/plugin.h>

#include "../form.h"

static int check(const double *values, const gyre_problem *p, char *text,
                 size_t size)
{
    (void)values, (void)p, (void)text, (void)size;
    return 0;
}

static gyre_radix radix_of(const gy_values *v, const gyre_problem *p,
                           uint32_t pass)
{
    gyre_radix radix = form_one_ring(p);

    (void)pass;
    if (v->direction > 0)
        radix.flags |= GYRE_RADIX_DESCENDING;
    if (v->hops > 0)
        radix.flags |= GYRE_RADIX_PUBLISHED;
    return radix;
}

FORM_SCHEDULE(ring, "ring", "one ring of KV blocks over all ranks")
