/* SPDX-License-Identifier: Apache-2.0 */
/* Making a store: files, first contents, first record. */
#include "config.h"

#include "device/birth.h"
#include "store/build.h"
#include "store/compute.h"
#include "store/ledger.h"
#include "store/manifest.h"
#include "store/place.h"
#include "store/plugins.h"
#include "store/round.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_BUFFERS = 4, DEFAULT_BLOB = 65536 };

static const uint64_t default_lock_wait = 120000000000ull;

/* ---- the object ------------------------------------------------------- */

static gyre_status check_options(const gyre_store_options *o, gyre_error *error)
{
    if (o->size < sizeof(*o))
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_store_options.size is %zu, this library needs "
                         "%zu: zero the struct and set size",
                         o->size, sizeof(*o));
    if (o->buffers > 1024)
        return gyre_fail(error, GYRE_RANGE,
                         "%u buffers per device; 1 to 1024 are allowed",
                         o->buffers);
    if (!(o->endurance >= 0) || isinf(o->endurance))
        return gyre_fail(error, GYRE_RANGE,
                         "endurance is %g; bytes, or 0 for unknown, are needed",
                         o->endurance);
    return gyre_compute_check(o, error);
}

static gyre_status copy_options(gyre_store *store, const gyre_store_options *o)
{
    gyre_context *context = store->context;

    store->buffers = o->buffers != 0 ? o->buffers : DEFAULT_BUFFERS;
    store->commit_every = o->commit_every != 0 ? o->commit_every : 1;
    store->fast = o->fast != 0;
    store->read_only = o->read_only != 0;
    store->check_reads = o->no_read_check == 0;
    store->recorder = o->recorder;
    store->lock_wait_ns =
        o->lock_wait_ns != 0 ? o->lock_wait_ns : default_lock_wait;
    store->memory_limit = o->memory_limit;
    store->placement = o->placement;
    store->gradients_in_memory = o->gradients_in_memory != 0;
    store->allow_inexact = o->allow_inexact != 0;
    store->link_rate = o->link_rate;
    store->endurance = o->endurance;
    store->wear_budget = o->wear_budget;
    store->io_engine = gyre_copy_text(context, o->io != NULL ? o->io : "auto");
    if (store->io_engine == NULL)
        return GYRE_NO_MEMORY;
    return GYRE_OK;
}

