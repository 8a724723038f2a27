/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking for modules: option plugin_path, GYRE_PLUGIN_PATH, installed folder.
 *
 * A plugin NAME is first sought in NAME.so along the path, then among those
 * linked in, and only then in all other modules, so that nothing is opened
 * that need not be.  A file of the right name that cannot be loaded is an
 * error, not a reason to fall back: its author would test something else.
 */
#include "config.h"

#include "registry/registry.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "registry/table.h"

#ifndef GYRE_PLUGIN_DIR
#define GYRE_PLUGIN_DIR "/usr/local/lib/gyre/plugins"
#endif

enum { PATH_MAX_BYTES = 4096 };

static const char *environment_path(void)
{
    /* Code is loaded from there: not in a set-user-id program. */
    const char *path = secure_getenv("GYRE_PLUGIN_PATH");

    return path != NULL ? path : "";
}

/* What does not fit ends in "...": a folder that is not named was looked in,
 * too. */
enum { PLACE = 120 };

static int shown(const char *list)
{
    return strlen(list) > PLACE ? PLACE - 3 : PLACE;
}

static const char *dots(const char *list)
{
    return strlen(list) > PLACE ? "..." : "";
}

/* "option: /a; GYRE_PLUGIN_PATH: /b:/c; installed: /d". */
static void places(gyre_context *context, char *text, size_t size)
{
    const char *option = gyre_context_plugin_path(context);
    const char *given = environment_path();

    option = option != NULL ? option : "not set";
    given = given[0] != '\0' ? given : "not set";
    snprintf(text, size,
             "option plugin_path: %.*s%s; GYRE_PLUGIN_PATH: %.*s%s; "
             "installed: %.*s%s",
             shown(option), option, dots(option), shown(given), given,
             dots(given), shown(GYRE_PLUGIN_DIR), GYRE_PLUGIN_DIR,
             dots(GYRE_PLUGIN_DIR));
}

/* ---- folders --------------------------------------------------------- */

typedef gyre_status (*folder_function)(gyre_context *context,
                                       gyre_registry *registry,
                                       const char *folder, const char *name,
                                       gyre_error *error);

/* Call for each folder until one returns other than NOT_FOUND. */
static gyre_status each_folder(gyre_context *context, gyre_registry *registry,
                               folder_function call, const char *name,
                               gyre_error *error)
{
    const char *lists[3] = {gyre_context_plugin_path(context),
                            environment_path(), GYRE_PLUGIN_DIR};
    char folder[PATH_MAX_BYTES];

    for (size_t i = 0; i < 3; i++) {
        for (const char *at = lists[i]; at != NULL && *at != '\0';) {
            size_t length = strcspn(at, ":");

            if (length > 0 && length < sizeof(folder)) {
                gyre_status status;

                memcpy(folder, at, length);
                folder[length] = '\0';
                status = call(context, registry, folder, name, error);
                if (status != GYRE_NOT_FOUND)
                    return status;
            }
            at += length + (at[length] == ':');
        }
    }
    return GYRE_NOT_FOUND;
}

/* ---- files ----------------------------------------------------------- */

static bool was_seen(const gyre_registry *registry, const char *path)
{
    for (size_t i = 0; i < registry->seen_count; i++) {
        if (strcmp(registry->seen[i].path, path) == 0)
            return true;
    }
    return false;
}

/* Was a file of this name refused, in any folder? */
static bool was_refused(const gyre_registry *registry, const char *file)
{
    for (size_t i = 0; i < registry->seen_count; i++) {
        const gyre_seen *seen = &registry->seen[i];

        if (seen->refused && strcmp(strrchr(seen->path, '/') + 1, file) == 0)
            return true;
    }
    return false;
}

/* Forgetting one for want of memory only means to try it again. */
static void remember(gyre_context *context, gyre_registry *registry,
                     const char *path, bool refused)
{
    gyre_seen *seen;

    if (registry->seen_count == registry->seen_room) {
        size_t room = registry->seen_room + 16;
        gyre_seen *fresh =
            gyre_grow(context, registry->seen, registry->seen_room, room,
                      sizeof(registry->seen[0]));

        if (fresh == NULL)
            return;
        registry->seen = fresh;
        registry->seen_room = room;
    }
    seen = &registry->seen[registry->seen_count];
    seen->path = gyre_copy_text(context, path);
    seen->refused = refused;
    if (seen->path != NULL)
        registry->seen_count++;
}

