/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of a plugin as a store keeps them: all of them, names owned. */
#include "config.h"

#include "store/plugins.h"

gyre_status gyre_settings_room(gyre_context *context, size_t count,
                               gyre_settings *out, gyre_error *error)
{
    out->at = gyre_alloc_zero(context, count, sizeof(*out->at));
    if (out->at == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for %zu settings",
                         count);
    out->count = count;
    return GYRE_OK;
}

gyre_status gyre_settings_put(gyre_context *context, gyre_settings *settings,
                              size_t index, const char *name, double value,
                              gyre_error *error)
{
    gyre_setting *to = &settings->at[index];

    to->value = value;
    to->name = gyre_copy_text(context, name);
    if (to->name == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for setting %s",
                         name);
    return GYRE_OK;
}

gyre_status gyre_settings_of(gyre_context *context, const gyre_plugin *plugin,
                             const double *values, size_t count,
                             gyre_settings *out, gyre_error *error)
{
    gyre_status status = gyre_settings_room(context, count, out, error);

    for (size_t i = 0; status == GYRE_OK && i < count; i++)
        status = gyre_settings_put(context, out, i, plugin->parameters[i].name,
                                   values[i], error);
    return status;
}

gyre_status gyre_settings_copy(gyre_context *context, const gyre_settings *from,
                               gyre_settings *out, gyre_error *error)
{
    gyre_status status = gyre_settings_room(context, from->count, out, error);

    for (size_t i = 0; status == GYRE_OK && i < from->count; i++)
        status = gyre_settings_put(context, out, i, from->at[i].name,
                                   from->at[i].value, error);
    return status;
}

void gyre_settings_free(gyre_context *context, gyre_settings *settings)
{
    for (size_t i = 0; i < settings->count; i++)
        gyre_free_text(context, (char *)(uintptr_t)settings->at[i].name);
    gyre_free(context, settings->at, settings->count, sizeof(*settings->at));
    *settings = (gyre_settings){NULL, 0};
}
