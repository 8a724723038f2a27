/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One chunk's update in its worker: find its gradients, run the device, check
 * what was read, give parameters back, count.
 */
#include "config.h"

#include "store/chunk.h"
#include "store/ledger.h"
#include "store/round.h"

#include <string.h>

/* ---- gradients -------------------------------------------------------- */

static size_t make_segments(const gyre_round *round, uint64_t chunk,
                            gyre_segment *segments, gyre_ledger *l)
{
    const gyre_store *store = round->store;
    size_t cursor = GYRE_RUN_FIRST, n = 0;
    gyre_run run;

    while (gyre_layout_next_run(&store->layout, chunk, &cursor, &run)) {
        const gyre_tensor_state *t = &store->layout.tensors[run.tensor];
        gyre_segment *s = &segments[n++];

        *s = (gyre_segment){
            .at = run.at,
            .n = run.n,
            .index = run.index,
            .scalars = round->scalars + run.tensor * GYRE_OPT_MAX_SCALARS,
        };
        gyre_state_key(store->seed, t->name, t->step + 1, s->key);
        if (!round->skip[run.tensor])
            l->elements += run.n;
    }
    return n;
}

/* Point the segments of what is updated into raw gradients, or at the wire
 * blocks that lie one behind the other. */
static void point(const gyre_round *round, uint64_t chunk,
                  gyre_segment *segments, const float *raw, const uint8_t *wire,
                  uint64_t bytes)
{
    size_t cursor = GYRE_RUN_FIRST, n = 0;
    uint64_t at = 0;
    gyre_run run;

    for (; gyre_layout_next_run(&round->store->layout, chunk, &cursor, &run);
         n++) {
        if (round->skip[run.tensor])
            continue;
        if (wire == NULL) {
            segments[n].g = raw + run.at;
            continue;
        }
        segments[n].wire = wire + at;
        at += gyre_wire_bytes(wire + at, bytes - at);
    }
}

static void count_wire(const gyre_round *round, const gyre_taken *taken,
                       bool from_region, gyre_ledger *l)
{
    uint64_t frame = taken->bytes - taken->payload;
    bool near = round->store->placement == GYRE_NEAR;

    if (from_region) {
        l->gradient_read = taken->payload;
        l->padding_read +=
            gyre_round_up(taken->bytes, round->store->layout.align) -
            taken->payload;
        l->gradient_up = near ? 0 : taken->payload;
        l->frame_bytes = near ? 0 : frame;
    } else if (near) {
        l->gradient_down = taken->payload;
        l->frame_bytes = frame;
    }
}

/* Where the gradients of a chunk are, by the way they went. */
static gyre_status find_gradients(gyre_round *round, uint32_t device,
                                  gyre_work work, gyre_segment *segments,
                                  gyre_ledger *l, gyre_error *error)
{
    gyre_store *store = round->store;
    bool near = store->placement == GYRE_NEAR;
    uint64_t first = gyre_layout_first_grain(&store->layout, work.chunk);
    const float *raw = store->gradients + first * GYRE_GRAIN;
    gyre_taken held, *taken = &held;
    const uint8_t *wire = NULL;

    if (round->way != GYRE_WAY_HELD)
        taken = &round->taken[work.chunk];
    if (round->regions) {
        gyre_status status = gyre_round_check_region(round, work, error);

        if (status != GYRE_OK)
            return status;
    }
    if (round->way == GYRE_WAY_SPILLED) {
        point(round, work.chunk, segments,
              (const float *)(const void *)work.gradient, NULL, 0);
        l->gradient_read = l->elements * sizeof(float);
        l->padding_read +=
            gyre_round_up(taken->bytes, store->layout.align) - l->gradient_read;
        l->gradient_up = near ? 0 : l->gradient_read;
        return GYRE_OK;
    }
    if (round->way == GYRE_WAY_STREAMED) {
        wire = round->regions ? work.gradient
                              : store->payload + store->payload_at[work.chunk];
    } else if (store->codec != NULL) {
        uint8_t *room = store->wire + device * (store->wire_bytes + 8);

        gyre_status status =
            gyre_round_compress(round, work.chunk, room, taken, error);

        if (status != GYRE_OK)
            return status;
        wire = room;
    } else {
        l->gradient_down = near ? l->elements * sizeof(float) : 0;
    }
    if (wire != NULL)
        count_wire(round, taken, round->regions, l);
    point(round, work.chunk, segments, raw, wire, taken->bytes);
    return GYRE_OK;
}

