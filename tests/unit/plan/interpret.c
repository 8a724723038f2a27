/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = GYRE_PLAN_LANES };

static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(*seed >> 4) * below) >> 28);
}

/* ---- events ------------------------------------------------------------- */

static void post(machine *m, uint32_t rank, uint32_t unit, uint32_t o)
{
    const gyre_plan_op *op = &m->plan->programs[rank].ops[o];
    bool is_put = op->code == GYRE_OP_PUT;
    uint32_t src = is_put ? rank : op->view[1];
    uint32_t dst = is_put ? op->view[1] : rank;
    for (uint32_t i = 0; i < m->message_count; i++) {
        message *at = &m->messages[i];
        if (at->src != src || at->dst != dst || at->channel != op->channel ||
            (is_put ? at->put : at->get) != GYRE_NO_VIEW)
            continue;
        *(is_put ? &at->put : &at->get) = o;
        *(is_put ? &at->put_unit : &at->get_unit) = unit;
        return;
    }
    m->messages[m->message_count++] = (message){src,
                                                dst,
                                                op->channel,
                                                is_put ? o : GYRE_NO_VIEW,
                                                is_put ? GYRE_NO_VIEW : o,
                                                unit,
                                                unit,
                                                false};
}

static bool can_start(const machine *m, uint32_t rank, uint32_t unit)
{
    const rank_state *r = &m->rank[rank];
    const gyre_plan_program *p = &m->plan->programs[rank];
    if (r->phase[unit] != 0)
        return false;
    for (uint32_t u = unit; u-- > 0;)
        if (p->units[u].lane == p->units[unit].lane) {
            if (r->phase[u] != 2)
                return false;
            break;
        }
    for (uint32_t d = r->order.first[unit]; d < r->order.first[unit + 1]; d++)
        if (r->phase[r->order.deps[d]] != 2)
            return false;
    return true;
}

/* One event of this rank, from a random unit on; false when there is none. */
static bool step(machine *m, uint32_t rank)
{
    rank_state *r = &m->rank[rank];
    const gyre_plan_program *p = &m->plan->programs[rank];
    /* Only a lane's first unit can do anything. */
    uint32_t heads[LANES], count = 0, seen = 0;
    for (uint32_t u = 0; u < p->unit_count; u++)
        if (r->phase[u] != 2 && !(seen >> p->units[u].lane & 1)) {
            seen |= 1u << p->units[u].lane;
            heads[count++] = u;
        }
    uint32_t turn = count ? draw(m->seed, count) : 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t u = heads[(turn + i) % count];
        const gyre_plan_unit *unit = &p->units[u];
        if (r->phase[u] == 0 && can_start(m, rank, u)) {
            r->phase[u] = 1;
            if (unit->group == GYRE_NO_VIEW)
                return true;
            r->left[u] = unit->count;
            for (uint32_t k = 0; k < unit->count; k++)
                post(m, rank, u, unit->first + k);
            return true;
        }
        if (r->phase[u] == 1 &&
            (unit->group == GYRE_NO_VIEW || r->left[u] == 0)) {
            if (unit->group == GYRE_NO_VIEW)
                machine_compute(m, rank, unit->first);
            r->phase[u] = 2;
            r->ended++;
            return true;
        }
    }
    return false;
}

static bool deliver(machine *m)
{
    uint32_t from = m->message_count ? draw(m->seed, m->message_count) : 0;
    for (uint32_t i = 0; i < m->message_count; i++) {
        message *at = &m->messages[(from + i) % m->message_count];
        if (at->done || at->put == GYRE_NO_VIEW || at->get == GYRE_NO_VIEW)
            continue;
        uint32_t a = m->plan->programs[at->src].ops[at->put].view[0];
        uint32_t b = m->plan->programs[at->dst].ops[at->get].view[0];
        if (machine_kind_of(m, at->src, a) != machine_kind_of(m, at->dst, b)) {
            m->failed = "what meets is of different kind";
            return false;
        }
        machine_copy(m, at->src, a, at->dst, b);
        at->done = true;
        m->rank[at->src].left[at->put_unit]--;
        m->rank[at->dst].left[at->get_unit]--;
        return true;
    }
    return false;
}

/* ---- the end ------------------------------------------------------------ */

