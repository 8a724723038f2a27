/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving bytes between ranks.
 *
 *     world --> endpoint of rank r --> lane --> group --> messages
 *
 * A **world** is all ranks; an **endpoint** is one of them.  Backend "threads"
 * and "nccl" have all ranks in this process; "mpi" has one rank per process.
 *
 * A **message** is one PUT or GET.  The k-th put meets the k-th get on (from,
 * to, channel), in the order in which each side began them; the two must agree
 * on the bytes, however each end cuts them into extents.  A **group** is
 * messages that start together, so that both sides may put first, and end
 * together.  A lane keeps the caller's order (who begins them in order), it
 * gives none of its own.
 *
 * Ends.  A put ends when its bytes have left (its memory may change), a get
 * when they have come.  In `threads` whoever comes second copies, in its own
 * call of gyre_transport_begin; a put without its get does not end, unless the
 * world is `buffered`: then it ends at once, into a copy.
 *
 * Failure.  The first message that cannot be moved (sizes that differ, a
 * broken link, the timeout, no memory) or gyre_transport_abort breaks the whole
 * world: every group that is pending on any rank ends with that error, and
 * whatever begins afterwards is refused with it.  Nothing hangs.  A broken
 * world can only be destroyed.
 *
 * Threads.  A world is created and destroyed by one thread, when nothing else
 * uses it.  The calls of one endpoint come from one thread at a time; different
 * endpoints are independent.  Exceptions are said at the function.
 */
#ifndef GYRE_SRC_TRANSPORT_TRANSPORT_H
#define GYRE_SRC_TRANSPORT_TRANSPORT_H

#include "base/base.h"

enum {
    GYRE_TRANSPORT_MAX_RANKS = 65536,
    GYRE_TRANSPORT_MAX_LANES = 64,
    GYRE_TRANSPORT_MAX_PHASES = 32,
    GYRE_TRANSPORT_MAX_CLASSES = 8,
    GYRE_TRANSPORT_MAX_CHANNEL = (1 << 20) - 1 /* the highest number */
};

typedef struct gyre_world gyre_world;
typedef struct gyre_endpoint gyre_endpoint;

/* ---- a world --------------------------------------------------------- */

/* Classes of rank pairs for the ledger, for example self/near/far.  class_of
 * gives an index into names; any thread.  count 0: one class, "peer". */
typedef struct gyre_link_map {
    uint32_t count;
    const char *const *names; /* copied */
    uint32_t (*class_of)(void *user, uint32_t from, uint32_t to);
    void *user;
} gyre_link_map;

/* Zero everything, then set what differs.  Copied. */
typedef struct gyre_world_options {
    const char *backend; /* NULL: "threads"; "mpi", "nccl" */
    uint32_t ranks;      /* mpi: 0, or what MPI must have */
    uint32_t lanes;      /* 0: 4 */
    /* Names of the ledger's phases, by index.  0: ring, inner, outer, a2a,
     * gather, reduce. */
    const char *const *phases;
    uint32_t phase_count;
    gyre_link_map links;
    bool buffered;    /* threads */
    uint64_t timeout; /* ns that a message may take; 0: for ever */
    uint64_t delay;   /* ns at most, drawn before the start and before the end
                         of every message; 0: none */
    uint64_t delay_seed;
    uint64_t staging; /* nccl: bytes of device memory at most per rank; 0:
                         1 GiB */
    uint64_t piece;   /* mpi: bytes of one message of MPI at most, the same on
                         all ranks; 0, and the most: 1 GiB */
} gyre_world_options;

/*
 * mpi: collective over MPI's world; starts MPI unless the program has.  Errors:
 * INVALID, RANGE; NOT_FOUND or UNSUPPORTED for a backend whose module, library
 * or machine is missing (says what to install); NO_MEMORY, SYSTEM.
 */
gyre_status gyre_transport_create(gyre_context *context,
                                  const gyre_world_options *options,
                                  gyre_world **out, gyre_error *error);

/* Breaks the world when something is pending, waits until every group has ended
 * and frees all, endpoints included.  mpi: collective when nothing broke; the
 * last world ends MPI, if a world of ours started it, after which no other can
 * be made in this process.  NULL is allowed. */
void gyre_transport_destroy(gyre_world *world);

/* How many ranks, and which are here: [first, first + count).  Any thread. */
uint32_t gyre_transport_ranks(const gyre_world *world);
void gyre_transport_local(const gyre_world *world, uint32_t *first,
                          uint32_t *count);
/* Ranks on this machine, which share its cores; those here among them. */
uint32_t gyre_transport_host(const gyre_world *world);
const char *gyre_transport_backend(const gyre_world *world);
/* Whether groups of all lanes go through one queue, in the order in which they
 * are begun (nccl): ranks must then begin them in an order that fits together,
 * as program order of a plan does that is proven safe on one lane.  Any
 * thread. */
