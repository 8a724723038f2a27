/* SPDX-License-Identifier: Apache-2.0 */
/* A world, its names and its ledger. */
#include "config.h"

#include "transport/inner.h"

#include "trace/trace.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const default_phases[] = {"ring", "inner",  "outer",
                                             "a2a",  "gather", "reduce"};
static const char *const default_classes[] = {"peer"};

/* ---- create ---------------------------------------------------------- */

static gyre_status check_options(const gyre_world_options *options,
                                 gyre_error *error)
{
    if (options->ranks > GYRE_TRANSPORT_MAX_RANKS ||
        options->lanes > GYRE_TRANSPORT_MAX_LANES ||
        options->phase_count > GYRE_TRANSPORT_MAX_PHASES ||
        options->links.count > GYRE_TRANSPORT_MAX_CLASSES)
        return gyre_fail(error, GYRE_RANGE,
                         "a transport of %u ranks, %u lanes, %u phases, %u "
                         "classes of links; at most %d, %d, %d and %d",
                         options->ranks, options->lanes, options->phase_count,
                         options->links.count, GYRE_TRANSPORT_MAX_RANKS,
                         GYRE_TRANSPORT_MAX_LANES, GYRE_TRANSPORT_MAX_PHASES,
                         GYRE_TRANSPORT_MAX_CLASSES);
    if (options->phase_count > 0 && options->phases == NULL)
        return gyre_fail(error, GYRE_INVALID,
                         "a transport of %u phases without names",
                         options->phase_count);
    if (options->links.count > 0 &&
        (options->links.names == NULL || options->links.class_of == NULL))
        return gyre_fail(error, GYRE_INVALID,
                         "a transport with %u classes of links and no %s",
                         options->links.count,
                         options->links.names == NULL ? "names" : "class_of");
    return GYRE_OK;
}

static void free_names(gyre_world *world, char **names, uint32_t count)
{
    for (uint32_t i = 0; names != NULL && i < count; i++)
        gyre_free_text(world->context, names[i]);
    gyre_free(world->context, names, count, sizeof(names[0]));
}

static bool copy_names(gyre_world *world, const char *const *names,
                       uint32_t count, char ***out)
{
    bool good = true;

    *out = gyre_alloc_zero(world->context, count, sizeof((*out)[0]));
    for (uint32_t i = 0; *out != NULL && i < count && good; i++) {
        (*out)[i] = gyre_copy_text(world->context,
                                   names[i] != NULL ? names[i] : "unnamed");
        good = (*out)[i] != NULL;
    }
    return *out != NULL && good;
}

static void set_options(gyre_world *world, const gyre_world_options *options)
{
    world->lanes = options->lanes > 0 ? options->lanes : 4;
    world->phase_count = options->phase_count;
    if (world->phase_count == 0)
        world->phase_count = sizeof(default_phases) / sizeof(char *);
    world->class_count = options->links.count > 0 ? options->links.count : 1;
    world->links = options->links;
    world->buffered = options->buffered;
    world->timeout = options->timeout;
    world->delay = options->delay;
    world->seed = options->delay_seed;
}

static bool set_names(gyre_world *world, const gyre_world_options *options)
{
    gyre_context *context = world->context;
    uint32_t count = world->phase_count;
    char name[80];

    world->put_names = gyre_alloc(context, count, sizeof(uint32_t));
    world->get_names = gyre_alloc(context, count, sizeof(uint32_t));
    world->backend = gyre_copy_text(
        context, options->backend != NULL ? options->backend : "threads");
    if (world->put_names == NULL || world->get_names == NULL ||
        world->backend == NULL ||
        !copy_names(world,
                    options->phase_count > 0 ? options->phases : default_phases,
                    count, &world->phases) ||
        !copy_names(world,
                    options->links.count > 0 ? options->links.names
                                             : default_classes,
                    world->class_count, &world->classes))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "put %.64s", world->phases[i]);
        world->put_names[i] = gyre_trace_intern(context, name);
        snprintf(name, sizeof(name), "get %.64s", world->phases[i]);
        world->get_names[i] = gyre_trace_intern(context, name);
    }
    return true;
}

static bool make_endpoints(gyre_world *world)
{
    size_t counts = (size_t)world->phase_count * world->class_count;

    world->endpoints = gyre_alloc_zero(world->context, world->count,
                                       sizeof(world->endpoints[0]));
    for (uint32_t i = 0; world->endpoints != NULL && i < world->count; i++) {
        gyre_endpoint *endpoint = &world->endpoints[i];

        endpoint->world = world;
        endpoint->rank = world->first + i;
        endpoint->counts = gyre_alloc_zero(world->context, counts,
                                           sizeof(endpoint->counts[0]));
        if (endpoint->counts == NULL)
            return false;
    }
    return world->endpoints != NULL;
}

static void free_world(gyre_world *world)
{
    gyre_context *context = world->context;
    size_t counts = (size_t)world->phase_count * world->class_count;

    for (uint32_t i = 0; world->endpoints != NULL && i < world->count; i++)
        gyre_free(context, world->endpoints[i].counts, counts,
                  sizeof(gyre_live_count));
    gyre_free(context, world->endpoints, world->count,
              sizeof(world->endpoints[0]));
    gyre_route_free_all(world);
    free_names(world, world->phases, world->phase_count);
    free_names(world, world->classes, world->class_count);
    gyre_free(context, world->put_names, world->phase_count, sizeof(uint32_t));
    gyre_free(context, world->get_names, world->phase_count, sizeof(uint32_t));
    gyre_free_text(context, world->backend);
    pthread_cond_destroy(&world->idle);
    pthread_cond_destroy(&world->tick);
    pthread_mutex_destroy(&world->lock);
    gyre_free(context, world, 1, sizeof(*world));
}

