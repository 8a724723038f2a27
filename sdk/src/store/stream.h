/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker per device: a thread, a queue, and recycled buffers.
 *
 *     FREE -> READING -> READY -> process -> (COMPUTING -> finish) -> WRITING
 *       ^                            |                                   |
 *       +----------------------------+-----------------------------------+
 *
 * A stream is what a worker does with chunks: read the parts asked for, call
 * `process`, write what it says.  Chunks are pushed while it runs; it ends when
 * closed and drained, or at the first error.  With one buffer a device reads,
 * processes and writes in turn; with more it reads ahead and writes behind.
 *
 * A buffer holds one version of a chunk and, behind it, room for the chunk's
 * gradient region:
 *
 *     data: variables | label | padding ...      gradient: region ...
 *
 * Emulated rates (links.c) hold a buffer in READING or WRITING until its bytes
 * would have come; nothing else knows of them.
 */
#ifndef GYRE_SRC_STORE_STREAM_H
#define GYRE_SRC_STORE_STREAM_H

#include "device/device.h"
#include "store/store.h"

enum { GYRE_PART_STATE = 1, GYRE_PART_GRADIENT = 2 };

/* What waits in a worker's queue: two for each chunk, so it is small. */
typedef struct gyre_push {
    uint64_t at;    /* when, where something is emulated */
    uint32_t chunk; /* a layout has no more than fit */
    uint16_t version;
    uint16_t parts; /* to read */
} gyre_push;

typedef struct gyre_work {
    uint64_t chunk;
    uint32_t version;        /* as pushed; not used for reading */
    uint32_t parts;          /* that were read */
    uint64_t gradient_bytes; /* read of the gradient region */
    uint32_t buffer;   /* which of the device's buffers holds it: for scratch
                          that must last from process to finish */
    uint32_t lane;     /* of the device, its own from process to finish */
    uint8_t *gradient; /* the gradient region; NULL: the store has none */
} gyre_work;

/* What process and finish say; zeroed, with write -1, before process. */
typedef struct gyre_work_result {
    int write;               /* version to write the chunk to, or -1 */
    uint64_t write_gradient; /* bytes of the gradient region to write, from
                                its start; 0: none */
    uint64_t link_after;     /* bytes of parameters that go up the link beside
                                the writes; 0: none, or placement host */
    bool pending;            /* process: a job was submitted on work.lane, and
                                finish ends it; nothing is written before */
} gyre_work_result;

/* All callbacks run in the worker's thread. */
typedef struct gyre_stream {
    const gyre_entry *table; /* version to read; NULL: the state is not read */
    uint32_t parts;          /* what gyre_workers_push reads; a table alone
                                means GYRE_PART_STATE */
    /* Bytes of the gradient region to read; NULL: all of it. */
    uint64_t (*read_gradient)(void *user, uint64_t chunk);
    /* Bytes that come down the link before process (gradients, placement
     * near); NULL: none. */
    uint64_t (*link_before)(void *user, uint64_t chunk);
    gyre_status (*process)(void *user, uint32_t device, gyre_work work,
                           uint8_t *data, gyre_work_result *result,
                           gyre_error *error);
    /* Waits for the job that process left pending; called once for each, in
     * the order of their submission, after an error elsewhere too (what it says
     * is then ignored).  NULL when process never leaves one. */
    gyre_status (*finish)(void *user, uint32_t device, gyre_work work,
                          uint8_t *data, gyre_work_result *result,
                          gyre_error *error);
    /* The way up of the parameters is over (at once where nothing is emulated);
     * after each process or finish that succeeded, whatever it said.  May be
     * NULL. */
    void (*delivered)(void *user, uint32_t device, gyre_work work);
    /* The stream ended on this device; may be NULL. */
    void (*ended)(void *user, uint32_t device, gyre_status status);
    void *user;
} gyre_stream;

typedef struct gyre_worker_stats {
    uint64_t read_bytes;
    uint64_t write_bytes;
    uint64_t first_ns; /* 0: nothing was done */
    uint64_t last_ns;
} gyre_worker_stats;

gyre_status gyre_workers_create(gyre_store *store, gyre_error *error);
void gyre_workers_destroy(gyre_store *store);
/* Bytes of one chunk buffer: for the dry run. */
uint64_t gyre_workers_buffer_bytes(const gyre_store *store);
/* What updates the chunks of a device; NULL in a store that is read-only. */
gyre_device *gyre_workers_device(const gyre_store *store, uint32_t device);
/* Start a stream on every device.  Of one chunk at most two pushes may wait. */
void gyre_workers_start(gyre_store *store, const gyre_stream *stream);
/* Push to the chunk's device.  Any thread. */
void gyre_workers_push(gyre_store *store, uint64_t chunk, uint32_t version);
/* The same with parts of its own (0: read nothing) instead of the stream's. */
void gyre_workers_push_parts(gyre_store *store, uint64_t chunk,
                             uint32_t version, uint32_t parts);
void gyre_workers_close(gyre_store *store);
/* Wait for all; the first error by device order (STOPPED only when there is no
 * other: it says that some device gave up because of another), stats summed. */
gyre_status gyre_workers_join(gyre_store *store, gyre_worker_stats *stats,
                              gyre_error *error);
/* Start, push every chunk once (of [first, end)), close and join. */
gyre_status gyre_workers_each(gyre_store *store, const gyre_stream *stream,
                              uint64_t first, uint64_t end, gyre_error *error);
/* The same one operation on every device, awaited. */
gyre_status gyre_workers_flush(gyre_store *store, gyre_error *error);
gyre_status gyre_workers_write(gyre_store *store, const void *data,
                               uint64_t bytes, uint64_t offset,
                               gyre_error *error);
gyre_status gyre_workers_write_one(gyre_store *store, uint32_t device,
                                   const void *data, uint64_t bytes,
                                   uint64_t offset, gyre_error *error);
gyre_status gyre_workers_read(gyre_store *store, uint32_t device, void *data,
                              uint64_t bytes, uint64_t offset,
                              gyre_error *error);
/* Do all devices that compute round as IEEE 754 says? */
bool gyre_workers_exact(const gyre_store *store);
const char *gyre_workers_engine(const gyre_store *store);

#endif
