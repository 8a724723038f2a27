/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a store will need: memory by line, disk, and the bytes of a round by
 * closed form (STORE.md 4).
 *
 * The round that is planned has one micro-batch and a gradient for every
 * tensor, is not skipped, gives all parameters back as f32, and its clip is
 * none or late, so that what can stream does.
 */
#include "config.h"

#include "device/birth.h"
#include "registry/compressor.h"
#include "store/build.h"
#include "store/compute.h"
#include "store/ledger.h"
#include "store/round.h"

#include <string.h>

/* ---- the bytes of a round --------------------------------------------- */

static bool has_regions(const gyre_store *store)
{
    return store->layout.gradient_grain > 0 && !store->gradients_in_memory;
}

static bool has_barrier(const gyre_store *store)
{
    return store->codec != NULL &&
           (gyre_codec_flags(store->codec) & GYRE_CODEC_BARRIER) != 0;
}

/* Wire blocks of a chunk: all bytes, and of these the payloads'. */
static void wire_of(const gyre_store *store, uint64_t chunk, uint64_t *bytes,
                    uint64_t *payload)
{
    size_t cursor = GYRE_RUN_FIRST;
    gyre_run run;

    *bytes = *payload = 0;
    while (gyre_layout_next_run(&store->layout, chunk, &cursor, &run)) {
        *bytes += gyre_codec_bound(store->codec, run.n);
        for (size_t at = 0; at < run.n; at += GYRE_GRAIN) {
            size_t n = run.n - at < GYRE_GRAIN ? run.n - at : GYRE_GRAIN;

            *payload += gyre_codec_grain_bytes(store->codec, n);
        }
    }
}

/* From the caller to the update, through the region of the chunk or not. */
static void model_gradients(const gyre_store *store, uint64_t chunk, uint64_t n,
                            gyre_ledger *l)
{
    const gyre_layout *layout = &store->layout;
    bool near = store->placement == GYRE_NEAR;
    bool through = has_regions(store) && !has_barrier(store);
    uint64_t bytes =
        gyre_layout_chunk_grains(layout, chunk) * GYRE_GRAIN * sizeof(float);
    uint64_t payload = n * sizeof(float), frame = 0, padding;

    if (store->codec != NULL) {
        wire_of(store, chunk, &bytes, &payload);
        frame = bytes - payload;
    }
    if (near || through) {
        l->gradient_down += payload;
        l->frame_bytes += frame;
    }
    if (!through)
        return;
    padding = gyre_round_up(bytes, layout->align) - payload;
    l->gradient_write += payload;
    l->padding_write += padding;
    l->gradient_read += payload;
    l->padding_read += padding;
    if (!near) {
        l->gradient_up += payload;
        l->frame_bytes += frame;
    }
}

static void model_chunk(const gyre_store *store, uint64_t chunk, gyre_ledger *l)
{
    const gyre_layout *layout = &store->layout;
    uint64_t useful = gyre_layout_useful_bytes(layout, chunk);
    uint64_t padding = gyre_layout_chunk_bytes(layout, chunk) - useful;
    size_t cursor = GYRE_RUN_FIRST;
    uint64_t n = 0;
    gyre_run run;

    while (gyre_layout_next_run(layout, chunk, &cursor, &run))
        n += run.n;
    l->elements += n;
    model_gradients(store, chunk, n, l);
    l->state_read += useful;
    l->state_write += useful;
    l->padding_read += padding;
    l->padding_write += padding;
    if (store->placement == GYRE_NEAR) {
        l->parameter_up += n * sizeof(float);
    } else {
        l->state_up += useful;
        l->state_down += useful;
    }
}

/* A round's share of what one commit in `every` rounds writes. */
static void model_commit(const gyre_store *store, uint32_t every,
                         gyre_ledger *l)
{
    const gyre_layout *layout = &store->layout;
    uint64_t useful = 0, padding = 0, head;

    for (uint64_t c = layout->state_chunks; c < layout->chunks; c++) {
        uint64_t bytes = gyre_layout_useful_bytes(layout, c);

        useful += bytes;
        padding += gyre_layout_chunk_bytes(layout, c) - bytes;
    }
    head = gyre_round_up(
        gyre_format_head_bytes(layout->chunks, layout->tensor_count),
        layout->align);
    l->residual_down += useful / every;
    l->padding_write += padding / every;
    l->commit_write += layout->devices * head / every;
}

