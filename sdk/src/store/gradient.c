/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradient pieces: each element is claimed once per micro-batch, then copied
 * or added, and the last piece of a grain takes its leaf.
 */
#include "config.h"

#include "store/ledger.h"
#include "store/round.h"

#include <string.h>

/* ---- claims ----------------------------------------------------------- */

/* Position of the first range that ends behind `first`. */
static size_t claim_find(const gyre_claim *claim, uint64_t first)
{
    size_t lo = 0, hi = claim->count;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (claim->ends[2 * mid + 1] > first)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static gyre_status claim_room(gyre_context *context, gyre_claim *claim,
                              gyre_error *error)
{
    size_t more = claim->capacity == 0 ? 4 : claim->capacity * 2;
    uint64_t *grown;

    if (claim->count < claim->capacity)
        return GYRE_OK;
    grown = gyre_grow(context, claim->ends, claim->capacity * 2, more * 2,
                      sizeof(uint64_t));
    if (grown == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a piece");
    claim->ends = grown;
    claim->capacity = more;
    return GYRE_OK;
}

/* Add [first, end), merging with neighbours it touches. */
static void claim_add(gyre_claim *claim, size_t at, uint64_t first,
                      uint64_t end)
{
    uint64_t *e = claim->ends;
    bool left = at > 0 && e[2 * at - 1] == first;
    bool right = at < claim->count && e[2 * at] == end;

    claim->got += end - first;
    if (left && right) {
        e[2 * at - 1] = e[2 * at + 1];
        memmove(e + 2 * at, e + 2 * at + 2,
                (claim->count - at - 1) * 2 * sizeof(*e));
        claim->count--;
    } else if (left) {
        e[2 * at - 1] = end;
    } else if (right) {
        e[2 * at] = first;
    } else {
        memmove(e + 2 * at + 2, e + 2 * at,
                (claim->count - at) * 2 * sizeof(*e));
        e[2 * at] = first;
        e[2 * at + 1] = end;
        claim->count++;
    }
}

static gyre_status claim_range(gyre_round *round, size_t tensor, uint64_t first,
                               uint64_t end, bool *add, gyre_error *error)
{
    const gyre_tensor_state *t = &round->store->layout.tensors[tensor];
    gyre_claim *claim = &round->claims[tensor];
    size_t at = claim_find(claim, first);
    gyre_status status;

    if (round->state != GYRE_ROUND_OPEN || round->ended)
        return gyre_fail(error, GYRE_STATE,
                         "tensor %s: the round takes no more gradients",
                         t->name);
    if (claim->absent)
        return gyre_fail(error, GYRE_DUPLICATE,
                         "tensor %s was said to be absent in this micro-batch",
                         t->name);
    if (at < claim->count && claim->ends[2 * at] < end)
        return gyre_fail(error, GYRE_DUPLICATE,
                         "tensor %s: elements [%llu, %llu) overlap [%llu, "
                         "%llu), which came already in this micro-batch",
                         t->name, (unsigned long long)first,
                         (unsigned long long)end,
                         (unsigned long long)claim->ends[2 * at],
                         (unsigned long long)claim->ends[2 * at + 1]);
    status = claim_room(round->store->context, claim, error);
    if (status != GYRE_OK)
        return status;
    claim_add(claim, at, first, end);
    *add = claim->filled && round->way != GYRE_WAY_SPILLED;
    return GYRE_OK;
}

gyre_status gyre_round_claim(gyre_round *round, size_t tensor, uint64_t first,
                             uint64_t end, bool *add, gyre_error *error)
{
    gyre_status status;

    pthread_mutex_lock(&round->lock);
    status = claim_range(round, tensor, first, end, add, error);
    pthread_mutex_unlock(&round->lock);
    return status;
}

/* ---- pieces ----------------------------------------------------------- */

void gyre_round_take_leaf(gyre_round *round, const gyre_tensor_state *t,
                          uint64_t grain)
{
    gyre_store *store = round->store;
    int finite;

    round->leaves[grain] = gyre_device_leaf(
        gyre_context_isa(store->context), store->gradients + grain * GYRE_GRAIN,
        gyre_round_grain_elements(t, grain), &finite);
    gyre_round_chunk_done(round, gyre_layout_chunk_of(&store->layout, grain),
                          1);
}

/* All of a grain came in this micro-batch. */
static void grain_came(gyre_round *round, const gyre_tensor_state *t,
                       uint64_t grain)
{
    if (round->way == GYRE_WAY_SPILLED)
        gyre_round_chunk_done(
            round, gyre_layout_chunk_of(&round->store->layout, grain), 1);
    else if (round->micro + 1 == round->micro_batches)
        gyre_round_take_leaf(round, t, grain);
}

/* Convert or add a piece, one grain at a time, so that what a leaf needs is
 * still in cache when its last element has come. */
static void take_piece(gyre_round *round, const gyre_tensor_state *t,
                       uint64_t first, uint64_t count,
                       const gyre_gradient *gradient, bool add)
{
    size_t stride = gradient->stride != 0 ? (size_t)gradient->stride : 1;
    size_t size = gyre_dtype_bytes(gradient->dtype) * stride;
    const char *src = (const char *)gradient->data + gradient->offset;
    float *base = round->store->gradients + t->first_grain * GYRE_GRAIN;
    float temp[GYRE_GRAIN];

    while (count > 0) {
        uint64_t grain = t->first_grain + first / GYRE_GRAIN;
        size_t room = GYRE_GRAIN - first % GYRE_GRAIN;
        size_t n = room < count ? room : (size_t)count;

        if (add) {
            gyre_to_f32(gradient->dtype, src, stride, temp, n);
            gyre_device_add(base + first, temp, n);
        } else {
            gyre_to_f32(gradient->dtype, src, stride, base + first, n);
        }
        if (atomic_fetch_sub_explicit(&round->grain_left[grain], (uint16_t)n,
                                      memory_order_acq_rel) == n)
            grain_came(round, t, grain);
        src += size * n;
        first += n;
        count -= n;
    }
}

gyre_status gyre_round_check_tensor(gyre_round *round, size_t tensor,
                                    gyre_error *error)
{
    gyre_layout *layout;

    if (round == NULL)
        return gyre_fail(error, GYRE_INVALID, "no round was given");
    layout = &round->store->layout;
    if (tensor >= layout->tensor_count)
        return gyre_fail(error, GYRE_RANGE,
                         "tensor %zu does not exist: the store has %zu", tensor,
                         layout->tensor_count);
    return GYRE_OK;
}

static gyre_status check_piece(const gyre_tensor_state *t, uint64_t first,
                               uint64_t count, const gyre_gradient *g,
                               gyre_error *error)
{
    if (t->flags & GYRE_TENSOR_FROZEN)
        return gyre_fail(error, GYRE_INVALID,
                         "tensor %s is frozen and takes no gradient", t->name);
    if (first > t->elements || count > t->elements - first)
        return gyre_fail(error, GYRE_RANGE,
                         "tensor %s has %llu elements; a gradient for "
                         "[%llu, +%llu) is outside",
                         t->name, (unsigned long long)t->elements,
                         (unsigned long long)first, (unsigned long long)count);
    if (g == NULL || (g->data == NULL && count > 0))
        return gyre_fail(error, GYRE_INVALID, "tensor %s: no gradient data",
                         t->name);
    if (g->kind != GYRE_HOST_MEMORY && g->kind != GYRE_OPENCL_MEMORY &&
        g->kind != GYRE_CUDA_MEMORY)
        return gyre_fail(error, GYRE_UNSUPPORTED,
                         "tensor %s: gradients in memory of kind %d are not "
                         "supported; copy them to the host first",
                         t->name, (int)g->kind);
    if (g->dtype != GYRE_F32 && g->dtype != GYRE_F64 && g->dtype != GYRE_BF16 &&
        g->dtype != GYRE_F16)
        return gyre_fail(error, GYRE_INVALID,
                         "tensor %s: gradients come as f32, f64, bf16 or f16, "
                         "not %s",
                         t->name,
                         gyre_dtype_name(g->dtype) != NULL
                             ? gyre_dtype_name(g->dtype)
                             : "an unknown dtype");
    if (g->stride < 0)
        return gyre_fail(error, GYRE_RANGE,
                         "tensor %s: stride %lld; at least 1 is needed",
                         t->name, (long long)g->stride);
    return GYRE_OK;
}

/* A piece in host memory, checked. */
static gyre_status take_host_piece(gyre_round *round, size_t tensor,
                                   uint64_t first, uint64_t count,
                                   const gyre_gradient *gradient,
                                   gyre_error *error)
{
    gyre_fp saved;
    gyre_status status;
    bool add = false, born = false;

    gyre_intake_wait(round);
    status = gyre_born_settle(round, tensor, false, &born, error);
    if (status == GYRE_OK && born)
        return gyre_born_piece(round, tensor, first, count, gradient, error);
    if (status == GYRE_OK)
        status =
            gyre_round_claim(round, tensor, first, first + count, &add, error);
    if (status != GYRE_OK)
        return status;
    saved = gyre_fp_pin();
    take_piece(round, &round->store->layout.tensors[tensor], first, count,
               gradient, add);
    gyre_fp_restore(saved);
    return GYRE_OK;
}

/* The bytes of a piece with its gaps. */
static gyre_status span_of(const char *name, uint64_t count,
                           const gyre_gradient *g, uint64_t *bytes,
                           gyre_error *error)
{
    uint64_t stride = g->stride != 0 ? (uint64_t)g->stride : 1;

    if (gyre_mul(count - 1, stride, bytes) && gyre_add(*bytes, 1, bytes) &&
        gyre_mul(*bytes, gyre_dtype_bytes(g->dtype), bytes) &&
        *bytes <= SIZE_MAX)
        return GYRE_OK;
    return gyre_fail(error, GYRE_RANGE,
                     "tensor %s: %llu elements with stride %llu are more than "
                     "memory has",
                     name, (unsigned long long)count,
                     (unsigned long long)stride);
}

/* Copied whole before its range is claimed, so that a copy that fails changes
 * nothing. */
static gyre_status fetch_device_piece(gyre_round *round, size_t tensor,
                                      uint64_t first, uint64_t count,
                                      const gyre_gradient *gradient,
                                      uint64_t bytes, gyre_error *error)
{
    gyre_context *context = round->store->context;
    const char *name = round->store->layout.tensors[tensor].name;
    gyre_gradient copy = *gradient;
    gyre_ledger l = {.born_gradient = bytes};
    gyre_status status;
    void *host = gyre_alloc(context, (size_t)bytes, 1);

    if (host == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "tensor %s: no memory to copy %llu bytes from its "
                         "device; give smaller pieces",
                         name, (unsigned long long)bytes);
    status = gyre_device_fetch(context, gradient->kind, gradient->device,
                               gradient->data, gradient->offset, (size_t)bytes,
                               host, error);
    if (status == GYRE_OK) {
        gyre_store_count(round->store, &l);
        copy.kind = GYRE_HOST_MEMORY;
        copy.data = host;
        copy.offset = 0;
        status = take_host_piece(round, tensor, first, count, &copy, error);
    } else {
        status = gyre_fail_prefix(error, status, "tensor %s", name);
    }
    gyre_free(context, host, (size_t)bytes, 1);
    return status;
}

/* One that was born on a device: taken there if it can be. */
static gyre_status take_device_piece(gyre_round *round, size_t tensor,
                                     uint64_t first, uint64_t count,
                                     const gyre_gradient *gradient,
                                     gyre_error *error)
{
    const char *name = round->store->layout.tensors[tensor].name;
    bool reaches = false, born = false;
    uint64_t bytes = 0;
    gyre_status status = span_of(name, count, gradient, &bytes, error);

    if (status == GYRE_OK) {
        status = gyre_born_reaches(round, gradient, bytes, &reaches, error);
        if (status != GYRE_OK)
            return gyre_fail_prefix(error, status, "tensor %s", name);
    }
    if (status == GYRE_OK && reaches)
        status = gyre_born_settle(round, tensor, true, &born, error);
    if (status != GYRE_OK)
        return status;
    if (!born)
        return fetch_device_piece(round, tensor, first, count, gradient, bytes,
                                  error);
    gyre_intake_wait(round);
    return gyre_born_piece(round, tensor, first, count, gradient, error);
}

gyre_status gyre_round_gradient(gyre_round *round, size_t tensor,
                                uint64_t first, uint64_t count,
                                const gyre_gradient *gradient,
                                gyre_error *error)
{
    gyre_status status = gyre_round_check_tensor(round, tensor, error);

    if (status != GYRE_OK)
        return status;
    status = check_piece(&round->store->layout.tensors[tensor], first, count,
                         gradient, error);
    if (status != GYRE_OK || count == 0)
        return status;
    if (gradient->kind == GYRE_HOST_MEMORY)
        return take_host_piece(round, tensor, first, count, gradient, error);
    return take_device_piece(round, tensor, first, count, gradient, error);
}
