/* SPDX-License-Identifier: Apache-2.0 */
/* The mixed radix: places and rows, and the order of the steps. */
#include "plan/radix.h"

#include <string.h>

/* ---- places ------------------------------------------------------------- */

uint32_t radix_rank(const radix_work *w, radix_place place)
{
    uint32_t rank = 0;

    for (int d = 0; d < DIGIT_COUNT; d++)
        rank += place.at[d] * w->digit[d].stride;
    return rank;
}

radix_part radix_heads(const radix_work *w, uint32_t digit)
{
    uint64_t heads = w->problem->heads, count = w->digit[DIGIT_HEADS].count;
    radix_part part = {(uint32_t)(heads * digit / count),
                       (uint32_t)(heads * (digit + 1) / count)};

    return part;
}

static uint32_t own_rows(radix_work *w, uint32_t side, radix_place place)
{
    return w->host->owned(w->builder, side, radix_rank(w, place));
}

/* Chunks of one rank, to *count of `list`; of NULL, their number alone. */
static void add_owned(const radix_work *w, uint32_t side, radix_place place,
                      uint32_t *list, uint32_t *count)
{
    const gyre_plan *plan = w->builder->plan;
    uint32_t rows = plan->owned[side][radix_rank(w, place)];

    if (list != NULL)
        memcpy(list + *count, gyre_plan_row_list(plan, rows),
               plan->rows[rows].count * sizeof(*list));
    *count += plan->rows[rows].count;
}

static void add_all(const radix_work *w, uint32_t side, radix_place place,
                    int digit, uint32_t first, uint32_t *list, uint32_t *count)
{
    uint32_t parts = digit == DIGIT_HEADS ? 1 : radix_count(w, DIGIT_HEADS);

    for (uint32_t i = first; i < radix_count(w, digit); i++) {
        radix_place at = radix_move(w, place, digit, i);

        for (uint32_t u = 0; u < parts; u++)
            add_owned(w, side, radix_move(w, at, DIGIT_HEADS, u), list, count);
    }
}

/* One list and one row set: joined rank by rank, every set on the way would be
 * kept, and a team of all ranks would cost the square of their number. */
uint32_t radix_union(radix_work *w, uint32_t side, radix_place place, int digit,
                     uint32_t first)
{
    gyre_context *context = w->builder->plan->context;
    uint32_t count = 0, used = 0;

    if (w->builder->status != GYRE_OK)
        return 0;
    add_all(w, side, place, digit, first, NULL, &count);
    uint32_t *list = gyre_alloc(context, (size_t)count + 1, sizeof(*list));

    if (list == NULL) {
        w->builder->status =
            gyre_fail(&w->builder->error, GYRE_NO_MEMORY,
                      "plan '%s', rank %u: no memory for %u chunks",
                      w->builder->plan->name, w->builder->rank, count);
        return 0;
    }
    add_all(w, side, place, digit, first, list, &used);
    uint32_t rows = w->host->rows(w->builder, side, list, count);

    gyre_free(context, list, (size_t)count + 1, sizeof(*list));
    return rows;
}

uint32_t radix_block(radix_work *w, uint32_t side, radix_place place)
{
    if (radix_count(w, DIGIT_HEADS) == 1)
        return own_rows(w, side, place);
    return radix_union(w, side, place, DIGIT_HEADS, 0);
}

uint32_t radix_team(radix_work *w, uint32_t side, radix_place place)
{
    int digit = side == GYRE_SIDE_Q ? DIGIT_Q_GATHER : DIGIT_KV_GATHER;

    if (radix_count(w, digit) == 1)
        return radix_block(w, side, place);
    return radix_union(w, side, place, digit, 0);
}

/* ---- slots and views ------------------------------------------------------
 */

uint32_t radix_slot(radix_work *w, uint32_t kind, uint32_t rows,
                    radix_part part, uint32_t dtype, uint32_t *buf,
                    uint32_t flags)
{
    gyre_plan_slot slot = {.kind = kind,
                           .rows = rows,
                           .h0 = part.h0,
                           .h1 = part.h1,
                           .dtype = dtype,
                           .buf = buf != NULL ? *buf : GYRE_NEW_BUF,
                           .flags = flags};
    uint32_t id = w->host->slot(w->builder, &slot);

    if (buf != NULL && id < w->builder->program.slot_count)
        *buf = w->builder->program.slots[id].buf;
    return id;
}

