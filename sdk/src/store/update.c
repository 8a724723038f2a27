/* SPDX-License-Identifier: Apache-2.0 */
/* The second half of a round: norm, and the update beside the storage. */
#include "config.h"

#include "store/chunk.h"
#include "store/commit.h"
#include "store/ledger.h"
#include "store/round.h"

#include <math.h>
#include <string.h>

/* ---- handing out chunks ----------------------------------------------- */

void gyre_round_push(gyre_round *round, uint64_t chunk)
{
    const gyre_layout *layout = &round->store->layout;
    size_t cursor = GYRE_RUN_FIRST;
    bool active = false;
    gyre_run run;

    if (atomic_fetch_or(&round->chunk_state[chunk], GYRE_CHUNK_PUSHED) &
        GYRE_CHUNK_PUSHED)
        return;
    while (!active && gyre_layout_next_run(layout, chunk, &cursor, &run))
        active = !round->skip[run.tensor];
    if (active) {
        gyre_workers_push(round->store, chunk, 0);
        return;
    }
    cursor = GYRE_RUN_FIRST;
    while (gyre_layout_next_run(layout, chunk, &cursor, &run))
        if (layout->tensors[run.tensor].out != NULL)
            atomic_fetch_sub(&round->tensor_left[run.tensor], 1);
}

/*
 * An early update writes before it is known whether the round will be skipped.
 * That is undone by forgetting it, so it may only write a slot that holds
 * nothing: a chunk that was rewritten since the last commit has to wait.
 */
static bool may_be_early(const gyre_round *round, uint64_t chunk)
{
    const gyre_store *store = round->store;

    return store->current[chunk].version == store->committed[chunk].version;
}

void gyre_round_chunk_done(gyre_round *round, uint64_t chunk, uint64_t n)
{
    if (atomic_fetch_sub_explicit(&round->chunk_left[chunk], n,
                                  memory_order_acq_rel) == n &&
        round->state == GYRE_ROUND_OPEN) {
        if (round->taking)
            gyre_intake_push(round, chunk);
        else if (round->early && may_be_early(round, chunk))
            gyre_round_push(round, chunk);
    }
}

/* ---- the norm --------------------------------------------------------- */

/* Leaves in index order; on the way, who is not finite. */
static double sum_leaves(gyre_round *round)
{
    const gyre_layout *layout = &round->store->layout;
    double sum = 0;

    for (size_t k = 0; k < layout->tensor_count; k++) {
        const gyre_tensor_state *t = &layout->tensors[layout->order[k]];
        bool finite = true;

        if (round->skip[layout->order[k]])
            continue;
        for (uint64_t g = t->first_grain; g < t->first_grain + t->grains; g++) {
            sum += round->leaves[g];
            finite &= isfinite(round->leaves[g]) != 0;
        }
        if (finite)
            continue;
        if (round->report.nonfinite == NULL)
            round->report.nonfinite = t->name;
        round->report.nonfinite_tensors++;
    }
    return sum;
}

double gyre_round_norm_compressed(const gyre_round *round)
{
    const gyre_layout *layout = &round->store->layout;
    double sum = 0;

    if (round->kept_leaves == NULL)
        return round->report.norm_clipped;
    if (round->way != GYRE_WAY_STREAMED && round->state == GYRE_ROUND_OPEN)
        return NAN;
    for (uint64_t g = 0; g < layout->train_grains; g++)
        sum += round->kept_leaves[g]; /* 0 for those that are left alone */
    return sqrt(sum) * (round->late ? round->report.clip_coefficient : 1);
}

static void take_norm(gyre_round *round)
{
    double sum = sum_leaves(round);
    double norm = sqrt(sum) / (round->scale * round->denominator);
    double k = 1;

    if (round->clip > 0 && round->clip / (norm + 1e-6) < 1)
        k = round->clip / (norm + 1e-6);
    if (k < 1) /* else q is as it was, and early updates are reading it */
        round->q = (float)(1.0 / (round->scale * round->denominator) * k);
    if (round->late && k == 1) /* not when early: updates are reading it */
        round->late = false;   /* it is the same */
    round->report.norm = norm;
    round->report.norm_clipped = norm * k;
    round->report.clip_coefficient = k;
    round->report.norm_compressed = gyre_round_norm_compressed(round);
    round->report.loss_scale = round->scale;
    round->report.round = round->store->now.round + 1;
    round->report.skipped = round->report.nonfinite != NULL;
    if (round->report.skipped)
        round->report.norm_compressed = norm * k;
    round->report.step = round->store->now.step + !round->report.skipped;
}

