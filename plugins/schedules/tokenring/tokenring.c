/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TokenRing: KV stays; Q moves one way round the ring and each partial O goes
 * straight home the other way, so that both directions of the links are in use.
 * The backward pass does the same with Q, dO, the statistics and dQ.
 *
 * Wang and others, "TokenRing" (2024).
 */
#define GY_SCHEDULE
#define GY_PARAMETERS(P)                                                  \
    P(direction, GYRE_STRUCTURAL, GYRE_CHOICE(0, "ascending|descending"), \
      "blocks pass on to the rank above, or below")
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
    radix.flags = GYRE_RADIX_MOVE_Q | GYRE_RADIX_STRAIGHT;
    if (v->direction > 0)
        radix.flags |= GYRE_RADIX_DESCENDING;
    return radix;
}

FORM_SCHEDULE(tokenring, "tokenring",
              "Q passes by, partial O goes straight home")
