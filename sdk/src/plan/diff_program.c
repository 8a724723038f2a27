/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two programs of a rank do not share.  Slots, then groups and ops, each
 * as a list that is cut at its common head and tail; between them stands the
 * longest common subsequence, and what is not in it goes or comes.
 *
 * Items are compared by a hash over all that a file keeps of them.  A slot that
 * the two plans share has one name in both, so that a slot more does not change
 * every op behind it; the text is for showing alone.
 */
#include "plan/diff.h"

#include <string.h>

enum { MOST_CELLS = 1 << 24 };

static const uint32_t NONE = GYRE_NO_VIEW;

typedef struct item {
    uint32_t group; /* NONE: it is an op, or a slot */
    uint32_t index;
} item;

typedef struct list {
    uint32_t rank, plan; /* 0: one, 1: other */
    item *items;
    uint64_t *hashes;
    uint32_t count, from, to; /* what is left of it */
} list;

/* The slots of both: names[plan][slot], equal where the slots are. */
typedef struct slot_names {
    uint32_t *names[2];
    uint32_t counts[2];
} slot_names;

static const gyre_plan_program *program_of(const differ *d, const list *l)
{
    return &d->plans[l->plan]->programs[l->rank];
}

/* ---- slots --------------------------------------------------------------- */

static void slot_text(const gyre_plan *plan, const gyre_plan_slot *s,
                      char *text)
{
    const gyre_plan_rows *rows = &plan->rows[s->rows];
    size_t n = gyre_print(
        text, DIFF_TEXT_BYTES, 0, "%s %s heads %u to %u%s%s, chunks",
        gyre_value_name(s->kind), gyre_dtype_name((gyre_dtype)s->dtype), s->h0,
        s->h1, s->flags & GYRE_SLOT_EXTERNAL ? ", external" : "",
        s->flags & GYRE_SLOT_SAVED ? ", saved" : "");
    const uint32_t *chunks = gyre_plan_row_list(plan, s->rows);
    for (uint32_t k = 0; k < rows->count; k++)
        n = gyre_print(text, DIFF_TEXT_BYTES, n, " %u", chunks[k]);
}

static uint64_t slot_hash(const differ *d, const list *l, uint32_t i)
{
    const gyre_plan_slot *s = &program_of(d, l)->slots[i];
    const uint64_t words[] = {s->kind,  d->row_hashes[l->plan][s->rows],
                              s->h0,    s->h1,
                              s->dtype, s->flags};
    uint64_t hash = 1;
    for (size_t k = 0; k < sizeof(words) / sizeof(*words); k++)
        hash = gyre_plan_mix(hash, words[k]);
    return hash;
}

static void take_slots(const differ *d, list *l)
{
    for (uint32_t i = 0; i < l->count; i++) {
        l->items[i] = (item){NONE, i};
        l->hashes[i] = slot_hash(d, l, i);
    }
}

/* ---- groups and ops ------------------------------------------------------ */

static uint64_t group_hash(const gyre_plan *plan, const gyre_plan_group *g)
{
    uint64_t hash = gyre_plan_mix(gyre_plan_mix(2, g->lane), g->pattern);
    for (const char *c = plan->phases[g->phase]; *c != '\0'; c++)
        hash = gyre_plan_mix(hash, (uint8_t)*c);
    return hash;
}

static uint64_t view_hash(const differ *d, const list *l,
                          const slot_names *slots, uint64_t hash, uint32_t id)
{
    if (id == NONE)
        return gyre_plan_mix(hash, UINT64_MAX);
    const gyre_plan_view *v = &program_of(d, l)->views[id];
    hash = gyre_plan_mix(hash, slots->names[l->plan][v->slot]);
    hash = gyre_plan_mix(hash, d->row_hashes[l->plan][v->rows]);
    hash = gyre_plan_mix(hash, (uint64_t)v->h0 << 32 | v->h1);
    return gyre_plan_mix(hash, v->planes);
}

/* A transfer runs on its group's lane, which is the group's to say. */
static uint64_t op_hash(const differ *d, const list *l, const slot_names *slots,
                        const gyre_plan_op *op)
{
    bool transfer = op->code == GYRE_OP_PUT || op->code == GYRE_OP_GET;
    uint64_t hash = gyre_plan_mix(3, op->code);
    hash = gyre_plan_mix(hash, transfer ? op->channel : op->lane);
    if (transfer)
        hash = gyre_plan_mix(hash, op->view[1]);
    for (uint32_t i = 0; i < gyre_op_views(op->code); i++)
        hash = view_hash(d, l, slots, hash, op->view[i]);
    return hash;
}

static void take_ops(const differ *d, list *l, const slot_names *slots)
{
    const gyre_plan_program *p = program_of(d, l);
    uint32_t n = 0;
    for (uint32_t u = 0; u < p->unit_count; u++) {
        const gyre_plan_unit *unit = &p->units[u];
        if (unit->group != NONE) {
            l->items[n] = (item){unit->group, unit->group};
            l->hashes[n++] =
                group_hash(d->plans[l->plan], &p->groups[unit->group]);
        }
        for (uint32_t o = unit->first; o < unit->first + unit->count; o++) {
            l->items[n] = (item){NONE, o};
            l->hashes[n++] = op_hash(d, l, slots, &p->ops[o]);
        }
    }
}

