/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Line plots as SVG: panels side by side under one title, each with axes, a
 * grid and lines that are labelled at their ends; one key below the title.
 *
 *     +------------------------------------------+
 *     | title                                    |
 *     | note                                     |
 *     | -o- measured   - - closed form           |
 *     | panel            | panel                 |
 *     | ^      ___ label | ^    ___ label        |
 *     | |  ___/___ label | | __/                 |
 *     | +--------->      | +-------->            |
 *     +------------------------------------------+
 *
 * Texts are UTF-8 and are escaped here.  Axes start at 0, or below when there
 * are negative values; values must be finite.
 */
#ifndef GYRE_PROFILER_SVG_H
#define GYRE_PROFILER_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { SVG_MAX_LINES = 32 };

typedef struct svg_line {
    const char *label; /* at the line's end, and in the key; NULL: none */
    const char *colour;
    bool dashed;
    bool marks; /* a dot at each point */
    size_t count;
    const double *x, *y; /* ascending x */
} svg_line;

typedef struct svg_panel {
    const char *title, *x_label, *y_label;
    size_t count; /* up to SVG_MAX_LINES */
    const svg_line *lines;
} svg_panel;

typedef struct svg_plot {
    const char *title;
    const char *note;    /* a line below the title; NULL: none */
    const svg_line *key; /* samples: label, colour, dashed, marks */
    size_t key_count;
    const svg_panel *panels;
    size_t panel_count;
} svg_plot;

/* Nonzero when a write failed. */
int svg_write(FILE *file, const svg_plot *plot);

/* Distance of about `wanted` ticks over `range`: 1, 2 or 5 times a power of
 * ten. */
double svg_tick(double range, int wanted);

#endif
