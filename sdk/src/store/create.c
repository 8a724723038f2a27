/* SPDX-License-Identifier: Apache-2.0 */
/* Making a store: files, first contents, first record. */
#include "config.h"

#include "store/build.h"
#include "store/compute.h"
#include "store/ledger.h"
#include "store/manifest.h"
#include "store/place.h"
#include "store/plugins.h"
#include "store/round.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum { DEFAULT_BLOB = 65536 };

static const uint64_t most_blob = 1ull << 40; /* as a manifest may say */

/* ---- what spec says --------------------------------------------------- */

static gyre_status check_spec(const gyre_store_spec *spec, gyre_error *error)
{
    if (spec == NULL || spec->size < sizeof(*spec))
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_store_spec.size is too small for this library: "
                         "zero the struct and set size");
    if (spec->blob_bytes > most_blob)
        return gyre_fail(error, GYRE_RANGE,
                         "blob_bytes is %llu; at most %llu are allowed",
                         (unsigned long long)spec->blob_bytes,
                         (unsigned long long)most_blob);
    if ((spec->codec_count > 0 && spec->codecs == NULL) ||
        (spec->setting_count > 0 && spec->settings == NULL) ||
        (spec->compressor_setting_count > 0 &&
         spec->compressor_settings == NULL))
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_store_spec: %zu codecs, %zu settings and %zu "
                         "compressor settings are counted; one of the lists "
                         "is NULL",
                         spec->codec_count, spec->setting_count,
                         spec->compressor_setting_count);
    for (size_t i = 0; spec->tensors != NULL && i < spec->tensor_count; i++) {
        gyre_dtype dtype = spec->tensors[i].dtype;

        if (spec->tensors[i].data != NULL && dtype != GYRE_F32 &&
            dtype != GYRE_F64 && dtype != GYRE_BF16 && dtype != GYRE_F16)
            return gyre_fail(error, GYRE_INVALID,
                             "tensor %zu: initial values must be f32, f64, "
                             "bf16 or f16",
                             i);
    }
    return GYRE_OK;
}

gyre_status gyre_store_shape(gyre_store *store, const gyre_store_spec *spec,
                             gyre_error *error)
{
    uint64_t chunk = spec->chunk_elements;

    if (chunk % GYRE_GRAIN != 0 || chunk > 1ull << 32)
        return gyre_fail(error, GYRE_RANGE,
                         "chunk_elements is %llu; a multiple of %d up to 2^32 "
                         "is needed",
                         (unsigned long long)chunk, GYRE_GRAIN);
    if (chunk == 0)
        chunk = gyre_layout_choose_chunk(&store->layout, store->layout.devices);
    store->layout.chunk_grains = chunk / GYRE_GRAIN;
    return GYRE_OK;
}

gyre_status gyre_store_prepare(gyre_store *store, const gyre_store_spec *spec,
                               gyre_error *error)
{
    gyre_status status = check_spec(spec, error);

    if (status == GYRE_OK)
        status = gyre_random_uuid(store->uuid, error);
    if (status != GYRE_OK)
        return status;
    gyre_uuid_text(store->uuid, store->uuid_text);
    store->generation = 1;
    store->layout.versions = spec->in_place ? 1 : 2;
    store->layout.align = GYRE_PAGE;
    store->layout.blob_capacity =
        spec->blob_bytes != 0 ? spec->blob_bytes : DEFAULT_BLOB;
    store->now.generation = 1;
    store->now.scaler.scale = 65536;
    store->now.scaler.hysteresis = 2;
    store->seed = spec->seed;
    status = gyre_store_take_optimizer(store, spec, error);
    if (status == GYRE_OK)
        status = gyre_store_take_compressor(store, spec, error);
    if (status == GYRE_OK)
        status = gyre_layout_tensors(store->context, &store->layout,
                                     spec->tensors, spec->tensor_count, error);
    if (status == GYRE_OK)
        status = gyre_store_take_devices(store, spec, error);
    if (status == GYRE_OK)
        status = gyre_store_shape(store, spec, error);
    return status;
}

/* ---- create ----------------------------------------------------------- */

