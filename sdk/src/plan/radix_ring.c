/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mixed radix: rings.  At window t and step s this rank holds the block of
 * place (outer - t d, inner - s d), d = +-1; it passes it on by d.
 *
 *     window t   outer: what it began with goes on to the next window
 *     step s     inner: what it holds goes on; then compute
 *
 * The moving side's sum.  HOME: own contributions (s = 0) stay in the window's
 * sum; each other step has a fresh partial, the sum that came along is added to
 * it and it goes on, so that the transfer has the next step to hide behind.
 * The windows' sums travel outward in the same way: a ring of rings.
 * PUBLISHED: one chain through all steps.  STRAIGHT: partials go home at once.
 */
#include "plan/radix.h"

/* A sum under way: what came, and the bufs that its kind of hop uses. */
typedef struct hop {
    uint32_t lane;
    const char *phase;
    uint32_t send_buf, receive_buf;
    uint32_t came; /* slot, or GYRE_NO_VIEW */
} hop;

typedef struct ring {
    radix_work *w;
    radix_part part;
    uint32_t side; /* that moves */
    uint32_t windows, steps;
    int64_t d;
    const char *inner_phase, *outer_phase;
    uint32_t kinds[3], kind_count;
    uint32_t window[3], now[3]; /* slots: at the window's start, and at hand */
    uint32_t window_buf[3][2], step_buf[3][2];
    uint32_t sum_kind; /* that travels, or GYRE_VALUE_COUNT */
    uint32_t home_sum;
    uint32_t partial_buf[2], partial_count;
    uint32_t window_sum, before_sum, window_sum_buf[2];
    hop inner, outer;
} ring;

static radix_place place_of(const ring *r, int64_t window, int64_t step)
{
    radix_place place =
        radix_move(r->w, r->w->here, DIGIT_OUTER, -window * r->d);

    return radix_move(r->w, place, DIGIT_INNER, -step * r->d);
}

static uint32_t rows_at(const ring *r, radix_place place)
{
    return radix_team(r->w, r->side, place);
}

/* ---- what moves ------------------------------------------------------------
 */

/* One group: pass on `from`, receive the block of `place` into new slots. */
static void pass_on(ring *r, uint32_t lane, const char *phase, int digit,
                    uint32_t from[3], radix_place place, uint32_t bufs[3][2],
                    uint32_t turn, uint32_t to[3])
{
    radix_work *w = r->w;
    uint32_t rows = rows_at(r, place), slots[3] = {0};

    for (uint32_t k = 0; k < r->kind_count; k++)
        slots[k] =
            radix_slot(w, r->kinds[k], rows, r->part,
                       r->kinds[k] == GYRE_VALUE_ST ? w->problem->stat_dtype
                                                    : w->problem->dtype,
                       &bufs[k][turn % 2], 0);
    w->host->begin(w->builder, lane, phase, GYRE_PATTERN_NONE);
    for (uint32_t k = 0; k < r->kind_count; k++) {
        w->host->put(w->builder, radix_view(w, from[k], r->part),
                     radix_rank(w, radix_move(w, w->here, digit, r->d)), lane);
        w->host->get(w->builder, radix_view(w, slots[k], r->part),
                     radix_rank(w, radix_move(w, w->here, digit, -r->d)), lane);
    }
    w->host->end(w->builder);
    for (uint32_t k = 0; k < r->kind_count; k++)
        to[k] = slots[k];
}

/* ---- sums ------------------------------------------------------------------
 */

static uint32_t new_sum(ring *r, uint32_t rows, uint32_t dtype, uint32_t *buf)
{
    return radix_slot(r->w, r->sum_kind, rows, r->part, dtype, buf, 0);
}

static uint32_t new_partial(ring *r, radix_place place)
{
    /* A cast leaves the partial free at once. */
    uint32_t turn = r->w->cast ? 0 : r->partial_count++ % 2;

    return new_sum(r, rows_at(r, place), r->w->problem->sum_dtype,
                   &r->partial_buf[turn]);
}

/* Add what came by this hop, if anything, to a sum. */
static void add_came(ring *r, hop *h, uint32_t sum)
{
    if (h->came == GYRE_NO_VIEW)
        return;
    radix_op2(r->w, GYRE_OP_RED, radix_view(r->w, h->came, r->part),
              radix_view(r->w, sum, r->part));
    h->came = GYRE_NO_VIEW;
}