static void model_round(const gyre_store *store, uint32_t every, gyre_ledger *l)
{
    memset(l, 0, sizeof(*l));
    l->rounds = 1;
    for (uint64_t c = 0; c < store->layout.train_chunks; c++)
        model_chunk(store, c, l);
    model_commit(store, every, l);
    gyre_ledger_sum(l);
}

/* ---- memory ----------------------------------------------------------- */

/* What a worker costs beside its buffers: the touched part of its stack, its
 * queue, and the ring. */
enum { WORKER_FIXED = 96 * 1024 };

static uint64_t max_runs(const gyre_layout *layout)
{
    uint64_t most = 0;

    for (uint64_t c = 0; c < layout->train_chunks; c++) {
        size_t cursor = GYRE_RUN_FIRST;
        uint64_t runs = 0;
        gyre_run run;

        while (gyre_layout_next_run(layout, c, &cursor, &run))
            runs++;
        if (runs > most)
            most = runs;
    }
    return most;
}

/* All of them; but what spills waits for the devices only (intake.c). */
static uint64_t held_gradients(const gyre_store *store)
{
    const gyre_layout *l = &store->layout;
    uint64_t all = l->train_grains * GYRE_GRAIN * sizeof(float);
    uint64_t chunk = l->chunk_grains * GYRE_GRAIN * sizeof(float);
    uint64_t waiting = ((uint64_t)store->buffers * l->devices * 3 + 2) * chunk;

    if (!has_regions(store) || store->codec != NULL || waiting > all)
        return all;
    return waiting;
}

/* Wire blocks: of a chunk for each device between compression and decoding,
 * and of all chunks when they stay in memory until the update. */
static uint64_t held_payload(const gyre_store *store)
{
    const gyre_layout *l = &store->layout;
    uint64_t all = 0, most = 0;

    if (store->codec == NULL)
        return 0;
    for (uint64_t c = 0; c < l->train_chunks; c++) {
        uint64_t bytes = gyre_round_wire_bound(store, c);

        all += bytes;
        most = bytes > most ? bytes : most;
    }
    if (has_barrier(store) || has_regions(store))
        return most * l->devices;
    return all + most * l->devices + l->train_chunks * sizeof(uint64_t);
}

static uint64_t held_residual(const gyre_store *store)
{
    const gyre_layout *l = &store->layout;

    if (store->residual_mode == GYRE_RESIDUAL_OFF)
        return 0;
    return 2 * l->train_grains * GYRE_GRAIN * sizeof(float) +
           l->train_chunks * 2 + l->tensor_count * 2 * sizeof(float);
}

/* What a round holds for each chunk, grain, tensor and device. */
static void round_lines(const gyre_store *store, gyre_store_plan *plan)
{
    const gyre_layout *l = &store->layout;
    uint64_t leaves = l->train_grains * (8 + 2);
    bool taken = has_regions(store) || store->codec != NULL;

    if (store->codec != NULL) {
        leaves += l->train_grains * 8;
        plan->other_bytes += gyre_codec_survey_bytes(store->codec) +
                             gyre_codec_decided_bytes(store->codec);
    }
    plan->gradient_bytes = held_gradients(store);
    plan->residual_bytes = held_residual(store);
    plan->payload_bytes = held_payload(store);
    if (leaves > plan->leaf_bytes)
        plan->leaf_bytes = leaves; /* never both */
    plan->table_bytes += l->train_chunks * (sizeof(gyre_entry) + 9 +
                                            (taken ? sizeof(gyre_taken) : 0));
    plan->other_bytes +=
        (max_runs(l) * sizeof(gyre_segment) + sizeof(gyre_chunk_job)) *
            l->devices +
        l->tensor_count * (GYRE_OPT_MAX_SCALARS * 4 + 64 + 96);
}

/* What opencl and cuda take of their devices, and of the host. */
static void device_lines(const gyre_store *store, gyre_store_plan *plan)
{
    const gyre_layout *l = &store->layout;

    plan->device_memory_bytes = plan->born_memory_bytes = 0;
    if (store->read_only)
        return;
    plan->born_memory_bytes =
        gyre_birth_memory(store->codec, l->train_grains,
                          store->residual_mode != GYRE_RESIDUAL_OFF);
    if (store->placement == GYRE_HOST)
        return;
    for (uint32_t d = 0; d < l->devices; d++) {
        const char *text = store->places[d].compute;
        gyre_device_spec spec = {.codec = store->codec,
                                 .states = l->codecs,
                                 .vars = 1 + l->slots,
                                 .grains = (size_t)l->chunk_grains};
        gyre_compute compute;
        uint64_t host;

        if (text == NULL || gyre_compute_parse(text, &compute, NULL) != GYRE_OK)
            continue;
        spec.name = compute.device;
        plan->device_memory_bytes += gyre_device_plan_memory(&spec, &host);
        plan->other_bytes += host;
    }
}

