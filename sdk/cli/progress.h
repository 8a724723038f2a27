/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress of long work, on stderr: of commands, and gyre.progress of scripts.
 *
 *     on a terminal   one line, redrawn ten times a second at most, never
 *                     longer than the terminal is wide:
 *                     export [######......]  52 %  1.2 GB/s  0:07 left
 *                     train [##..]  50 %  10/20 steps  8 steps/s  0:01 left
 *     elsewhere       a plain line every ten seconds and one at the end
 *     with --quiet    nothing
 */
#ifndef GYRE_CLI_PROGRESS_H
#define GYRE_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum progress_style {
    PROGRESS_NONE,
    PROGRESS_PLAIN,
    PROGRESS_BAR
} progress_style;

typedef struct progress_bar {
    FILE *file;
    progress_style style;
    int width; /* columns of the terminal */
    const char *label;
    const char *unit; /* "B" for bytes, else a word: "steps" */
    const char *note; /* what else to say; NULL: nothing */
    double total;     /* 0: unknown */
    double first;     /* done before it began, no part of the rate */
    bool shown;       /* something was drawn */
    uint64_t begin, drawn;
    uint64_t (*clock)(void); /* nanoseconds */
} progress_bar;

/* `label` and `unit` outlive it.  One thread. */
void progress_start(progress_bar *progress, bool quiet, const char *label,
                    const char *unit, double total);
/* The work begins now and not at progress_start, with so much done before. */
void progress_begin(progress_bar *progress, double first);
void progress_update(progress_bar *progress, double done);
/* Takes the bar away until the next update, to print something above it. */
void progress_clear(progress_bar *progress);
/* Ends the line.  `done` tells how far it came. */
void progress_end(progress_bar *progress, double done);

#endif
