/* SPDX-License-Identifier: Apache-2.0 */
/* Block kernels by name, what a block must be, and how work is dealt out. */
#include "config.h"

#include "attention/kernel_inner.h"

#include <math.h>
#include <string.h>

/* ---- by name ----------------------------------------------------------- */

static const gyre_kernel *const kernels[] = {
    &gyre_kernel_f32, &gyre_kernel_bf16, &gyre_kernel_f64, &gyre_kernel_count};

const gyre_kernel *gyre_kernel_find(const char *name)
{
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
        if (strcmp(kernels[i]->name, name) == 0)
            return kernels[i];
    return NULL;
}

const char *const *gyre_kernel_names(void)
{
    static const char *const names[] = {"f32", "bf16", "f64", "count", NULL};

    return names;
}

/* ---- what a block must be ---------------------------------------------- */

typedef struct named_plane {
    const char *name;
    const gyre_plane *plane;
    gyre_dtype dtype;
    uint32_t dim;
    bool needed;
} named_plane;

static gyre_status check_plane(const named_plane *p, gyre_error *error)
{
    size_t bytes = gyre_dtype_bytes(p->dtype);
    const gyre_plane *plane = p->plane;

    if (plane->at == NULL)
        return !p->needed
                   ? GYRE_OK
                   : gyre_fail(error, GYRE_INVALID,
                               "block kernel: no plane %s: give one", p->name);
    if ((uintptr_t)plane->at % bytes != 0 || plane->row % bytes != 0 ||
        plane->head % bytes != 0 || plane->batch % bytes != 0)
        return gyre_fail(error, GYRE_INVALID,
                         "block kernel: plane %s has address %p and strides "
                         "%zu, %zu, %zu: whole elements of %s (%zu bytes)",
                         p->name, (void *)plane->at, plane->batch, plane->head,
                         plane->row, gyre_dtype_name(p->dtype), bytes);
    if (plane->row < p->dim * bytes)
        return gyre_fail(error, GYRE_INVALID,
                         "block kernel: rows of plane %s are %zu bytes apart, "
                         "%u elements of %s need %zu",
                         p->name, plane->row, p->dim, gyre_dtype_name(p->dtype),
                         p->dim * bytes);
    return GYRE_OK;
}

