/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compressor of a store: taken from spec when it is made, found again and
 * held against the manifest when it is opened.
 *
 * The layout must be known without the plugin (a read-only open, fsck), so what
 * it takes from the codec is a number in the manifest: the room of one grain in
 * a gradient region.
 */
#include "config.h"

#include "registry/compressor.h"
#include "store/plugins.h"

#include <string.h>

static const char *const residual_names[] = {"committed", "volatile", "off"};

const char *gyre_residual_name(gyre_residual residual)
{
    return (unsigned)residual < 3 ? residual_names[residual] : NULL;
}

bool gyre_residual_parse(const char *name, gyre_residual *out)
{
    for (int i = 0; name != NULL && i < 3; i++)
        if (strcmp(name, residual_names[i]) == 0) {
            *out = (gyre_residual)i;
            return true;
        }
    return false;
}

/*
 * A run has a wire block of its own, and a chunk no more runs than grains: with
 * room for a block of one grain each, whatever the runs are, all blocks fit,
 * since a block of k grains is smaller than k blocks of one.
 */
uint32_t gyre_layout_gradient_room(const gyre_codec *codec)
{
    uint64_t most = GYRE_GRAIN * sizeof(float);

    for (uint64_t n = 1; codec != NULL && n <= GYRE_GRAIN; n++)
        if (gyre_codec_bound(codec, n) > most)
            most = gyre_codec_bound(codec, n);
    return (uint32_t)gyre_round_up(most, 8);
}

/* ---- making ----------------------------------------------------------- */

static gyre_status copy_settings(gyre_store *store,
                                 const gyre_setting *settings, size_t count,
                                 gyre_error *error)
{
    store->compressor_settings =
        gyre_alloc_zero(store->context, count, sizeof(gyre_setting));
    if (store->compressor_settings == NULL && count > 0)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory");
    store->compressor_setting_count = count;
    for (size_t i = 0; i < count; i++) {
        gyre_setting *to = &store->compressor_settings[i];

        to->value = settings[i].value;
        to->name = gyre_copy_text(store->context, settings[i].name);
        if (to->name == NULL)
            return gyre_fail(error, GYRE_NO_MEMORY, "no memory");
    }
    return GYRE_OK;
}

/* What the manifest will say of the codec. */
static gyre_status describe(gyre_store *store, gyre_error *error)
{
    const gyre_plugin *plugin = gyre_codec_plugin(store->codec);
    size_t count = gyre_codec_parameter_count(store->codec);
    gyre_setting *settings =
        gyre_alloc(store->context, count, sizeof(*settings));
    gyre_status status;

    if (settings == NULL && count > 0)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory");
    for (size_t i = 0; i < count; i++)
        settings[i] = (gyre_setting){plugin->parameters[i].name,
                                     gyre_codec_values(store->codec)[i]};
    status = copy_settings(store, settings, count, error);
    gyre_free(store->context, settings, count, sizeof(*settings));
    store->compressor = gyre_copy_text(store->context, plugin->name);
    store->compressor_version = gyre_copy_text(store->context, plugin->version);
    store->compressor_format = gyre_codec_format(store->codec);
    if (status == GYRE_OK &&
        (store->compressor == NULL || store->compressor_version == NULL))
        status = gyre_fail(error, GYRE_NO_MEMORY, "no memory");
    return status;
}

