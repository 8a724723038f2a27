/* SPDX-License-Identifier: Apache-2.0 */
/* Closed form of the bytes that one rank sends and receives, by phase, and of
 * those between nodes: every hop names the rank at its other end. */
#ifndef GYRE_PLUGINS_SCHEDULES_FORM_BYTES_H
#define GYRE_PLUGINS_SCHEDULES_FORM_BYTES_H

#include "form_rows.h"

typedef struct form_flow {
    uint64_t sent, received;
    uint64_t outer_sent, outer_received; /* of these, between nodes */
} form_flow;

/* The rank so many places on along one digit, or along the two of the rings. */
FORM_ uint32_t form_rank(const form *f, int digit, int64_t by, int64_t inner)
{
    uint64_t rank = 0;

    for (int d = 0; d < FORM_DIGITS; d++) {
        int64_t count = f->digit[d].count;
        int64_t at =
            f->at[d] + (d == digit ? by : 0) + (d == FORM_INNER ? inner : 0);

        rank += (uint64_t)((at % count + count) % count) * f->digit[d].stride;
    }
    return (uint32_t)rank;
}

FORM_ int form_is_outer(const form *f, uint32_t peer)
{
    return f->p->node > 0 && peer / f->p->node != f->rank / f->p->node;
}

FORM_ void form_send(const form *f, form_flow *flow, uint32_t to,
                     uint64_t bytes)
{
    flow->sent += bytes;
    flow->outer_sent += form_is_outer(f, to) ? bytes : 0;
}

FORM_ void form_receive(const form *f, form_flow *flow, uint32_t from,
                        uint64_t bytes)
{
    flow->received += bytes;
    flow->outer_received += form_is_outer(f, from) ? bytes : 0;
}

FORM_ form_flow form_split_bytes(const form *f)
{
    form_flow flow = {0, 0, 0, 0};
    int64_t count = f->digit[FORM_HEADS].count;
    int keep = (f->radix->flags & GYRE_RADIX_KEEP_SPLIT) != 0;
    uint64_t size = f->p->dtype_bytes;
    uint32_t here = (uint32_t)f->at[FORM_HEADS];
    uint64_t q = f->own[0], kv = f->own[1];

    for (int64_t i = 1; i < count; i++) {
        uint32_t heads[2];
        uint64_t there_q = 0, there_kv = 0;
        int64_t u = (here + i) % count;
        uint32_t rank = form_rank(f, FORM_HEADS, i, 0);

        there_q = f->p->rank_tokens[GYRE_SIDE_Q][rank];
        there_kv = f->p->rank_tokens[GYRE_SIDE_KV][rank];
        form_heads(f, u, heads);
        if (!f->backward) {
            uint64_t out = form_q(f, heads) * q + form_kv(f, heads) * kv;
            uint64_t in =
                form_q(f, f->heads) * there_q + form_kv(f, f->heads) * there_kv;
            form_send(f, &flow, rank,
                      (out + form_o(f, f->heads) * there_q) * size);
            form_receive(f, &flow, rank, (in + form_o(f, heads) * q) * size);
            continue;
        }
        /* DO out, DQ and DKV* back; without what was kept also Q, KV, delta. */
        form_send(f, &flow, rank,
                  (form_o(f, heads) * q + form_q(f, f->heads) * there_q) *
                          size +
                      form_kv(f, f->heads) * there_kv * f->p->wire_bytes);
        form_receive(f, &flow, rank,
                     (form_o(f, f->heads) * there_q + form_q(f, heads) * q) *
                             size +
                         form_kv(f, heads) * kv * f->p->wire_bytes);
        if (keep)
            continue;
        form_send(f, &flow, rank,
                  (form_q(f, heads) * q + form_kv(f, heads) * kv) * size +
                      form_stat(f, heads) * q);
        form_receive(
            f, &flow, rank,
            (form_q(f, f->heads) * there_q + form_kv(f, f->heads) * there_kv) *
                    size +
                form_stat(f, f->heads) * there_q);
    }
    return flow;
}

/* `row` bytes for each row: of the own block to everyone of the team and of
 * everyone's from it, or with scatter the other way round. */
FORM_ form_flow form_team_bytes(const form *f, uint32_t side, uint64_t row,
                                int scatter)
{
    form_flow flow = {0, 0, 0, 0};
    int digit = side == GYRE_SIDE_Q ? FORM_Q : FORM_KV;

    for (int64_t m = 1; m < f->digit[digit].count; m++) {
        uint32_t peer = form_rank(f, digit, m, 0);
        uint64_t there = form_block(f, side, 0, 0, digit == FORM_Q ? m : 0,
                                    digit == FORM_KV ? m : 0);

        form_send(f, &flow, peer, row * (scatter ? there : f->block[side]));
        form_receive(f, &flow, peer, row * (scatter ? f->block[side] : there));
    }
    return flow;
}

/* What is read is gathered, the sum is scattered; KV's has no sum forward. */
FORM_ form_flow form_gather_bytes(const form *f, uint32_t side)
{
    return form_team_bytes(f, side, form_read(f, side, f->heads), 0);
}
FORM_ form_flow form_reduce_bytes(const form *f, uint32_t side)
{
    uint64_t row = form_sum(f, side, f->heads, f->p->wire_bytes);

    return form_team_bytes(f, side,
                           side == GYRE_SIDE_KV && !f->backward ? 0 : row, 1);
}

