/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a queue does: it checks operations, keeps one slot for each in flight,
 * and makes completions whole.
 *
 *     operation --check--> slot --transfer--> engine --result--> settle
 *                            ^                                     |
 *                            +---- rest, EINTR, EAGAIN ------------+--> done
 */
#include "config.h"

#include "io/queue.h"

#include <errno.h>
#include <time.h>

/* EAGAIN and EINTR without progress: some at once, then one a millisecond, so
 * that a queue gives up after about a second and not never. */
#define TRIES_AT_ONCE 8
#define TRIES_MOST 1000

/* ---- texts ----------------------------------------------------------- */

static const char *kind_name(gyre_io_kind kind)
{
    switch (kind) {
    case GYRE_IO_READ:
        return "read from";
    case GYRE_IO_WRITE:
        return "write to";
    default:
        return "flush of";
    }
}

static bool aligned(const gyre_io_op *op, const io_file *file)
{
    return op->offset % file->offset == 0 && op->bytes % file->offset == 0 &&
           (uintptr_t)op->data % file->memory == 0;
}

static gyre_status fail_aligned(const gyre_io_op *op, const io_file *file,
                                gyre_status status, gyre_error *error)
{
    return gyre_fail(
        error, status,
        "%s '%s': direct I/O here needs offset and size in multiples of %u "
        "and memory in multiples of %u bytes; got offset %llu, size %llu, "
        "memory at %p",
        kind_name(op->kind), file->name, file->offset, file->memory,
        (unsigned long long)op->offset, (unsigned long long)op->bytes,
        op->data);
}

gyre_status gyre_io_report(const gyre_io *io, const gyre_io_done *done,
                           gyre_error *error)
{
    const gyre_io_op *op = &done->op;
    int err = done->error;
    gyre_status status =
        err == ENOSPC || err == EDQUOT ? GYRE_NO_SPACE : GYRE_IO;

    if (err == 0)
        return GYRE_OK;
    const io_file *file = &io->files[op->file];
    if (op->kind == GYRE_IO_FLUSH) {
        gyre_fail_errno(error, status, err, "flush of '%s'", file->name);
    } else if (err == EINVAL && !aligned(op, file)) {
        return fail_aligned(op, file, status, error);
    } else if (err == ENODATA && op->kind == GYRE_IO_READ) {
        gyre_fail(error, status,
                  "read from '%s': the file ends after %llu of the %llu "
                  "bytes asked for at offset %llu",
                  file->name, (unsigned long long)done->moved,
                  (unsigned long long)op->bytes,
                  (unsigned long long)op->offset);
    } else {
        gyre_fail_errno(
            error, status, err,
            "%s '%s': %llu of %llu bytes moved at offset %llu",
            kind_name(op->kind), file->name, (unsigned long long)done->moved,
            (unsigned long long)op->bytes, (unsigned long long)op->offset);
    }
    /* gyre_fail_errno would make EACCES and ENOMEM statuses of their own; here
     * they come from the device, not from the caller's rights or memory. */
    if (error)
        error->status = status;
    return status;
}

gyre_status gyre_io_must_be_idle(const gyre_io *io, const char *what,
                                 gyre_error *error)
{
    if (io->in_flight == 0)
        return GYRE_OK;
    return gyre_fail(error, GYRE_STATE,
                     "%s: %u operations are in flight, wait for them first",
                     what, io->in_flight);
}

/* ---- operations ------------------------------------------------------ */

static gyre_status check_buffer(const gyre_io *io, const gyre_io_op *op,
                                gyre_error *error)
{
    if (op->buffer == -1)
        return GYRE_OK;
    if (op->buffer < 0 || (size_t)op->buffer >= io->block_count)
        return gyre_fail(error, GYRE_INVALID,
                         "%s '%s': buffer %d, but %zu were added (-1: none)",
                         kind_name(op->kind), io->files[op->file].name,
                         op->buffer, io->block_count);
    uintptr_t start = (uintptr_t)io->blocks[op->buffer];
    uintptr_t data = (uintptr_t)op->data;
    if (data < start || data - start > io->block_bytes ||
        op->bytes > io->block_bytes - (data - start))
        return gyre_fail(error, GYRE_INVALID,
                         "%s '%s': %llu bytes at %p reach outside buffer %d "
                         "(%zu bytes at %p)",
                         kind_name(op->kind), io->files[op->file].name,
                         (unsigned long long)op->bytes, op->data, op->buffer,
                         io->block_bytes, io->blocks[op->buffer]);
    return GYRE_OK;
}

static gyre_status check_op(const gyre_io *io, const gyre_io_op *op,
                            gyre_error *error)
{
    if (op->kind != GYRE_IO_READ && op->kind != GYRE_IO_WRITE &&
        op->kind != GYRE_IO_FLUSH)
        return gyre_fail(error, GYRE_INVALID, "unknown I/O operation %d",
                         (int)op->kind);
    if (op->file >= io->file_count)
        return gyre_fail(error, GYRE_INVALID, "%s file %u, but %zu were added",
                         kind_name(op->kind), op->file, io->file_count);
    if (op->kind == GYRE_IO_FLUSH)
        return GYRE_OK;
    const io_file *file = &io->files[op->file];
    if (!op->data || op->bytes == 0 || op->bytes > INT64_MAX ||
        op->offset > INT64_MAX - op->bytes)
        return gyre_fail(error, GYRE_INVALID,
                         "%s '%s': offset %llu, size %llu, memory at %p: size "
                         "must be positive and the end less than 2^63",
                         kind_name(op->kind), file->name,
                         (unsigned long long)op->offset,
                         (unsigned long long)op->bytes, op->data);
    /* Said here and not left to the kernel: it only knows EINVAL, and some
     * file systems quietly go through the page cache instead. */
    if (!aligned(op, file))
        return fail_aligned(op, file, GYRE_INVALID, error);
    return check_buffer(io, op, error);
}

