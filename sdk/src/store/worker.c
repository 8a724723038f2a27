/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread per device that keeps its queue full.
 *
 *     main thread               worker
 *     start ------------------> stream (stream.c)
 *     push, push, ...
 *     close
 *     join <-------------------
 *
 * Single transfers and flushes are commands too: a queue belongs to its thread.
 */
#include "config.h"

#include "store/compute.h"
#include "store/worker.h"
#include "trace/trace.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { HUGE_PAGE = 2 * 1024 * 1024, MAX_LANES = 32 };

/* ---- the queue -------------------------------------------------------- */

bool gyre_worker_pop(gyre_worker *w, gyre_push *next, bool *ended)
{
    bool got;

    pthread_mutex_lock(&w->lock);
    got = w->waiting > 0;
    if (got) {
        *next = w->queue[w->head];
        w->head = (w->head + 1) % w->capacity;
        w->waiting--;
    }
    *ended = !got && w->closed;
    pthread_mutex_unlock(&w->lock);
    return got;
}

static struct timespec time_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}

void gyre_worker_rest(gyre_worker *w, uint64_t due, bool for_work)
{
    struct timespec until = time_of(due);
    int err = 0;

    pthread_mutex_lock(&w->lock);
    while (err == 0 && !(for_work && (w->waiting > 0 || w->closed)))
        err = due == UINT64_MAX
                  ? pthread_cond_wait(&w->wake, &w->lock)
                  : pthread_cond_timedwait(&w->wake, &w->lock, &until);
    pthread_mutex_unlock(&w->lock);
}

/* ---- the thread ------------------------------------------------------- */

static void finish_command(gyre_worker *w, gyre_status status,
                           const gyre_error *error)
{
    pthread_mutex_lock(&w->lock);
    w->status = status;
    if (status != GYRE_OK)
        w->error = *error;
    w->command = GYRE_COMMAND_NONE;
    pthread_cond_broadcast(&w->idle);
    pthread_mutex_unlock(&w->lock);
}

/* One transfer or flush; of an emulated device it takes its time. */
static gyre_status do_op(gyre_worker *w, gyre_error *error)
{
    uint64_t begun = gyre_now();
    gyre_turn turn = {0, 0};
    gyre_status status = gyre_io_do(w->io, &w->op, error);

    if (w->op.kind == GYRE_IO_FLUSH) {
        gyre_trace_end(w->store->context, GYRE_TRACE_STORAGE_WRITE,
                       w->name.flush, begun, 0);
        return status;
    }
    if (status != GYRE_OK)
        return status;
    if (w->op.kind == GYRE_IO_WRITE) {
        atomic_fetch_add(&w->store->flash, w->op.bytes);
        turn = gyre_bucket_reserve(&w->write_rate, begun, w->op.bytes);
    } else {
        turn = gyre_bucket_reserve(&w->read_rate, begun, w->op.bytes);
    }
    if (turn.end > gyre_now())
        gyre_worker_rest(w, turn.end, false);
    return GYRE_OK;
}

static void *worker_main(void *arg)
{
    gyre_worker *w = arg;

    (void)gyre_fp_pin();
    for (;;) {
        gyre_error error = {GYRE_OK, ""};
        gyre_status status;
        gyre_command todo;

        pthread_mutex_lock(&w->lock);
        while (w->command == GYRE_COMMAND_NONE)
            pthread_cond_wait(&w->wake, &w->lock);
        todo = w->command;
        pthread_mutex_unlock(&w->lock);
        if (todo == GYRE_COMMAND_EXIT)
            return NULL;
        status = todo == GYRE_COMMAND_STREAM ? gyre_worker_stream(w, &error)
                                             : do_op(w, &error);
        finish_command(w, status, &error);
    }
}

