/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of the transport: worlds for attention. */
#include "attention/face.h"

#include <string.h>

static const char *const standard[] = {"ring", "inner",  "outer",
                                       "a2a",  "gather", "reduce"};
enum { STANDARD = sizeof(standard) / sizeof(*standard) };

static const char *const classes[] = {"inner", "outer"};

/* user: the number of ranks of a node, itself. */
static uint32_t class_of(void *user, uint32_t from, uint32_t to)
{
    uint32_t node = (uint32_t)(uintptr_t)user;
    return from / node != to / node;
}

gyre_status gyre_world_open(gyre_context *context,
                            const gyre_world_request *request, gyre_world **out,
                            gyre_error *error)
{
    const char *phases[GYRE_TRANSPORT_MAX_PHASES];
    gyre_world_request r = {0};
    if (request == NULL || request->size == 0)
        return gyre_fail(error, GYRE_INVALID,
                         "world request: size is 0; set it to "
                         "sizeof(gyre_world_request)");
    memcpy(&r, request, request->size < sizeof(r) ? request->size : sizeof(r));
    if (r.phase_count > GYRE_TRANSPORT_MAX_PHASES - STANDARD)
        return gyre_fail(error, GYRE_RANGE,
                         "world request: %u phases, at most %u beside the six",
                         r.phase_count,
                         (unsigned)(GYRE_TRANSPORT_MAX_PHASES - STANDARD));
    for (uint32_t i = 0; i < r.phase_count; i++)
        if (r.phases == NULL || r.phases[i] == NULL)
            return gyre_fail(error, GYRE_INVALID,
                             "world request: %u phases, and no name of phase "
                             "%u",
                             r.phase_count, i);
    uint32_t count = STANDARD;
    memcpy(phases, standard, sizeof(standard));
    for (uint32_t i = 0; i < r.phase_count; i++) {
        uint32_t at = 0;
        while (at < count && strcmp(phases[at], r.phases[i]) != 0)
            at++;
        phases[at] = r.phases[i];
        count += at == count;
    }
    gyre_world_options options = {.backend = r.backend,
                                  .ranks = r.ranks,
                                  .lanes = GYRE_PLAN_LANES,
                                  .phases = phases,
                                  .phase_count = count,
                                  .buffered = r.buffered != 0,
                                  .timeout = r.timeout,
                                  .delay = r.delay,
                                  .delay_seed = r.delay_seed};
    if (r.node > 0)
        options.links = (gyre_link_map){.count = 2,
                                        .names = classes,
                                        .class_of = class_of,
                                        .user = (void *)(uintptr_t)r.node};
    return gyre_transport_create(context, &options, out, error);
}

void gyre_world_close(gyre_world *world)
{
    gyre_transport_destroy(world);
}

uint32_t gyre_world_size(const gyre_world *world, uint32_t *first,
                         uint32_t *count)
{
    uint32_t a, n;
    gyre_transport_local(world, &a, &n);
    if (first != NULL)
        *first = a;
    if (count != NULL)
        *count = n;
    return gyre_transport_ranks(world);
}

static gyre_status check_gather(const gyre_world *world, const size_t *bytes,
                                const void *all, gyre_error *error)
{
    uint32_t ranks = gyre_transport_ranks(world);
    uint64_t sum = 0;
    if (bytes == NULL)
        return gyre_fail(error, GYRE_INVALID,
                         "gather: no bytes; give a size for each of the %u "
                         "ranks",
                         ranks);
    for (uint32_t r = 0; r < ranks; r++)
        if (!gyre_add(sum, bytes[r], &sum) || sum > PTRDIFF_MAX)
            return gyre_fail(error, GYRE_RANGE,
                             "gather: the %zu bytes of rank %u are more than "
                             "fit behind those of the ranks before",
                             bytes[r], r);
    if (all == NULL && sum > 0)
        return gyre_fail(error, GYRE_INVALID,
                         "gather: no room for the %llu bytes of all ranks",
                         (unsigned long long)sum);
    return GYRE_OK;
}

gyre_status gyre_world_gather(gyre_world *world, const size_t *bytes, void *all,
                              gyre_error *error)
{
    uint32_t first, count;
    gyre_endpoint *endpoint;
    gyre_error own; /* as in gyre_attention_open */
    if (error == NULL)
        error = &own;
    gyre_status status = check_gather(world, bytes, all, error);
    if (status == GYRE_OK)
        status = gyre_transport_check(world, error);
    gyre_transport_local(world, &first, &count);
    if (status == GYRE_OK && count < gyre_transport_ranks(world)) {
        status = gyre_transport_endpoint(world, first, &endpoint, error);
        if (status == GYRE_OK)
            status = gyre_transport_allgather(endpoint, bytes, all, error);
    }
    if (status != GYRE_OK)
        return gyre_attention_give_up(world, status, error);
    return GYRE_OK;
}

void gyre_world_give_up(gyre_world *world, gyre_status status, const char *why)
{
    gyre_endpoint *endpoint;
    uint32_t first;
    gyre_transport_local(world, &first, &(uint32_t){0});
    if (gyre_transport_endpoint(world, first, &endpoint, NULL) == GYRE_OK)
        gyre_transport_abort(endpoint, status, why);
}