static bool compare_slot(machine *m, uint32_t rank, uint32_t s, char *text)
{
    const gyre_plan *plan = m->plan;
    const gyre_plan_slot *slot = &plan->programs[rank].slots[s];
    const gyre_plan_rows *rows = &plan->rows[slot->rows];
    uint32_t a, b,
        w = slot->kind == GYRE_VALUE_ST ? 1 : machine_width(m, slot->kind);
    machine_slot_heads(m, slot, &a, &b);
    machine_enter(m, rank, s);
    if (slot->kind == GYRE_VALUE_ST && m->want->mode == INTERPRET_COUNT)
        return true;
    uint64_t row = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        const gyre_chunk *chunk =
            &plan->problem
                 .chunks[rows->side][plan->row_chunks[rows->first + i]];
        for (uint64_t t = 0; t < chunk->length; t++, row++)
            for (uint32_t h = a; h < b; h++) {
                double want[2 * MOST_DIM];
                const double *got = machine_element(m, rank, s, row, h);
                machine_known(m, slot->kind, machine_position(chunk, t), h,
                              want);
                for (uint32_t d = 0; d < w; d++)
                    if (!(fabs(got[d] - want[d]) <= 1e-11) &&
                        got[d] != want[d]) {
                        snprintf(text, 256,
                                 "rank %u, %s of position %u, head %u: %g, "
                                 "not %g",
                                 rank, gyre_value_name(slot->kind),
                                 (unsigned)machine_position(chunk, t), h,
                                 got[d], want[d]);
                        return false;
                    }
            }
    }
    return true;
}

static bool compare(machine *m, uint32_t rank, char *text)
{
    const gyre_plan_program *p = &m->plan->programs[rank];
    bool backward = m->plan->pass == GYRE_PASS_BACKWARD;
    uint32_t seen = 0;
    for (uint32_t s = 0; s < p->slot_count; s++) {
        const gyre_plan_slot *slot = &p->slots[s];
        bool output = slot->flags != 0 && !machine_given(m, slot);
        if (output && !compare_slot(m, rank, s, text))
            return false;
        if (output && slot->flags & GYRE_SLOT_EXTERNAL)
            seen |= 1u << slot->kind;
    }
    uint32_t need = backward ? 1u << GYRE_VALUE_DQ | 1u << GYRE_VALUE_DKV
                             : 1u << GYRE_VALUE_O;
    if ((seen & need) == need)
        return true;
    snprintf(text, 256, "rank %u lacks an output", rank);
    return false;
}

static void prepare(machine *m)
{
    uint32_t transfers = 0;
    for (uint32_t r = 0; r < m->plan->problem.ranks; r++) {
        const gyre_plan_program *p = &m->plan->programs[r];
        rank_state *at = &m->rank[r];
        at->buf = calloc(p->buf_count + 1, sizeof(*at->buf));
        at->tenant = malloc((p->buf_count + 1) * sizeof(*at->tenant));
        at->phase = calloc(p->unit_count + 1, 1);
        at->left = calloc(p->unit_count + 1, sizeof(*at->left));
        memset(at->tenant, 0xff, (p->buf_count + 1) * sizeof(*at->tenant));
        size_t *size = calloc(p->buf_count + 1, sizeof(*size));
        for (uint32_t s = 0; s < p->slot_count; s++)
            if (machine_slot_size(m, &p->slots[s]) > size[p->slots[s].buf])
                size[p->slots[s].buf] = machine_slot_size(m, &p->slots[s]);
        for (uint32_t b = 0; b < p->buf_count; b++)
            at->buf[b] = calloc(size[b] + 1, sizeof(double));
        free(size);
        if (gyre_plan_order_make(m->plan, r, &at->order, NULL) != GYRE_OK)
            abort();
        for (uint32_t g = 0; g < p->group_count; g++)
            transfers += p->groups[g].count;
    }
    m->messages = calloc(transfers + 1, sizeof(*m->messages));
}

static void release(machine *m)
{
    for (uint32_t r = 0; r < m->plan->problem.ranks; r++) {
        rank_state *at = &m->rank[r];
        for (uint32_t b = 0; b < m->plan->programs[r].buf_count; b++)
            free(at->buf[b]);
        free(at->buf);
        free(at->tenant);
        free(at->phase);
        free(at->left);
        gyre_plan_order_free(&at->order);
    }
    free(m->rank);
    free(m->messages);
}

bool interpret(const gyre_plan *plan, const reference *want, uint32_t *seed,
               char *text)
{
    uint32_t ranks = plan->problem.ranks;
    machine m = {.plan = plan, .want = want, .seed = seed};
    m.rank = calloc(ranks, sizeof(*m.rank));
    prepare(&m);
    bool moved = true, good = true;
    while (moved && m.failed == NULL) {
        /* One event, of a rank or of the wire, whoever has one. */
        uint32_t turn = draw(seed, ranks + 1);
        moved = false;
        for (uint32_t i = 0; i <= ranks && !moved && m.failed == NULL; i++) {
            uint32_t who = (turn + i) % (ranks + 1);
            moved = who < ranks ? step(&m, who) : deliver(&m);
        }
    }
    if (m.failed != NULL) {
        snprintf(text, 256, "%s", m.failed);
        good = false;
    }
    for (uint32_t r = 0; r < ranks && good; r++) {
        good = m.rank[r].ended == plan->programs[r].unit_count;
        if (!good)
            snprintf(text, 256, "rank %u never ends", r);
    }
    for (uint32_t r = 0; r < ranks && good; r++)
        good = compare(&m, r, text);
    release(&m);
    return good;
}