typedef struct initial {
    const gyre_tensor *tensors;
    const float *slots;
} initial;

static gyre_status fill_initial(void *user, size_t tensor, uint64_t first,
                                size_t n, uint32_t vars, float *out,
                                size_t stride, gyre_error *error)
{
    const initial *in = user;
    const gyre_tensor *t = &in->tensors[tensor];
    const char *data = t->data;

    for (uint32_t v = 1; v < vars; v++)
        for (size_t i = 0; i < n; i++)
            out[v * stride + i] = in->slots[v - 1];
    if (data == NULL)
        return GYRE_OK;
    if (!gyre_to_f32(t->dtype, data + first * gyre_dtype_bytes(t->dtype), 1,
                     out, n))
        return gyre_fail(error, GYRE_INVALID,
                         "tensor %s: initial values must be f32, f64, bf16 or "
                         "f16",
                         t->name);
    return GYRE_OK;
}

/* Make the folder and take it; EXISTS when a store lives there. */
static gyre_status claim_folder(gyre_store *store, bool *made,
                                gyre_error *error)
{
    char path[4096];
    gyre_status status =
        gyre_io_make_folder(store->recorder, store->path, made, error);

    if (status == GYRE_OK && *made)
        status = gyre_io_sync_parent(store->recorder, store->path, error);
    if (status == GYRE_OK)
        status = gyre_place_resolve(store, error);
    if (status == GYRE_OK)
        status = gyre_place_lock(store, store->lock_wait_ns, error);
    if (status != GYRE_OK)
        return status;
    snprintf(path, sizeof(path), "%s/manifest.json", store->path);
    if (access(path, F_OK) == 0)
        return gyre_fail(error, GYRE_EXISTS,
                         "%s holds a store already; open it, or remove the "
                         "folder to start anew",
                         store->path);
    gyre_journal_settle(store, NULL);
    return GYRE_OK;
}

/* The manifest goes first, and for good (settle syncs): one without its files
 * could be neither opened nor made again.  If it will not go, all stays. */
static void clear_folder(gyre_store *store, bool made)
{
    char path[4096];
    int err;

    snprintf(path, sizeof(path), "%s/manifest.json", store->path);
    err = gyre_io_remove(store->recorder, path);
    if (err != 0 && err != ENOENT)
        return;
    gyre_journal_settle(store, NULL);
    /* Whoever waits on it sees that it is gone (place.c). */
    snprintf(path, sizeof(path), "%s/lock", store->path);
    unlink(path);
    if (made)
        rmdir(store->path);
}

gyre_status gyre_store_create(gyre_context *context, const char *path,
                              const gyre_store_spec *spec,
                              const gyre_store_options *options,
                              gyre_store **out, gyre_error *error)
{
    gyre_store *store;
    gyre_source source;
    initial in;
    bool made = false, ours = false;
    gyre_fp saved = gyre_fp_pin();
    gyre_status status = check_spec(spec, error);

    if (status == GYRE_OK)
        status = gyre_store_blank(context, path, options, &store, error);
    if (status != GYRE_OK)
        goto restore;
    status = claim_folder(store, &made, error);
    ours = status == GYRE_OK;
    if (status == GYRE_OK)
        status = gyre_store_prepare(store, spec, error);
    if (status == GYRE_OK)
        status = gyre_compute_take(store, options, error);
    in = (initial){spec->tensors, store->slot_initial};
    source = (gyre_source){.fill = fill_initial, .user = &in};
    if (status == GYRE_OK)
        status = gyre_store_build(store, NULL, &source, NULL, 0, error);
    if (status == GYRE_OK)
        status = gyre_residual_allocate(store, error);
    if (status == GYRE_OK)
        status = gyre_manifest_write(store, error);
    if (status != GYRE_OK) {
        if (ours)
            clear_folder(store, made);
        else if (made)
            rmdir(store->path); /* and not when somebody was quicker */
        gyre_store_free(store);
        goto restore;
    }
    gyre_journal_settle(store, store);
    gyre_ledger_begin(store);
    *out = store;
restore:
    gyre_fp_restore(saved);
    return status;
}
