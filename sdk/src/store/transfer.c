/* SPDX-License-Identifier: Apache-2.0 */
/* Out of the store: bound buffers, reads of ranges, and the digest. */
#include "config.h"

#include "store/chunk.h"
#include "store/stream.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- bound buffers ---------------------------------------------------- */

gyre_status gyre_store_bind(gyre_store *store, size_t tensor, gyre_dtype dtype,
                            void *data, gyre_error *error)
{
    gyre_status status = gyre_store_check(store, true, false, error);
    gyre_tensor_state *t;

    if (status != GYRE_OK)
        return status;
    if (tensor >= store->layout.tensor_count)
        return gyre_fail(error, GYRE_RANGE,
                         "tensor %zu does not exist: the store has %zu", tensor,
                         store->layout.tensor_count);
    t = &store->layout.tensors[tensor];
    if (dtype != GYRE_F32 && dtype != GYRE_F64 && dtype != GYRE_BF16 &&
        dtype != GYRE_F16)
        return gyre_fail(error, GYRE_INVALID,
                         "tensor %s: parameters return as f32, f64, bf16 or "
                         "f16",
                         t->name);
    t->out_dtype = dtype;
    t->out = data;
    return GYRE_OK;
}

gyre_status gyre_store_pull(gyre_store *store, gyre_error *error)
{
    gyre_status status = gyre_store_check(store, true, false, error);

    if (status == GYRE_OK)
        status = gyre_store_redeliver(store, NULL, error);
    return status;
}

/* ---- ranges ----------------------------------------------------------- */

static gyre_status check_range(const gyre_store *store, size_t tensor, int slot,
                               uint64_t first, uint64_t count,
                               gyre_error *error)
{
    const gyre_tensor_state *t;

    if (tensor >= store->layout.tensor_count)
        return gyre_fail(error, GYRE_RANGE,
                         "tensor %zu does not exist: the store has %zu", tensor,
                         store->layout.tensor_count);
    t = &store->layout.tensors[tensor];
    if (first > t->elements || count > t->elements - first)
        return gyre_fail(
            error, GYRE_RANGE,
            "tensor %s has %llu elements; [%llu, +%llu) is outside", t->name,
            (unsigned long long)t->elements, (unsigned long long)first,
            (unsigned long long)count);
    if (slot < -1 || slot >= (int)store->layout.slots)
        return gyre_fail(error, GYRE_RANGE,
                         "slot %d does not exist: -1 is the parameter, 0 to "
                         "%d are state",
                         slot, (int)store->layout.slots - 1);
    if (slot >= 0 && (t->flags & GYRE_TENSOR_FROZEN))
        return gyre_fail(error, GYRE_INVALID,
                         "tensor %s is frozen and has no state", t->name);
    return GYRE_OK;
}

gyre_status gyre_store_read(gyre_store *store, size_t tensor, int slot,
                            uint64_t first, uint64_t count, gyre_dtype dtype,
                            void *data, gyre_error *error)
{
    const gyre_layout *layout = &store->layout;
    size_t size = gyre_dtype_bytes(dtype);
    float scratch[GYRE_GRAIN];
    gyre_fp saved = gyre_fp_pin();
    gyre_status status = gyre_store_check(store, true, false, error);

    if (status == GYRE_OK)
        status = check_range(store, tensor, slot, first, count, error);
    if (status == GYRE_OK && data == NULL && count > 0)
        status = gyre_fail(error, GYRE_INVALID, "no place to read into");
    while (status == GYRE_OK && count > 0) {
        uint64_t grain =
            layout->tensors[tensor].first_grain + first / GYRE_GRAIN;
        uint64_t chunk = gyre_layout_chunk_of(layout, grain);
        size_t elements = gyre_layout_chunk_elements(layout, chunk);
        size_t at = (size_t)(grain - gyre_layout_first_grain(layout, chunk)) *
                        GYRE_GRAIN +
                    first % GYRE_GRAIN;
        size_t n = elements - at < count ? elements - at : (size_t)count;
        const float *values;
        gyre_var var;

        gyre_layout_var(layout, chunk, (uint32_t)(slot + 1), &var);
        status = gyre_store_peek(store, chunk, error);
        if (status != GYRE_OK)
            break;
        values = gyre_state_view(&var, gyre_context_isa(store->context),
                                 store->peek, at, &n, scratch);
        if (!gyre_from_f32(dtype, values, data, n))
            status = gyre_fail(error, GYRE_INVALID,
                               "state is read as f32, f64, bf16 or f16");
        data = (char *)data + n * size;
        first += n;
        count -= n;
    }
    gyre_fp_restore(saved);
    return status;
}

