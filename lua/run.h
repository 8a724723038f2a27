/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `gyre run`: a script with the module `gyre` in place.
 *
 *     0  the script ended, or left with os.exit(0)
 *     1  it raised an error
 *     2  usage: no such script, a bad option
 *   130  interrupted
 */
#ifndef GYRE_LUA_RUN_H
#define GYRE_LUA_RUN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct gyre_run {
    const char *command;            /* "gyre run", for messages */
    const char *const *module_dirs; /* searched after the script's folder */
    size_t module_dir_count;
    const char *plugin_path;     /* of the default context; or NULL */
    const char *instruction_set; /* the same */
    bool dry_run, json, quiet;
} gyre_run;

/* Run argv[0], the script, with the words after it; returns the exit code. */
int gyre_run_script(const gyre_run *run, int argc, char **argv);

#endif