/* Of all tokens that pass by: sum over one digit or both. */
FORM_ uint64_t form_window(const form *f, int64_t t)
{
    uint64_t tokens = 0;

    for (int64_t s = 0; s < f->digit[FORM_INNER].count; s++)
        tokens += form_held(f, t, s);
    return tokens;
}

/* All that goes round on one digit goes to the next rank and comes from the one
 * before. */
FORM_ form_flow form_hops(const form *f, int digit, form_flow all)
{
    int64_t d = f->radix->flags & GYRE_RADIX_DESCENDING ? -1 : 1;
    form_flow flow = {0, 0, 0, 0};

    form_send(f, &flow, form_rank(f, digit, d, 0), all.sent);
    form_receive(f, &flow, form_rank(f, digit, -d, 0), all.received);
    return flow;
}

/* The sum of every block that passes by goes to where the block is at home. */
FORM_ form_flow form_straight_bytes(const form *f, uint64_t sum)
{
    int64_t n = f->digit[FORM_OUTER].count, w = f->digit[FORM_INNER].count;
    int64_t d = f->radix->flags & GYRE_RADIX_DESCENDING ? -1 : 1;
    form_flow flow = {0, 0, 0, 0};

    for (int64_t t = 0; t < n; t++)
        for (int64_t s = t == 0; s < w; s++) {
            form_send(f, &flow, form_rank(f, FORM_OUTER, -t * d, -s * d),
                      form_held(f, t, s) * sum);
            form_receive(f, &flow, form_rank(f, FORM_OUTER, t * d, s * d),
                         form_held(f, 0, 0) * sum);
        }
    return flow;
}

/* Rings: inner, outer, and sums that go straight home. */
FORM_ void form_ring_bytes(const form *f, form_flow *inner, form_flow *outer,
                           form_flow *straight)
{
    int64_t n = f->digit[FORM_OUTER].count, w = f->digit[FORM_INNER].count;
    uint64_t row = form_read(f, f->side, f->heads);
    uint64_t sum =
        form_travels(f) ? form_sum(f, f->side, f->heads, f->p->wire_bytes) : 0;
    int published = (f->radix->flags & GYRE_RADIX_PUBLISHED) != 0;
    uint64_t all = 0, starts = 0, lasts = 0, befores = 0;

    for (int64_t t = 0; t < n; t++) {
        all += form_window(f, t);
        starts += form_held(f, t, 0);    /* of each window */
        lasts += form_held(f, t, w - 1); /* not passed on */
        befores += form_held(f, t, 1);   /* own of the rank that sends to us */
    }
    form_flow i = {(all - lasts) * row, (all - starts) * row, 0, 0};
    form_flow o = {(starts - form_held(f, n - 1, 0)) * row,
                   (starts - form_held(f, 0, 0)) * row, 0, 0};
    *straight = (form_flow){0, 0, 0, 0};
    if (f->radix->flags & GYRE_RADIX_STRAIGHT) {
        *straight = form_straight_bytes(f, sum);
    } else if (published) {
        i.sent += w > 1 ? all * sum : 0;
        i.received += w > 1 ? all * sum : 0;
        o.sent += n > 1 ? starts * sum : 0;
        o.received += n > 1 ? starts * sum : 0;
    } else {
        i.sent += (all - starts) * sum;
        i.received += (all - befores) * sum;
        o.sent += (starts - form_held(f, 0, 0)) * sum;
        o.received += (starts - form_held(f, 1, 0)) * sum;
    }
    *inner = form_hops(f, FORM_INNER, i);
    *outer = form_hops(f, FORM_OUTER, o);
}

FORM_ void form_put(gyre_phase_bytes *out, uint32_t *count, const char *phase,
                    form_flow one, form_flow two)
{
    gyre_phase_bytes bytes = {phase, one.sent + two.sent,
                              one.received + two.received,
                              one.outer_sent + two.outer_sent,
                              one.outer_received + two.outer_received};

    if (bytes.sent > 0 || bytes.received > 0)
        out[(*count)++] = bytes;
}

FORM_ uint32_t form_bytes(const gyre_problem *p, const gyre_radix *radix,
                          uint32_t pass, uint32_t rank, gyre_phase_bytes *out)
{
    form f = form_of(p, radix, pass, rank);
    form_flow inner, outer, straight, none = {0, 0, 0, 0};
    form_flow reduce = form_reduce_bytes(&f, GYRE_SIDE_Q);
    uint32_t count = 0;

    form_ring_bytes(&f, &inner, &outer, &straight);
    straight.sent += reduce.sent;
    straight.received += reduce.received;
    straight.outer_sent += reduce.outer_sent;
    straight.outer_received += reduce.outer_received;
    form_put(out, &count, "a2a", form_split_bytes(&f), none);
    form_put(out, &count, "gather", form_gather_bytes(&f, GYRE_SIDE_Q),
             form_gather_bytes(&f, GYRE_SIDE_KV));
    if (radix->flags & GYRE_RADIX_NESTED) {
        form_put(out, &count, "inner", inner, none);
        form_put(out, &count, "outer", outer, none);
    } else {
        form_put(out, &count, "ring", inner, outer);
    }
    form_put(out, &count, "reduce", straight,
             form_reduce_bytes(&f, GYRE_SIDE_KV));
    return count;
}

#endif
