/* SPDX-License-Identifier: Apache-2.0 */
/* What a round holds for each chunk, grain, tensor and device. */
#include "config.h"

#include "registry/compressor.h"
#include "store/ledger.h"
#include "store/round.h"
#include "store/stream.h"

static void count_chunks(gyre_round *round)
{
    gyre_layout *layout = &round->store->layout;

    for (uint64_t c = 0; c < layout->train_chunks; c++) {
        size_t cursor = GYRE_RUN_FIRST, runs = 0;
        uint64_t left = gyre_layout_chunk_grains(layout, c);
        gyre_run run;

        while (gyre_layout_next_run(layout, c, &cursor, &run)) {
            gyre_tensor_state *t = &layout->tensors[run.tensor];

            runs++;
            if (t->out == NULL)
                continue;
            left += round->early;
            atomic_fetch_add(&round->tensor_left[run.tensor], 1);
        }
        atomic_init(&round->chunk_left[c], left);
        if (runs > round->max_runs)
            round->max_runs = runs;
    }
}

size_t gyre_round_decided_bytes(const gyre_round *round)
{
    const gyre_codec *codec = round->store->codec;

    return codec != NULL && (gyre_codec_flags(codec) & GYRE_CODEC_BARRIER)
               ? gyre_codec_decided_bytes(codec)
               : 0;
}

gyre_status gyre_round_allocate(gyre_round *round, gyre_error *error)
{
    gyre_store *store = round->store;
    gyre_context *context = store->context;
    gyre_layout *layout = &store->layout;
    size_t tensors = layout->tensor_count;
    size_t grains = (size_t)layout->train_grains + 1;
    size_t chunks = (size_t)layout->train_chunks + 1;

    round->claims = gyre_alloc_zero(context, tensors, sizeof(gyre_claim));
    round->skip = gyre_alloc_zero(context, tensors, sizeof(bool));
    round->scalars =
        gyre_alloc_zero(context, tensors, GYRE_OPT_MAX_SCALARS * sizeof(float));
    round->tensor_left = gyre_alloc_zero(context, tensors, sizeof(uint64_t));
    round->grain_left = gyre_alloc_zero(context, grains, sizeof(uint16_t));
    round->leaves = gyre_alloc_zero(context, grains, sizeof(double));
    round->chunk_left = gyre_alloc_zero(context, chunks, sizeof(uint64_t));
    round->chunk_state = gyre_alloc_zero(context, chunks, sizeof(uint8_t));
    round->fresh = gyre_alloc_zero(context, chunks, sizeof(gyre_entry));
    if (round->way != GYRE_WAY_HELD)
        round->taken = gyre_alloc_zero(context, chunks, sizeof(gyre_taken));
    if (store->codec != NULL)
        round->kept_leaves = gyre_alloc_zero(context, grains, sizeof(double));
    if (store->codec != NULL)
        round->side = gyre_alloc_zero(context, tensors, 1);
    if (store->residual.kappa != NULL)
        round->kappa_before = gyre_alloc(context, tensors, sizeof(float));
    if (gyre_round_decided_bytes(round) > 0)
        round->decided =
            gyre_alloc_zero(context, gyre_round_decided_bytes(round), 1);
    if (round->claims == NULL || round->skip == NULL ||
        round->scalars == NULL || round->tensor_left == NULL ||
        round->grain_left == NULL || round->leaves == NULL ||
        round->chunk_left == NULL || round->chunk_state == NULL ||
        round->fresh == NULL ||
        (round->way != GYRE_WAY_HELD && round->taken == NULL) ||
        (store->codec != NULL &&
         (round->kept_leaves == NULL || round->side == NULL)) ||
        (store->residual.kappa != NULL && round->kappa_before == NULL) ||
        (gyre_round_decided_bytes(round) > 0 && round->decided == NULL))
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a round");
    count_chunks(round);
    for (uint32_t d = 0; d < layout->devices; d++) {
        uint32_t lanes = gyre_device_lanes(gyre_workers_device(store, d));

        round->lanes = lanes > round->lanes ? lanes : round->lanes;
    }
    round->jobs = gyre_alloc(context, layout->devices * round->lanes,
                             sizeof(gyre_chunk_job));
    round->segments = gyre_alloc(
        context, (round->max_runs + 1) * layout->devices * round->lanes,
        sizeof(gyre_segment));
    if (round->segments == NULL || round->jobs == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a round");
    return gyre_round_hold(round, error);
}

void gyre_round_discard(gyre_round *round)
{
    gyre_store *store = round->store;
    gyre_context *context = store->context;
    gyre_layout *layout = &store->layout;
    size_t tensors = layout->tensor_count;
    size_t grains = (size_t)layout->train_grains + 1;
    size_t chunks = (size_t)layout->train_chunks + 1;

    (void)gyre_round_end_stream(round, NULL);
    for (size_t i = 0; round->claims != NULL && i < tensors; i++)
        gyre_free(context, round->claims[i].ends, round->claims[i].capacity * 2,
                  sizeof(uint64_t));
    gyre_free(context, round->claims, tensors, sizeof(gyre_claim));
    gyre_free(context, round->skip, tensors, sizeof(bool));
    gyre_free(context, round->scalars, tensors,
              GYRE_OPT_MAX_SCALARS * sizeof(float));
    gyre_free(context, round->tensor_left, tensors, sizeof(uint64_t));
    gyre_free(context, round->grain_left, grains, sizeof(uint16_t));
    gyre_free(context, round->leaves, grains, sizeof(double));
    gyre_free(context, round->chunk_left, chunks, sizeof(uint64_t));
    gyre_free(context, round->chunk_state, chunks, sizeof(uint8_t));
    gyre_free(context, round->fresh, chunks, sizeof(gyre_entry));
    gyre_free(context, round->taken, chunks, sizeof(gyre_taken));
    gyre_free(context, round->kept_leaves, grains, sizeof(double));
    gyre_free(context, round->side, tensors, 1);
    gyre_free(context, round->kappa_before, tensors, sizeof(float));
    gyre_free(context, round->decided, gyre_round_decided_bytes(round), 1);
    gyre_free(context, round->jobs, layout->devices * round->lanes,
              sizeof(gyre_chunk_job));
    gyre_free(context, round->segments,
              (round->max_runs + 1) * layout->devices * round->lanes,
              sizeof(gyre_segment));
    pthread_cond_destroy(&round->taken_some);
    pthread_cond_destroy(&round->moved);
    pthread_mutex_destroy(&round->lock);
    gyre_ledger_add(&store->ledger, &round->ledger);
    store->round = NULL;
    gyre_free(context, round, 1, sizeof(*round));
}
