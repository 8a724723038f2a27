/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a manifest: every field is checked before it is used. */
#include "config.h"

#include "store/manifest.h"
#include "store/place.h"
#include "store/plugins.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    gyre_store *store;
    const char *from; /* file name, for messages */
    gyre_error *error;
} reader;

static gyre_status bad(const reader *r, const char *field, const char *want)
{
    return gyre_fail(r->error, GYRE_FORMAT, "%s: field \"%s\" must be %s",
                     r->from, field, want);
}

static gyre_status no_memory(const reader *r)
{
    return gyre_fail(r->error, GYRE_NO_MEMORY, "%s: no memory", r->from);
}

static bool get_u64(const json_t *object, const char *key, uint64_t max,
                    uint64_t *out)
{
    const json_t *v = json_object_get(object, key);

    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        (uint64_t)json_integer_value(v) > max)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

/* Take a text; `want` describes the object, `field` in the manifest. */
static gyre_status take_text(const reader *r, const json_t *object,
                             const char *key, const char *field,
                             const char *want, char **out)
{
    const char *text = json_string_value(json_object_get(object, key));

    if (text == NULL)
        return bad(r, field, want);
    *out = gyre_copy_text(r->store->context, text);
    return *out != NULL ? GYRE_OK : no_memory(r);
}

/* `field` in the manifest. */
static gyre_status read_settings(const reader *r, json_t *settings,
                                 const char *field, gyre_settings *out)
{
    gyre_context *context = r->store->context;
    gyre_status status =
        gyre_settings_room(context, json_object_size(settings), out, r->error);
    size_t n = 0;
    const char *key;
    json_t *value;

    json_object_foreach(settings, key, value)
    {
        if (status == GYRE_OK && !json_is_number(value))
            status = bad(r, field, "numbers");
        if (status == GYRE_OK)
            status = gyre_settings_put(context, out, n++, key,
                                       json_number_value(value), r->error);
    }
    return status;
}

/* What is not said is f32. */
static bool read_codec(const json_t *object, const char *key,
                       gyre_state_codec *codec)
{
    const json_t *name = json_object_get(object, key);

    *codec = GYRE_STATE_F32;
    return name == NULL || gyre_state_parse(json_string_value(name), codec);
}

static gyre_status read_optimizer(const reader *r, json_t *object)
{
    gyre_store *store = r->store;
    json_t *slots = json_object_get(object, "slots");
    const char *hash =
        json_string_value(json_object_get(object, "kernel_hash"));
    static const char want[] = "an object with name, version, variant";
    uint64_t version;
    gyre_status status =
        take_text(r, object, "name", "optimizer", want, &store->optimizer);

    if (status == GYRE_OK)
        status = take_text(r, object, "version", "optimizer", want,
                           &store->optimizer_version);
    if (status == GYRE_OK)
        status =
            take_text(r, object, "variant", "optimizer", want, &store->variant);
    if (status != GYRE_OK)
        return status;
    if (!get_u64(object, "state_version", UINT32_MAX, &version) ||
        hash == NULL || sscanf(hash, "%" SCNx64, &store->kernel_hash) != 1)
        return bad(r, "optimizer", "an object with state_version, kernel_hash");
    store->state_version = (uint32_t)version;
    if (!json_is_array(slots) || json_array_size(slots) > GYRE_OPT_MAX_SLOTS)
        return bad(r, "optimizer.slots", "an array of at most 8");
    store->layout.slots = (uint32_t)json_array_size(slots);
    for (uint32_t i = 0; i < store->layout.slots; i++) {
        json_t *slot = json_array_get(slots, i);

        status = take_text(r, slot, "name", "optimizer.slots",
                           "objects with a name", &store->slot_names[i]);
        if (status != GYRE_OK)
            return status;
        store->slot_initial[i] =
            (float)json_number_value(json_object_get(slot, "initial"));
        if (!read_codec(slot, "codec", &store->layout.codecs[1 + i]))
            return bad(r, "optimizer.slots", "objects with a known codec");
    }
    return read_settings(r, json_object_get(object, "parameters"),
                         "optimizer.parameters", &store->settings);
}