static gyre_status check_planes(const gyre_kernel *k, const gyre_block *b,
                                bool grad, gyre_error *error)
{
    bool kv = grad && (b->DK.at != NULL || b->DV.at != NULL);
    const named_plane list[] = {
        {"Q", &b->Q, k->dtype, b->head_dim, true},
        {"K", &b->K, k->dtype, b->head_dim, true},
        {"V", &b->V, k->dtype, b->v_head_dim, true},
        {"O", &b->O, k->sum, b->v_head_dim, !grad},
        {"LSE", &b->LSE, k->stat, 1, !grad},
        {"DO", &b->DO, k->dtype, b->v_head_dim, grad},
        {"L", &b->L, k->stat, 1, grad},
        {"D", &b->D, k->stat, 1, grad},
        {"DQ", &b->DQ, k->sum, b->head_dim, grad && !kv},
        {"DK", &b->DK, k->sum, b->head_dim, kv},
        {"DV", &b->DV, k->sum, b->v_head_dim, kv},
    };
    size_t first = grad ? 5 : 0, last = grad ? 11 : 5;

    for (size_t i = 0; i < last; i++) {
        if (i >= 3 && i < first)
            continue;
        gyre_status status = check_plane(&list[i], error);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

static gyre_status check_pieces(const gyre_piece *pieces, uint32_t count,
                                const char *side, gyre_error *error)
{
    for (uint32_t i = 0; i < count; i++)
        if (pieces[i].length > 0 && pieces[i].stride == 0)
            return gyre_fail(error, GYRE_INVALID,
                             "block kernel: %s piece %u has stride 0: at "
                             "least 1",
                             side, i);
    return GYRE_OK;
}

bool gyre_scale_fits(double scale, gyre_dtype sum)
{
    return sum == GYRE_F64 ? isfinite(scale) : isfinite((float)scale);
}

gyre_status gyre_block_check(const gyre_kernel *kernel, const gyre_block *block,
                             bool grad, gyre_error *error)
{
    const gyre_kernel_params *p = &block->params;
    gyre_status status;

    if (block->kv_heads == 0 || block->heads % block->kv_heads != 0)
        return gyre_fail(error, GYRE_INVALID,
                         "block kernel: %u query heads over %u KV heads: a "
                         "whole number each",
                         block->heads, block->kv_heads);
    if (block->h0 > block->h1 || block->h1 > block->heads)
        return gyre_fail(error, GYRE_INVALID,
                         "block kernel: heads %u to %u of %u", block->h0,
                         block->h1, block->heads);
    if (block->head_dim == 0 || block->v_head_dim == 0 ||
        block->head_dim > 65536 || block->v_head_dim > 65536)
        return gyre_fail(error, GYRE_INVALID,
                         "block kernel: head dims %u and %u: 1 to 65536",
                         block->head_dim, block->v_head_dim);
    if (!(p->dropout >= 0.0 && p->dropout < 1.0))
        return gyre_fail(error, GYRE_INVALID,
                         "block kernel: dropout %g: at least 0, below 1",
                         p->dropout);
    if (!gyre_scale_fits(p->scale, kernel->sum))
        return gyre_fail(error, GYRE_INVALID,
                         "block kernel: scale %g: a finite number in %s, 0 "
                         "for 1/sqrt(head dim)",
                         p->scale, gyre_dtype_name(kernel->sum));
    if (p->tile != 0 && (p->tile < 8 || p->tile > 256))
        return gyre_fail(error, GYRE_INVALID,
                         "block kernel: tile of %u positions: 0, or 8 to 256",
                         p->tile);
    status = check_pieces(block->q, block->q_count, "Q", error);
    if (status == GYRE_OK)
        status = check_pieces(block->kv, block->kv_count, "KV", error);
    return status == GYRE_OK ? check_planes(kernel, block, grad, error)
                             : status;
}

gyre_status gyre_kernel_ready(const gyre_kernel *kernel,
                              const gyre_block *block,
                              const gyre_kernel_run *run, bool grad,
                              gyre_error *error)
{
    uint32_t workers = run->workers;
    gyre_status status = gyre_block_check(kernel, block, grad, error);

    if (status != GYRE_OK)
        return status;
    size_t need = kernel->scratch(block) * workers;
    if (workers == 0 || run->scratch_bytes < need ||
        (need > 0 && (uintptr_t)run->scratch % 64 != 0))
        return gyre_fail(error, GYRE_INVALID,
                         "kernel %s: %zu bytes of scratch at %p for %u "
                         "workers: %zu, aligned to 64",
                         kernel->name, run->scratch_bytes, (void *)run->scratch,
                         workers, need);
    return GYRE_OK;
}

/* ---- tasks ------------------------------------------------------------- */

static size_t tiles_of(const gyre_piece *piece, uint64_t rows)
{
    return (size_t)((piece->length + rows - 1) / rows);
}

size_t gyre_attend_tasks(const gyre_block *block, uint64_t rows)
{
    size_t tiles = 0;

    for (uint32_t i = 0; i < block->q_count; i++)
        tiles += tiles_of(&block->q[i], rows);
    return tiles * block->batch * (block->h1 - block->h0);
}

gyre_task gyre_attend_task(const gyre_block *block, uint64_t rows, size_t index)
{
    uint32_t heads = block->h1 - block->h0;
    size_t pairs = (size_t)block->batch * heads;
    size_t pair = index % pairs, tile = index / pairs;
    gyre_task task = {.b = (uint32_t)(pair / heads),
                      .head = block->h0 + (uint32_t)(pair % heads),
                      .piece = block->q};

    while (tile >= tiles_of(task.piece, rows)) {
        tile -= tiles_of(task.piece, rows);
        task.piece++;
    }
    task.i0 = tile * rows;
    task.i1 = task.i0 + rows < task.piece->length ? task.i0 + rows
                                                  : task.piece->length;
    return task;
}

/* KV heads that the block's query heads read. */
static void kv_heads(const gyre_block *block, uint32_t *k0, uint32_t *k1)
{
    uint32_t group = block->heads / block->kv_heads;

    *k0 = block->h0 / group;
    *k1 = block->h1 > block->h0 ? (block->h1 - 1) / group + 1 : *k0;
}

size_t gyre_grad_tasks(const gyre_block *block)
{
    uint32_t k0, k1;

    kv_heads(block, &k0, &k1);
    return (size_t)block->batch * (k1 - k0);
}

gyre_task gyre_grad_task(const gyre_block *block, size_t index)
{
    uint32_t k0, k1;

    kv_heads(block, &k0, &k1);
    return (gyre_task){.b = (uint32_t)(index / (k1 - k0)),
                       .head = k0 + (uint32_t)(index % (k1 - k0))};
}

void gyre_kernel_each(const gyre_kernel_run *run, size_t count,
                      void (*body)(void *state, size_t index, uint32_t worker),
                      void *state)
{
    if (run->each != NULL && run->workers > 1 && count > 1) {
        run->each(run->user, count, body, state);
        return;
    }
    for (size_t i = 0; i < count; i++)
        body(state, i, 0);
}

/* ---- dropout ----------------------------------------------------------- */

gyre_drop_key gyre_drop_row(const gyre_kernel_params *params, uint32_t b,
                            uint32_t head, uint64_t q)
{
    gyre_drop_key drop = {.keep = 1.0f};

    if (params->dropout == 0.0)
        return drop;
    uint32_t key =
        gyre_hash((uint32_t)params->seed, (uint32_t)(params->seed >> 32), b);
    drop.key0 = gyre_hash(key, (uint32_t)(q >> 32), head);
    drop.key1 = gyre_hash(key, head, (uint32_t)q);
    drop.below = (uint32_t)(params->dropout * 0x1p32);
    drop.keep = (float)(1.0 / (1.0 - params->dropout));
    return drop;
}
