/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tile: each rank computes a blocks of Q by c blocks of KV, a c = P.  What
 * travels goes round a ring, the other side is gathered; the bytes are the
 * same.
 *
 * a = 1 is a ring; with one dtype for all that moves, the least bytes are near
 * a = sqrt(P K / H) forward and sqrt(4 P K / (3 H)) backward, so that the two
 * passes have tiles of their own.
 */
#define GY_SCHEDULE
#define GY_PARAMETERS(P)                                                  \
    P(a, GYRE_STRUCTURAL, GYRE_INT(0, 0, 65536),                          \
      "blocks of Q of a rank; 0: the least bytes")                        \
    P(c, GYRE_STRUCTURAL, GYRE_INT(0, 0, 65536),                          \
      "blocks of KV of a rank; 0: ranks / a")                             \
    P(a_backward, GYRE_STRUCTURAL, GYRE_INT(0, 0, 65536),                 \
      "a in the backward pass; 0: as forward, or the least bytes")        \
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

/* Hops of a sum over `count` ranks. */
static double sum_hops(const gy_values *v, uint32_t count, uint32_t travels)
{
    return travels && v->hops > 0 && count > 1 ? count : count - 1;
}

/* Bytes that the ranks send in the mean, times their number: each row of Q goes
 * to a - 1 ranks and its sum to as many; each of KV to c - 1, and backward its
 * sum, which makes one hop more as `published`.  As double: products of sizes
 * may pass 64 bits. */
static double weight(const gy_values *v, const gyre_problem *p, uint32_t pass,
                     uint32_t a)
{
    double q[2], kv[2], d = p->head_dim, o = p->v_head_dim;
    uint32_t c = p->ranks / a, back = pass == GYRE_PASS_BACKWARD;
    uint32_t moves_q = form_moves_q((uint32_t)v->travels, pass) != 0;

    q[0] = d * p->dtype_bytes;
    q[1] = o * p->wire_bytes + p->stat_bytes;
    kv[0] = (d + o) * p->dtype_bytes;
    kv[1] = back ? (d + o) * p->wire_bytes : 0;
    if (back) {
        q[0] = (d + o) * p->dtype_bytes + 2.0 * p->stat_bytes;
        q[1] = d * p->wire_bytes;
    }
    return (double)p->tokens[GYRE_SIDE_Q] * p->heads *
               ((a - 1) * q[0] + sum_hops(v, a, moves_q) * q[1]) +
           (double)p->tokens[GYRE_SIDE_KV] * p->kv_heads *
               ((c - 1) * kv[0] + sum_hops(v, c, !moves_q) * kv[1]);
}

static uint32_t lightest(const gy_values *v, const gyre_problem *p,
                         uint32_t pass)
{
    uint32_t best = 1;

    /* Divisors in pairs: this runs once a rank. */
    for (uint32_t i = 1; i <= p->ranks / i; i++)
        for (int pair = 0; pair < 2 && p->ranks % i == 0; pair++) {
            uint32_t a = pair ? p->ranks / i : i;

            if (weight(v, p, pass, a) < weight(v, p, pass, best))
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
        t.a = lightest(v, p, pass);
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
