/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread per device that keeps its queue full: reads ahead, processes,
 * writes behind, over a fixed set of buffers.
 *
 *     main thread               worker
 *     start ------------------> stream: loop {
 *     push, push, ...               read into free buffers
 *     close                         process one that is ready, write it
 *     join <-------------------     reap completions }
 */
#include "config.h"

#include "store/store.h"
#include "trace/trace.h"

#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 * 1024 * 1024 };

typedef enum command { CMD_NONE, CMD_STREAM, CMD_OP, CMD_EXIT } command;

typedef enum buffer_state { FREE, READING, READY, WRITING } buffer_state;

typedef struct buffer {
    buffer_state state;
    gyre_work work;
    uint8_t *data;
    uint64_t begun;
} buffer;

struct gyre_worker {
    gyre_store *store;
    uint32_t index;
    bool running;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* to the worker */
    pthread_cond_t idle; /* to who waits for it */

    gyre_io *io;
    uint32_t file;
    buffer *buffers;
    uint64_t buffer_bytes;
    uint8_t *block; /* all buffers, one behind the other */

    /* under lock */
    command command;
    gyre_stream stream;
    gyre_io_op op;
    gyre_work *queue;
    size_t head, tail, capacity;
    bool closed;
    gyre_status status;
    gyre_error error;

    gyre_worker_stats stats; /* the worker's while it runs */
    uint32_t name_read, name_write, name_process, name_flush;
};

/* ---- the stream ------------------------------------------------------- */

static bool pop(gyre_worker *w, gyre_work *work, bool *ended)
{
    bool got;

    pthread_mutex_lock(&w->lock);
    got = w->head < w->tail;
    if (got)
        *work = w->queue[w->head++];
    *ended = !got && w->closed;
    pthread_mutex_unlock(&w->lock);
    return got;
}

