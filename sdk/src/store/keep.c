/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The residual between memory and storage.
 *
 *     commit     unsaved chunks into their other slots, before flush and record
 *
 *     open       all of them are read and verified
 *
 *     rollback   the same, as of the last commit
 *
 * What is stored is kappa e, rounded as the next round would round it first of
 * all (STORE.md 2), so that a store that was opened again goes on with the same
 * bits and kappa 1.
 */
#include "config.h"

#include "store/chunk.h"
#include "store/ledger.h"
#include "store/stream.h"

#include <string.h>

gyre_status gyre_residual_allocate(gyre_store *store, gyre_error *error)
{
    const gyre_layout *layout = &store->layout;
    gyre_residual_memory *r = &store->residual;
    size_t grains = (size_t)layout->train_grains;
    size_t chunks = (size_t)layout->train_chunks + 1;

    if (store->residual_mode == GYRE_RESIDUAL_OFF || store->read_only ||
        r->kappa != NULL)
        return GYRE_OK;
    for (int v = 0; v < 2; v++)
        r->e[v] = gyre_alloc_zero(store->context, grains + 1,
                                  GYRE_GRAIN * sizeof(float));
    r->which = gyre_alloc_zero(store->context, chunks, 1);
    r->unsaved = gyre_alloc_zero(store->context, chunks, 1);
    r->at = gyre_alloc_zero(store->context, layout->tensor_count, 1);
    r->kappa =
        gyre_alloc(store->context, layout->tensor_count, sizeof(*r->kappa));
    if (r->e[0] == NULL || r->e[1] == NULL || r->which == NULL ||
        r->unsaved == NULL || r->at == NULL || r->kappa == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "no memory for the residual: two versions of %llu "
                         "bytes",
                         (unsigned long long)(grains * GYRE_GRAIN * 4));
    for (size_t i = 0; i < layout->tensor_count; i++)
        r->kappa[i] = 1;
    return GYRE_OK;
}

void gyre_residual_free(gyre_store *store)
{
    gyre_context *context = store->context;
    const gyre_layout *layout = &store->layout;
    gyre_residual_memory *r = &store->residual;

    for (int v = 0; v < 2; v++)
        gyre_free(context, r->e[v], (size_t)layout->train_grains + 1,
                  GYRE_GRAIN * sizeof(float));
    gyre_free(context, r->which, (size_t)layout->train_chunks + 1, 1);
    gyre_free(context, r->unsaved, (size_t)layout->train_chunks + 1, 1);
    gyre_free(context, r->at, layout->tensor_count, 1);
    gyre_free(context, r->kappa, layout->tensor_count, sizeof(*r->kappa));
    memset(r, 0, sizeof(*r));
}

static float *residual_of(const gyre_store *store, uint64_t train)
{
    const gyre_residual_memory *r = &store->residual;

    return r->e[r->which[train]] +
           gyre_layout_first_grain(&store->layout, train) * GYRE_GRAIN;
}

/* ---- to storage ------------------------------------------------------- */

/* Of a chunk, what crosses the host link. */
static uint64_t useful_of(void *user, uint64_t chunk)
{
    const gyre_store *store = user;

    return gyre_layout_useful_bytes(&store->layout, chunk);
}

/* A chunk that went to storage, or came from there. */
static void count(gyre_store *store, uint64_t chunk, bool up)
{
    uint64_t useful = useful_of(store, chunk);
    uint64_t rest = gyre_layout_chunk_bytes(&store->layout, chunk) - useful;
    gyre_ledger l = {0};

    if (up) {
        l.residual_up = useful;
        l.padding_read = rest;
    } else {
        l.residual_down = useful;
        l.padding_write = rest;
    }
    gyre_store_count(store, &l);
}