void gyre_store_lines(const gyre_store *store, gyre_store_plan *plan)
{
    const gyre_layout *l = &store->layout;
    uint64_t tensors = l->tensor_count;

    /* One more is what gyre_store_read keeps. */
    plan->buffer_bytes =
        gyre_workers_buffer_bytes(store) * store->buffers * l->devices +
        gyre_layout_max_chunk_bytes(l);
    plan->leaf_bytes = (l->train_grains + l->frozen_grains) * 8; /* digest */
    plan->table_bytes =
        l->chunks * (2 * sizeof(gyre_entry) + sizeof(gyre_chunk_place)) +
        l->area_bytes + l->blob_capacity +
        tensors * (sizeof(gyre_tensor_state) + 16);
    plan->other_bytes =
        (uint64_t)l->devices * WORKER_FIXED + l->chunks * 2 * sizeof(gyre_push);
    plan->gradient_bytes = plan->residual_bytes = plan->payload_bytes = 0;
    if (!store->read_only)
        round_lines(store, plan);
    device_lines(store, plan);
    plan->total_bytes = plan->buffer_bytes + plan->gradient_bytes +
                        plan->leaf_bytes + plan->table_bytes +
                        plan->other_bytes + plan->residual_bytes +
                        plan->payload_bytes;
}

gyre_status gyre_store_check_memory(const gyre_store *store, gyre_error *error)
{
    gyre_store_plan plan;

    if (store->memory_limit == 0)
        return GYRE_OK;
    gyre_store_lines(store, &plan);
    if (plan.total_bytes <= store->memory_limit)
        return GYRE_OK;
    return gyre_fail(
        error, GYRE_NO_MEMORY,
        "the store would need %llu bytes of memory (buffers %llu, gradients "
        "%llu, residual %llu, compressed gradients %llu, tables and the rest "
        "%llu); the limit is %llu: take smaller chunks or fewer buffers",
        (unsigned long long)plan.total_bytes,
        (unsigned long long)plan.buffer_bytes,
        (unsigned long long)plan.gradient_bytes,
        (unsigned long long)plan.residual_bytes,
        (unsigned long long)plan.payload_bytes,
        (unsigned long long)(plan.leaf_bytes + plan.table_bytes +
                             plan.other_bytes),
        (unsigned long long)store->memory_limit);
}

/* ---- the plan --------------------------------------------------------- */

static void fill_plan(const gyre_store *store, gyre_store_plan *plan)
{
    const gyre_layout *l = &store->layout;
    gyre_ledger each;

    gyre_store_lines(store, plan);
    plan->disk_bytes = gyre_store_disk_bytes(l);
    plan->chunks = l->chunks;
    plan->chunk_elements = l->chunk_grains * GYRE_GRAIN;
    model_round(store, 1, &each);
    plan->read_bytes_per_step = each.device_read_bytes + each.padding_read;
    plan->write_bytes_per_step = each.flash_bytes;
    model_round(store, store->commit_every, &plan->model);
}

gyre_status gyre_store_make_plan(gyre_context *context,
                                 const gyre_store_spec *spec,
                                 const gyre_store_options *options,
                                 gyre_store_plan *plan, gyre_error *error)
{
    gyre_store_plan full = {.size = sizeof(full)};
    gyre_store *store;
    gyre_status status;

    if (plan == NULL || plan->size < sizeof(*plan))
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_store_plan: zero the struct and set size");
    status = gyre_store_blank(context, ".", options, &store, error);
    if (status != GYRE_OK)
        return status;
    status = gyre_store_prepare(store, spec, error);
    if (status == GYRE_OK)
        status = gyre_compute_take(store, options, error);
    if (status == GYRE_OK)
        status = gyre_store_lay_out(store, error);
    if (status == GYRE_OK) {
        fill_plan(store, &full);
        *plan = full;
    }
    gyre_store_free(store);
    return status;
}
