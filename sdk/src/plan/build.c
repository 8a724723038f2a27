/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building one program.  Ids are checked here, so that everything above may
 * index by them; whether the ops are right is the prover's to say.
 */
#include "plan/plan.h"

#include <stdarg.h>
#include <string.h>

/* Keep the first error. */
static void refuse(gyre_builder *b, gyre_status status, const char *format, ...)
    GYRE_PRINTF(3, 4);
static void refuse(gyre_builder *b, gyre_status status, const char *format, ...)
{
    if (b->status != GYRE_OK)
        return;
    va_list arguments;
    va_start(arguments, format);
    gyre_fail_list(&b->error, status, format, arguments);
    va_end(arguments);
    b->status = gyre_fail_prefix(&b->error, status, "plan '%s', rank %u",
                                 b->plan->name, b->rank);
}

/* Room for one more of an array of the program. */
static bool room_for(gyre_builder *b, void *array, uint32_t count,
                     uint32_t *room, size_t size)
{
    if (b->status != GYRE_OK)
        return false;
    if (count < *room)
        return true;
    uint32_t more = *room ? *room * 2 : 32;
    void **at = array;
    void *grown = more > *room
                      ? gyre_grow(b->plan->context, *at, *room, more, size)
                      : NULL;
    if (grown == NULL) {
        refuse(b, GYRE_NO_MEMORY, "no memory after %u entries", count);
        return false;
    }
    *at = grown;
    *room = more;
    return true;
}

/* ---- rows ---------------------------------------------------------------- */

static const gyre_problem *problem(const gyre_builder *b)
{
    return &b->plan->problem;
}

static uint32_t rows(gyre_builder *b, uint32_t side, const uint32_t *chunks,
                     uint32_t count)
{
    if (b->status != GYRE_OK)
        return 0;
    if (side >= GYRE_SIDE_COUNT) {
        refuse(b, GYRE_PLAN, "there is no side %u: 0 is Q, 1 is KV", side);
        return 0;
    }
    for (uint32_t i = 0; i < count; i++)
        if (chunks[i] >= b->plan->problem.chunk_count[side]) {
            refuse(b, GYRE_PLAN, "there is no chunk %u", chunks[i]);
            return 0;
        }
    uint32_t id = gyre_plan_intern_rows(b->plan, side, chunks, count);
    if (id == GYRE_NO_VIEW) {
        refuse(b, GYRE_NO_MEMORY, "no memory for a row set of %u chunks",
               count);
        return 0;
    }
    const uint32_t *list = gyre_plan_row_list(b->plan, id);
    for (uint32_t i = 1; i < count; i++)
        if (list[i] == list[i - 1])
            refuse(b, GYRE_PLAN, "a row set holds chunk %u twice", list[i]);
    return id;
}

static uint32_t owned(gyre_builder *b, uint32_t side, uint32_t rank)
{
    if (b->status != GYRE_OK)
        return 0;
    if (side >= GYRE_SIDE_COUNT || rank >= b->plan->problem.ranks) {
        refuse(b, GYRE_PLAN, "there is no rank %u, or no such side", rank);
        return 0;
    }
    return b->plan->owned[side][rank];
}

static bool row_id(gyre_builder *b, uint32_t id)
{
    if (b->status == GYRE_OK && id >= b->plan->row_count)
        refuse(b, GYRE_PLAN, "there is no row set %u", id);
    return b->status == GYRE_OK;
}

static uint32_t join(gyre_builder *b, uint32_t one, uint32_t other)
{
    if (!row_id(b, one) || !row_id(b, other))
        return 0;
    const gyre_plan_rows *x = &b->plan->rows[one], *y = &b->plan->rows[other];
    if (x->side != y->side) {
        refuse(b, GYRE_PLAN, "row set %u is of the other side", other);
        return 0;
    }
    uint32_t count = x->count + y->count;
    if (count == 0)
        return one;
    uint32_t *both = gyre_alloc(b->plan->context, count, sizeof(*both));
    if (both == NULL) {
        refuse(b, GYRE_NO_MEMORY, "no memory for a row set of %u chunks",
               count);
        return 0;
    }
    memcpy(both, gyre_plan_row_list(b->plan, one), x->count * sizeof(*both));
    memcpy(both + x->count, gyre_plan_row_list(b->plan, other),
           y->count * sizeof(*both));
    uint32_t id = rows(b, x->side, both, count);
    gyre_free(b->plan->context, both, count, sizeof(*both));
    return id;
}

static uint64_t row_tokens(const gyre_builder *b, uint32_t id)
{
    return id < b->plan->row_count ? b->plan->rows[id].tokens : 0;
}

/* ---- slots and views ------------------------------------------------------
 */