static void op_text(const gyre_plan *plan, uint32_t rank, uint32_t i,
                    char *text)
{
    const gyre_plan_program *p = &plan->programs[rank];
    const gyre_plan_op *op = &p->ops[i];
    uint32_t count = gyre_op_views(op->code);
    gyre_plan_step step;
    gyre_plan_step_fill(plan, rank, 0, i, &step);
    gyre_plan_step_text(plan, &step, text, DIFF_TEXT_BYTES);
    size_t n = strlen(text);
    if (op->code != GYRE_OP_PUT && op->code != GYRE_OP_GET)
        n = gyre_print(text, DIFF_TEXT_BYTES, n, ", lane %u", op->lane);
    n = gyre_print(text, DIFF_TEXT_BYTES, n, ", slot%s", count > 1 ? "s" : "");
    for (uint32_t k = 0; k < count; k++)
        if (op->view[k] != NONE)
            n = gyre_print(text, DIFF_TEXT_BYTES, n, " %u",
                           p->views[op->view[k]].slot);
        else
            n = gyre_print(text, DIFF_TEXT_BYTES, n, " -");
}

/* ---- lists --------------------------------------------------------------- */

static gyre_status open_list(differ *d, list *l, gyre_error *error)
{
    l->to = l->count;
    l->items = gyre_alloc(d->context, (size_t)l->count + 1, sizeof(item));
    l->hashes = gyre_alloc(d->context, (size_t)l->count + 1, sizeof(uint64_t));
    if (l->items != NULL && l->hashes != NULL)
        return GYRE_OK;
    return gyre_fail(error, GYRE_NO_MEMORY, "no memory to compare plans");
}

static void close_list(differ *d, list *l)
{
    gyre_free(d->context, l->items, (size_t)l->count + 1, sizeof(item));
    gyre_free(d->context, l->hashes, (size_t)l->count + 1, sizeof(uint64_t));
}

/* Items at i of one and k of other are the same. */
static void match(slot_names *slots, uint32_t i, uint32_t k)
{
    if (slots != NULL)
        slots->names[1][k] = slots->names[0][i];
}

static void trim(list *a, list *b, slot_names *slots)
{
    while (a->from < a->to && b->from < b->to &&
           a->hashes[a->from] == b->hashes[b->from])
        match(slots, a->from++, b->from++);
    while (a->from < a->to && b->from < b->to &&
           a->hashes[a->to - 1] == b->hashes[b->to - 1])
        match(slots, --a->to, --b->to);
}

static void tell_one(differ *d, const list *l, uint32_t i, bool slots)
{
    char text[DIFF_TEXT_BYTES];
    const gyre_plan *plan = d->plans[l->plan];
    const gyre_plan_program *p = program_of(d, l);
    const item *at = &l->items[i];
    const char *what = slots ? "slot" : at->group != NONE ? "group" : "op";
    if (slots) {
        slot_text(plan, &p->slots[at->index], text);
    } else if (at->group != NONE) {
        const gyre_plan_group *g = &p->groups[at->group];
        gyre_print(text, sizeof(text), 0, "%s, lane %u, pattern %s, %u op%s",
                   plan->phases[g->phase], g->lane,
                   gyre_pattern_name(g->pattern), g->count,
                   g->count == 1 ? "" : "s");
    } else {
        op_text(plan, l->rank, at->index, text);
    }
    gyre_diff_tell(d, what, l->rank, l->plan == 0 ? at->index : NONE,
                   l->plan == 0 ? NONE : at->index, text);
}

/* cells[i][k]: the longest common subsequence of what follows i and k.  slots:
 * to name, when the lists are of slots. */
