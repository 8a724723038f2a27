/* SPDX-License-Identifier: Apache-2.0 */
/* A bar on a terminal, plain lines elsewhere. */
#include "config.h"

#include "amount.h"
#include "progress.h"

#include <gyre/trace.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { CELLS = 40, TEXT = 256, LINE = 512 };

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
                    const char *unit, double total)
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
    progress->note = NULL;
    progress->total = total;
    progress->first = 0;
    progress->shown = false;
    progress->clock = gyre_trace_clock;
    progress->begin = progress->clock();
    progress->drawn = progress->begin;
}

/* Steps may take seconds each: a bar is there before the first one ends. */
void progress_begin(progress_bar *progress, double first)
{
    progress->first = first;
    progress->begin = progress->clock();
    progress->drawn = progress->style == PROGRESS_BAR ? 0 : progress->begin;
}

/* ---- texts --------------------------------------------------------------- */

static void add(char text[TEXT], const char *between, const char *more)
{
    size_t used = strlen(text);

    snprintf(text + used, TEXT - used, "%s%s", between, more);
}

/* "12" or "0.25": steps and files are counted, their rates are not whole. */
static const char *number(double x, char text[32])
{
    snprintf(text, 32, x < 100 && x != floor(x) ? "%.2f" : "%.0f", x);
    return text;
}

/* "1.2 GB", "12 steps". */
static const char *amount(const progress_bar *progress, double x, char text[64])
{
    char digits[32];

    if (strcmp(progress->unit, "B") == 0)
        return cli_bytes(x, text);
    snprintf(text, 64, "%s%s%.20s", number(x, digits),
             progress->unit[0] != '\0' ? " " : "", progress->unit);
    return text;
}

/* "52 %  1.2 GB/s  0:07 left", or "1.2 GB  0.3 GB/s" of an unknown total. */
static void describe(const progress_bar *progress, double done, uint64_t now,
                     char text[TEXT])
{
    double seconds = (double)(now - progress->begin) / 1e9;
    double rate = seconds > 0 ? (done - progress->first) / seconds : 0;
    char part[64], digits[32], time[16];

    text[0] = '\0';
    if (progress->total > 0) {
        snprintf(text, TEXT, "%3.0f %%", 100 * done / progress->total);
        if (strcmp(progress->unit, "B") != 0) {
            add(text, "  ", number(done, digits));
            add(text, "/", amount(progress, progress->total, part));
        }
    } else {
        add(text, "", amount(progress, done, part));
    }
    add(text, "  ", amount(progress, rate, part));
    add(text, "/s", "");
    if (progress->total > done && rate > 0) {
        add(text, "  ", cli_seconds((progress->total - done) / rate, time));
        add(text, " left", "");
    } else if (progress->total > 0 && done >= progress->total) {
        add(text, "  in ", cli_seconds(seconds, time));
    }
    if (progress->note != NULL && progress->note[0] != '\0')
        add(text, "  ", progress->note);
}

/* ---- drawing ------------------------------------------------------------- */

/* How many bytes of a line fit into so many columns, whole characters all. */
static int fit(const char *line, int columns)
{
    int end = 0;

    for (int at = 0; line[at] != '\0'; at++) {
        bool starts = ((unsigned char)line[at] & 0xc0) != 0x80;

        if (starts && columns-- <= 0)
            break;
        end = at + 1;
    }
    return end;
}

static void draw_bar(const progress_bar *progress, const char *text,
                     double part)
{
    static const char full[CELLS + 1] =
        "########################################";
    static const char empty[CELLS + 1] =
        "........................................";
    char line[LINE];
    int cells =
        progress->width - (int)strlen(progress->label) - (int)strlen(text) - 5;

    if (cells > CELLS)
        cells = CELLS;
    if (progress->total <= 0 || cells < 5) {
        snprintf(line, sizeof(line), "%s %s", progress->label, text);
    } else {
        int done = part >= 1 ? cells : part > 0 ? (int)(cells * part) : 0;

        snprintf(line, sizeof(line), "%s [%.*s%.*s] %s", progress->label, done,
                 full, cells - done, empty, text);
    }
    /* \033[K clears what a longer line left behind */
    fprintf(progress->file, "\r%.*s\033[K", fit(line, progress->width - 1),
            line);
}

static void draw(progress_bar *progress, double done, uint64_t now)
{
    char text[TEXT];

    describe(progress, done, now, text);
    if (progress->style == PROGRESS_BAR)
        draw_bar(progress, text, done / progress->total);
    else
        fprintf(progress->file, "%s: %s\n", progress->label,
                text + strspn(text, " "));
    fflush(progress->file);
    progress->shown = true;
    progress->drawn = now;
}

void progress_update(progress_bar *progress, double done)
{
    uint64_t now;

    if (progress->style == PROGRESS_NONE)
        return;
    now = progress->clock();
    if (now - progress->drawn >=
        (progress->style == PROGRESS_BAR ? BAR_EVERY : PLAIN_EVERY))
        draw(progress, done, now);
}

void progress_clear(progress_bar *progress)
{
    if (progress->style != PROGRESS_BAR)
        return;
    if (progress->shown)
        fputs("\r\033[K", progress->file);
    progress->drawn = 0;
}

void progress_end(progress_bar *progress, double done)
{
    if (progress->style == PROGRESS_NONE)
        return;
    draw(progress, done, progress->clock());
    if (progress->style == PROGRESS_BAR)
        fputc('\n', progress->file);
    progress->style = PROGRESS_NONE;
}
