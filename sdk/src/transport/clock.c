/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread behind delays and the timeout.  A heap of flights by the time that
 * they are due; those due at once in the order in which they were pushed, so
 * that a route keeps its order.  The timeout is the same for all, so that the
 * oldest pending group is the first to break it.
 */
#include "config.h"

#include "transport/inner.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- the heap; lock held --------------------------------------------- */

static bool before(const gyre_flight *a, const gyre_flight *b)
{
    return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static void swap(gyre_flight **a, gyre_flight **b)
{
    gyre_flight *kept = *a;

    *a = *b;
    *b = kept;
}

bool gyre_clock_promise(gyre_world *world, uint32_t count)
{
    size_t want = world->heap_promised + count;
    size_t room = 2 * world->heap_room;
    gyre_flight **heap;

    if (world->delay > 0 && want > world->heap_room) {
        if (room < want)
            room = want < 64 ? 64 : want;
        heap = gyre_grow(world->context, world->heap, world->heap_room, room,
                         sizeof(heap[0]));
        if (heap == NULL)
            return false;
        world->heap = heap;
        world->heap_room = room;
    }
    world->heap_promised = want;
    return true;
}

void gyre_clock_push(gyre_world *world, gyre_flight *flight,
                     gyre_flight_turn turn, uint64_t due)
{
    size_t at = world->heap_count++;

    flight->turn = turn;
    flight->due = due;
    flight->order = world->orders++;
    world->heap[at] = flight;
    while (at > 0 && before(world->heap[at], world->heap[(at - 1) / 2])) {
        swap(&world->heap[at], &world->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    pthread_cond_signal(&world->tick);
}

static gyre_flight *pop(gyre_world *world)
{
    gyre_flight **heap = world->heap, *first = heap[0];
    size_t count = --world->heap_count, at = 0;

    heap[0] = heap[count];
    for (;;) {
        size_t next = 2 * at + 1;

        if (next >= count)
            return first;
        if (next + 1 < count && before(heap[next + 1], heap[next]))
            next++;
        if (!before(heap[next], heap[at]))
            return first;
        swap(&heap[next], &heap[at]);
        at = next;
    }
}

gyre_flight *gyre_clock_drain(gyre_world *world)
{
    gyre_flight *list = NULL;

    for (size_t i = 0; i < world->heap_count; i++) {
        world->heap[i]->next = list;
        list = world->heap[i];
    }
    world->heap_count = 0;
    return list;
}

/* ---- delays ---------------------------------------------------------- */

uint64_t gyre_clock_draw(const gyre_world *world, const gyre_flight *flight,
                         gyre_flight_turn turn)
{
    const gyre_route *route = flight->route;
    uint32_t side = (uint32_t)flight->cargo.message.put * 2 + (uint32_t)turn;
    uint32_t x = gyre_hash((uint32_t)world->seed, (uint32_t)(world->seed >> 32),
                           route->from);

    x = gyre_hash(x, route->to, route->channel);
    x = gyre_hash(x, side, (uint32_t)flight->cargo.number);
    return (uint64_t)((double)world->delay * ((double)x / 4294967296.0));
}

static void run(gyre_flight *flight)
{
    gyre_flock *flock = flight->flock;
    const gyre_carrier *carrier = flock->endpoint->world->carrier;
    bool whole = carrier != NULL && carrier->whole_groups;

    if (flight->turn == GYRE_FLIGHT_END)
        gyre_flight_over(flight, true);
    else
        gyre_flight_post(flight, whole ? flock->count : 1);
}

/* ---- the timeout ----------------------------------------------------- */

/* Lock held: what the oldest group waits for. */
static void name_waiting(const gyre_world *world, char *text, size_t size)
{
    const gyre_flock *flock = world->oldest;
    const gyre_flight *flight = &flock->flights[0];
    const gyre_message *message;
    uint32_t over = 0, groups = 0;

    for (uint32_t i = 0; i < flock->count; i++)
        over += atomic_load(&flock->flights[i].over);
    while (flight + 1 < flock->flights + flock->count &&
           atomic_load(&flight->over))
        flight++;
    for (const gyre_flock *f = flock; f != NULL; f = f->after)
        groups++;
    message = &flight->cargo.message;
    snprintf(text, size,
             "rank %u has waited %.3g s for the %s of rank %u: channel %u, "
             "number %llu (%s %.64s, lane %u, %llu bytes; %u of the group's %u "
             "messages are over); %u groups are pending in this process",
             flight->cargo.rank, (double)world->timeout * 1e-9,
             message->put ? "get" : "put", message->peer, message->channel,
             (unsigned long long)flight->cargo.number,
             flock->control ? "a" : "phase",
             flock->control ? "collective" : world->phases[flock->phase],
             flock->lane, (unsigned long long)message->bytes, over,
             flock->count, groups);
}

/* When the oldest group is late. */
static uint64_t late_at(const gyre_world *world)
{
    return gyre_until(world->oldest->begun, world->timeout);
}

static bool is_late(const gyre_world *world, uint64_t now)
{
    return world->timeout > 0 && world->oldest != NULL &&
           world->oldest->count > 0 && atomic_load(&world->broken) == GYRE_OK &&
           now >= late_at(world);
}

/* ---- the thread ------------------------------------------------------ */

/* Lock held. */
static void sleep_until_next(gyre_world *world)
{
    uint64_t wake = UINT64_MAX;
    struct timespec at;

    if (world->heap_count > 0)
        wake = world->heap[0]->due;
    if (world->timeout > 0 && world->oldest != NULL &&
        atomic_load(&world->broken) == GYRE_OK && late_at(world) < wake)
        wake = late_at(world);
    if (wake == UINT64_MAX) {
        pthread_cond_wait(&world->tick, &world->lock);
        return;
    }
    at.tv_sec = (time_t)(wake / 1000000000);
    at.tv_nsec = (long)(wake % 1000000000);
    pthread_cond_timedwait(&world->tick, &world->lock, &at);
}

static void *clock_main(void *opaque)
{
    gyre_world *world = opaque;
    char text[512];

    pthread_mutex_lock(&world->lock);
    while (!world->stop) {
        uint64_t now = gyre_now();

        if (world->heap_count > 0 && world->heap[0]->due <= now) {
            gyre_flight *flight = pop(world);

            pthread_mutex_unlock(&world->lock);
            run(flight);
            pthread_mutex_lock(&world->lock);
        } else if (is_late(world, now)) {
            name_waiting(world, text, sizeof(text));
            pthread_mutex_unlock(&world->lock);
            gyre_world_break(world, GYRE_IO, text);
            pthread_mutex_lock(&world->lock);
        } else {
            sleep_until_next(world);
        }
    }
    pthread_mutex_unlock(&world->lock);
    return NULL;
}

gyre_status gyre_clock_start(gyre_world *world, gyre_error *error)
{
    int code;

    if (world->delay == 0 && world->timeout == 0)
        return GYRE_OK;
    code = pthread_create(&world->clock, NULL, clock_main, world);
    if (code != 0)
        return gyre_fail_errno(error, GYRE_SYSTEM, code,
                               "the clock of a transport: no thread");
    world->clocked = true;
    return GYRE_OK;
}

void gyre_clock_stop(gyre_world *world)
{
    if (world->clocked) {
        pthread_mutex_lock(&world->lock);
        world->stop = true;
        pthread_cond_signal(&world->tick);
        pthread_mutex_unlock(&world->lock);
        pthread_join(world->clock, NULL);
    }
    gyre_free(world->context, world->heap, world->heap_room,
              sizeof(world->heap[0]));
}
