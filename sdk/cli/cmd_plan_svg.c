/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The drawing of a plan as a picture: a row a rank, a column a step.  A cell's
 * colour is the rank that owns the chunks, so that a ring shows as diagonals;
 * its bar is the work, and the chips below are what is sent beside it.
 */
#include "config.h"

#include "cmd_plan.h"

#include <string.h>

enum { CELL = 104, ROW = 46, LEFT = 64, TOP = 56, CHIP = 14, BOTTOM = 44 };

static const char *const chip_colours[GYRE_PLAN_PHASES] = {
    "#1f5fa8", "#2c7a3f", "#b3541e", "#7b3fa0",
    "#0f7a80", "#a8324a", "#6b6b1f", "#555555"};

/* The few characters that XML keeps for itself. */
static void print_escaped(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '&')
            fputs("&amp;", file);
        else if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '>')
            fputs("&#8594;", file); /* an arrow */
        else
            fputc(*text, file);
    }
}

static int text_size(const char *text, int width, int most)
{
    int fit = (int)((double)width / (0.56 * (double)(strlen(text) + 1)));

    return fit < 6 ? 6 : fit < most ? fit : most;
}

static const char *colour_of(const plan_drawing *d, const char *word, int n)
{
    int length = (int)strcspn(word, ">");

    length = length < n ? length : n;
    for (uint32_t i = 0; i < d->phase_count; i++)
        if ((int)strlen(d->phases[i]) == length &&
            strncmp(d->phases[i], word, (size_t)length) == 0)
            return chip_colours[i];
    return "#555555";
}

/* One a word, side by side. */
static void print_chips(const plan_drawing *d, const plan_cell *cell, int x,
                        int y, FILE *file)
{
    int count = 0, width, k = 0;

    for (const char *c = cell->sent; *c != '\0'; c++)
        count += *c == ' ';
    width = (CELL - 8) / (count + 1);
    for (const char *word = cell->sent; *word != '\0'; k++) {
        char text[PLAN_SENT];
        int n = (int)strcspn(word, " ");

        snprintf(text, sizeof(text), "%.*s", n, word);
        fprintf(file,
                "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                "rx=\"3\" fill=\"%s\"/>\n<text x=\"%d\" y=\"%d\" "
                "font-size=\"%d\" fill=\"#fff\" text-anchor=\"middle\">",
                x + 3 + k * width, y, width - 1, CHIP, colour_of(d, word, n),
                x + 3 + k * width + width / 2, y + 11,
                text_size(text, width, 11));
        print_escaped(file, text);
        fputs("</text>\n", file);
        word += n;
        word += *word == ' ';
    }
}

static void print_cell(const plan_drawing *d, uint32_t rank, uint32_t step,
                       FILE *file)
{
    const plan_cell *cell = &d->cells[(size_t)rank * d->steps + step];
    int x = LEFT + (int)step * CELL, y = TOP + (int)rank * ROW;
    double hue = 360.0 * cell->owner / d->ranks;
    int bar =
        d->most_pairs > 0
            ? (int)((double)cell->pairs / (double)d->most_pairs * (CELL - 8))
            : 0;

    if (cell->label[0] != '\0') {
        fprintf(file,
                "<g><title>rank %u, step %u: %s, %llu pairs, sends %llu bytes"
                "</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"26\" "
                "rx=\"3\" fill=\"hsl(%.0f,%d%%,%d%%)\"/>\n",
                rank, step, cell->label, (unsigned long long)cell->pairs,
                (unsigned long long)cell->bytes, x + 3, y, CELL - 8, hue,
                cell->pairs > 0 ? 62 : 15, cell->pairs > 0 ? 84 : 92);
        fprintf(file,
                "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"3\" "
                "fill=\"hsl(%.0f,55%%,45%%)\"/><text x=\"%d\" y=\"%d\" "
                "font-size=\"%d\" text-anchor=\"middle\" fill=\"%s\">",
                x + 3, y + 23, bar, hue, x + CELL / 2 - 1, y + 17,
                text_size(cell->label, CELL - 12, 13),
                cell->pairs > 0 ? "#111" : "#999");
        print_escaped(file, cell->label);
        fputs("</text></g>\n", file);
    }
    print_chips(d, cell, x, y + 28, file);
}

static void print_legend(const plan_drawing *d, int y, FILE *file)
{
    int x = LEFT;

    fprintf(file,
            "<text x=\"%d\" y=\"%d\" font-size=\"11\" fill=\"#444\">colour: "
            "the owner of the chunks; bar: work; below: sent, by phase</text>"
            "\n",
            x, y);
    for (uint32_t i = 0; i < d->phase_count; i++) {
        fprintf(file,
                "<rect x=\"%d\" y=\"%d\" width=\"10\" height=\"10\" "
                "fill=\"%s\"/><text x=\"%d\" y=\"%d\" font-size=\"11\">",
                x, y + 9, chip_colours[i], x + 14, y + 18);
        print_escaped(file, d->phases[i]);
        fputs("</text>\n", file);
        x += 28 + 7 * (int)strlen(d->phases[i]);
    }
}

void plan_svg(const plan_drawing *d, FILE *file)
{
    int width = LEFT + (int)d->steps * CELL + 8;
    int height = TOP + (int)d->ranks * ROW + BOTTOM;
    char title[160];

    width = width < 460 ? 460 : width;
    plan_title(d, title, sizeof(title));
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
            "<text x=\"%d\" y=\"22\" font-size=\"15\" font-weight=\"bold\">",
            width, height, width, height, LEFT);
    print_escaped(file, title);
    fputs("</text>\n", file);
    for (uint32_t s = 0; s < d->steps; s++)
        fprintf(file,
                "<text x=\"%d\" y=\"46\" font-size=\"12\" fill=\"#444\" "
                "text-anchor=\"middle\">step %u</text>\n",
                LEFT + (int)s * CELL + CELL / 2, s);
    for (uint32_t r = 0; r < d->ranks; r++) {
        fprintf(file,
                "<text x=\"8\" y=\"%d\" font-size=\"12\" fill=\"#444\">rank "
                "%u</text>\n",
                TOP + (int)r * ROW + 17, r);
        for (uint32_t s = 0; s < d->steps; s++)
            print_cell(d, r, s, file);
    }
    print_legend(d, height - BOTTOM + 14, file);
    fputs("</svg>\n", file);
}
