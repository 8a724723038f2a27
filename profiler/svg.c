/* SPDX-License-Identifier: Apache-2.0 */
/* Line plots as SVG; see svg.h. */
#include "config.h"

#include "svg.h"

#include <math.h>

/* Pixels.  A panel is its plot area with the margins around it. */
enum {
    HEAD = 96,
    LEFT = 58,
    RIGHT = 128,
    TOP = 34,
    BOTTOM = 52,
    WIDTH = 400,
    HEIGHT = 320,
    PANEL = LEFT + WIDTH + RIGHT,
    LABEL_GAP = 14
};

/* The data's range, and where it lies on the page. */
typedef struct axes {
    double x0, x1, y0, y1;
    double left, top;
} axes;

double svg_tick(double range, int wanted)
{
    double raw = range / wanted, power, part;

    if (!(raw > 0))
        return 1;
    power = pow(10, floor(log10(raw)));
    part = raw / power;
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

static void text(FILE *f, double x, double y, const char *style,
                 const char *words)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
    for (const char *c = words; *c != '\0'; c++)
        switch (*c) {
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        case '&':
            fputs("&amp;", f);
            break;
        default:
            fputc(*c, f);
        }
    fputs("</text>\n", f);
}

static double at_x(const axes *a, double x)
{
    return a->left + (x - a->x0) / (a->x1 - a->x0) * WIDTH;
}

static double at_y(const axes *a, double y)
{
    return a->top + HEIGHT - (y - a->y0) / (a->y1 - a->y0) * HEIGHT;
}

/* ---- axes ------------------------------------------------------------- */

static void find_range(const svg_panel *panel, axes *a)
{
    double tick;

    a->x0 = INFINITY;
    a->x1 = -INFINITY;
    a->y0 = a->y1 = 0;
    for (size_t k = 0; k < panel->count; k++)
        for (size_t i = 0; i < panel->lines[k].count; i++) {
            a->x0 = fmin(a->x0, panel->lines[k].x[i]);
            a->x1 = fmax(a->x1, panel->lines[k].x[i]);
            a->y0 = fmin(a->y0, panel->lines[k].y[i]);
            a->y1 = fmax(a->y1, panel->lines[k].y[i]);
        }
    if (!(a->x0 <= a->x1))
        a->x0 = a->x1 = 0;
    if (a->x0 == a->x1) { /* one point, or none: in the middle */
        a->x0 -= 1;
        a->x1 += 1;
    }
    if (a->y0 == a->y1)
        a->y1 = 1;
    tick = svg_tick(a->y1 - a->y0, 6);
    a->y0 = floor(a->y0 / tick) * tick;
    a->y1 = ceil(a->y1 / tick) * tick;
}

static void draw_axes(FILE *f, const svg_panel *panel, const axes *a)
{
    const char *number = "class=\"number\" text-anchor=\"end\"";
    const char *below = "class=\"number\" text-anchor=\"middle\"";
    double ty = svg_tick(a->y1 - a->y0, 6), tx = svg_tick(a->x1 - a->x0, 10);
    char words[32];

    for (double k = round(a->y0 / ty); k * ty <= a->y1 + ty / 2; k++) {
        fprintf(f,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                "stroke=\"%s\"/>\n",
                a->left, at_y(a, k * ty), a->left + WIDTH, at_y(a, k * ty),
                k == 0 ? "#555" : "#e4e4e4");
        snprintf(words, sizeof(words), "%.6g", k * ty);
        text(f, a->left - 8, at_y(a, k * ty) + 4, number, words);
    }
    for (double k = ceil(a->x0 / tx); k * tx <= a->x1 + tx * 1e-9; k++) {
        snprintf(words, sizeof(words), "%.6g", k * tx);
        text(f, at_x(a, k * tx), a->top + HEIGHT + 18, below, words);
        fprintf(f,
                "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" "
                "stroke=\"#555\"/>\n",
                at_x(a, k * tx), (int)a->top + HEIGHT, at_x(a, k * tx),
                (int)a->top + HEIGHT + 4);
    }
    text(f, a->left, a->top - 14, "class=\"panel\"", panel->title);
    text(f, a->left + WIDTH / 2.0, a->top + HEIGHT + 40,
         "text-anchor=\"middle\"", panel->x_label);
    snprintf(words, sizeof(words), "rotate(-90 %.0f %.0f)", a->left - 42,
             a->top + HEIGHT / 2.0);
    fprintf(f, "<g transform=\"%s\">", words);
    text(f, a->left - 42, a->top + HEIGHT / 2.0, "text-anchor=\"middle\"",
         panel->y_label);
    fputs("</g>\n", f);
}

