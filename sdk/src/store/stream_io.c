/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes of a worker's buffers: state and gradients of a chunk. */
#include "config.h"

#include "store/worker.h"
#include "trace/trace.h"

#include <assert.h>

enum { STATE = 0, GRADIENT = 1 }; /* index of the part's transfer */

static gyre_status submit(gyre_worker *w, gyre_buffer *b, int part,
                          gyre_io_op op, uint64_t at, gyre_error *error)
{
    gyre_transfer *t = &b->transfer[part];
    gyre_status status;

    op.file = w->file;
    op.buffer = (int32_t)(b - w->buffers);
    op.data = part == STATE ? b->data : b->work.gradient;
    op.user = t;
    t->begun = gyre_now();
    t->ended = 0;
    t->bytes = op.bytes;
    t->turn = gyre_bucket_reserve(
        op.kind == GYRE_IO_READ ? &w->read_rate : &w->write_rate, at, op.bytes);
    if (w->stats.first_ns == 0)
        w->stats.first_ns = w->paced ? at : t->begun;
    status = gyre_io_submit(w->io, &op, error);
    if (status != GYRE_OK)
        t->begun = 0;
    return status;
}

gyre_status gyre_transfer_state(gyre_worker *w, gyre_buffer *b,
                                gyre_io_kind kind, uint32_t version,
                                uint64_t at, gyre_error *error)
{
    const gyre_layout *layout = &w->store->layout;
    gyre_io_op op = {.kind = kind,
                     .bytes = gyre_layout_chunk_bytes(layout, b->work.chunk),
                     .offset =
                         gyre_layout_offset(layout, b->work.chunk, version)};

    return submit(w, b, STATE, op, at, error);
}

gyre_status gyre_transfer_gradient(gyre_worker *w, gyre_buffer *b,
                                   gyre_io_kind kind, uint64_t bytes,
                                   uint64_t at, gyre_error *error)
{
    const gyre_layout *layout = &w->store->layout;
    gyre_io_op op = {.kind = kind,
                     .bytes = gyre_round_up(bytes, layout->align),
                     .offset =
                         gyre_layout_gradient_offset(layout, b->work.chunk)};

    assert(b->work.gradient != NULL);
    assert(op.bytes <= gyre_layout_gradient_bytes(layout, b->work.chunk));
    return submit(w, b, GRADIENT, op, at, error);
}

static gyre_status name_chunk(gyre_worker *w, const gyre_transfer *t,
                              gyre_status status, gyre_error *error)
{
    const gyre_buffer *b = t->buffer;
    char range[256];

    gyre_layout_describe(&w->store->layout, b->work.chunk, range,
                         sizeof(range));
    return gyre_fail_prefix(error, status, "device %u, %schunk %llu (%s)",
                            w->index,
                            t == &b->transfer[GRADIENT] ? "gradients of " : "",
                            (unsigned long long)b->work.chunk, range);
}

gyre_status gyre_transfer_reap(gyre_worker *w, size_t min, gyre_error *error)
{
    gyre_io_done done[8];
    size_t count = 0;
    gyre_status result = gyre_io_wait(w->io, done, 8, min, &count, error);
    uint64_t now = count > 0 || w->paced ? gyre_now() : 0;

    for (size_t i = 0; i < count; i++) {
        gyre_transfer *t = done[i].op.user;

        /* Not there before its emulated end and there after it: on time. */
        t->ended =
            w->looked < t->turn.end && t->turn.end < now ? t->turn.end : now;
        if (done[i].error != 0) {
            if (result == GYRE_OK) {
                result = gyre_io_report(w->io, &done[i], error);
                result = name_chunk(w, t, result, error);
            }
        } else if (done[i].op.kind == GYRE_IO_READ) {
            w->stats.read_bytes += t->bytes;
        } else {
            w->stats.write_bytes += t->bytes;
            atomic_fetch_add(&w->store->flash, t->bytes);
        }
    }
    w->looked = now;
    return result;
}

bool gyre_transfer_over(const gyre_buffer *b, uint64_t now)
{
    for (int p = 0; p < GYRE_PARTS; p++)
        if (gyre_transfer_in_flight(&b->transfer[p]) ||
            now < b->transfer[p].turn.end)
            return false;
    return true;
}

uint64_t gyre_transfer_close(gyre_worker *w, gyre_buffer *b, bool read)
{
    uint32_t name[GYRE_PARTS] = {read ? w->name.read : w->name.write,
                                 read ? w->name.read_gradient
                                      : w->name.write_gradient};
    uint64_t bytes = 0;

    for (int p = 0; p < GYRE_PARTS; p++) {
        gyre_transfer *t = &b->transfer[p];
        uint64_t begin = t->turn.end != 0 ? t->turn.begin : t->begun;
        uint64_t end = gyre_later(t->ended, t->turn.end);

        if (t->begun == 0)
            continue;
        gyre_trace_span(w->store->context,
                        read ? GYRE_TRACE_STORAGE_READ
                             : GYRE_TRACE_STORAGE_WRITE,
                        name[p], begin, end, t->bytes);
        b->at = gyre_later(b->at, end);
        bytes += t->bytes;
        *t = (gyre_transfer){.buffer = b};
    }
    return bytes;
}
