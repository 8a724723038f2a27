/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of `gyre bench attention`; each prints its lines, or puts what it found
 * into `report` when the output is JSON.  Exit codes as cli.h says.
 *
 *     block       the kernel beside one-thread products
 *     schedules   netns.sh -- gyre bench attention --schedules --rank-into DIR
 *                   every rank: forward and backward of each schedule, blocks
 *                   slept through; spans and ledger --> DIR/RANK.json
 *                 all ranks' files and the plans' model --> table
 */
#ifndef GYRE_PROFILER_BENCH_ATTENTION_H
#define GYRE_PROFILER_BENCH_ATTENTION_H

#include "cli.h"

#include <gyre/gyre.h>
#include <gyre/plan.h>
#include <gyre/registry.h>
#include <jansson.h>

typedef struct attention_options {
    const cli_state *cli;
    const char *kernel, *mask;
    uint64_t seq, heads, kv_heads, head_dim, pairs, square, workers;
    /* of schedules */
    bool schedules;
    uint64_t ranks, slots, rate /* Mbit/s */, steps;
    double cover, flops; /* GFLOP/s; 0: by cover */
    const char *only;    /* "ring,2d:heads=2" */
    const char *netns;   /* script */
    const char *into;    /* this process is a rank */
} attention_options;

/* Block kernel beside one-thread products. */
int bench_attention_block(const attention_options *opt, gyre_context *context,
                          json_t *report);

/* Schedules over throttled links; bench_attention_rank is a rank of it. */
int bench_attention_schedules(const attention_options *opt,
                              gyre_context *context, json_t *report);
int bench_attention_rank(const attention_options *opt);

/* Run argv[0], its output to stderr, and wait; a signal to this process ends it
 * first. */
int bench_attention_spawn(const attention_options *opt, char *const *argv);

/* A plan request by a text NAME[:SETTING=VALUE]...; it points into itself, so
 * it must not move.  Errors: as gyre_plugin_find and gyre_plugin_parse. */
enum { BENCH_ATTENTION_SETTINGS = 8, BENCH_ATTENTION_NAME = 64 };
typedef struct bench_attention_problem {
    gyre_plan_request request;
    gyre_mask mask;
    gyre_setting settings[BENCH_ATTENTION_SETTINGS];
    size_t count;
    char words[BENCH_ATTENTION_NAME];
} bench_attention_problem;
gyre_status bench_attention_request(const attention_options *opt,
                                    gyre_context *context, const char *text,
                                    bench_attention_problem *out,
                                    gyre_error *error);

/* What a schedule's plans say. */
typedef struct bench_attention_model {
    double seconds[GYRE_PASS_COUNT];
    double far[GYRE_PASS_COUNT]; /* bytes between nodes, all ranks */
} bench_attention_model;

/* One schedule as measured: `ranks` is what each rank wrote of it.  The report
 * of it, of the step with the median time; NULL when a rank's part is missing.
 */
json_t *bench_attention_merge(const attention_options *opt, const char *name,
                              json_t *const *ranks,
                              const bench_attention_model *model);
/* The table of all reports. */
void bench_attention_table(const attention_options *opt, const json_t *report);

#endif
