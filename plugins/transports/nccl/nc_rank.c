/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a rank: one group after the other. */
#include "config.h"

#include "nc.h"

/* ---- open and close -------------------------------------------------- */

gyre_status nc_rank_open(nc_rank *rank, gyre_error *error)
{
    const nc_calls *calls = &rank->world->calls;
    CUresult code = calls->cuDeviceGet(&rank->device, (int)rank->rank);

    if (code == CUDA_SUCCESS)
        code = calls->cuDevicePrimaryCtxRetain(&rank->context, rank->device);
    if (code != CUDA_SUCCESS) {
        rank->context = NULL;
        return nc_cuda_fail(calls, error, "no context of the GPU", code);
    }
    code = calls->cuCtxSetCurrent(rank->context);
    if (code == CUDA_SUCCESS)
        code = calls->cuStreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING);
    (void)calls->cuCtxSetCurrent(NULL);
    if (code != CUDA_SUCCESS) {
        rank->stream = NULL;
        return nc_cuda_fail(calls, error, "no stream", code);
    }
    return GYRE_OK;
}

void nc_rank_close(nc_rank *rank)
{
    const nc_calls *calls = &rank->world->calls;

    if (rank->context == NULL)
        return;
    if (calls->cuCtxSetCurrent(rank->context) == CUDA_SUCCESS) {
        if (rank->staging != 0)
            (void)calls->cuMemFree(rank->staging);
        if (rank->stream != NULL)
            (void)calls->cuStreamDestroy(rank->stream);
        (void)calls->cuCtxSetCurrent(NULL);
    }
    (void)calls->cuDevicePrimaryCtxRelease(rank->device);
}

/* ---- a group --------------------------------------------------------- */

/* By peer, channel and number: puts and gets of a pair, each for itself, have
 * the order that the other end has. */
static bool before(const gyre_cargo *a, const gyre_cargo *b)
{
    if (a->message.peer != b->message.peer)
        return a->message.peer < b->message.peer;
    if (a->message.channel != b->message.channel)
        return a->message.channel < b->message.channel;
    return a->number < b->number;
}

static gyre_cargo *sorted(gyre_cargo *list)
{
    gyre_cargo *out = NULL, *next;

    for (; list != NULL; list = next) {
        gyre_cargo **at = &out;

        next = list->next;
        while (*at != NULL && before(*at, list))
            at = &(*at)->next;
        list->next = *at;
        *at = list;
    }
    return out;
}

static gyre_status reserve(nc_rank *rank, const gyre_cargo *group,
                           gyre_error *error)
{
    const nc_calls *calls = &rank->world->calls;
    uint64_t bytes = 0;
    CUresult code;

    for (const gyre_cargo *c = group; c != NULL; c = c->next) {
        if (c->message.bytes > rank->world->staging - bytes)
            return nc_say(error, GYRE_NO_MEMORY,
                          "nccl: a group of rank %u needs more than %llu bytes "
                          "on the GPU; raise the option staging",
                          rank->rank, (unsigned long long)rank->world->staging);
        bytes += c->message.bytes;
    }
    if (bytes <= rank->staging_bytes)
        return GYRE_OK;
    if (rank->staging != 0)
        (void)calls->cuMemFree(rank->staging);
    rank->staging = 0;
    rank->staging_bytes = 0;
    code = calls->cuMemAlloc(&rank->staging, bytes);
    if (code != CUDA_SUCCESS) {
        rank->staging = 0;
        return nc_cuda_fail(calls, error, "no memory on the GPU", code);
    }
    rank->staging_bytes = bytes;
    return GYRE_OK;
}

/* Between host and staging, puts before the group and gets after it. */
static gyre_status copy(nc_rank *rank, const gyre_cargo *group, bool puts,
                        gyre_error *error)
{
    const nc_calls *calls = &rank->world->calls;
    CUdeviceptr at = rank->staging;
    CUresult code = CUDA_SUCCESS;

    for (; group != NULL; group = group->next) {
        const gyre_message *m = &group->message;
        CUdeviceptr to = at;

        at += m->bytes;
        for (uint32_t i = 0; m->put == puts && i < m->extent_count; i++) {
            const gyre_extent *e = &m->extents[i];

            if (e->bytes == 0 || code != CUDA_SUCCESS)
                continue;
            code = puts ? calls->cuMemcpyHtoDAsync(to, e->at, e->bytes,
                                                   rank->stream)
                        : calls->cuMemcpyDtoHAsync(e->at, to, e->bytes,
                                                   rank->stream);
            to += e->bytes;
        }
    }
    if (code != CUDA_SUCCESS)
        return nc_cuda_fail(calls, error, "a copy", code);
    return GYRE_OK;
}

static bool is_good(ncclResult_t code)
{
    return code == ncclSuccess || code == ncclInProgress;
}

