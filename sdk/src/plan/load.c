/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From records to a plan.  Nothing of a file is believed: the head goes through
 * gyre_plan_begin, programs through the builder, and what neither looks at is
 * checked here.
 *
 *     HEAD (plan .. chunk)  --first rows, rank or done-->  ROWS
 *     ROWS (rows)  --rank-->  RANK (slot .. op)  --rank, done--> RANK, DONE
 */
#include "plan/record.h"

#include <string.h>

/* More would take longer to check than to compute; and less than 2^32. */
#define MOST_TOKENS (UINT64_C(1) << 30)
enum { MOST_BLOCKS = 1 << 24 };

typedef enum stage { HEAD, ROWS, RANK, DONE } stage;

typedef struct loader {
    gyre_context *context;
    gyre_source *source;
    gyre_error *error;
    stage stage;
    uint32_t seen; /* bits of the records that come once */
    char name[GYRE_RECORD_TEXT];
    gyre_plan_spec spec;
    gyre_mask mask;
    gyre_documents *documents; /* [mask.document_count] */
    uint32_t document_room, document_used;
    uint64_t *bounds;
    uint32_t bound_count, bound_room;
    uint32_t bounds_due; /* of the table at hand */
    uint8_t *blocks;
    size_t block_room;
    gyre_chunk *chunks[GYRE_SIDE_COUNT];
    uint32_t chunk_room[GYRE_SIDE_COUNT];
    uint32_t *rows; /* id in the plan, by number in the file */
    uint32_t row_count, row_room;
    gyre_plan *plan;
    gyre_builder builder;
    uint32_t next_rank; /* ranks ascend */
} loader;

#define REFUSE(l, ...) gyre_source_fail((l)->source, (l)->error, __VA_ARGS__)

/* Room for one more; the array moves. */
static gyre_status grow(loader *l, void *array, uint32_t count, uint32_t *room,
                        size_t size)
{
    if (count < *room)
        return GYRE_OK;
    uint32_t more = *room ? *room * 2 : 16;
    void **at = array;
    void *grown =
        more > *room ? gyre_grow(l->context, *at, *room, more, size) : NULL;
    if (grown == NULL)
        return gyre_fail(l->error, GYRE_NO_MEMORY,
                         "%s: no memory for %u entries of a table",
                         l->source->file, count);
    *at = grown;
    *room = more;
    return GYRE_OK;
}

/* What a room below said of this record. */
static gyre_status blame(loader *l, gyre_status status, const char *text)
{
    if (status == GYRE_OK)
        return GYRE_OK;
    if (status == GYRE_NO_MEMORY)
        return gyre_fail(l->error, status, "%s: %s", l->source->file, text);
    return REFUSE(l, "%s", text);
}

/* ---- head ---------------------------------------------------------------- */

static gyre_status take_problem(loader *l, const gyre_record *r)
{
    gyre_problem *p = &l->spec.problem;
    *p = (gyre_problem){.size = sizeof(*p),
                        .ranks = (uint32_t)r->values[0],
                        .batch = (uint32_t)r->values[1],
                        .heads = (uint32_t)r->values[2],
                        .kv_heads = (uint32_t)r->values[3],
                        .head_dim = (uint32_t)r->values[4],
                        .v_head_dim = (uint32_t)r->values[5],
                        .dtype = (uint32_t)r->values[6],
                        .wire_dtype = (uint32_t)r->values[7],
                        .tokens = {r->values[8], r->values[9]}};
    for (int side = 0; side < GYRE_SIDE_COUNT; side++)
        if (p->tokens[side] > MOST_TOKENS)
            return REFUSE(l, "%llu tokens: plans in files have at most %llu",
                          (unsigned long long)p->tokens[side],
                          (unsigned long long)MOST_TOKENS);
    return GYRE_OK;
}

static gyre_status take_mask(loader *l, const gyre_record *r)
{
    if (r->values[0] > 1)
        return REFUSE(l, "causal is 0 or 1, not %llu",
                      (unsigned long long)r->values[0]);
    gyre_mask *m = &l->mask;
    *m = (gyre_mask){.size = sizeof(*m),
                     .causal = (uint32_t)r->values[0],
                     .window = r->values[1],
                     .document_count = (uint32_t)r->values[2],
                     .block_q = r->values[3],
                     .block_k = r->values[4],
                     .block_rows = (uint32_t)r->values[5],
                     .block_columns = (uint32_t)r->values[6]};
    uint64_t blocks = (uint64_t)m->block_rows * m->block_columns;
    if (blocks > MOST_BLOCKS)
        return REFUSE(l, "%u x %u blocks: at most %d", m->block_rows,
                      m->block_columns, MOST_BLOCKS);
    if (blocks == 0 && (m->block_q | m->block_k) != 0)
        return REFUSE(l, "%u x %u blocks: at least 1 x 1, or no blocks",
                      m->block_rows, m->block_columns);
    if (blocks == 0)
        return GYRE_OK;
    l->block_room = (size_t)blocks;
    l->blocks = gyre_alloc_zero(l->context, l->block_room, 1);
    m->blocks = l->blocks;
    return l->blocks != NULL ? GYRE_OK
                             : gyre_fail(l->error, GYRE_NO_MEMORY,
                                         "%s: no memory for %zu blocks",
                                         l->source->file, l->block_room);
}

