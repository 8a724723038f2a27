/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <math.h>
#include <string.h>

uint32_t machine_width(const machine *m, uint32_t kind)
{
    uint32_t dk = m->plan->problem.head_dim, dv = m->plan->problem.v_head_dim;
    switch (kind) {
    case GYRE_VALUE_Q:
    case GYRE_VALUE_DQ:
    case GYRE_VALUE_DQ_SUM:
        return dk;
    case GYRE_VALUE_O:
    case GYRE_VALUE_DO:
        return dv;
    case GYRE_VALUE_O_SUM:
        return dv + 1; /* LSE last */
    case GYRE_VALUE_ST:
        return 2;
    default:
        return dk + dv;
    }
}

void machine_slot_heads(const machine *m, const gyre_plan_slot *slot,
                        uint32_t *a, uint32_t *b)
{
    *a = slot->h0;
    *b = slot->h1;
    if (gyre_value_side(slot->kind) == GYRE_SIDE_KV)
        gyre_kv_heads(&m->plan->problem, slot->h0, slot->h1, a, b);
}

double *machine_element(const machine *m, uint32_t rank, uint32_t s,
                        uint64_t row, uint32_t head)
{
    const gyre_plan_slot *slot = &m->plan->programs[rank].slots[s];
    uint32_t a, b;
    machine_slot_heads(m, slot, &a, &b);
    return m->rank[rank].buf[slot->buf] +
           (row * (b - a) + head - a) * machine_width(m, slot->kind);
}

size_t machine_slot_size(const machine *m, const gyre_plan_slot *slot)
{
    uint32_t a, b;
    machine_slot_heads(m, slot, &a, &b);
    return m->plan->rows[slot->rows].tokens * (b - a) *
           machine_width(m, slot->kind);
}

uint64_t machine_position(const gyre_chunk *chunk, uint64_t i)
{
    return chunk->start + i * chunk->stride;
}

void machine_known(const machine *m, uint32_t kind, uint64_t t, uint32_t head,
                   double *out)
{
    const gyre_problem *p = &m->plan->problem;
    const reference *r = m->want;
    if (kind == GYRE_VALUE_O)
        memcpy(out, r->o + (head * p->tokens[0] + t) * p->v_head_dim,
               p->v_head_dim * sizeof(*out));
    else if (kind == GYRE_VALUE_ST)
        out[0] = r->lse[head * p->tokens[0] + t];
    else if (kind == GYRE_VALUE_DQ)
        memcpy(out, r->dq + (head * p->tokens[0] + t) * p->head_dim,
               p->head_dim * sizeof(*out));
    else if (kind == GYRE_VALUE_DKV) {
        memcpy(out, r->dk + (head * p->tokens[1] + t) * p->head_dim,
               p->head_dim * sizeof(*out));
        memcpy(out + p->head_dim,
               r->dv + (head * p->tokens[1] + t) * p->v_head_dim,
               p->v_head_dim * sizeof(*out));
    } else
        for (uint32_t d = 0; d < machine_width(m, kind); d++)
            out[d] = reference_input(kind, t, head, d);
}

bool machine_given(const machine *m, const gyre_plan_slot *slot)
{
    bool backward = m->plan->pass == GYRE_PASS_BACKWARD;
    bool in = slot->kind == GYRE_VALUE_Q || slot->kind == GYRE_VALUE_KV;
    if (slot->flags & GYRE_SLOT_EXTERNAL && (in || slot->kind == GYRE_VALUE_DO))
        return true;
    return backward && (slot->flags & GYRE_SLOT_SAVED) &&
           (in || slot->kind == GYRE_VALUE_O || slot->kind == GYRE_VALUE_ST);
}

void machine_enter(machine *m, uint32_t rank, uint32_t s)
{
    const gyre_plan_slot *slot = &m->plan->programs[rank].slots[s];
    uint32_t *tenant = &m->rank[rank].tenant[slot->buf];
    if (*tenant == s)
        return;
    *tenant = s;
    double *at = m->rank[rank].buf[slot->buf];
    size_t size = machine_slot_size(m, slot);
    for (size_t i = 0; i < size; i++)
        at[i] = gyre_value_is_sum(slot->kind) ? 0 : NAN;
    uint32_t w = machine_width(m, slot->kind);
    if (slot->kind == GYRE_VALUE_O_SUM)
        for (size_t i = w - 1; i < size; i += w)
            at[i] = m->want->mode == INTERPRET_COUNT ? 0 : -INFINITY;
    if (!machine_given(m, slot))
        return;
    const gyre_plan_rows *rows = &m->plan->rows[slot->rows];
    uint32_t a, b;
    machine_slot_heads(m, slot, &a, &b);
    uint64_t row = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        const gyre_chunk *chunk =
            &m->plan->problem
                 .chunks[rows->side][m->plan->row_chunks[rows->first + i]];
        for (uint64_t t = 0; t < chunk->length; t++, row++)
            for (uint32_t h = a; h < b; h++)
                machine_known(m, slot->kind, machine_position(chunk, t), h,
                              machine_element(m, rank, s, row, h));
    }
}

/* ---- rows of views ------------------------------------------------------ */

uint64_t machine_view_rows(machine *m, uint32_t rank, uint32_t id,
                           token_row *out)
{
    const gyre_plan *plan = m->plan;
    const gyre_plan_view *view = &plan->programs[rank].views[id];
    const gyre_plan_slot *slot = &plan->programs[rank].slots[view->slot];
    const gyre_plan_rows *all = &plan->rows[slot->rows];
    const gyre_plan_rows *some = &plan->rows[view->rows];
    uint64_t count = 0, row_in = 0;
    machine_enter(m, rank, view->slot);
    for (uint32_t i = 0, j = 0; i < all->count; i++) {
        uint32_t chunk_id = plan->row_chunks[all->first + i];
        const gyre_chunk *chunk = &plan->problem.chunks[all->side][chunk_id];
        if (j < some->count && plan->row_chunks[some->first + j] == chunk_id) {
            for (uint64_t t = 0; t < chunk->length; t++)
                out[count++] =
                    (token_row){row_in + t, machine_position(chunk, t)};
            j++;
        }
        row_in += chunk->length;
    }
    return count;
}

void machine_view_heads(const machine *m, uint32_t rank, uint32_t id,
                        uint32_t *a, uint32_t *b)
{
    const gyre_plan_view *v = &m->plan->programs[rank].views[id];
    const gyre_plan_slot *slot = &m->plan->programs[rank].slots[v->slot];
    *a = v->h0;
    *b = v->h1;
    if (gyre_value_side(slot->kind) == GYRE_SIDE_KV)
        gyre_kv_heads(&m->plan->problem, v->h0, v->h1, a, b);
}

uint32_t machine_slot_of(const machine *m, uint32_t rank, uint32_t id)
{
    return m->plan->programs[rank].views[id].slot;
}

uint32_t machine_kind_of(const machine *m, uint32_t rank, uint32_t id)
{
    return m->plan->programs[rank].slots[machine_slot_of(m, rank, id)].kind;
}