/* Send a sum; receive that of the block at `place`. */
static void send_sum(ring *r, hop *h, uint32_t sum, radix_place to,
                     radix_place from, radix_place place)
{
    radix_work *w = r->w;
    const gyre_plan_slot *slot = &w->builder->program.slots[sum];

    if (w->builder->status != GYRE_OK)
        return;
    if (slot->dtype != w->problem->wire_dtype) {
        uint32_t out =
            new_sum(r, slot->rows, w->problem->wire_dtype, &h->send_buf);
        radix_op2(w, GYRE_OP_CPY, radix_view(w, sum, r->part),
                  radix_view(w, out, r->part));
        sum = out;
    }
    uint32_t in =
        new_sum(r, rows_at(r, place), w->problem->wire_dtype, &h->receive_buf);
    w->host->begin(w->builder, h->lane, h->phase, GYRE_PATTERN_NONE);
    w->host->put(w->builder, radix_view(w, sum, r->part), radix_rank(w, to),
                 h->lane);
    w->host->get(w->builder, radix_view(w, in, r->part), radix_rank(w, from),
                 h->lane);
    w->host->end(w->builder);
    h->came = in;
}

/* One hop along a digit; `place`: whose sum the rank before sends. */
static void hop_sum(ring *r, hop *h, int digit, uint32_t sum, radix_place place)
{
    send_sum(r, h, sum, radix_move(r->w, r->w->here, digit, r->d),
             radix_move(r->w, r->w->here, digit, -r->d), place);
}

/* ---- the three ways of a sum ------------------------------------------------
 */

static uint32_t home_target(ring *r, uint32_t t, uint32_t s)
{
    if (s > 0)
        return new_partial(r, place_of(r, t, s));
    r->before_sum = r->window_sum;
    r->window_sum =
        t == 0 ? r->home_sum
               : new_sum(r, rows_at(r, place_of(r, t, 0)),
                         r->w->problem->sum_dtype, &r->window_sum_buf[t % 2]);
    return r->window_sum;
}

/* A window's sum is whole once the last inner hop has come. */
static void close_window(ring *r, uint32_t t, uint32_t sum)
{
    add_came(r, &r->inner, sum);
    if (t == 0)
        return;
    add_came(r, &r->outer, sum);
    hop_sum(r, &r->outer, DIGIT_OUTER, sum, place_of(r, (int64_t)t + 1, 0));
}

static void home_after(ring *r, uint32_t t, uint32_t s, uint32_t sum)
{
    if (s == 0 && t > 0)
        close_window(r, t - 1, r->before_sum);
    if (s == 0)
        return;
    add_came(r, &r->inner, sum);
    hop_sum(r, &r->inner, DIGIT_INNER, sum, place_of(r, t, (int64_t)s + 1));
}

static void home_end(ring *r)
{
    close_window(r, r->windows - 1, r->window_sum);
    add_came(r, &r->outer, r->home_sum);
}

static void published_after(ring *r, uint32_t t, uint32_t s, uint32_t sum)
{
    add_came(r, &r->inner, sum);
    add_came(r, &r->outer, sum);
    if (r->steps > 1) {
        hop_sum(r, &r->inner, DIGIT_INNER, sum, place_of(r, t, (int64_t)s + 1));
        sum = r->inner.came;
    }
    if (s + 1 < r->steps || r->windows == 1)
        return;
    r->inner.came = GYRE_NO_VIEW;
    hop_sum(r, &r->outer, DIGIT_OUTER, sum, place_of(r, (int64_t)t + 1, 0));
}

static void straight_after(ring *r, uint32_t t, uint32_t s, uint32_t sum)
{
    if (t == 0 && s == 0)
        return;
    add_came(r, &r->inner, r->home_sum);
    send_sum(r, &r->inner, sum, place_of(r, t, s),
             place_of(r, -(int64_t)t, -(int64_t)s), r->w->here);
}

static uint32_t target(ring *r, uint32_t t, uint32_t s)
{
    uint32_t flags = r->w->radix->flags;
    bool first = t == 0 && s == 0;

    if (r->sum_kind == GYRE_VALUE_COUNT)
        return GYRE_NO_VIEW;
    if (flags & GYRE_RADIX_STRAIGHT)
        return first ? r->home_sum : new_partial(r, place_of(r, t, s));
    if (flags & GYRE_RADIX_PUBLISHED)
        return r->windows == 1 && r->steps == 1
                   ? r->home_sum
                   : new_partial(r, place_of(r, t, s));
    return home_target(r, t, s);
}

static void after(ring *r, uint32_t t, uint32_t s, uint32_t sum)
{
    uint32_t flags = r->w->radix->flags;

    if (r->sum_kind == GYRE_VALUE_COUNT)
        return;
    if (flags & GYRE_RADIX_STRAIGHT)
        straight_after(r, t, s, sum);
    else if (!(flags & GYRE_RADIX_PUBLISHED))
        home_after(r, t, s, sum);
    else if (r->windows > 1 || r->steps > 1)
        published_after(r, t, s, sum);
}