static gyre_status take_documents(loader *l, const gyre_record *r)
{
    if (l->bounds_due > 0 || l->document_used == l->mask.document_count)
        return REFUSE(l,
                      "the mask has %u tables of documents, or the one "
                      "before lacks bounds",
                      l->mask.document_count);
    gyre_status status = grow(l, &l->documents, l->document_used,
                              &l->document_room, sizeof(*l->documents));
    if (status != GYRE_OK)
        return status;
    uint32_t count = (uint32_t)r->values[0];
    if (count == UINT32_MAX)
        return REFUSE(l, "%u documents are too many", count);
    l->documents[l->document_used++] = (gyre_documents){.count = count};
    l->bounds_due = count > 0 ? count + 1 : 0;
    return GYRE_OK;
}

static gyre_status take_bound(loader *l, const gyre_record *r)
{
    if (l->bounds_due == 0)
        return REFUSE(l, "a bound stands behind no table that lacks it");
    gyre_status status =
        grow(l, &l->bounds, l->bound_count, &l->bound_room, sizeof(*l->bounds));
    if (status != GYRE_OK)
        return status;
    l->bounds[l->bound_count++] = r->values[0];
    l->bounds_due--;
    return GYRE_OK;
}

static gyre_status take_block(loader *l, const gyre_record *r)
{
    if (r->values[0] >= l->mask.block_rows ||
        r->values[1] >= l->mask.block_columns)
        return REFUSE(l, "there is no block in row %llu, column %llu",
                      (unsigned long long)r->values[0],
                      (unsigned long long)r->values[1]);
    l->blocks[r->values[0] * l->mask.block_columns + r->values[1]] = 1;
    return GYRE_OK;
}

static gyre_status take_chunk(loader *l, const gyre_record *r)
{
    uint32_t side = (uint32_t)r->values[0];
    uint32_t *count = &l->spec.problem.chunk_count[side];
    gyre_status status = grow(l, &l->chunks[side], *count, &l->chunk_room[side],
                              sizeof(gyre_chunk));
    if (status != GYRE_OK)
        return status;
    l->chunks[side][(*count)++] = (gyre_chunk){.start = r->values[1],
                                               .length = r->values[2],
                                               .stride = r->values[3],
                                               .owner = (uint32_t)r->values[4]};
    return GYRE_OK;
}

/* The head is whole: lay the plan out. */
static gyre_status begin(loader *l)
{
    const uint32_t needed = 1u << GYRE_RECORD_PLAN | 1u << GYRE_RECORD_NAME |
                            1u << GYRE_RECORD_PASS | 1u << GYRE_RECORD_PROBLEM |
                            1u << GYRE_RECORD_MASK;
    for (uint32_t code = 0; code <= GYRE_RECORD_MASK; code++)
        if (~l->seen & needed & 1u << code)
            return REFUSE(l, "'%s' is missing above this",
                          gyre_record_forms[code].word);
    if (l->bounds_due > 0 || l->document_used < l->mask.document_count)
        return REFUSE(l, "tables of documents are missing above this");
    gyre_problem *p = &l->spec.problem;
    for (int side = 0; side < GYRE_SIDE_COUNT; side++) {
        if (p->chunk_count[side] == 0)
            return REFUSE(l, "chunks of side %s are missing above this",
                          gyre_field_name(GYRE_FIELD_SIDE, (uint64_t)side));
        p->chunks[side] = l->chunks[side];
    }
    for (uint32_t d = 0, at = 0; d < l->document_used; d++) {
        uint32_t count = l->documents[d].count;
        l->documents[d].bounds = count > 0 ? l->bounds + at : NULL;
        at += count > 0 ? count + 1 : 0;
    }
    l->mask.documents = l->documents;
    l->spec.name = l->name;
    l->spec.mask = &l->mask;
    gyre_error error = {0};
    gyre_status status =
        gyre_plan_begin(l->context, &l->spec, &l->plan, &error);
    l->stage = ROWS;
    return blame(l, status, error.text);
}

