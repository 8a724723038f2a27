/* SPDX-License-Identifier: Apache-2.0 */
/* Plots: ticks, where points come to lie, texts that need escaping. */
#include "config.h"

#include "../unit.h"

#include "svg.h"

#include <math.h>

static void test_ticks(void **state)
{
    (void)state;
    assert_true(svg_tick(10, 10) == 1);
    assert_true(fabs(svg_tick(2.6, 6) - 0.5) < 1e-12);
    assert_true(svg_tick(9, 6) == 2);
    assert_true(svg_tick(1700, 6) == 500);
    assert_true(svg_tick(0, 6) == 1);
}

static char words[1 << 16];

static void draw(const svg_plot *plot)
{
    FILE *file = fmemopen(words, sizeof(words), "w");

    assert_non_null(file);
    assert_int_equal(svg_write(file, plot), 0);
    fclose(file);
}

static void test_points(void **state)
{
    const double x[] = {1, 2, 3}, y[] = {0, 1, 2};
    const svg_line line = {"a<b & c>", "#123456", false, true, 3, x, y};
    const svg_panel panel = {"p", "x", "y", 1, &line};
    const svg_plot plot = {"t", "n", &line, 1, &panel, 1};

    (void)state;
    draw(&plot);
    /* the whole width and height: both ranges begin and end at a tick */
    assert_non_null(strstr(words, "points=\"58.0,450.0 258.0,290.0 458.0,"
                                  "130.0\""));
    assert_non_null(strstr(words, "a&lt;b &amp; c&gt;"));
    assert_null(strstr(words, "a<b"));
    assert_non_null(strstr(words, "stroke=\"#123456\""));
    assert_string_equal(words + strlen(words) - 7, "</svg>\n");
}

/* Ends that meet get labels that do not. */
static void test_labels_keep_apart(void **state)
{
    const double x[] = {1, 2}, y[] = {0, 0};
    svg_line lines[3];
    const svg_panel panel = {"p", "x", "y", 3, lines};
    const svg_plot plot = {"t", NULL, NULL, 0, &panel, 1};
    double last = INFINITY;

    (void)state;
    for (int k = 0; k < 3; k++)
        lines[k] = (svg_line){k == 0 ? "first" : k == 1 ? "second" : "third",
                              "#000",
                              false,
                              false,
                              2,
                              x,
                              y};
    draw(&plot);
    for (int k = 2; k >= 0; k--) { /* from the lowest */
        char *at = strstr(words, lines[k].label), *place;

        assert_non_null(at);
        for (place = at; strncmp(place, "y=\"", 3) != 0; place--)
            ;
        assert_true(strtod(place + 3, NULL) <= last - 14);
        last = strtod(place + 3, NULL);
    }
}

static void test_nothing_to_draw(void **state)
{
    const double one = 1;
    const svg_line line = {"one", "#000", true, true, 1, &one, &one};
    const svg_panel panels[] = {{"none", "x", "y", 0, NULL},
                                {"one", "x", "y", 1, &line}};
    const svg_plot plot = {"t", NULL, NULL, 0, panels, 2};

    (void)state;
    draw(&plot);
    assert_null(strstr(words, "nan"));
    assert_null(strstr(words, "inf"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ticks),
        cmocka_unit_test(test_points),
        cmocka_unit_test(test_labels_keep_apart),
        cmocka_unit_test(test_nothing_to_draw),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