static gyre_status no_memory(gyre_error *error, uint32_t ranks)
{
    return gyre_fail(error, GYRE_NO_MEMORY,
                     "a transport of %u ranks: no memory", ranks);
}

gyre_status gyre_transport_create(gyre_context *context,
                                  const gyre_world_options *options,
                                  gyre_world **out, gyre_error *error)
{
    gyre_status status = check_options(options, error);
    pthread_condattr_t monotonic;
    gyre_world *world;

    if (status != GYRE_OK)
        return status;
    world = gyre_alloc_zero(context, 1, sizeof(*world));
    if (world == NULL)
        return no_memory(error, options->ranks);
    world->context = context;
    pthread_mutex_init(&world->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&world->tick, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&world->idle, NULL);
    set_options(world, options);
    if (!set_names(world, options))
        status = no_memory(error, options->ranks);
    if (status == GYRE_OK)
        status = gyre_carrier_open(world, options, error);
    if (status == GYRE_OK && !make_endpoints(world))
        status = no_memory(error, world->ranks);
    if (status == GYRE_OK)
        status = gyre_clock_start(world, error);
    if (status != GYRE_OK) {
        gyre_carrier_close(world);
        free_world(world);
        return status;
    }
    *out = world;
    return GYRE_OK;
}

void gyre_transport_destroy(gyre_world *world)
{
    bool pending;

    if (world == NULL)
        return;
    pthread_mutex_lock(&world->lock);
    pending = world->oldest != NULL; /* else only callbacks return */
    pthread_mutex_unlock(&world->lock);
    if (pending)
        gyre_world_break(world, GYRE_STATE,
                         "the transport is destroyed while groups are pending");
    pthread_mutex_lock(&world->lock);
    while (world->active > 0)
        pthread_cond_wait(&world->idle, &world->lock);
    pthread_mutex_unlock(&world->lock);
    gyre_clock_stop(world);
    gyre_carrier_close(world);
    free_world(world);
}

/* ---- what it is ------------------------------------------------------ */

uint32_t gyre_transport_ranks(const gyre_world *world)
{
    return world->ranks;
}

void gyre_transport_local(const gyre_world *world, uint32_t *first,
                          uint32_t *count)
{
    *first = world->first;
    *count = world->count;
}

uint32_t gyre_transport_host(const gyre_world *world)
{
    return world->host;
}

const char *gyre_transport_backend(const gyre_world *world)
{
    return world->backend;
}

bool gyre_transport_one_queue(const gyre_world *world)
{
    return world->carrier != NULL && world->carrier->whole_groups;
}

gyre_status gyre_transport_endpoint(gyre_world *world, uint32_t rank,
                                    gyre_endpoint **out, gyre_error *error)
{
    if (rank < world->first || rank - world->first >= world->count)
        return gyre_fail(error, GYRE_RANGE,
                         "transport %s: rank %u is not in this process, which "
                         "has %u of %u ranks, from %u on",
                         world->backend, rank, world->count, world->ranks,
                         world->first);
    *out = &world->endpoints[rank - world->first];
    return GYRE_OK;
}

uint32_t gyre_transport_rank(const gyre_endpoint *endpoint)
{
    return endpoint->rank;
}

gyre_world *gyre_transport_world(const gyre_endpoint *endpoint)
{
    return endpoint->world;
}

/* ---- ledger ---------------------------------------------------------- */

uint32_t gyre_transport_phases(const gyre_world *world)
{
    return world->phase_count;
}

const char *gyre_transport_phase_name(const gyre_world *world, uint32_t phase)
{
    assert(phase < world->phase_count);
    return world->phases[phase];
}

uint32_t gyre_transport_classes(const gyre_world *world)
{
    return world->class_count;
}

uint32_t gyre_transport_class(const gyre_world *world, uint32_t from,
                              uint32_t to)
{
    return world->links.count == 0
               ? 0
               : world->links.class_of(world->links.user, from, to);
}

const char *gyre_transport_class_name(const gyre_world *world, uint32_t klass)
{
    assert(klass < world->class_count);
    return world->classes[klass];
}

gyre_link_count gyre_transport_count(const gyre_endpoint *endpoint,
                                     uint32_t phase, uint32_t klass)
{
    const gyre_world *world = endpoint->world;
    const gyre_live_count *live =
        &endpoint->counts[phase * world->class_count + klass];

    assert(phase < world->phase_count && klass < world->class_count);
    return (gyre_link_count){
        .sent = atomic_load(&live->sent),
        .received = atomic_load(&live->received),
        .puts = atomic_load(&live->puts),
        .gets = atomic_load(&live->gets),
    };
}

void gyre_transport_forget(gyre_world *world)
{
    size_t counts = (size_t)world->phase_count * world->class_count;

    for (uint32_t r = 0; r < world->count; r++)
        for (size_t i = 0; i < counts; i++) {
            gyre_live_count *live = &world->endpoints[r].counts[i];

            atomic_store(&live->sent, 0);
            atomic_store(&live->received, 0);
            atomic_store(&live->puts, 0);
            atomic_store(&live->gets, 0);
        }
}
