/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two plans do not share.  Slots and ops are compared by their text: two
 * lists, cut at their common head and tail, and between them the longest common
 * subsequence; what is not in it goes or comes.
 */
#include "plan/plan.h"

#include <string.h>

enum { TEXT_BYTES = 512, MOST_CELLS = 1 << 24 };

typedef struct differ {
    const gyre_plan *one, *other;
    void (*each)(void *user, const gyre_plan_difference *difference);
    void *user;
    uint64_t count;
    gyre_context *context;
} differ;

static void tell(differ *d, const char *what, uint32_t rank, uint32_t one,
                 uint32_t other, const char *text)
{
    d->count++;
    if (d->each != NULL)
        d->each(d->user, &(gyre_plan_difference){sizeof(gyre_plan_difference),
                                                 what, rank, one, other, text});
}

/* ---- the problem --------------------------------------------------------- */

static void number(differ *d, const char *name, uint64_t one, uint64_t other)
{
    char text[TEXT_BYTES];
    if (one == other)
        return;
    gyre_print(text, sizeof(text), 0, "%s %llu, %llu", name,
               (unsigned long long)one, (unsigned long long)other);
    tell(d, "problem", GYRE_NO_VIEW, GYRE_NO_VIEW, GYRE_NO_VIEW, text);
}

static void words(differ *d, const char *name, const char *one,
                  const char *other)
{
    char text[TEXT_BYTES];
    if (one == NULL || other == NULL || strcmp(one, other) == 0)
        return;
    gyre_print(text, sizeof(text), 0, "%s %s, %s", name, one, other);
    tell(d, "problem", GYRE_NO_VIEW, GYRE_NO_VIEW, GYRE_NO_VIEW, text);
}

static void differs(differ *d, bool same, const char *text)
{
    if (!same)
        tell(d, "problem", GYRE_NO_VIEW, GYRE_NO_VIEW, GYRE_NO_VIEW, text);
}

static bool same_chunks(const gyre_problem *a, const gyre_problem *b, int side)
{
    if (a->chunk_count[side] != b->chunk_count[side])
        return false;
    for (uint32_t i = 0; i < a->chunk_count[side]; i++) {
        const gyre_chunk *x = &a->chunks[side][i], *y = &b->chunks[side][i];
        if (x->start != y->start || x->length != y->length ||
            x->stride != y->stride || x->owner != y->owner)
            return false;
    }
    return true;
}

static bool same_documents(const gyre_mask *a, const gyre_mask *b)
{
    if (a->document_count != b->document_count)
        return false;
    for (uint32_t i = 0; i < a->document_count; i++) {
        const gyre_documents *x = &a->documents[i], *y = &b->documents[i];
        if (x->count != y->count)
            return false;
        for (uint32_t k = 0; x->count > 0 && k <= x->count; k++)
            if (x->bounds[k] != y->bounds[k])
                return false;
    }
    return true;
}

static bool same_blocks(const gyre_mask *a, const gyre_mask *b)
{
    if (a->blocks == NULL || b->blocks == NULL)
        return a->blocks == b->blocks;
    return a->block_q == b->block_q && a->block_k == b->block_k &&
           a->block_rows == b->block_rows &&
           a->block_columns == b->block_columns &&
           memcmp(a->blocks, b->blocks,
                  (size_t)a->block_rows * a->block_columns) == 0;
}

bool gyre_plan_same_problem(const gyre_plan *one, const gyre_plan *other)
{
    const gyre_problem *a = &one->problem, *b = &other->problem;
    const gyre_mask *m = one->mask, *n = other->mask;
    return a->ranks == b->ranks && a->batch == b->batch &&
           a->heads == b->heads && a->kv_heads == b->kv_heads &&
           a->head_dim == b->head_dim && a->v_head_dim == b->v_head_dim &&
           a->dtype == b->dtype && a->wire_dtype == b->wire_dtype &&
           same_chunks(a, b, GYRE_SIDE_Q) && same_chunks(a, b, GYRE_SIDE_KV) &&
           m->causal == n->causal && m->window == n->window &&
           same_documents(m, n) && same_blocks(m, n);
}

