/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the room; for its sources only.
 *
 *     world.c    a world, its options and names
 *     begin.c    groups: start
 *     end.c      groups: end, failure
 *     route.c    routes, and messages that meet within this process
 *     clock.c    the thread behind delays and the timeout
 *     collect.c  barrier, broadcast, gather
 *     carrier.c  modules
 *
 * The life of one message end ("flight"):
 *
 *     begin --> [clock: delay] --> posted --> moved --> [clock: delay] --> over
 *                     |               |
 *                     `---------------`---- world broken ----> over, with error
 *
 * world->lock guards routes, the list of pending groups, the clock's heap and
 * the breaking.  It is not held while bytes are copied nor in callbacks.
 */
#ifndef GYRE_SRC_TRANSPORT_INNER_H
#define GYRE_SRC_TRANSPORT_INNER_H

#include "transport/module.h"
#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct gyre_flight gyre_flight;
typedef struct gyre_flock gyre_flock;

/* What a buffered put leaves behind. */
typedef struct gyre_parcel {
    struct gyre_parcel *next;
    uint64_t bytes;
    uint32_t phase;
    uint8_t data[];
} gyre_parcel;

/* All messages of one (from, to, channel).  Those that wait for their other end
 * are all puts or all gets. */
typedef struct gyre_route {
    uint32_t from, to, channel;
    bool control;
    uint64_t puts, gets;       /* begun */
    uint64_t put_due, get_due; /* of the last delayed start */
    gyre_flight *first, *last; /* waiting */
    gyre_parcel *first_parcel, *last_parcel;
} gyre_route;

typedef enum gyre_flight_turn {
    GYRE_FLIGHT_START, /* post it when due */
    GYRE_FLIGHT_END    /* it has moved: over when due */
} gyre_flight_turn;

struct gyre_flight {
    gyre_cargo cargo; /* first: a carrier's cargo is a flight */
    gyre_flock *flock;
    gyre_route *route;
    gyre_flight *next;   /* waiting, or in a list of those just met */
    gyre_flight *with;   /* the put that a get has met */
    gyre_parcel *parcel; /* a buffered put's, then the get's that met it */
    uint64_t begun;      /* ns */
    uint64_t due, order; /* of the clock */
    gyre_flight_turn turn;
    uint32_t klass;
    _Atomic bool over;
};

/* A group under way. */
struct gyre_flock {
    gyre_endpoint *endpoint;
    gyre_flock *before, *after; /* pending, by begin */
    uint32_t lane, phase;
    bool control;
    _Atomic bool failed;
    _Atomic uint32_t left; /* flights, and one while it is being begun */
    uint64_t begun;
    gyre_transport_done done;
    void *user;
    uint32_t count;
    gyre_flight flights[];
};

/* As gyre_link_count. */
typedef struct gyre_live_count {
    _Atomic uint64_t sent, received, puts, gets;
} gyre_live_count;

struct gyre_endpoint {
    gyre_world *world;
    uint32_t rank;
    uint64_t due;            /* of its last delayed whole group */
    gyre_live_count *counts; /* [phases][classes] */
};

struct gyre_world {
    gyre_context *context;
    char *backend;
    uint32_t ranks, first, count, host, lanes;
    uint32_t phase_count, class_count;
    char **phases, **classes;
    uint32_t *put_names, *get_names; /* of the trace, by phase */
    gyre_link_map links;
    bool buffered;
    uint64_t timeout, delay, seed;
    gyre_endpoint *endpoints; /* [count] */

    const gyre_carrier *carrier; /* NULL: all within this process */
    void *opened;
    gyre_transport_services services;

    pthread_mutex_t lock;
    pthread_cond_t idle; /* active became 0 */
    uint64_t active;     /* groups whose callback has not returned */
    gyre_flock *oldest, *newest;
    gyre_route **routes; /* open addressing, a power of two */
    size_t route_count, route_room;
    _Atomic int broken; /* gyre_status; error is set before */
    gyre_error error;

    bool clocked; /* there is a clock */
    bool stop;
    pthread_t clock;
    pthread_cond_t tick;
    gyre_flight **heap;
    size_t heap_count, heap_room, heap_promised;
    uint64_t orders;
};

/* ---- begin.c --------------------------------------------------------- */

/* As gyre_transport_begin, for control messages as well. */
gyre_status gyre_flock_begin(gyre_endpoint *endpoint, uint32_t lane,
                             uint32_t phase, bool control,
                             const gyre_message *messages, uint32_t count,
                             gyre_transport_done done, void *user,
                             gyre_error *error);
/* Post neighbouring flights of one flock, whose time has come. */
void gyre_flight_post(gyre_flight *flights, uint32_t count);

/* ---- end.c ----------------------------------------------------------- */

size_t gyre_flock_bytes(uint32_t count);
/* Not in the list of pending groups, or out of it. */
void gyre_flock_free(gyre_flock *flock);
/* One flight less, or the begin itself; the last one ends the group. */
void gyre_flock_less(gyre_flock *flock);
/* It was moved, or not (text); the delay before the end comes here. */
void gyre_flight_moved(gyre_flight *flight, gyre_status status,
                       const char *text);
/* The last step of every flight; `good` counts its bytes. */
void gyre_flight_over(gyre_flight *flight, bool good);
/* Take everybody down; the first call counts.  Lock not held. */
void gyre_world_break(gyre_world *world, gyre_status status, const char *text);

/* ---- route.c --------------------------------------------------------- */

/* Lock held.  NULL: no memory. */
gyre_route *gyre_route_get(gyre_world *world, uint32_t from, uint32_t to,
                           uint32_t channel, bool control);
/* Queue the flight or let it meet its other end; those that met go to the list
 * *last, as gets.  A buffered put is with its parcel.  Lock held. */
void gyre_route_post(gyre_flight *flight, gyre_flight ***last);
/* Copy between a get and what it met, and end both.  Lock not held. */
void gyre_route_move(gyre_flight *get);
/* Take all that wait out of the routes, as a list.  Lock held. */
gyre_flight *gyre_route_drain(gyre_world *world);
void gyre_route_free_all(gyre_world *world);
/* A buffered put's copy. */
gyre_parcel *gyre_parcel_make(gyre_world *world, uint64_t bytes);
void gyre_parcel_fill(gyre_flight *put);
void gyre_parcel_free(gyre_world *world, gyre_parcel *parcel);

/* ---- clock.c --------------------------------------------------------- */

gyre_status gyre_clock_start(gyre_world *world, gyre_error *error);
void gyre_clock_stop(gyre_world *world);
/* Promise room for `count` flights until they are over.  Lock held. */
bool gyre_clock_promise(gyre_world *world, uint32_t count);
/* Lock held. */
void gyre_clock_push(gyre_world *world, gyre_flight *flight,
                     gyre_flight_turn turn, uint64_t due);
gyre_flight *gyre_clock_drain(gyre_world *world);
/* ns for this flight and turn; depends on nothing but seed, route, side and
 * number. */
uint64_t gyre_clock_draw(const gyre_world *world, const gyre_flight *flight,
                         gyre_flight_turn turn);

/* ---- carrier.c ------------------------------------------------------- */

gyre_status gyre_carrier_open(gyre_world *world,
                              const gyre_world_options *options,
                              gyre_error *error);
void gyre_carrier_close(gyre_world *world);

#endif
