/* SPDX-License-Identifier: Apache-2.0 */
/* Closed form of the bytes that one rank sends and receives, by phase. */
#ifndef GYRE_PLUGINS_SCHEDULES_FORM_BYTES_H
#define GYRE_PLUGINS_SCHEDULES_FORM_BYTES_H

#include "form_rows.h"

typedef struct form_flow {
    uint64_t sent, received;
} form_flow;

FORM_ form_flow form_split_bytes(const form *f)
{
    form_flow flow = {0, 0};
    int64_t count = f->digit[FORM_HEADS].count;
    int keep = (f->radix->flags & GYRE_RADIX_KEEP_SPLIT) != 0;
    uint64_t size = f->p->dtype_bytes;
    uint32_t here = (uint32_t)f->at[FORM_HEADS];
    uint64_t q = f->own[0], kv = f->own[1];

    for (int64_t i = 1; i < count; i++) {
        uint32_t heads[2];
        uint64_t there_q = 0, there_kv = 0, rank = 0;
        int64_t u = (here + i) % count;

        for (int d = 1; d < FORM_DIGITS; d++)
            rank += (uint64_t)f->at[d] * f->digit[d].stride;
        rank += (uint64_t)u * f->digit[FORM_HEADS].stride;
        there_q = f->p->rank_tokens[GYRE_SIDE_Q][rank];
        there_kv = f->p->rank_tokens[GYRE_SIDE_KV][rank];
        form_heads(f, u, heads);
        if (!f->backward) {
            uint64_t out = form_q(f, heads) * q + form_kv(f, heads) * kv;
            uint64_t in =
                form_q(f, f->heads) * there_q + form_kv(f, f->heads) * there_kv;
            flow.sent += (out + form_o(f, f->heads) * there_q) * size;
            flow.received += (in + form_o(f, heads) * q) * size;
            continue;
        }
        /* DO out, DQ and DKV* back; without what was kept also Q, KV, delta. */
        flow.sent +=
            (form_o(f, heads) * q + form_q(f, f->heads) * there_q) * size +
            form_kv(f, f->heads) * there_kv * f->p->wire_bytes;
        flow.received +=
            (form_o(f, f->heads) * there_q + form_q(f, heads) * q) * size +
            form_kv(f, heads) * kv * f->p->wire_bytes;
        if (keep)
            continue;
        flow.sent += (form_q(f, heads) * q + form_kv(f, heads) * kv) * size +
                     form_stat(f, heads) * q;
        flow.received +=
            (form_q(f, f->heads) * there_q + form_kv(f, f->heads) * there_kv) *
                size +
            form_stat(f, f->heads) * there_q;
    }
    return flow;
}

/* What is read is gathered, the sum is scattered; KV's has no sum forward. */
FORM_ form_flow form_gather_bytes(const form *f, uint32_t side)
{
    uint64_t row = form_read(f, side, f->heads);
    form_flow flow = {row * f->block[side] *
                          (f->digit[FORM_Q + side].count - 1),
                      row * (f->team[side] - f->block[side])};

    return flow;
}
FORM_ form_flow form_reduce_bytes(const form *f, uint32_t side)
{
    uint64_t row = form_sum(f, side, f->heads, f->p->wire_bytes);
    form_flow flow = {row * (f->team[side] - f->block[side]),
                      row * f->block[side] *
                          (f->digit[FORM_Q + side].count - 1)};

    if (side == GYRE_SIDE_KV && !f->backward)
        flow = (form_flow){0, 0};
    return flow;
}

/* Of all tokens that pass by: sum over one digit or both. */
FORM_ uint64_t form_window(const form *f, int64_t t)
{
    uint64_t tokens = 0;

    for (int64_t s = 0; s < f->digit[FORM_INNER].count; s++)
        tokens += form_held(f, t, s);
    return tokens;
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
    inner->sent = (all - lasts) * row;
    inner->received = (all - starts) * row;
    outer->sent = (starts - form_held(f, n - 1, 0)) * row;
    outer->received = (starts - form_held(f, 0, 0)) * row;
    *straight = (form_flow){0, 0};
    if (f->radix->flags & GYRE_RADIX_STRAIGHT) {
        straight->sent = (all - form_held(f, 0, 0)) * sum;
        straight->received = form_held(f, 0, 0) * sum * (uint64_t)(n * w - 1);
    } else if (published) {
        inner->sent += w > 1 ? all * sum : 0;
        inner->received += w > 1 ? all * sum : 0;
        outer->sent += n > 1 ? starts * sum : 0;
        outer->received += n > 1 ? starts * sum : 0;
    } else {
        inner->sent += (all - starts) * sum;
        inner->received += (all - befores) * sum;
        outer->sent += (starts - form_held(f, 0, 0)) * sum;
        outer->received += (starts - form_held(f, 1, 0)) * sum;
    }
}

FORM_ void form_put(gyre_phase_bytes *out, uint32_t *count, const char *phase,
                    form_flow one, form_flow two)
{
    gyre_phase_bytes bytes = {phase, one.sent + two.sent,
                              one.received + two.received};

    if (bytes.sent > 0 || bytes.received > 0)
        out[(*count)++] = bytes;
}

FORM_ uint32_t form_bytes(const gyre_problem *p, const gyre_radix *radix,
                          uint32_t pass, uint32_t rank, gyre_phase_bytes *out)
{
    form f = form_of(p, radix, pass, rank);
    form_flow inner, outer, straight, none = {0, 0};
    form_flow reduce = form_reduce_bytes(&f, GYRE_SIDE_Q);
    uint32_t count = 0;

    form_ring_bytes(&f, &inner, &outer, &straight);
    straight.sent += reduce.sent;
    straight.received += reduce.received;
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
