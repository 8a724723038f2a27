/* SPDX-License-Identifier: Apache-2.0 */
/* An executor's memory: taken at once, freed at once. */
#include "attention/executor.h"

#include <stdio.h>
#include <string.h>

/* ---- slots -----------------------------------------------------------------
 */

static bool same_rows(const gyre_plan *a, uint32_t rows, const gyre_plan *b,
                      uint32_t other)
{
    const gyre_plan_rows *x = &a->rows[rows], *y = &b->rows[other];
    return x->side == y->side && x->count == y->count &&
           memcmp(gyre_plan_row_list(a, rows), gyre_plan_row_list(b, other),
                  x->count * sizeof(uint32_t)) == 0;
}

const gyre_slot_place *gyre_executor_saved(const gyre_executor *x,
                                           const gyre_plan *plan,
                                           const gyre_plan_slot *slot)
{
    for (uint32_t i = 0; x != NULL && i < x->program->slot_count; i++) {
        const gyre_plan_slot *s = &x->program->slots[i];
        if (s->flags & GYRE_SLOT_SAVED && s->kind == slot->kind &&
            s->h0 == slot->h0 && s->h1 == slot->h1 && s->dtype == slot->dtype &&
            same_rows(x->plan, s->rows, plan, slot->rows))
            return &x->places[i];
    }
    return NULL;
}

/* Slots of a backward plan that forward has kept: not ours to allocate. */
static bool is_bound(const gyre_executor *x, const gyre_plan_slot *slot)
{
    return slot->flags & GYRE_SLOT_EXTERNAL ||
           (x->plan->pass == GYRE_PASS_BACKWARD &&
            slot->flags & GYRE_SLOT_SAVED);
}

static uint32_t leaves_of(const gyre_executor *x, const gyre_plan_slot *slot)
{
    return gyre_leaves_of(&x->leaves, slot->kind);
}

/* buf_bytes: the largest tenant, 0 where the buf is bound; then it has no other
 * tenant. */
static gyre_status size_bufs(gyre_executor *x, gyre_error *error)
{
    const gyre_plan_program *p = x->program;
    for (uint32_t i = 0; i < p->slot_count; i++) {
        const gyre_plan_slot *slot = &p->slots[i];
        uint32_t *tenants = &x->tenants[slot->buf]; /* 1 + bound, or 1 */
        bool bound = is_bound(x, slot);
        if (*tenants != 0 && (bound || *tenants == 2))
            return gyre_fail(error, GYRE_PLAN,
                             "plan '%s', rank %u: slot %u shares buf %u, which "
                             "is the user's own or kept by forward",
                             x->plan->name, x->rank, i, slot->buf);
        *tenants = bound ? 2 : 1;
        uint64_t bytes = gyre_slot_bytes(x->plan, slot);
        if (!gyre_mul(bytes, leaves_of(x, slot), &bytes) ||
            bytes > SIZE_MAX / 2)
            return gyre_fail(error, GYRE_NO_MEMORY,
                             "plan '%s', rank %u: slot %u is too large",
                             x->plan->name, x->rank, i);
        if (!bound && bytes > x->buf_bytes[slot->buf])
            x->buf_bytes[slot->buf] = bytes;
    }
    return GYRE_OK;
}

/* An address that is none: where something is measured or not yet bound. */
enum { ALIGN = 64 };
#define NOWHERE ((char *)(uintptr_t)ALIGN)

static gyre_status place_slots(gyre_executor *x, gyre_error *error)
{
    const gyre_plan_program *p = x->program;
    for (uint32_t i = 0; i < p->slot_count; i++) {
        const gyre_plan_slot *slot = &p->slots[i];
        if (!is_bound(x, slot)) {
            gyre_place_dense(x->plan, slot, leaves_of(x, slot),
                             x->bufs[slot->buf] ? x->bufs[slot->buf] : NOWHERE,
                             &x->places[i]);
            continue;
        }
        if (slot->flags & GYRE_SLOT_EXTERNAL) {
            if (slot->rows !=
                    x->plan->owned[gyre_value_side(slot->kind)][x->rank] ||
                slot->h0 != 0 || slot->h1 != x->plan->problem.heads)
                return gyre_fail(error, GYRE_PLAN,
                                 "plan '%s', rank %u: slot %u is the user's "
                                 "but not all rows and heads of the rank",
                                 x->plan->name, x->rank, i);
        }
        /* Parts and dims now, addresses in gyre_executor_bind. */
        gyre_place_dense(x->plan, slot, 1, NOWHERE, &x->places[i]);
        if (slot->flags & GYRE_SLOT_EXTERNAL || x->options.saved == NULL)
            continue;
        const gyre_slot_place *kept =
            gyre_executor_saved(x->options.saved, x->plan, slot);
        if (kept == NULL)
            return gyre_fail(error, GYRE_PLAN,
                             "plan '%s', rank %u: slot %u (%s) is to be what "
                             "forward kept, and forward keeps no such slot",
                             x->plan->name, x->rank, i,
                             gyre_value_name(slot->kind));
    }
    return GYRE_OK;
}

