/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding plugins.
 *
 * A context knows the plugins linked into the library and those found on its
 * search path: option `plugin_path`, then GYRE_PLUGIN_PATH, then the installed
 * folder.  A module file is opened when a name that it may hold is first asked
 * for; it is never unloaded.  A plugin from a file wins over one of the same
 * name that is linked in.
 *
 * Plugins are read-only and in the shape of this header, whatever version they
 * were built with.  The log callback may be called with the registry locked: it
 * must not call these functions.
 */
#ifndef GYRE_REGISTRY_H
#define GYRE_REGISTRY_H

#include <gyre/context.h>
#include <gyre/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A named value for a plugin's parameter, or a step's hyper-parameter.  For a
 * choice the value is the index of the word; for a switch 0 or 1. */
typedef struct gyre_setting {
    const char *name;
    double value;
} gyre_setting;

/* Open one module file and register its plugins.  A path without a slash is
 * sought in the current folder and along the search path.  Errors: PLUGIN_OPEN,
 * PLUGIN_ABI, PLUGIN_BAD, DUPLICATE (a name is taken by another file); the text
 * names path, step (open, symbol, abi, init), cause and the places searched.
 * Any thread. */
GYRE_API gyre_status gyre_plugin_load(gyre_context *context, const char *path,
                                      gyre_error *error);

/* Register the plugins of a module that is linked into the program: compiled
 * with GYRE_STATIC_MODULE, its entry is gyre_module_entry_<name>.  Errors:
 * PLUGIN_ABI, PLUGIN_BAD, DUPLICATE.  Any thread. */
GYRE_API gyre_status gyre_plugin_add(gyre_context *context,
                                     gyre_module_entry_function entry,
                                     gyre_error *error);

/* Call `each` for every library that the module file asks for, without opening
 * it as a module; `allowed` is 0 for one that a plugin must not link to.
 * `each` returns nonzero to stop.  Errors: PLUGIN_OPEN.  Any thread. */
GYRE_API gyre_status gyre_plugin_needs(
    const char *path, int (*each)(void *user, const char *library, int allowed),
    void *user, gyre_error *error);

/* Find by kind ("gyre.optimizer/1") and name; searches the path when needed.
 * Errors: NOT_FOUND (lists what there is and where it looked), and those of
 * gyre_plugin_load.  The result lives as long as the context.  Any thread. */
GYRE_API gyre_status gyre_plugin_find(gyre_context *context, const char *kind,
                                      const char *name, const gyre_plugin **out,
                                      gyre_error *error);

/* Call `each` for every plugin that can be found, by kind, then name.  `path`
 * is NULL for one linked in.  A module that cannot be opened is logged as a
 * warning and skipped.  `each` returns nonzero to stop.  Any thread. */
GYRE_API gyre_status gyre_plugin_each(gyre_context *context,
                                      int (*each)(void *user,
                                                  const gyre_plugin *plugin,
                                                  const char *path),
                                      void *user, gyre_error *error);

/* Turn the text form of a value ("0.9", "true", a choice's word) into the
 * number of a setting, checked against the plugin's table.  Errors: PARAMETER,
 * the text lists the valid names or values.  Any thread. */
GYRE_API gyre_status gyre_plugin_parse(const gyre_plugin *plugin,
                                       const char *name, const char *text,
                                       double *out, gyre_error *error);

#ifdef __cplusplus
}
#endif

#endif
