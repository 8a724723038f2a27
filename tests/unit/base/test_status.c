/* SPDX-License-Identifier: Apache-2.0 */
/* Status numbers and names; error texts that are cut, prefixed, aliased. */
#include "config.h"

#include "../unit.h"

#include "base/base.h"

#include <errno.h>
#include <stdio.h>

typedef struct row {
    const char *name;
    int number;
    const char *text;
} row;

static const row rows[] = {
#define ROW(name, number, text) {#name, number, text},
    GYRE_STATUS_MAP(ROW)
#undef ROW
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static void test_table_is_unique(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        assert_true(rows[i].number == 0 || rows[i].number >= 10);
        for (int j = 0; j < i; j++) {
            assert_int_not_equal(rows[i].number, rows[j].number);
            assert_string_not_equal(rows[i].name, rows[j].name);
            assert_string_not_equal(rows[i].text, rows[j].text);
        }
    }
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        gyre_status status = (gyre_status)rows[i].number;

        assert_string_equal(gyre_status_name(status), rows[i].name);
        assert_string_equal(gyre_status_text(status), rows[i].text);
    }
    assert_string_equal(gyre_status_name((gyre_status)9999), "UNKNOWN");
    assert_string_equal(gyre_status_text((gyre_status)-1), "unknown status");
}

/* Written in files and scripts: these never change. */
static void test_numbers_stay(void **state)
{
    (void)state;
    assert_int_equal(GYRE_OK, 0);
    assert_int_equal(GYRE_INVALID, 10);
    assert_int_equal(GYRE_NO_MEMORY, 30);
    assert_int_equal(GYRE_CORRUPT, 51);
    assert_int_equal(GYRE_PLUGIN_ABI, 71);
    assert_int_equal(GYRE_INTERNAL, 99);
}

static void test_fail(void **state)
{
    gyre_error error = {0};

    (void)state;
    assert_int_equal(gyre_fail(&error, GYRE_RANGE, "n is %d, not %s", 7, "8"),
                     GYRE_RANGE);
    assert_int_equal(error.status, GYRE_RANGE);
    assert_string_equal(error.text, "n is 7, not 8");
    assert_int_equal(gyre_fail(NULL, GYRE_IO, "unseen %d", 1), GYRE_IO);
}

/* Whatever the length of the text, it ends inside of its array. */
static void test_text_is_cut(void **state)
{
    struct {
        gyre_error error;
        char guard[16];
    } box;
    static char long_text[3 * GYRE_ERROR_TEXT];

    (void)state;
    memset(long_text, 'x', sizeof(long_text) - 1);
    memset(&box, '#', sizeof(box));
    for (size_t length = GYRE_ERROR_TEXT - 3; length < GYRE_ERROR_TEXT + 3;
         length++) {
        size_t kept = length < GYRE_ERROR_TEXT ? length : GYRE_ERROR_TEXT - 1;

        gyre_fail(&box.error, GYRE_IO, "%.*s", (int)length, long_text);
        assert_int_equal(strlen(box.error.text), kept);
    }
    gyre_fail(&box.error, GYRE_IO, "%s", long_text);
    assert_int_equal(strlen(box.error.text), GYRE_ERROR_TEXT - 1);
    gyre_fail_prefix(&box.error, GYRE_IO, "%s", long_text);
    assert_int_equal(strlen(box.error.text), GYRE_ERROR_TEXT - 1);
    gyre_fail_errno(&box.error, GYRE_IO, EIO, "%s", long_text);
    assert_int_equal(strlen(box.error.text), GYRE_ERROR_TEXT - 1);
    for (size_t length = GYRE_ERROR_TEXT - 6; length < GYRE_ERROR_TEXT;
         length++) { /* with the prefix just as long as the array, or more */
        gyre_fail(&box.error, GYRE_IO, "%.*s", (int)length, long_text);
        gyre_fail_prefix(&box.error, GYRE_IO, "p");
        assert_int_equal(strlen(box.error.text), length + 3 < GYRE_ERROR_TEXT
                                                     ? length + 3
                                                     : GYRE_ERROR_TEXT - 1);
    }
    for (size_t i = 0; i < sizeof(box.guard); i++)
        assert_int_equal(box.guard[i], '#');
}

static void test_prefix(void **state)
{
    gyre_error error = {0};

    (void)state;
    gyre_fail(&error, GYRE_IO, "offset %d", 12);
    assert_int_equal(gyre_fail_prefix(&error, GYRE_IO, "file %s", "a"),
                     GYRE_IO);
    assert_string_equal(error.text, "file a: offset 12");
    assert_int_equal(error.status, GYRE_IO);
    assert_int_equal(gyre_fail_prefix(NULL, GYRE_IO, "unseen"), GYRE_IO);
}

/* A cut prefix still leaves room to see that there was a text. */
static void test_long_prefix_keeps_its_start(void **state)
{
    gyre_error error = {0};

    (void)state;
    gyre_fail(&error, GYRE_IO, "%01000d", 5);
    gyre_fail_prefix(&error, GYRE_IO, "%s", "a place");
    assert_int_equal(strncmp(error.text, "a place: 000", 12), 0);
    assert_int_equal(strlen(error.text), 9 + 1000);
}

static void test_argument_may_be_the_text_itself(void **state)
{
    gyre_error error = {0};

    (void)state;
    gyre_fail(&error, GYRE_IO, "inner");
    gyre_fail(&error, GYRE_STATE, "outer [%s]", error.text);
    assert_string_equal(error.text, "outer [inner]");
    gyre_fail_prefix(&error, GYRE_STATE, "<%s>", error.text);
    assert_string_equal(error.text, "<outer [inner]>: outer [inner]");
}

static void test_errno(void **state)
{
    static const struct {
        int err;
        gyre_status status;
    } known[] = {
        {ENOSPC, GYRE_NO_SPACE},  {EDQUOT, GYRE_NO_SPACE},
        {ENOMEM, GYRE_NO_MEMORY}, {EACCES, GYRE_PERMISSION},
        {EPERM, GYRE_PERMISSION}, {ENOENT, GYRE_NOT_FOUND},
        {EEXIST, GYRE_EXISTS},    {EIO, GYRE_IO},
        {EINVAL, GYRE_IO},        {99999, GYRE_IO},
    };
    gyre_error error = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        assert_int_equal(
            gyre_fail_errno(&error, GYRE_IO, known[i].err, "open %s", "/a"),
            known[i].status);
        assert_int_equal(error.status, known[i].status);
        assert_int_equal(strncmp(error.text, "open /a: ", 9), 0);
        assert_true(strlen(error.text) > 9);
        assert_int_equal(gyre_fail_errno(NULL, GYRE_IO, known[i].err, "unseen"),
                         known[i].status);
    }
    gyre_fail_errno(&error, GYRE_IO, ENOSPC, "write");
    assert_string_equal(error.text, "write: No space left on device");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_unique),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_numbers_stay),
        cmocka_unit_test(test_fail),
        cmocka_unit_test(test_text_is_cut),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_long_prefix_keeps_its_start),
        cmocka_unit_test(test_argument_may_be_the_text_itself),
        cmocka_unit_test(test_errno),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
