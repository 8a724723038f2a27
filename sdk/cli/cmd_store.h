/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of gyre store: each takes its own argv and returns an exit code. */
#ifndef GYRE_CLI_CMD_STORE_H
#define GYRE_CLI_CMD_STORE_H

#include "cli.h"

#include <gyre/store.h>

/* Print what `gyre store info` prints of an open store. */
int store_show(const cli_state *cli, gyre_store *store, bool with_digest);

int store_export(int argc, char **argv);
int store_import(int argc, char **argv);
int store_reshard(int argc, char **argv);
int store_weigh(int argc, char **argv);

/* Weights from "measured" or "W,W,...", for that many devices (NULL: not
 * named).  Returns -1 to go on, or the exit code after reporting. */
int store_read_weights(const cli_state *cli, gyre_context *context,
                       const char *text, const char *const *devices,
                       size_t count, double *weights);

#endif
