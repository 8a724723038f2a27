/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin table of a context, and how a module gets into it.
 *
 *     file -> elf (readable? foreign libraries?) -> dlopen -> entry symbol
 *          -> check (ABI, build flags, tables, probe) -> lift -> table
 *
 * An entry holds a copy of the plugin's tables in the shape of this build's
 * headers ("lifted"): a plugin built with a later minor version has longer
 * structs, and everything above this room may index them as plain arrays.
 * Entries are added, never changed or freed before the context.
 *
 * A file is opened once and never closed.  One mutex per context guards table
 * and opening; the log callback is called with it held and must not call the
 * registry.
 */
#ifndef GYRE_SRC_REGISTRY_REGISTRY_H
#define GYRE_SRC_REGISTRY_REGISTRY_H

#include "base/base.h"
#include "registry/optimizer.h"

#include <gyre/registry.h>
#include <pthread.h>

/* Limits of what a module may hold; beyond them it is refused. */
enum {
    GYRE_MODULE_MAX_PLUGINS = 64,
    GYRE_OPT_MAX_SWITCHES = 16,
    GYRE_OPT_MAX_VARIANTS = 16,
    GYRE_CODEC_MAX_SURVEY = 1 << 20,
    GYRE_CODEC_MAX_DECIDED = 256,
    GYRE_CODEC_MAX_NAMES = 32
};

/* ---- an entry of the table ------------------------------------------- */

/* An optimizer's tables, lifted. */
typedef struct gyre_lifted_optimizer {
    gyre_optimizer optimizer;
    gyre_slot slots[GYRE_OPT_MAX_SLOTS];
    gyre_variant variants[GYRE_OPT_MAX_VARIANTS];
    gyre_loop_function loops[GYRE_OPT_MAX_VARIANTS][GYRE_LOOP_COUNT];
} gyre_lifted_optimizer;

/* A compressor's. */
typedef struct gyre_lifted_compressor {
    gyre_compressor compressor;
    gyre_codec_loop loops[GYRE_LOOP_COUNT];
} gyre_lifted_compressor;

typedef struct gyre_entry {
    gyre_plugin plugin;       /* what gyre_plugin_find returns */
    const gyre_plugin *given; /* as the module has it */
    char *path;               /* NULL: linked in */
    bool hidden;              /* one from a file took its name */
    gyre_parameter parameters[GYRE_OPT_MAX_PARAMETERS];
    union { /* by kind */
        gyre_lifted_optimizer optimizer;
        gyre_lifted_compressor compressor;
        gyre_schedule schedule;
    } lifted;
} gyre_entry;

typedef struct gyre_seen {
    char *path;
    bool refused; /* for another cause than a name that is taken */
} gyre_seen;

typedef struct gyre_registry {
    pthread_mutex_t lock;
    gyre_entry **entries;
    size_t count, room;
    struct gyre_seen *seen; /* files that a scan need not open again */
    size_t seen_count, seen_room;
} gyre_registry;

/* The context's registry, made with the built-in plugins at first use. */
gyre_status gyre_registry_get(gyre_context *context, gyre_registry **out,
                              gyre_error *error);

/* ---- steps, each in a file of its own -------------------------------- */

/* loader.c: open `path`, up to the module's descriptor.  Lock held. */
gyre_status gyre_module_open(gyre_context *context, const char *path,
                             const gyre_module **out, gyre_error *error);

/* check.c: refuse what breaks the contract.  `where` begins each message. */
gyre_status gyre_check_module(const gyre_module *module, const char *where,
                              gyre_error *error);
gyre_status gyre_check_plugin(const gyre_plugin *plugin, const char *where,
                              gyre_error *error);

/* lift.c: copy a checked plugin's tables into the entry. */
void gyre_lift(const gyre_plugin *given, gyre_entry *entry);

/* probe.c: is this instruction set there?  Did the compiler fuse a*b+c in any
 * loop that runs here (PLUGIN_BAD)?  The FP control word is pinned within. */
bool gyre_loop_runs_here(int loop);
gyre_status gyre_probe_run(const gyre_build *build, const char *where,
                           gyre_error *error);

/* elf.c: walk the libraries that an ELF image asks for.  `why` gets one
 * sentence when the image is not a whole shared object for this machine.
 * `each` returns nonzero to stop.  Any bytes are safe. */
bool gyre_elf_needed(const uint8_t *image, size_t bytes,
                     int (*each)(void *user, const char *library), void *user,
                     const char **why);
/* May a plugin link to it?  libc, libm, the loader, a sanitizer's runtime. */
bool gyre_elf_allowed(const char *library);

/* builtin.c: the modules linked in; ends with NULL. */
extern const gyre_module_entry_function gyre_builtin_modules[];

/* ---- parameters (parameter.c) ---------------------------------------- */

/* Check one value against its entry; PARAMETER names the plugin, the value and
 * what is allowed. */
gyre_status gyre_parameter_check(const gyre_plugin *plugin,
                                 const gyre_parameter *parameter, double value,
                                 gyre_error *error);
/* Put the settings into values[], checked one by one; the others stay as they
 * are.  PARAMETER: unknown, out of range, given twice. */
gyre_status gyre_parameter_values(const gyre_plugin *plugin,
                                  const gyre_setting *settings, size_t count,
                                  double *values, gyre_error *error);
/* Index by name; PARAMETER lists what there is. */
gyre_status gyre_parameter_index(const gyre_plugin *plugin, const char *name,
                                 size_t *out, gyre_error *error);
/* "[0, 1)", "true or false", "torch or ema". */
void gyre_parameter_range(const gyre_parameter *parameter, char *text,
                          size_t size);

#endif
