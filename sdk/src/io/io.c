/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of a queue, its files and its buffers.  What it does is in queue.c.
 */
#include "config.h"

#include "io/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define DEPTH_MOST 4096

/* ---- life ------------------------------------------------------------ */

static void io_free(gyre_io *io)
{
    gyre_context *context = io->context;

    for (size_t i = 0; i < io->file_count; i++)
        gyre_free_text(context, io->files[i].name);
    gyre_free(context, io->files, io->file_capacity, sizeof *io->files);
    gyre_free(context, io->blocks, io->block_count, sizeof *io->blocks);
    gyre_free(context, io->results, io->depth, sizeof *io->results);
    gyre_free(context, io->unused, io->depth, sizeof *io->unused);
    gyre_free(context, io->slots, io->depth, sizeof *io->slots);
    gyre_free(context, io, 1, sizeof *io);
}

gyre_status gyre_io_create(gyre_context *context,
                           const gyre_io_options *options, gyre_io **out,
                           gyre_error *error)
{
    gyre_status status;
    uint32_t depth = options->depth;

    if (depth < 1 || depth > DEPTH_MOST)
        return gyre_fail(error, GYRE_RANGE,
                         "I/O queue depth %u: must be 1 to %u", depth,
                         DEPTH_MOST);
    gyre_io *io = gyre_alloc_zero(context, 1, sizeof *io);
    if (!io)
        return gyre_fail(error, GYRE_NO_MEMORY, "I/O queue: out of memory");
    io->context = context;
    io->recorder = options->recorder;
    io->depth = depth;
    io->slots = gyre_alloc_zero(context, depth, sizeof *io->slots);
    io->unused = gyre_alloc_zero(context, depth, sizeof *io->unused);
    io->results = gyre_alloc_zero(context, depth, sizeof *io->results);
    if (!io->slots || !io->unused || !io->results) {
        status = gyre_fail(error, GYRE_NO_MEMORY,
                           "I/O queue of depth %u: out of memory", depth);
        goto free_io;
    }
    for (uint32_t i = 0; i < depth; i++)
        io->unused[i] = depth - 1 - i;
    status = gyre_io_backend_create(context,
                                    options->engine ? options->engine : "auto",
                                    depth, &io->engine, error);
    if (status)
        goto free_io;
    *out = io;
    return GYRE_OK;

free_io:
    io_free(io);
    return status;
}

void gyre_io_destroy(gyre_io *io)
{
    gyre_error error;
    gyre_io_done done[16];
    size_t count;

    if (!io)
        return;
    while (io->in_flight > 0) {
        if (gyre_io_wait(io, done, 16, 1, &count, &error)) {
            /* The kernel refuses to say what is done: the ring's own end
             * cancels the rest. */
            gyre_log(io->context, GYRE_LOG_ERROR,
                     "I/O queue destroyed with %u operations in flight: %s",
                     io->in_flight, error.text);
            break;
        }
    }
    io->engine->call->destroy(io->engine);
    io_free(io);
}

const char *gyre_io_engine(const gyre_io *io)
{
    return io->engine->call->name(io->engine);
}

size_t gyre_io_in_flight(const gyre_io *io)
{
    return io->in_flight;
}

/* ---- files and buffers ----------------------------------------------- */

gyre_status gyre_io_add_file(gyre_io *io, int fd, const char *name,
                             uint32_t *index, gyre_error *error)
{
    gyre_status status = gyre_io_must_be_idle(io, "adding a file", error);
    size_t n = io->file_count;

    if (status)
        return status;
    if (fcntl(fd, F_GETFL) < 0)
        return gyre_fail_errno(error, GYRE_INVALID, errno,
                               "file '%s': descriptor %d", name, fd);
    if (n == io->file_capacity) {
        size_t more = n ? 2 * n : 8;
        io_file *files =
            gyre_grow(io->context, io->files, n, more, sizeof *files);
        if (!files)
            return gyre_fail(error, GYRE_NO_MEMORY, "file '%s': out of memory",
                             name);
        io->files = files;
        io->file_capacity = more;
    }
    io_file *file = &io->files[n];
    file->name = gyre_copy_text(io->context, name);
    if (!file->name)
        return gyre_fail(error, GYRE_NO_MEMORY, "file '%s': out of memory",
                         name);
    gyre_io_transfer_alignment(fd, &file->memory, &file->offset);
    status = io->engine->call->add_file(io->engine, fd, (uint32_t)n, error);
    if (status) {
        gyre_free_text(io->context, file->name);
        return gyre_fail_prefix(error, status, "file '%s'", name);
    }
    io->file_count = n + 1;
    *index = (uint32_t)n;
    return GYRE_OK;
}

gyre_status gyre_io_add_buffers(gyre_io *io, void *const *blocks, size_t bytes,
                                size_t count, gyre_error *error)
{
    gyre_status status = gyre_io_must_be_idle(io, "adding buffers", error);

    if (status)
        return status;
    if (io->block_count > 0)
        return gyre_fail(error, GYRE_STATE,
                         "buffers can be added once, and %zu are there",
                         io->block_count);
    if (bytes == 0 || count == 0 || count > INT32_MAX)
        return gyre_fail(error, GYRE_RANGE,
                         "%zu buffers of %zu bytes: both must be positive",
                         count, bytes);
    void **copy = gyre_alloc(io->context, count, sizeof *copy);
    if (!copy)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "list of %zu buffers: out of memory", count);
    memcpy(copy, blocks, count * sizeof *copy);
    status =
        io->engine->call->add_buffers(io->engine, blocks, bytes, count, error);
    if (status) {
        gyre_free(io->context, copy, count, sizeof *copy);
        return status;
    }
    io->blocks = copy;
    io->block_bytes = bytes;
    io->block_count = count;
    return GYRE_OK;
}
