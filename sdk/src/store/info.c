/* SPDX-License-Identifier: Apache-2.0 */
/* What a store says about itself, and what one will need. */
#include "config.h"

#include "store/round.h"

#include <string.h>

/* ---- info ------------------------------------------------------------- */

static uint64_t padding_of(const gyre_layout *layout)
{
    uint64_t bytes = 0;

    for (uint64_t c = 0; c < layout->chunks; c++)
        bytes += gyre_layout_chunk_bytes(layout, c) -
                 gyre_layout_useful_bytes(layout, c);
    return bytes;
}

static uint64_t disk_of(const gyre_layout *layout)
{
    uint64_t bytes = 0;

    for (uint32_t d = 0; d < layout->devices; d++)
        bytes += layout->device_bytes[d];
    return bytes;
}

gyre_status gyre_store_get_info(const gyre_store *store, gyre_store_info *info,
                                gyre_error *error)
{
    const gyre_layout *layout;
    gyre_store_info full = {.size = sizeof(full)};
    size_t size;

    if (store == NULL || info == NULL || info->size == 0)
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_store_info: zero the struct and set size");
    layout = &store->layout;
    size = info->size < sizeof(full) ? info->size : sizeof(full);
    full.round = store->now.round;
    full.step = store->now.step;
    full.commit = store->last.seq;
    full.committed_round = store->last.round;
    full.committed_step = store->last.step;
    full.generation = store->generation;
    full.tensors = layout->tensor_count;
    full.elements = layout->elements;
    full.chunks = layout->chunks;
    full.chunk_elements = layout->chunk_grains * GYRE_GRAIN;
    full.padding_bytes = padding_of(layout);
    full.disk_bytes = disk_of(layout);
    full.blob_capacity = layout->blob_capacity;
    full.devices = layout->devices;
    full.groups = layout->groups;
    full.slots = layout->slots;
    full.in_place = layout->versions == 1;
    full.whole = store->now.salvaged == 0;
    full.fell_back = store->fell_back;
    full.uuid = store->uuid_text;
    full.path = store->path;
    full.optimizer = store->optimizer;
    full.optimizer_version = store->optimizer_version;
    full.variant = store->variant;
    full.io = gyre_workers_engine(store);
    full.loss_scale = store->now.scaler.scale;
    full.compressor = store->compressor;
    full.compressor_version = store->compressor_version;
    full.residual = store->residual_mode;
    full.spill = layout->gradient_grain != 0;
    full.exact = !store->inexact;
    full.seed = store->seed;
    full.written = store->last.written;
    full.size = info->size;
    memcpy(info, &full, size);
    return GYRE_OK;
}

gyre_status gyre_store_tensor(const gyre_store *store, size_t index,
                              gyre_tensor *out, uint64_t *step,
                              gyre_error *error)
{
    const gyre_tensor_state *t;

    if (store == NULL || index >= store->layout.tensor_count)
        return gyre_fail(error, GYRE_RANGE,
                         "tensor %zu does not exist: the store has %zu", index,
                         store != NULL ? store->layout.tensor_count : 0);
    t = &store->layout.tensors[index];
    memset(out, 0, sizeof(*out));
    out->name = t->name;
    out->rank = t->rank;
    out->group = t->group;
    out->flags = t->flags;
    memcpy(out->shape, t->shape, sizeof(out->shape));
    out->dtype = GYRE_F32;
    if (step != NULL)
        *step = t->step;
    return GYRE_OK;
}

gyre_status gyre_store_find(const gyre_store *store, const char *name,
                            size_t *index, gyre_error *error)
{
    for (size_t i = 0; i < store->layout.tensor_count; i++)
        if (strcmp(store->layout.tensors[i].name, name) == 0) {
            *index = i;
            return GYRE_OK;
        }
    return gyre_fail(error, GYRE_NOT_FOUND, "store %s has no tensor \"%s\"",
                     store->path, name);
}

const char *gyre_store_device(const gyre_store *store, size_t index,
                              uint64_t *bytes)
{
    if (index >= store->layout.devices)
        return NULL;
    if (bytes != NULL)
        *bytes = store->layout.device_bytes[index];
    return gyre_place_folder(store, store->places[index].path);
}

