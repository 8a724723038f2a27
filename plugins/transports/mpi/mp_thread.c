/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that owns all MPI calls of a world.
 *
 * Naps: while messages are under way it asks a few times at once, then every
 * 50 us, and after 20 ms of nothing every 200 us; with nothing under way every
 * millisecond, for a failure that another rank may tell.  A new cargo wakes it.
 */
#include "config.h"

#include "mp.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    SPINS = 30,         /* asks without a nap */
    SHORT_NAPS = 400,   /* then so many short ones */
    SHORT_NAP = 50000,  /* ns */
    LONG_NAP = 200000,  /* ns */
    IDLE_NAP = 1000000, /* ns */
    GRACE_NAPS = 20000  /* of 50 us, for what a failure leaves with MPI */
};

static void nap(mp_world *world, long ns)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += ns;
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    pthread_cond_timedwait(&world->changed, &world->lock, &at);
}

/* ---- failure --------------------------------------------------------- */

static void listen(mp_world *world)
{
    if (world->mpi.MPI_Irecv(&world->incoming, (int)sizeof(world->incoming),
                             world->mpi.byte, MPI_ANY_SOURCE, MP_WORD_TAG,
                             world->control, &world->listening) != MPI_SUCCESS)
        world->listening = NULL;
}

/* Has another rank told of a failure?  MPI is locked. */
static bool hear(mp_world *world)
{
    MPI_Status status;
    int flag = 0;

    if (world->listening == NULL ||
        world->mpi.MPI_Test(&world->listening, &flag, &status) != MPI_SUCCESS ||
        !flag)
        return false;
    world->listening = NULL;
    world->incoming.text[sizeof(world->incoming.text) - 1] = '\0';
    return true;
}

/* MPI is locked. */
static bool stop_listening(mp_world *world)
{
    const mp_calls *mpi = &world->mpi;
    MPI_Status status;
    int flag = 0;

    if (world->listening == NULL)
        return true;
    (void)mpi->MPI_Cancel(&world->listening);
    for (int i = 0; i < 1000 && !flag; i++)
        if (mpi->MPI_Test(&world->listening, &flag, &status) != MPI_SUCCESS)
            break;
    world->listening = NULL;
    return flag != 0;
}

/* Gets that have met nobody are cancelled, what is being moved may end for a
 * while; false: something is left with MPI. */
static bool take_back(mp_world *world)
{
    const mp_calls *mpi = &world->mpi;
    bool left = true;

    mp_lock();
    world->cancelling = true;
    for (uint32_t i = 0; i < world->count; i++)
        if (!world->parts[i].cargo->message.put)
            (void)mpi->MPI_Cancel(&world->requests[i]);
    if (!world->heard)
        mp_tell(world);
    mp_unlock();
    for (int i = 0; i < GRACE_NAPS && left; i++) {
        mp_lock();
        (void)mp_progress(world);
        left = world->count > 0;
        mp_unlock();
        mp_flush(world);
        if (!left)
            break;
        pthread_mutex_lock(&world->lock);
        nap(world, SHORT_NAP);
        pthread_mutex_unlock(&world->lock);
    }
    return !left;
}

/* The other worlds of this process see that MPI is held (turn) and come here as
 * well.  None has a callback that waits for another. */
static void wait_for_others(mp_world *world)
{
    bool called = true;

    while (called) {
        mp_lock();
        called = mp_is_called();
        mp_unlock();
        pthread_mutex_lock(&world->lock);
        nap(world, SHORT_NAP);
        pthread_mutex_unlock(&world->lock);
    }
}

/* After this, the world calls MPI no more. */
static void fall(mp_world *world)
{
    bool good = take_back(world);

    mp_lock();
    good &= stop_listening(world);
    if (!good)
        mp_hold();
    mp_leave();
    mp_unlock();
    if (!good) {
        world->services->log(world->services->user, 1,
                             "mpi: messages that were under way when the "
                             "transport broke are abandoned; MPI cannot be "
                             "used any more in this process");
        wait_for_others(world);
    }
    while (world->count > 0)
        mp_part_over(world, world->count - 1, (gyre_status)world->word.status,
                     world->word.text);
    mp_flush(world);
    world->over = true;
}

/* ---- start and end --------------------------------------------------- */

/* Ranks that can share memory are on one machine. */
static int count_host(const mp_calls *mpi, int *ranks)
{
    MPI_Comm host;
    int code = mpi->MPI_Comm_split_type(mpi->world, MPI_COMM_TYPE_SHARED, 0,
                                        mpi->no_info, &host);

    if (code != MPI_SUCCESS)
        return code;
    code = mpi->MPI_Comm_size(host, ranks);
    (void)mpi->MPI_Comm_free(&host);
    return code;
}

