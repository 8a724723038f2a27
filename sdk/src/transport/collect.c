/* SPDX-License-Identifier: Apache-2.0 */
/* Small collectives: one group at the root, one message elsewhere; or one group
 * everywhere. */
#include "config.h"

#include "transport/inner.h"

#include <string.h>

typedef struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over;
    gyre_status status;
    gyre_error error;
} waiter;

static void wake(void *user, gyre_status status, const gyre_error *error)
{
    waiter *w = user;

    pthread_mutex_lock(&w->lock);
    w->status = status;
    if (error != NULL)
        w->error = *error;
    w->over = true;
    pthread_cond_signal(&w->ended);
    pthread_mutex_unlock(&w->lock);
}

/* What fails here alone would let the others wait. */
static gyre_status give_up(gyre_endpoint *endpoint, gyre_status status,
                           const gyre_error *why, gyre_error *error)
{
    gyre_transport_abort(endpoint, status, why->text);
    return gyre_fail(error, status, "%s", why->text);
}

static gyre_status no_memory(gyre_endpoint *endpoint, gyre_error *error)
{
    gyre_error why;

    gyre_fail(&why, GYRE_NO_MEMORY, "a collective of %u ranks: no memory",
              endpoint->world->ranks);
    return give_up(endpoint, GYRE_NO_MEMORY, &why, error);
}

static gyre_status move(gyre_endpoint *endpoint, const gyre_message *messages,
                        uint32_t count, gyre_error *error)
{
    waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER,
                .ended = PTHREAD_COND_INITIALIZER};
    gyre_status status = gyre_flock_begin(endpoint, 0, 0, true, messages, count,
                                          wake, &w, &w.error);

    if (status == GYRE_OK) {
        pthread_mutex_lock(&w.lock);
        while (!w.over)
            pthread_cond_wait(&w.ended, &w.lock);
        pthread_mutex_unlock(&w.lock);
        status = w.status;
        if (status != GYRE_OK)
            gyre_fail(error, status, "%s", w.error.text);
    } else {
        give_up(endpoint, status, &w.error, error);
    }
    pthread_mutex_destroy(&w.lock);
    pthread_cond_destroy(&w.ended);
    return status;
}

static gyre_status move_one(gyre_endpoint *endpoint, uint32_t peer, bool put,
                            void *data, size_t bytes, gyre_error *error)
{
    gyre_extent extent = {data, bytes};
    gyre_message message = {put, peer, 0, &extent, 1, bytes};

    return move(endpoint, &message, 1, error);
}

/* The root's side: one message with every other rank, whose bytes lie at
 * `step` (or sizes) behind each other in data. */
static gyre_status move_all(gyre_endpoint *endpoint, bool put, uint8_t *data,
                            size_t step, const size_t *sizes, size_t bytes,
                            gyre_error *error)
{
    gyre_context *context = endpoint->world->context;
    uint32_t ranks = endpoint->world->ranks, count = 0;
    gyre_message *messages = gyre_alloc(context, ranks, sizeof(messages[0]));
    gyre_extent *extents = gyre_alloc(context, ranks, sizeof(extents[0]));
    gyre_status status;

    for (uint32_t r = 0; messages != NULL && extents != NULL && r < ranks;
         r++) {
        size_t n = sizes != NULL ? sizes[r] : bytes;

        if (r != endpoint->rank) {
            extents[count] = (gyre_extent){data, n};
            messages[count] = (gyre_message){put, r, 0, &extents[count], 1, n};
            count++;
        }
        if (data != NULL)
            data += sizes != NULL ? n : step;
    }
    if (messages == NULL || extents == NULL)
        status = no_memory(endpoint, error);
    else
        status = move(endpoint, messages, count, error);
    gyre_free(context, messages, ranks, sizeof(messages[0]));
    gyre_free(context, extents, ranks, sizeof(extents[0]));
    return status;
}