static gyre_status load_file(gyre_context *context, gyre_registry *registry,
                             const char *path, gyre_error *error)
{
    const gyre_module *module = NULL;
    gyre_status status = gyre_module_open(context, path, &module, error);

    if (status == GYRE_OK)
        status = gyre_table_add(context, registry, module, path, error);
    if (status == GYRE_OK) {
        gyre_log(context, GYRE_LOG_DEBUG, "%s: loaded, %zu plugin(s)", path,
                 module->count);
        remember(context, registry, path, false);
    }
    return status;
}

static bool is_loaded(const gyre_registry *registry, const char *path)
{
    for (size_t i = 0; i < registry->count; i++) {
        const char *from = registry->entries[i]->path;

        if (from != NULL && strcmp(from, path) == 0)
            return true;
    }
    return false;
}

/* NOT_FOUND when the folder has no such file; one that is loaded is fine. */
static gyre_status load_named(gyre_context *context, gyre_registry *registry,
                              const char *folder, const char *name,
                              gyre_error *error)
{
    char path[PATH_MAX_BYTES];
    int n = snprintf(path, sizeof(path), "%s/%s", folder, name);

    if (n < 0 || (size_t)n >= sizeof(path) || access(path, F_OK) != 0)
        return GYRE_NOT_FOUND;
    return load_file(context, registry, path, error);
}

/* As load_named, but one that is loaded ends the search; one that a scan
 * refused is tried again, to say why. */
static gyre_status try_named(gyre_context *context, gyre_registry *registry,
                             const char *folder, const char *name,
                             gyre_error *error)
{
    char path[PATH_MAX_BYTES];
    int n = snprintf(path, sizeof(path), "%s/%s", folder, name);

    if (n < 0 || (size_t)n >= sizeof(path))
        return GYRE_NOT_FOUND;
    if (is_loaded(registry, path))
        return GYRE_OK;
    return load_named(context, registry, folder, name, error);
}

static int is_module(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return length > 3 && strcmp(entry->d_name + length - 3, ".so") == 0;
}

static gyre_status scan_folder(gyre_context *context, gyre_registry *registry,
                               const char *folder, const char *unused,
                               gyre_error *error)
{
    struct dirent **list = NULL;
    char path[PATH_MAX_BYTES];
    int count = scandir(folder, &list, is_module, alphasort);

    (void)unused;
    (void)error;
    for (int i = 0; i < count; i++) {
        int n = snprintf(path, sizeof(path), "%s/%s", folder, list[i]->d_name);
        gyre_error cause;

        if (n > 0 && (size_t)n < sizeof(path) && !was_seen(registry, path) &&
            load_file(context, registry, path, &cause) != GYRE_OK) {
            /* A second file with a name that is taken is no fault. */
            bool taken = cause.status == GYRE_DUPLICATE;

            gyre_log(context, taken ? GYRE_LOG_DEBUG : GYRE_LOG_WARNING,
                     "skipped: %s", cause.text);
            remember(context, registry, path, !taken);
        }
        free(list[i]);
    }
    free(list);
    return GYRE_NOT_FOUND;
}

/* ---- find ------------------------------------------------------------ */

static gyre_status not_found(gyre_context *context,
                             const gyre_registry *registry, const char *kind,
                             const char *name, gyre_error *error)
{
    char where[480], list[320] = "none";
    size_t at = 0;

    places(context, where, sizeof(where));
    for (size_t i = 0; i < registry->count; i++) {
        const gyre_entry *entry = registry->entries[i];
        int n;

        if (entry->hidden || strcmp(entry->plugin.kind, kind) != 0)
            continue;
        n = snprintf(list + at, sizeof(list) - at, "%s%s", at > 0 ? ", " : "",
                     entry->plugin.name);
        if (n < 0 || (size_t)n >= sizeof(list) - at)
            break;
        at += (size_t)n;
    }
    return gyre_fail(error, GYRE_NOT_FOUND,
                     "no plugin \"%.64s\" of kind %.64s; there are: %s "
                     "(looked in %s)",
                     name, kind, list, where);
}

