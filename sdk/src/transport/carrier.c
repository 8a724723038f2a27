/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that move bytes, and the host's services for them. */
#include "config.h"

#include "transport/inner.h"

#include <gyre/registry.h>
#include <string.h>

static void service_log(void *user, int level, const char *text)
{
    gyre_log(((gyre_world *)user)->context, (gyre_log_level)level, "%s", text);
}

static void *service_take(void *user, size_t bytes)
{
    return gyre_alloc_zero(((gyre_world *)user)->context, 1, bytes);
}

static void service_give(void *user, void *block, size_t bytes)
{
    gyre_free(((gyre_world *)user)->context, block, 1, bytes);
}

static void service_ended(void *user, gyre_cargo *cargo, gyre_status status,
                          const char *text)
{
    (void)user;
    gyre_flight_moved((gyre_flight *)cargo, status, text);
}

static void service_broken(void *user, gyre_status status, const char *text)
{
    gyre_world_break(user, status, text);
}

static gyre_status open_carrier(gyre_world *world, const gyre_carrier *carrier,
                                const gyre_world_options *options,
                                gyre_error *error)
{
    gyre_carrier_plan plan = {.size = sizeof(plan),
                              .ranks = options->ranks,
                              .lanes = world->lanes,
                              .staging = options->staging,
                              .piece = options->piece};
    gyre_carried got = {0};
    void *opened = NULL;
    gyre_status status;
    bool broken;

    if (plan.staging == 0)
        plan.staging = UINT64_C(1) << 30;
    if (plan.piece == 0 || plan.piece > UINT64_C(1) << 30)
        plan.piece = UINT64_C(1) << 30;
    status = carrier->open(&world->services, &plan, &got, &opened, error);
    if (status != GYRE_OK)
        return status;
    /* What it opened may have heard of a failure by now. */
    pthread_mutex_lock(&world->lock);
    world->opened = opened;
    world->carrier = carrier;
    broken = atomic_load(&world->broken) != GYRE_OK;
    pthread_mutex_unlock(&world->lock);
    if (broken)
        carrier->abort(opened, world->error.status, world->error.text);
    world->ranks = got.ranks;
    world->first = got.first;
    world->count = got.count;
    world->host = got.host > got.count ? got.host : got.count;
    return GYRE_OK;
}

gyre_status gyre_carrier_open(gyre_world *world,
                              const gyre_world_options *options,
                              gyre_error *error)
{
    const gyre_plugin *plugin = NULL;
    gyre_status status;

    if (strcmp(world->backend, "threads") == 0) {
        if (options->ranks == 0)
            return gyre_fail(error, GYRE_INVALID,
                             "transport threads: 0 ranks; say how many");
        world->ranks = options->ranks;
        world->count = options->ranks;
        world->host = options->ranks;
        return GYRE_OK;
    }
    status = gyre_plugin_find(world->context, GYRE_KIND_TRANSPORT,
                              world->backend, &plugin, error);
    if (status == GYRE_NOT_FOUND)
        return gyre_fail_prefix(
            error, status,
            "transport %.32s: there are \"threads\" and, as modules, \"mpi\" "
            "(built with libopenmpi-dev) and \"nccl\" (with libnccl-dev)",
            world->backend);
    if (status != GYRE_OK)
        return status;
    world->services = (gyre_transport_services){sizeof(world->services),
                                                world,
                                                service_log,
                                                service_take,
                                                service_give,
                                                service_ended,
                                                service_broken};
    return open_carrier(world, plugin->descriptor, options, error);
}

void gyre_carrier_close(gyre_world *world)
{
    if (world->carrier != NULL)
        world->carrier->close(world->opened,
                              atomic_load(&world->broken) != GYRE_OK);
}