static void finish(ring *r)
{
    uint32_t flags = r->w->radix->flags;

    if (r->sum_kind == GYRE_VALUE_COUNT)
        return;
    if (!(flags & (GYRE_RADIX_STRAIGHT | GYRE_RADIX_PUBLISHED))) {
        home_end(r);
        return;
    }
    add_came(r, &r->inner, r->home_sum);
    add_came(r, &r->outer, r->home_sum);
}

/* ---- compute
 * ----------------------------------------------------------------- */

/* `sum`: slot of the moving side's sum. */
static void compute(ring *r, uint32_t kv, uint32_t sum)
{
    radix_work *w = r->w;
    bool moves_q = r->side == GYRE_SIDE_Q;
    uint32_t in[4], q_sum = w->sum[GYRE_SIDE_Q], kv_sum = w->sum[GYRE_SIDE_KV];
    uint32_t kinds[3], count = radix_inputs(w, GYRE_SIDE_Q, kinds);

    for (uint32_t k = 0; k < count; k++)
        in[k] = radix_view(w, moves_q ? r->now[k] : w->held[kinds[k]], r->part);
    in[count] = radix_view(w, moves_q ? kv : r->now[0], r->part);
    if (moves_q)
        q_sum = sum;
    else
        kv_sum = sum;
    if (w->backward) {
        uint32_t views[] = {in[0],
                            in[1],
                            in[2],
                            in[3],
                            radix_view(w, q_sum, r->part),
                            radix_view(w, kv_sum, r->part)};
        w->host->op(w->builder, LANE_COMPUTE, GYRE_OP_GRD, views, 6);
    } else {
        uint32_t views[] = {in[0], in[1], radix_view(w, q_sum, r->part)};
        w->host->op(w->builder, LANE_COMPUTE, GYRE_OP_ATT, views, 3);
    }
}

static ring start(radix_work *w, radix_part part, uint32_t kv)
{
    uint32_t flags = w->radix->flags;
    bool nested = (flags & GYRE_RADIX_NESTED) != 0;
    bool straight = (flags & GYRE_RADIX_STRAIGHT) != 0;
    ring r = {.w = w,
              .part = part,
              .side = flags & GYRE_RADIX_MOVE_Q ? GYRE_SIDE_Q : GYRE_SIDE_KV,
              .windows = radix_count(w, DIGIT_OUTER),
              .steps = radix_count(w, DIGIT_INNER),
              .d = flags & GYRE_RADIX_DESCENDING ? -1 : 1,
              .inner_phase = nested ? "inner" : "ring",
              .outer_phase = nested ? "outer" : "ring"};
    hop none = {.send_buf = GYRE_NEW_BUF,
                .receive_buf = GYRE_NEW_BUF,
                .came = GYRE_NO_VIEW};

    r.kind_count = radix_inputs(w, r.side, r.kinds);
    for (uint32_t k = 0; k < 3; k++)
        for (int i = 0; i < 2; i++)
            r.window_buf[k][i] = r.step_buf[k][i] = GYRE_NEW_BUF;
    for (uint32_t k = 0; k < r.kind_count; k++)
        r.window[k] = r.side == GYRE_SIDE_Q ? w->held[r.kinds[k]] : kv;
    for (int i = 0; i < 2; i++)
        r.partial_buf[i] = r.window_sum_buf[i] = GYRE_NEW_BUF;
    r.sum_kind = radix_sum_kind(w, r.side);
    r.home_sum = w->sum[r.side];
    r.inner = r.outer = none;
    r.inner.lane = LANE_INNER_SUM;
    r.inner.phase = straight ? "reduce" : r.inner_phase;
    r.outer.lane = LANE_OUTER_SUM;
    r.outer.phase = r.outer_phase;
    return r;
}

void radix_ring(radix_work *w, radix_part part, uint32_t kv)
{
    ring r = start(w, part, kv);

    for (uint32_t t = 0; t < r.windows && w->builder->status == GYRE_OK; t++) {
        uint32_t following[3] = {0};

        for (int k = 0; k < 3; k++)
            r.now[k] = r.window[k];
        if (t + 1 < r.windows)
            pass_on(&r, LANE_OUTER, r.outer_phase, DIGIT_OUTER, r.window,
                    place_of(&r, (int64_t)t + 1, 0), r.window_buf, t,
                    following);
        for (uint32_t s = 0; s < r.steps; s++) {
            uint32_t next[3] = {0}, sum;

            if (s + 1 < r.steps)
                pass_on(&r, LANE_INNER, r.inner_phase, DIGIT_INNER, r.now,
                        place_of(&r, t, (int64_t)s + 1), r.step_buf, s, next);
            sum = target(&r, t, s);
            compute(&r, kv, sum);
            after(&r, t, s, sum);
            for (int k = 0; k < 3; k++)
                r.now[k] = next[k];
        }
        for (int k = 0; k < 3; k++)
            r.window[k] = following[k];
    }
    finish(&r);
}
