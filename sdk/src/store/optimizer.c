/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The optimizer of a store: taken from spec when it is made, inherited by the
 * next generation, found again and held against the manifest when it is opened.
 */
#include "config.h"

#include "store/plugins.h"

#include <stdio.h>
#include <string.h>

/* ---- making ----------------------------------------------------------- */

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

gyre_status gyre_store_take_optimizer(gyre_store *store,
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
    return take_codecs(store, spec, error);
}

gyre_status gyre_store_inherit_optimizer(gyre_store *to, const gyre_store *from,
                                         gyre_error *error)
{
    gyre_context *context = from->context;
    bool whole;

    to->optimizer = gyre_copy_text(context, from->optimizer);
    to->optimizer_version = gyre_copy_text(context, from->optimizer_version);
    to->variant = gyre_copy_text(context, from->variant);
    to->state_version = from->state_version;
    to->kernel_hash = from->kernel_hash;
    to->layout.slots = from->layout.slots;
    memcpy(to->layout.codecs, from->layout.codecs, sizeof(to->layout.codecs));
    to->seed = from->seed;
    to->settings =
        gyre_alloc_zero(context, from->setting_count, sizeof(gyre_setting));
    whole = to->optimizer != NULL && to->optimizer_version != NULL &&
            to->variant != NULL && to->settings != NULL;
    if (to->settings != NULL)
        to->setting_count = from->setting_count;
    for (size_t i = 0; whole && i < from->setting_count; i++) {
        to->settings[i].name = gyre_copy_text(context, from->settings[i].name);
        to->settings[i].value = from->settings[i].value;
        whole = to->settings[i].name != NULL;
    }
    for (uint32_t i = 0; whole && i < from->layout.slots; i++) {
        to->slot_names[i] = gyre_copy_text(context, from->slot_names[i]);
        to->slot_initial[i] = from->slot_initial[i];
        whole = to->slot_names[i] != NULL;
    }
    return whole ? GYRE_OK : gyre_fail(error, GYRE_NO_MEMORY, "no memory");
}

void gyre_store_free_optimizer(gyre_store *store)
{
    gyre_context *context = store->context;

    for (size_t i = 0; i < store->setting_count; i++)
        gyre_free_text(context, (char *)(uintptr_t)store->settings[i].name);
    gyre_free(context, store->settings, store->setting_count,
              sizeof(gyre_setting));
    for (size_t i = 0; i < GYRE_OPT_MAX_SLOTS; i++)
        gyre_free_text(context, store->slot_names[i]);
    gyre_free_text(context, store->optimizer);
    gyre_free_text(context, store->optimizer_version);
    gyre_free_text(context, store->variant);
    gyre_opt_destroy(store->opt);
}

/* ---- opening ---------------------------------------------------------- */

static gyre_status differs(const gyre_store *store, const char *what,
                           const char *had, const char *has, gyre_error *error)
{
    return gyre_fail(error, GYRE_LAYOUT,
                     "store %s was made by optimizer %s %s, %s %s; the plugin "
                     "found here is %s, %s %s: use the plugin it was made "
                     "with, or export the parameters and make a new store",
                     store->path, store->optimizer, store->optimizer_version,
                     what, had, gyre_opt_plugin(store->opt)->version, what,
                     has);
}

gyre_status gyre_store_attach_optimizer(gyre_store *store, gyre_error *error)
{
    char had[24], has[24];
    gyre_status status;

    status = gyre_opt_create(store->context, store->optimizer, store->settings,
                             store->setting_count, &store->opt, error);
    if (status != GYRE_OK)
        return gyre_fail_prefix(error, status, "store %s", store->path);
    if (strcmp(gyre_opt_variant(store->opt), store->variant) != 0)
        return differs(store, "variant", store->variant,
                       gyre_opt_variant(store->opt), error);
    snprintf(had, sizeof(had), "%u", store->state_version);
    snprintf(has, sizeof(has), "%u", gyre_opt_state_version(store->opt));
    if (strcmp(had, has) != 0)
        return differs(store, "state version", had, has, error);
    for (uint32_t i = 0; i < GYRE_OPT_MAX_SLOTS; i++) {
        const char *a = i < store->layout.slots ? store->slot_names[i] : "-";
        const char *b = i < gyre_opt_slot_count(store->opt)
                            ? gyre_opt_slot_name(store->opt, i)
                            : "-";

        if (strcmp(a, b) != 0)
            return differs(store, "slot", a, b, error);
    }
    snprintf(had, sizeof(had), "%016llx",
             (unsigned long long)store->kernel_hash);
    snprintf(has, sizeof(has), "%016llx",
             (unsigned long long)gyre_opt_kernel_hash(store->opt));
    if (strcmp(had, has) != 0)
        return differs(store, "kernel", had, has, error);
    return GYRE_OK;
}