gyre_status gyre_store_take_compressor(gyre_store *store,
                                       const gyre_store_spec *spec,
                                       gyre_error *error)
{
    gyre_layout *layout = &store->layout;
    gyre_status status = GYRE_OK;

    if (gyre_residual_name(spec->residual) == NULL)
        return gyre_fail(error, GYRE_RANGE,
                         "residual is %d; 0 (committed), 1 (volatile) or 2 "
                         "(off) is needed",
                         (int)spec->residual);
    if (spec->compressor == NULL && spec->compressor_setting_count > 0)
        return gyre_fail(error, GYRE_INVALID,
                         "%zu compressor settings are given (the first is "
                         "\"%.100s\") and no compressor: name one, or give no "
                         "settings",
                         spec->compressor_setting_count,
                         spec->compressor_settings != NULL &&
                                 spec->compressor_settings[0].name != NULL
                             ? spec->compressor_settings[0].name
                             : "");
    if (spec->compressor != NULL) {
        status = gyre_codec_create(
            store->context, spec->compressor, spec->compressor_settings,
            spec->compressor_setting_count, &store->codec, error);
        if (status != GYRE_OK)
            return gyre_fail_prefix(error, status, "compressor");
        status = describe(store, error);
        store->residual_mode = spec->residual;
    }
    layout->residual = spec->compressor != NULL &&
                       store->residual_mode == GYRE_RESIDUAL_COMMITTED;
    layout->gradient_grain =
        spec->spill ? gyre_layout_gradient_room(store->codec) : 0;
    return status;
}

gyre_status gyre_store_inherit_compressor(gyre_store *to,
                                          const gyre_store *from,
                                          gyre_error *error)
{
    to->residual_mode = from->residual_mode;
    to->layout.residual = from->layout.residual;
    to->layout.gradient_grain = from->layout.gradient_grain;
    to->inexact = from->inexact;
    if (from->compressor == NULL)
        return GYRE_OK;
    to->compressor = gyre_copy_text(from->context, from->compressor);
    to->compressor_version =
        gyre_copy_text(from->context, from->compressor_version);
    to->compressor_format = from->compressor_format;
    if (to->compressor == NULL || to->compressor_version == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory");
    return copy_settings(to, from->compressor_settings,
                         from->compressor_setting_count, error);
}

void gyre_store_free_compressor(gyre_store *store)
{
    gyre_context *context = store->context;

    for (size_t i = 0; i < store->compressor_setting_count; i++)
        gyre_free_text(context,
                       (char *)(uintptr_t)store->compressor_settings[i].name);
    gyre_free(context, store->compressor_settings,
              store->compressor_setting_count, sizeof(gyre_setting));
    gyre_free_text(context, store->compressor);
    gyre_free_text(context, store->compressor_version);
    gyre_codec_destroy(store->codec);
}

/* ---- opening ---------------------------------------------------------- */

static gyre_status differs(const gyre_store *store, const char *what,
                           uint32_t had, uint32_t has, gyre_error *error)
{
    return gyre_fail(error, GYRE_LAYOUT,
                     "store %s was made by compressor %s %s, %s %u; the plugin "
                     "found here is %s, %s %u: use the plugin it was made "
                     "with, or export the parameters and make a new store",
                     store->path, store->compressor, store->compressor_version,
                     what, had, gyre_codec_plugin(store->codec)->version, what,
                     has);
}

gyre_status gyre_store_attach_compressor(gyre_store *store, gyre_error *error)
{
    gyre_error why = {GYRE_OK, ""};
    uint32_t room;
    gyre_status status;

    if (store->compressor == NULL)
        return GYRE_OK;
    status = gyre_codec_create(
        store->context, store->compressor, store->compressor_settings,
        store->compressor_setting_count, &store->codec, &why);
    /* Nothing is compressed, and nothing that is kept is. */
    if (status != GYRE_OK && store->read_only)
        return GYRE_OK;
    if (status != GYRE_OK) {
        if (error != NULL)
            *error = why;
        return gyre_fail_prefix(error, status, "store %s, compressor",
                                store->path);
    }
    if (gyre_codec_format(store->codec) != store->compressor_format)
        return differs(store, "format", store->compressor_format,
                       gyre_codec_format(store->codec), error);
    room = gyre_layout_gradient_room(store->codec);
    if (store->layout.gradient_grain != 0 &&
        store->layout.gradient_grain < room)
        return differs(store, "bytes per grain", store->layout.gradient_grain,
                       room, error);
    return GYRE_OK;
}
