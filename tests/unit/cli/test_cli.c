/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers on the command line, texts for people, the progress bar. */
#include "config.h"

#include "../unit.h"

#include "cli.h"
#include "progress.h"

#include <stdio.h>

static void test_counts(void **state)
{
    static const char *const bad[] = {
        "", " 1", "-1", "+1", "1 ", "1K", "0x10", "1.5", "18446744073709551616",
        "a"};
    uint64_t value = 7;

    (void)state;
    assert_true(cli_read(CLI_COUNT, "0", &value) && value == 0);
    assert_true(cli_read(CLI_COUNT, "18446744073709551615", &value));
    assert_true(value == UINT64_MAX);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(cli_read(CLI_COUNT, bad[i], &value));
    assert_true(value == UINT64_MAX);
}

static void test_sizes(void **state)
{
    static const char *const bad[] = {
        "K", "1KB", "1 K", "16777216T", "1P", "-1K", "18446744073709551615K"};
    uint64_t value = 7;

    (void)state;
    assert_true(cli_read(CLI_BYTES, "4096", &value) && value == 4096);
    assert_true(cli_read(CLI_BYTES, "4k", &value) && value == 4096);
    assert_true(cli_read(CLI_BYTES, "3M", &value) && value == 3u << 20);
    assert_true(cli_read(CLI_BYTES, "2G", &value) && value == 2ull << 30);
    assert_true(cli_read(CLI_BYTES, "16777215T", &value));
    assert_true(value == 16777215ull << 40);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(cli_read(CLI_BYTES, bad[i], &value));
}

static void test_numbers(void **state)
{
    static const char *const bad[] = {"",    "x",   "1x",    " 1",
                                      "nan", "inf", "1e999", "1,5"};
    double value = 7;

    (void)state;
    assert_true(cli_read(CLI_NUMBER, "-1.5e-3", &value) && value == -1.5e-3);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(cli_read(CLI_NUMBER, bad[i], &value));
}

static void test_texts(void **state)
{
    char text[16];

    (void)state;
    assert_string_equal(cli_bytes(0, text), "0 B");
    assert_string_equal(cli_bytes(999, text), "999 B");
    assert_string_equal(cli_bytes(1000, text), "1.0 kB");
    assert_string_equal(cli_bytes(1250000, text), "1.2 MB");
    assert_string_equal(cli_bytes(99.96e9, text), "100 GB");
    assert_string_equal(cli_bytes(999.6e9, text), "1.0 TB");
    assert_true(strlen(cli_bytes(1e300, text)) < 16);
    assert_string_equal(cli_seconds(0, text), "0:00");
    assert_string_equal(cli_seconds(7.4, text), "0:07");
    assert_string_equal(cli_seconds(59.6, text), "1:00");
    assert_string_equal(cli_seconds(3723, text), "1:02:03");
    assert_string_equal(cli_seconds(1e300, text), "?");
    assert_string_equal(cli_seconds(0.0 / 0.0, text), "?");
}

static void test_codes(void **state)
{
    (void)state;
    assert_int_equal(cli_code(GYRE_OK), 0);
    assert_int_equal(cli_code(GYRE_CORRUPT), 1);
    assert_int_equal(cli_code(GYRE_IO), 1);
    assert_int_equal(cli_code(GYRE_NOT_FOUND), 2);
    assert_int_equal(cli_code(GYRE_PARAMETER), 2);
    assert_int_equal(cli_code(GYRE_UNSUPPORTED), 77);
    assert_int_equal(cli_code(GYRE_NO_MEMORY), 99);
    assert_int_equal(cli_code(GYRE_INTERNAL), 99);
}

/* ---- progress -------------------------------------------------------- */

static uint64_t fake_time;

static uint64_t fake_clock(void)
{
    return fake_time;
}

static progress_bar bar(FILE *file, progress_style style, int width,
                        uint64_t total)
{
    progress_bar progress = {0};

    progress.file = file;
    progress.style = style;
    progress.width = width;
    progress.label = "export";
    progress.unit = "B";
    progress.total = total;
    progress.clock = fake_clock;
    progress.begin = progress.drawn = fake_time = 5000000000;
    return progress;
}

/* Ten updates, 50 ms apart, of a tenth each. */
static char *draw(progress_style style, int width, uint64_t total,
                  uint64_t between)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    progress_bar progress = bar(file, style, width, total);

    for (uint64_t i = 1; i <= 10; i++) {
        fake_time += between;
        progress_update(&progress, i * 100000000);
    }
    progress_end(&progress, 1000000000);
    fclose(file);
    return text;
}