static gyre_status open_communicators(mp_world *world, gyre_error *error)
{
    const mp_calls *mpi = &world->mpi;
    int rank = 0, ranks = 0, host = 0;
    int code = mpi->MPI_Comm_dup(mpi->world, &world->data);

    if (code == MPI_SUCCESS)
        code = mpi->MPI_Comm_dup(mpi->world, &world->control);
    if (code == MPI_SUCCESS)
        code = mpi->MPI_Comm_set_errhandler(world->data, mpi->errors_return);
    if (code == MPI_SUCCESS)
        code = mpi->MPI_Comm_set_errhandler(world->control, mpi->errors_return);
    if (code == MPI_SUCCESS)
        code = mpi->MPI_Comm_rank(world->data, &rank);
    if (code == MPI_SUCCESS)
        code = mpi->MPI_Comm_size(world->data, &ranks);
    if (code == MPI_SUCCESS)
        code = count_host(mpi, &host);
    if (code != MPI_SUCCESS)
        return mp_fail(mpi, error, "no communicator", code);
    world->rank = (uint32_t)rank;
    world->ranks = (uint32_t)ranks;
    world->host = (uint32_t)host;
    return GYRE_OK;
}

static void close_all(mp_world *world)
{
    if (!world->over) {
        if (!stop_listening(world))
            mp_hold();
        /* Freeing is collective, and the others may be gone. */
        if (!world->close_broken) {
            (void)world->mpi.MPI_Comm_free(&world->data);
            (void)world->mpi.MPI_Comm_free(&world->control);
        }
        mp_leave();
    }
    mp_finish(&world->mpi);
    mp_free_table(world);
}

static void end(mp_world *world)
{
    mp_leave();
    mp_finish(&world->mpi);
}

static bool start(mp_world *world)
{
    gyre_status status;

    mp_lock();
    status = mp_start(&world->mpi, world->open_error);
    if (status == GYRE_OK) {
        status = open_communicators(world, world->open_error);
        if (status == GYRE_OK)
            listen(world);
        else
            end(world);
    }
    mp_unlock();
    pthread_mutex_lock(&world->lock);
    world->open_status = status;
    world->ready = true;
    pthread_cond_broadcast(&world->changed);
    pthread_mutex_unlock(&world->lock);
    return status == GYRE_OK;
}

/* ---- the loop -------------------------------------------------------- */

/* Hand what was begun to MPI; after a failure it ends. */
static void post_all(mp_world *world, gyre_cargo *cargo, bool aborted)
{
    gyre_cargo *next;

    for (; cargo != NULL; cargo = next) {
        next = cargo->next;
        if (aborted)
            mp_refuse(world, cargo, (gyre_status)world->word.status,
                      world->word.text);
        else
            mp_post(world, cargo);
    }
}

/* Lock held: until there is something to do. */
static void rest(mp_world *world, unsigned quiet)
{
    if (world->first != NULL || world->stop || (world->aborted && !world->over))
        return;
    if (world->count == 0) {
        nap(world, IDLE_NAP);
        return;
    }
    if (quiet >= SPINS) {
        nap(world, quiet < SPINS + SHORT_NAPS ? SHORT_NAP : LONG_NAP);
        return;
    }
    pthread_mutex_unlock(&world->lock);
    sched_yield();
    pthread_mutex_lock(&world->lock);
}

/* Another world of this process has left a message with MPI. */
static void break_as_held(mp_world *world)
{
    char text[256];

    world->told = true;
    snprintf(
        text, sizeof(text),
        "mpi: another transport of rank %u broke while messages were under "
        "way that MPI cannot take back, and MPI cannot be used any more in "
        "its process; start the program again",
        world->rank);
    world->services->broken(world->services->user, GYRE_STATE, text);
}

/* One round; true: something moved. */
static bool turn(mp_world *world, gyre_cargo *begun, bool aborted)
{
    bool moved, heard = false, held;

    mp_lock();
    held = mp_is_held();
    post_all(world, begun, aborted);
    moved = mp_progress(world) || begun != NULL;
    if (!aborted)
        heard = hear(world);
    mp_unlock();
    mp_flush(world);
    if (heard) {
        world->heard = true;
        world->services->broken(world->services->user,
                                (gyre_status)world->incoming.status,
                                world->incoming.text);
    }
    if (held && !aborted && !world->told)
        break_as_held(world);
    if (aborted && !world->over)
        fall(world);
    return moved;
}

void *mp_main(void *opaque)
{
    mp_world *world = opaque;
    unsigned quiet = 0;

    if (!start(world))
        return NULL;
    pthread_mutex_lock(&world->lock);
    for (;;) {
        gyre_cargo *begun = world->first;
        bool aborted = world->aborted;
        /* A failure is told to the others even when this rank leaves. */
        bool stop = world->stop && begun == NULL && world->count == 0 &&
                    (!aborted || world->over);

        world->first = NULL;
        pthread_mutex_unlock(&world->lock);
        if (stop)
            break;
        quiet = turn(world, begun, aborted) ? 0 : quiet + 1;
        pthread_mutex_lock(&world->lock);
        rest(world, quiet);
    }
    mp_lock();
    close_all(world);
    mp_unlock();
    return NULL;
}
