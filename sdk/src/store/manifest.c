/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing the manifest; replacing it by rename is the moment at which create
 * and reshard take effect.
 */
#include "config.h"

#include "store/manifest.h"
#include "store/place.h"
#include "store/plugins.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *optimizer_json(const gyre_store *store)
{
    json_t *object = json_object();
    json_t *settings = json_object();
    json_t *slots = json_array();
    char hash[20];

    for (size_t i = 0; i < store->setting_count; i++)
        json_object_set_new(settings, store->settings[i].name,
                            json_real(store->settings[i].value));
    for (uint32_t i = 0; i < store->layout.slots; i++)
        json_array_append_new(
            slots, json_pack("{s:s, s:f, s:s}", "name", store->slot_names[i],
                             "initial", (double)store->slot_initial[i], "codec",
                             gyre_state_name(store->layout.codecs[1 + i])));
    snprintf(hash, sizeof(hash), "%016" PRIx64, store->kernel_hash);
    json_object_set_new(object, "name", json_string(store->optimizer));
    json_object_set_new(object, "version",
                        json_string(store->optimizer_version));
    json_object_set_new(object, "state_version",
                        json_integer(store->state_version));
    json_object_set_new(object, "variant", json_string(store->variant));
    json_object_set_new(object, "kernel_hash", json_string(hash));
    json_object_set_new(object, "parameters", settings);
    json_object_set_new(object, "slots", slots);
    return object;
}

/* null: there is none. */
static json_t *compressor_json(const gyre_store *store)
{
    json_t *settings;

    if (store->compressor == NULL)
        return json_null();
    settings = json_object();
    for (size_t i = 0; i < store->compressor_setting_count; i++)
        json_object_set_new(settings, store->compressor_settings[i].name,
                            json_real(store->compressor_settings[i].value));
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "name", store->compressor,
                     "version", store->compressor_version, "format",
                     (json_int_t)store->compressor_format, "residual",
                     gyre_residual_name(store->residual_mode), "parameters",
                     settings);
}

static json_t *devices_json(const gyre_store *store)
{
    json_t *array = json_array();
    char uuid[37];

    for (uint32_t d = 0; d < store->layout.devices; d++) {
        const gyre_place *place = &store->places[d];

        gyre_uuid_text(place->uuid, uuid);
        json_array_append_new(
            array, json_pack("{s:s, s:s, s:f}", "path", place->path, "uuid",
                             uuid, "weight", store->layout.weights[d]));
    }
    return array;
}

static json_t *tensors_json(const gyre_store *store)
{
    json_t *array = json_array();

    for (size_t i = 0; i < store->layout.tensor_count; i++) {
        const gyre_tensor_state *t = &store->layout.tensors[i];
        json_t *shape = json_array();

        for (uint32_t k = 0; k < t->rank; k++)
            json_array_append_new(shape, json_integer((json_int_t)t->shape[k]));
        json_array_append_new(
            array, json_pack("{s:s, s:o, s:i, s:b}", "name", t->name, "shape",
                             shape, "group", (int)t->group, "frozen",
                             (int)(t->flags & GYRE_TENSOR_FROZEN)));
    }
    return array;
}

static bool is_utf8(const char *text)
{
    json_t *string = json_string(text);

    json_decref(string);
    return string != NULL;
}

/* JSON holds UTF-8 only; what is not would be left out without a word. */
static gyre_status check_texts(const gyre_store *store, gyre_error *error)
{
    for (size_t i = 0; i < store->layout.tensor_count; i++)
        if (!is_utf8(store->layout.tensors[i].name))
            return gyre_fail(error, GYRE_INVALID,
                             "the name of tensor %zu is not UTF-8", i);
    for (uint32_t d = 0; d < store->layout.devices; d++)
        if (!is_utf8(store->places[d].path))
            return gyre_fail(error, GYRE_INVALID,
                             "the path of device %u is not UTF-8", d);
    return GYRE_OK;
}

