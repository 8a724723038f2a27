/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of a queue, for io.c and queue.c: one slot for each operation in
 * flight, and the files and buffers that operations name.
 */
#ifndef GYRE_SRC_IO_QUEUE_H
#define GYRE_SRC_IO_QUEUE_H

#include "io/engine.h"

typedef struct io_file {
    char *name;
    uint32_t memory, offset; /* alignment; 1, 1 unless direct */
} io_file;

typedef struct io_slot {
    gyre_io_op op;
    uint64_t moved;
    uint64_t record; /* joins start and end in the recorder */
    uint32_t tries;  /* since the last byte moved */
} io_slot;

struct gyre_io {
    gyre_context *context;
    gyre_io_backend *engine;
    gyre_io_recorder *recorder;
    uint32_t depth, in_flight;
    io_slot *slots;
    uint32_t *unused; /* depth - in_flight slots, as a stack */
    gyre_io_result *results;
    io_file *files;
    size_t file_count, file_capacity;
    void **blocks;
    size_t block_bytes, block_count;
};

/* STATE when operations are in flight; `what` may not be done then. */
gyre_status gyre_io_must_be_idle(const gyre_io *io, const char *what,
                                 gyre_error *error);

#endif