static gyre_status read_compressor(const reader *r, json_t *object)
{
    gyre_store *store = r->store;
    static const char want[] = "null, or an object with name, version, format";
    uint64_t format;
    gyre_status status;

    if (object == NULL || json_is_null(object))
        return GYRE_OK;
    status =
        take_text(r, object, "name", "compressor", want, &store->compressor);
    if (status == GYRE_OK)
        status = take_text(r, object, "version", "compressor", want,
                           &store->compressor_version);
    if (status != GYRE_OK)
        return status;
    if (!get_u64(object, "format", UINT32_MAX, &format))
        return bad(r, "compressor", want);
    store->compressor_format = (uint32_t)format;
    if (!gyre_residual_parse(
            json_string_value(json_object_get(object, "residual")),
            &store->residual_mode))
        return bad(r, "compressor.residual", "committed, volatile or off");
    store->layout.residual = store->residual_mode == GYRE_RESIDUAL_COMMITTED;
    return read_settings(r, json_object_get(object, "parameters"),
                         "compressor.parameters", &store->compressor_settings);
}

static gyre_status read_devices(const reader *r, json_t *array)
{
    gyre_store *store = r->store;
    size_t n = json_array_size(array);

    if (n < 1 || n > GYRE_MAX_DEVICES)
        return bad(r, "devices", "an array of 1 to 64");
    if (!gyre_place_table(store, n))
        return no_memory(r);
    for (size_t d = 0; d < n; d++) {
        json_t *device = json_array_get(array, d);
        const char *uuid = json_string_value(json_object_get(device, "uuid"));
        double weight = json_number_value(json_object_get(device, "weight"));
        gyre_place *place = &store->places[d];
        gyre_status status =
            take_text(r, device, "path", "devices",
                      "objects with path, uuid, weight", &place->path);

        if (status != GYRE_OK)
            return status;
        if (uuid == NULL || !gyre_uuid_parse(uuid, place->uuid) ||
            !(weight > 0))
            return bad(r, "devices", "objects with path, uuid, weight");
        place->file = gyre_place_file_name(store, place->path, (uint32_t)d);
        if (place->file == NULL)
            return no_memory(r);
        store->layout.weights[d] = weight;
    }
    return GYRE_OK;
}

static bool read_tensor(json_t *object, gyre_tensor *out)
{
    json_t *shape = json_object_get(object, "shape");
    json_t *frozen = json_object_get(object, "frozen");
    uint64_t group;

    memset(out, 0, sizeof(*out));
    out->name = json_string_value(json_object_get(object, "name"));
    if (out->name == NULL || !json_is_array(shape) ||
        json_array_size(shape) > GYRE_MAX_RANK ||
        !get_u64(object, "group", 65535, &group))
        return false;
    out->rank = (uint32_t)json_array_size(shape);
    out->group = (uint32_t)group;
    out->flags = json_is_true(frozen) ? GYRE_TENSOR_FROZEN : 0;
    for (uint32_t k = 0; k < out->rank; k++) {
        const json_t *v = json_array_get(shape, k);

        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return false;
        out->shape[k] = (uint64_t)json_integer_value(v);
    }
    return true;
}

static gyre_status read_tensors(const reader *r, json_t *array)
{
    gyre_store *store = r->store;
    size_t n = json_array_size(array);
    gyre_tensor *tensors = gyre_alloc_zero(store->context, n, sizeof(*tensors));
    gyre_status status = GYRE_OK;

    if (tensors == NULL && n > 0)
        return no_memory(r);
    for (size_t i = 0; i < n && status == GYRE_OK; i++)
        if (!read_tensor(json_array_get(array, i), &tensors[i]))
            status =
                bad(r, "tensors", "objects with name, shape, group, frozen");
    if (status == GYRE_OK)
        status = gyre_layout_tensors(store->context, &store->layout, tensors, n,
                                     r->error);
    gyre_free(store->context, tensors, n, sizeof(*tensors));
    return status;
}