static gyre_status check_root(const gyre_endpoint *endpoint, uint32_t root,
                              gyre_error *error)
{
    if (root < endpoint->world->ranks)
        return GYRE_OK;
    return gyre_fail(error, GYRE_RANGE,
                     "a collective: root is rank %u; there are %u ranks", root,
                     endpoint->world->ranks);
}

gyre_status gyre_transport_broadcast(gyre_endpoint *endpoint, uint32_t root,
                                     void *data, size_t bytes,
                                     gyre_error *error)
{
    gyre_status status = check_root(endpoint, root, error);

    if (status != GYRE_OK)
        return status;
    if (endpoint->rank == root)
        return move_all(endpoint, true, data, 0, NULL, bytes, error);
    return move_one(endpoint, root, false, data, bytes, error);
}

gyre_status gyre_transport_gather(gyre_endpoint *endpoint, uint32_t root,
                                  const void *data, size_t bytes,
                                  const size_t *sizes, void *out,
                                  gyre_error *error)
{
    gyre_status status = check_root(endpoint, root, error);
    uint8_t *own = out;
    gyre_error why;

    if (status != GYRE_OK)
        return status;
    if (endpoint->rank != root)
        return move_one(endpoint, root, true, (void *)(uintptr_t)data, bytes,
                        error);
    if (sizes != NULL && sizes[root] != bytes) {
        gyre_fail(&why, GYRE_INVALID,
                  "a gather: rank %u gives %zu bytes and takes %zu of itself",
                  root, bytes, sizes[root]);
        return give_up(endpoint, GYRE_INVALID, &why, error);
    }
    for (uint32_t r = 0; own != NULL && r < root; r++)
        own += sizes != NULL ? sizes[r] : bytes;
    if (bytes > 0)
        memmove(own, data, bytes);
    return move_all(endpoint, false, out, bytes, sizes, bytes, error);
}

/* A put to and a get from every other rank; those of no bytes are left out. */
static uint32_t list_exchange(const gyre_endpoint *endpoint,
                              const size_t *sizes, uint8_t *out,
                              gyre_message *messages, gyre_extent *extents)
{
    const uint32_t own = endpoint->rank, ranks = endpoint->world->ranks;
    uint32_t count = 0;
    uint8_t *at = out, *mine = out;

    for (uint32_t r = 0; r < own; r++)
        mine += sizes[r];
    extents[own] = (gyre_extent){mine, sizes[own]};
    for (uint32_t r = 0; r < ranks; at += sizes[r++]) {
        if (r == own)
            continue;
        if (sizes[own] > 0)
            messages[count++] =
                (gyre_message){true, r, 0, &extents[own], 1, sizes[own]};
        extents[r] = (gyre_extent){at, sizes[r]};
        if (sizes[r] > 0)
            messages[count++] =
                (gyre_message){false, r, 0, &extents[r], 1, sizes[r]};
    }
    return count;
}

gyre_status gyre_transport_allgather(gyre_endpoint *endpoint,
                                     const size_t *sizes, void *out,
                                     gyre_error *error)
{
    gyre_context *context = endpoint->world->context;
    size_t ranks = endpoint->world->ranks;
    gyre_message *messages =
        gyre_alloc(context, 2 * ranks, sizeof(messages[0]));
    gyre_extent *extents = gyre_alloc(context, ranks, sizeof(extents[0]));
    gyre_status status;

    if (messages == NULL || extents == NULL)
        status = no_memory(endpoint, error);
    else
        status =
            move(endpoint, messages,
                 list_exchange(endpoint, sizes, out, messages, extents), error);
    gyre_free(context, messages, 2 * ranks, sizeof(messages[0]));
    gyre_free(context, extents, ranks, sizeof(extents[0]));
    return status;
}

gyre_status gyre_transport_barrier(gyre_endpoint *endpoint, gyre_error *error)
{
    gyre_status status =
        gyre_transport_gather(endpoint, 0, NULL, 0, NULL, NULL, error);

    if (status == GYRE_OK)
        status = gyre_transport_broadcast(endpoint, 0, NULL, 0, error);
    return status;
}
