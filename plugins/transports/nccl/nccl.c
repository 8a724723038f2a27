/* SPDX-License-Identifier: Apache-2.0 */
/* Transport module "nccl": ranks are the GPUs of this process. */
#include "config.h"

#include "nc.h"

#include <string.h>

static void *take(nc_world *world, size_t count, size_t size)
{
    return world->services->take(world->services->user, count * size);
}

static void give(nc_world *world, void *block, size_t count, size_t size)
{
    if (block != NULL)
        world->services->give(world->services->user, block, count * size);
}

/* ---- close ----------------------------------------------------------- */

static void nccl_close(void *opened, int broken)
{
    nc_world *world = opened;
    const gyre_transport_services *services = world->services;
    size_t ranks = world->ranks;

    (void)broken;
    pthread_mutex_lock(&world->lock);
    world->stop = true;
    for (size_t r = 0; world->rank != NULL && r < ranks; r++)
        pthread_cond_signal(&world->rank[r].changed);
    pthread_mutex_unlock(&world->lock);
    for (size_t r = 0; world->rank != NULL && r < ranks; r++)
        if (world->rank[r].started)
            pthread_join(world->rank[r].thread, NULL);
    for (size_t r = 0; world->rank != NULL && r < ranks; r++) {
        nc_rank_close(&world->rank[r]);
        pthread_cond_destroy(&world->rank[r].changed);
    }
    nc_forget_pairs(world);
    give(world, world->pairs, ranks * ranks, sizeof(nc_pair));
    give(world, world->rank, ranks, sizeof(nc_rank));
    pthread_cond_destroy(&world->came);
    pthread_mutex_destroy(&world->lock);
    services->give(services->user, world, sizeof(*world));
}

/* ---- open ------------------------------------------------------------ */

static gyre_status make_tables(nc_world *world, gyre_error *error)
{
    size_t ranks = world->ranks;

    world->rank = take(world, ranks, sizeof(nc_rank));
    for (uint32_t r = 0; world->rank != NULL && r < ranks; r++) {
        world->rank[r].world = world;
        world->rank[r].rank = r;
        pthread_cond_init(&world->rank[r].changed, NULL);
    }
    world->pairs = take(world, ranks * ranks, sizeof(nc_pair));
    if (world->rank == NULL || world->pairs == NULL)
        return nc_say(error, GYRE_NO_MEMORY, "nccl: %u ranks: no memory",
                      world->ranks);
    return GYRE_OK;
}

/* Each makes its communicator, which needs all others. */
static gyre_status start_threads(nc_world *world, gyre_error *error)
{
    uint32_t started = 0;
    gyre_status status = GYRE_OK;

    for (; started < world->ranks && status == GYRE_OK; started++) {
        nc_rank *rank = &world->rank[started];
        int failed = pthread_create(&rank->thread, NULL, nc_rank_main, rank);

        if (failed != 0) {
            status = nc_say(error, GYRE_SYSTEM, "nccl: no thread: %s",
                            strerror(failed));
            nc_abort(world, status, "nccl: no thread");
            break;
        }
        rank->started = true;
    }
    pthread_mutex_lock(&world->lock);
    while (world->up < started)
        pthread_cond_wait(&world->came, &world->lock);
    if (world->aborted && status == GYRE_OK)
        status = nc_say(error, world->status, "%s", world->text);
    pthread_mutex_unlock(&world->lock);
    return status;
}

static gyre_status set_up(nc_world *world, gyre_error *error)
{
    ncclResult_t code;
    gyre_status status = make_tables(world, error);

    for (uint32_t r = 0; r < world->ranks && status == GYRE_OK; r++)
        status = nc_rank_open(&world->rank[r], error);
    if (status != GYRE_OK)
        return status;
    code = world->calls.ncclGetUniqueId(&world->id);
    if (code != ncclSuccess)
        return nc_nccl_fail(&world->calls, error, "ncclGetUniqueId", code);
    return start_threads(world, error);
}

static gyre_status nccl_open(const gyre_transport_services *services,
                             const gyre_carrier_plan *plan, gyre_carried *got,
                             void **out, gyre_error *error)
{
    nc_calls calls;
    nc_world *world;
    int gpus = 0;
    gyre_status status = nc_load(&calls, &gpus, error);

    if (status != GYRE_OK)
        return status;
    if (plan->ranks > (uint32_t)gpus || gpus == 0)
        return nc_say(error, GYRE_NOT_FOUND,
                      "nccl: %u ranks need as many GPUs, and the driver sees "
                      "%d; use the transport \"threads\" or \"mpi\"",
                      plan->ranks, gpus);
    world = services->take(services->user, sizeof(*world));
    if (world == NULL)
        return nc_say(error, GYRE_NO_MEMORY, "nccl: no memory");
    world->services = services;
    world->calls = calls;
    world->ranks = plan->ranks > 0 ? plan->ranks : (uint32_t)gpus;
    world->staging = plan->staging;
    pthread_mutex_init(&world->lock, NULL);
    pthread_cond_init(&world->came, NULL);
    status = set_up(world, error);
    if (status != GYRE_OK) {
        nccl_close(world, 1);
        return status;
    }
    *got = (gyre_carried){world->ranks, 0, world->ranks, world->ranks};
    *out = world;
    return GYRE_OK;
}

/* ---- the rest -------------------------------------------------------- */

static void nccl_begin(void *opened, uint32_t index, gyre_cargo *cargo)
{
    nc_world *world = opened;
    nc_rank *rank = &world->rank[index];
    gyre_cargo *last = cargo;

    for (last = cargo; last->next != NULL; last = last->next)
        last->left = 0;
    last->left = 1; /* the end of a group in the queue */
    pthread_mutex_lock(&world->lock);
    if (rank->first == NULL)
        rank->first = cargo;
    else
        rank->last->next = cargo;
    rank->last = last;
    pthread_cond_signal(&rank->changed);
    pthread_mutex_unlock(&world->lock);
}

static void nccl_abort(void *opened, gyre_status status, const char *text)
{
    nc_abort(opened, status, text);
}

static const gyre_carrier carrier = {
    .size = sizeof(carrier),
    .whole_groups = 1,
    .open = nccl_open,
    .close = nccl_close,
    .begin = nccl_begin,
    .abort = nccl_abort,
};

static const gyre_build build = GY_BUILD_(0, NULL);

static const gyre_plugin plugin = {
    .size = sizeof(plugin),
    .kind = GYRE_KIND_TRANSPORT,
    .name = "nccl",
    .version = "1.0.0",
    .summary = "ranks on the GPUs of one process, by NCCL",
    .licence = "Apache-2.0",
    .build = &build,
    .descriptor = &carrier,
};

GYRE_MODULE(nccl, &plugin)