static gyre_status save_chunk(void *user, uint32_t device, gyre_work work,
                              uint8_t *data, gyre_work_result *result,
                              gyre_error *error)
{
    gyre_store *store = user;
    const gyre_layout *layout = &store->layout;
    uint64_t train = gyre_layout_residual_of(layout, work.chunk);
    const float *e = residual_of(store, train);
    gyre_entry *entry = &store->current[work.chunk];
    float *out = (float *)(void *)data;
    size_t cursor = GYRE_RUN_FIRST;
    gyre_run run;

    (void)device;
    memset(data, 0, gyre_layout_chunk_bytes(layout, work.chunk));
    while (gyre_layout_next_run(layout, work.chunk, &cursor, &run)) {
        float kappa = store->residual.kappa[run.tensor];
        const float *from = e + run.at;

        if (store->residual.at[run.tensor] == GYRE_E_BORN) {
            gyre_status status =
                gyre_born_residual(store, train, &run, out + run.at, error);

            if (status != GYRE_OK)
                return status;
            from = out + run.at;
        }
        for (size_t i = 0; i < run.n; i++)
            out[run.at + i] = kappa * from[i];
    }
    entry->step = store->now.step;
    entry->version =
        layout->versions == 1 ? 0 : 1 - store->committed[work.chunk].version;
    entry->hash = gyre_store_hash(store, work.chunk, data, entry->step);
    gyre_store_label(store, work.chunk, data, entry);
    count(store, work.chunk, false);
    result->write = (int)entry->version;
    return GYRE_OK;
}

gyre_status gyre_residual_save(gyre_store *store, gyre_error *error)
{
    const gyre_layout *layout = &store->layout;
    gyre_stream stream = {
        .process = save_chunk, .link_before = useful_of, .user = store};
    uint64_t count = 0;

    if (!layout->residual || store->residual.unsaved == NULL)
        return GYRE_OK;
    for (uint64_t c = 0; c < layout->train_chunks; c++)
        count += store->residual.unsaved[c];
    if (count == 0)
        return GYRE_OK;
    gyre_workers_start(store, &stream);
    for (uint64_t c = 0; c < layout->train_chunks; c++)
        if (store->residual.unsaved[c])
            gyre_workers_push(store, gyre_layout_residual(layout, c), 0);
    gyre_workers_close(store);
    return gyre_workers_join(store, NULL, error);
}

void gyre_residual_saved(gyre_store *store)
{
    if (store->residual.unsaved != NULL)
        memset(store->residual.unsaved, 0, (size_t)store->layout.train_chunks);
}

/* ---- from storage ----------------------------------------------------- */

static gyre_status load_chunk(void *user, uint32_t device, gyre_work work,
                              uint8_t *data, gyre_work_result *result,
                              gyre_error *error)
{
    gyre_store *store = user;
    const gyre_layout *layout = &store->layout;
    gyre_status status = gyre_store_verify(
        store, device, work.chunk, &store->current[work.chunk], data, error);

    if (status != GYRE_OK)
        return status;
    result->link_after = useful_of(store, work.chunk);
    memcpy(residual_of(store, gyre_layout_residual_of(layout, work.chunk)),
           data,
           gyre_layout_chunk_elements(layout, work.chunk) * sizeof(float));
    count(store, work.chunk, true);
    return GYRE_OK;
}

static bool clear(gyre_store *store)
{
    bool had = false;

    for (size_t i = 0; i < store->layout.tensor_count; i++)
        had |= store->residual.at[i] == GYRE_E_BORN;
    for (uint64_t c = 0; c < store->layout.train_chunks; c++) {
        size_t n = gyre_layout_chunk_elements(&store->layout, c);
        float *e = residual_of(store, c);

        for (size_t i = 0; !had && i < n; i++)
            had = e[i] != 0;
        memset(e, 0, n * sizeof(float));
    }
    return had;
}

gyre_status gyre_residual_load(gyre_store *store, gyre_error *error)
{
    const gyre_layout *layout = &store->layout;
    gyre_stream stream = {
        .table = store->current, .process = load_chunk, .user = store};
    gyre_status status = GYRE_OK;

    if (store->residual.kappa == NULL)
        return GYRE_OK;
    if (layout->residual)
        status = gyre_workers_each(store, &stream, layout->state_chunks,
                                   layout->chunks, error);
    else if (clear(store))
        gyre_log(store->context, GYRE_LOG_WARNING,
                 "store %s: the residual of %s is volatile and starts from "
                 "zero again",
                 store->path, store->compressor);
    if (status != GYRE_OK)
        return status;
    for (size_t i = 0; i < layout->tensor_count; i++) {
        store->residual.kappa[i] = 1;
        store->residual.at[i] = layout->residual ? GYRE_E_HERE : GYRE_E_ZERO;
    }
    gyre_residual_saved(store);
    return GYRE_OK;
}
