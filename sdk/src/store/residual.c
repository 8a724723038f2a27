/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compression with error feedback, a chunk at a time (STORE.md 2).
 *
 *     exact  a = fma(G, inv k, kappa e)   x = D(c)     kappa := 1
 *     late   a = fma(G, inv,   kappa e)   x = k D(c)   kappa := k
 *
 * kappa belongs to a tensor: one that is absent keeps its e and its kappa.
 * Since kappa e is rounded before it is added, e may be replaced by kappa e
 * and kappa by 1 at any time without changing a bit; saving does that.
 */
#include "config.h"

#include "device/feedback.h"
#include "store/round.h"

#include <string.h>
#include <xxhash.h>

uint64_t gyre_round_wire_bound(const gyre_store *store, uint64_t chunk)
{
    size_t cursor = GYRE_RUN_FIRST;
    uint64_t bytes = 0;
    gyre_run run;

    while (gyre_layout_next_run(&store->layout, chunk, &cursor, &run))
        bytes += gyre_codec_bound(store->codec, run.n);
    return bytes;
}

/* Payload bytes of a block that was just written; the rest is its frame. */
static uint64_t payload_bytes(const gyre_codec *codec, const uint8_t *block,
                              uint64_t elements)
{
    uint64_t grains = (elements + GYRE_GRAIN - 1) / GYRE_GRAIN;
    const uint8_t *payload;
    uint64_t bytes = 0;
    size_t n;

    for (uint64_t g = 0; g < grains; g++) {
        gyre_wire_grain(codec, block, g, &payload, &n);
        bytes += n;
    }
    return bytes;
}

/* What one run needs, but for the room that it writes to. */
static gyre_feedback_job job_of(const gyre_round *round, uint64_t chunk,
                                const gyre_run *run)
{
    const gyre_store *store = round->store;
    const gyre_tensor_state *t = &store->layout.tensors[run->tensor];
    uint64_t first = gyre_layout_first_grain(&store->layout, chunk);
    size_t at = (size_t)first * GYRE_GRAIN + run->at;
    const gyre_residual_memory *r = &store->residual;
    gyre_feedback_job job = {
        .codec = store->codec,
        .isa = gyre_context_isa(store->context),
        .n = run->n,
        .index = run->index,
        .place = at,
        .g = store->gradients + at,
        .q = round->late ? round->inv : round->q,
        .decided = round->decided,
    };

    if (r->which != NULL) {
        job.e = r->e[r->which[chunk]] + at;
        job.e_next = r->e[1 - r->which[chunk]] + at;
        job.kappa = r->kappa[run->tensor];
    }
    gyre_feedback_key(store->seed, XXH3_64bits(t->name, strlen(t->name)),
                      0xffff, t->step + 1, job.key);
    return job;
}

static void note_overflow(gyre_round *round, size_t tensor)
{
    size_t none = 0;

    atomic_compare_exchange_strong(&round->overflown, &none, tensor + 1);
}

/* A run that is left alone keeps its residual, on the side where it is. */
static gyre_status keep_run(const gyre_store *store, uint64_t chunk,
                            const gyre_run *run, const gyre_feedback_job *job,
                            gyre_error *error)
{
    if (job->e == NULL)
        return GYRE_OK;
    if (store->residual.at[run->tensor] == GYRE_E_BORN)
        return gyre_born_keep(store, chunk, run, error);
    memcpy(job->e_next, job->e, run->n * sizeof(float));
    return GYRE_OK;
}

static gyre_status compress_run(gyre_round *round, uint64_t chunk,
                                const gyre_run *run, gyre_feedback_job *job,
                                gyre_error *error)
{
    gyre_status status = GYRE_OK;

    if (round->side[run->tensor] == GYRE_SIDE_BORN)
        status = gyre_born_compress(round, chunk, run, job, error);
    else
        gyre_feedback_run(job);
    if (status != GYRE_OK || job->finite)
        return status;
    note_overflow(round, run->tensor);
    return gyre_round_tell_overflow(round, error);
}

