/* SPDX-License-Identifier: Apache-2.0 */
/* What slots hold, from the first touch of a tenant to its eviction; which
 * cells there are to compute; and where received rows went. */
#include "plan/prove.h"

#include <string.h>

static const uint32_t NONE = GYRE_NO_VIEW;
static uint32_t gone_mark; /* its address stands for an evicted tenant */

bool gyre_prove_gone(const uint32_t *cells)
{
    return cells == &gone_mark;
}

/* ---- cells of the mask ----------------------------------------------------
 */

static uint64_t *new_need(gyre_prover *v, uint32_t side, uint32_t chunk)
{
    const gyre_problem *p = &v->plan->problem;
    uint32_t other = side == GYRE_SIDE_Q ? GYRE_SIDE_KV : GYRE_SIDE_Q;
    uint64_t *bits = gyre_alloc_zero(v->context, v->sets.words, sizeof(*bits));
    if (bits == NULL)
        return NULL;
    const gyre_chunk *mine = &p->chunks[side][chunk];
    for (uint32_t i = 0; i < p->chunk_count[other]; i++) {
        const gyre_chunk *there = &p->chunks[other][i];
        bool q = side == GYRE_SIDE_Q;
        if (v->shift != NULL ||
            gyre_mask_cells(v->plan->mask, p->batch, q ? mine : there,
                            q ? there : mine) != GYRE_CELL_EMPTY)
            bits[i / 64] |= UINT64_C(1) << i % 64;
    }
    return bits;
}

const uint64_t *gyre_prove_need(gyre_prover *v, uint32_t side, uint32_t chunk)
{
    uint64_t **at = &v->need[side][chunk];
    if (*at == NULL && (*at = new_need(v, side, chunk)) == NULL)
        gyre_prove_no_memory(v);
    return *at;
}

uint32_t gyre_prove_head(const gyre_prover *v, uint32_t atom)
{
    uint32_t head = 0;
    while (head < v->plan->problem.heads && v->atom[head + 1] <= atom)
        head++;
    return head;
}

/* ---- the life of a slot ----------------------------------------------------
 */

static uint32_t slot_planes(const gyre_plan_slot *slot)
{
    return slot->kind == GYRE_VALUE_ST ? 2 : 1;
}

static size_t slot_cells(const gyre_prover *v, const gyre_plan_slot *slot)
{
    return (size_t)v->plan->rows[slot->rows].count *
           gyre_prove_atoms(v, slot->h0, slot->h1) * slot_planes(slot);
}

static bool be_born(gyre_prover *v, uint32_t rank, uint32_t s)
{
    const gyre_plan_slot *slot = &v->plan->programs[rank].slots[s];
    size_t count = slot_cells(v, slot);
    uint32_t *cells = gyre_alloc_zero(v->context, count + 1, sizeof(*cells));
    if (cells == NULL)
        return gyre_prove_no_memory(v);
    if (gyre_prove_given(v->plan->pass, slot))
        for (size_t i = 0; i < count; i += slot_planes(slot))
            cells[i] = GYRE_PIECE_GIVEN; /* of ST the LSE alone */
    v->rank[rank].cells[s] = cells;
    return true;
}

static void forget(gyre_prover *v, uint32_t rank, uint32_t s)
{
    const gyre_plan_slot *slot = &v->plan->programs[rank].slots[s];
    uint32_t *cells = v->rank[rank].cells[s];
    if (cells == NULL || cells == &gone_mark)
        return;
    size_t count = slot_cells(v, slot);
    if (gyre_value_is_sum(slot->kind))
        for (size_t i = 0; i < count; i++)
            gyre_set_drop(&v->sets, cells[i] & ~GYRE_CELL_UNREAD);
    gyre_free(v->context, cells, count + 1, sizeof(*cells));
    v->rank[rank].cells[s] = &gone_mark;
}

bool gyre_prove_leave(gyre_prover *v, uint32_t rank, uint32_t op, uint32_t s)
{
    const gyre_plan_slot *slot = &v->plan->programs[rank].slots[s];
    const uint32_t *cells = v->rank[rank].cells[s];
    if (cells == NULL || cells == &gone_mark || !gyre_value_is_sum(slot->kind))
        return true;
    uint32_t atoms = gyre_prove_atoms(v, slot->h0, slot->h1);
    const gyre_plan_rows *rows = &v->plan->rows[slot->rows];
    for (size_t i = 0; i < (size_t)rows->count * atoms; i++)
        if (cells[i] & GYRE_CELL_UNREAD) {
            uint32_t chunk = v->plan->row_chunks[rows->first + i / atoms];
            uint32_t head =
                gyre_prove_head(v, v->atom[slot->h0] + (uint32_t)(i % atoms));
            bool q = gyre_value_side(slot->kind) == GYRE_SIDE_Q;
            return gyre_prove_fail(v, rank, op, q ? chunk : NONE,
                                   q ? NONE : chunk, head,
                                   "what slot %u (%s) gathered is lost: nobody "
                                   "reads it",
                                   s, gyre_value_name(slot->kind));
        }
    return true;
}

static bool enter(gyre_prover *v, uint32_t rank, uint32_t op, uint32_t s)
{
    gyre_prove_rank *state = &v->rank[rank];
    uint32_t buf = v->plan->programs[rank].slots[s].buf;
    uint32_t before = state->tenant[buf];
    if (before == s)
        return true;
    if (state->cells[s] == &gone_mark)
        return gyre_prove_fail(v, rank, op, NONE, NONE, NONE,
                               "slot %u is touched after slot %u took its buf "
                               "%u",
                               s, before, buf);
    if (before != NONE) {
        if (!gyre_prove_leave(v, rank, op, before))
            return false;
        forget(v, rank, before);
    }
    state->tenant[buf] = s;
    return be_born(v, rank, s);
}