static bool heads_fit(gyre_builder *b, uint32_t h0, uint32_t h1)
{
    if (h0 >= h1 || h1 > b->plan->problem.heads)
        refuse(b, GYRE_PLAN, "query heads must be a range below %u",
               b->plan->problem.heads);
    return b->status == GYRE_OK;
}

static uint32_t slot(gyre_builder *b, const gyre_plan_slot *given)
{
    gyre_plan_program *p = &b->program;
    if (!row_id(b, given->rows) || !heads_fit(b, given->h0, given->h1) ||
        !room_for(b, &p->slots, p->slot_count, &p->slot_room,
                  sizeof(*p->slots)))
        return 0;
    if (given->kind >= GYRE_VALUE_COUNT)
        refuse(b, GYRE_PLAN, "there is no kind %u", given->kind);
    else if (b->plan->rows[given->rows].side != gyre_value_side(given->kind))
        refuse(b, GYRE_PLAN, "slot %u has rows of the other side",
               p->slot_count);
    else if (gyre_dtype_bytes((gyre_dtype)given->dtype) == 0)
        refuse(b, GYRE_PLAN, "there is no dtype %u", given->dtype);
    else if (given->flags & ~(uint32_t)(GYRE_SLOT_EXTERNAL | GYRE_SLOT_SAVED))
        refuse(b, GYRE_PLAN, "slot %u has unknown flags", p->slot_count);
    else if (given->buf != GYRE_NEW_BUF && given->buf >= p->buf_count)
        refuse(b, GYRE_PLAN, "there is no buf %u", given->buf);
    if (b->status != GYRE_OK)
        return 0;
    p->slots[p->slot_count] = *given;
    if (given->buf == GYRE_NEW_BUF)
        p->slots[p->slot_count].buf = p->buf_count++;
    return p->slot_count++;
}

static uint32_t view_hash(const gyre_plan_view *v)
{
    uint64_t h = v->slot * 0x9e3779b97f4a7c15u;
    h = (h ^ v->rows) * 0xff51afd7ed558ccdu;
    h = (h ^ (h >> 29) ^ ((uint64_t)v->h0 << 32 | v->h1 << 8 | v->planes)) *
        0xc4ceb9fe1a85ec53u;
    return (uint32_t)(h >> 32);
}

static bool same_view(const gyre_plan_view *a, const gyre_plan_view *b)
{
    return a->slot == b->slot && a->rows == b->rows && a->h0 == b->h0 &&
           a->h1 == b->h1 && a->planes == b->planes;
}

/* Open addressing over ids + 1, at most half full. */
static uint32_t *view_place(gyre_plan_program *p, const gyre_plan_view *v)
{
    uint32_t at = view_hash(v) & (p->view_table_size - 1);
    while (p->view_table[at] != 0 &&
           !same_view(&p->views[p->view_table[at] - 1], v))
        at = (at + 1) & (p->view_table_size - 1);
    return &p->view_table[at];
}

static bool grow_view_table(gyre_builder *b)
{
    gyre_plan_program *p = &b->program;
    if (p->view_count * 2 < p->view_table_size)
        return true;
    uint32_t old = p->view_table_size, size = old ? old * 2 : 64;
    uint32_t *table = gyre_alloc_zero(b->plan->context, size, sizeof(*table));
    if (table == NULL) {
        refuse(b, GYRE_NO_MEMORY, "no memory after %u views", p->view_count);
        return false;
    }
    gyre_free(b->plan->context, p->view_table, old, sizeof(*table));
    p->view_table = table;
    p->view_table_size = size;
    for (uint32_t i = 0; i < p->view_count; i++)
        *view_place(p, &p->views[i]) = i + 1;
    return true;
}

static uint32_t view(gyre_builder *b, uint32_t slot_id, uint32_t row_set,
                     uint32_t h0, uint32_t h1, uint32_t planes)
{
    gyre_plan_program *p = &b->program;
    if (!row_id(b, row_set) || !heads_fit(b, h0, h1))
        return 0;
    if (slot_id >= p->slot_count) {
        refuse(b, GYRE_PLAN, "there is no slot %u", slot_id);
        return 0;
    }
    gyre_plan_view v = {slot_id, row_set, (uint16_t)h0, (uint16_t)h1, planes};
    /* What is made is used at once: most views need no look at the table.
     * By numbers: a struct just written in parts is slow to read as one. */
    uint32_t *recent = &b->recent[slot_id % GYRE_RECENT_VIEWS];
    const gyre_plan_view *last = *recent ? &p->views[*recent - 1] : NULL;
    if (last != NULL && last->slot == slot_id && last->rows == row_set &&
        last->h0 == h0 && last->h1 == h1 && last->planes == planes)
        return *recent - 1;
    if (!room_for(b, &p->views, p->view_count, &p->view_room,
                  sizeof(*p->views)) ||
        !grow_view_table(b))
        return 0;
    uint32_t *place = view_place(p, &v);
    if (*place == 0) {
        p->views[p->view_count] = v;
        *place = ++p->view_count;
    }
    *recent = *place;
    return *place - 1;
}

