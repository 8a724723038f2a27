/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where puts and gets of one process meet.  A route keeps its waiting ends in
 * the order of their numbers; as both ends count from 0 and each that comes
 * takes the first that waits, the k-th put meets the k-th get.
 */
#include "config.h"

#include "transport/inner.h"

#include <stdio.h>
#include <string.h>

/* ---- the table of routes --------------------------------------------- */

static size_t hash(uint32_t from, uint32_t to, uint32_t channel, bool control)
{
    uint32_t x = gyre_hash(from, to, channel * 2 + control);

    return x;
}

/* The slot of a route, or the empty one where it belongs. */
static gyre_route **seek(gyre_route **table, size_t room, uint32_t from,
                         uint32_t to, uint32_t channel, bool control)
{
    size_t at = hash(from, to, channel, control) & (room - 1);

    while (table[at] != NULL &&
           (table[at]->from != from || table[at]->to != to ||
            table[at]->channel != channel || table[at]->control != control))
        at = (at + 1) & (room - 1);
    return &table[at];
}

static bool grow(gyre_world *world)
{
    size_t room = world->route_room == 0 ? 64 : 2 * world->route_room;
    gyre_route **table =
        gyre_alloc_zero(world->context, room, sizeof(table[0]));

    if (table == NULL)
        return false;
    for (size_t i = 0; i < world->route_room; i++) {
        gyre_route *r = world->routes[i];

        if (r != NULL)
            *seek(table, room, r->from, r->to, r->channel, r->control) = r;
    }
    gyre_free(world->context, world->routes, world->route_room,
              sizeof(table[0]));
    world->routes = table;
    world->route_room = room;
    return true;
}

gyre_route *gyre_route_get(gyre_world *world, uint32_t from, uint32_t to,
                           uint32_t channel, bool control)
{
    gyre_route **slot;

    if (2 * (world->route_count + 1) > world->route_room && !grow(world))
        return NULL;
    slot = seek(world->routes, world->route_room, from, to, channel, control);
    if (*slot == NULL) {
        *slot = gyre_alloc_zero(world->context, 1, sizeof(**slot));
        if (*slot == NULL)
            return NULL;
        (*slot)->from = from;
        (*slot)->to = to;
        (*slot)->channel = channel;
        (*slot)->control = control;
        world->route_count++;
    }
    return *slot;
}

void gyre_route_free_all(gyre_world *world)
{
    for (size_t i = 0; i < world->route_room; i++) {
        gyre_route *route = world->routes[i];

        while (route != NULL && route->first_parcel != NULL) {
            gyre_parcel *parcel = route->first_parcel;

            route->first_parcel = parcel->next;
            gyre_parcel_free(world, parcel);
        }
        gyre_free(world->context, route, 1, sizeof(*route));
    }
    gyre_free(world->context, world->routes, world->route_room,
              sizeof(world->routes[0]));
}

/* ---- parcels --------------------------------------------------------- */

gyre_parcel *gyre_parcel_make(gyre_world *world, uint64_t bytes)
{
    gyre_parcel *parcel = NULL;
    uint64_t room;

    if (gyre_add(bytes, sizeof(*parcel), &room))
        parcel = gyre_alloc(world->context, 1, room);
    if (parcel != NULL) {
        parcel->next = NULL;
        parcel->bytes = bytes;
    }
    return parcel;
}

void gyre_parcel_fill(gyre_flight *put)
{
    const gyre_message *message = &put->cargo.message;
    uint8_t *to = put->parcel->data;

    put->parcel->phase = put->flock->phase;
    for (uint32_t i = 0; i < message->extent_count; i++) {
        if (message->extents[i].bytes > 0)
            memcpy(to, message->extents[i].at, message->extents[i].bytes);
        to += message->extents[i].bytes;
    }
}

void gyre_parcel_free(gyre_world *world, gyre_parcel *parcel)
{
    if (parcel != NULL)
        gyre_free(world->context, parcel, 1, sizeof(*parcel) + parcel->bytes);
}

/* ---- meeting --------------------------------------------------------- */

static void enqueue(gyre_route *route, gyre_flight *flight)
{
    flight->next = NULL;
    if (route->first == NULL)
        route->first = flight;
    else
        route->last->next = flight;
    route->last = flight;
}

/* The first that waits and is of the other side, taken out; or NULL. */
static gyre_flight *dequeue(gyre_route *route, bool put)
{
    gyre_flight *first = route->first;

    if (first == NULL || first->cargo.message.put == put)
        return NULL;
    route->first = first->next;
    return first;
}

