/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the trace; for the sources of this room only.
 *
 *     tracer --> ring --> ring --> ...         one per living thread that has
 *       |         |                            recorded, kept when it ends
 *     names     cells: . . [tail ... head) .   and given to the next new one
 *
 * The owner writes cell `head` and then publishes head; a reader, under the
 * tracer's lock, copies [tail, head) or moves tail up to head.  A cell between
 * them is never written, so that no reader sees half of one.
 */
#ifndef GYRE_SRC_TRACE_TRACER_H
#define GYRE_SRC_TRACE_TRACER_H

#include "trace/trace.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct gyre_trace_cell {
    uint64_t begin;
    uint64_t end;
    uint64_t arg;
    uint32_t thread;
    uint16_t name;
    uint8_t category;
    uint8_t reserved;
} gyre_trace_cell;

static_assert(sizeof(gyre_trace_cell) == 32, "two records to a cache line");

typedef struct gyre_tracer gyre_tracer;

typedef struct gyre_ring {
    gyre_tracer *tracer;
    struct gyre_ring *next;
    bool owned;      /* by a living thread */
    uint32_t thread; /* of its owner */
    uint32_t slot;   /* head modulo capacity */
    uint32_t capacity;
    _Atomic uint64_t head;
    _Atomic uint64_t tail;
    _Atomic uint64_t dropped;
    gyre_trace_cell cells[];
} gyre_ring;

enum { GYRE_TRACE_MAX_NAMES = 65535 };

struct gyre_tracer {
    gyre_context *context;
    pthread_key_t key; /* this thread's ring */
    pthread_mutex_t lock;
    gyre_ring *rings;
    uint32_t capacity;
    _Atomic uint64_t dropped; /* for want of a ring */
    char **names;             /* number - 1 */
    uint32_t name_count;
    uint32_t name_room;
    uint32_t *thread_names; /* name of thread - 1, or 0 */
    uint32_t thread_count;
    uint32_t thread_room;
};

/* The tracer, made on first use; NULL when off or out of memory. */
gyre_tracer *gyre_tracer_make(gyre_context *context);
/* The tracer if there is one. */
gyre_tracer *gyre_tracer_get(gyre_context *context);

void gyre_ring_put(gyre_ring *ring, const gyre_trace_cell *cell);

/* A copy of all records by begin, and their number; freed by the caller as
 * *room cells of memory.  NULL and *count 0 when there are none. */
gyre_status gyre_tracer_copy(gyre_tracer *tracer, gyre_trace_cell **cells,
                             uint64_t *count, uint64_t *room,
                             gyre_error *error);

/* Text of a name, and of a thread (NULL when it has none). */
const char *gyre_tracer_name(gyre_tracer *tracer, uint32_t name);
const char *gyre_tracer_thread_name(gyre_tracer *tracer, uint32_t thread);

#endif
