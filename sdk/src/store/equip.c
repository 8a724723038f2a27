/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker works with: buffers, a queue of transfers, what computes. */
#include "config.h"

#include "store/compute.h"
#include "store/worker.h"
#include "trace/trace.h"

#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 * 1024 * 1024, MAX_LANES = 32 };

static bool has_gradients(const gyre_store *store)
{
    return store->layout.gradient_grain != 0 && !store->gradients_in_memory &&
           !store->read_only;
}

uint64_t gyre_workers_buffer_bytes(const gyre_store *store)
{
    uint64_t bytes = gyre_layout_max_chunk_bytes(&store->layout);

    if (has_gradients(store))
        bytes += gyre_layout_max_gradient_bytes(&store->layout);
    return bytes;
}

static gyre_status make_io(gyre_worker *w, gyre_error *error)
{
    gyre_store *store = w->store;
    gyre_place *place = &store->places[w->index];
    gyre_io_options options = {
        .engine = store->io_engine,
        .depth = store->buffers * GYRE_PARTS + 1,
        .recorder = store->recorder,
    };
    void **blocks;
    gyre_status status;

    status = gyre_io_create(store->context, &options, &w->io, error);
    if (status == GYRE_OK)
        status =
            gyre_io_add_file(w->io, place->fd, place->file, &w->file, error);
    if (status != GYRE_OK)
        return status;
    blocks = gyre_alloc(store->context, store->buffers, sizeof(*blocks));
    if (blocks == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for buffers");
    for (uint32_t i = 0; i < store->buffers; i++)
        blocks[i] = w->buffers[i].data;
    status = gyre_io_add_buffers(w->io, blocks, w->buffer_bytes, store->buffers,
                                 error);
    gyre_free(store->context, blocks, store->buffers, sizeof(*blocks));
    return status;
}

static size_t block_align(const gyre_worker *w)
{
    const gyre_store *store = w->store;

    return w->buffer_bytes * store->buffers >= HUGE_PAGE ? HUGE_PAGE
                                                         : store->layout.align;
}

static gyre_status make_buffers(gyre_worker *w, gyre_error *error)
{
    gyre_store *store = w->store;
    size_t bytes = w->buffer_bytes * store->buffers;

    w->buffers =
        gyre_alloc_zero(store->context, store->buffers, sizeof(gyre_buffer));
    w->queue = gyre_alloc(store->context, w->capacity, sizeof(gyre_push));
    if (w->buffers == NULL || w->queue == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for buffers");
    w->block = gyre_alloc_aligned(store->context, bytes, block_align(w));
    if (w->block == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "no memory for %u chunk buffers of %llu bytes",
                         store->buffers, (unsigned long long)w->buffer_bytes);
    /* Huge pages, where they can be had: a transfer of 3 MiB is then a few
     * segments and not 769, which the block layer would have to split. */
    if (bytes >= HUGE_PAGE)
        (void)madvise(w->block, bytes, MADV_HUGEPAGE);
    memset(w->block, 0, bytes);
    for (uint32_t i = 0; i < store->buffers; i++)
        w->buffers[i].data = w->block + i * w->buffer_bytes;
    return GYRE_OK;
}

/* What computes beside this device, or on the host when state goes there. */
static gyre_status make_device(gyre_worker *w, gyre_error *error)
{
    gyre_store *store = w->store;
    const gyre_layout *layout = &store->layout;
    const char *text = store->places[w->index].compute;
    gyre_compute compute;
    gyre_device_spec spec = {
        .opt = store->opt,
        .codec = store->codec,
        .states = layout->codecs,
        .vars = 1 + layout->slots,
        .grains = (size_t)layout->chunk_grains,
        .allow_inexact = store->allow_inexact,
    };
    gyre_status status =
        gyre_compute_parse(text != NULL ? text : "cpu", &compute, error);

    if (status != GYRE_OK)
        return gyre_fail_prefix(error, status, "device %u", w->index);
    w->read_rate.rate = compute.read_rate;
    w->write_rate.rate = compute.write_rate;
    w->paced =
        compute.read_rate > 0 || compute.write_rate > 0 || store->link != NULL;
    w->lanes = 1;
    if (store->opt == NULL || store->read_only)
        return GYRE_OK;
    spec.name = store->placement == GYRE_HOST ? "cpu" : compute.device;
    status = gyre_device_open(store->context, &spec, &w->device, error);
    if (status != GYRE_OK)
        return gyre_fail_prefix(error, status, "device %u, compute %s",
                                w->index, spec.name);
    w->lanes = gyre_device_lanes(w->device);
    if (w->lanes > MAX_LANES)
        w->lanes = MAX_LANES;
    return GYRE_OK;
}

static void name_spans(gyre_worker *w)
{
    gyre_context *c = w->store->context;

    w->name = (gyre_worker_names){
        .read = gyre_trace_intern(c, "read chunk"),
        .write = gyre_trace_intern(c, "write chunk"),
        .read_gradient = gyre_trace_intern(c, "read gradients"),
        .write_gradient = gyre_trace_intern(c, "write gradients"),
        .process = gyre_trace_intern(c, "update chunk"),
        .finish = gyre_trace_intern(c, "finish chunk"),
        .flush = gyre_trace_intern(c, "flush"),
        .up = gyre_trace_intern(c, "link up"),
        .down = gyre_trace_intern(c, "link down"),
    };
}

gyre_status gyre_worker_equip(gyre_worker *w, gyre_error *error)
{
    gyre_store *store = w->store;
    uint64_t chunks = 0;
    gyre_status status;

    for (uint64_t c = 0; c < store->layout.chunks; c++)
        chunks += store->layout.places[c].device == w->index;
    w->capacity = (size_t)chunks * 2 + 1;
    w->buffer_bytes = gyre_workers_buffer_bytes(store);
    if (has_gradients(store))
        w->gradient_at = gyre_layout_max_chunk_bytes(&store->layout);
    name_spans(w);
    status = make_buffers(w, error);
    if (status == GYRE_OK)
        status = make_io(w, error);
    if (status == GYRE_OK)
        status = make_device(w, error);
    if (status == GYRE_OK && w->device != NULL)
        gyre_device_pin(w->device, w->block, w->buffer_bytes * store->buffers);
    return status;
}

void gyre_worker_strip(gyre_worker *w)
{
    gyre_store *store = w->store;

    gyre_io_destroy(w->io);
    if (w->device != NULL && w->block != NULL)
        gyre_device_unpin(w->device, w->block,
                          w->buffer_bytes * store->buffers);
    gyre_device_close(w->device);
    if (w->block != NULL)
        gyre_free_aligned(store->context, w->block,
                          w->buffer_bytes * store->buffers, block_align(w));
    gyre_free(store->context, w->buffers, store->buffers, sizeof(gyre_buffer));
    gyre_free(store->context, w->queue, w->capacity, sizeof(gyre_push));
}
