/* SPDX-License-Identifier: Apache-2.0 */
/* From a plan to records.  Bufs are numbered anew in the order of slots, since
 * a pass that drops slots may leave gaps. */
#include "plan/record.h"

#include <string.h>

typedef struct saver {
    const gyre_plan *plan;
    gyre_record_put *put;
    void *user;
    gyre_error *error;
    gyre_status status; /* the first error */
} saver;

static void put(saver *s, const gyre_record *record)
{
    if (s->status == GYRE_OK)
        s->status = s->put(s->user, record, s->error);
}

static void put_text(saver *s, uint32_t code, const char *text)
{
    gyre_record record = {.code = code};
    size_t n = 0;
    for (; text[n] != '\0' && n + 1 < sizeof(record.text); n++) {
        bool plain = text[n] >= 0x20 && text[n] < 0x7f && text[n] != '"';
        record.text[n] = plain ? text[n] : '?';
    }
    put(s, &record);
}

static void put_mask(saver *s)
{
    const gyre_mask *m = s->plan->mask;
    bool blocks = m->blocks != NULL;
    put(s, &(gyre_record){.code = GYRE_RECORD_MASK,
                          .values = {m->causal, m->window, m->document_count,
                                     blocks ? m->block_q : 0,
                                     blocks ? m->block_k : 0,
                                     blocks ? m->block_rows : 0,
                                     blocks ? m->block_columns : 0}});
    for (uint32_t d = 0; d < m->document_count; d++) {
        const gyre_documents *table = &m->documents[d];
        put(s, &(gyre_record){.code = GYRE_RECORD_DOCUMENTS,
                              .values = {table->count}});
        for (uint32_t i = 0; table->count > 0 && i <= table->count; i++)
            put(s, &(gyre_record){.code = GYRE_RECORD_BOUND,
                                  .values = {table->bounds[i]}});
    }
    for (uint32_t r = 0; blocks && r < m->block_rows; r++)
        for (uint32_t c = 0; c < m->block_columns; c++)
            if (m->blocks[(size_t)r * m->block_columns + c])
                put(s, &(gyre_record){.code = GYRE_RECORD_BLOCK,
                                      .values = {r, c}});
}

static void put_tables(saver *s)
{
    const gyre_problem *p = &s->plan->problem;
    for (uint32_t side = 0; side < GYRE_SIDE_COUNT; side++)
        for (uint32_t i = 0; i < p->chunk_count[side]; i++) {
            const gyre_chunk *c = &p->chunks[side][i];
            put(s, &(gyre_record){.code = GYRE_RECORD_CHUNK,
                                  .values = {side, c->start, c->length,
                                             c->stride, c->owner}});
        }
    for (uint32_t i = 0; i < s->plan->row_count; i++) {
        const gyre_plan_rows *rows = &s->plan->rows[i];
        put(s, &(gyre_record){.code = GYRE_RECORD_ROWS,
                              .values = {rows->side},
                              .list = gyre_plan_row_list(s->plan, i),
                              .list_count = rows->count});
    }
}

static void put_slots(saver *s, const gyre_plan_program *p, uint32_t *bufs)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < p->slot_count; i++) {
        const gyre_plan_slot *slot = &p->slots[i];
        if (bufs[slot->buf] == 0)
            bufs[slot->buf] = ++next;
        put(s, &(gyre_record){.code = GYRE_RECORD_SLOT,
                              .values = {slot->kind, slot->rows, slot->h0,
                                         slot->h1, slot->dtype,
                                         bufs[slot->buf] - 1, slot->flags}});
    }
}

static void put_op(saver *s, const gyre_plan_op *op)
{
    if (op->code == GYRE_OP_PUT || op->code == GYRE_OP_GET) {
        put(s,
            &(gyre_record){.code = op->code == GYRE_OP_PUT ? GYRE_RECORD_PUT
                                                           : GYRE_RECORD_GET,
                           .values = {op->view[0], op->view[1], op->channel}});
        return;
    }
    uint32_t count = gyre_op_views(op->code);
    while (count > 0 && op->view[count - 1] == GYRE_NO_VIEW)
        count--;
    put(s, &(gyre_record){.code = GYRE_RECORD_OP,
                          .values = {op->code, op->lane},
                          .list = op->view,
                          .list_count = count});
}

static void put_unit(saver *s, const gyre_plan_program *p,
                     const gyre_plan_unit *unit)
{
    if (unit->group == GYRE_NO_VIEW) {
        for (uint32_t i = 0; i < unit->count; i++)
            put_op(s, &p->ops[unit->first + i]);
        return;
    }
    const gyre_plan_group *group = &p->groups[unit->group];
    gyre_record open = {.code = GYRE_RECORD_GROUP,
                        .values = {group->lane, group->pattern}};
    memcpy(open.text, s->plan->phases[group->phase], GYRE_PLAN_PHASE_BYTES);
    put(s, &open);
    for (uint32_t i = 0; i < group->count; i++)
        put_op(s, &p->ops[group->first + i]);
    put(s, &(gyre_record){.code = GYRE_RECORD_END});
}

static void put_program(saver *s, uint32_t rank)
{
    const gyre_plan_program *p = &s->plan->programs[rank];
    if (p->slot_count == 0)
        return;
    uint32_t *bufs =
        gyre_alloc_zero(s->plan->context, p->buf_count, sizeof(*bufs));
    if (bufs == NULL) {
        s->status = gyre_fail(s->error, GYRE_NO_MEMORY,
                              "plan '%s': no memory to write rank %u",
                              s->plan->name, rank);
        return;
    }
    put(s, &(gyre_record){.code = GYRE_RECORD_RANK, .values = {rank}});
    put_slots(s, p, bufs);
    for (uint32_t i = 0; i < p->view_count; i++) {
        const gyre_plan_view *v = &p->views[i];
        put(s, &(gyre_record){
                   .code = GYRE_RECORD_VIEW,
                   .values = {v->slot, v->rows, v->h0, v->h1, v->planes}});
    }
    for (uint32_t i = 0; i < p->unit_count; i++)
        put_unit(s, p, &p->units[i]);
    gyre_free(s->plan->context, bufs, p->buf_count, sizeof(*bufs));
}

gyre_status gyre_plan_save(const gyre_plan *plan, gyre_record_put *put_record,
                           void *user, gyre_error *error)
{
    saver s = {plan, put_record, user, error, GYRE_OK};
    const gyre_problem *p = &plan->problem;
    put(&s, &(gyre_record){.code = GYRE_RECORD_PLAN,
                           .values = {GYRE_PLAN_FILE_VERSION}});
    put_text(&s, GYRE_RECORD_NAME, plan->name);
    put(&s, &(gyre_record){.code = GYRE_RECORD_PASS, .values = {plan->pass}});
    put(&s, &(gyre_record){.code = GYRE_RECORD_PROBLEM,
                           .values = {p->ranks, p->batch, p->heads, p->kv_heads,
                                      p->head_dim, p->v_head_dim, p->dtype,
                                      p->wire_dtype, p->tokens[GYRE_SIDE_Q],
                                      p->tokens[GYRE_SIDE_KV]}});
    put_mask(&s);
    put_tables(&s);
    for (uint32_t r = 0; r < p->ranks && s.status == GYRE_OK; r++)
        put_program(&s, r);
    put(&s, &(gyre_record){.code = GYRE_RECORD_DONE});
    return s.status;
}
