/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-ring attention: teams of C ranks gather each other's Q; C x C rings of
 * P / C^2 teams pass gathered KV, and the team adds up its partial O.
 *
 * Liu and others, "WallFacer" (2024), also called StarTrail.  KV is gathered in
 * another group than Q (a team of teams), so that the rings start where they
 * should and no skewing shift is needed.
 */
#define GY_SCHEDULE
#define GY_PARAMETERS(P)                                                   \
    P(team, GYRE_STRUCTURAL, GYRE_INT(0, 0, 256),                          \
      "C, ranks of a team; 0: the least above 1 whose square divides the " \
      "ranks")                                                             \
    P(placement, GYRE_STRUCTURAL, GYRE_CHOICE(0, "team_first|ring_first"), \
      "neighbouring ranks are a team, or a ring")                          \
    P(travels, GYRE_STRUCTURAL, GYRE_CHOICE(0, "kv|q|burst"),              \
      "what the rings pass on: KV, Q with its sums, or KV forward and Q "  \
      "backward")                                                          \
    P(direction, GYRE_STRUCTURAL, GYRE_CHOICE(0, "ascending|descending"),  \
      "blocks pass on to the rank above, or below")                        \
    P(hops, GYRE_STRUCTURAL, GYRE_CHOICE(0, "home|published"),             \
      "gradients under way: own part stays home, or makes every hop")
#include <gyre/plugin.h>

#include "../form.h"

static uint32_t team_of(const gy_values *v, const gyre_problem *p)
{
    if (v->team > 0)
        return (uint32_t)v->team;
    for (uint32_t c = 2; c <= p->ranks / c; c++)
        if (p->ranks % (c * c) == 0)
            return c;
    return 1;
}

static int check(const double *values, const gyre_problem *p, char *text,
                 size_t size)
{
    uint32_t team = team_of(GY_VALUES_(values), p);
    char list[160];

    if (p->ranks % (team * team) == 0)
        return 0;
    return form_say(text, size,
                    "the square of team = %u does not divide %u ranks; team = "
                    "%s would work",
                    team, p->ranks, form_divisors(p->ranks, p->ranks, 2, list));
}

static gyre_radix radix_of(const gy_values *v, const gyre_problem *p,
                           uint32_t pass)
{
    gyre_radix radix = form_one_ring(p);
    uint32_t team = team_of(v, p), ring = p->ranks / (team * team);
    uint32_t first = v->placement > 0 ? ring : 1;

    radix.q_gather = form_digit(team, first);
    radix.kv_gather = form_digit(team, first * team);
    radix.inner = form_digit(ring, v->placement > 0 ? 1 : team * team);
    if (v->direction > 0)
        radix.flags |= GYRE_RADIX_DESCENDING;
    if (v->hops > 0)
        radix.flags |= GYRE_RADIX_PUBLISHED;
    if (form_moves_q((uint32_t)v->travels, pass))
        radix.flags |= GYRE_RADIX_MOVE_Q;
    return radix;
}

FORM_SCHEDULE(multi_ring, "multi-ring",
              "teams gather Q, many short rings pass KV")