/* ---- digest ----------------------------------------------------------- */

/*
 * A leaf is the XXH3-64 of one grain of one tensor, seeded by the grain's
 * number in the tensor; the digest is XXH3-128 over names, shapes and leaves in
 * the order of the tensors.  So chunks can be read in any order.
 */
typedef struct digesting {
    gyre_store *store;
    uint64_t *leaves;
} digesting;

static gyre_status digest_chunk(void *user, uint32_t device, gyre_work work,
                                uint8_t *data, gyre_work_result *result,
                                gyre_error *error)
{
    digesting *d = user;
    gyre_store *store = d->store;
    const gyre_layout *layout = &store->layout;
    size_t cursor = GYRE_RUN_FIRST;
    gyre_isa isa = gyre_context_isa(store->context);
    float scratch[GYRE_GRAIN];
    gyre_var var;
    gyre_run run;
    gyre_status status = gyre_store_verify(
        store, device, work.chunk, &store->current[work.chunk], data, error);

    (void)result;
    if (status != GYRE_OK)
        return status;
    gyre_layout_var(layout, work.chunk, 0, &var);
    while (gyre_layout_next_run(layout, work.chunk, &cursor, &run)) {
        const gyre_tensor_state *t = &layout->tensors[run.tensor];
        uint64_t grain = run.index / GYRE_GRAIN;

        for (size_t at = 0; at < run.n; at += GYRE_GRAIN, grain++) {
            size_t n = run.n - at < GYRE_GRAIN ? run.n - at : GYRE_GRAIN;

            const float *values =
                gyre_state_view(&var, isa, data, run.at + at, &n, scratch);

            d->leaves[t->first_grain + grain] =
                XXH3_64bits_withSeed(values, n * sizeof(float), grain);
        }
    }
    return GYRE_OK;
}

static gyre_status fold(const gyre_layout *layout, const uint64_t *leaves,
                        char text[GYRE_DIGEST_TEXT], gyre_error *error)
{
    XXH3_state_t *state = XXH3_createState();
    XXH128_hash_t hash;

    if (state == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a digest");
    XXH3_128bits_reset(state);
    for (size_t i = 0; i < layout->tensor_count; i++) {
        const gyre_tensor_state *t = &layout->tensors[i];

        XXH3_128bits_update(state, t->name, strlen(t->name) + 1);
        XXH3_128bits_update(state, &t->rank, sizeof(t->rank));
        XXH3_128bits_update(state, t->shape, t->rank * sizeof(*t->shape));
        if (t->grains > 0)
            XXH3_128bits_update(state, leaves + t->first_grain,
                                t->grains * sizeof(*leaves));
    }
    hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    snprintf(text, GYRE_DIGEST_TEXT, "%016llx%016llx",
             (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    return GYRE_OK;
}

gyre_status gyre_store_digest(gyre_store *store, char text[GYRE_DIGEST_TEXT],
                              gyre_error *error)
{
    gyre_layout *layout = &store->layout;
    size_t grains = (size_t)(layout->train_grains + layout->frozen_grains);
    digesting d = {store, NULL};
    gyre_stream stream = {
        .table = store->current, .process = digest_chunk, .user = &d};
    gyre_status status = gyre_store_check(store, true, false, error);

    if (status != GYRE_OK)
        return status;
    d.leaves = gyre_alloc(store->context, grains + 1, sizeof(uint64_t));
    if (d.leaves == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a digest");
    status = gyre_workers_each(store, &stream, 0, layout->state_chunks, error);
    if (status == GYRE_OK)
        status = fold(layout, d.leaves, text, error);
    gyre_free(store->context, d.leaves, grains + 1, sizeof(uint64_t));
    return status;
}
