/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a context; for the sources of this room only. */
#ifndef GYRE_SRC_BASE_CONTEXT_H
#define GYRE_SRC_BASE_CONTEXT_H

#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct gyre_room_slot {
    void *_Atomic state; /* read without the lock */
    void (*release)(gyre_context *, void *);
} gyre_room_slot;

struct gyre_context {
    gyre_allocator allocator;
    _Atomic uint64_t memory;
    _Atomic uint64_t memory_peak;
    gyre_log_function log;
    void *log_user;
    char *plugin_path;
    gyre_isa isa;
    uint32_t trace_records;
    pthread_mutex_t lock;
    gyre_room_slot rooms[GYRE_ROOM_COUNT];
};

/* The C library's allocator, used when the options give none. */
void *gyre_resize_default(void *user, void *block, size_t old_bytes,
                          size_t new_bytes, size_t align);

#endif