bool gyre_prove_open(gyre_prover *v, uint32_t rank, uint32_t op, uint32_t id,
                     gyre_prove_view *out)
{
    const gyre_plan *plan = v->plan;
    const gyre_plan_program *p = &plan->programs[rank];
    const gyre_plan_view *view = &p->views[id];
    const gyre_plan_slot *slot = &p->slots[view->slot];
    if (!enter(v, rank, op, view->slot))
        return false;
    *out = (gyre_prove_view){
        .view = view,
        .slot = slot,
        .rows = plan->row_chunks + plan->rows[view->rows].first,
        .all = plan->row_chunks + plan->rows[slot->rows].first,
        .count = plan->rows[view->rows].count,
        .all_count = plan->rows[slot->rows].count,
        .cells = v->rank[rank].cells[view->slot],
        .slot_atoms = gyre_prove_atoms(v, slot->h0, slot->h1),
        .first_atom = gyre_prove_atoms(v, slot->h0, view->h0),
        .atoms = gyre_prove_atoms(v, view->h0, view->h1),
        .planes = slot_planes(slot),
    };
    return true;
}

uint32_t *gyre_prove_row(const gyre_prove_view *view, uint32_t i,
                         uint32_t *from)
{
    uint32_t at = i;
    if (view->count != view->all_count) {
        uint32_t end = view->all_count;
        at = *from;
        while (at < end) {
            uint32_t middle = at + (end - at) / 2;
            if (view->all[middle] < view->rows[i])
                at = middle + 1;
            else
                end = middle;
        }
        *from = at;
    }
    return view->cells +
           ((size_t)at * view->slot_atoms + view->first_atom) * view->planes;
}

bool gyre_prove_states_make(gyre_prover *v)
{
    for (uint32_t r = 0; r < v->ranks; r++) {
        const gyre_plan_program *p = &v->plan->programs[r];
        gyre_prove_rank *state = &v->rank[r];
        state->cells = gyre_alloc_zero(v->context, (size_t)p->slot_count + 1,
                                       sizeof(*state->cells));
        state->depth =
            gyre_alloc_zero(v->context, (size_t)p->slot_count + 1, 1);
        state->tenant = gyre_alloc(v->context, (size_t)p->buf_count + 1,
                                   sizeof(*state->tenant));
        if (state->cells == NULL || state->depth == NULL ||
            state->tenant == NULL)
            return gyre_prove_no_memory(v);
        for (uint32_t b = 0; b < p->buf_count; b++)
            state->tenant[b] = NONE;
    }
    return true;
}

void gyre_prove_states_free(gyre_prover *v)
{
    for (uint32_t r = 0; r < v->ranks && v->rank != NULL; r++) {
        const gyre_plan_program *p = &v->plan->programs[r];
        gyre_prove_rank *state = &v->rank[r];
        for (uint32_t s = 0; state->cells != NULL && s < p->slot_count; s++)
            forget(v, r, s);
        gyre_free(v->context, state->cells, (size_t)p->slot_count + 1,
                  sizeof(*state->cells));
        gyre_free(v->context, state->depth, (size_t)p->slot_count + 1, 1);
        gyre_free(v->context, state->tenant, (size_t)p->buf_count + 1,
                  sizeof(*state->tenant));
        state->cells = NULL;
        state->depth = NULL;
        state->tenant = NULL;
    }
}

/* ---- pieces ----------------------------------------------------------------
 */

uint32_t gyre_prove_pieces(gyre_prover *v, uint32_t count)
{
    uint64_t need = (uint64_t)v->piece_count + count + 2;
    if (need > v->piece_room) {
        uint64_t room = need + v->piece_room + 1024;
        uint8_t *grown = room < GYRE_CELL_UNREAD
                             ? gyre_grow(v->context, v->pieces, v->piece_room,
                                         (size_t)room, 1)
                             : NULL;
        if (grown == NULL) {
            gyre_prove_no_memory(v);
            return 0;
        }
        v->pieces = grown;
        v->piece_room = (uint32_t)room;
    }
    if (v->piece_count == 0)
        v->piece_count = GYRE_PIECE_GIVEN + 1;
    uint32_t first = v->piece_count;
    memset(v->pieces + first, 0, count);
    v->piece_count += count;
    return first;
}

bool gyre_prove_edge(gyre_prover *v, uint32_t piece, uint32_t from)
{
    if (v->edge_count == v->edge_room) {
        uint32_t room = v->edge_room ? v->edge_room * 2 : 1024;
        uint32_t *grown = room > v->edge_room
                              ? gyre_grow(v->context, v->edges, v->edge_room,
                                          room, 2 * sizeof(*grown))
                              : NULL;
        if (grown == NULL)
            return gyre_prove_no_memory(v);
        v->edges = grown;
        v->edge_room = room;
    }
    v->edges[2 * (size_t)v->edge_count] = piece;
    v->edges[2 * (size_t)v->edge_count++ + 1] = from;
    return true;
}

/* A piece is younger than what it was copied from, and so are its edges.  A
 * copy on the rank (marked) passes on that the rank itself has used it. */
void gyre_prove_trace_back(gyre_prover *v)
{
    for (uint32_t i = v->edge_count; i-- > 0;) {
        uint32_t piece = v->edges[2 * (size_t)i];
        uint8_t flags = v->pieces[piece & ~GYRE_CELL_UNREAD];
        if (!(piece & GYRE_CELL_UNREAD))
            flags &= (uint8_t)~GYRE_PIECE_USED;
        v->pieces[v->edges[2 * (size_t)i + 1]] |= flags;
    }
}