static gyre_status take_head(loader *l, const gyre_record *r)
{
    bool once = r->code <= GYRE_RECORD_MASK;
    if (once && l->seen >> r->code & 1)
        return REFUSE(l, "'%s' stands twice", gyre_record_forms[r->code].word);
    l->seen |= 1u << r->code;
    switch (r->code) {
    case GYRE_RECORD_PLAN:
        return r->values[0] == GYRE_PLAN_FILE_VERSION
                   ? GYRE_OK
                   : REFUSE(l,
                            "a plan of version %llu: this program reads "
                            "version %d",
                            (unsigned long long)r->values[0],
                            GYRE_PLAN_FILE_VERSION);
    case GYRE_RECORD_NAME:
        memcpy(l->name, r->text, sizeof(l->name));
        return GYRE_OK;
    case GYRE_RECORD_PASS:
        l->spec.pass = (uint32_t)r->values[0];
        return GYRE_OK;
    case GYRE_RECORD_PROBLEM:
        return take_problem(l, r);
    case GYRE_RECORD_MASK:
        return take_mask(l, r);
    case GYRE_RECORD_DOCUMENTS:
        return take_documents(l, r);
    case GYRE_RECORD_BOUND:
        return take_bound(l, r);
    case GYRE_RECORD_BLOCK:
        return take_block(l, r);
    default:
        return take_chunk(l, r);
    }
}

/* ---- row sets ------------------------------------------------------------ */

static gyre_status take_rows(loader *l, const gyre_record *r)
{
    uint32_t side = (uint32_t)r->values[0];
    for (uint32_t i = 0; i < r->list_count; i++)
        if (r->list[i] >= l->plan->problem.chunk_count[side] ||
            (i > 0 && r->list[i] <= r->list[i - 1]))
            return REFUSE(l, "chunk %u: chunks of rows ascend and are below %u",
                          r->list[i], l->plan->problem.chunk_count[side]);
    gyre_status status =
        grow(l, &l->rows, l->row_count, &l->row_room, sizeof(*l->rows));
    if (status != GYRE_OK)
        return status;
    uint32_t id = gyre_plan_intern_rows(l->plan, side, r->list, r->list_count);
    if (id == GYRE_NO_VIEW)
        return gyre_fail(l->error, GYRE_NO_MEMORY, "%s: no memory for rows",
                         l->source->file);
    l->rows[l->row_count++] = id;
    return GYRE_OK;
}

static uint32_t row_id(const loader *l, uint64_t number)
{
    return number < l->row_count ? l->rows[number] : GYRE_NO_VIEW;
}

/* ---- one rank ------------------------------------------------------------ */

static gyre_status close_rank(loader *l)
{
    if (l->stage != RANK)
        return GYRE_OK;
    gyre_error error = {0};
    gyre_status status = gyre_builder_close(&l->builder, &error);
    l->stage = ROWS;
    return blame(l, status, error.text);
}

static gyre_status take_rank(loader *l, const gyre_record *r)
{
    gyre_status status = close_rank(l);
    if (status != GYRE_OK)
        return status;
    if (r->values[0] < l->next_rank || r->values[0] >= l->plan->problem.ranks)
        return REFUSE(l, "rank %llu: ranks ascend and are below %u",
                      (unsigned long long)r->values[0], l->plan->problem.ranks);
    l->next_rank = (uint32_t)r->values[0] + 1;
    gyre_builder_open(&l->builder, l->plan, (uint32_t)r->values[0]);
    l->stage = RANK;
    return GYRE_OK;
}

static gyre_status take_slot(loader *l, const gyre_record *r)
{
    uint64_t buf = r->values[5], bufs = l->builder.program.buf_count;
    if (buf > bufs)
        return REFUSE(l, "buf %llu: the next new one is %llu",
                      (unsigned long long)buf, (unsigned long long)bufs);
    gyre_plan_slot slot = {.kind = (uint32_t)r->values[0],
                           .rows = row_id(l, r->values[1]),
                           .h0 = (uint32_t)r->values[2],
                           .h1 = (uint32_t)r->values[3],
                           .dtype = (uint32_t)r->values[4],
                           .buf = buf == bufs ? GYRE_NEW_BUF : (uint32_t)buf,
                           .flags = (uint32_t)r->values[6]};
    gyre_plan_host_table.slot(&l->builder, &slot);
    return GYRE_OK;
}