/* jansson reports a failed request by leaving the part out. */
static bool is_complete(const gyre_store *store, json_t *root)
{
    json_t *optimizer = json_object_get(root, "optimizer");
    json_t *compressor = json_object_get(root, "compressor");

    return json_object_size(root) == 18 &&
           json_object_size(compressor) ==
               (store->compressor != NULL ? 5 : 0) &&
           json_object_size(json_object_get(compressor, "parameters")) ==
               store->compressor_setting_count &&
           json_object_size(optimizer) == 7 &&
           json_array_size(json_object_get(root, "devices")) ==
               store->layout.devices &&
           json_array_size(json_object_get(root, "tensors")) ==
               store->layout.tensor_count &&
           json_array_size(json_object_get(optimizer, "slots")) ==
               store->layout.slots &&
           json_object_size(json_object_get(optimizer, "parameters")) ==
               store->setting_count;
}

gyre_status gyre_manifest_text(const gyre_store *store, char **out,
                               gyre_error *error)
{
    const gyre_layout *layout = &store->layout;
    gyre_status status = check_texts(store, error);
    char *text = NULL, *copy, seed[20];
    json_t *root;

    if (status != GYRE_OK)
        return status;
    root = json_object();
    json_object_set_new(root, "format", json_string(GYRE_MANIFEST_NAME));
    json_object_set_new(root, "version", json_integer(GYRE_MANIFEST_VERSION));
    json_object_set_new(root, "uuid", json_string(store->uuid_text));
    json_object_set_new(root, "generation",
                        json_integer((json_int_t)store->generation));
    json_object_set_new(root, "grain", json_integer(GYRE_GRAIN));
    json_object_set_new(
        root, "chunk_elements",
        json_integer((json_int_t)(layout->chunk_grains * GYRE_GRAIN)));
    json_object_set_new(root, "align", json_integer(layout->align));
    json_object_set_new(root, "in_place", json_boolean(layout->versions == 1));
    json_object_set_new(root, "blob_capacity",
                        json_integer((json_int_t)layout->blob_capacity));
    json_object_set_new(root, "manifest_room",
                        json_integer((json_int_t)layout->manifest_bytes));
    json_object_set_new(root, "parameter_codec",
                        json_string(gyre_state_name(layout->codecs[0])));
    snprintf(seed, sizeof(seed), "%016" PRIx64, store->seed);
    json_object_set_new(root, "seed", json_string(seed));
    json_object_set_new(root, "exact", json_boolean(!store->inexact));
    json_object_set_new(root, "spill_grain",
                        json_integer(layout->gradient_grain));
    json_object_set_new(root, "optimizer", optimizer_json(store));
    json_object_set_new(root, "compressor", compressor_json(store));
    json_object_set_new(root, "devices", devices_json(store));
    json_object_set_new(root, "tensors", tensors_json(store));
    if (is_complete(store, root))
        text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(root);
    copy = gyre_copy_text(store->context, text);
    free(text);
    if (copy == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for the manifest");
    *out = copy;
    return GYRE_OK;
}

gyre_status gyre_file_replace(const gyre_store *store, const char *name,
                              const char *text, gyre_error *error)
{
    char aside[4096], path[4096];
    gyre_status status;

    snprintf(aside, sizeof(aside), "%s/%s.new", store->path, name);
    snprintf(path, sizeof(path), "%s/%s", store->path, name);
    status = gyre_io_put_file(store->recorder, aside, text, error);
    if (status != GYRE_OK)
        return status;
    status = gyre_io_rename(store->recorder, aside, path, error);
    if (status != GYRE_OK) {
        (void)gyre_io_remove(store->recorder, aside);
        return status;
    }
    return gyre_io_sync_folder(store->recorder, store->path, error);
}

gyre_status gyre_manifest_write(gyre_store *store, gyre_error *error)
{
    char *text;
    gyre_status status = gyre_manifest_text(store, &text, error);

    if (status != GYRE_OK)
        return status;
    status = gyre_file_replace(store, "manifest.json", text, error);
    gyre_free_text(store->context, text);
    return status;
}

gyre_status gyre_manifest_note_inexact(gyre_store *store, gyre_error *error)
{
    gyre_status status;

    if (store->inexact)
        return GYRE_OK;
    store->inexact = true;
    status = gyre_manifest_write(store, error);
    store->inexact = status == GYRE_OK;
    return status;
}
