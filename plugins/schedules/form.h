/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closed forms of the mixed radix: bytes by phase and memory of one rank, and
 * the grid.  Written from the description in gyre/plugin.h, not from the
 * emitter, so that the two can be held against each other.
 *
 *     form_of(problem, radix, pass, rank) --> form_bytes, form_memory
 *
 * Sums run over the tokens that each rank really has: uneven lengths and uneven
 * heads come out to the byte.
 */
#ifndef GYRE_PLUGINS_SCHEDULES_FORM_H
#define GYRE_PLUGINS_SCHEDULES_FORM_H

#include <gyre/plugin.h>
#include <stdarg.h>
#include <stdio.h>

/* Not inlined by force: each of these would hold all of them. */
#define FORM_ __attribute__((unused)) static

enum { FORM_HEADS, FORM_Q, FORM_KV, FORM_OUTER, FORM_INNER, FORM_DIGITS };

typedef struct form {
    const gyre_problem *p;
    const gyre_radix *radix;
    gyre_radix_digit digit[FORM_DIGITS];
    int64_t at[FORM_DIGITS];
    int backward, cast;
    uint32_t side;     /* that moves in the ring */
    uint64_t own[2];   /* tokens by side: of this rank, */
    uint64_t block[2]; /* with its head ranks, */
    uint64_t team[2];  /* of all that it gathers */
    uint32_t heads[2]; /* that this rank computes: first, end */
} form;

/* ---- tokens and rows ------------------------------------------------------
 */

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

/* ---- a rank -----------------------------------------------------------------
 */