static gyre_status take_view(loader *l, const gyre_record *r)
{
    uint32_t due = l->builder.program.view_count;
    uint32_t id = gyre_plan_host_table.view(
        &l->builder, (uint32_t)r->values[0], row_id(l, r->values[1]),
        (uint32_t)r->values[2], (uint32_t)r->values[3], (uint32_t)r->values[4]);
    if (l->builder.status == GYRE_OK && id != due)
        return REFUSE(l, "view %u is the same as view %u", due, id);
    return GYRE_OK;
}

static gyre_status take_step(loader *l, const gyre_record *r)
{
    const gyre_plan_host *host = &gyre_plan_host_table;
    gyre_builder *b = &l->builder;
    uint32_t first = (uint32_t)r->values[0], second = (uint32_t)r->values[1];
    gyre_status status = GYRE_OK;
    switch (r->code) {
    case GYRE_RECORD_SLOT:
        status = take_slot(l, r);
        break;
    case GYRE_RECORD_VIEW:
        status = take_view(l, r);
        break;
    case GYRE_RECORD_GROUP:
        host->begin(b, first, r->text, second);
        break;
    case GYRE_RECORD_PUT:
        host->put(b, first, second, (uint32_t)r->values[2]);
        break;
    case GYRE_RECORD_GET:
        host->get(b, first, second, (uint32_t)r->values[2]);
        break;
    case GYRE_RECORD_END:
        host->end(b);
        break;
    default:
        host->op(b, second, first, r->list, r->list_count);
    }
    return status == GYRE_OK ? blame(l, b->status, b->error.text) : status;
}

/* ---- all ----------------------------------------------------------------- */

static gyre_status take(loader *l, const gyre_record *r)
{
    gyre_status status = GYRE_OK;
    if (l->seen == 0 && r->code != GYRE_RECORD_PLAN)
        return REFUSE(l, "not a plan: 'gyre-plan %d' stands first in one",
                      GYRE_PLAN_FILE_VERSION);
    if (r->code <= GYRE_RECORD_CHUNK)
        return l->stage == HEAD ? take_head(l, r)
                                : REFUSE(l, "'%s' must stand above all rows",
                                         gyre_record_forms[r->code].word);
    if (l->stage == HEAD)
        status = begin(l);
    if (status != GYRE_OK)
        return status;
    if (r->code == GYRE_RECORD_ROWS)
        return l->stage == ROWS && l->next_rank == 0
                   ? take_rows(l, r)
                   : REFUSE(l, "'rows' must stand above all ranks");
    if (r->code == GYRE_RECORD_RANK)
        return take_rank(l, r);
    if (r->code == GYRE_RECORD_DONE) {
        status = close_rank(l);
        l->stage = DONE;
        return status;
    }
    return l->stage == RANK ? take_step(l, r)
                            : REFUSE(l, "'%s' must stand behind a 'rank'",
                                     gyre_record_forms[r->code].word);
}

static void release(loader *l, const gyre_source *source)
{
    for (int side = 0; side < GYRE_SIDE_COUNT; side++)
        gyre_free(l->context, l->chunks[side], l->chunk_room[side],
                  sizeof(gyre_chunk));
    gyre_free(l->context, l->documents, l->document_room,
              sizeof(*l->documents));
    gyre_free(l->context, l->bounds, l->bound_room, sizeof(*l->bounds));
    gyre_free(l->context, l->blocks, l->block_room, 1);
    gyre_free(l->context, l->rows, l->row_room, sizeof(*l->rows));
    gyre_free(l->context, source->list, source->list_room,
              sizeof(*source->list));
}

gyre_status gyre_plan_read(gyre_context *context, const char *file,
                           const void *data, size_t size, gyre_plan **out,
                           gyre_error *error)
{
    gyre_source source = {
        .context = context, .file = file, .data = data, .size = size};
    loader *l = gyre_alloc_zero(context, 1, sizeof(*l));
    if (l == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "%s: no memory to read it",
                         file);
    l->context = context;
    l->source = &source;
    l->error = error;
    if (gyre_binary_is(data, size))
        gyre_binary_open(&source);
    else
        gyre_text_open(&source);
    gyre_status status = GYRE_OK;
    while (status == GYRE_OK && l->stage != DONE) {
        gyre_record record;
        status = source.next(&source, &record, error);
        if (status == GYRE_OK)
            status = take(l, &record);
    }
    if (status == GYRE_OK)
        status = source.close(&source, error);
    if (l->stage == RANK)
        gyre_program_free(context, &l->builder.program);
    if (status == GYRE_OK)
        *out = l->plan;
    else
        gyre_plan_free(l->plan);
    release(l, &source);
    gyre_free(context, l, 1, sizeof(*l));
    return status;
}
