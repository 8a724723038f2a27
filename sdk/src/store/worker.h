/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside a worker: its thread and commands (worker.c), what it works with
 * (equip.c) and what it does with that (stream.c, stream_io.c), and the rates
 * of emulated devices and links (links.c).
 *
 * One buffer's way through a stream; brackets are there only when something is
 * emulated, and are left when the clock says so:
 *
 *     FREE --> READING --> [RAISING] --> READY --> process --> COMPUTING
 *       ^      device       host: up                  |           | finish
 *       |      and link     the link                  v           v
 *       +------ WRITING <-- [LOWERING] <--------------+-----------+
 *               device      host: down the link
 *               [and the parameters' way up: near]
 *
 * A transfer of an emulated device is over when the real one has completed and
 * the time has come at which a device of that rate would have moved its bytes.
 * What crosses the link in placement near goes beside the device: gradients
 * beside the read (beside the write, when nothing is read: they go straight
 * through to it), parameters beside the write; in placement host it comes after
 * the read and before the write, since it is the same bytes.
 */
#ifndef GYRE_SRC_STORE_WORKER_H
#define GYRE_SRC_STORE_WORKER_H

#include "store/stream.h"

/* ---- rates (links.c) -------------------------------------------------- */

/*
 * A thing that moves one transfer after another at `rate`: what is reserved
 * begins when the last one has ended and not before `now`.  So nothing is saved
 * up while it rests, and the time of n transfers is that of their sum, to the
 * nanosecond.  A rate of 0 moves everything at once.
 */
typedef struct gyre_bucket {
    double rate; /* bytes per second */
    uint64_t next;
    double rest; /* part of a nanosecond */
} gyre_bucket;

typedef struct gyre_turn {
    uint64_t begin; /* 0, 0: nothing is paced */
    uint64_t end;
} gyre_turn;

gyre_turn gyre_bucket_reserve(gyre_bucket *bucket, uint64_t now,
                              uint64_t bytes);
/* Forget what was reserved: a stream begins. */
void gyre_bucket_restart(gyre_bucket *bucket);

/* The host link: one bucket for all devices and both directions. */
struct gyre_link {
    pthread_mutex_t lock;
    gyre_bucket bucket;
};

gyre_status gyre_link_create(gyre_store *store, gyre_error *error);
void gyre_link_destroy(gyre_store *store);
void gyre_link_restart(gyre_store *store);
/* Any worker. */
gyre_turn gyre_link_reserve(gyre_store *store, uint64_t now, uint64_t bytes);

/* ---- one device ------------------------------------------------------- */

typedef enum gyre_command {
    GYRE_COMMAND_NONE,
    GYRE_COMMAND_STREAM,
    GYRE_COMMAND_OP,
    GYRE_COMMAND_EXIT
} gyre_command;

typedef enum gyre_buffer_state {
    GYRE_BUFFER_FREE,
    GYRE_BUFFER_READING,
    GYRE_BUFFER_RAISING,
    GYRE_BUFFER_READY,
    GYRE_BUFFER_COMPUTING,
    GYRE_BUFFER_LOWERING,
    GYRE_BUFFER_WRITING
} gyre_buffer_state;

struct gyre_buffer;

/* The transfer of one part of a buffer. */
typedef struct gyre_transfer {
    struct gyre_buffer *buffer;
    gyre_turn turn;
    uint64_t begun; /* 0: none */
    uint64_t ended; /* 0: in flight */
    uint64_t bytes;
} gyre_transfer;

enum { GYRE_PARTS = 2 }; /* state, gradient */

typedef struct gyre_buffer {
    gyre_buffer_state state;
    uint64_t order; /* in which buffers came to their state */
    uint64_t at;    /* emulated time at which it did */
    gyre_work work;
    gyre_work_result result;
    uint8_t *data;
    gyre_transfer transfer[GYRE_PARTS];
    gyre_turn link; /* gradients beside read or write, or all in between */
    uint64_t link_bytes;
    gyre_turn up; /* of the parameters, beside the write */
    bool undelivered;
} gyre_buffer;

typedef struct gyre_worker_names {
    uint32_t read, write, read_gradient, write_gradient, process, finish, flush;
    uint32_t up, down;
} gyre_worker_names;

struct gyre_worker {
    gyre_store *store;
    uint32_t index;
    bool running;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* to the worker; on the monotonic clock */
    pthread_cond_t idle; /* to who waits for it */

    gyre_io *io;
    uint32_t file;
    gyre_device *device; /* NULL in a store that updates nothing */
    gyre_buffer *buffers;
    uint64_t buffer_bytes;
    uint64_t gradient_at; /* in a buffer; 0: no region */
    uint8_t *block;       /* all buffers, one behind the other */

    gyre_bucket read_rate, write_rate;
    uint64_t order;
    bool paced;       /* something is emulated */
    uint64_t seen;    /* time up to which buffers were moved */
    uint64_t looked;  /* and up to which completions were taken */
    uint64_t started; /* the stream */
    uint64_t free_at; /* emulated time at which the last process was done */
    uint32_t lanes;
    uint32_t busy; /* lanes in use, one bit each */

    /* under lock */
    gyre_command command;
    gyre_stream stream;
    gyre_io_op op;
    gyre_push *queue; /* a ring */
    size_t head, waiting, capacity;
    bool closed;
    gyre_status status;
    gyre_error error;

    gyre_worker_stats stats; /* the worker's while it runs */
    gyre_worker_names name;
};

static inline uint64_t gyre_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- equipment (equip.c) ---------------------------------------------- */

/* For the device `index` of its store.  What a failure leaves is for strip. */
gyre_status gyre_worker_equip(gyre_worker *w, gyre_error *error);
/* Once its thread has ended, or before it was started. */
void gyre_worker_strip(gyre_worker *w);

/* ---- transfers (stream_io.c) ------------------------------------------ */

/* Start reading or writing a version of the buffer's chunk, or its gradients;
 * `at` is the emulated time at which it may begin. */
gyre_status gyre_transfer_state(gyre_worker *w, gyre_buffer *b,
                                gyre_io_kind kind, uint32_t version,
                                uint64_t at, gyre_error *error);
gyre_status gyre_transfer_gradient(gyre_worker *w, gyre_buffer *b,
                                   gyre_io_kind kind, uint64_t bytes,
                                   uint64_t at, gyre_error *error);
/* Take what has ended, at least `min` of it; the first failure is told with its
 * chunk. */
gyre_status gyre_transfer_reap(gyre_worker *w, size_t min, gyre_error *error);
static inline bool gyre_transfer_in_flight(const gyre_transfer *t)
{
    return t->begun != 0 && t->ended == 0;
}
/* Of both parts, in emulated time too. */
bool gyre_transfer_over(const gyre_buffer *b, uint64_t now);
/* The transfers of a buffer are over; the bytes that they moved.  Their spans
 * go to the trace: of an emulated device the time that it would have taken. */
uint64_t gyre_transfer_close(gyre_worker *w, gyre_buffer *b, bool read);

/* ---- the thread ------------------------------------------------------- */

/* Run the stream that was given, to its end (stream.c). */
gyre_status gyre_worker_stream(gyre_worker *w, gyre_error *error);
/* Sleep until `due` (of gyre_now), or until something is pushed for which
 * there is a buffer, or the stream is closed. UINT64_MAX: only those. */
void gyre_worker_rest(gyre_worker *w, uint64_t due, bool for_work);
/* Take the next push; *ended when there will be no more. */
bool gyre_worker_pop(gyre_worker *w, gyre_push *next, bool *ended);

#endif