static void compare_problem(differ *d)
{
    const gyre_problem *a = &d->one->problem, *b = &d->other->problem;
    const gyre_mask *m = d->one->mask, *n = d->other->mask;
    words(d, "pass", d->one->pass ? "backward" : "forward",
          d->other->pass ? "backward" : "forward");
    number(d, "ranks", a->ranks, b->ranks);
    number(d, "batch", a->batch, b->batch);
    number(d, "heads", a->heads, b->heads);
    number(d, "kv-heads", a->kv_heads, b->kv_heads);
    number(d, "head-dim", a->head_dim, b->head_dim);
    number(d, "v-head-dim", a->v_head_dim, b->v_head_dim);
    words(d, "dtype", gyre_dtype_name((gyre_dtype)a->dtype),
          gyre_dtype_name((gyre_dtype)b->dtype));
    words(d, "wire-dtype", gyre_dtype_name((gyre_dtype)a->wire_dtype),
          gyre_dtype_name((gyre_dtype)b->wire_dtype));
    number(d, "tokens", a->tokens[0], b->tokens[0]);
    number(d, "kv-tokens", a->tokens[1], b->tokens[1]);
    differs(d, same_chunks(a, b, GYRE_SIDE_Q), "the chunks of Q differ");
    differs(d, same_chunks(a, b, GYRE_SIDE_KV), "the chunks of KV differ");
    number(d, "causal", m->causal, n->causal);
    number(d, "window", m->window, n->window);
    differs(d, same_documents(m, n), "the documents differ");
    differs(d, same_blocks(m, n), "the blocks of the mask differ");
}

/* ---- lists --------------------------------------------------------------- */

static void slot_text(const gyre_plan *plan, uint32_t rank, uint32_t i,
                      char *text)
{
    const gyre_plan_slot *s = &plan->programs[rank].slots[i];
    const gyre_plan_rows *rows = &plan->rows[s->rows];
    size_t n = gyre_print(
        text, TEXT_BYTES, 0, "%s %s heads %u to %u%s%s, chunks",
        gyre_value_name(s->kind), gyre_dtype_name((gyre_dtype)s->dtype), s->h0,
        s->h1, s->flags & GYRE_SLOT_EXTERNAL ? ", external" : "",
        s->flags & GYRE_SLOT_SAVED ? ", saved" : "");
    const uint32_t *list = gyre_plan_row_list(plan, s->rows);
    for (uint32_t k = 0; k < rows->count; k++)
        n = gyre_print(text, TEXT_BYTES, n, " %u", list[k]);
}

static void op_text(const gyre_plan *plan, uint32_t rank, uint32_t i,
                    char *text)
{
    gyre_plan_step step;
    gyre_plan_step_fill(plan, rank, 0, i, &step);
    gyre_plan_step_text(plan, &step, text, TEXT_BYTES);
}

typedef void text_of(const gyre_plan *plan, uint32_t rank, uint32_t i,
                     char *text);

typedef struct list {
    const gyre_plan *plan;
    uint64_t *hashes;
    uint32_t count, from, to; /* what is left of it */
} list;