FORM_ form form_of(const gyre_problem *p, const gyre_radix *radix,
                   uint32_t pass, uint32_t rank)
{
    form f = {.p = p,
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

/* ---- bytes
 * -------------------------------------------------------------------- */

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

/* ---- memory
 * --------------------------------------------------------------------- */

/* Slots at home and by heads. */
FORM_ uint64_t form_home_memory(const form *f)
{
    const uint32_t all[2] = {0, f->p->heads};
    int64_t count = f->digit[FORM_HEADS].count;
    int keep = count > 1 && (f->radix->flags & GYRE_RADIX_KEEP_SPLIT) != 0;
    uint64_t size = f->p->dtype_bytes;
    uint64_t q = form_q(f, all) * f->own[0], o = form_o(f, all) * f->own[0];
    uint64_t kv = form_kv(f, all) * f->own[1];
    uint64_t split_q = form_q(f, f->heads) * f->block[0];
    uint64_t split_o = form_o(f, f->heads) * f->block[0];
    uint64_t split_kv = form_kv(f, f->heads) * f->block[1];
    uint64_t bytes = 2 * form_stat(f, f->heads) * f->block[0];

    if (!f->backward) {
        bytes += (q + kv + o) * size;
        if (count > 1)
            bytes += (split_q + split_kv + split_o) * size;
        return bytes;
    }
    bytes += (o + q + kv) * size; /* DO, DQ, DKV */
    if (!keep)
        bytes += (q + kv + o) * size;
    if (count == 1)
        return bytes;
    /* Q, KV, DO, DQ; the O that was kept, or home's delta. */
    bytes += (2 * split_q + split_kv + split_o) * size;
    bytes += keep ? split_o * size : 2 * form_stat(f, all) * f->own[0];
    /* DKV*: at home, to be sent, arrived. */
    bytes += kv * f->p->sum_bytes;
    if (f->cast)
        bytes +=
            form_kv(f, f->heads) * (f->block[1] - f->own[1]) * f->p->wire_bytes;
    for (int64_t i = 1; i < count; i++) {
        uint32_t heads[2];

        form_heads(f, f->at[FORM_HEADS] + i, heads);
        bytes += form_kv(f, heads) * f->own[1] * f->p->wire_bytes;
    }
    return bytes;
}

/* Heads of stride i. */
FORM_ void form_stride(const form *f, uint64_t i, uint32_t heads[2])
{
    uint64_t kv = f->p->kv_heads, count = f->radix->strides;
    uint32_t shared = f->p->heads / f->p->kv_heads;

    heads[0] = f->heads[0];
    heads[1] = f->heads[1];
    if (count == 1)
        return;
    heads[0] = (uint32_t)(kv * i / count) * shared;
    heads[1] = (uint32_t)(kv * (i + 1) / count) * shared;
}

/* Gathered rows, the sums of the team, and the bufs that reduce them. */
FORM_ uint64_t form_team_memory(const form *f, uint32_t side)
{
    uint64_t peers = f->digit[FORM_Q + side].count - 1;
    uint64_t most[2] = {0, 0}, sums[2] = {0, 0}, send = 0, receive = 0;
    int has_sum = side == GYRE_SIDE_Q || f->backward;
    uint64_t strides = side == GYRE_SIDE_KV ? f->radix->strides : 1;

    for (uint64_t i = 0; i < strides; i++) {
        uint32_t heads[2];
        uint64_t wire;

        form_stride(f, i, heads);
        if (side == GYRE_SIDE_Q) {
            heads[0] = f->heads[0];
            heads[1] = f->heads[1];
        }
        wire = form_sum(f, side, heads, f->p->wire_bytes);
        if (peers > 0)
            most[i % 2] = form_most(most[i % 2],
                                    form_read(f, side, heads) * f->team[side]);
        if (!has_sum)
            continue;
        sums[i % 2] =
            form_most(sums[i % 2], form_sum(f, side, heads, f->p->sum_bytes) *
                                       f->team[side]);
        if (f->cast && peers > 0)
            send = form_most(send, wire * (f->team[side] - f->block[side]));
        receive = form_most(receive, wire * f->block[side] * peers);
    }
    return most[0] + most[1] + sums[0] + sums[1] + send + receive;
}

/* Two bufs in turn for what moves, each as large as its largest block. */
FORM_ uint64_t form_move_memory(const form *f)
{
    int64_t n = f->digit[FORM_OUTER].count, w = f->digit[FORM_INNER].count;
    uint64_t window[2] = {0, 0}, step[2] = {0, 0};

    for (int64_t t = 0; t < n; t++) {
        if (t > 0)
            window[t % 2] = form_most(window[t % 2], form_held(f, t, 0));
        for (int64_t s = 1; s < w; s++)
            step[s % 2] = form_most(step[s % 2], form_held(f, t, s));
    }
    return (window[0] + window[1] + step[0] + step[1]) *
           form_read(f, f->side, f->heads);
}

/* Bufs of sums under way, in tokens: partials and windows' sums (wide, in the
 * dtype of sums) and those sent and received (narrow, of the wire). */
typedef struct form_sums {
    uint64_t partial[2], window[2];
    uint64_t send[2], receive[2]; /* inner or straight, outer */
    uint64_t turn;
} form_sums;

FORM_ void form_partial(const form *f, form_sums *m, uint64_t tokens)
{
    uint64_t *buf = &m->partial[f->cast ? 0 : m->turn++ % 2];

    *buf = form_most(*buf, tokens);
}

FORM_ void form_hop(form_sums *m, int outer, uint64_t sent, uint64_t received)
{
    m->send[outer] = form_most(m->send[outer], sent);
    m->receive[outer] = form_most(m->receive[outer], received);
}

FORM_ void form_home_sums(const form *f, form_sums *m, int64_t t, int64_t s)
{
    uint64_t tokens = form_held(f, t, s);

    if (s > 0) {
        form_partial(f, m, tokens);
        form_hop(m, 0, tokens, form_held(f, t, s + 1));
    } else if (t > 0) {
        m->window[t % 2] = form_most(m->window[t % 2], tokens);
        form_hop(m, 1, tokens, form_held(f, t + 1, 0));
    }
}

FORM_ void form_published_sums(const form *f, form_sums *m, int64_t t,
                               int64_t s)
{
    int64_t n = f->digit[FORM_OUTER].count, w = f->digit[FORM_INNER].count;
    uint64_t tokens = form_held(f, t, s);

    form_partial(f, m, tokens);
    if (w > 1)
        form_hop(m, 0, tokens, form_held(f, t, s + 1));
    /* A sum that came in the wire's dtype goes on as it is. */
    if (s + 1 == w && n > 1)
        form_hop(m, 1, w > 1 ? 0 : tokens, form_held(f, t + 1, 0));
}

FORM_ uint64_t form_sum_memory(const form *f)
{
    int64_t n = f->digit[FORM_OUTER].count, w = f->digit[FORM_INNER].count;
    uint64_t wide = form_sum(f, f->side, f->heads, f->p->sum_bytes);
    uint64_t narrow = form_sum(f, f->side, f->heads, f->p->wire_bytes);
    form_sums m = {{0, 0}, {0, 0}, {0, 0}, {0, 0}, 0};

    if (n * w == 1 || !form_travels(f))
        return 0;
    for (int64_t t = 0; t < n; t++)
        for (int64_t s = 0; s < w; s++) {
            if (!(f->radix->flags & GYRE_RADIX_STRAIGHT)) {
                if (f->radix->flags & GYRE_RADIX_PUBLISHED)
                    form_published_sums(f, &m, t, s);
                else
                    form_home_sums(f, &m, t, s);
            } else if (t > 0 || s > 0) {
                form_partial(f, &m, form_held(f, t, s));
                form_hop(&m, 0, form_held(f, t, s), form_held(f, 0, 0));
            }
        }
    if (!f->cast)
        m.send[0] = m.send[1] = 0;
    return wide * (m.partial[0] + m.partial[1] + m.window[0] + m.window[1]) +
           narrow * (m.send[0] + m.send[1] + m.receive[0] + m.receive[1]);
}

FORM_ uint64_t form_memory(const gyre_problem *p, const gyre_radix *radix,
                           uint32_t pass, uint32_t rank)
{
    form f = form_of(p, radix, pass, rank);

    return form_home_memory(&f) + form_team_memory(&f, GYRE_SIDE_Q) +
           form_team_memory(&f, GYRE_SIDE_KV) + form_move_memory(&f) +
           form_sum_memory(&f);
}

/* ---- a schedule that is a radix
 * ------------------------------------------------- */

/*
 * Needs `static gyre_radix radix_of(const gy_values *, const gyre_problem *,
 * uint32_t pass)` and `static int check(const double *, const gyre_problem *,
 * char *, size_t)`.
 */
#define FORM_SCHEDULE(id, name, summary)                                       \
    static void form_grid_(const double *values, const gyre_problem *p,        \
                           uint32_t rank, gyre_grid *out)                      \
    {                                                                          \
        gyre_radix radix = radix_of(GY_VALUES_(values), p, GYRE_PASS_FORWARD); \
                                                                               \
        form_grid(p, &radix, rank, out);                                       \
    }                                                                          \
    static void form_emit_(const double *values, uint32_t pass, uint32_t rank, \
                           const gyre_plan_host *host, gyre_builder *builder)  \
    {                                                                          \
        gyre_radix radix =                                                     \
            radix_of(GY_VALUES_(values), host->problem(builder), pass);        \
                                                                               \
        (void)rank;                                                            \
        host->radix(builder, &radix);                                          \
    }                                                                          \
    static uint32_t form_bytes_(const double *values, const gyre_problem *p,   \
                                uint32_t pass, uint32_t rank,                  \
                                gyre_phase_bytes *out)                         \
    {                                                                          \
        gyre_radix radix = radix_of(GY_VALUES_(values), p, pass);              \
                                                                               \
        return form_bytes(p, &radix, pass, rank, out);                         \
    }                                                                          \
    static uint64_t form_memory_(const double *values, const gyre_problem *p,  \
                                 uint32_t pass, uint32_t rank)                 \
    {                                                                          \
        gyre_radix radix = radix_of(GY_VALUES_(values), p, pass);              \
                                                                               \
        return form_memory(p, &radix, pass, rank);                             \
    }                                                                          \
    static const gyre_schedule form_schedule_ = {                              \
        sizeof(gyre_schedule), check,       form_grid_, form_emit_,            \
        form_bytes_,           form_memory_};                                  \
    GYRE_SCHEDULE(id, name, "1.0.0", summary, "Apache-2.0",                    \
                  GYRE_CLAIM_DETERMINISTIC, &form_schedule_)                   \
    GYRE_MODULE(id, &gyre_plugin_##id)

/* ---- saying what is wrong
 * ---------------------------------------------------- */

/* A sentence of check; returns 1. */
__attribute__((format(printf, 3, 4), unused)) static int
form_say(char *text, size_t size, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, size, format, arguments);
    va_end(arguments);
    return 1;
}

/* "1, 2 or 4": the numbers up to `most` whose power (1 or 2) divides n. */
__attribute__((unused)) static const char *
form_divisors(uint32_t n, uint32_t most, int power, char list[160])
{
    size_t at = 0, last = 0;

    list[0] = '\0';
    for (uint64_t d = 1; d <= n && d <= most && at < 120; d++) {
        if (n % (power == 2 ? d * d : d) != 0)
            continue;
        last = at;
        at += (size_t)snprintf(list + at, 160 - at, "%s%llu",
                               at > 0 ? ", " : "", (unsigned long long)d);
    }
    if (last > 0) {
        char word[24];

        snprintf(word, sizeof(word), "%s", list + last + 2);
        snprintf(list + last, 160 - last, " or %s", word);
    }
    return list;
}

/* The largest divisor of n up to `most`. */
FORM_ uint32_t form_divisor(uint32_t n, uint32_t most)
{
    while (most > 1 && n % most != 0)
        most--;
    return most > 0 ? most : 1;
}

/* "kv|q|burst" of what rings pass on. */
FORM_ int form_moves_q(uint32_t travels, uint32_t pass)
{
    return travels == 1 || (travels == 2 && pass == GYRE_PASS_BACKWARD);
}

FORM_ gyre_radix_digit form_digit(uint32_t count, uint32_t stride)
{
    gyre_radix_digit digit = {count, count > 1 ? stride : 1};

    return digit;
}

/* One ring of all ranks; the others change what differs. */
FORM_ gyre_radix form_one_ring(const gyre_problem *p)
{
    gyre_radix_digit none = {1, 1};
    gyre_radix radix = {sizeof(radix), none,          none, none,
                        none,          {p->ranks, 1}, 0,    1};

    return radix;
}

#endif