/* ---- lines ------------------------------------------------------------ */

static void draw_line(FILE *f, const svg_line *line, const axes *a)
{
    fprintf(f,
            "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"%s "
            "points=\"",
            line->colour, line->dashed ? "1.2" : "2",
            line->dashed ? " stroke-dasharray=\"5 4\"" : "");
    for (size_t i = 0; i < line->count; i++)
        fprintf(f, "%s%.1f,%.1f", i > 0 ? " " : "", at_x(a, line->x[i]),
                at_y(a, line->y[i]));
    fputs("\"/>\n", f);
    for (size_t i = 0; line->marks && i < line->count; i++)
        fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\" fill=\"%s\"/>\n",
                at_x(a, line->x[i]), at_y(a, line->y[i]), line->colour);
}

/* Labels from top to bottom, each pushed below the one before; then, when the
 * last hangs out, all from the bottom up. */
static void draw_labels(FILE *f, const svg_panel *panel, const axes *a)
{
    const svg_line *order[SVG_MAX_LINES];
    double y[SVG_MAX_LINES], bottom = a->top + HEIGHT + 4;
    size_t n = 0;

    for (size_t k = 0; k < panel->count && k < SVG_MAX_LINES; k++) {
        const svg_line *line = &panel->lines[k];
        size_t at = n;
        double here;

        if (line->label == NULL || line->count == 0)
            continue;
        here = at_y(a, line->y[line->count - 1]) + 4;
        for (; at > 0 && y[at - 1] > here; at--) {
            y[at] = y[at - 1];
            order[at] = order[at - 1];
        }
        y[at] = here;
        order[at] = line;
        n++;
    }
    for (size_t i = 1; i < n; i++)
        y[i] = fmax(y[i], y[i - 1] + LABEL_GAP);
    for (size_t i = n; i > 0; i--) {
        y[i - 1] = fmin(y[i - 1], bottom);
        bottom = y[i - 1] - LABEL_GAP;
    }
    for (size_t i = 0; i < n; i++) {
        char style[64];

        snprintf(style, sizeof(style), "fill=\"%s\"", order[i]->colour);
        text(f, at_x(a, order[i]->x[order[i]->count - 1]) + 10, y[i], style,
             order[i]->label);
    }
}

static void draw_panel(FILE *f, const svg_panel *panel, size_t index)
{
    axes a = {.left = (double)index * PANEL + LEFT, .top = HEAD + TOP};

    find_range(panel, &a);
    draw_axes(f, panel, &a);
    for (int marks = 0; marks < 2; marks++) /* dots on top of all lines */
        for (size_t k = 0; k < panel->count && k < SVG_MAX_LINES; k++)
            if (panel->lines[k].marks == (marks == 1))
                draw_line(f, &panel->lines[k], &a);
    draw_labels(f, panel, &a);
}

/* Samples of 40 pixels, each with its word to the right. */
static void draw_key(FILE *f, const svg_plot *plot)
{
    for (size_t k = 0; k < plot->key_count; k++) {
        const double x[] = {0, 0.5, 1}, y[] = {0, 0, 0};
        svg_line sample = plot->key[k];
        axes a = {.x0 = 0, .x1 = WIDTH / 40.0, .y0 = 0, .y1 = 1};

        a.left = LEFT + (double)k * 190;
        a.top = HEAD - 20 - HEIGHT;
        sample.count = 3;
        sample.x = x;
        sample.y = y;
        draw_line(f, &sample, &a);
        text(f, a.left + 48, HEAD - 16, "", plot->key[k].label);
    }
}

int svg_write(FILE *file, const svg_plot *plot)
{
    size_t panels = plot->panel_count > 0 ? plot->panel_count : 1;
    int width = (int)panels * PANEL, height = HEAD + TOP + HEIGHT + BOTTOM;

    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"Helvetica, "
            "Arial, 'DejaVu Sans', sans-serif\" font-size=\"12\">\n"
            "<style>.title{font-size:17px;font-weight:bold}.panel{font-size:"
            "14px;font-weight:bold}.number{fill:#555}.note{fill:#555}"
            "</style>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            width, height, width, height, width, height);
    text(file, LEFT, 30, "class=\"title\"", plot->title);
    if (plot->note != NULL)
        text(file, LEFT, 52, "class=\"note\"", plot->note);
    draw_key(file, plot);
    for (size_t k = 0; k < plot->panel_count; k++)
        draw_panel(file, &plot->panels[k], k);
    fputs("</svg>\n", file);
    return ferror(file) || fflush(file) != 0;
}