/* ---- one chunk -------------------------------------------------------- */

/* Near the storage gradients come down and parameters go up; on the host the
 * state crosses the link both ways instead. */
static void count_state(const gyre_round *round, uint64_t chunk,
                        uint64_t delivered, gyre_ledger *l)
{
    const gyre_layout *layout = &round->store->layout;
    uint64_t useful = gyre_layout_useful_bytes(layout, chunk);
    uint64_t padding = gyre_layout_chunk_bytes(layout, chunk) - useful;

    l->state_read = l->state_write = useful;
    l->padding_read += padding;
    l->padding_write += padding;
    if (round->store->placement == GYRE_NEAR)
        l->parameter_up = delivered;
    else
        l->state_up = l->state_down = useful;
}

/* A chunk whose old contents do not match: say which, from its label, which
 * the update does not touch. */
static gyre_status read_mismatch(const gyre_round *round, uint32_t device,
                                 uint64_t chunk, const uint8_t *data,
                                 gyre_error *error)
{
    gyre_entry wrong = round->store->current[chunk];

    return gyre_store_verify(round->store, device, chunk, &wrong, data, error);
}

/* Who waits for a tensor waits for the link too. */
static void delivered(void *user, uint32_t device, gyre_work work)
{
    gyre_round *round = user;
    const gyre_layout *layout = &round->store->layout;
    size_t cursor = GYRE_RUN_FIRST;
    bool last = false;
    gyre_run run;

    (void)device;
    while (gyre_layout_next_run(layout, work.chunk, &cursor, &run))
        if (layout->tensors[run.tensor].out != NULL)
            last |= atomic_fetch_sub(&round->tensor_left[run.tensor], 1) == 1;
    if (!last)
        return;
    pthread_mutex_lock(&round->lock);
    pthread_cond_broadcast(&round->moved);
    pthread_mutex_unlock(&round->lock);
}

/* What a compressor gave is scaled already, but for a late clip. */
static float scale_of(const gyre_round *round)
{
    if (round->store->codec == NULL)
        return round->q;
    return round->late ? (float)round->report.clip_coefficient : 1.0f;
}

/* An early update of gradients that are not finite: the round will be skipped,
 * and a compressor must not see them. */
static bool is_doomed(const gyre_round *round, uint64_t chunk)
{
    return round->early && round->store->codec != NULL &&
           !gyre_round_finite(round, chunk);
}

/* The job of a lane, for this chunk. */
static gyre_chunk_job *set_job(gyre_round *round, uint32_t device,
                               gyre_work work, uint8_t *data)
{
    gyre_store *store = round->store;
    const gyre_layout *layout = &store->layout;
    gyre_entry *fresh = &round->fresh[work.chunk];
    size_t place = device * round->lanes + work.lane;
    gyre_chunk_job *j = &round->jobs[place];

    fresh->step = store->now.step + 1;
    fresh->version =
        layout->versions == 1 ? 0 : 1 - store->committed[work.chunk].version;
    memset(&j->ledger, 0, sizeof(j->ledger));
    j->job = (gyre_update_job){
        .opt = store->opt,
        .codec = store->codec,
        .data = data,
        .vars = j->vars,
        .var_count = gyre_layout_all_vars(layout, work.chunk, j->vars),
        .elements = gyre_layout_chunk_elements(layout, work.chunk),
        .segments = round->segments + place * (round->max_runs + 1),
        .q = scale_of(round),
        .check = store->check_reads,
        .isa = gyre_context_isa(store->context),
        .seed_before =
            gyre_format_seed(store->uuid, store->generation, work.chunk,
                             store->current[work.chunk].step),
        .seed_after = gyre_format_seed(store->uuid, store->generation,
                                       work.chunk, fresh->step),
    };
    return j;
}

