/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tile: each rank computes a blocks of Q by c blocks of KV, a c = P.  What
 * travels goes round a ring, the other side is gathered; the bytes are the
 * same.
 *
 * a = 1 is a ring; the least elements are near a = sqrt(P K / H) forward and
 * sqrt(4 P K / (3 H)) backward, so that the two passes have tiles of their own.
 */
#define GY_SCHEDULE
#define GY_PARAMETERS(P)                                                  \
    P(a, GYRE_STRUCTURAL, GYRE_INT(0, 0, 65536),                          \
      "blocks of Q of a rank; 0: the least elements")                     \
    P(c, GYRE_STRUCTURAL, GYRE_INT(0, 0, 65536),                          \
      "blocks of KV of a rank; 0: ranks / a")                             \
    P(a_backward, GYRE_STRUCTURAL, GYRE_INT(0, 0, 65536),                 \
      "a in the backward pass; 0: as forward, or the least elements")     \
    P(c_backward, GYRE_STRUCTURAL, GYRE_INT(0, 0, 65536),                 \
      "c in the backward pass; 0: ranks / a_backward")                    \
    P(travels, GYRE_STRUCTURAL, GYRE_CHOICE(0, "kv|q|burst"),             \
      "what the rings pass on: KV, Q with its sums, or KV forward and Q " \
      "backward")                                                         \
    P(direction, GYRE_STRUCTURAL, GYRE_CHOICE(0, "ascending|descending"), \
      "blocks pass on to the rank above, or below")                       \
    P(hops, GYRE_STRUCTURAL, GYRE_CHOICE(0, "home|published"),            \
      "gradients under way: own part stays home, or makes every hop")
#include <gyre/plugin.h>

#include "../form.h"

typedef struct tile {
    uint32_t a, c;
} tile;

/* Elements that a rank sends, in units of its tokens: (a - 1) q + (c - 1) k. */
static uint64_t weight(const gyre_problem *p, uint32_t pass, uint32_t a)
{
    uint64_t q = (uint64_t)p->heads * ((uint64_t)p->head_dim + p->v_head_dim);
    uint64_t k =
        (uint64_t)p->kv_heads * ((uint64_t)p->head_dim + p->v_head_dim);

    if (pass == GYRE_PASS_BACKWARD) {
        q += (uint64_t)p->heads * p->head_dim;
        k *= 2;
    }
    return (a - 1) * q + (p->ranks / a - 1) * k;
}

static uint32_t lightest(const gyre_problem *p, uint32_t pass)
{
    uint32_t best = 1;

    /* Divisors in pairs: this runs once a rank. */
    for (uint32_t i = 1; i <= p->ranks / i; i++)
        for (int pair = 0; pair < 2 && p->ranks % i == 0; pair++) {
            uint32_t a = pair ? p->ranks / i : i;

            if (weight(p, pass, a) < weight(p, pass, best))
                best = a;
        }
    return best;
}

static tile tile_of(const gy_values *v, const gyre_problem *p, uint32_t pass)
{
    tile t = {(uint32_t)v->a, (uint32_t)v->c};

    if (pass == GYRE_PASS_BACKWARD && (v->a_backward > 0 || v->c_backward > 0))
        t = (tile){(uint32_t)v->a_backward, (uint32_t)v->c_backward};
    if (t.a == 0 && t.c == 0)
        t.a = lightest(p, pass);
    if (t.a == 0)
        t.a = p->ranks / t.c;
    if (t.c == 0)
        t.c = p->ranks / t.a;
    return t;
}

static int check(const double *values, const gyre_problem *p, char *text,
                 size_t size)
{
    for (uint32_t pass = 0; pass < GYRE_PASS_COUNT; pass++) {
        const char *behind = pass == GYRE_PASS_BACKWARD ? "_backward" : "";
        tile t = tile_of(GY_VALUES_(values), p, pass);
        char list[160];

        if ((uint64_t)t.a * t.c != p->ranks)
            return form_say(text, size,
                            "a%s = %u times c%s = %u are not %u ranks; a%s = "
                            "%s would work, with c%s = 0 for the others",
                            behind, t.a, behind, t.c, p->ranks, behind,
                            form_divisors(p->ranks, p->ranks, 1, list), behind);
    }
    return 0;
}

static gyre_radix radix_of(const gy_values *v, const gyre_problem *p,
                           uint32_t pass)
{
    gyre_radix radix = form_one_ring(p);
    tile t = tile_of(v, p, pass);

    if (form_moves_q((uint32_t)v->travels, pass)) {
        radix.kv_gather = form_digit(t.c, 1);
        radix.inner = form_digit(t.a, t.c);
        radix.flags |= GYRE_RADIX_MOVE_Q;
    } else {
        radix.q_gather = form_digit(t.a, 1);
        radix.inner = form_digit(t.c, t.a);
    }
    if (v->direction > 0)
        radix.flags |= GYRE_RADIX_DESCENDING;
    if (v->hops > 0)
        radix.flags |= GYRE_RADIX_PUBLISHED;
    return radix;
}

FORM_SCHEDULE(tile, "tile",
              "a blocks of Q by c blocks of KV a rank, each pass its own")