gyre_status gyre_store_blank(gyre_context *context, const char *path,
                             const gyre_store_options *options,
                             gyre_store **out, gyre_error *error)
{
    static const gyre_store_options none = {.size = sizeof(none)};
    gyre_store *store;
    gyre_status status;

    if (context == NULL || path == NULL || path[0] == '\0')
        return gyre_fail(error, GYRE_INVALID, "a store needs a path");
    if (options == NULL)
        options = &none;
    status = check_options(options, error);
    if (status != GYRE_OK)
        return status;
    store = gyre_alloc_zero(context, 1, sizeof(*store));
    if (store == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a store");
    store->context = context;
    pthread_mutex_init(&store->count_lock, NULL);
    pthread_mutex_init(&store->birth_lock, NULL);
    store->owner_lock = -1;
    store->peek_chunk = UINT64_MAX;
    store->residual_mode = GYRE_RESIDUAL_OFF;
    store->path = gyre_copy_text(context, path);
    if (store->path == NULL || copy_options(store, options) != GYRE_OK) {
        gyre_store_free(store);
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a store");
    }
    *out = store;
    return GYRE_OK;
}

gyre_status gyre_store_tables(gyre_store *store, gyre_error *error)
{
    const gyre_layout *layout = &store->layout;
    gyre_context *context = store->context;

    store->current =
        gyre_alloc_zero(context, layout->chunks, sizeof(gyre_entry));
    store->committed =
        gyre_alloc_zero(context, layout->chunks, sizeof(gyre_entry));
    store->steps =
        gyre_alloc_zero(context, layout->tensor_count, sizeof(uint64_t));
    store->image =
        gyre_alloc_aligned(context, layout->area_bytes, layout->align);
    store->blob = gyre_alloc(context, layout->blob_capacity, 1);
    if (store->image == NULL || store->steps == NULL || store->blob == NULL ||
        (layout->chunks > 0 &&
         (store->current == NULL || store->committed == NULL)))
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for the tables");
    memset(store->image, 0, layout->area_bytes);
    return GYRE_OK;
}

void gyre_store_free(gyre_store *store)
{
    gyre_context *context = store->context;
    gyre_layout *layout = &store->layout;

    gyre_workers_destroy(store);
    for (uint32_t d = 0; store->places != NULL && d < layout->devices; d++) {
        if (store->places[d].fd >= 0)
            close(store->places[d].fd);
        gyre_free_text(context, store->places[d].path);
        gyre_free_text(context, store->places[d].file);
        gyre_free_text(context, store->places[d].compute);
    }
    gyre_free(context, store->places, layout->devices, sizeof(gyre_place));
    gyre_place_unlock(store);
    gyre_opt_destroy(store->opt);
    gyre_store_free_gradients(store);
    gyre_store_free_compressor(store);
    gyre_birth_close(store->birth);
    gyre_residual_free(store);
    if (store->peek != NULL)
        gyre_free_aligned(context, store->peek,
                          gyre_layout_max_chunk_bytes(layout), layout->align);
    gyre_free(context, store->current, layout->chunks, sizeof(gyre_entry));
    gyre_free(context, store->committed, layout->chunks, sizeof(gyre_entry));
    gyre_free(context, store->steps, layout->tensor_count, sizeof(uint64_t));
    if (store->image != NULL)
        gyre_free_aligned(context, store->image, layout->area_bytes,
                          layout->align);
    gyre_free(context, store->blob, layout->blob_capacity, 1);
    for (size_t i = 0; i < store->setting_count; i++)
        gyre_free_text(context, (char *)(uintptr_t)store->settings[i].name);
    gyre_free(context, store->settings, store->setting_count,
              sizeof(gyre_setting));
    for (size_t i = 0; i < GYRE_OPT_MAX_SLOTS; i++)
        gyre_free_text(context, store->slot_names[i]);
    gyre_free_text(context, store->optimizer);
    gyre_free_text(context, store->optimizer_version);
    gyre_free_text(context, store->variant);
    gyre_free_text(context, store->io_engine);
    gyre_free_text(context, store->path);
    gyre_layout_free(context, layout);
    pthread_mutex_destroy(&store->count_lock);
    pthread_mutex_destroy(&store->birth_lock);
    gyre_free(context, store, 1, sizeof(*store));
}

/* ---- what spec says --------------------------------------------------- */

static gyre_status take_optimizer(gyre_store *store,
                                  const gyre_store_spec *spec,
                                  gyre_error *error)
{
    gyre_context *context = store->context;
    const char *name = spec->optimizer != NULL ? spec->optimizer : "adamw";
    const gyre_plugin *plugin;
    gyre_status status;

    status = gyre_opt_create(context, name, spec->settings, spec->setting_count,
                             &store->opt, error);
    if (status != GYRE_OK)
        return status;
    plugin = gyre_opt_plugin(store->opt);
    store->optimizer = gyre_copy_text(context, plugin->name);
    store->optimizer_version = gyre_copy_text(context, plugin->version);
    store->variant = gyre_copy_text(context, gyre_opt_variant(store->opt));
    store->state_version = gyre_opt_state_version(store->opt);
    store->kernel_hash = gyre_opt_kernel_hash(store->opt);
    store->layout.slots = (uint32_t)gyre_opt_slot_count(store->opt);
    for (uint32_t i = 0; i < store->layout.slots; i++) {
        store->slot_names[i] =
            gyre_copy_text(context, gyre_opt_slot_name(store->opt, i));
        store->slot_initial[i] = gyre_opt_slot_initial(store->opt, i);
        if (store->slot_names[i] == NULL)
            return gyre_fail(error, GYRE_NO_MEMORY, "no memory");
    }
    store->setting_count = gyre_opt_parameter_count(store->opt);
    store->settings =
        gyre_alloc_zero(context, store->setting_count, sizeof(gyre_setting));
    if (store->optimizer == NULL || store->optimizer_version == NULL ||
        store->variant == NULL ||
        (store->settings == NULL && store->setting_count > 0)) {
        store->setting_count =
            store->settings != NULL ? store->setting_count : 0;
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory");
    }
    for (size_t i = 0; i < store->setting_count; i++) {
        store->settings[i].name =
            gyre_copy_text(context, plugin->parameters[i].name);
        store->settings[i].value = gyre_opt_defaults(store->opt)[i];
        if (store->settings[i].name == NULL)
            return gyre_fail(error, GYRE_NO_MEMORY, "no memory");
    }
    return GYRE_OK;
}

/* -1: no such variable. */
static int find_var(const gyre_store *store, const char *name)
{
    if (strcmp(name, "parameter") == 0)
        return 0;
    for (uint32_t i = 0; i < store->layout.slots; i++)
        if (strcmp(name, store->slot_names[i]) == 0)
            return (int)i + 1;
    return -1;
}

static gyre_status no_slot(const gyre_store *store, const char *name,
                           gyre_error *error)
{
    char list[256] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < store->layout.slots && used < sizeof(list); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, ", %s",
                                 store->slot_names[i]);
    return gyre_fail(error, GYRE_PARAMETER,
                     "codec for \"%.100s\": optimizer %s has no such slot; "
                     "there are: *, parameter%s",
                     name, store->optimizer, list);
}

