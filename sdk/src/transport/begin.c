/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: checked, enrolled, posted. */
#include "config.h"

#include "transport/inner.h"

/* ---- the start ------------------------------------------------------- */

/* Do these meet their other ends within this process? */
static bool is_local(const gyre_world *world, bool control)
{
    return world->carrier == NULL ||
           (control && !world->carrier->carries_control);
}

/* false: the world is broken, and the flights are over. */
static bool post_local(gyre_world *world, gyre_flight *flights, uint32_t count)
{
    gyre_flight *list = NULL, **last = &list, *next;
    bool broken;

    for (uint32_t i = 0; i < count; i++)
        if (flights[i].parcel != NULL)
            gyre_parcel_fill(&flights[i]);
    pthread_mutex_lock(&world->lock);
    broken = atomic_load(&world->broken) != GYRE_OK;
    for (uint32_t i = 0; i < count && !broken; i++)
        gyre_route_post(&flights[i], &last);
    pthread_mutex_unlock(&world->lock);
    for (; list != NULL; list = next) {
        next = list->next;
        gyre_route_move(list);
    }
    for (uint32_t i = 0; i < count && broken; i++)
        gyre_flight_over(&flights[i], false);
    return !broken;
}

/* A buffered put is over once its parcel was left. */
static void post_buffered(gyre_world *world, gyre_flight *flights,
                          uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        gyre_flight *flight = &flights[i];
        bool put = flight->parcel != NULL;

        if (post_local(world, flight, 1) && put)
            gyre_flight_moved(flight, GYRE_OK, NULL);
    }
}