/* Hand what is left of a slot's operation to the engine. */
static int push(gyre_io *io, uint32_t slot, bool again)
{
    const io_slot *s = &io->slots[slot];
    gyre_io_transfer transfer = {
        .kind = s->op.kind,
        .slot = slot,
        .file = s->op.file,
        .buffer = -1,
        .again = again,
    };

    if (s->op.kind != GYRE_IO_FLUSH) {
        uint64_t left = s->op.bytes - s->moved;
        transfer.buffer = s->op.buffer;
        transfer.data = (char *)s->op.data + s->moved;
        transfer.offset = s->op.offset + s->moved;
        transfer.bytes = left < GYRE_IO_TRANSFER_MOST ? (uint32_t)left
                                                      : GYRE_IO_TRANSFER_MOST;
    }
    return io->engine->call->submit(io->engine, &transfer);
}

gyre_status gyre_io_submit(gyre_io *io, const gyre_io_op *op, gyre_error *error)
{
    gyre_status status = check_op(io, op, error);

    if (status)
        return status;
    const char *name = io->files[op->file].name;
    if (io->in_flight == io->depth)
        return gyre_fail(error, GYRE_STATE,
                         "%s '%s': the queue's depth of %u is in flight "
                         "already, wait for a completion first",
                         kind_name(op->kind), name, io->depth);
    uint32_t slot = io->unused[io->depth - io->in_flight - 1];
    io->slots[slot] = (io_slot){.op = *op};
    if (io->recorder) {
        status = gyre_io_recorder_start(io->recorder, op, name,
                                        &io->slots[slot].record, error);
        if (status)
            return status;
    }
    int err = push(io, slot, false);
    if (err) {
        if (io->recorder)
            gyre_io_recorder_end(io->recorder, op, name, io->slots[slot].record,
                                 false);
        return gyre_fail_errno(error, GYRE_SYSTEM, err,
                               "%s '%s': the kernel takes no operation",
                               kind_name(op->kind), name);
    }
    io->in_flight++;
    return GYRE_OK;
}

/* ---- completions ----------------------------------------------------- */

static void pause_before_retry(uint32_t tries)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};

    if (tries > TRIES_AT_ONCE)
        nanosleep(&millisecond, NULL);
}

/*
 * Judge one result.  Returns 0 when the operation is whole, -1 when it goes on
 * (then `push` again), or the errno that ends it.
 */
static int judge(gyre_io *io, io_slot *s, int32_t moved)
{
    const io_file *file = &io->files[s->op.file];

    if (moved == -EINTR || moved == -EAGAIN) {
        if (++s->tries >= TRIES_MOST)
            return -moved;
        pause_before_retry(s->tries);
        return -1;
    }
    if (moved < 0)
        return -moved;
    if (s->op.kind == GYRE_IO_FLUSH)
        return 0;
    if (moved == 0)
        return s->op.kind == GYRE_IO_READ ? ENODATA : ENOSPC;
    s->moved += (uint64_t)moved;
    s->tries = 0;
    if (s->moved >= s->op.bytes)
        return 0;
    /* Direct I/O moves whole blocks except just before the end of the file;
     * asking for the rest from there gives EINVAL instead of the 0 that says
     * so. */
    if (s->moved % file->offset != 0)
        return s->op.kind == GYRE_IO_READ ? ENODATA : EIO;
    return -1;
}

/* True when the slot's operation is done; it is then free again. */
static bool settle(gyre_io *io, const gyre_io_result *result,
                   gyre_io_done *done)
{
    io_slot *s = &io->slots[result->slot];
    int err = judge(io, s, result->moved);

    if (err == -1) {
        err = push(io, result->slot, true);
        if (err == 0)
            return false;
    }
    if (io->recorder)
        gyre_io_recorder_end(io->recorder, &s->op, io->files[s->op.file].name,
                             s->record, err == 0);
    done->op = s->op;
    done->error = err;
    done->moved = err ? s->moved : s->op.bytes;
    io->unused[io->depth - io->in_flight] = result->slot;
    io->in_flight--;
    return true;
}

gyre_status gyre_io_wait(gyre_io *io, gyre_io_done *done, size_t max,
                         size_t min, size_t *count, gyre_error *error)
{
    size_t taken = 0, got;
    int err;

    if (min > max || min > io->in_flight)
        return gyre_fail(error, GYRE_INVALID,
                         "waiting for %zu to %zu completions with %u "
                         "operations in flight",
                         min, max, io->in_flight);
    do {
        size_t room = max - taken < io->depth ? max - taken : io->depth;
        err = io->engine->call->wait(io->engine, io->results, room,
                                     taken < min ? 1 : 0, &got);
        for (size_t i = 0; i < got; i++)
            if (settle(io, &io->results[i], &done[taken]))
                taken++;
    } while (err == 0 && taken < min);
    *count = taken;
    if (err)
        return gyre_fail_errno(error, GYRE_SYSTEM, err,
                               "waiting for %u operations in flight",
                               io->in_flight);
    return GYRE_OK;
}

gyre_status gyre_io_do(gyre_io *io, const gyre_io_op *op, gyre_error *error)
{
    gyre_io_done done;
    size_t count;
    gyre_status status = gyre_io_must_be_idle(io, "gyre_io_do", error);

    if (!status)
        status = gyre_io_submit(io, op, error);
    if (!status)
        status = gyre_io_wait(io, &done, 1, 1, &count, error);
    if (!status)
        status = gyre_io_report(io, &done, error);
    return status;
}