static size_t count_of(const char *text, char c)
{
    size_t count = 0;

    for (; *text != '\0'; text++)
        count += *text == c;
    return count;
}

static void test_bar(void **state)
{
    char *text = draw(PROGRESS_BAR, 80, 1000000000, 50000000);

    (void)state;
    assert_int_equal(count_of(text, '\r'), 6); /* every other, and the end */
    assert_int_equal(count_of(text, '\n'), 1);
    assert_non_null(strstr(text, "\rexport [########"));
    assert_non_null(strstr(text, " 20 %  2.0 GB/s  0:00 left"));
    assert_non_null(strstr(text, "100 %  2.0 GB/s  in 0:01\033[K\n"));
    free(text);
}

/* No line is longer than the terminal is wide, else it would wrap. */
static void test_narrow_bar(void **state)
{
    (void)state;
    for (int width = 40; width < 100; width += 7) {
        char *text = draw(PROGRESS_BAR, width, 1000000000, 100000000);

        for (char *line = strtok(text, "\r\n"); line != NULL;
             line = strtok(NULL, "\r\n"))
            assert_true(strlen(line) - strlen("\033[K") < (size_t)width);
        free(text);
    }
}

static void test_plain_lines(void **state)
{
    char *text = draw(PROGRESS_PLAIN, 80, 1000000000, 5000000000);

    (void)state;
    assert_int_equal(count_of(text, '\r'), 0);
    assert_int_equal(count_of(text, '\n'), 6);
    assert_int_equal(strncmp(text, "export: 20 %  20.0 MB/s  0:40 left\n", 35),
                     0);
    free(text);
    text = draw(PROGRESS_PLAIN, 80, 1000000000, 1000);
    assert_int_equal(count_of(text, '\n'), 1);
    free(text);
}

static void test_unknown_total(void **state)
{
    char *text = draw(PROGRESS_PLAIN, 80, 0, 5000000000);

    (void)state;
    assert_int_equal(strncmp(text, "export: 200 MB  20.0 MB/s\n", 26), 0);
    free(text);
}

/* Steps 10 to 12 of 20, a second each, and what stands on the last lines. */
static char *draw_steps(int width, const char *note)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    progress_bar progress = bar(file, PROGRESS_BAR, width, 20);

    progress.unit = "steps";
    progress.note = note;
    fake_time += 1000000000;
    progress_begin(&progress, 10);
    progress_update(&progress, 10);
    for (int step = 11; step <= 12; step++) {
        fake_time += 2000000000;
        progress_update(&progress, step);
    }
    progress_clear(&progress);
    fputs("a line\n", file);
    progress_update(&progress, 12);
    fclose(file);
    return text;
}

/* The rate is of the steps since it began, and a line may stand above. */
static void test_steps(void **state)
{
    char *text = draw_steps(100, "loss 2.5");

    (void)state;
    assert_int_equal(strncmp(text, "\rexport [####", 13), 0);
    assert_non_null(strstr(text, " 50 %  10/20 steps  0 steps/s  loss 2.5"));
    assert_non_null(strstr(
        text, " 60 %  12/20 steps  0.50 steps/s  0:16 left  loss 2.5\033[K"
              "\r\033[Ka line\n\rexport [###"));
    free(text);
}

/* Too long a note is cut at the edge, between characters. */
static void test_cut_note(void **state)
{
    char *text = draw_steps(59, "m\xc3\xbc\xc3\xbc\xc3\xbc");

    (void)state;
    assert_non_null(
        strstr(text, "export  60 %  12/20 steps  0.50 steps/s  0:16 left  "
                     "m\xc3\xbc\xc3\xbc\xc3\xbc\033[K"));
    free(text);
    text = draw_steps(55, "m\xc3\xbc\xc3\xbc\xc3\xbc");
    assert_non_null(strstr(text, "0:16 left  m\xc3\xbc\033[K"));
    free(text);
}

static void test_quiet(void **state)
{
    char *text = draw(PROGRESS_NONE, 80, 1000, 5000000000);
    progress_bar progress;

    (void)state;
    assert_string_equal(text, "");
    free(text);
    progress_start(&progress, true, "export", "B", 10);
    assert_int_equal(progress.style, PROGRESS_NONE);
    progress_end(&progress, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_bar),
        cmocka_unit_test(test_narrow_bar),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_cut_note),
        cmocka_unit_test(test_plain_lines),
        cmocka_unit_test(test_unknown_total),
        cmocka_unit_test(test_quiet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