static gyre_status take_codecs(gyre_store *store, const gyre_store_spec *spec,
                               gyre_error *error)
{
    gyre_layout *layout = &store->layout;

    for (size_t i = 0; i < spec->codec_count; i++) {
        const gyre_slot_codec *c = &spec->codecs[i];
        int var;

        if (c->slot == NULL || gyre_state_name(c->codec) == NULL)
            return gyre_fail(error, GYRE_INVALID,
                             "codec %zu: a slot and a codec of 0 to %d are "
                             "needed, not %d",
                             i, GYRE_STATE_CODECS - 1, (int)c->codec);
        for (uint32_t v = 1; strcmp(c->slot, "*") == 0 && v <= layout->slots;
             v++)
            layout->codecs[v] = c->codec;
        if (strcmp(c->slot, "*") == 0)
            continue;
        var = find_var(store, c->slot);
        if (var < 0)
            return no_slot(store, c->slot, error);
        if (var == 0 && c->codec == GYRE_STATE_Q8)
            return gyre_fail(error, GYRE_PARAMETER,
                             "the parameter cannot be q8, whose steps are "
                             "larger than updates: take f32, bf16 or "
                             "bf16-stochastic");
        layout->codecs[var] = c->codec;
    }
    return GYRE_OK;
}

static char *manifest_path(gyre_store *store, const char *given)
{
    char *real, *copy;

    if (given == NULL)
        return gyre_copy_text(store->context, ".");
    real = realpath(given, NULL);
    /* By any name, the store's own folder moves with the store. */
    if (real != NULL && strcmp(real, store->path) == 0)
        copy = gyre_copy_text(store->context, ".");
    else
        copy = gyre_copy_text(store->context, real != NULL ? real : given);
    free(real);
    return copy;
}

/* The lock would refuse the second one too, but only after a long wait. */
static gyre_status check_blocks(const gyre_store *store, uint32_t d,
                                gyre_error *error)
{
    for (uint32_t e = 0; e < d; e++)
        if (gyre_place_same_block(store->places[d].file, store->places[e].file))
            return gyre_fail(error, GYRE_INVALID,
                             "devices %u and %u are the same block file, %s; "
                             "each device needs its own",
                             e, d, store->places[d].file);
    return GYRE_OK;
}

gyre_status gyre_store_take_devices(gyre_store *store,
                                    const gyre_store_spec *spec,
                                    gyre_error *error)
{
    size_t n = spec->device_count != 0 ? spec->device_count : 1;

    if (n > GYRE_MAX_DEVICES)
        return gyre_fail(error, GYRE_RANGE, "%zu devices, at most %d allowed",
                         n, GYRE_MAX_DEVICES);
    store->places = gyre_alloc_zero(store->context, n, sizeof(gyre_place));
    store->layout.weights = gyre_alloc_zero(store->context, n, sizeof(double));
    store->layout.devices = (uint32_t)n;
    for (size_t d = 0; store->places != NULL && d < n; d++)
        store->places[d].fd = -1; /* before anything can fail: 0 is a file */
    if (store->places == NULL || store->layout.weights == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for devices");
    for (size_t d = 0; d < n; d++) {
        gyre_place *place = &store->places[d];
        double weight = spec->weights != NULL ? spec->weights[d] : 1.0;
        gyre_status status;

        if (!(weight > 0) || weight > 1e9)
            return gyre_fail(error, GYRE_RANGE,
                             "weight of device %zu is %g; it must be above 0",
                             d, weight);
        store->layout.weights[d] = weight;
        place->path = manifest_path(
            store, spec->devices != NULL ? spec->devices[d] : NULL);
        if (place->path == NULL)
            return gyre_fail(error, GYRE_NO_MEMORY, "no memory for devices");
        place->file = gyre_place_file_name(store, place->path, (uint32_t)d);
        if (place->file == NULL)
            return gyre_fail(error, GYRE_NO_MEMORY, "no memory for devices");
        status = gyre_random_uuid(place->uuid, error);
        if (status == GYRE_OK)
            status = check_blocks(store, (uint32_t)d, error);
        if (status != GYRE_OK)
            return status;
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

static gyre_status check_spec(const gyre_store_spec *spec, gyre_error *error)
{
    if (spec == NULL || spec->size < sizeof(*spec))
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_store_spec.size is too small for this library: "
                         "zero the struct and set size");
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
    status = take_optimizer(store, spec, error);
    if (status == GYRE_OK)
        status = take_codecs(store, spec, error);
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
