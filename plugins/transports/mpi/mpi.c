/* SPDX-License-Identifier: Apache-2.0 */
/* Transport module "mpi": ranks are processes, moved by Open MPI. */
#include "config.h"

#include "mp.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static void free_world(mp_world *world)
{
    const gyre_transport_services *services = world->services;

    pthread_cond_destroy(&world->changed);
    pthread_mutex_destroy(&world->lock);
    services->give(services->user, world, sizeof(*world));
}

static void mpi_close(void *opened, int broken)
{
    mp_world *world = opened;

    if (world->started) {
        pthread_mutex_lock(&world->lock);
        world->close_broken = broken != 0;
        world->stop = true;
        pthread_cond_broadcast(&world->changed);
        pthread_mutex_unlock(&world->lock);
        pthread_join(world->thread, NULL);
    }
    free_world(world);
}

static gyre_status start_thread(mp_world *world, gyre_error *error)
{
    gyre_error failed = {0};
    int code;

    world->open_error = &failed;
    code = pthread_create(&world->thread, NULL, mp_main, world);
    if (code != 0)
        return mp_say(error, GYRE_SYSTEM, "mpi: no thread: %s", strerror(code));
    world->started = true;
    pthread_mutex_lock(&world->lock);
    while (!world->ready)
        pthread_cond_wait(&world->changed, &world->lock);
    pthread_mutex_unlock(&world->lock);
    if (world->open_status != GYRE_OK)
        mp_say(error, world->open_status, "%s", failed.text);
    return world->open_status;
}

static void mpi_abort(void *opened, gyre_status status, const char *text)
{
    mp_world *world = opened;

    pthread_mutex_lock(&world->lock);
    world->word.status = (int32_t)status;
    snprintf(world->word.text, sizeof(world->word.text), "%s", text);
    world->aborted = true;
    pthread_cond_broadcast(&world->changed);
    pthread_mutex_unlock(&world->lock);
}

/* The others may have been told another number, and would wait for this rank.
 */
static gyre_status check_ranks(mp_world *world, uint32_t wanted,
                               gyre_error *error)
{
    gyre_error own, told;

    if (wanted == 0 || wanted == world->ranks)
        return GYRE_OK;
    mp_say(&own, GYRE_INVALID,
           "mpi: %u ranks are wanted and MPI's world has %u; start the program "
           "with mpirun -n %u",
           wanted, world->ranks, wanted);
    mp_say(&told, GYRE_INVALID, "rank %u gave up: %.900s", world->rank,
           own.text);
    mpi_abort(world, GYRE_INVALID, told.text);
    return mp_say(error, GYRE_INVALID, "%s", own.text);
}

static gyre_status mpi_open(const gyre_transport_services *services,
                            const gyre_carrier_plan *plan, gyre_carried *got,
                            void **out, gyre_error *error)
{
    mp_world *world = services->take(services->user, sizeof(*world));
    pthread_condattr_t monotonic;
    gyre_status status;

    if (world == NULL)
        return mp_say(error, GYRE_NO_MEMORY, "mpi: no memory");
    world->services = services;
    world->piece = plan->piece;
    world->ended_last = &world->ended;
    pthread_mutex_init(&world->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&world->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    status = mp_load(&world->mpi, error);
    if (status == GYRE_OK)
        status = start_thread(world, error);
    if (status == GYRE_OK)
        status = check_ranks(world, plan->ranks, error);
    if (status != GYRE_OK) {
        mpi_close(world, 1);
        return status;
    }
    *got = (gyre_carried){world->ranks, world->rank, 1, world->host};
    *out = world;
    return GYRE_OK;
}

static void mpi_begin(void *opened, uint32_t rank, gyre_cargo *cargo)
{
    mp_world *world = opened;
    gyre_cargo *last = cargo;

    (void)rank;
    while (last->next != NULL)
        last = last->next;
    pthread_mutex_lock(&world->lock);
    if (world->first == NULL)
        world->first = cargo;
    else
        world->last->next = cargo;
    world->last = last;
    pthread_cond_broadcast(&world->changed);
    pthread_mutex_unlock(&world->lock);
}

static const gyre_carrier carrier = {
    .size = sizeof(carrier),
    .carries_control = 1,
    .open = mpi_open,
    .close = mpi_close,
    .begin = mpi_begin,
    .abort = mpi_abort,
};

static const gyre_build build = GY_BUILD_(0, NULL);

static const gyre_plugin plugin = {
    .size = sizeof(plugin),
    .kind = GYRE_KIND_TRANSPORT,
    .name = "mpi",
    .version = "1.0.0",
    .summary = "ranks in processes, by Open MPI",
    .licence = "Apache-2.0",
    .build = &build,
    .descriptor = &carrier,
};

GYRE_MODULE(mpi, &plugin)