static gyre_status tell_lists(differ *d, list *a, list *b, slot_names *slots,
                              gyre_error *error)
{
    size_t n = a->to - a->from, m = b->to - b->from;
    bool large = (n + 1) * (m + 1) > MOST_CELLS;
    size_t width = large ? 1 : m + 1, cells = large ? 1 : (n + 1) * (m + 1);
    uint32_t *cell = gyre_alloc_zero(d->context, cells, sizeof(*cell));
    if (cell == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory to compare plans");
    const uint64_t *x = a->hashes + a->from, *y = b->hashes + b->from;
    for (size_t i = large ? 0 : n; i-- > 0;)
        for (size_t k = m; k-- > 0;) {
            uint32_t down = cell[(i + 1) * width + k];
            uint32_t right = cell[i * width + k + 1];
            cell[i * width + k] = x[i] == y[k]
                                      ? cell[(i + 1) * width + k + 1] + 1
                                      : (down > right ? down : right);
        }
    for (size_t i = 0, k = 0; i < n || k < m;) {
        bool here = i < n && k < m;
        if (here && x[i] == y[k])
            match(slots, a->from + (uint32_t)i++, b->from + (uint32_t)k++);
        else if (i < n &&
                 (k == m || large ||
                  cell[(i + 1) * width + k] >= cell[i * width + k + 1]))
            tell_one(d, a, a->from + (uint32_t)i++, slots != NULL);
        else
            tell_one(d, b, b->from + (uint32_t)k++, slots != NULL);
    }
    gyre_free(d->context, cell, cells, sizeof(*cell));
    return GYRE_OK;
}

static gyre_status compare(differ *d, list *a, list *b, slot_names *slots,
                           gyre_error *error)
{
    trim(a, b, slots);
    if (a->from == a->to && b->from == b->to)
        return GYRE_OK;
    return tell_lists(d, a, b, slots, error);
}

static gyre_status compare_slots(differ *d, uint32_t rank, slot_names *slots,
                                 gyre_error *error)
{
    list l[2] = {{.rank = rank, .plan = 0, .count = slots->counts[0]},
                 {.rank = rank, .plan = 1, .count = slots->counts[1]}};
    gyre_status status = GYRE_OK;
    for (int i = 0; i < 2 && status == GYRE_OK; i++) {
        status = open_list(d, &l[i], error);
        if (status == GYRE_OK)
            take_slots(d, &l[i]);
    }
    if (status == GYRE_OK)
        status = compare(d, &l[0], &l[1], slots, error);
    close_list(d, &l[0]);
    close_list(d, &l[1]);
    return status;
}

static gyre_status compare_ops(differ *d, uint32_t rank, slot_names *slots,
                               gyre_error *error)
{
    list l[2] = {{.rank = rank, .plan = 0}, {.rank = rank, .plan = 1}};
    gyre_status status = GYRE_OK;
    for (int i = 0; i < 2 && status == GYRE_OK; i++) {
        const gyre_plan_program *p = program_of(d, &l[i]);
        l[i].count = p->op_count + p->group_count;
        status = open_list(d, &l[i], error);
        if (status == GYRE_OK)
            take_ops(d, &l[i], slots);
    }
    if (status == GYRE_OK)
        status = compare(d, &l[0], &l[1], NULL, error);
    close_list(d, &l[0]);
    close_list(d, &l[1]);
    return status;
}

/* ---- a rank -------------------------------------------------------------- */

/* The slots are the same: do they share storage alike?  By the first slot of
 * each buf, since a buf's number is nothing but a name. */
static gyre_status compare_bufs(differ *d, uint32_t rank, gyre_error *error)
{
    const gyre_plan_program *p[2] = {&d->plans[0]->programs[rank],
                                     &d->plans[1]->programs[rank]};
    size_t count = (size_t)p[0]->buf_count + p[1]->buf_count + 1;
    uint32_t *first[2] = {gyre_alloc_zero(d->context, count, sizeof(uint32_t))};
    if (first[0] == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory to compare plans");
    first[1] = first[0] + p[0]->buf_count;
    for (uint32_t i = 0; i < p[0]->slot_count; i++) {
        uint32_t bufs[2] = {p[0]->slots[i].buf, p[1]->slots[i].buf};
        uint32_t at[2];
        for (int k = 0; k < 2; k++) {
            if (first[k][bufs[k]] == 0)
                first[k][bufs[k]] = i + 1;
            at[k] = first[k][bufs[k]];
        }
        if (at[0] == at[1])
            continue;
        char text[DIFF_TEXT_BYTES], slot[DIFF_TEXT_BYTES];
        slot_text(d->plans[0], &p[0]->slots[i], slot);
        gyre_print(text, sizeof(text), 0, "buf %u, buf %u: %.400s", bufs[0],
                   bufs[1], slot);
        gyre_diff_tell(d, "buf", rank, i, i, text);
    }
    gyre_free(d->context, first[0], count, sizeof(uint32_t));
    return GYRE_OK;
}

gyre_status gyre_diff_program(differ *d, uint32_t rank, gyre_error *error)
{
    uint64_t before = d->count;
    slot_names slots = {.counts = {d->plans[0]->programs[rank].slot_count,
                                   d->plans[1]->programs[rank].slot_count}};
    size_t count = (size_t)slots.counts[0] + slots.counts[1] + 1;
    slots.names[0] = gyre_alloc(d->context, count, sizeof(uint32_t));
    if (slots.names[0] == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory to compare plans");
    slots.names[1] = slots.names[0] + slots.counts[0];
    for (uint32_t i = 0; i + 1 < count; i++)
        slots.names[0][i] = i;
    gyre_status status = compare_slots(d, rank, &slots, error);
    if (status == GYRE_OK && d->count == before)
        status = compare_bufs(d, rank, error);
    if (status == GYRE_OK)
        status = compare_ops(d, rank, &slots, error);
    gyre_free(d->context, slots.names[0], count, sizeof(uint32_t));
    return status;
}