gyre_status gyre_executor_bind(gyre_executor *x,
                               const gyre_attention_tensors *user,
                               gyre_error *error)
{
    const gyre_plan_program *p = x->program;
    for (uint32_t i = 0; i < p->slot_count; i++) {
        const gyre_plan_slot *slot = &p->slots[i];
        gyre_status status = GYRE_OK;
        if (slot->flags & GYRE_SLOT_EXTERNAL)
            status = gyre_place_user(x->plan, slot, x->rank, user,
                                     &x->places[i], error);
        else if (is_bound(x, slot)) /* forward may have been bound anew */
            x->places[i] =
                *gyre_executor_saved(x->options.saved, x->plan, slot);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

/* ---- all memory -----------------------------------------------------------
 */

static bool take_tables(gyre_executor *x)
{
    gyre_context *context = x->context;
    const gyre_plan_program *p = x->program;
    size_t bufs = (size_t)p->buf_count + 1, slots = (size_t)p->slot_count + 1;
    x->bufs = gyre_alloc_zero(context, bufs, sizeof(*x->bufs));
    x->buf_bytes = gyre_alloc_zero(context, bufs, sizeof(*x->buf_bytes));
    x->tenants = gyre_alloc_zero(context, bufs, sizeof(*x->tenants));
    x->places = gyre_alloc_zero(context, slots, sizeof(*x->places));
    x->piece_room = gyre_executor_piece_room(x->plan, x->rank);
    x->pieces = gyre_alloc(context, x->piece_room,
                           GYRE_EXECUTOR_PIECES * sizeof(gyre_piece));
    x->runs = gyre_alloc(context, x->piece_room, sizeof(*x->runs));
    return x->bufs != NULL && x->buf_bytes != NULL && x->tenants != NULL &&
           x->places != NULL && x->pieces != NULL && x->runs != NULL;
}

static void free_tables(gyre_executor *x)
{
    gyre_context *context = x->context;
    const gyre_plan_program *p = x->program;
    size_t bufs = (size_t)p->buf_count + 1, slots = (size_t)p->slot_count + 1;
    gyre_free(context, x->bufs, bufs, sizeof(*x->bufs));
    gyre_free(context, x->buf_bytes, bufs, sizeof(*x->buf_bytes));
    gyre_free(context, x->tenants, bufs, sizeof(*x->tenants));
    gyre_free(context, x->places, slots, sizeof(*x->places));
    gyre_free(context, x->pieces, x->piece_room,
              GYRE_EXECUTOR_PIECES * sizeof(gyre_piece));
    gyre_free(context, x->runs, x->piece_room, sizeof(*x->runs));
}

static gyre_status take_bufs(gyre_executor *x, gyre_error *error)
{
    for (uint32_t i = 0; i < x->program->buf_count; i++) {
        if (x->buf_bytes[i] == 0)
            continue;
        x->bufs[i] =
            gyre_alloc_aligned(x->context, (size_t)x->buf_bytes[i], ALIGN);
        if (x->bufs[i] == NULL)
            return gyre_fail(error, GYRE_NO_MEMORY,
                             "plan '%s', rank %u: no memory for buf %u of "
                             "%llu bytes",
                             x->plan->name, x->rank, i,
                             (unsigned long long)x->buf_bytes[i]);
    }
    return GYRE_OK;
}

static void free_bufs(gyre_executor *x)
{
    for (uint32_t i = 0; x->bufs != NULL && i < x->program->buf_count; i++)
        if (x->bufs[i] != NULL)
            gyre_free_aligned(x->context, x->bufs[i], (size_t)x->buf_bytes[i],
                              ALIGN);
}

static gyre_status size_scratch(gyre_executor *x, gyre_error *error)
{
    const gyre_plan_program *p = x->program;
    for (uint32_t i = 0; i < p->op_count; i++) {
        const gyre_plan_op *op = &p->ops[i];
        if (op->code != GYRE_OP_ATT && op->code != GYRE_OP_GRD)
            continue;
        gyre_status status =
            gyre_executor_blocks(x, op, gyre_executor_largest, error);
        if (status != GYRE_OK)
            return status;
    }
    x->fold_bytes = 0;
    for (uint32_t i = 0; x->leaves.count[0] > 0 && i < p->slot_count; i++) {
        const gyre_plan_slot *slot = &p->slots[i];
        const gyre_problem *problem = &x->plan->problem;
        uint32_t dim = problem->head_dim > problem->v_head_dim
                           ? problem->head_dim
                           : problem->v_head_dim;
        size_t bytes =
            gyre_leaves_fold_bytes(x->plan->rows[slot->rows].tokens, dim,
                                   (gyre_dtype)problem->sum_dtype);
        if (gyre_value_is_sum(slot->kind) && bytes > x->fold_bytes)
            x->fold_bytes = bytes;
    }
    return GYRE_OK;
}

/* ---- open ------------------------------------------------------------------
 */

/* Tables, sizes and places; not yet the bufs. */
static gyre_status prepare(gyre_executor *x, gyre_error *error)
{
    /* A device has its own; where ops sleep there is nothing to share. */
    if (x->options.workers == 0 || x->options.flops > 0)
        x->options.workers = 1;
    gyre_status status = gyre_executor_choose(x, error);
    if (status == GYRE_OK && x->module != NULL)
        x->options.workers = 1;
    if (status == GYRE_OK)
        status = gyre_leaves_make(x->plan, x->options.tiles, &x->leaves, error);
    if (status != GYRE_OK)
        return status;
    if (!take_tables(x))
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "plan '%s', rank %u: no memory to run it",
                         x->plan->name, x->rank);
    status = gyre_executor_check(x->plan, x->rank, x->pieces, error);
    if (status == GYRE_OK)
        status = size_bufs(x, error);
    return status;
}

gyre_status gyre_executor_open(const gyre_plan *plan, uint32_t rank,
                               gyre_endpoint *endpoint,
                               const gyre_executor_options *options,
                               gyre_executor **out, gyre_error *error)
{
    gyre_executor *x = gyre_alloc_zero(plan->context, 1, sizeof(*x));
    if (x == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for an executor");
    x->context = plan->context;
    x->plan = plan;
    x->program = &plan->programs[rank];
    x->rank = rank;
    x->endpoint = endpoint;
    x->options = *options;
    gyre_status status = prepare(x, error);
    if (status == GYRE_OK)
        status =
            gyre_team_open(x->context, x->options.workers, &x->team, error);
    if (status == GYRE_OK)
        status = take_bufs(x, error);
    if (status == GYRE_OK)
        status = place_slots(x, error);
    if (status == GYRE_OK)
        status = size_scratch(x, error);
    if (status == GYRE_OK)
        status = gyre_executor_open_device(x, error);
    if (status == GYRE_OK)
        status = gyre_queue_open(x, error);
    if (status == GYRE_OK && x->scratch_bytes > 0)
        x->scratch = gyre_alloc_aligned(x->context, x->scratch_bytes, ALIGN);
    if (status == GYRE_OK && x->fold_bytes > 0)
        x->fold = gyre_alloc_aligned(x->context, x->fold_bytes, ALIGN);
    if (status == GYRE_OK && ((x->scratch_bytes > 0 && x->scratch == NULL) ||
                              (x->fold_bytes > 0 && x->fold == NULL)))
        status = gyre_fail(error, GYRE_NO_MEMORY,
                           "plan '%s', rank %u: no memory for the kernel's "
                           "scratch of %zu bytes",
                           plan->name, rank, x->scratch_bytes + x->fold_bytes);
    if (status != GYRE_OK) {
        gyre_executor_close(x);
        return status;
    }
    *out = x;
    return GYRE_OK;
}

void gyre_executor_close(gyre_executor *x)
{
    if (x == NULL)
        return;
    gyre_queue_close(x);
    gyre_team_close(&x->team);
    gyre_block_device_close(x->device);
    free_bufs(x);
    if (x->scratch != NULL)
        gyre_free_aligned(x->context, x->scratch, x->scratch_bytes, ALIGN);
    if (x->fold != NULL)
        gyre_free_aligned(x->context, x->fold, x->fold_bytes, ALIGN);
    free_tables(x);
    gyre_free(x->context, x, 1, sizeof(*x));
}

/* ---- measuring
 * --------------------------------------------------------------- */

/* Bytes of the bufs that forward keeps: where a slot of the backward plan is
 * bound to it. */
static uint64_t saved_bytes(const gyre_executor *x)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < x->program->slot_count; i++) {
        const gyre_plan_slot *slot = &x->program->slots[i];
        if (is_bound(x, slot) && !(slot->flags & GYRE_SLOT_EXTERNAL))
            bytes += gyre_slot_bytes(x->plan, slot);
    }
    return bytes;
}

