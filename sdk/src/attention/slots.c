/* SPDX-License-Identifier: Apache-2.0 */
/* Where slots lie: parts, rows, heads. */
#include "attention/attention.h"

/* The parts of a kind: dim, dtype and how heads are counted. */
static uint32_t parts_of(const gyre_problem *p, const gyre_plan_slot *slot,
                         gyre_part out[GYRE_MAX_PARTS])
{
    gyre_dtype dtype = (gyre_dtype)slot->dtype;
    gyre_dtype stat = (gyre_dtype)p->stat_dtype;
    switch (slot->kind) {
    case GYRE_VALUE_Q:
    case GYRE_VALUE_DQ:
    case GYRE_VALUE_DQ_SUM:
        out[0] = (gyre_part){.dim = p->head_dim, .dtype = dtype};
        return 1;
    case GYRE_VALUE_O:
    case GYRE_VALUE_DO:
        out[0] = (gyre_part){.dim = p->v_head_dim, .dtype = dtype};
        return 1;
    case GYRE_VALUE_ST:
        out[0] = out[1] = (gyre_part){.dim = 1, .dtype = stat};
        return 2;
    case GYRE_VALUE_O_SUM:
        out[0] = (gyre_part){.dim = p->v_head_dim, .dtype = dtype};
        out[1] = (gyre_part){.dim = 1, .dtype = stat};
        return 2;
    default:
        out[0] = (gyre_part){.dim = p->head_dim, .dtype = dtype, .kv = true};
        out[1] = (gyre_part){.dim = p->v_head_dim, .dtype = dtype, .kv = true};
        return 2;
    }
}

uint32_t gyre_part_wire(uint32_t kind, uint32_t i)
{
    return kind == GYRE_VALUE_O_SUM ? 1 - i : i;
}

void gyre_part_heads(const gyre_problem *problem, const gyre_part *part,
                     uint32_t h0, uint32_t h1, uint32_t *a, uint32_t *b)
{
    *a = h0;
    *b = h1;
    if (part->kv)
        gyre_kv_heads(problem, h0, h1, a, b);
}

void gyre_place_dense(const gyre_plan *plan, const gyre_plan_slot *slot,
                      uint32_t leaves, char *base, gyre_slot_place *out)
{
    const gyre_problem *p = &plan->problem;
    size_t rows = (size_t)plan->rows[slot->rows].tokens, at = 0;
    size_t bytes = (size_t)gyre_slot_bytes(plan, slot);
    out->count = parts_of(p, slot, out->part);
    out->leaves = leaves;
    for (uint32_t i = 0; i < out->count; i++) {
        gyre_part *part = &out->part[gyre_part_wire(slot->kind, i)];
        uint32_t a, b;
        gyre_part_heads(p, part, slot->h0, slot->h1, &a, &b);
        part->heads = b - a;
        part->leaf = bytes;
        part->plane.head0 = a;
        part->plane.row = part->dim * gyre_dtype_bytes(part->dtype);
        part->plane.head = rows * part->plane.row;
        part->plane.batch = part->heads * part->plane.head;
        part->plane.at = base != NULL ? base + at : NULL;
        at += p->batch * part->plane.batch;
    }
}

/* The tensors of an external kind, in the order of its parts. */
static void tensors_of(const gyre_attention_tensors *user, uint32_t kind,
                       const gyre_attention_tensor *tensor[GYRE_MAX_PARTS],
                       const char *name[GYRE_MAX_PARTS])
{
    static const char *const names[][GYRE_MAX_PARTS] = {
        [GYRE_VALUE_Q] = {"q", NULL},    [GYRE_VALUE_KV] = {"k", "v"},
        [GYRE_VALUE_O] = {"o", NULL},    [GYRE_VALUE_DO] = {"d_o", NULL},
        [GYRE_VALUE_DQ] = {"d_q", NULL}, [GYRE_VALUE_DKV] = {"d_k", "d_v"},
    };
    const gyre_attention_tensor *const at[][GYRE_MAX_PARTS] = {
        [GYRE_VALUE_Q] = {&user->q, NULL},
        [GYRE_VALUE_KV] = {&user->k, &user->v},
        [GYRE_VALUE_O] = {&user->o, NULL},
        [GYRE_VALUE_DO] = {&user->d_o, NULL},
        [GYRE_VALUE_DQ] = {&user->d_q, NULL},
        [GYRE_VALUE_DKV] = {&user->d_k, &user->d_v},
    };
    for (uint32_t i = 0; i < GYRE_MAX_PARTS; i++) {
        bool known = kind <= GYRE_VALUE_DKV && kind != GYRE_VALUE_ST;
        tensor[i] = known ? at[kind][i] : NULL;
        name[i] = known ? names[kind][i] : NULL;
    }
}

gyre_status gyre_place_user(const gyre_plan *plan, const gyre_plan_slot *slot,
                            uint32_t rank, const gyre_attention_tensors *user,
                            gyre_slot_place *out, gyre_error *error)
{
    const gyre_problem *p = &plan->problem;
    gyre_slot_place place = {.leaves = 1};
    const gyre_attention_tensor *tensor[GYRE_MAX_PARTS];
    const char *name[GYRE_MAX_PARTS];
    tensors_of(user, slot->kind, tensor, name);
    place.count = parts_of(p, slot, place.part);
    bool empty = plan->rows[slot->rows].tokens == 0;
    for (uint32_t i = 0; i < place.count; i++) {
        gyre_part *part = &place.part[i];
        size_t size = gyre_dtype_bytes(part->dtype);
        if (tensor[i] == NULL)
            return gyre_fail(error, GYRE_PLAN,
                             "plan '%s', rank %u: a slot of kind %s cannot be "
                             "the user's own",
                             plan->name, rank, gyre_value_name(slot->kind));
        if (tensor[i]->at == NULL && !empty)
            return gyre_fail(error, GYRE_MISSING,
                             "rank %u: tensor %s is not given", rank, name[i]);
        if ((uintptr_t)tensor[i]->at % size != 0)
            return gyre_fail(error, GYRE_INVALID,
                             "rank %u: tensor %s is not aligned to its element "
                             "of %zu bytes",
                             rank, name[i], size);
        part->heads = part->kv ? p->kv_heads : p->heads;
        part->plane = (gyre_plane){.at = tensor[i]->at,
                                   .batch = tensor[i]->batch * size,
                                   .head = tensor[i]->head * size,
                                   .row = tensor[i]->token * size};
    }
    *out = place;
    return GYRE_OK;
}

uint32_t gyre_slot_pieces(const gyre_plan *plan, uint32_t rows, uint32_t in,
                          gyre_piece *out)
{
    const gyre_plan_rows *some = &plan->rows[rows], *all = &plan->rows[in];
    const uint32_t *want = plan->row_chunks + some->first;
    const uint32_t *have = plan->row_chunks + all->first;
    const gyre_chunk *chunks = plan->problem.chunks[all->side];
    uint32_t count = 0, at = 0;
    uint64_t row = 0;
    if (some->side != all->side)
        return UINT32_MAX;
    for (uint32_t i = 0; i < some->count; i++) {
        while (at < all->count && have[at] < want[i])
            row += chunks[have[at++]].length;
        if (at == all->count || have[at] != want[i])
            return UINT32_MAX;
        const gyre_chunk *chunk = &chunks[want[i]];
        if (chunk->length > 0)
            out[count++] =
                (gyre_piece){chunk->start, chunk->length, chunk->stride, row};
    }
    return count;
}
