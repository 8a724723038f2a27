/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress of long work, on stderr.
 *
 *     on a terminal   one line, redrawn ten times a second at most:
 *                     export [######......] 52 %  1.2 GB/s  0:07 left
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
    uint64_t total;   /* 0: unknown */
    uint64_t begin, drawn;
    uint64_t (*clock)(void); /* nanoseconds */
} progress_bar;

/* `label` and `unit` outlive it.  One thread. */
void progress_start(progress_bar *progress, bool quiet, const char *label,
                    const char *unit, uint64_t total);
void progress_update(progress_bar *progress, uint64_t done);
/* Ends the line.  `done` tells how far it came. */
void progress_end(progress_bar *progress, uint64_t done);

#endif
