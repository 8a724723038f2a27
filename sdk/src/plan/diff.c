/* SPDX-License-Identifier: Apache-2.0 */
/* What two plans do not share: their problems, and the loop over ranks. */
#include "plan/diff.h"

#include <string.h>

void gyre_diff_tell(differ *d, const char *what, uint32_t rank, uint32_t one,
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
    char text[DIFF_TEXT_BYTES];
    if (one == other)
        return;
    gyre_print(text, sizeof(text), 0, "%s %llu, %llu", name,
               (unsigned long long)one, (unsigned long long)other);
    gyre_diff_tell(d, "problem", GYRE_NO_VIEW, GYRE_NO_VIEW, GYRE_NO_VIEW,
                   text);
}

static void words(differ *d, const char *name, const char *one,
                  const char *other)
{
    char text[DIFF_TEXT_BYTES];
    if (one == NULL || other == NULL || strcmp(one, other) == 0)
        return;
    gyre_print(text, sizeof(text), 0, "%s %s, %s", name, one, other);
    gyre_diff_tell(d, "problem", GYRE_NO_VIEW, GYRE_NO_VIEW, GYRE_NO_VIEW,
                   text);
}

static void differs(differ *d, bool same, const char *text)
{
    if (!same)
        gyre_diff_tell(d, "problem", GYRE_NO_VIEW, GYRE_NO_VIEW, GYRE_NO_VIEW,
                       text);
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
    const gyre_problem *a = &d->plans[0]->problem, *b = &d->plans[1]->problem;
    const gyre_mask *m = d->plans[0]->mask, *n = d->plans[1]->mask;
    words(d, "pass", d->plans[0]->pass ? "backward" : "forward",
          d->plans[1]->pass ? "backward" : "forward");
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

/* ---- the whole ------------------------------------------------------------
 */

static bool hash_rows(differ *d, int which)
{
    const gyre_plan *plan = d->plans[which];
    uint64_t *hashes =
        gyre_alloc(d->context, (size_t)plan->row_count + 1, sizeof(*hashes));
    d->row_hashes[which] = hashes;
    for (uint32_t i = 0; hashes != NULL && i < plan->row_count; i++) {
        const uint32_t *chunks = gyre_plan_row_list(plan, i);
        hashes[i] = gyre_plan_mix(plan->rows[i].side, plan->rows[i].count);
        for (uint32_t k = 0; k < plan->rows[i].count; k++)
            hashes[i] = gyre_plan_mix(hashes[i], chunks[k]);
    }
    return hashes != NULL;
}

gyre_status gyre_plan_diff(const gyre_plan *one, const gyre_plan *other,
                           void (*each)(void *user,
                                        const gyre_plan_difference *difference),
                           void *user, uint64_t *count, gyre_error *error)
{
    differ d = {{one, other}, each, user, 0, one->context, {NULL, NULL}};
    uint32_t ranks = one->problem.ranks < other->problem.ranks
                         ? one->problem.ranks
                         : other->problem.ranks;
    gyre_status status = GYRE_OK;
    if (!hash_rows(&d, 0) || !hash_rows(&d, 1))
        status = gyre_fail(error, GYRE_NO_MEMORY, "no memory to compare plans");
    else
        compare_problem(&d);
    for (uint32_t r = 0; r < ranks && status == GYRE_OK; r++)
        status = gyre_diff_program(&d, r, error);
    gyre_free(d.context, d.row_hashes[0], (size_t)one->row_count + 1,
              sizeof(uint64_t));
    gyre_free(d.context, d.row_hashes[1], (size_t)other->row_count + 1,
              sizeof(uint64_t));
    if (status == GYRE_OK && count != NULL)
        *count = d.count;
    return status;
}