static gyre_status read_numbers(const reader *r, json_t *root)
{
    gyre_store *store = r->store;
    gyre_layout *layout = &store->layout;
    uint64_t version, grain, chunk, align, spill;
    const char *uuid, *seed;

    if (!get_u64(root, "version", UINT32_MAX, &version) ||
        version != GYRE_MANIFEST_VERSION)
        return bad(r, "version",
                   "2, the format this library reads; use the "
                   "Gyre that wrote it, export there and import here");
    uuid = json_string_value(json_object_get(root, "uuid"));
    if (uuid == NULL || !gyre_uuid_parse(uuid, store->uuid))
        return bad(r, "uuid", "a uuid");
    gyre_uuid_text(store->uuid, store->uuid_text);
    if (!get_u64(root, "generation", INT64_MAX, &store->generation))
        return bad(r, "generation", "a number");
    if (!get_u64(root, "grain", GYRE_GRAIN, &grain) || grain != GYRE_GRAIN)
        return bad(r, "grain", "1024");
    if (!get_u64(root, "chunk_elements", 1ull << 40, &chunk) || chunk == 0 ||
        chunk % GYRE_GRAIN != 0)
        return bad(r, "chunk_elements", "a multiple of 1024");
    if (!get_u64(root, "align", 1u << 24, &align) || align < GYRE_PAGE ||
        (align & (align - 1)) != 0)
        return bad(r, "align", "a power of two of at least 4096");
    if (!get_u64(root, "blob_capacity", 1ull << 40, &layout->blob_capacity) ||
        !get_u64(root, "manifest_room", 1ull << 40, &layout->manifest_bytes))
        return bad(r, "blob_capacity, manifest_room", "numbers");
    if (!read_codec(root, "parameter_codec", &layout->codecs[0]) ||
        layout->codecs[0] == GYRE_STATE_Q8)
        return bad(r, "parameter_codec", "f32, bf16 or bf16-stochastic");
    if (!get_u64(root, "spill_grain", 1u << 20, &spill) || spill % 8 != 0 ||
        (spill != 0 && spill < GYRE_GRAIN * sizeof(float)))
        return bad(r, "spill_grain", "0, or a multiple of 8 from 4096");
    layout->gradient_grain = (uint32_t)spill;
    store->inexact = json_is_false(json_object_get(root, "exact"));
    seed = json_string_value(json_object_get(root, "seed"));
    if (seed != NULL && sscanf(seed, "%" SCNx64, &store->seed) != 1)
        return bad(r, "seed", "hexadecimal digits");
    layout->chunk_grains = chunk / GYRE_GRAIN;
    layout->align = (uint32_t)align;
    layout->versions = json_is_true(json_object_get(root, "in_place")) ? 1 : 2;
    return GYRE_OK;
}

gyre_status gyre_manifest_parse(gyre_store *store, const char *text,
                                size_t bytes, const char *from,
                                gyre_error *error)
{
    json_error_t trouble;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &trouble);
    reader r = {store, from, error};
    const char *format;
    gyre_status status;

    if (root == NULL)
        return gyre_fail(error, GYRE_FORMAT, "%s, line %d: %s", from,
                         trouble.line, trouble.text);
    format = json_string_value(json_object_get(root, "format"));
    if (format == NULL || strcmp(format, GYRE_MANIFEST_NAME) != 0) {
        json_decref(root);
        return bad(&r, "format", "\"" GYRE_MANIFEST_NAME "\"");
    }
    status = read_numbers(&r, root);
    if (status == GYRE_OK)
        status = read_optimizer(&r, json_object_get(root, "optimizer"));
    if (status == GYRE_OK)
        status = read_compressor(&r, json_object_get(root, "compressor"));
    if (status == GYRE_OK)
        status = read_devices(&r, json_object_get(root, "devices"));
    if (status == GYRE_OK)
        status = read_tensors(&r, json_object_get(root, "tensors"));
    json_decref(root);
    if (status == GYRE_OK)
        status = gyre_layout_place(store->context, &store->layout, error);
    return status;
}

gyre_status gyre_manifest_read(gyre_store *store, gyre_error *error)
{
    char path[4096];
    char *text;
    FILE *file;
    long bytes;
    gyre_status status;

    snprintf(path, sizeof(path), "%s/manifest.json", store->path);
    file = fopen(path, "rbe");
    if (file == NULL && errno == ENOENT)
        return gyre_fail(error, GYRE_NOT_FOUND,
                         "%s holds no store (there is no manifest.json in it)",
                         store->path);
    if (file == NULL)
        return gyre_fail_errno(error, GYRE_IO, errno, "cannot open %s", path);
    fseek(file, 0, SEEK_END);
    bytes = ftell(file);
    rewind(file);
    text = bytes >= 0 ? gyre_alloc(store->context, (size_t)bytes + 1, 1) : NULL;
    if (text == NULL) {
        fclose(file);
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for %s", path);
    }
    if (fread(text, 1, (size_t)bytes, file) == (size_t)bytes)
        status = gyre_manifest_parse(store, text, (size_t)bytes, path, error);
    else
        status = gyre_fail(error, GYRE_IO, "cannot read %s", path);
    fclose(file);
    gyre_free(store->context, text, (size_t)bytes + 1, 1);
    return status;
}
