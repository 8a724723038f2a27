/* SPDX-License-Identifier: Apache-2.0 */
/* Do both ends of a pair of ranks say the same, in the same order? */
#include "config.h"

#include "nc.h"

#include <string.h>

static nc_pair *pair_of(nc_world *world, const gyre_cargo *cargo)
{
    uint32_t peer = cargo->message.peer;
    uint32_t from = cargo->message.put ? cargo->rank : peer;
    uint32_t to = cargo->message.put ? peer : cargo->rank;

    return &world->pairs[(size_t)from * world->ranks + to];
}

static gyre_status compare(const gyre_cargo *cargo, const nc_notice *other,
                           gyre_error *error)
{
    const gyre_message *m = &cargo->message;
    bool put = m->put;

    if (other->channel == m->channel && other->number == cargo->number &&
        other->bytes == m->bytes)
        return GYRE_OK;
    if (other->channel == m->channel && other->number == cargo->number)
        return nc_say(
            error, GYRE_INVALID,
            "the put of rank %u has %llu bytes, the get of rank %u that it "
            "meets takes %llu: channel %u, number %llu; both ends must agree "
            "on bytes and order",
            put ? cargo->rank : m->peer,
            (unsigned long long)(put ? m->bytes : other->bytes),
            put ? m->peer : cargo->rank,
            (unsigned long long)(put ? other->bytes : m->bytes), m->channel,
            (unsigned long long)cargo->number);
    return nc_say(error, GYRE_STATE,
                  "nccl has one lane: the %s of rank %u on channel %u, number "
                  "%llu, meets the %s of rank %u on channel %u, number %llu; "
                  "this plan is not safe on one lane",
                  put ? "put" : "get", cargo->rank, m->channel,
                  (unsigned long long)cargo->number, put ? "get" : "put",
                  m->peer, other->channel, (unsigned long long)other->number);
}

gyre_status nc_announce(nc_world *world, const gyre_cargo *cargo,
                        gyre_error *error)
{
    const gyre_transport_services *services = world->services;
    nc_pair *pair = pair_of(world, cargo);
    nc_notice *notice;
    gyre_status status = GYRE_OK;

    pthread_mutex_lock(&world->lock);
    notice = pair->first;
    if (notice != NULL && pair->puts != cargo->message.put) {
        status = compare(cargo, notice, error);
        pair->first = notice->next;
        services->give(services->user, notice, sizeof(*notice));
    } else {
        notice = services->take(services->user, sizeof(*notice));
        if (notice == NULL) {
            status = nc_say(error, GYRE_NO_MEMORY, "nccl: no memory");
        } else {
            *notice = (nc_notice){NULL, cargo->message.channel, cargo->number,
                                  cargo->message.bytes};
            if (pair->first == NULL)
                pair->first = notice;
            else
                pair->last->next = notice;
            pair->last = notice;
            pair->puts = cargo->message.put;
        }
    }
    pthread_mutex_unlock(&world->lock);
    return status;
}

void nc_forget_pairs(nc_world *world)
{
    const gyre_transport_services *services = world->services;
    size_t count = (size_t)world->ranks * world->ranks;

    for (size_t i = 0; world->pairs != NULL && i < count; i++)
        while (world->pairs[i].first != NULL) {
            nc_notice *notice = world->pairs[i].first;

            world->pairs[i].first = notice->next;
            services->give(services->user, notice, sizeof(*notice));
        }
}