const char *gyre_store_slot(const gyre_store *store, size_t slot)
{
    return slot < store->layout.slots ? store->slot_names[slot] : NULL;
}

gyre_state_codec gyre_store_codec(const gyre_store *store, int slot)
{
    return slot >= -1 && slot < (int)store->layout.slots
               ? store->layout.codecs[1 + slot]
               : GYRE_STATE_F32;
}

const char *gyre_state_codec_name(gyre_state_codec codec)
{
    return gyre_state_name(codec);
}

const char *gyre_store_compressor_setting(const gyre_store *store, size_t index,
                                          double *value)
{
    if (index >= store->compressor_setting_count)
        return NULL;
    if (value != NULL)
        *value = store->compressor_settings[index].value;
    return store->compressor_settings[index].name;
}

/* ---- planning --------------------------------------------------------- */

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

void gyre_store_lines(const gyre_store *store, gyre_store_plan *plan)
{
    const gyre_layout *l = &store->layout;
    uint64_t tensors = l->tensor_count;
    uint64_t digest = (l->train_grains + l->frozen_grains) * 8;
    uint64_t round = store->read_only ? 0 : l->train_grains * (8 + 2);

    /* One more is what gyre_store_read keeps. */
    plan->buffer_bytes =
        gyre_workers_buffer_bytes(store) * store->buffers * l->devices +
        gyre_layout_max_chunk_bytes(l);
    plan->gradient_bytes =
        store->read_only ? 0 : l->train_grains * GYRE_GRAIN * 4;
    plan->leaf_bytes = round > digest ? round : digest; /* never both */
    plan->table_bytes =
        l->chunks * (2 * sizeof(gyre_entry) + sizeof(gyre_chunk_place)) +
        l->train_chunks * (sizeof(gyre_entry) + 9) + l->area_bytes +
        l->blob_capacity + tensors * (sizeof(gyre_tensor_state) + 16);
    plan->other_bytes = (uint64_t)l->devices * WORKER_FIXED +
                        l->chunks * 2 * sizeof(gyre_push) +
                        max_runs(l) * l->devices * sizeof(gyre_segment) +
                        tensors * (GYRE_OPT_MAX_SCALARS * 4 + 64 + 96);
    plan->total_bytes = plan->buffer_bytes + plan->gradient_bytes +
                        plan->leaf_bytes + plan->table_bytes +
                        plan->other_bytes;
    plan->disk_bytes = disk_of(l);
    plan->chunks = l->chunks;
    plan->chunk_elements = l->chunk_grains * GYRE_GRAIN;
    plan->read_bytes_per_step = 0;
    for (uint64_t c = 0; c < l->train_chunks; c++)
        plan->read_bytes_per_step += gyre_layout_chunk_bytes(l, c);
    plan->write_bytes_per_step =
        plan->read_bytes_per_step +
        (uint64_t)l->devices *
            gyre_round_up(gyre_format_head_bytes(l->chunks, tensors), l->align);
}

gyre_status gyre_store_check_memory(const gyre_store *store, gyre_error *error)
{
    gyre_store_plan plan;

    if (store->memory_limit == 0)
        return GYRE_OK;
    gyre_store_lines(store, &plan);
    if (plan.total_bytes <= store->memory_limit)
        return GYRE_OK;
    return gyre_fail(error, GYRE_NO_MEMORY,
                     "the store would need %llu bytes of memory (buffers %llu, "
                     "gradients %llu, tables and the rest %llu); the limit is "
                     "%llu: take smaller chunks or fewer buffers",
                     (unsigned long long)plan.total_bytes,
                     (unsigned long long)plan.buffer_bytes,
                     (unsigned long long)plan.gradient_bytes,
                     (unsigned long long)(plan.total_bytes - plan.buffer_bytes -
                                          plan.gradient_bytes),
                     (unsigned long long)store->memory_limit);
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
        gyre_store_lines(store, &full);
        *plan = full;
    }
    gyre_store_free(store);
    return status;
}
