/* SPDX-License-Identifier: Apache-2.0 */
/* How messages and groups end: one by one, or all at once by a failure. */
#include "config.h"

#include "transport/inner.h"

#include "trace/trace.h"

#include <stdio.h>

/* ---- the end --------------------------------------------------------- */

size_t gyre_flock_bytes(uint32_t count)
{
    return sizeof(gyre_flock) + count * sizeof(gyre_flight);
}

void gyre_flock_free(gyre_flock *flock)
{
    gyre_world *world = flock->endpoint->world;

    for (uint32_t i = 0; i < flock->count; i++)
        gyre_parcel_free(world, flock->flights[i].parcel);
    gyre_free(world->context, flock, 1, gyre_flock_bytes(flock->count));
}

static void finish(gyre_flock *flock)
{
    gyre_world *world = flock->endpoint->world;

    pthread_mutex_lock(&world->lock);
    if (flock->before != NULL)
        flock->before->after = flock->after;
    else
        world->oldest = flock->after;
    if (flock->after != NULL)
        flock->after->before = flock->before;
    else
        world->newest = flock->before;
    world->heap_promised -= flock->count;
    pthread_mutex_unlock(&world->lock);
    /* The world's error was set before a flight could fail by it. */
    if (atomic_load(&flock->failed))
        flock->done(flock->user, world->error.status, &world->error);
    else
        flock->done(flock->user, GYRE_OK, NULL);
    gyre_flock_free(flock);
    pthread_mutex_lock(&world->lock);
    if (--world->active == 0)
        pthread_cond_broadcast(&world->idle);
    pthread_mutex_unlock(&world->lock);
}

void gyre_flock_less(gyre_flock *flock)
{
    if (atomic_fetch_sub(&flock->left, 1) == 1)
        finish(flock);
}

static void count_moved(const gyre_flight *flight)
{
    const gyre_flock *flock = flight->flock;
    gyre_endpoint *endpoint = flock->endpoint;
    gyre_world *world = endpoint->world;
    const gyre_message *message = &flight->cargo.message;
    gyre_live_count *count =
        &endpoint->counts[flock->phase * world->class_count + flight->klass];

    if (message->put) {
        atomic_fetch_add(&count->sent, message->bytes);
        atomic_fetch_add(&count->puts, 1);
    } else {
        atomic_fetch_add(&count->received, message->bytes);
        atomic_fetch_add(&count->gets, 1);
    }
    gyre_trace_end(
        world->context, GYRE_TRACE_LINK,
        (message->put ? world->put_names : world->get_names)[flock->phase],
        flight->begun, message->bytes);
}

void gyre_flight_over(gyre_flight *flight, bool good)
{
    gyre_flock *flock = flight->flock;

    if (good && !flock->control)
        count_moved(flight);
    if (!good)
        atomic_store(&flock->failed, true);
    atomic_store(&flight->over, true);
    gyre_flock_less(flock);
}

void gyre_flight_moved(gyre_flight *flight, gyre_status status,
                       const char *text)
{
    gyre_world *world = flight->flock->endpoint->world;

    if (status != GYRE_OK) {
        gyre_world_break(world, status, text);
        gyre_flight_over(flight, false);
        return;
    }
    if (world->delay > 0 && !flight->flock->control) {
        pthread_mutex_lock(&world->lock);
        if (atomic_load(&world->broken) == GYRE_OK) {
            gyre_clock_push(
                world, flight, GYRE_FLIGHT_END,
                gyre_now() + gyre_clock_draw(world, flight, GYRE_FLIGHT_END));
            pthread_mutex_unlock(&world->lock);
            return;
        }
        pthread_mutex_unlock(&world->lock);
    }
    gyre_flight_over(flight, true);
}

/* ---- failure --------------------------------------------------------- */

/* A flight whose start was delayed, or that stands for its whole group. */
static void fail_start(gyre_flight *flight)
{
    gyre_flock *flock = flight->flock;
    const gyre_carrier *carrier = flock->endpoint->world->carrier;
    uint32_t count = flock->count;

    if (carrier == NULL || !carrier->whole_groups) {
        gyre_flight_over(flight, false);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        gyre_flight_over(&flight[i], false);
}

void gyre_world_break(gyre_world *world, gyre_status status, const char *text)
{
    const gyre_carrier *carrier;
    gyre_flight *waiting, *timed, *next;

    pthread_mutex_lock(&world->lock);
    if (atomic_load(&world->broken) != GYRE_OK) {
        pthread_mutex_unlock(&world->lock);
        return;
    }
    gyre_fail(&world->error, status, "%s", text);
    atomic_store(&world->broken, (int)status);
    waiting = gyre_route_drain(world);
    timed = gyre_clock_drain(world);
    carrier = world->carrier; /* NULL: being opened, which looks at broken */
    pthread_mutex_unlock(&world->lock);
    if (carrier != NULL)
        carrier->abort(world->opened, status, text);
    for (; waiting != NULL; waiting = next) {
        next = waiting->next;
        gyre_flight_over(waiting, false);
    }
    for (; timed != NULL; timed = next) {
        next = timed->next;
        if (timed->turn == GYRE_FLIGHT_END)
            gyre_flight_over(timed, true);
        else
            fail_start(timed);
    }
}

gyre_status gyre_transport_check(const gyre_world *world, gyre_error *error)
{
    int status = atomic_load(&world->broken);

    if (status == GYRE_OK)
        return GYRE_OK;
    return gyre_fail(error, (gyre_status)status, "%s", world->error.text);
}

void gyre_transport_abort(gyre_endpoint *endpoint, gyre_status status,
                          const char *why)
{
    char text[GYRE_ERROR_TEXT];

    snprintf(text, sizeof(text), "rank %u gave up: %.900s", endpoint->rank,
             why != NULL ? why : "no reason given");
    gyre_world_break(endpoint->world, status == GYRE_OK ? GYRE_STOPPED : status,
                     text);
}
