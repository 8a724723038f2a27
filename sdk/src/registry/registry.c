/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table: adding modules to it.
 *
 * A module enters whole or not at all: every plugin is checked before the
 * first is added.  One from a file hides a built-in of the same name.
 */
#include "config.h"

#include "registry/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/table.h"

gyre_entry *gyre_table_find(const gyre_registry *registry, const char *kind,
                            const char *name)
{
    for (size_t i = 0; i < registry->count; i++) {
        gyre_entry *entry = registry->entries[i];

        if (!entry->hidden && strcmp(entry->plugin.kind, kind) == 0 &&
            strcmp(entry->plugin.name, name) == 0)
            return entry;
    }
    return NULL;
}

static bool has_module(const gyre_registry *registry, const gyre_module *module)
{
    for (size_t i = 0; i < registry->count; i++) {
        if (registry->entries[i]->given == module->plugins[0])
            return true;
    }
    return false;
}

/* ---- checks that need the table -------------------------------------- */

static gyre_status check_plugins(const gyre_module *module, const char *where,
                                 gyre_error *error)
{
    for (size_t i = 0; i < module->count; i++) {
        const gyre_plugin *plugin = module->plugins[i];
        gyre_status status = gyre_check_plugin(plugin, where, error);

        if (status != GYRE_OK)
            return status;
        for (size_t j = 0; j < i; j++) {
            if (strcmp(plugin->name, module->plugins[j]->name) == 0 &&
                strcmp(plugin->kind, module->plugins[j]->kind) == 0)
                return gyre_fail(error, GYRE_PLUGIN_BAD,
                                 "%s: init: it lists %s twice", where,
                                 plugin->name);
        }
    }
    return GYRE_OK;
}

static gyre_status check_taken(const gyre_registry *registry,
                               const gyre_module *module, const char *where,
                               gyre_error *error)
{
    for (size_t i = 0; i < module->count; i++) {
        const gyre_plugin *plugin = module->plugins[i];
        gyre_entry *old = gyre_table_find(registry, plugin->kind, plugin->name);

        if (old != NULL && old->path != NULL)
            return gyre_fail(error, GYRE_DUPLICATE,
                             "%s: init: %s is already loaded from %s; load "
                             "one of the two, or rename one",
                             where, plugin->name, old->path);
    }
    return GYRE_OK;
}

/* ---- adding ---------------------------------------------------------- */

static gyre_status no_memory(gyre_error *error, const char *where)
{
    return gyre_fail(error, GYRE_NO_MEMORY,
                     "%s: no memory for the plugin table", where);
}

static gyre_status reserve(gyre_context *context, gyre_registry *registry,
                           size_t more, const char *where, gyre_error *error)
{
    size_t wanted = registry->count + more;
    gyre_entry **fresh;

    if (wanted <= registry->room)
        return GYRE_OK;
    wanted += 8;
    fresh = gyre_grow(context, registry->entries, registry->room, wanted,
                      sizeof(registry->entries[0]));
    if (fresh == NULL)
        return no_memory(error, where);
    registry->entries = fresh;
    registry->room = wanted;
    return GYRE_OK;
}

static gyre_entry *make_entry(gyre_context *context, const gyre_plugin *given,
                              const char *path)
{
    gyre_entry *entry = gyre_alloc_zero(context, 1, sizeof(*entry));

    if (entry == NULL)
        return NULL;
    entry->path = gyre_copy_text(context, path);
    if (entry->path == NULL && path != NULL) {
        gyre_free(context, entry, 1, sizeof(*entry));
        return NULL;
    }
    gyre_lift(given, entry);
    return entry;
}

static void free_entry(gyre_context *context, gyre_entry *entry)
{
    gyre_free_text(context, entry->path);
    gyre_free(context, entry, 1, sizeof(*entry));
}