gyre_status gyre_executor_measure(const gyre_plan *plan, uint32_t rank,
                                  const gyre_executor_options *options,
                                  gyre_executor_memory *out, gyre_error *error)
{
    gyre_executor x = {.context = plan->context,
                       .plan = plan,
                       .program = &plan->programs[rank],
                       .rank = rank,
                       .options = *options};
    gyre_executor_memory memory = {0};
    x.options.saved = NULL;
    gyre_status status = prepare(&x, error);
    if (status == GYRE_OK)
        status = gyre_plan_count_memory(plan, rank, &memory.bufs,
                                        &memory.external, error);
    if (status == GYRE_OK)
        status = place_slots(&x, error);
    if (status == GYRE_OK)
        status = size_scratch(&x, error);
    memory.scratch = x.scratch_bytes;
    if (status == GYRE_OK && x.module != NULL)
        status = gyre_device_room_bytes(&x.room, &memory.scratch, error);
    if (status == GYRE_OK) {
        uint64_t own = 0;
        for (uint32_t i = 0; i < x.program->buf_count; i++)
            own += x.buf_bytes[i];
        memory.saved = saved_bytes(&x);
        memory.leaves =
            own + x.fold_bytes + memory.external + memory.saved - memory.bufs;
        *out = memory;
    }
    free_tables(&x);
    return status;
}