void gyre_flight_post(gyre_flight *flights, uint32_t count)
{
    gyre_flock *flock = flights[0].flock;
    gyre_world *world = flock->endpoint->world;

    if (is_local(world, flock->control)) {
        if (world->buffered)
            post_buffered(world, flights, count);
        else
            post_local(world, flights, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        flights[i].cargo.next = i + 1 < count ? &flights[i + 1].cargo : NULL;
    world->carrier->begin(world->opened, flock->endpoint->rank,
                          &flights[0].cargo);
}

/* Lock held: nothing of this flock has started. */
static void delay_start(gyre_world *world, gyre_flock *flock)
{
    bool whole = world->carrier != NULL && world->carrier->whole_groups;
    uint64_t now = gyre_now();

    for (uint32_t i = 0; i < flock->count; i++) {
        gyre_flight *flight = &flock->flights[i];
        uint64_t *last = whole                       ? &flock->endpoint->due
                         : flight->cargo.message.put ? &flight->route->put_due
                                                     : &flight->route->get_due;
        uint64_t due = now + gyre_clock_draw(world, flight, GYRE_FLIGHT_START);

        /* A route, or a lane of whole groups, keeps its order. */
        if (due < *last)
            due = *last;
        *last = due;
        gyre_clock_push(world, flight, GYRE_FLIGHT_START, due);
        if (whole)
            break;
    }
}

static gyre_status check_message(const gyre_endpoint *endpoint,
                                 const gyre_message *message, uint32_t index,
                                 gyre_error *error)
{
    uint64_t sum = 0;

    if (message->peer >= endpoint->world->ranks ||
        message->peer == endpoint->rank)
        return gyre_fail(error, GYRE_RANGE,
                         "message %u of rank %u: peer is %u; it must be one of "
                         "the other ranks below %u",
                         index, endpoint->rank, message->peer,
                         endpoint->world->ranks);
    if (message->channel > GYRE_TRANSPORT_MAX_CHANNEL)
        return gyre_fail(error, GYRE_RANGE,
                         "message %u of rank %u: channel %u; at most %d", index,
                         endpoint->rank, message->channel,
                         GYRE_TRANSPORT_MAX_CHANNEL);
    if (message->extents == NULL && message->extent_count > 0)
        return gyre_fail(error, GYRE_INVALID,
                         "message %u of rank %u: %u extents and no list", index,
                         endpoint->rank, message->extent_count);
    for (uint32_t i = 0; i < message->extent_count; i++)
        if (!gyre_add(sum, message->extents[i].bytes, &sum))
            sum = UINT64_MAX;
    if (sum != message->bytes)
        return gyre_fail(error, GYRE_INVALID,
                         "message %u of rank %u: %llu bytes, but its extents "
                         "have %llu",
                         index, endpoint->rank,
                         (unsigned long long)message->bytes,
                         (unsigned long long)sum);
    return GYRE_OK;
}

static gyre_status check_all(const gyre_endpoint *endpoint, uint32_t lane,
                             uint32_t phase, const gyre_message *messages,
                             uint32_t count, gyre_transport_done done,
                             gyre_error *error)
{
    const gyre_world *world = endpoint->world;
    gyre_status status = GYRE_OK;

    if (done == NULL || (messages == NULL && count > 0))
        return gyre_fail(error, GYRE_INVALID, "a group of rank %u: no %s given",
                         endpoint->rank,
                         done == NULL ? "callback" : "messages");
    if (lane >= world->lanes || phase >= world->phase_count)
        return gyre_fail(error, GYRE_RANGE,
                         "a group of rank %u: lane %u of %u, phase %u of %u",
                         endpoint->rank, lane, world->lanes, phase,
                         world->phase_count);
    for (uint32_t i = 0; i < count && status == GYRE_OK; i++)
        status = check_message(endpoint, &messages[i], i, error);
    return status;
}

static gyre_status set_class(gyre_flight *flight, gyre_error *error)
{
    const gyre_world *world = flight->flock->endpoint->world;
    const gyre_cargo *cargo = &flight->cargo;
    uint32_t from = cargo->message.put ? cargo->rank : cargo->message.peer;
    uint32_t to = cargo->message.put ? cargo->message.peer : cargo->rank;

    if (world->links.count > 0)
        flight->klass = world->links.class_of(world->links.user, from, to);
    if (flight->klass >= world->class_count)
        return gyre_fail(error, GYRE_RANGE,
                         "link map: class %u for ranks %u to %u; there are %u",
                         flight->klass, from, to, world->class_count);
    return GYRE_OK;
}

static gyre_status make(gyre_endpoint *endpoint, uint32_t count, bool control,
                        const gyre_message *messages, gyre_flock **out,
                        gyre_error *error)
{
    gyre_world *world = endpoint->world;
    gyre_flock *flock =
        gyre_alloc_zero(world->context, 1, gyre_flock_bytes(count));
    gyre_status status = GYRE_OK;

    if (flock == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "a group of %u messages of rank %u: no memory", count,
                         endpoint->rank);
    flock->endpoint = endpoint;
    flock->control = control;
    flock->count = count;
    for (uint32_t i = 0; i < count && status == GYRE_OK; i++) {
        gyre_flight *flight = &flock->flights[i];

        flight->flock = flock;
        flight->cargo.message = messages[i];
        flight->cargo.rank = endpoint->rank;
        flight->cargo.control = control;
        status = set_class(flight, error);
        if (status != GYRE_OK || !messages[i].put || !world->buffered)
            continue;
        flight->parcel = gyre_parcel_make(world, messages[i].bytes);
        if (flight->parcel == NULL)
            status = gyre_fail(error, GYRE_NO_MEMORY,
                               "the copy of a buffered put of rank %u: no "
                               "memory for %llu bytes",
                               endpoint->rank,
                               (unsigned long long)messages[i].bytes);
    }
    if (status != GYRE_OK) {
        gyre_flock_free(flock);
        return status;
    }
    *out = flock;
    return GYRE_OK;
}

/* Routes, room and numbers: after this nothing can fail.  Lock held. */
static gyre_status enrol(gyre_flock *flock, gyre_error *error)
{
    gyre_world *world = flock->endpoint->world;
    gyre_status status = gyre_transport_check(world, error);
    bool room = true;

    if (status != GYRE_OK)
        return status;
    for (uint32_t i = 0; i < flock->count && room; i++) {
        gyre_cargo *cargo = &flock->flights[i].cargo;
        uint32_t peer = cargo->message.peer, rank = cargo->rank;
        bool put = cargo->message.put;
        gyre_route *route =
            gyre_route_get(world, put ? rank : peer, put ? peer : rank,
                           cargo->message.channel, flock->control);

        flock->flights[i].route = route;
        room = route != NULL;
    }
    if (!room || !gyre_clock_promise(world, flock->count))
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "a group of %u messages of rank %u: no memory",
                         flock->count, flock->endpoint->rank);
    flock->begun = gyre_now();
    for (uint32_t i = 0; i < flock->count; i++) {
        gyre_flight *flight = &flock->flights[i];
        uint64_t *count = flight->cargo.message.put ? &flight->route->puts
                                                    : &flight->route->gets;

        flight->cargo.number = (*count)++;
        flight->begun = flock->begun;
    }
    flock->before = world->newest;
    *(world->newest != NULL ? &world->newest->after : &world->oldest) = flock;
    world->newest = flock;
    world->active++;
    if (world->timeout > 0)
        pthread_cond_signal(&world->tick);
    return GYRE_OK;
}

gyre_status gyre_flock_begin(gyre_endpoint *endpoint, uint32_t lane,
                             uint32_t phase, bool control,
                             const gyre_message *messages, uint32_t count,
                             gyre_transport_done done, void *user,
                             gyre_error *error)
{
    gyre_world *world = endpoint->world;
    bool delayed = world->delay > 0 && !control;
    gyre_flock *flock = NULL;
    gyre_status status =
        make(endpoint, count, control, messages, &flock, error);

    if (status != GYRE_OK)
        return status;
    flock->lane = lane;
    flock->phase = phase;
    flock->done = done;
    flock->user = user;
    atomic_store(&flock->left, count + 1);
    pthread_mutex_lock(&world->lock);
    status = enrol(flock, error);
    if (status == GYRE_OK && delayed)
        delay_start(world, flock);
    pthread_mutex_unlock(&world->lock);
    if (status != GYRE_OK) {
        gyre_flock_free(flock);
        return status;
    }
    if (!delayed && count > 0)
        gyre_flight_post(flock->flights, count);
    gyre_flock_less(flock);
    return GYRE_OK;
}

gyre_status gyre_transport_begin(gyre_endpoint *endpoint, uint32_t lane,
                                 uint32_t phase, const gyre_message *messages,
                                 uint32_t count, gyre_transport_done done,
                                 void *user, gyre_error *error)
{
    gyre_status status =
        check_all(endpoint, lane, phase, messages, count, done, error);

    if (status != GYRE_OK)
        return status;
    return gyre_flock_begin(endpoint, lane, phase, false, messages, count, done,
                            user, error);
}