gyre_status gyre_table_add(gyre_context *context, gyre_registry *registry,
                           const gyre_module *module, const char *path,
                           gyre_error *error)
{
    const char *where = path != NULL ? path : "linked-in module";
    size_t before = registry->count;
    gyre_status status;

    if (has_module(registry, module))
        return GYRE_OK;
    status = check_plugins(module, where, error);
    if (status == GYRE_OK)
        status = check_taken(registry, module, where, error);
    if (status == GYRE_OK)
        status = reserve(context, registry, module->count, where, error);
    if (status != GYRE_OK)
        return status;
    for (size_t i = 0; i < module->count; i++) {
        gyre_entry *entry = make_entry(context, module->plugins[i], path);

        if (entry == NULL)
            goto drop_entries;
        registry->entries[registry->count++] = entry;
    }
    for (size_t i = before; i < registry->count; i++) {
        gyre_plugin *plugin = &registry->entries[i]->plugin;
        gyre_entry *old = gyre_table_find(registry, plugin->kind, plugin->name);

        if (old == registry->entries[i])
            continue;
        old->hidden = true;
        gyre_log(context, GYRE_LOG_DEBUG,
                 "%s: its %s takes the place of the one linked in", where,
                 plugin->name);
    }
    return GYRE_OK;

drop_entries:
    while (registry->count > before)
        free_entry(context, registry->entries[--registry->count]);
    return no_memory(error, where);
}

/* ---- life ------------------------------------------------------------ */

static void registry_release(gyre_context *context, void *state)
{
    gyre_registry *registry = state;

    for (size_t i = 0; i < registry->count; i++)
        free_entry(context, registry->entries[i]);
    gyre_free(context, registry->entries, registry->room,
              sizeof(registry->entries[0]));
    for (size_t i = 0; i < registry->seen_count; i++)
        gyre_free_text(context, registry->seen[i].path);
    gyre_free(context, registry->seen, registry->seen_room,
              sizeof(registry->seen[0]));
    pthread_mutex_destroy(&registry->lock);
    gyre_free(context, registry, 1, sizeof(*registry));
}

static gyre_status registry_make(gyre_context *context, gyre_registry **out,
                                 gyre_error *error)
{
    gyre_registry *registry = gyre_alloc_zero(context, 1, sizeof(*registry));
    gyre_status status = GYRE_OK;

    if (registry == NULL)
        return no_memory(error, "context");
    if (pthread_mutex_init(&registry->lock, NULL) != 0) {
        gyre_free(context, registry, 1, sizeof(*registry));
        return gyre_fail(error, GYRE_SYSTEM, "registry: no mutex");
    }
    for (size_t i = 0; gyre_builtin_modules[i] != NULL; i++) {
        const gyre_module *module = gyre_builtin_modules[i]();

        status = gyre_check_module(module, "linked-in module", error);
        if (status == GYRE_OK)
            status = gyre_table_add(context, registry, module, NULL, error);
        if (status != GYRE_OK) {
            registry_release(context, registry);
            return status;
        }
    }
    *out = registry;
    return GYRE_OK;
}

gyre_status gyre_registry_get(gyre_context *context, gyre_registry **out,
                              gyre_error *error)
{
    gyre_status status = GYRE_OK;
    gyre_registry *registry = NULL;

    if (context == NULL)
        return gyre_fail(error, GYRE_INVALID, "registry: context is NULL");
    registry = gyre_context_room(context, GYRE_ROOM_REGISTRY);
    if (registry == NULL) {
        gyre_context_lock(context);
        registry = gyre_context_room(context, GYRE_ROOM_REGISTRY);
        if (registry == NULL) {
            status = registry_make(context, &registry, error);
            if (status == GYRE_OK)
                gyre_context_set_room(context, GYRE_ROOM_REGISTRY, registry,
                                      registry_release);
        }
        gyre_context_unlock(context);
    }
    if (status == GYRE_OK)
        *out = registry;
    return status;
}

gyre_status gyre_plugin_add(gyre_context *context,
                            gyre_module_entry_function entry, gyre_error *error)
{
    gyre_registry *registry = NULL;
    const gyre_module *module;
    gyre_status status;

    if (entry == NULL)
        return gyre_fail(error, GYRE_INVALID, "gyre_plugin_add: NULL");
    status = gyre_registry_get(context, &registry, error);
    if (status != GYRE_OK)
        return status;
    module = entry();
    status = gyre_check_module(module, "linked-in module", error);
    if (status != GYRE_OK)
        return status;
    pthread_mutex_lock(&registry->lock);
    status = gyre_table_add(context, registry, module, NULL, error);
    pthread_mutex_unlock(&registry->lock);
    return status;
}
