/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of devices and of the host link that are slower than what is here. */
#include "config.h"

#include "store/compute.h"
#include "store/worker.h"

#include <math.h>

/* ---- buckets ---------------------------------------------------------- */

gyre_turn gyre_bucket_reserve(gyre_bucket *bucket, uint64_t now, uint64_t bytes)
{
    gyre_turn turn = {0, 0};
    double exact, whole;

    if (bucket->rate == 0 || bytes == 0)
        return turn;
    if (bucket->next < now) {
        bucket->next = now;
        bucket->rest = 0;
    }
    exact = (double)bytes / bucket->rate * 1e9 + bucket->rest;
    whole = floor(exact);
    bucket->rest = exact - whole;
    turn.begin = bucket->next;
    bucket->next += whole < 1e18 ? (uint64_t)whole : (uint64_t)1e18;
    turn.end = bucket->next;
    return turn;
}

void gyre_bucket_restart(gyre_bucket *bucket)
{
    bucket->next = 0;
    bucket->rest = 0;
}

/* ---- the host link ---------------------------------------------------- */

gyre_status gyre_link_create(gyre_store *store, gyre_error *error)
{
    if (store->link_rate == 0)
        return GYRE_OK;
    store->link = gyre_alloc_zero(store->context, 1, sizeof(*store->link));
    if (store->link == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a link");
    pthread_mutex_init(&store->link->lock, NULL);
    store->link->bucket.rate = store->link_rate;
    return GYRE_OK;
}

void gyre_link_destroy(gyre_store *store)
{
    if (store->link == NULL)
        return;
    pthread_mutex_destroy(&store->link->lock);
    gyre_free(store->context, store->link, 1, sizeof(*store->link));
    store->link = NULL;
}

void gyre_link_restart(gyre_store *store)
{
    if (store->link == NULL)
        return;
    pthread_mutex_lock(&store->link->lock);
    gyre_bucket_restart(&store->link->bucket);
    pthread_mutex_unlock(&store->link->lock);
}

gyre_turn gyre_link_reserve(gyre_store *store, uint64_t now, uint64_t bytes)
{
    gyre_turn turn = {0, 0};

    if (store->link == NULL)
        return turn;
    pthread_mutex_lock(&store->link->lock);
    turn = gyre_bucket_reserve(&store->link->bucket, now, bytes);
    pthread_mutex_unlock(&store->link->lock);
    return turn;
}
