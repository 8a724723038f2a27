/* SPDX-License-Identifier: Apache-2.0 */
/* A bar on a terminal, plain lines elsewhere. */
#include "config.h"

#include "cli.h"
#include "progress.h"

#include <gyre/trace.h>

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const uint64_t BAR_EVERY = 100000000; /* ns */
static const uint64_t PLAIN_EVERY = 10000000000;

static int terminal_width(int fd)
{
    struct winsize size;

    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

void progress_start(progress_bar *progress, bool quiet, const char *label,
                    const char *unit, uint64_t total)
{
    const char *term = getenv("TERM");
    bool dumb = term == NULL || strcmp(term, "dumb") == 0;

    progress->file = stderr;
    progress->style = quiet                            ? PROGRESS_NONE
                      : isatty(STDERR_FILENO) && !dumb ? PROGRESS_BAR
                                                       : PROGRESS_PLAIN;
    progress->width = terminal_width(STDERR_FILENO);
    progress->label = label;
    progress->unit = unit;
    progress->total = total;
    progress->clock = gyre_trace_clock;
    progress->begin = progress->clock();
    progress->drawn = progress->begin;
}

/* "52 %  1.2 GB/s  0:07 left", or "1.2 GB  0.3 GB/s" of an unknown total. */
static void describe(const progress_bar *progress, uint64_t done, uint64_t now,
                     char *text, size_t size)
{
    double seconds = (double)(now - progress->begin) / 1e9;
    double rate = seconds > 0 ? (double)done / seconds : 0;
    bool bytes = strcmp(progress->unit, "B") == 0;
    char amount[16], speed[16], left[16];
    size_t used;

    if (progress->total > 0)
        snprintf(text, size, "%3.0f %%",
                 100 * (double)done / (double)progress->total);
    else if (bytes)
        snprintf(text, size, "%s", cli_bytes((double)done, amount));
    else
        snprintf(text, size, "%llu %s", (unsigned long long)done,
                 progress->unit);
    used = strlen(text);
    if (bytes)
        snprintf(text + used, size - used, "  %s/s", cli_bytes(rate, speed));
    else
        snprintf(text + used, size - used, "  %.3g %s/s", rate, progress->unit);
    used = strlen(text);
    if (progress->total > done && rate > 0)
        snprintf(text + used, size - used, "  %s left",
                 cli_seconds((double)(progress->total - done) / rate, left));
    else if (progress->total > 0 && done >= progress->total)
        snprintf(text + used, size - used, "  in %s",
                 cli_seconds(seconds, left));
}

static void draw_bar(const progress_bar *progress, uint64_t done, uint64_t now)
{
    char text[96];
    int cells;
    int full;

    describe(progress, done, now, text, sizeof(text));
    cells =
        progress->width - (int)strlen(progress->label) - (int)strlen(text) - 5;
    if (cells > 40)
        cells = 40;
    /* \033[K clears what a longer line left behind */
    if (progress->total == 0 || cells < 5) {
        fprintf(progress->file, "\r%s %s\033[K", progress->label, text);
    } else {
        full =
            done >= progress->total
                ? cells
                : (int)((double)cells * (double)done / (double)progress->total);
        fprintf(progress->file, "\r%s [", progress->label);
        for (int i = 0; i < cells; i++)
            fputc(i < full ? '#' : '.', progress->file);
        fprintf(progress->file, "] %s\033[K", text);
    }
    fflush(progress->file);
}

static void draw_line(const progress_bar *progress, uint64_t done, uint64_t now)
{
    char text[96];

    describe(progress, done, now, text, sizeof(text));
    fprintf(progress->file, "%s: %s\n", progress->label,
            text + strspn(text, " "));
    fflush(progress->file);
}

void progress_update(progress_bar *progress, uint64_t done)
{
    uint64_t now;

    if (progress->style == PROGRESS_NONE)
        return;
    now = progress->clock();
    if (now - progress->drawn <
        (progress->style == PROGRESS_BAR ? BAR_EVERY : PLAIN_EVERY))
        return;
    progress->drawn = now;
    if (progress->style == PROGRESS_BAR)
        draw_bar(progress, done, now);
    else
        draw_line(progress, done, now);
}

void progress_end(progress_bar *progress, uint64_t done)
{
    uint64_t now;

    if (progress->style == PROGRESS_NONE)
        return;
    now = progress->clock();
    if (progress->style == PROGRESS_BAR) {
        draw_bar(progress, done, now);
        fputc('\n', progress->file);
    } else {
        draw_line(progress, done, now);
    }
    progress->style = PROGRESS_NONE;
}
