/* SPDX-License-Identifier: Apache-2.0 */
/* What registry.c (the table) offers to search.c; lock held throughout. */
#ifndef GYRE_SRC_REGISTRY_TABLE_H
#define GYRE_SRC_REGISTRY_TABLE_H

#include "registry/registry.h"

/* The visible entry, or NULL. */
gyre_entry *gyre_table_find(const gyre_registry *registry, const char *kind,
                            const char *name);

/* Check the module's plugins and add them, all or none; a module that is there
 * already is fine.  Errors: PLUGIN_BAD, DUPLICATE (a name taken by another
 * file), NO_MEMORY. */
gyre_status gyre_table_add(gyre_context *context, gyre_registry *registry,
                           const gyre_module *module, const char *path,
                           gyre_error *error);

#endif
