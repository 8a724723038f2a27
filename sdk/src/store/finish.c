/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a round: commit, or back to what stands. */
#include "config.h"

#include "store/chunk.h"
#include "store/commit.h"
#include "store/ledger.h"
#include "store/round.h"

/*
 * Dynamic loss scale: halve after two overflows (the second one when none of
 * 1,000 good steps lay between), double after 1,000 good steps, floor 1.
 */
enum { SCALE_INTERVAL = 1000, SCALE_HYSTERESIS = 2 };
static const double scale_ceiling = 0x1p40;

/* ---- the way back ----------------------------------------------------- */

gyre_status gyre_round_give_back(gyre_round *round, bool all, gyre_error *error)
{
    gyre_store *store = round->store;
    uint64_t chunks = store->layout.train_chunks;
    bool any = all;
    gyre_status status;

    for (uint64_t c = 0; c < chunks; c++) {
        uint8_t s = atomic_load(&round->chunk_state[c]) & GYRE_CHUNK_DELIVERED;

        atomic_store(&round->chunk_state[c], s);
        any |= s != 0;
    }
    if (!any || store->mode == GYRE_STORE_BROKEN)
        return GYRE_OK;
    status = gyre_store_redeliver(
        store, all ? NULL : (const uint8_t *)round->chunk_state, error);
    for (uint64_t c = 0; status == GYRE_OK && c < chunks; c++)
        atomic_store(&round->chunk_state[c], 0);
    return status;
}

/* ---- the end ---------------------------------------------------------- */

static void scale_after(gyre_round *round)
{
    gyre_scaler *s = &round->store->now.scaler;

    if (!round->dynamic)
        return;
    if (!round->report.skipped) {
        if (++s->good_steps < SCALE_INTERVAL)
            return;
        s->good_steps = 0;
        s->hysteresis = SCALE_HYSTERESIS;
        if (s->scale < scale_ceiling)
            s->scale *= 2;
        return;
    }
    s->good_steps = 0;
    if (s->hysteresis > 1)
        s->hysteresis--;
    else if (s->scale > 1)
        s->scale /= 2;
}

/* The round succeeded: its chunks become current. */
static void adopt(gyre_round *round)
{
    gyre_store *store = round->store;
    gyre_layout *layout = &store->layout;

    store->now.round++;
    store->rounds_since++;
    round->ledger.rounds = 1;
    scale_after(round);
    if (round->report.skipped)
        return;
    gyre_round_adopt_residual(round);
    store->now.step++;
    for (uint64_t c = 0; c < layout->train_chunks; c++)
        if (atomic_load(&round->chunk_state[c]) & GYRE_CHUNK_UPDATED)
            store->current[c] = round->fresh[c];
    for (size_t i = 0; i < layout->tensor_count; i++)
        if (!round->skip[i])
            layout->tensors[i].step++;
}

/* Something broke: back to what stands, and say what that is.  `lost`: rounds
 * before this one go too. */
static gyre_status fall_back(gyre_round *round, bool lost, gyre_status cause,
                             gyre_error *error)
{
    gyre_store *store = round->store;
    gyre_error why = {GYRE_OK, ""};
    gyre_status status;

    if (store->now.dirty) {
        store->mode = GYRE_STORE_BROKEN;
        return gyre_fail_prefix(error, cause,
                                "store %s works in place and is now a mixture "
                                "of two steps",
                                store->path);
    }
    gyre_store_rewind(store);
    if (!lost)
        gyre_round_unadopt_residual(round);
    status = gyre_store_tell_back(store, lost, cause, error);
    if (lost && store->mode == GYRE_STORE_READY &&
        gyre_residual_load(store, &why) != GYRE_OK) {
        store->mode = GYRE_STORE_BROKEN;
        gyre_fail_prefix(error, status,
                         "the residual could not be restored (%s)", why.text);
    }
    if (gyre_round_give_back(round, lost, &why) != GYRE_OK) {
        store->mode = GYRE_STORE_BROKEN;
        gyre_fail_prefix(error, status,
                         "bound buffers could not be restored (%s)", why.text);
    }
    return status;
}