static gyre_status find_locked(gyre_context *context, gyre_registry *registry,
                               const char *kind, const char *name,
                               const gyre_plugin **out, gyre_error *error)
{
    gyre_entry *entry = gyre_table_find(registry, kind, name);
    char file[128];
    int n = snprintf(file, sizeof(file), "%s.so", name);
    gyre_status status;

    if (n > 0 && (size_t)n < sizeof(file) && strchr(name, '/') == NULL &&
        (entry == NULL || entry->path == NULL || was_refused(registry, file))) {
        status = each_folder(context, registry, try_named, file, error);
        if (status != GYRE_OK && status != GYRE_NOT_FOUND)
            return status;
        entry = gyre_table_find(registry, kind, name);
    }
    if (entry == NULL) {
        (void)each_folder(context, registry, scan_folder, NULL, error);
        entry = gyre_table_find(registry, kind, name);
    }
    if (entry == NULL)
        return not_found(context, registry, kind, name, error);
    *out = &entry->plugin;
    return GYRE_OK;
}

gyre_status gyre_plugin_find(gyre_context *context, const char *kind,
                             const char *name, const gyre_plugin **out,
                             gyre_error *error)
{
    gyre_registry *registry = NULL;
    gyre_status status;

    if (kind == NULL || name == NULL || out == NULL)
        return gyre_fail(error, GYRE_INVALID, "gyre_plugin_find: NULL");
    status = gyre_registry_get(context, &registry, error);
    if (status != GYRE_OK)
        return status;
    pthread_mutex_lock(&registry->lock);
    status = find_locked(context, registry, kind, name, out, error);
    pthread_mutex_unlock(&registry->lock);
    return status;
}

/* ---- load ------------------------------------------------------------ */

/* A name without a folder: the current folder, then the search path. */
static gyre_status load_bare(gyre_context *context, gyre_registry *registry,
                             const char *name, gyre_error *error)
{
    char path[PATH_MAX_BYTES], where[480];
    gyre_status status;

    if (access(name, F_OK) == 0) {
        int n = snprintf(path, sizeof(path), "./%s", name);

        if (n > 0 && (size_t)n < sizeof(path))
            return load_file(context, registry, path, error);
    }
    status = each_folder(context, registry, load_named, name, error);
    if (status != GYRE_NOT_FOUND)
        return status;
    places(context, where, sizeof(where));
    return gyre_fail(error, GYRE_PLUGIN_OPEN,
                     "%.200s: open: no such file (looked in the current "
                     "folder; %s)",
                     name, where);
}

gyre_status gyre_plugin_load(gyre_context *context, const char *path,
                             gyre_error *error)
{
    gyre_registry *registry = NULL;
    gyre_status status;

    if (path == NULL || path[0] == '\0')
        return gyre_fail(error, GYRE_INVALID, "gyre_plugin_load: no path");
    status = gyre_registry_get(context, &registry, error);
    if (status != GYRE_OK)
        return status;
    pthread_mutex_lock(&registry->lock);
    if (strchr(path, '/') != NULL)
        status = load_file(context, registry, path, error);
    else
        status = load_bare(context, registry, path, error);
    pthread_mutex_unlock(&registry->lock);
    return status;
}

/* ---- each ------------------------------------------------------------ */

static int by_kind_and_name(const void *a, const void *b)
{
    const gyre_entry *x = *(gyre_entry *const *)a;
    const gyre_entry *y = *(gyre_entry *const *)b;
    int order = strcmp(x->plugin.kind, y->plugin.kind);

    return order != 0 ? order : strcmp(x->plugin.name, y->plugin.name);
}

gyre_status gyre_plugin_each(gyre_context *context,
                             int (*each)(void *user, const gyre_plugin *plugin,
                                         const char *path),
                             void *user, gyre_error *error)
{
    gyre_registry *registry = NULL;
    gyre_entry **list;
    size_t count = 0, room;
    gyre_status status;

    if (each == NULL)
        return gyre_fail(error, GYRE_INVALID, "gyre_plugin_each: NULL");
    status = gyre_registry_get(context, &registry, error);
    if (status != GYRE_OK)
        return status;
    pthread_mutex_lock(&registry->lock);
    (void)each_folder(context, registry, scan_folder, NULL, error);
    room = registry->count;
    list = gyre_alloc(context, room, sizeof(list[0]));
    for (size_t i = 0; list != NULL && i < room; i++) {
        if (!registry->entries[i]->hidden)
            list[count++] = registry->entries[i];
    }
    pthread_mutex_unlock(&registry->lock);
    if (list == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "registry: no memory");
    qsort(list, count, sizeof(list[0]), by_kind_and_name);
    for (size_t i = 0; i < count; i++) {
        if (each(user, &list[i]->plugin, list[i]->path) != 0)
            break;
    }
    gyre_free(context, list, room, sizeof(list[0]));
    return GYRE_OK;
}
