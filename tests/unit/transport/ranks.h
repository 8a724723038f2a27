/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of transports share: a world, waiting for groups, and a thread
 * for each rank.
 */
#ifndef GYRE_TESTS_UNIT_TRANSPORT_RANKS_H
#define GYRE_TESTS_UNIT_TRANSPORT_RANKS_H

#include "../unit.h"

#include "transport/transport.h"

#include <stdio.h>

enum { MAX_RANKS = 16 };

/* Waits for groups; `ends` counts calls of done. */
typedef struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    unsigned ends;
    gyre_status status; /* the first that was not OK */
    char text[GYRE_ERROR_TEXT];
    pthread_t thread; /* that ended the last group */
} waiter;

#define WAITER                                                               \
    {                                                                        \
        .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER \
    }

static inline void waiter_done(void *user, gyre_status status,
                               const gyre_error *error)
{
    waiter *w = user;

    pthread_mutex_lock(&w->lock);
    w->ends++;
    w->thread = pthread_self();
    if (status != GYRE_OK && w->status == GYRE_OK) {
        w->status = status;
        snprintf(w->text, sizeof(w->text), "%s", error->text);
    }
    pthread_cond_broadcast(&w->ended);
    pthread_mutex_unlock(&w->lock);
}

static inline unsigned waiter_ends(waiter *w)
{
    unsigned ends;

    pthread_mutex_lock(&w->lock);
    ends = w->ends;
    pthread_mutex_unlock(&w->lock);
    return ends;
}

/* Until `ends` groups have ended; the first failure. */
static inline gyre_status waiter_wait(waiter *w, unsigned ends)
{
    gyre_status status;

    pthread_mutex_lock(&w->lock);
    while (w->ends < ends)
        pthread_cond_wait(&w->ended, &w->lock);
    status = w->status;
    pthread_mutex_unlock(&w->lock);
    return status;
}

/* ---- worlds ---------------------------------------------------------- */

typedef struct ranks {
    unit_memory memory;
    gyre_context *context;
    gyre_world *world;
    uint32_t count;
    gyre_endpoint *at[MAX_RANKS];
} ranks;

static inline void ranks_open(ranks *r, const gyre_world_options *options)
{
    gyre_error error = {0};

    if (gyre_transport_create(r->context, options, &r->world, &error) !=
        GYRE_OK)
        fail_msg("%s", error.text);
    r->count = gyre_transport_ranks(r->world);
    for (uint32_t i = 0; i < r->count; i++)
        assert_int_equal(gyre_transport_endpoint(r->world, i, &r->at[i], NULL),
                         GYRE_OK);
}

static inline void ranks_begin(ranks *r, const gyre_world_options *options)
{
    *r = (ranks){0};
    r->context = unit_context(&r->memory);
    ranks_open(r, options);
}

static inline void ranks_end(ranks *r)
{
    gyre_transport_destroy(r->world);
    gyre_context_destroy(r->context);
    unit_memory_check(&r->memory);
}

/* ---- messages of one extent ------------------------------------------ */

typedef struct one {
    gyre_extent extent;
    gyre_message message;
} one;

static inline gyre_message *one_put(one *o, uint32_t peer, uint32_t channel,
                                    const void *data, size_t bytes)
{
    o->extent = (gyre_extent){(void *)(uintptr_t)data, bytes};
    o->message = (gyre_message){true, peer, channel, &o->extent, 1, bytes};
    return &o->message;
}

static inline gyre_message *one_get(one *o, uint32_t peer, uint32_t channel,
                                    void *data, size_t bytes)
{
    one_put(o, peer, channel, data, bytes);
    o->message.put = false;
    return &o->message;
}

static inline gyre_status begin_one(gyre_endpoint *endpoint,
                                    const gyre_message *message, waiter *w,
                                    gyre_error *error)
{
    return gyre_transport_begin(endpoint, 0, 0, message, 1, waiter_done, w,
                                error);
}

/* ---- a thread for each rank ------------------------------------------ */

typedef struct rank_thread {
    void (*body)(gyre_endpoint *endpoint, void *user);
    gyre_endpoint *endpoint;
    void *user;
    pthread_t thread;
} rank_thread;

static inline void *rank_main(void *opaque)
{
    rank_thread *t = opaque;

    t->body(t->endpoint, t->user);
    return NULL;
}

static inline void each_rank(ranks *r,
                             void (*body)(gyre_endpoint *endpoint, void *user),
                             void *user)
{
    rank_thread threads[MAX_RANKS];

    for (uint32_t i = 0; i < r->count; i++) {
        threads[i] = (rank_thread){body, r->at[i], user, 0};
        assert_int_equal(
            pthread_create(&threads[i].thread, NULL, rank_main, &threads[i]),
            0);
    }
    for (uint32_t i = 0; i < r->count; i++)
        pthread_join(threads[i].thread, NULL);
}

#endif