static gyre_status end_round(gyre_round *round, const void *blob,
                             size_t blob_bytes, gyre_error *error)
{
    gyre_store *store = round->store;
    bool lost = store->rounds_since > 0;
    gyre_status status = gyre_round_end_stream(round, error);

    if (round->state == GYRE_ROUND_SKIPPED)
        status =
            gyre_round_give_back(round, false, error); /* if update failed to */
    if (status != GYRE_OK)
        return fall_back(round, lost, status, error);
    adopt(round);
    if (store->rounds_since < store->commit_every)
        return GYRE_OK;
    status = gyre_store_commit_now(store, blob, blob_bytes, error);
    if (status != GYRE_OK)
        return fall_back(round, lost, status, error);
    round->report.committed = 1;
    return GYRE_OK;
}

static void fill_report(gyre_round *round, uint64_t begun)
{
    gyre_round_report *r = &round->report;
    uint64_t now = gyre_now();

    atomic_fetch_add(&round->exposed_ns, now - begun);
    if (!r->skipped)
        r->norm_compressed = gyre_round_norm_compressed(round);
    r->ledger = round->ledger;
    gyre_ledger_sum(&r->ledger);
    r->gradient_bytes = r->ledger.gradient_down;
    r->parameter_bytes = r->ledger.parameter_up;
    r->read_bytes = r->ledger.state_read;
    r->write_bytes = r->ledger.state_write;
    r->padding_bytes = r->ledger.padding_read + r->ledger.padding_write;
    r->commit_bytes = r->ledger.commit_write;
    r->exposed_ns = atomic_load(&round->exposed_ns);
    r->store_ns =
        round->stats.first_ns != 0 ? now - round->stats.first_ns : now - begun;
    if (r->exposed_ns > r->store_ns)
        r->exposed_ns = r->store_ns;
}

gyre_status gyre_round_finish(gyre_round *round, const void *blob,
                              size_t blob_bytes, gyre_round_report *report,
                              gyre_error *error)
{
    uint64_t begun = gyre_now();
    gyre_status status = GYRE_OK;
    gyre_error text = {GYRE_OK, ""};
    gyre_fp saved;

    if (round == NULL)
        return gyre_fail(error, GYRE_INVALID, "no round was given");
    status = gyre_store_check_blob(round->store, blob, blob_bytes, error);
    if (status != GYRE_OK)
        return status;
    saved = gyre_fp_pin();
    if (round->state == GYRE_ROUND_OPEN)
        status = gyre_round_update_now(round, &text);
    if (status == GYRE_MISSING)
        goto out;
    if (status == GYRE_OK)
        status = end_round(round, blob, blob_bytes, &text);
    else
        status =
            fall_back(round, round->store->rounds_since > 0, status, &text);
    if (status == GYRE_OK) {
        fill_report(round, begun);
        gyre_round_hand_report(&round->report, report);
    }
    gyre_round_discard(round);
out:
    gyre_fp_restore(saved);
    if (status != GYRE_OK && error != NULL)
        *error = text;
    return status;
}

gyre_status gyre_round_abort(gyre_round *round, gyre_error *error)
{
    gyre_store *store;
    gyre_status status;

    if (round == NULL)
        return gyre_fail(error, GYRE_INVALID, "no round was given");
    if (round->state != GYRE_ROUND_OPEN)
        return gyre_fail(error, GYRE_STATE,
                         "the update has begun: gyre_round_finish ends the "
                         "round");
    store = round->store;
    (void)gyre_round_end_stream(round, NULL);
    status = gyre_round_give_back(round, false, error);
    if (status != GYRE_OK)
        store->mode = GYRE_STORE_BROKEN;
    gyre_round_discard(round);
    return status;
}