bool gyre_transport_one_queue(const gyre_world *world);

/* The endpoint of a rank that is here; owned by the world.  Any thread. */
gyre_status gyre_transport_endpoint(gyre_world *world, uint32_t rank,
                                    gyre_endpoint **out, gyre_error *error);
uint32_t gyre_transport_rank(const gyre_endpoint *endpoint);
gyre_world *gyre_transport_world(const gyre_endpoint *endpoint);

/* ---- messages -------------------------------------------------------- */

typedef struct gyre_extent {
    void *at;
    size_t bytes; /* may be 0 */
} gyre_extent;

typedef struct gyre_message {
    bool put;         /* else get */
    uint32_t peer;    /* not oneself */
    uint32_t channel; /* at most GYRE_TRANSPORT_MAX_CHANNEL */
    const gyre_extent *extents;
    uint32_t extent_count;
    uint64_t bytes; /* their sum; may be 0 */
} gyre_message;

/*
 * Called once when every message of a group has ended: from any thread, also
 * from within gyre_transport_begin, of whatever endpoint.  status OK (error is
 * then NULL) or what broke the world.  It may begin other groups and abort, and
 * must not wait.
 */
typedef void (*gyre_transport_done)(void *user, gyre_status status,
                                    const gyre_error *error);

/*
 * Start a group.  The messages are copied; the lists of extents and the memory
 * stay with the caller, untouched (put) or unread (get), until `done`.  A group
 * of no messages is done at once.  When an error is returned, nothing was
 * started and `done` is not called.  phase: index into the world's names.
 * Errors: INVALID, RANGE (nothing broke); NO_MEMORY; and what broke the world.
 */
gyre_status gyre_transport_begin(gyre_endpoint *endpoint, uint32_t lane,
                                 uint32_t phase, const gyre_message *messages,
                                 uint32_t count, gyre_transport_done done,
                                 void *user, gyre_error *error);

/* Break the world: `why` is the text that everybody gets, after "rank R gave
 * up: ".  Any thread; the first call counts. */
void gyre_transport_abort(gyre_endpoint *endpoint, gyre_status status,
                          const char *why);

/* OK, or what broke the world.  Any thread. */
gyre_status gyre_transport_check(const gyre_world *world, gyre_error *error);

/* ---- small collectives ----------------------------------------------- */

/*
 * All ranks call the same ones in the same order, each from the thread that
 * uses its endpoint; they wait.  They are not in the ledger, have no delays,
 * and end with what broke the world; the timeout is for them as well.  One that
 * cannot be begun, but for a wrong root, breaks the world, for the others wait.
 */
gyre_status gyre_transport_barrier(gyre_endpoint *endpoint, gyre_error *error);
/* root's bytes to all. */
gyre_status gyre_transport_broadcast(gyre_endpoint *endpoint, uint32_t root,
                                     void *data, size_t bytes,
                                     gyre_error *error);
/* Everybody's `bytes` to root, rank after rank in out.  sizes (root only):
 * bytes of each rank; NULL: all as root's.  out is NULL elsewhere. */
gyre_status gyre_transport_gather(gyre_endpoint *endpoint, uint32_t root,
                                  const void *data, size_t bytes,
                                  const size_t *sizes, void *out,
                                  gyre_error *error);
/* Everybody's bytes to everybody: rank after rank in out, where one's own lie
 * already.  sizes: bytes of each rank, the same everywhere. */
gyre_status gyre_transport_allgather(gyre_endpoint *endpoint,
                                     const size_t *sizes, void *out,
                                     gyre_error *error);

/* ---- ledger ---------------------------------------------------------- */

typedef struct gyre_link_count {
    uint64_t sent, received; /* bytes */
    uint64_t puts, gets;     /* messages */
} gyre_link_count;

uint32_t gyre_transport_phases(const gyre_world *world);
const char *gyre_transport_phase_name(const gyre_world *world, uint32_t phase);
uint32_t gyre_transport_classes(const gyre_world *world);
const char *gyre_transport_class_name(const gyre_world *world, uint32_t klass);
/* Of the link between two ranks. */
uint32_t gyre_transport_class(const gyre_world *world, uint32_t from,
                              uint32_t to);

/* What this rank's ended messages have moved in a phase over a class of links,
 * since the world was made or last forgot.  Any thread. */
gyre_link_count gyre_transport_count(const gyre_endpoint *endpoint,
                                     uint32_t phase, uint32_t klass);
/* Start at zero again, the ranks that are here.  No group pending. */
void gyre_transport_forget(gyre_world *world);

#endif