static void leave_parcel(gyre_route *route, gyre_parcel *parcel)
{
    if (route->first_parcel == NULL)
        route->first_parcel = parcel;
    else
        route->last_parcel->next = parcel;
    route->last_parcel = parcel;
}

static void met(gyre_flight *get, gyre_flight ***last)
{
    get->next = NULL;
    **last = get;
    *last = &get->next;
}

void gyre_route_post(gyre_flight *flight, gyre_flight ***last)
{
    gyre_route *route = flight->route;
    gyre_parcel *parcel = flight->parcel;
    bool put = flight->cargo.message.put;
    gyre_flight *other = dequeue(route, put);

    if (put && parcel != NULL) {
        flight->parcel = NULL;
        if (other == NULL) {
            leave_parcel(route, parcel);
            return;
        }
        other->parcel = parcel;
        met(other, last);
    } else if (put && other != NULL) {
        other->with = flight;
        met(other, last);
    } else if (!put && route->first_parcel != NULL) {
        flight->parcel = route->first_parcel;
        route->first_parcel = flight->parcel->next;
        met(flight, last);
    } else if (!put && other != NULL) {
        flight->with = other;
        met(flight, last);
    } else {
        enqueue(route, flight);
    }
}

gyre_flight *gyre_route_drain(gyre_world *world)
{
    gyre_flight *list = NULL;

    for (size_t i = 0; i < world->route_room; i++) {
        gyre_route *route = world->routes[i];

        if (route == NULL || route->first == NULL)
            continue;
        route->last->next = list;
        list = route->first;
        route->first = NULL;
    }
    return list;
}

/* ---- moving ---------------------------------------------------------- */

/* Extents on both sides, cut differently, of the same sum. */
static void copy(const gyre_extent *to, uint32_t to_count,
                 const gyre_extent *from, uint32_t from_count)
{
    size_t to_at = 0, from_at = 0;
    uint32_t t = 0, f = 0;

    while (t < to_count && f < from_count) {
        size_t n = to[t].bytes - to_at;

        if (n > from[f].bytes - from_at)
            n = from[f].bytes - from_at;
        if (n > 0)
            memcpy((uint8_t *)to[t].at + to_at,
                   (const uint8_t *)from[f].at + from_at, n);
        to_at += n;
        from_at += n;
        if (to_at == to[t].bytes) {
            to_at = 0;
            t++;
        }
        if (from_at == from[f].bytes) {
            from_at = 0;
            f++;
        }
    }
}

static const char *phase_of(const gyre_world *world, bool control,
                            uint32_t phase)
{
    return control ? "collective" : world->phases[phase];
}

static void mismatch(gyre_flight *get, uint64_t sent, uint32_t put_phase)
{
    const gyre_route *route = get->route;
    gyre_world *world = get->flock->endpoint->world;
    char text[512];

    snprintf(text, sizeof(text),
             "the put of rank %u has %llu bytes (phase %.64s), the get of rank "
             "%u that it meets takes %llu (phase %.64s): channel %u, number "
             "%llu; both ends must agree on bytes and order",
             route->from, (unsigned long long)sent,
             phase_of(world, route->control, put_phase), route->to,
             (unsigned long long)get->cargo.message.bytes,
             phase_of(world, route->control, get->flock->phase), route->channel,
             (unsigned long long)get->cargo.number);
    gyre_world_break(world, GYRE_INVALID, text);
}

static void move_parcel(gyre_flight *get)
{
    gyre_world *world = get->flock->endpoint->world;
    const gyre_message *message = &get->cargo.message;
    gyre_parcel *parcel = get->parcel;
    gyre_extent all = {parcel->data, parcel->bytes};
    bool good = parcel->bytes == message->bytes;

    if (good)
        copy(message->extents, message->extent_count, &all, 1);
    else
        mismatch(get, parcel->bytes, parcel->phase);
    get->parcel = NULL;
    gyre_parcel_free(world, parcel);
    if (good)
        gyre_flight_moved(get, GYRE_OK, NULL);
    else
        gyre_flight_over(get, false);
}

void gyre_route_move(gyre_flight *get)
{
    const gyre_message *to = &get->cargo.message;
    gyre_flight *put = get->with;

    if (get->parcel != NULL) {
        move_parcel(get);
        return;
    }
    if (put->cargo.message.bytes != to->bytes) {
        mismatch(get, put->cargo.message.bytes, put->flock->phase);
        gyre_flight_over(put, false);
        gyre_flight_over(get, false);
        return;
    }
    copy(to->extents, to->extent_count, put->cargo.message.extents,
         put->cargo.message.extent_count);
    gyre_flight_moved(put, GYRE_OK, NULL);
    gyre_flight_moved(get, GYRE_OK, NULL);
}