/* The job is done: what it read and what it made. */
static gyre_status end_chunk(void *user, uint32_t device, gyre_work work,
                             uint8_t *data, gyre_work_result *result,
                             gyre_error *error)
{
    gyre_round *round = user;
    gyre_store *store = round->store;
    gyre_entry *fresh = &round->fresh[work.chunk];
    gyre_chunk_job *j = &round->jobs[device * round->lanes + work.lane];
    gyre_status status = gyre_device_finish(gyre_workers_device(store, device),
                                            work.lane, &j->job, error);

    if (status != GYRE_OK)
        return status;
    if (j->job.refused != NULL)
        return gyre_fail(error, GYRE_CORRUPT,
                         "%s: a compressed gradient of chunk %llu (elements "
                         "from %llu of its tensor) cannot be decoded",
                         store->places[device].file,
                         (unsigned long long)work.chunk,
                         (unsigned long long)j->job.refused->index);
    if (j->job.check && j->job.before != store->current[work.chunk].hash)
        return read_mismatch(round, device, work.chunk, data, error);
    fresh->hash = j->job.after;
    gyre_store_label(store, work.chunk, data, fresh);
    result->link_after =
        gyre_store_deliver(store, work.chunk, data, round->skip);
    atomic_fetch_or(&round->chunk_state[work.chunk],
                    GYRE_CHUNK_DELIVERED | GYRE_CHUNK_UPDATED);
    count_state(round, work.chunk, result->link_after, &j->ledger);
    gyre_store_count(store, &j->ledger);
    result->write = (int)fresh->version;
    return GYRE_OK;
}

static gyre_status update_chunk(void *user, uint32_t device, gyre_work work,
                                uint8_t *data, gyre_work_result *result,
                                gyre_error *error)
{
    gyre_round *round = user;
    gyre_device *compute = gyre_workers_device(round->store, device);
    gyre_segment *segments;
    gyre_chunk_job *j;
    gyre_status status;

    if (is_doomed(round, work.chunk))
        return GYRE_OK;
    j = set_job(round, device, work, data);
    segments = round->segments +
               (device * round->lanes + work.lane) * (round->max_runs + 1);
    j->job.segment_count =
        make_segments(round, work.chunk, segments, &j->ledger);
    status = find_gradients(round, device, work, segments, &j->ledger, error);
    if (status == GYRE_OK)
        status = gyre_device_submit(compute, work.lane, &j->job, error);
    if (status != GYRE_OK)
        return status;
    if (gyre_device_lanes(compute) == 1)
        return end_chunk(user, device, work, data, result, error);
    result->pending = true;
    return GYRE_OK;
}

/* ---- the stream ------------------------------------------------------- */

/* Down the link before the update, near: what the intake has not sent. */
static uint64_t bytes_down(void *user, uint64_t chunk)
{
    const gyre_round *round = user;
    const gyre_layout *layout = &round->store->layout;
    size_t cursor = GYRE_RUN_FIRST;
    uint64_t bytes = 0;
    gyre_run run;

    if (round->regions)
        return 0;
    if (round->way == GYRE_WAY_STREAMED)
        return round->taken[chunk].bytes;
    while (gyre_layout_next_run(layout, chunk, &cursor, &run))
        if (!round->skip[run.tensor])
            bytes += round->store->codec != NULL
                         ? gyre_codec_bound(round->store->codec, run.n)
                         : run.n * sizeof(float);
    return bytes;
}

static uint64_t bytes_taken(void *user, uint64_t chunk)
{
    const gyre_round *round = user;

    return gyre_round_up(round->taken[chunk].bytes, round->store->layout.align);
}

void gyre_round_stream_ended(void *user, uint32_t device, gyre_status status)
{
    gyre_round *round = user;

    (void)device;
    if (status == GYRE_OK)
        return;
    pthread_mutex_lock(&round->lock);
    round->failed = true;
    pthread_cond_broadcast(&round->moved);
    pthread_cond_broadcast(&round->taken_some);
    pthread_mutex_unlock(&round->lock);
}

void gyre_round_start(gyre_round *round)
{
    gyre_stream stream = {.table = round->store->current,
                          .parts = GYRE_PART_STATE,
                          .read_gradient = bytes_taken,
                          .link_before = bytes_down,
                          .process = update_chunk,
                          .finish = end_chunk,
                          .delivered = delivered,
                          .ended = gyre_round_stream_ended,
                          .user = round};

    if (round->regions)
        stream.parts |= GYRE_PART_GRADIENT;
    round->streaming = true;
    gyre_workers_start(round->store, &stream);
}

gyre_status gyre_round_end_stream(gyre_round *round, gyre_error *error)
{
    gyre_worker_stats *stats;

    if (!round->streaming)
        return GYRE_OK;
    gyre_workers_close(round->store);
    stats = round->taking ? NULL : &round->stats;
    round->streaming = round->taking = false;
    return gyre_workers_join(round->store, stats, error);
}
