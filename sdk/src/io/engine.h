/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the io room: what an engine is, and what the parts of the room give
 * each other.  Nobody outside sdk/src/io includes this.
 *
 *     io.c        life of a queue, its files and buffers
 *     queue.c     checks, slots, rests of short transfers, retries
 *     engine.c    picks an engine by its text
 *     posix.c uring.c faulty.c    engines
 *     faults.c    the text form of faults; the count shared by a context
 *     recorder.c  the order of events
 *     file.c      alignment, opening, reserving
 *     names.c     making, renaming, removing, syncing folders
 *
 * An engine is a gyre_io_backend here, since gyre_io_engine is the function
 * that names it.  The queue turns each operation into one or more transfers; an
 * engine moves one transfer at a time and says what came of it, unjudged.
 */
#ifndef GYRE_SRC_IO_ENGINE_H
#define GYRE_SRC_IO_ENGINE_H

#include "base/base.h"
#include "io/io.h"

/* Most bytes of one transfer: under the kernel's own limit of 2 GiB less one
 * page, and a multiple of every alignment, so that the rest stays aligned. */
#define GYRE_IO_TRANSFER_MOST ((uint32_t)1 << 30)

typedef struct gyre_io_transfer {
    gyre_io_kind kind;
    uint32_t slot; /* returned with the result; less than depth */
    uint32_t file;
    int32_t buffer; /* or -1 */
    void *data;
    uint32_t bytes;
    uint64_t offset;
    bool again; /* the rest or a retry of an operation begun before */
} gyre_io_transfer;

typedef struct gyre_io_result {
    uint32_t slot;
    int32_t moved; /* bytes, or an errno made negative */
} gyre_io_result;

typedef struct gyre_io_backend gyre_io_backend;

/*
 * The queue calls these from its one thread.  It never has more than `depth`
 * transfers in an engine, and adds files and buffers only when it has none.
 */
typedef struct gyre_io_backend_class {
    const char *(*name)(gyre_io_backend *engine);
    /* Files come with rising index from 0. */
    gyre_status (*add_file)(gyre_io_backend *engine, int fd, uint32_t index,
                            gyre_error *error);
    gyre_status (*add_buffers)(gyre_io_backend *engine, void *const *blocks,
                               size_t bytes, size_t count, gyre_error *error);
    /* 0, or an errno: then the transfer is not in the engine. */
    int (*submit)(gyre_io_backend *engine, const gyre_io_transfer *transfer);
    /* Takes up to `max` results, blocks for at least `min`.  0 or an errno;
     * *count is set in both cases. */
    int (*wait)(gyre_io_backend *engine, gyre_io_result *results, size_t max,
                size_t min, size_t *count);
    /* With nothing in flight, unless wait had failed. */
    void (*destroy)(gyre_io_backend *engine);
} gyre_io_backend_class;

struct gyre_io_backend {
    const gyre_io_backend_class *call;
    gyre_context *context;
};

gyre_status gyre_io_posix_create(gyre_context *context, uint32_t depth,
                                 gyre_io_backend **out, gyre_error *error);
/* UNSUPPORTED when left out of the build or refused by the kernel. */
gyre_status gyre_io_uring_create(gyre_context *context, uint32_t depth,
                                 gyre_io_backend **out, gyre_error *error);

/* Faults, parsed.  Counts are from 1; 0 means never. */
typedef struct gyre_io_faults {
    char inner[8]; /* "auto", "uring", "posix" */
    uint64_t fail, shorten, zero, eintr, kill, every;
    int fail_errno;
    uint64_t delay; /* nanoseconds */
    bool reorder, all;
    uint64_t seed;
} gyre_io_faults;

gyre_status gyre_io_faults_parse(const char *text, gyre_io_faults *out,
                                 gyre_error *error);

/* "EIO" and back; "errno" and 0 for one that faults do not know. */
const char *gyre_io_errno_name(int err);
int gyre_io_errno_number(const char *name, size_t length);

/* The count behind gyre_io_submitted; made at first use. */
typedef struct gyre_io_shared gyre_io_shared;
gyre_status gyre_io_shared_get(gyre_context *context, gyre_io_shared **out,
                               gyre_error *error);
/* Count one more operation; returns its number, from 1.  Any thread. */
uint64_t gyre_io_shared_next(gyre_io_shared *shared);

/* Takes over `inner` on success. */
gyre_status gyre_io_faulty_create(gyre_context *context, uint32_t depth,
                                  const gyre_io_faults *faults,
                                  gyre_io_backend *inner, gyre_io_backend **out,
                                  gyre_error *error);

/* By text, as in gyre_io_options. */
gyre_status gyre_io_backend_create(gyre_context *context, const char *text,
                                   uint32_t depth, gyre_io_backend **out,
                                   gyre_error *error);

/*
 * A growing table of descriptors, as posix and uring keep one.
 */
typedef struct gyre_io_fds {
    int *fd;
    size_t count, capacity;
} gyre_io_fds;

gyre_status gyre_io_fds_add(gyre_context *context, gyre_io_fds *fds, int fd,
                            gyre_error *error);
void gyre_io_fds_free(gyre_context *context, gyre_io_fds *fds);

/*
 * Recording.  start is called before the operation goes to the engine and may
 * refuse (NO_MEMORY); it keeps room for the end, which therefore cannot.  End
 * with whole = false gives that room back and records nothing.
 */
gyre_status gyre_io_recorder_start(gyre_io_recorder *recorder,
                                   const gyre_io_op *op, const char *file,
                                   uint64_t *id, gyre_error *error);
void gyre_io_recorder_end(gyre_io_recorder *recorder, const gyre_io_op *op,
                          const char *file, uint64_t id, bool whole);

/* Before a step with names: 0, or the errno with which it is to fail. */
int gyre_io_recorder_asks(gyre_io_recorder *recorder);
/* After it; recorder NULL: nothing.  `from` may be NULL. */
void gyre_io_recorder_note(gyre_io_recorder *recorder, gyre_io_event_kind kind,
                           const char *file, const char *from, uint64_t bytes);

/* What transfers on this descriptor need: 1, 1 when not open for direct I/O. */
void gyre_io_transfer_alignment(int fd, uint32_t *memory, uint32_t *offset);

#endif