uint32_t radix_rows(radix_work *w, uint32_t slot, uint32_t rows,
                    radix_part part)
{
    uint32_t kind = slot < w->builder->program.slot_count
                        ? w->builder->program.slots[slot].kind
                        : GYRE_VALUE_Q;

    return w->host->view(w->builder, slot, rows, part.h0, part.h1,
                         gyre_value_planes(kind));
}

uint32_t radix_view(radix_work *w, uint32_t slot, radix_part part)
{
    uint32_t rows = slot < w->builder->program.slot_count
                        ? w->builder->program.slots[slot].rows
                        : 0;

    return radix_rows(w, slot, rows, part);
}

void radix_op2(radix_work *w, uint32_t code, uint32_t a, uint32_t b)
{
    uint32_t views[] = {a, b};

    w->host->op(w->builder, LANE_COMPUTE, code, views, 2);
}

uint32_t radix_inputs(const radix_work *w, uint32_t side, uint32_t kinds[3])
{
    if (side == GYRE_SIDE_KV) {
        kinds[0] = GYRE_VALUE_KV;
        return 1;
    }
    kinds[0] = GYRE_VALUE_Q;
    kinds[1] = GYRE_VALUE_DO;
    kinds[2] = GYRE_VALUE_ST;
    return w->backward ? 3 : 1;
}

uint32_t radix_sum_kind(const radix_work *w, uint32_t side)
{
    if (side == GYRE_SIDE_Q)
        return w->backward ? GYRE_VALUE_DQ_SUM : GYRE_VALUE_O_SUM;
    return w->backward ? GYRE_VALUE_DKV_SUM : GYRE_VALUE_COUNT;
}

/* ---- the whole ------------------------------------------------------------
 */

/* Each stride is the product of the counts of the digits with smaller ones. */
static bool strides_fit(const radix_work *w)
{
    uint64_t product = 1;

    for (int d = 0; d < DIGIT_COUNT; d++) {
        const gyre_radix_digit *digit = &w->digit[d];
        uint64_t below = 1;

        if (digit->count == 0)
            return false;
        product *= digit->count;
        if (product > w->problem->ranks)
            return false;
        if (digit->count == 1)
            continue;
        for (int e = 0; e < DIGIT_COUNT; e++)
            if (e != d && w->digit[e].count > 1 &&
                w->digit[e].stride <= digit->stride) {
                if (w->digit[e].stride == digit->stride)
                    return false;
                below *= w->digit[e].count;
            }
        if (digit->stride != below)
            return false;
    }
    return product == w->problem->ranks;
}

static bool read_radix(radix_work *w, const gyre_radix *radix)
{
    const gyre_radix_digit given[] = {radix->heads, radix->q_gather,
                                      radix->kv_gather, radix->outer,
                                      radix->inner};
    const char *fault = NULL;

    for (int d = 0; d < DIGIT_COUNT; d++)
        w->digit[d] = given[d];
    if (!strides_fit(w))
        fault = "radix: the counts of the digits must multiply to the number "
                "of ranks and each stride be the product of the counts below";
    else if (radix->heads.count > w->problem->heads)
        fault = "radix: more ranks on the digit of heads than heads";
    else if (radix->strides == 0 || radix->strides > w->problem->kv_heads)
        fault = "radix: strides must be from 1 to the number of KV heads";
    else if (radix->strides > 1 &&
             (uint64_t)radix->kv_gather.count * radix->q_gather.count !=
                 w->problem->ranks)
        fault = "radix: strides need gathers alone, without heads and rings";
    if (fault != NULL)
        w->host->refuse(w->builder, fault);
    return fault == NULL;
}

