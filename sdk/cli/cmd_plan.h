/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of gyre plan: each takes its own argv and returns an exit code.
 *
 * What they share is the question: a schedule by name with the flags of a
 * problem, or a file that holds a plan.
 */
#ifndef GYRE_CLI_CMD_PLAN_H
#define GYRE_CLI_CMD_PLAN_H

#include "cli.h"

#include <gyre/plan.h>
#include <gyre/registry.h>
#include <stdio.h>

enum { PLAN_OPTIONS = 26, PLAN_SETTINGS = 32 };

typedef struct plan_ask {
    cli_state cli;
    gyre_context *context;
    /* as given; 0 and NULL: not */
    uint64_t ranks, seq, batch, heads, kv_heads, head_dim, v_head_dim, node;
    const char *dtype, *wire, *mask, *layout, *drop, *pass, *param;
    const char *words[PLAN_SETTINGS]; /* of --param */
    int word_count;
    /* as understood */
    gyre_plan_request request;
    gyre_setting settings[PLAN_SETTINGS];
    gyre_mask mask_table;
    gyre_documents *documents;
    uint64_t *bounds;
    bool both; /* --pass was not given */
    char shown[1024];
    cli_option options[PLAN_OPTIONS]; /* the shared ones behind the own */
} plan_ask;

/* Parse: `own` options first, then the shared; opens the context.  Returns -1
 * to go on, or the exit code.  `usage` without options. */
int plan_parse(plan_ask *ask, const cli_usage *usage, const cli_option *own,
               int argc, char **argv);
void plan_close(plan_ask *ask);

/* Fill ask->request for `name`, or with the pass it says.  -1 or a code. */
int plan_request(plan_ask *ask, const char *name);
/* Whether an argument is a file and not the name of a schedule. */
bool plan_is_file(const char *name);
/* The first argument for JSON, which is UTF-8 where file names need not be. */
const char *plan_shown(plan_ask *ask);
/* The plan of one pass of a schedule, or a file (pass: must be it, unless
 * GYRE_PASS_COUNT).  -1 or a code. */
int plan_get(plan_ask *ask, const char *name, uint32_t pass, gyre_plan **out);
const char *plan_pass_name(uint32_t pass);
/* Write to a file, or standard output for NULL and "-". */
int plan_write(plan_ask *ask, const char *path,
               void (*write)(void *user, FILE *file), void *user);

/* Seconds of the monotonic clock. */
double plan_now(void);

/* What `show` draws; cmd_plan_draw.c collects it, cmd_plan_svg.c draws it, too.
 *
 * A rank's steps are its ATT or GRD ops in order.  A transfer belongs to the
 * step that it runs beside: the next one in program order, or the last. */
enum { PLAN_SENT = 64 };
typedef struct plan_cell {
    char label[48];       /* chunks: "0 3-5" of KV, or "Q 0 7" where KV stays */
    char sent[PLAN_SENT]; /* "ring>3 a2a": to one rank, to several */
    uint32_t owner;       /* of the first chunk of the label */
    uint64_t pairs, bytes;
} plan_cell;

typedef struct plan_drawing {
    const gyre_plan *plan;
    uint32_t ranks, steps;
    plan_cell *cells; /* [ranks * steps] */
    uint64_t most_pairs;
    const char *phases[GYRE_PLAN_PHASES];
    uint32_t phase_count;
} plan_drawing;

/* "ring, forward: 8 ranks, 16 x 16 chunks, 8 steps" */
void plan_title(const plan_drawing *drawing, char *text, size_t size);
void plan_svg(const plan_drawing *drawing, FILE *file);

int plan_bytes(int argc, char **argv);
int plan_prove(int argc, char **argv);
int plan_run(int argc, char **argv);
int plan_show(int argc, char **argv);
int plan_diff(int argc, char **argv);
int plan_export(int argc, char **argv);

#endif
