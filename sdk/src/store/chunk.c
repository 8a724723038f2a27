/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk in memory: its checksum and label, and what the user gets of it. */
#include "config.h"

#include "store/chunk.h"
#include "store/stream.h"

#include <string.h>

/* ---- what it is ------------------------------------------------------- */

uint64_t gyre_store_hash(const gyre_store *store, uint64_t chunk,
                         const uint8_t *data, uint64_t step)
{
    gyre_var vars[GYRE_STORE_VARS];
    uint32_t n = gyre_layout_all_vars(&store->layout, chunk, vars);

    return gyre_device_hash(
        data, vars, n, gyre_layout_chunk_elements(&store->layout, chunk),
        gyre_format_seed(store->uuid, store->generation, chunk, step));
}

void gyre_store_label(const gyre_store *store, uint64_t chunk, uint8_t *data,
                      const gyre_entry *entry)
{
    gyre_format_label(data + gyre_layout_data_bytes(&store->layout, chunk),
                      store->uuid, store->generation, chunk, entry);
}

gyre_status gyre_store_verify(const gyre_store *store, uint32_t device,
                              uint64_t chunk, const gyre_entry *entry,
                              const uint8_t *data, gyre_error *error)
{
    const gyre_layout *layout = &store->layout;
    char text[200], range[256];

    if (gyre_store_hash(store, chunk, data, entry->step) == entry->hash)
        return GYRE_OK;
    gyre_format_diagnose(store->uuid, store->generation, chunk, entry,
                         data + gyre_layout_data_bytes(layout, chunk), text,
                         sizeof(text));
    gyre_layout_describe(layout, chunk, range, sizeof(range));
    return gyre_fail(error, GYRE_CORRUPT,
                     "%s: chunk %llu (%s) does not match its checksum: %s",
                     store->places[device].file, (unsigned long long)chunk,
                     range, text);
}

/* ---- into bound buffers ----------------------------------------------- */

static void deliver_run(const gyre_store *store, uint64_t chunk,
                        const uint8_t *data, const gyre_run *run)
{
    const gyre_tensor_state *t = &store->layout.tensors[run->tensor];
    gyre_isa isa = gyre_context_isa(store->context);
    size_t size = gyre_dtype_bytes(t->out_dtype), n;
    float scratch[GYRE_GRAIN];
    gyre_var var;

    gyre_layout_var(&store->layout, chunk, 0, &var);
    for (size_t at = 0; at < run->n; at += n) {
        const float *values;

        n = run->n - at;
        values = gyre_state_view(&var, isa, data, run->at + at, &n, scratch);
        gyre_from_f32(t->out_dtype, values,
                      (char *)t->out + (run->index + at) * size, n);
    }
}

uint64_t gyre_store_deliver(const gyre_store *store, uint64_t chunk,
                            const uint8_t *data, const bool *skip)
{
    size_t cursor = GYRE_RUN_FIRST;
    uint64_t bytes = 0;
    gyre_run run;

    while (gyre_layout_next_run(&store->layout, chunk, &cursor, &run)) {
        const gyre_tensor_state *t = &store->layout.tensors[run.tensor];

        if (t->out == NULL || (skip != NULL && skip[run.tensor]))
            continue;
        deliver_run(store, chunk, data, &run);
        bytes += run.n * gyre_dtype_bytes(t->out_dtype);
    }
    return bytes;
}

static gyre_status deliver_chunk(void *user, uint32_t device, gyre_work work,
                                 uint8_t *data, gyre_work_result *result,
                                 gyre_error *error)
{
    gyre_store *store = user;
    gyre_status status = gyre_store_verify(
        store, device, work.chunk, &store->current[work.chunk], data, error);

    (void)result;
    if (status == GYRE_OK)
        gyre_store_deliver(store, work.chunk, data, NULL);
    return status;
}

static bool has_bound(const gyre_store *store, uint64_t chunk)
{
    size_t cursor = GYRE_RUN_FIRST;
    gyre_run run;

    while (gyre_layout_next_run(&store->layout, chunk, &cursor, &run))
        if (store->layout.tensors[run.tensor].out != NULL)
            return true;
    return false;
}

gyre_status gyre_store_redeliver(gyre_store *store, const uint8_t *which,
                                 gyre_error *error)
{
    gyre_stream stream = {
        .table = store->current, .process = deliver_chunk, .user = store};
    uint64_t end =
        which != NULL ? store->layout.train_chunks : store->layout.state_chunks;

    gyre_workers_start(store, &stream);
    for (uint64_t c = 0; c < end; c++)
        if ((which == NULL || which[c] != 0) && has_bound(store, c))
            gyre_workers_push(store, c, 0);
    gyre_workers_close(store);
    return gyre_workers_join(store, NULL, error);
}

/* ---- one chunk kept --------------------------------------------------- */

static gyre_status peek_chunk(void *user, uint32_t device, gyre_work work,
                              uint8_t *data, gyre_work_result *result,
                              gyre_error *error)
{
    gyre_store *store = user;
    gyre_status status = gyre_store_verify(
        store, device, work.chunk, &store->current[work.chunk], data, error);

    (void)result;
    if (status == GYRE_OK)
        memcpy(store->peek, data,
               gyre_layout_chunk_bytes(&store->layout, work.chunk));
    return status;
}

gyre_status gyre_store_peek(gyre_store *store, uint64_t chunk,
                            gyre_error *error)
{
    gyre_stream stream = {
        .table = store->current, .process = peek_chunk, .user = store};
    gyre_status status;

    if (store->peek_chunk == chunk)
        return GYRE_OK;
    if (store->peek == NULL) {
        store->peek = gyre_alloc_aligned(
            store->context, gyre_layout_max_chunk_bytes(&store->layout),
            store->layout.align);
        if (store->peek == NULL)
            return gyre_fail(error, GYRE_NO_MEMORY,
                             "no memory to read a chunk into");
    }
    store->peek_chunk = UINT64_MAX;
    status = gyre_workers_each(store, &stream, chunk, chunk + 1, error);
    if (status == GYRE_OK)
        store->peek_chunk = chunk;
    return status;
}

gyre_status gyre_store_read_residual(gyre_store *store, size_t tensor,
                                     uint64_t first, size_t n, float *out,
                                     gyre_error *error)
{
    const gyre_layout *layout = &store->layout;
    uint64_t grain = layout->tensors[tensor].first_grain + first / GYRE_GRAIN;
    uint64_t chunk = gyre_layout_chunk_of(layout, grain);
    size_t at =
        (size_t)(grain - gyre_layout_first_grain(layout, chunk)) * GYRE_GRAIN +
        first % GYRE_GRAIN;
    gyre_status status =
        gyre_store_peek(store, gyre_layout_residual(layout, chunk), error);

    if (status == GYRE_OK)
        memcpy(out, store->peek + at * sizeof(float), n * sizeof(float));
    return status;
}