static uint32_t whole(gyre_builder *b, uint32_t slot_id)
{
    if (b->status == GYRE_OK && slot_id >= b->program.slot_count)
        refuse(b, GYRE_PLAN, "there is no slot %u", slot_id);
    if (b->status != GYRE_OK)
        return 0;
    const gyre_plan_slot *s = &b->program.slots[slot_id];
    return view(b, slot_id, s->rows, s->h0, s->h1, gyre_value_planes(s->kind));
}

/* ---- ops -----------------------------------------------------------------
 */

static gyre_plan_op *add_op(gyre_builder *b, uint32_t code, uint32_t lane)
{
    gyre_plan_program *p = &b->program;
    if (lane >= GYRE_PLAN_LANES)
        refuse(b, GYRE_PLAN, "there is no lane %u", lane);
    if (!room_for(b, &p->ops, p->op_count, &p->op_room, sizeof(*p->ops)))
        return NULL;
    gyre_plan_op *op = &p->ops[p->op_count++];
    *op = (gyre_plan_op){
        .code = (uint8_t)code, .lane = (uint8_t)lane, .group = GYRE_NO_VIEW};
    for (int i = 0; i < GYRE_OP_VIEWS; i++)
        op->view[i] = GYRE_NO_VIEW;
    return op;
}

static void add_unit(gyre_builder *b, uint32_t lane, uint32_t group)
{
    gyre_plan_program *p = &b->program;
    if (room_for(b, &p->units, p->unit_count, &p->unit_room, sizeof(*p->units)))
        p->units[p->unit_count++] =
            (gyre_plan_unit){p->op_count, 0, lane, group};
}

static uint32_t phase_index(gyre_builder *b, const char *phase)
{
    gyre_plan *plan = b->plan;
    size_t length = strlen(phase);
    for (uint32_t i = 0; i < plan->phase_count; i++)
        if (strcmp(plan->phases[i], phase) == 0)
            return i;
    if (plan->phase_count == GYRE_PLAN_PHASES || length == 0 ||
        length >= GYRE_PLAN_PHASE_BYTES) {
        refuse(b, GYRE_PLAN,
               "phase names are 1 to 15 letters, at most %u of them",
               GYRE_PLAN_PHASES);
        return 0;
    }
    memcpy(plan->phases[plan->phase_count], phase, length + 1);
    return plan->phase_count++;
}

static void begin(gyre_builder *b, uint32_t lane, const char *phase,
                  uint32_t pattern)
{
    gyre_plan_program *p = &b->program;
    if (b->group != GYRE_NO_VIEW)
        refuse(b, GYRE_PLAN, "group %u is still open: end it first", b->group);
    if (pattern >= GYRE_PATTERN_COUNT)
        refuse(b, GYRE_PLAN, "there is no pattern %u", pattern);
    if (lane >= GYRE_PLAN_LANES)
        refuse(b, GYRE_PLAN, "there is no lane %u", lane);
    uint32_t phase_id = b->status == GYRE_OK ? phase_index(b, phase) : 0;
    if (!room_for(b, &p->groups, p->group_count, &p->group_room,
                  sizeof(*p->groups)))
        return;
    p->groups[p->group_count] = (gyre_plan_group){.first = p->op_count,
                                                  .lane = (uint8_t)lane,
                                                  .phase = (uint8_t)phase_id,
                                                  .pattern = (uint8_t)pattern};
    add_unit(b, lane, p->group_count);
    b->group = p->group_count++;
}

static void transfer(gyre_builder *b, uint32_t code, uint32_t view_id,
                     uint32_t peer, uint32_t channel)
{
    gyre_plan_program *p = &b->program;
    if (b->group == GYRE_NO_VIEW)
        refuse(b, GYRE_PLAN, "a transfer with rank %u stands in no group",
               peer);
    else if (peer >= b->plan->problem.ranks)
        refuse(b, GYRE_PLAN, "there is no rank %u", peer);
    else if (channel > UINT16_MAX)
        refuse(b, GYRE_PLAN, "channel %u is above 65535", channel);
    else if (b->status == GYRE_OK && view_id >= p->view_count)
        refuse(b, GYRE_PLAN, "there is no view %u", view_id);
    if (b->status != GYRE_OK)
        return;
    gyre_plan_op *op = add_op(b, code, p->groups[b->group].lane);
    if (op == NULL)
        return;
    op->channel = (uint16_t)channel;
    op->group = b->group;
    op->view[0] = view_id;
    op->view[1] = peer;
    p->groups[b->group].count++;
    p->units[p->unit_count - 1].count++;
}

