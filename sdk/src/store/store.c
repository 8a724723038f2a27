/* SPDX-License-Identifier: Apache-2.0 */
/* The store object: empty, with tables for a layout, and freed. */
#include "config.h"

#include "device/birth.h"
#include "store/build.h"
#include "store/compute.h"
#include "store/place.h"
#include "store/plugins.h"
#include "store/round.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_BUFFERS = 4 };

static const uint64_t default_lock_wait = 120000000000ull;

static gyre_status check_options(const gyre_store_options *o, gyre_error *error)
{
    if (o->size < sizeof(*o))
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_store_options.size is %zu, this library needs "
                         "%zu: zero the struct and set size",
                         o->size, sizeof(*o));
    if (o->buffers > 1024)
        return gyre_fail(error, GYRE_RANGE,
                         "%u buffers per device; 1 to 1024 are allowed",
                         o->buffers);
    if (!(o->endurance >= 0) || isinf(o->endurance))
        return gyre_fail(error, GYRE_RANGE,
                         "endurance is %g; bytes, or 0 for unknown, are needed",
                         o->endurance);
    return gyre_compute_check(o, error);
}

static gyre_status copy_options(gyre_store *store, const gyre_store_options *o)
{
    gyre_context *context = store->context;

    store->buffers = o->buffers != 0 ? o->buffers : DEFAULT_BUFFERS;
    store->commit_every = o->commit_every != 0 ? o->commit_every : 1;
    store->fast = o->fast != 0;
    store->read_only = o->read_only != 0;
    store->check_reads = o->no_read_check == 0;
    store->recorder = o->recorder;
    store->lock_wait_ns =
        o->lock_wait_ns != 0 ? o->lock_wait_ns : default_lock_wait;
    store->memory_limit = o->memory_limit;
    store->placement = o->placement;
    store->gradients_in_memory = o->gradients_in_memory != 0;
    store->allow_inexact = o->allow_inexact != 0;
    store->link_rate = o->link_rate;
    store->endurance = o->endurance;
    store->wear_budget = o->wear_budget;
    store->io_engine = gyre_copy_text(context, o->io != NULL ? o->io : "auto");
    if (store->io_engine == NULL)
        return GYRE_NO_MEMORY;
    return GYRE_OK;
}

gyre_status gyre_store_blank(gyre_context *context, const char *path,
                             const gyre_store_options *options,
                             gyre_store **out, gyre_error *error)
{
    static const gyre_store_options none = {.size = sizeof(none)};
    gyre_store *store;
    gyre_status status;

    if (context == NULL || path == NULL || path[0] == '\0')
        return gyre_fail(error, GYRE_INVALID, "a store needs a path");
    if (options == NULL)
        options = &none;
    status = check_options(options, error);
    if (status != GYRE_OK)
        return status;
    store = gyre_alloc_zero(context, 1, sizeof(*store));
    if (store == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a store");
    store->context = context;
    pthread_mutex_init(&store->count_lock, NULL);
    pthread_mutex_init(&store->birth_lock, NULL);
    store->owner_lock = -1;
    store->peek_chunk = UINT64_MAX;
    store->residual_mode = GYRE_RESIDUAL_OFF;
    store->path = gyre_copy_text(context, path);
    if (store->path == NULL || copy_options(store, options) != GYRE_OK) {
        gyre_store_free(store);
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a store");
    }
    *out = store;
    return GYRE_OK;
}

gyre_status gyre_store_tables(gyre_store *store, gyre_error *error)
{
    const gyre_layout *layout = &store->layout;
    gyre_context *context = store->context;

    store->current =
        gyre_alloc_zero(context, layout->chunks, sizeof(gyre_entry));
    store->committed =
        gyre_alloc_zero(context, layout->chunks, sizeof(gyre_entry));
    store->steps =
        gyre_alloc_zero(context, layout->tensor_count, sizeof(uint64_t));
    store->image =
        gyre_alloc_aligned(context, layout->area_bytes, layout->align);
    store->blob = gyre_alloc(context, layout->blob_capacity, 1);
    if (store->image == NULL || store->steps == NULL || store->blob == NULL ||
        (layout->chunks > 0 &&
         (store->current == NULL || store->committed == NULL)))
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for the tables");
    memset(store->image, 0, layout->area_bytes);
    return GYRE_OK;
}

void gyre_store_free(gyre_store *store)
{
    gyre_context *context = store->context;
    gyre_layout *layout = &store->layout;

    gyre_workers_destroy(store);
    for (uint32_t d = 0; store->places != NULL && d < layout->devices; d++) {
        if (store->places[d].fd >= 0)
            close(store->places[d].fd);
        gyre_free_text(context, store->places[d].path);
        gyre_free_text(context, store->places[d].file);
        gyre_free_text(context, store->places[d].compute);
    }
    gyre_free(context, store->places, layout->devices, sizeof(gyre_place));
    gyre_place_unlock(store);
    gyre_store_free_optimizer(store);
    gyre_store_free_gradients(store);
    gyre_store_free_compressor(store);
    gyre_birth_close(store->birth);
    gyre_residual_free(store);
    if (store->peek != NULL)
        gyre_free_aligned(context, store->peek,
                          gyre_layout_max_chunk_bytes(layout), layout->align);
    gyre_free(context, store->current, layout->chunks, sizeof(gyre_entry));
    gyre_free(context, store->committed, layout->chunks, sizeof(gyre_entry));
    gyre_free(context, store->steps, layout->tensor_count, sizeof(uint64_t));
    if (store->image != NULL)
        gyre_free_aligned(context, store->image, layout->area_bytes,
                          layout->align);
    gyre_free(context, store->blob, layout->blob_capacity, 1);
    gyre_free_text(context, store->io_engine);
    gyre_free_text(context, store->path);
    gyre_layout_free(context, layout);
    pthread_mutex_destroy(&store->count_lock);
    pthread_mutex_destroy(&store->birth_lock);
    gyre_free(context, store, 1, sizeof(*store));
}

gyre_status gyre_store_check(const gyre_store *store, bool idle, bool writable,
                             gyre_error *error)
{
    if (store == NULL)
        return gyre_fail(error, GYRE_INVALID, "no store was given");
    if (store->mode == GYRE_STORE_BROKEN)
        return gyre_fail(error, GYRE_STATE,
                         "store %s is broken after an I/O error: close and "
                         "open it to find out which commit stands",
                         store->path);
    if (idle && store->round != NULL)
        return gyre_fail(error, GYRE_STATE,
                         "a round of store %s is open; finish or abort it "
                         "first",
                         store->path);
    if (writable && store->read_only)
        return gyre_fail(error, GYRE_STATE, "store %s is open read-only",
                         store->path);
    return GYRE_OK;
}
