/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator of a rank: made, waited for, given back. */
#include "config.h"

#include "nc.h"

#include <stdio.h>
#include <time.h>

enum { NAP = 20000 }; /* ns between two questions */

void nc_nap(void)
{
    struct timespec nap = {0, NAP};

    nanosleep(&nap, NULL);
}

/* ---- a broken world -------------------------------------------------- */

void nc_abort(nc_world *world, gyre_status status, const char *text)
{
    pthread_mutex_lock(&world->lock);
    if (!world->aborted) {
        world->status = status;
        snprintf(world->text, sizeof(world->text), "%s", text);
        world->aborted = true;
    }
    for (uint32_t r = 0; r < world->ranks; r++)
        pthread_cond_signal(&world->rank[r].changed);
    pthread_mutex_unlock(&world->lock);
}

gyre_status nc_check(nc_world *world, gyre_error *error)
{
    bool aborted;

    pthread_mutex_lock(&world->lock);
    aborted = world->aborted;
    pthread_mutex_unlock(&world->lock);
    if (aborted)
        return nc_say(error, GYRE_STOPPED, "nccl: aborted");
    return GYRE_OK;
}

/* ---- waiting --------------------------------------------------------- */

gyre_status nc_comm_look(nc_rank *rank, bool *busy, gyre_error *error)
{
    const nc_calls *calls = &rank->world->calls;
    ncclResult_t state = ncclSuccess, code;
    gyre_status status = nc_check(rank->world, error);

    if (status != GYRE_OK)
        return status;
    code = calls->ncclCommGetAsyncError(rank->comm, &state);
    if (code == ncclSuccess)
        code = state;
    if (code != ncclSuccess && code != ncclInProgress)
        return nc_nccl_fail(calls, error, "the communicator", code);
    *busy = code == ncclInProgress;
    return GYRE_OK;
}

gyre_status nc_settle(nc_rank *rank, gyre_error *error)
{
    bool busy = true;
    gyre_status status = nc_comm_look(rank, &busy, error);

    while (status == GYRE_OK && busy) {
        nc_nap();
        status = nc_comm_look(rank, &busy, error);
    }
    return status;
}

/* ---- open and close -------------------------------------------------- */

gyre_status nc_comm_open(nc_rank *rank, gyre_error *error)
{
    nc_world *world = rank->world;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t code;

    config.blocking = 0;
    code = world->calls.ncclCommInitRankConfig(
        &rank->comm, (int)world->ranks, world->id, (int)rank->rank, &config);
    if (code != ncclSuccess && code != ncclInProgress)
        return nc_nccl_fail(&world->calls, error, "ncclCommInitRankConfig",
                            code);
    return nc_settle(rank, error);
}

void nc_comm_abort(nc_rank *rank)
{
    if (rank->comm != NULL)
        (void)rank->world->calls.ncclCommAbort(rank->comm);
    rank->comm = NULL;
}

void nc_comm_close(nc_rank *rank)
{
    nc_world *world = rank->world;
    gyre_error error;
    gyre_status status = nc_check(world, &error);
    ncclResult_t code;

    if (rank->comm == NULL)
        return;
    if (status == GYRE_OK) {
        code = world->calls.ncclCommFinalize(rank->comm);
        if (code != ncclSuccess && code != ncclInProgress)
            status =
                nc_nccl_fail(&world->calls, &error, "ncclCommFinalize", code);
        else
            status = nc_settle(rank, &error);
    }
    if (status != GYRE_OK) {
        nc_abort(world, status, error.text); /* who waits for this rank */
        nc_comm_abort(rank);
        return;
    }
    (void)world->calls.ncclCommDestroy(rank->comm);
    rank->comm = NULL;
}