static void put(gyre_builder *b, uint32_t view_id, uint32_t peer,
                uint32_t channel)
{
    transfer(b, GYRE_OP_PUT, view_id, peer, channel);
}

static void get(gyre_builder *b, uint32_t view_id, uint32_t peer,
                uint32_t channel)
{
    transfer(b, GYRE_OP_GET, view_id, peer, channel);
}

/* An empty group is taken back. */
static void end(gyre_builder *b)
{
    gyre_plan_program *p = &b->program;
    if (b->group == GYRE_NO_VIEW)
        refuse(b, GYRE_PLAN, "no group is open on %u ops", p->op_count);
    if (b->status != GYRE_OK)
        return;
    if (p->groups[b->group].count == 0) {
        p->group_count--;
        p->unit_count--;
    }
    b->group = GYRE_NO_VIEW;
}

static void compute(gyre_builder *b, uint32_t lane, uint32_t code,
                    const uint32_t *views, uint32_t count)
{
    if (b->group != GYRE_NO_VIEW)
        refuse(b, GYRE_PLAN, "group %u is still open: end it first", b->group);
    else if (code >= GYRE_OP_COUNT || code <= GYRE_OP_GET)
        refuse(b, GYRE_PLAN, "op %u is none that computes", code);
    else if (count > gyre_op_views(code))
        refuse(b, GYRE_PLAN, "too many views for this op: %u", count);
    for (uint32_t i = 0; b->status == GYRE_OK && i < gyre_op_views(code); i++) {
        uint32_t id = i < count ? views[i] : GYRE_NO_VIEW;
        if (id == GYRE_NO_VIEW && !(gyre_op_optional(code) >> i & 1))
            refuse(b, GYRE_PLAN, "view %u of this op is missing", i);
        else if (id != GYRE_NO_VIEW && id >= b->program.view_count)
            refuse(b, GYRE_PLAN, "there is no view %u", id);
    }
    if (b->status != GYRE_OK)
        return;
    add_unit(b, lane, GYRE_NO_VIEW);
    gyre_plan_op *op = add_op(b, code, lane);
    if (op == NULL)
        return;
    b->program.units[b->program.unit_count - 1].count = 1;
    for (uint32_t i = 0; i < count; i++)
        op->view[i] = views[i];
}

static void give_up(gyre_builder *b, const char *text)
{
    refuse(b, GYRE_PLAN, "%s", text);
}

const gyre_plan_host gyre_plan_host_table = {
    .size = sizeof(gyre_plan_host),
    .problem = problem,
    .owned = owned,
    .rows = rows,
    .join = join,
    .row_tokens = row_tokens,
    .slot = slot,
    .view = view,
    .whole = whole,
    .begin = begin,
    .put = put,
    .get = get,
    .end = end,
    .op = compute,
    .refuse = give_up,
    .radix = gyre_plan_radix,
};

/* ---- open, close --------------------------------------------------------- */

void gyre_builder_open(gyre_builder *b, gyre_plan *plan, uint32_t rank)
{
    *b = (gyre_builder){.plan = plan, .rank = rank, .group = GYRE_NO_VIEW};
}

void gyre_program_free(gyre_context *context, gyre_plan_program *p)
{
    gyre_free(context, p->slots, p->slot_room, sizeof(*p->slots));
    gyre_free(context, p->views, p->view_room, sizeof(*p->views));
    gyre_free(context, p->ops, p->op_room, sizeof(*p->ops));
    gyre_free(context, p->groups, p->group_room, sizeof(*p->groups));
    gyre_free(context, p->units, p->unit_room, sizeof(*p->units));
    gyre_free(context, p->view_table, p->view_table_size,
              sizeof(*p->view_table));
    *p = (gyre_plan_program){0};
}

gyre_status gyre_builder_close(gyre_builder *b, gyre_error *error)
{
    if (b->group != GYRE_NO_VIEW)
        refuse(b, GYRE_PLAN, "group %u is never ended", b->group);
    if (b->status != GYRE_OK) {
        gyre_program_free(b->plan->context, &b->program);
        return gyre_fail(error, b->status, "%s", b->error.text);
    }
    gyre_program_free(b->plan->context, &b->plan->programs[b->rank]);
    b->plan->programs[b->rank] = b->program;
    b->program = (gyre_plan_program){0};
    return GYRE_OK;
}
