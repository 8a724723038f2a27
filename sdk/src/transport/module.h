/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a transport module (kind "gyre.transport/0") gives to Gyre.  Internal:
 * host and module are built from one tree, so there is no promise between
 * versions.
 *
 * A module opens its libraries at run time and links to none of them, nor to
 * libgyre: what it needs of the host comes in the service table.  Its plugin's
 * descriptor is a gyre_carrier.
 *
 *     host: begin(cargo, ...) --> module: moves --> host: ended(cargo, status)
 *
 * The host numbers, counts, delays, times out and reports; the module moves
 * bytes.  Cargo of one route (from, to, channel, control or not) is begun in
 * the order of its numbers at each end.  Every cargo that was begun is ended
 * exactly once, also after `abort` (then with any status but OK).
 */
#ifndef GYRE_SRC_TRANSPORT_MODULE_H
#define GYRE_SRC_TRANSPORT_MODULE_H

#include "transport/transport.h"

#include <gyre/plugin.h>

#define GYRE_KIND_TRANSPORT "gyre.transport/0"

/* One end of a message; the host's memory, until it is ended. */
typedef struct gyre_cargo {
    gyre_message message;
    uint32_t rank;           /* whose end this is */
    bool control;            /* of a collective: a name space of its own */
    uint64_t number;         /* of its route, from 0 */
    struct gyre_cargo *next; /* the module's once begun, as are these */
    void *mine;
    uint64_t left;
} gyre_cargo;

/* The host's services; valid as long as what was opened.  Any thread. */
typedef struct gyre_transport_services {
    size_t size;
    void *user;
    void (*log)(void *user, int level, const char *text);
    /* Zeroed; NULL when out of memory.  Given back with the same size. */
    void *(*take)(void *user, size_t bytes);
    void (*give)(void *user, void *block, size_t bytes);
    /* This cargo is over; it is the host's again.  text: of a failure. */
    void (*ended)(void *user, gyre_cargo *cargo, gyre_status status,
                  const char *text);
    /* The world is broken, not by this process.  The host calls abort. */
    void (*broken)(void *user, gyre_status status, const char *text);
} gyre_transport_services;

typedef struct gyre_carrier_plan {
    size_t size;
    uint32_t ranks; /* wanted; 0: whatever there is */
    uint32_t lanes;
    uint64_t staging;
    uint64_t piece;
} gyre_carrier_plan;

typedef struct gyre_carried {
    uint32_t ranks;
    uint32_t first, count; /* those that are in this process */
    uint32_t host;         /* on this machine, these among them; 0: unknown */
} gyre_carried;

typedef struct gyre_carrier {
    size_t size;
    int carries_control; /* else control messages stay in this process */
    int whole_groups;    /* begin wants a group in one call */
    /* services outlive what is opened. */
    gyre_status (*open)(const gyre_transport_services *services,
                        const gyre_carrier_plan *plan, gyre_carried *got,
                        void **out, gyre_error *error);
    /* Nothing is pending.  broken: the others may not be there any more. */
    void (*close)(void *opened, int broken);
    /* Start these ends (by `next`), all of one rank.  One call at a time per
     * rank; `ended` may be called from within.  After abort they end at once.
     */
    void (*begin)(void *opened, uint32_t rank, gyre_cargo *cargo);
    /* End all that is pending, tell other processes.  Once, any thread. */
    void (*abort)(void *opened, gyre_status status, const char *text);
} gyre_carrier;

#endif