static void find_place(radix_work *w)
{
    for (int d = 0; d < DIGIT_COUNT; d++)
        w->here.at[d] =
            w->digit[d].count > 1
                ? w->builder->rank / w->digit[d].stride % w->digit[d].count
                : 0;
    w->all = (radix_part){0, w->problem->heads};
    w->mine = radix_heads(w, w->here.at[DIGIT_HEADS]);
    for (uint32_t side = 0; side < GYRE_SIDE_COUNT; side++) {
        w->own[side] = own_rows(w, side, w->here);
        w->block[side] = radix_block(w, side, w->here);
        w->team[side] = radix_team(w, side, w->here);
    }
}

/* Stride i of the KV heads, as query heads. */
static radix_part part_of(const radix_work *w, uint32_t i)
{
    uint64_t kv = w->problem->kv_heads, count = w->radix->strides;
    uint32_t shared = w->problem->heads / w->problem->kv_heads;

    if (count == 1)
        return w->mine;
    return (radix_part){(uint32_t)(kv * i / count) * shared,
                        (uint32_t)(kv * (i + 1) / count) * shared};
}

static uint32_t start_kv(radix_work *w, uint32_t i, uint32_t bufs[2])
{
    if (i >= w->radix->strides)
        return 0;
    if (radix_count(w, DIGIT_KV_GATHER) == 1)
        return w->held[GYRE_VALUE_KV];
    return radix_gather_kv(w, part_of(w, i), &bufs[i % 2]);
}

static void settle(radix_work *w, const radix_reduction *r)
{
    radix_reduce_add(w, r);
    radix_finish(w, r->side, r->part, r->sum);
}

/* All parts, each gathered while the one before is computed and its gradient
 * reduced while the one behind is. */
static void run_parts(radix_work *w)
{
    uint32_t gather[2] = {GYRE_NEW_BUF, GYRE_NEW_BUF};
    uint32_t sums[2] = {GYRE_NEW_BUF, GYRE_NEW_BUF};
    radix_reduction kv = {.digit = DIGIT_KV_GATHER,
                          .side = GYRE_SIDE_KV,
                          .send_buf = GYRE_NEW_BUF,
                          .first_buf = GYRE_NEW_BUF};
    radix_reduction q = kv;
    uint32_t now = start_kv(w, 0, gather);

    q.digit = DIGIT_Q_GATHER;
    q.side = GYRE_SIDE_Q;
    q.part = w->mine;
    w->sum[GYRE_SIDE_Q] = q.sum =
        radix_slot(w, radix_sum_kind(w, GYRE_SIDE_Q), w->team[GYRE_SIDE_Q],
                   w->mine, w->problem->sum_dtype, NULL, 0);
    for (uint32_t i = 0; i < w->radix->strides; i++) {
        uint32_t next = start_kv(w, i + 1, gather);
        radix_part part = part_of(w, i);

        if (w->backward)
            w->sum[GYRE_SIDE_KV] =
                radix_slot(w, GYRE_VALUE_DKV_SUM, w->team[GYRE_SIDE_KV], part,
                           w->problem->sum_dtype, &sums[i % 2], 0);
        radix_ring(w, part, now);
        now = next;
        if (!w->backward)
            continue;
        if (i > 0)
            settle(w, &kv);
        kv.part = part;
        kv.sum = w->sum[GYRE_SIDE_KV];
        radix_reduce_send(w, &kv);
    }
    radix_reduce_send(w, &q);
    if (w->backward)
        settle(w, &kv);
    settle(w, &q);
}

void gyre_plan_radix(gyre_builder *builder, const gyre_radix *given)
{
    gyre_radix radix = {.size = sizeof(radix)};
    radix_work w = {.builder = builder,
                    .host = &gyre_plan_host_table,
                    .problem = &builder->plan->problem,
                    .radix = &radix};

    if (builder->status != GYRE_OK)
        return;
    /* Of an earlier header: what it lacks is absent. */
    memcpy(&radix, given,
           given->size < sizeof(radix) ? given->size : sizeof(radix));
    w.backward = builder->plan->pass == GYRE_PASS_BACKWARD;
    w.cast = w.problem->wire_dtype != w.problem->sum_dtype;
    if (!read_radix(&w, &radix))
        return;
    find_place(&w);
    radix_open(&w);
    radix_gather_q(&w);
    run_parts(&w);
    radix_close(&w);
}