/* What has to be known before the first chunk goes. */
static gyre_status before_update(gyre_round *round, gyre_error *error)
{
    if (round->way == GYRE_WAY_STREAMED && atomic_load(&round->overflown) != 0)
        return gyre_round_tell_overflow(round, error);
    if (round->decided != NULL)
        return gyre_round_survey(round, error);
    return GYRE_OK;
}

gyre_status gyre_round_update_now(gyre_round *round, gyre_error *error)
{
    gyre_store *store = round->store;
    gyre_status status;

    if (round->micro + 1 < round->micro_batches)
        return gyre_fail(error, GYRE_MISSING,
                         "only %u of %u micro-batches were given: call "
                         "gyre_round_next between them",
                         round->micro + 1, round->micro_batches);
    status = gyre_round_complete(round, error);
    if (status == GYRE_OK)
        status = gyre_intake_end(round, error);
    if (status != GYRE_OK)
        return status;
    memset(&round->report, 0, sizeof(round->report));
    take_norm(round);
    if (round->report.skipped) {
        /* Now, not in finish: who waits for a tensor reads its buffer next.
         * What the stream failed at is nothing that will be kept. */
        round->state = GYRE_ROUND_SKIPPED;
        (void)gyre_round_end_stream(round, NULL);
        return gyre_round_give_back(round, false, error);
    }
    status = before_update(round, error);
    if (status != GYRE_OK)
        return status;
    if (store->layout.versions == 1) {
        status = gyre_store_mark_dirty(store, error);
        if (status != GYRE_OK)
            return status;
    }
    round->state = GYRE_ROUND_RUNNING;
    if (!round->streaming)
        gyre_round_start(round);
    for (uint64_t c = 0; c < store->layout.train_chunks; c++)
        gyre_round_push(round, c);
    gyre_workers_close(store);
    return GYRE_OK;
}

void gyre_round_hand_report(const gyre_round_report *from,
                            gyre_round_report *to)
{
    size_t size = to != NULL ? to->size : 0;

    if (size == 0)
        return;
    memcpy(to, from, size < sizeof(*from) ? size : sizeof(*from));
    to->size = size;
}

gyre_status gyre_round_update(gyre_round *round, gyre_round_report *report,
                              gyre_error *error)
{
    uint64_t begun = gyre_now();
    gyre_status status;
    gyre_fp saved;

    if (round == NULL)
        return gyre_fail(error, GYRE_INVALID, "no round was given");
    if (round->state != GYRE_ROUND_OPEN)
        return gyre_fail(error, GYRE_STATE, "the update has begun already");
    saved = gyre_fp_pin();
    status = gyre_round_update_now(round, error);
    gyre_fp_restore(saved);
    atomic_fetch_add(&round->exposed_ns, gyre_now() - begun);
    if (status == GYRE_OK)
        gyre_round_hand_report(&round->report, report);
    return status;
}

gyre_status gyre_round_wait(gyre_round *round, size_t tensor, gyre_error *error)
{
    uint64_t begun = gyre_now();
    bool failed;

    if (round == NULL || tensor >= round->store->layout.tensor_count)
        return gyre_fail(error, GYRE_INVALID, "no such round or tensor");
    if (round->state == GYRE_ROUND_OPEN)
        return gyre_fail(error, GYRE_STATE,
                         "the update has not begun: call gyre_round_update");
    if (round->state == GYRE_ROUND_SKIPPED)
        return GYRE_OK;
    pthread_mutex_lock(&round->lock);
    while (!round->failed && atomic_load(&round->tensor_left[tensor]) > 0)
        pthread_cond_wait(&round->moved, &round->lock);
    failed = round->failed;
    pthread_mutex_unlock(&round->lock);
    atomic_fetch_add(&round->exposed_ns, gyre_now() - begun);
    if (failed)
        return gyre_fail(error, GYRE_IO,
                         "the update failed; gyre_round_finish tells why");
    return GYRE_OK;
}