static void wait_for_work(gyre_worker *w)
{
    pthread_mutex_lock(&w->lock);
    while (w->head == w->tail && !w->closed)
        pthread_cond_wait(&w->wake, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static buffer *find(gyre_worker *w, buffer_state state)
{
    for (uint32_t i = 0; i < w->store->buffers; i++)
        if (w->buffers[i].state == state)
            return &w->buffers[i];
    return NULL;
}

static gyre_status submit(gyre_worker *w, buffer *b, gyre_io_kind kind,
                          uint32_t version, gyre_error *error)
{
    const gyre_layout *layout = &w->store->layout;
    gyre_io_op op = {
        .kind = kind,
        .file = w->file,
        .buffer = (int32_t)(b - w->buffers),
        .data = b->data,
        .bytes = gyre_layout_chunk_bytes(layout, b->work.chunk),
        .offset = gyre_layout_offset(layout, b->work.chunk, version),
        .user = b,
    };

    b->begun = gyre_now();
    if (w->stats.first_ns == 0)
        w->stats.first_ns = b->begun;
    return gyre_io_submit(w->io, &op, error);
}

/* Start reads (or make buffers ready) while there is work and room. */
static gyre_status feed(gyre_worker *w, bool *ended, gyre_error *error)
{
    const gyre_entry *table = w->stream.table;
    buffer *b;

    while ((b = find(w, FREE)) != NULL && pop(w, &b->work, ended)) {
        gyre_status status;

        if (table == NULL) {
            b->state = READY;
            continue;
        }
        status =
            submit(w, b, GYRE_IO_READ, table[b->work.chunk].version, error);
        if (status != GYRE_OK)
            return status;
        b->state = READING;
    }
    return GYRE_OK;
}

static gyre_status process(gyre_worker *w, buffer *b, gyre_error *error)
{
    int write = -1;
    uint64_t begun = gyre_trace_begin(w->name_process);
    gyre_status status = w->stream.process(w->stream.user, w->index, b->work,
                                           b->data, &write, error);

    gyre_trace_end(w->store->context, GYRE_TRACE_COMPUTE, w->name_process,
                   begun, b->work.chunk);
    if (status != GYRE_OK || write < 0) {
        b->state = FREE;
        return status;
    }
    status = submit(w, b, GYRE_IO_WRITE, (uint32_t)write, error);
    b->state = status == GYRE_OK ? WRITING : FREE;
    return status;
}

static gyre_status name_chunk(gyre_worker *w, const buffer *b,
                              gyre_status status, gyre_error *error)
{
    char range[256];

    gyre_layout_describe(&w->store->layout, b->work.chunk, range,
                         sizeof(range));
    return gyre_fail_prefix(error, status, "device %u, chunk %llu (%s)",
                            w->index, (unsigned long long)b->work.chunk, range);
}

static void count_transfer(gyre_worker *w, const buffer *b, uint64_t bytes)
{
    bool read = b->state == READING;

    if (read)
        w->stats.read_bytes += bytes;
    else
        w->stats.write_bytes += bytes;
    gyre_trace_end(w->store->context,
                   read ? GYRE_TRACE_STORAGE_READ : GYRE_TRACE_STORAGE_WRITE,
                   read ? w->name_read : w->name_write, b->begun, bytes);
}

static gyre_status reap(gyre_worker *w, size_t min, gyre_error *error)
{
    gyre_io_done done[8];
    size_t count = 0;
    gyre_status result = gyre_io_wait(w->io, done, 8, min, &count, error);

    for (size_t i = 0; i < count; i++) {
        buffer *b = done[i].op.user;

        if (done[i].error != 0) {
            b->state = FREE;
            if (result == GYRE_OK) {
                result = gyre_io_report(w->io, &done[i], error);
                result = name_chunk(w, b, result, error);
            }
            continue;
        }
        count_transfer(w, b, done[i].op.bytes);
        b->state = b->state == READING ? READY : FREE;
    }
    return result;
}

/* After an error: nothing may land in a buffer that is used again. */
static void drain(gyre_worker *w)
{
    gyre_error ignored;

    while (gyre_io_in_flight(w->io) > 0) {
        size_t before = gyre_io_in_flight(w->io);

        (void)reap(w, 1, &ignored);
        if (gyre_io_in_flight(w->io) == before)
            break;
    }
    for (uint32_t i = 0; i < w->store->buffers; i++)
        w->buffers[i].state = FREE;
}

static gyre_status run_stream(gyre_worker *w, gyre_error *error)
{
    gyre_status status = GYRE_OK;
    bool ended = false;

    while (status == GYRE_OK) {
        buffer *b;

        status = feed(w, &ended, error);
        if (status != GYRE_OK)
            break;
        b = find(w, READY);
        if (b != NULL) {
            status = process(w, b, error);
            if (status == GYRE_OK && gyre_io_in_flight(w->io) > 0)
                status = reap(w, 0, error);
        } else if (gyre_io_in_flight(w->io) > 0) {
            status = reap(w, 1, error);
        } else if (ended) {
            break;
        } else {
            wait_for_work(w);
        }
    }
    if (status != GYRE_OK)
        drain(w);
    if (w->stats.first_ns != 0)
        w->stats.last_ns = gyre_now();
    if (w->stream.ended != NULL)
        w->stream.ended(w->stream.user, w->index, status);
    return status;
}

/* ---- the thread ------------------------------------------------------- */

static void finish_command(gyre_worker *w, gyre_status status,
                           const gyre_error *error)
{
    pthread_mutex_lock(&w->lock);
    w->status = status;
    if (status != GYRE_OK)
        w->error = *error;
    w->command = CMD_NONE;
    pthread_cond_broadcast(&w->idle);
    pthread_mutex_unlock(&w->lock);
}

static void *worker_main(void *arg)
{
    gyre_worker *w = arg;

    (void)gyre_fp_pin();
    for (;;) {
        gyre_error error = {GYRE_OK, ""};
        gyre_status status;
        uint64_t begun;
        command todo;

        pthread_mutex_lock(&w->lock);
        while (w->command == CMD_NONE)
            pthread_cond_wait(&w->wake, &w->lock);
        todo = w->command;
        pthread_mutex_unlock(&w->lock);
        if (todo == CMD_EXIT)
            return NULL;
        begun = gyre_trace_begin(w->name_flush);
        status = todo == CMD_STREAM ? run_stream(w, &error)
                                    : gyre_io_do(w->io, &w->op, &error);
        if (todo == CMD_OP && w->op.kind == GYRE_IO_FLUSH)
            gyre_trace_end(w->store->context, GYRE_TRACE_STORAGE_WRITE,
                           w->name_flush, begun, 0);
        finish_command(w, status, &error);
    }
}

static void give_command(gyre_worker *w, command todo)
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
    while (w->command != CMD_NONE)
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
    for (uint32_t d = 0; d < store->layout.devices; d++) {
        gyre_worker *w = store->places[d].worker;

        w->stream = *stream;
        w->head = w->tail = 0;
        w->closed = false;
        memset(&w->stats, 0, sizeof(w->stats));
        give_command(w, CMD_STREAM);
    }
}

void gyre_workers_push(gyre_store *store, uint64_t chunk, uint32_t version)
{
    gyre_worker *w = store->places[store->layout.places[chunk].device].worker;

    pthread_mutex_lock(&w->lock);
    w->queue[w->tail++] = (gyre_work){chunk, version};
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
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
        give_command(w, CMD_OP);
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
    give_command(w, CMD_OP);
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

/* ---- making them ------------------------------------------------------ */

static gyre_status make_io(gyre_worker *w, gyre_error *error)
{
    gyre_store *store = w->store;
    gyre_place *place = &store->places[w->index];
    gyre_io_options options = {
        .engine = store->io_engine,
        .depth = store->buffers + 1,
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
        gyre_alloc_zero(store->context, store->buffers, sizeof(buffer));
    w->queue = gyre_alloc(store->context, w->capacity, sizeof(gyre_work));
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

static gyre_status make_worker(gyre_store *store, uint32_t d, gyre_error *error)
{
    gyre_worker *w = gyre_alloc_zero(store->context, 1, sizeof(*w));
    uint64_t chunks = 0;
    gyre_status status;
    int err;

    if (w == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a worker");
    store->places[d].worker = w;
    w->store = store;
    w->index = d;
    for (uint64_t c = 0; c < store->layout.chunks; c++)
        chunks += store->layout.places[c].device == d;
    w->capacity = (size_t)chunks * 2 + 1;
    w->buffer_bytes = gyre_layout_max_chunk_bytes(&store->layout);
    w->name_read = gyre_trace_intern(store->context, "read chunk");
    w->name_write = gyre_trace_intern(store->context, "write chunk");
    w->name_process = gyre_trace_intern(store->context, "update chunk");
    w->name_flush = gyre_trace_intern(store->context, "flush");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    pthread_cond_init(&w->idle, NULL);
    status = make_buffers(w, error);
    if (status == GYRE_OK)
        status = make_io(w, error);
    if (status != GYRE_OK)
        return status;
    err = pthread_create(&w->thread, NULL, worker_main, w);
    if (err != 0)
        return gyre_fail_errno(error, GYRE_SYSTEM, err,
                               "cannot start the thread of device %u", d);
    w->running = true;
    return GYRE_OK;
}

static void end_worker(gyre_store *store, gyre_worker *w)
{
    if (w->running) {
        (void)await(w, NULL);
        give_command(w, CMD_EXIT);
        pthread_join(w->thread, NULL);
    }
    gyre_io_destroy(w->io);
    if (w->block != NULL)
        gyre_free_aligned(store->context, w->block,
                          w->buffer_bytes * store->buffers, block_align(w));
    gyre_free(store->context, w->buffers, store->buffers, sizeof(buffer));
    gyre_free(store->context, w->queue, w->capacity, sizeof(gyre_work));
    pthread_cond_destroy(&w->idle);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    gyre_free(store->context, w, 1, sizeof(*w));
}

gyre_status gyre_workers_create(gyre_store *store, gyre_error *error)
{
    for (uint32_t d = 0; d < store->layout.devices; d++) {
        gyre_status status = make_worker(store, d, error);

        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

void gyre_workers_destroy(gyre_store *store)
{
    for (uint32_t d = 0; store->places != NULL && d < store->layout.devices;
         d++) {
        if (store->places[d].worker != NULL)
            end_worker(store, store->places[d].worker);
        store->places[d].worker = NULL;
    }
}