static gyre_status hash_list(gyre_context *context, list *l, uint32_t rank,
                             text_of *text, gyre_error *error)
{
    l->hashes = gyre_alloc(context, (size_t)l->count + 1, sizeof(uint64_t));
    if (l->hashes == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory to compare plans");
    l->to = l->count;
    for (uint32_t i = 0; i < l->count; i++) {
        char out[TEXT_BYTES];
        text(l->plan, rank, i, out);
        uint64_t h = UINT64_C(0xcbf29ce484222325);
        for (const char *c = out; *c != '\0'; c++)
            h = (h ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
        l->hashes[i] = h;
    }
    return GYRE_OK;
}

static void trim(list *a, list *b)
{
    while (a->from < a->to && b->from < b->to &&
           a->hashes[a->from] == b->hashes[b->from])
        a->from++, b->from++;
    while (a->from < a->to && b->from < b->to &&
           a->hashes[a->to - 1] == b->hashes[b->to - 1])
        a->to--, b->to--;
}

static void tell_one(differ *d, const char *what, uint32_t rank,
                     const list *from, uint32_t i, bool first, text_of *text)
{
    char out[TEXT_BYTES];
    text(from->plan, rank, i, out);
    tell(d, what, rank, first ? i : GYRE_NO_VIEW, first ? GYRE_NO_VIEW : i,
         out);
}

/* cells[i][k]: the longest common subsequence of what follows i and k. */
static gyre_status tell_lists(differ *d, const char *what, uint32_t rank,
                              list *a, list *b, text_of *text,
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
            i++, k++;
        else if (i < n &&
                 (k == m || large ||
                  cell[(i + 1) * width + k] >= cell[i * width + k + 1]))
            tell_one(d, what, rank, a, a->from + (uint32_t)i++, true, text);
        else
            tell_one(d, what, rank, b, b->from + (uint32_t)k++, false, text);
    }
    gyre_free(d->context, cell, cells, sizeof(*cell));
    return GYRE_OK;
}

static gyre_status compare_lists(differ *d, const char *what, uint32_t rank,
                                 uint32_t one, uint32_t other, text_of *text,
                                 gyre_error *error)
{
    list a = {.plan = d->one, .count = one};
    list b = {.plan = d->other, .count = other};
    gyre_status status = hash_list(d->context, &a, rank, text, error);
    if (status == GYRE_OK)
        status = hash_list(d->context, &b, rank, text, error);
    if (status == GYRE_OK) {
        trim(&a, &b);
        if (a.from < a.to || b.from < b.to)
            status = tell_lists(d, what, rank, &a, &b, text, error);
    }
    gyre_free(d->context, a.hashes, (size_t)one + 1, sizeof(uint64_t));
    gyre_free(d->context, b.hashes, (size_t)other + 1, sizeof(uint64_t));
    return status;
}

/* The slots are the same: do they share storage alike? */
static void compare_bufs(differ *d, uint32_t rank)
{
    const gyre_plan_program *a = &d->one->programs[rank];
    const gyre_plan_program *b = &d->other->programs[rank];
    for (uint32_t i = 0; i < a->slot_count; i++) {
        char text[TEXT_BYTES];
        if (a->slots[i].buf == b->slots[i].buf)
            continue;
        size_t n =
            gyre_print(text, sizeof(text), 0,
                       "buf %u, buf %u: ", a->slots[i].buf, b->slots[i].buf);
        char slot[TEXT_BYTES];
        slot_text(d->one, rank, i, slot);
        gyre_print(text, sizeof(text), n, "%.400s", slot);
        tell(d, "buf", rank, i, i, text);
    }
}

static gyre_status compare_rank(differ *d, uint32_t rank, gyre_error *error)
{
    const gyre_plan_program *a = &d->one->programs[rank];
    const gyre_plan_program *b = &d->other->programs[rank];
    uint64_t before = d->count;
    gyre_status status = compare_lists(d, "slot", rank, a->slot_count,
                                       b->slot_count, slot_text, error);
    if (status == GYRE_OK && d->count == before)
        compare_bufs(d, rank);
    if (status == GYRE_OK)
        status = compare_lists(d, "op", rank, a->op_count, b->op_count, op_text,
                               error);
    return status;
}

gyre_status gyre_plan_diff(const gyre_plan *one, const gyre_plan *other,
                           void (*each)(void *user,
                                        const gyre_plan_difference *difference),
                           void *user, uint64_t *count, gyre_error *error)
{
    differ d = {one, other, each, user, 0, one->context};
    compare_problem(&d);
    uint32_t ranks = one->problem.ranks < other->problem.ranks
                         ? one->problem.ranks
                         : other->problem.ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        gyre_status status = compare_rank(&d, r, error);
        if (status != GYRE_OK)
            return status;
    }
    if (count != NULL)
        *count = d.count;
    return GYRE_OK;
}
