/* SPDX-License-Identifier: Apache-2.0 */
/* What a store says about itself. */
#include "config.h"

#include "store/ledger.h"
#include "store/place.h"
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

uint64_t gyre_store_disk_bytes(const gyre_layout *layout)
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
    full.disk_bytes = gyre_store_disk_bytes(layout);
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
