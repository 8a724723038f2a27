/* SPDX-License-Identifier: Apache-2.0 */
/* Closed form of the memory of one rank. */
#ifndef GYRE_PLUGINS_SCHEDULES_FORM_MEMORY_H
#define GYRE_PLUGINS_SCHEDULES_FORM_MEMORY_H

#include "form_rows.h"

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

#endif