static gyre_status start(nc_rank *rank, const gyre_cargo *group,
                         gyre_error *error)
{
    const nc_calls *calls = &rank->world->calls;
    CUdeviceptr at = rank->staging;
    ncclResult_t code, ended;

    if (rank->comm == NULL) /* a group of this rank has failed */
        return nc_say(error, GYRE_STOPPED, "nccl: aborted");
    code = calls->ncclGroupStart();
    if (code != ncclSuccess)
        return nc_nccl_fail(calls, error, "ncclGroupStart", code);
    for (; group != NULL && is_good(code); group = group->next) {
        const gyre_message *m = &group->message;
        void *data = (void *)(uintptr_t)at;

        at += m->bytes;
        if (m->bytes == 0)
            continue;
        code = m->put ? calls->ncclSend(data, m->bytes, ncclUint8, (int)m->peer,
                                        rank->comm, rank->stream)
                      : calls->ncclRecv(data, m->bytes, ncclUint8, (int)m->peer,
                                        rank->comm, rank->stream);
    }
    ended = calls->ncclGroupEnd();
    if (is_good(code))
        code = ended;
    if (!is_good(code))
        return nc_nccl_fail(calls, error, "a group", code);
    return GYRE_OK;
}

static gyre_status look(nc_rank *rank, bool *ready, gyre_error *error)
{
    const nc_calls *calls = &rank->world->calls;
    bool busy = false;
    gyre_status status = nc_comm_look(rank, &busy, error);
    CUresult stream;

    if (status != GYRE_OK)
        return status;
    stream = calls->cuStreamQuery(rank->stream);
    /* While NCCL is busy, the stream may not know of the group yet. */
    *ready = !busy && stream == CUDA_SUCCESS;
    if (stream != CUDA_SUCCESS && stream != CUDA_ERROR_NOT_READY)
        return nc_cuda_fail(calls, error, "the stream", stream);
    return GYRE_OK;
}

static gyre_status wait_for(nc_rank *rank, gyre_error *error)
{
    bool ready = false;
    gyre_status status = look(rank, &ready, error);

    while (status == GYRE_OK && !ready) {
        nc_nap();
        status = look(rank, &ready, error);
    }
    return status;
}

static gyre_status move(nc_rank *rank, const gyre_cargo *group,
                        gyre_error *error)
{
    gyre_status status = GYRE_OK;

    for (const gyre_cargo *c = group; c != NULL && status == GYRE_OK;
         c = c->next)
        status = nc_announce(rank->world, c, error);
    if (status == GYRE_OK)
        status = reserve(rank, group, error);
    if (status == GYRE_OK)
        status = copy(rank, group, true, error);
    if (status == GYRE_OK)
        status = start(rank, group, error);
    if (status == GYRE_OK)
        status = wait_for(rank, error);
    if (status == GYRE_OK)
        status = copy(rank, group, false, error);
    if (status == GYRE_OK)
        status = wait_for(rank, error);
    return status;
}

static void give_back(nc_rank *rank, gyre_cargo *group, gyre_status status,
                      const char *text)
{
    const gyre_transport_services *services = rank->world->services;
    gyre_cargo *next;

    for (; group != NULL; group = next) {
        next = group->next;
        services->ended(services->user, group, status, text);
    }
}

/* What the GPU may still do with the group's memory must be over first. */
static void fail(nc_rank *rank, gyre_cargo *group, const gyre_error *error)
{
    nc_world *world = rank->world;

    world->services->broken(world->services->user, error->status, error->text);
    nc_comm_abort(rank);
    (void)world->calls.cuStreamSynchronize(rank->stream);
    give_back(rank, group, error->status, error->text);
}

/* ---- the thread ------------------------------------------------------ */

/* The first group, cut from the queue.  Lock held. */
static gyre_cargo *take_group(nc_rank *rank)
{
    gyre_cargo *group = rank->first, *last = group;

    while (last->left == 0)
        last = last->next;
    rank->first = last->next;
    last->next = NULL;
    return group;
}

/* One round; false: the end.  Lock held, but given up meanwhile. */
static bool turn(nc_rank *rank)
{
    nc_world *world = rank->world;
    bool aborted = world->aborted;
    gyre_cargo *group = NULL;
    gyre_error error;

    if (rank->first != NULL)
        group = take_group(rank);
    else if (world->stop)
        return false;
    else if (!aborted || rank->comm == NULL) {
        pthread_cond_wait(&rank->changed, &world->lock);
        return true;
    }
    pthread_mutex_unlock(&world->lock);
    if (aborted) {
        nc_comm_abort(rank);
        give_back(rank, group, world->status, world->text);
    } else {
        group = sorted(group);
        if (move(rank, group, &error) == GYRE_OK)
            give_back(rank, group, GYRE_OK, NULL);
        else
            fail(rank, group, &error);
    }
    pthread_mutex_lock(&world->lock);
    return true;
}

void *nc_rank_main(void *opaque)
{
    nc_rank *rank = opaque;
    nc_world *world = rank->world;
    gyre_error error;

    (void)world->calls.cuCtxSetCurrent(rank->context);
    if (nc_comm_open(rank, &error) != GYRE_OK)
        nc_abort(world, error.status, error.text);
    pthread_mutex_lock(&world->lock);
    world->up++;
    pthread_cond_signal(&world->came);
    while (turn(rank))
        ;
    pthread_mutex_unlock(&world->lock);
    nc_comm_close(rank);
    (void)world->calls.cuCtxSetCurrent(NULL);
    return NULL;
}