static void give_command(gyre_worker *w, gyre_command todo)
{
    pthread_mutex_lock(&w->lock);
    w->status = GYRE_OK;
    w->command = todo;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

static gyre_status await(gyre_worker *w, gyre_error *error)
{
    gyre_status status;

    pthread_mutex_lock(&w->lock);
    while (w->command != GYRE_COMMAND_NONE)
        pthread_cond_wait(&w->idle, &w->lock);
    status = w->status;
    if (status != GYRE_OK && error != NULL)
        *error = w->error;
    pthread_mutex_unlock(&w->lock);
    return status;
}

/* ---- for the store ---------------------------------------------------- */

void gyre_workers_start(gyre_store *store, const gyre_stream *stream)
{
    gyre_link_restart(store);
    for (uint32_t d = 0; d < store->layout.devices; d++) {
        gyre_worker *w = store->places[d].worker;

        w->stream = *stream;
        if (stream->table != NULL)
            w->stream.parts |= GYRE_PART_STATE;
        w->head = w->waiting = 0;
        w->closed = false;
        memset(&w->stats, 0, sizeof(w->stats));
        w->started = w->paced ? gyre_now() : 0;
        give_command(w, GYRE_COMMAND_STREAM);
    }
}

void gyre_workers_push_parts(gyre_store *store, uint64_t chunk,
                             uint32_t version, uint32_t parts)
{
    gyre_worker *w = store->places[store->layout.places[chunk].device].worker;

    pthread_mutex_lock(&w->lock);
    assert(w->waiting < w->capacity);
    w->queue[(w->head + w->waiting++) % w->capacity] =
        (gyre_push){w->paced ? gyre_now() : 0, (uint32_t)chunk,
                    (uint16_t)version, (uint16_t)parts};
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

void gyre_workers_push(gyre_store *store, uint64_t chunk, uint32_t version)
{
    const gyre_worker *w =
        store->places[store->layout.places[chunk].device].worker;

    gyre_workers_push_parts(store, chunk, version, w->stream.parts);
}

void gyre_workers_close(gyre_store *store)
{
    for (uint32_t d = 0; d < store->layout.devices; d++) {
        gyre_worker *w = store->places[d].worker;

        pthread_mutex_lock(&w->lock);
        w->closed = true;
        pthread_cond_signal(&w->wake);
        pthread_mutex_unlock(&w->lock);
    }
}

gyre_status gyre_workers_join(gyre_store *store, gyre_worker_stats *stats,
                              gyre_error *error)
{
    gyre_status result = GYRE_OK;

    for (uint32_t d = 0; d < store->layout.devices; d++) {
        gyre_worker *w = store->places[d].worker;
        bool first = result == GYRE_OK || result == GYRE_STOPPED;
        gyre_status status = await(w, first ? error : NULL);

        if (first && status != GYRE_OK)
            result = status;
        if (stats == NULL || w->stats.first_ns == 0)
            continue;
        stats->read_bytes += w->stats.read_bytes;
        stats->write_bytes += w->stats.write_bytes;
        if (stats->first_ns == 0 || w->stats.first_ns < stats->first_ns)
            stats->first_ns = w->stats.first_ns;
        if (w->stats.last_ns > stats->last_ns)
            stats->last_ns = w->stats.last_ns;
    }
    return result;
}

gyre_status gyre_workers_each(gyre_store *store, const gyre_stream *stream,
                              uint64_t first, uint64_t end, gyre_error *error)
{
    gyre_workers_start(store, stream);
    for (uint64_t c = first; c < end; c++)
        gyre_workers_push(store, c, 0);
    gyre_workers_close(store);
    return gyre_workers_join(store, NULL, error);
}

static gyre_status all(gyre_store *store, const gyre_io_op *op,
                       gyre_error *error)
{
    for (uint32_t d = 0; d < store->layout.devices; d++) {
        gyre_worker *w = store->places[d].worker;

        w->op = *op;
        w->op.file = w->file;
        w->op.buffer = -1;
        give_command(w, GYRE_COMMAND_OP);
    }
    return gyre_workers_join(store, NULL, error);
}

gyre_status gyre_workers_flush(gyre_store *store, gyre_error *error)
{
    gyre_io_op op = {.kind = GYRE_IO_FLUSH};

    return all(store, &op, error);
}

gyre_status gyre_workers_write(gyre_store *store, const void *data,
                               uint64_t bytes, uint64_t offset,
                               gyre_error *error)
{
    gyre_io_op op = {.kind = GYRE_IO_WRITE,
                     .data = (void *)(uintptr_t)data,
                     .bytes = bytes,
                     .offset = offset};

    return all(store, &op, error);
}

static gyre_status one(gyre_store *store, uint32_t device, gyre_io_kind kind,
                       void *data, uint64_t bytes, uint64_t offset,
                       gyre_error *error)
{
    gyre_worker *w = store->places[device].worker;

    w->op = (gyre_io_op){.kind = kind,
                         .file = w->file,
                         .buffer = -1,
                         .data = data,
                         .bytes = bytes,
                         .offset = offset};
    give_command(w, GYRE_COMMAND_OP);
    return await(w, error);
}

gyre_status gyre_workers_write_one(gyre_store *store, uint32_t device,
                                   const void *data, uint64_t bytes,
                                   uint64_t offset, gyre_error *error)
{
    return one(store, device, GYRE_IO_WRITE, (void *)(uintptr_t)data, bytes,
               offset, error);
}

gyre_status gyre_workers_read(gyre_store *store, uint32_t device, void *data,
                              uint64_t bytes, uint64_t offset,
                              gyre_error *error)
{
    return one(store, device, GYRE_IO_READ, data, bytes, offset, error);
}

const char *gyre_workers_engine(const gyre_store *store)
{
    return gyre_io_engine(store->places[0].worker->io);
}

gyre_device *gyre_workers_device(const gyre_store *store, uint32_t device)
{
    return store->places[device].worker->device;
}

/* ---- making them ------------------------------------------------------ */

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

bool gyre_workers_exact(const gyre_store *store)
{
    for (uint32_t d = 0; d < store->layout.devices; d++) {
        const gyre_worker *w = store->places[d].worker;

        if (w->device != NULL && !gyre_device_is_exact(w->device))
            return false;
    }
    return true;
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

static void make_locks(gyre_worker *w)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, &monotonic);
    pthread_cond_init(&w->idle, NULL);
    pthread_condattr_destroy(&monotonic);
}

static gyre_status start_thread(gyre_worker *w, gyre_error *error)
{
    int err = pthread_create(&w->thread, NULL, worker_main, w);

    if (err != 0)
        return gyre_fail_errno(error, GYRE_SYSTEM, err,
                               "cannot start the thread of device %u",
                               w->index);
    w->running = true;
    return GYRE_OK;
}

static gyre_status make_worker(gyre_store *store, uint32_t d, gyre_error *error)
{
    gyre_worker *w = gyre_alloc_zero(store->context, 1, sizeof(*w));
    uint64_t chunks = 0;
    gyre_status status;

    if (w == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a worker");
    store->places[d].worker = w;
    w->store = store;
    w->index = d;
    for (uint64_t c = 0; c < store->layout.chunks; c++)
        chunks += store->layout.places[c].device == d;
    w->capacity = (size_t)chunks * 2 + 1;
    w->buffer_bytes = gyre_workers_buffer_bytes(store);
    if (has_gradients(store))
        w->gradient_at = gyre_layout_max_chunk_bytes(&store->layout);
    name_spans(w);
    make_locks(w);
    status = make_buffers(w, error);
    if (status == GYRE_OK)
        status = make_io(w, error);
    if (status == GYRE_OK)
        status = make_device(w, error);
    if (status != GYRE_OK)
        return status;
    if (w->device != NULL)
        gyre_device_pin(w->device, w->block, w->buffer_bytes * store->buffers);
    return start_thread(w, error);
}

static void end_worker(gyre_store *store, gyre_worker *w)
{
    if (w->running) {
        (void)await(w, NULL);
        give_command(w, GYRE_COMMAND_EXIT);
        pthread_join(w->thread, NULL);
    }
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
    pthread_cond_destroy(&w->idle);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    gyre_free(store->context, w, 1, sizeof(*w));
}

gyre_status gyre_workers_create(gyre_store *store, gyre_error *error)
{
    gyre_status status = gyre_link_create(store, error);

    for (uint32_t d = 0; status == GYRE_OK && d < store->layout.devices; d++)
        status = make_worker(store, d, error);
    return status;
}

void gyre_workers_destroy(gyre_store *store)
{
    for (uint32_t d = 0; store->places != NULL && d < store->layout.devices;
         d++) {
        if (store->places[d].worker != NULL)
            end_worker(store, store->places[d].worker);
        store->places[d].worker = NULL;
    }
    gyre_link_destroy(store);
}
