/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank of a mixed radix holds: tokens, heads, and bytes of a token. */
#ifndef GYRE_PLUGINS_SCHEDULES_FORM_ROWS_H
#define GYRE_PLUGINS_SCHEDULES_FORM_ROWS_H

#include <gyre/plugin.h>

/* Not inlined by force: each of these would hold all of them. */
#define FORM_ __attribute__((unused)) static

enum { FORM_HEADS, FORM_Q, FORM_KV, FORM_OUTER, FORM_INNER, FORM_DIGITS };

typedef struct form {
    const gyre_problem *p;
    const gyre_radix *radix;
    gyre_radix_digit digit[FORM_DIGITS];
    int64_t at[FORM_DIGITS];
    uint32_t rank;
    int backward, cast;
    uint32_t side;     /* that moves in the ring */
    uint64_t own[2];   /* tokens by side: of this rank, */
    uint64_t block[2]; /* with its head ranks, */
    uint64_t team[2];  /* of all that it gathers */
    uint32_t heads[2]; /* that this rank computes: first, end */
} form;

/* ---- tokens and rows -------------------------------------------------- */

/* Tokens of the block at outer + t, inner + s and, on the team's digit, + m. */
FORM_ uint64_t form_block(const form *f, uint32_t side, int64_t t, int64_t s,
                          int64_t q, int64_t kv)
{
    const int64_t moved[FORM_DIGITS] = {0, q, kv, t, s};
    uint64_t tokens = 0, rank = 0;

    for (int d = 1; d < FORM_DIGITS; d++) {
        int64_t count = f->digit[d].count;
        int64_t at = f->at[d] + moved[d];

        if (at < 0 || at >= count)
            at = (at % count + count) % count;
        rank += (uint64_t)at * f->digit[d].stride;
    }
    for (uint32_t u = 0; u < f->digit[FORM_HEADS].count; u++)
        tokens +=
            f->p->rank_tokens[side][rank + u * f->digit[FORM_HEADS].stride];
    return tokens;
}

FORM_ uint64_t form_team(const form *f, uint32_t side, int64_t t, int64_t s)
{
    uint64_t tokens = 0;

    for (int64_t m = 0; m < f->digit[FORM_Q + side].count; m++)
        tokens += form_block(f, side, t, s, side == GYRE_SIDE_Q ? m : 0,
                             side == GYRE_SIDE_KV ? m : 0);
    return tokens;
}

/* What the ring holds at window t and step s. */
FORM_ uint64_t form_held(const form *f, int64_t t, int64_t s)
{
    int64_t d = f->radix->flags & GYRE_RADIX_DESCENDING ? -1 : 1;

    return form_team(f, f->side, -t * d, -s * d);
}

FORM_ void form_heads(const form *f, int64_t digit, uint32_t heads[2])
{
    int64_t count = f->digit[FORM_HEADS].count;
    uint64_t n = f->p->heads, u = (uint64_t)((digit + count) % count);

    heads[0] = (uint32_t)(n * u / (uint64_t)count);
    heads[1] = (uint32_t)(n * (u + 1) / (uint64_t)count);
}

/* Bytes of one token. */
FORM_ uint64_t form_q(const form *f, const uint32_t heads[2])
{
    return (uint64_t)f->p->batch * (heads[1] - heads[0]) * f->p->head_dim;
}
FORM_ uint64_t form_o(const form *f, const uint32_t heads[2])
{
    return (uint64_t)f->p->batch * (heads[1] - heads[0]) * f->p->v_head_dim;
}
FORM_ uint64_t form_stat(const form *f, const uint32_t heads[2])
{
    return (uint64_t)f->p->batch * (heads[1] - heads[0]) * f->p->stat_bytes;
}
FORM_ uint64_t form_kv(const form *f, const uint32_t heads[2])
{
    uint32_t shared = f->p->heads / f->p->kv_heads;
    uint32_t first = heads[0] / shared;
    uint32_t end = (heads[1] + shared - 1) / shared;

    return (uint64_t)f->p->batch * (end - first) *
           ((uint64_t)f->p->head_dim + f->p->v_head_dim);
}

/* Of what is read on a side, and of its sum with `bytes` an element. */
FORM_ uint64_t form_read(const form *f, uint32_t side, const uint32_t heads[2])
{
    uint64_t size = f->p->dtype_bytes;

    if (side == GYRE_SIDE_KV)
        return form_kv(f, heads) * size;
    if (!f->backward)
        return form_q(f, heads) * size;
    return (form_q(f, heads) + form_o(f, heads)) * size +
           2 * form_stat(f, heads);
}
FORM_ uint64_t form_sum(const form *f, uint32_t side, const uint32_t heads[2],
                        uint64_t bytes)
{
    if (side == GYRE_SIDE_KV)
        return form_kv(f, heads) * bytes;
    if (f->backward)
        return form_q(f, heads) * bytes;
    return form_o(f, heads) * bytes + form_stat(f, heads);
}

FORM_ uint64_t form_most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- a rank ----------------------------------------------------------- */

FORM_ form form_of(const gyre_problem *p, const gyre_radix *radix,
                   uint32_t pass, uint32_t rank)
{
    form f = {.p = p,
              .rank = rank,
              .radix = radix,
              .digit = {radix->heads, radix->q_gather, radix->kv_gather,
                        radix->outer, radix->inner},
              .backward = pass == GYRE_PASS_BACKWARD,
              .cast = p->wire_dtype != p->sum_dtype,
              .side = radix->flags & GYRE_RADIX_MOVE_Q ? GYRE_SIDE_Q
                                                       : GYRE_SIDE_KV};

    for (int d = 0; d < FORM_DIGITS; d++)
        if (f.digit[d].count > 1)
            f.at[d] = rank / f.digit[d].stride % f.digit[d].count;
    for (uint32_t side = 0; side < 2 && p->rank_tokens[0]; side++) {
        f.own[side] = p->rank_tokens[side][rank];
        f.block[side] = form_block(&f, side, 0, 0, 0, 0);
        f.team[side] = form_team(&f, side, 0, 0);
    }
    form_heads(&f, f.at[FORM_HEADS], f.heads);
    return f;
}

/* Ranks that differ in the digit of heads alone share a place, by rank. */
FORM_ void form_grid(const gyre_problem *p, const gyre_radix *radix,
                     uint32_t rank, gyre_grid *out)
{
    uint32_t u = radix->heads.count, stride = u > 1 ? radix->heads.stride : 1;

    out->contexts = p->ranks / u;
    out->parts = u;
    out->part = rank / stride % u;
    out->context = rank / (stride * u) * stride + rank % stride;
}

/* Has the moving side a sum in this pass? */
FORM_ int form_travels(const form *f)
{
    return f->backward || f->side == GYRE_SIDE_Q;
}

#endif
