/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of `gyre bench attention`; each prints its lines, or puts what it
 * found into `report` when the output is JSON.  Exit codes as cli.h says. */
#ifndef GYRE_PROFILER_BENCH_ATTENTION_H
#define GYRE_PROFILER_BENCH_ATTENTION_H

#include "cli.h"

#include <gyre/gyre.h>
#include <jansson.h>

typedef struct attention_options {
    const cli_state *cli;
    const char *kernel, *mask;
    uint64_t seq, heads, kv_heads, head_dim, pairs, square;
} attention_options;

/* Block kernel beside one-thread products. */
int bench_attention_block(const attention_options *opt, gyre_context *context,
                          json_t *report);

#endif