gyre_status gyre_round_compress(gyre_round *round, uint64_t chunk,
                                uint8_t *wire, gyre_taken *out,
                                gyre_error *error)
{
    const gyre_layout *layout = &round->store->layout;
    uint64_t first = gyre_layout_first_grain(layout, chunk);
    size_t cursor = GYRE_RUN_FIRST;
    bool fed = false;
    gyre_run run;

    memset(out, 0, sizeof(*out));
    while (gyre_layout_next_run(layout, chunk, &cursor, &run)) {
        gyre_feedback_job job = job_of(round, chunk, &run);
        gyre_status status;

        fed = job.e != NULL;
        if (round->skip[run.tensor]) {
            status = keep_run(round->store, chunk, &run, &job, error);
            if (status != GYRE_OK)
                return status;
            continue;
        }
        job.wire = wire + out->bytes;
        job.leaves = round->kept_leaves + first + run.at / GYRE_GRAIN;
        job.mixed = fed && round->surveyed;
        status = compress_run(round, chunk, &run, &job, error);
        if (status != GYRE_OK)
            return status;
        out->payload += payload_bytes(job.codec, job.wire, run.n);
        out->bytes += job.bytes;
    }
    if (fed)
        atomic_fetch_or(&round->chunk_state[chunk], GYRE_CHUNK_FED);
    return GYRE_OK;
}

gyre_status gyre_round_tell_overflow(const gyre_round *round, gyre_error *error)
{
    size_t tensor = atomic_load(&round->overflown) - 1;

    return gyre_fail(error, GYRE_RANGE,
                     "tensor %s: gradient and residual together are above the "
                     "largest f32 (scale %g, denominator %g): nothing was "
                     "changed",
                     round->store->layout.tensors[tensor].name, round->scale,
                     round->denominator);
}

/* ---- barrier ---------------------------------------------------------- */

static uint64_t count_surveyed(const gyre_round *round)
{
    const gyre_layout *layout = &round->store->layout;
    uint64_t elements = 0;

    for (size_t i = 0; i < layout->tensor_count; i++)
        if (!round->skip[i])
            elements += layout->tensors[i].elements;
    return elements;
}

/* Where there is a residual, pass 0 leaves a in its other version, which nobody
 * reads before the round is adopted; what comes later finds it there. */
static bool survey_pass(gyre_round *round, uint32_t pass, void *summary,
                        uint64_t elements)
{
    const gyre_layout *layout = &round->store->layout;

    for (uint64_t c = 0; c < layout->train_chunks; c++) {
        size_t cursor = GYRE_RUN_FIRST;
        gyre_run run;

        while (gyre_layout_next_run(layout, c, &cursor, &run)) {
            gyre_feedback_job job = job_of(round, c, &run);

            if (round->skip[run.tensor])
                continue;
            job.mixed = pass > 0 && job.e_next != NULL;
            gyre_feedback_survey(&job, pass, elements, summary);
            if (!job.finite) {
                note_overflow(round, run.tensor);
                return false;
            }
        }
    }
    return true;
}

gyre_status gyre_round_survey(gyre_round *round, gyre_error *error)
{
    gyre_store *store = round->store;
    size_t bytes = gyre_codec_survey_bytes(store->codec);
    void *summary = gyre_alloc(store->context, bytes, 1);
    uint64_t elements = count_surveyed(round);
    uint32_t pass = 0;
    bool finite;

    if (summary == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "no memory for the survey of a compressor (%zu bytes)",
                         bytes);
    memset(round->decided, 0, gyre_codec_decided_bytes(store->codec));
    do {
        memset(summary, 0, bytes);
        finite = survey_pass(round, pass, summary, elements);
    } while (finite &&
             gyre_codec_decide(store->codec, pass++, summary, elements,
                               store->layout.train_grains * GYRE_GRAIN,
                               round->decided));
    gyre_free(store->context, summary, bytes, 1);
    round->surveyed = finite;
    return finite ? GYRE_OK : gyre_round_tell_overflow(round, error);
}

/* ---- adopting --------------------------------------------------------- */

static void flip(gyre_round *round, uint8_t unsaved)
{
    gyre_residual_memory *r = &round->store->residual;

    for (uint64_t c = 0; c < round->store->layout.train_chunks; c++) {
        if ((atomic_load(&round->chunk_state[c]) & GYRE_CHUNK_FED) == 0)
            continue;
        r->which[c] = 1 - r->which[c];
        r->unsaved[c] = unsaved;
    }
}

void gyre_round_adopt_residual(gyre_round *round)
{
    gyre_store *store = round->store;
    gyre_residual_memory *r = &store->residual;
    float kappa = round->late ? (float)round->report.clip_coefficient : 1;

    if (r->kappa == NULL)
        return;
    round->adopted = true;
    memcpy(round->kappa_before, r->kappa,
           store->layout.tensor_count * sizeof(float));
    flip(round, 1);
    for (size_t i = 0; i < store->layout.tensor_count; i++)
        if (!round->skip[i])
            r->kappa[i] = kappa;
}

void gyre_round_unadopt_residual(gyre_round *round)
{
    gyre_store *store = round->store;

    if (!round->adopted)
        return;
    flip(round, 0);
    memcpy(store->residual.kappa, round->kappa_before,
           store->layout.tensor_count * sizeof(float));
}
