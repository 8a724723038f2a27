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
#include <time.h>

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

bool gyre_workers_exact(const gyre_store *store)
{
    for (uint32_t d = 0; d < store->layout.devices; d++) {
        const gyre_worker *w = store->places[d].worker;

        if (w->device != NULL && !gyre_device_is_exact(w->device))
            return false;
    }
    return true;
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
    gyre_status status;

    if (w == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a worker");
    store->places[d].worker = w;
    w->store = store;
    w->index = d;
    make_locks(w);
    status = gyre_worker_equip(w, error);
    return status == GYRE_OK ? start_thread(w, error) : status;
}

static void end_worker(gyre_store *store, gyre_worker *w)
{
    if (w->running) {
        (void)await(w, NULL);
        give_command(w, GYRE_COMMAND_EXIT);
        pthread_join(w->thread, NULL);
    }
    gyre_worker_strip(w);
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
