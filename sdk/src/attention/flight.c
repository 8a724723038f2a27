/* SPDX-License-Identifier: Apache-2.0 */
/* From the views of a group to messages: the bytes of a view in wire order. */
#include "attention/executor.h"

static bool add_extent(gyre_executor *x, gyre_flight *f, uint32_t first,
                       char *at, size_t bytes)
{
    if (f->extent_count > first) {
        gyre_extent *last = &f->extents[f->extent_count - 1];
        if ((char *)last->at + last->bytes == at) {
            last->bytes += bytes;
            return true;
        }
    }
    if (f->extent_count == f->extent_room) {
        uint32_t room = f->extent_room ? 2 * f->extent_room : 16;
        gyre_extent *grown = gyre_grow(x->context, f->extents, f->extent_room,
                                       room, sizeof(*grown));
        if (grown == NULL)
            return false;
        f->extents = grown;
        f->extent_room = room;
    }
    f->extents[f->extent_count++] = (gyre_extent){at, bytes};
    return true;
}

/* Rows of one head: one extent where they touch, else one a row. */
static bool add_rows(gyre_executor *x, gyre_flight *f, uint32_t first,
                     const gyre_part *part, char *head, uint32_t pieces)
{
    const gyre_piece *piece = gyre_executor_list(x, GYRE_PIECES_TRANSFER);
    size_t bytes = part->dim * gyre_dtype_bytes(part->dtype);
    bool dense = part->plane.row == bytes;
    for (uint32_t i = 0; i < pieces; i++) {
        char *at = head + piece[i].row * part->plane.row;
        uint64_t count = dense ? 1 : piece[i].length;
        size_t each = dense ? bytes * (size_t)piece[i].length : bytes;
        for (uint64_t r = 0; r < count; r++)
            if (!add_extent(x, f, first, at + r * part->plane.row, each))
                return false;
    }
    return true;
}

static bool add_view(gyre_executor *x, gyre_flight *f, uint32_t id)
{
    const gyre_problem *problem = &x->plan->problem;
    const gyre_plan_view *v = &x->program->views[id];
    const gyre_plan_slot *slot = &x->program->slots[v->slot];
    const gyre_slot_place *place = &x->places[v->slot];
    uint32_t first = f->extent_count;
    uint32_t pieces =
        gyre_slot_pieces(x->plan, v->rows, slot->rows,
                         gyre_executor_list(x, GYRE_PIECES_TRANSFER));
    for (uint32_t leaf = 0; leaf < place->leaves; leaf++)
        for (uint32_t i = 0; i < place->count; i++) {
            uint32_t which = gyre_part_wire(slot->kind, i), a, z;
            const gyre_part *part = &place->part[which];
            if (slot->kind == GYRE_VALUE_ST && !(v->planes >> which & 1))
                continue;
            gyre_part_heads(problem, part, v->h0, v->h1, &a, &z);
            for (uint32_t b = 0; b < problem->batch; b++)
                for (uint32_t h = a; h < z; h++) {
                    const gyre_plane *p = &part->plane;
                    char *head = p->at + leaf * part->leaf + b * p->batch +
                                 (h - p->head0) * p->head;
                    if (!add_rows(x, f, first, part, head, pieces))
                        return false;
                }
        }
    return true;
}

static bool add_message(gyre_executor *x, gyre_flight *f,
                        const gyre_plan_op *op, uint32_t index)
{
    gyre_message *m = &f->messages[index];
    uint32_t first = f->extent_count;
    *m = (gyre_message){.put = op->code == GYRE_OP_PUT,
                        .peer = op->view[1],
                        .channel = op->channel};
    if (!add_view(x, f, op->view[0]))
        return false;
    m->extent_count = f->extent_count - first;
    for (uint32_t i = first; i < f->extent_count; i++)
        m->bytes += f->extents[i].bytes;
    f->bytes += m->bytes;
    return true;
}

gyre_status gyre_flight_load(gyre_executor *x, uint32_t group,
                             gyre_flight *flight, gyre_error *error)
{
    const gyre_plan_group *g = &x->program->groups[group];
    gyre_flight f = {.executor = x, .message_count = g->count};
    f.messages = gyre_alloc_zero(x->context, g->count, sizeof(*f.messages));
    bool good = f.messages != NULL;
    for (uint32_t i = 0; good && i < g->count; i++)
        good = add_message(x, &f, &x->program->ops[g->first + i], i);
    if (!good) {
        gyre_flight_free(&f);
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "no memory for the extents of %u messages", g->count);
    }
    /* The list may have moved while it grew. */
    for (uint32_t i = 0, at = 0; i < g->count; i++) {
        f.messages[i].extents = f.extents + at;
        at += f.messages[i].extent_count;
    }
    *flight = f;
    return GYRE_OK;
}

void gyre_flight_free(gyre_flight *f)
{
    gyre_context *context = f->executor->context;
    gyre_free(context, f->messages, f->message_count, sizeof(*f->messages));
    gyre_free(context, f->extents, f->extent_room, sizeof(*f->extents));
    f->messages = NULL;
    f->extents = NULL;
    f->message_count = f->extent_count = f->extent_room = 0;
}
