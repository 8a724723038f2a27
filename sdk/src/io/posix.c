/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The posix engine: pread, pwrite and fdatasync, done inside submit; results
 * wait in a ring until they are asked for.
 */
#include "config.h"

#include "io/engine.h"

#include <errno.h>
#include <unistd.h>

typedef struct posix_engine {
    gyre_io_backend base;
    gyre_io_fds files;
    gyre_io_result *ring;
    uint32_t depth, first, count;
} posix_engine;

static const char *posix_name(gyre_io_backend *base)
{
    (void)base;
    return "posix";
}

static gyre_status posix_add_file(gyre_io_backend *base, int fd, uint32_t index,
                                  gyre_error *error)
{
    posix_engine *engine = (posix_engine *)base;

    (void)index;
    return gyre_io_fds_add(base->context, &engine->files, fd, error);
}

static gyre_status posix_add_buffers(gyre_io_backend *base, void *const *blocks,
                                     size_t bytes, size_t count,
                                     gyre_error *error)
{
    /* Plain system calls gain nothing from knowing the buffers. */
    (void)base;
    (void)blocks;
    (void)bytes;
    (void)count;
    (void)error;
    return GYRE_OK;
}

static int posix_submit(gyre_io_backend *base, const gyre_io_transfer *t)
{
    posix_engine *engine = (posix_engine *)base;
    int fd = engine->files.fd[t->file];
    ssize_t moved;

    if (t->kind == GYRE_IO_READ)
        moved = pread(fd, t->data, t->bytes, (off_t)t->offset);
    else if (t->kind == GYRE_IO_WRITE)
        moved = pwrite(fd, t->data, t->bytes, (off_t)t->offset);
    else
        moved = fdatasync(fd);
    uint32_t last = (engine->first + engine->count) % engine->depth;
    engine->ring[last] = (gyre_io_result){
        .slot = t->slot,
        .moved = moved < 0 ? -errno : (int32_t)moved,
    };
    engine->count++;
    return 0;
}

static int posix_wait(gyre_io_backend *base, gyre_io_result *results,
                      size_t max, size_t min, size_t *count)
{
    posix_engine *engine = (posix_engine *)base;
    size_t n = 0;

    (void)min; /* everything submitted is done */
    while (n < max && engine->count > 0) {
        results[n++] = engine->ring[engine->first];
        engine->first = (engine->first + 1) % engine->depth;
        engine->count--;
    }
    *count = n;
    return 0;
}

static void posix_destroy(gyre_io_backend *base)
{
    posix_engine *engine = (posix_engine *)base;

    gyre_io_fds_free(base->context, &engine->files);
    gyre_free(base->context, engine->ring, engine->depth, sizeof *engine->ring);
    gyre_free(base->context, engine, 1, sizeof *engine);
}

static const gyre_io_backend_class posix_class = {
    .name = posix_name,
    .add_file = posix_add_file,
    .add_buffers = posix_add_buffers,
    .submit = posix_submit,
    .wait = posix_wait,
    .destroy = posix_destroy,
};

gyre_status gyre_io_posix_create(gyre_context *context, uint32_t depth,
                                 gyre_io_backend **out, gyre_error *error)
{
    posix_engine *engine = gyre_alloc_zero(context, 1, sizeof *engine);

    if (!engine)
        return gyre_fail(error, GYRE_NO_MEMORY, "posix engine: out of memory");
    engine->base.call = &posix_class;
    engine->base.context = context;
    engine->depth = depth;
    engine->ring = gyre_alloc_zero(context, depth, sizeof *engine->ring);
    if (!engine->ring) {
        gyre_free(context, engine, 1, sizeof *engine);
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "posix engine of depth %u: out of memory", depth);
    }
    *out = &engine->base;
    return GYRE_OK;
}
