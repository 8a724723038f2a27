/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes by link, direction and reason; and what they do to flash.
 *
 * Each place that moves bytes fills a ledger of its own and adds it to the
 * round's under a lock, once a chunk.  A round's ledger is added to
 * the store's when the round ends, however it ends: what crossed a link has
 * crossed it.
 */
#include "config.h"

#include "store/ledger.h"
#include "store/round.h"

#include <math.h>
#include <string.h>

void gyre_ledger_add(gyre_ledger *into, const gyre_ledger *more)
{
    into->rounds += more->rounds;
    into->elements += more->elements;
    into->gradient_down += more->gradient_down;
    into->state_down += more->state_down;
    into->parameter_up += more->parameter_up;
    into->gradient_up += more->gradient_up;
    into->state_up += more->state_up;
    into->state_read += more->state_read;
    into->gradient_read += more->gradient_read;
    into->state_write += more->state_write;
    into->gradient_write += more->gradient_write;
    into->residual_down += more->residual_down;
    into->residual_up += more->residual_up;
    into->frame_bytes += more->frame_bytes;
    into->padding_read += more->padding_read;
    into->padding_write += more->padding_write;
    into->commit_write += more->commit_write;
    into->born_gradient += more->born_gradient;
    into->born_payload += more->born_payload;
    into->born_leaves += more->born_leaves;
    into->born_residual += more->born_residual;
}

void gyre_ledger_sum(gyre_ledger *l)
{
    l->host_bytes = l->gradient_down + l->state_down + l->parameter_up +
                    l->gradient_up + l->state_up;
    l->device_read_bytes = l->state_read + l->gradient_read;
    l->device_write_bytes = l->state_write + l->gradient_write;
    l->flash_bytes = l->device_write_bytes + l->residual_down +
                     l->padding_write + l->commit_write;
}

void gyre_ledger_begin(gyre_store *store)
{
    store->ledger = (gyre_ledger){.residual_up = store->ledger.residual_up};
}

void gyre_store_count(gyre_store *store, const gyre_ledger *more)
{
    gyre_round *round = store->round;

    pthread_mutex_lock(&store->count_lock);
    gyre_ledger_add(round != NULL ? &round->ledger : &store->ledger, more);
    pthread_mutex_unlock(&store->count_lock);
}

gyre_status gyre_store_ledger(const gyre_store *store, gyre_ledger *ledger,
                              gyre_error *error)
{
    if (store == NULL || ledger == NULL)
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_store_ledger: no store, or nowhere to put it");
    if (store->round != NULL)
        return gyre_fail(error, GYRE_STATE,
                         "a round of store %s is open; finish or abort it "
                         "first",
                         store->path);
    *ledger = store->ledger;
    gyre_ledger_sum(ledger);
    return GYRE_OK;
}

/* Rounds until `limit` bytes are written, at the rate so far. */
static double rounds_until(double limit, const gyre_wear *wear)
{
    double left = limit - (double)wear->written;

    if (limit == 0 || (left > 0 && wear->bytes_per_round == 0))
        return INFINITY;
    return left > 0 ? left / wear->bytes_per_round : 0;
}

gyre_status gyre_store_wear(const gyre_store *store, gyre_wear *wear,
                            gyre_error *error)
{
    gyre_wear full = {0};
    gyre_ledger ledger = {0};
    gyre_status status;

    if (store == NULL || wear == NULL || wear->size == 0)
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_wear: zero the struct and set size");
    status = gyre_store_ledger(store, &ledger, error);
    if (status != GYRE_OK)
        return status;
    full.size = wear->size;
    full.written = store->last.written;
    full.budget = store->wear_budget;
    full.endurance = store->endurance;
    if (ledger.rounds > 0)
        full.bytes_per_round =
            (double)ledger.flash_bytes / (double)ledger.rounds;
    full.rounds_left = rounds_until(full.endurance, &full);
    full.budget_rounds_left = rounds_until((double)full.budget, &full);
    memcpy(wear, &full, wear->size < sizeof(full) ? wear->size : sizeof(full));
    return GYRE_OK;
}

gyre_status gyre_store_check_wear(const gyre_store *store, gyre_error *error)
{
    uint64_t written = atomic_load(&store->flash);

    if (store->wear_budget == 0 || written < store->wear_budget)
        return GYRE_OK;
    return gyre_fail(error, GYRE_WORN,
                     "store %s has written %llu bytes in its life and "
                     "wear_budget is %llu: the store is whole; open it with a "
                     "larger budget, or move it to fresh devices",
                     store->path, (unsigned long long)written,
                     (unsigned long long)store->wear_budget);
}
