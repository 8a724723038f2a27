/* SPDX-License-Identifier: Apache-2.0 */
/* Checked sums and products, rounding up, numbers in words, uuids, the clock.
 */
#include "config.h"

#include "../comma.h"
#include "../unit.h"

#include "base/base.h"

#include <ctype.h>

static void test_products(void **state)
{
    uint64_t out = 77;

    (void)state;
    assert_true(gyre_mul(0, UINT64_MAX, &out) && out == 0);
    assert_true(gyre_mul(UINT64_MAX, 1, &out) && out == UINT64_MAX);
    assert_true(gyre_mul(UINT32_MAX, (uint64_t)UINT32_MAX + 2, &out));
    assert_true(out == UINT64_MAX);
    out = 77;
    assert_false(gyre_mul((uint64_t)1 << 32, (uint64_t)1 << 32, &out));
    assert_false(gyre_mul(UINT64_MAX, 2, &out));
    assert_false(gyre_mul(UINT64_MAX, UINT64_MAX, &out));
    assert_int_equal(out, 77);
}

static void test_sums(void **state)
{
    uint64_t out = 77;

    (void)state;
    assert_true(gyre_add(UINT64_MAX, 0, &out) && out == UINT64_MAX);
    assert_true(gyre_add(1, 2, &out) && out == 3);
    assert_false(gyre_add(UINT64_MAX, 1, &out));
    assert_false(gyre_add(UINT64_MAX, UINT64_MAX, &out));
    assert_int_equal(out, 3);
}

static void test_round_up(void **state)
{
    (void)state;
    assert_int_equal(gyre_round_up(0, 4096), 0);
    assert_int_equal(gyre_round_up(1, 4096), 4096);
    assert_int_equal(gyre_round_up(4096, 4096), 4096);
    assert_int_equal(gyre_round_up(4097, 4096), 8192);
    assert_int_equal(gyre_round_up(7, 3), 9);
}

static void test_numbers_in_words(void **state)
{
    double out = 77;

    (void)state;
    assert_true(gyre_number_parse("0.75", &out) && out == 0.75);
    assert_true(gyre_number_parse("-2e3", &out) && out == -2000);
    assert_false(gyre_number_parse("", &out));
    assert_false(gyre_number_parse("0,75", &out));
    assert_false(gyre_number_parse("1 ", &out));
    assert_false(gyre_number_parse("x", &out));
    assert_true(out == -2000);
}

static void test_numbers_in_a_host_that_writes_a_comma(void **state)
{
    double out = 77;
    bool good;

    (void)state;
    if (!comma_locale())
        skip();
    good = gyre_number_parse("0.75", &out);
    setlocale(LC_NUMERIC, "C");
    assert_true(good && out == 0.75);
}

static void test_uuid_text_and_back(void **state)
{
    static const uint8_t bytes[16] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55,
                                      0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb,
                                      0xcc, 0xdd, 0xee, 0xff};
    uint8_t back[16] = {0};
    char text[37];

    (void)state;
    gyre_uuid_text(bytes, text);
    assert_string_equal(text, "00112233-4455-6677-8899-aabbccddeeff");
    assert_true(gyre_uuid_parse(text, back));
    assert_memory_equal(back, bytes, 16);
    for (char *c = text; *c != '\0'; c++)
        *c = (char)toupper(*c);
    memset(back, 0, sizeof(back));
    assert_true(gyre_uuid_parse(text, back));
    assert_memory_equal(back, bytes, 16);
}

/* Every text cut short, and every single wrong character, is refused. */
static void test_bad_uuid(void **state)
{
    static const char good[] = "00112233-4455-6677-8899-aabbccddeeff";
    static const char wrong[] = "g -/:@`\x80";
    uint8_t uuid[16];
    uint8_t before[16];

    (void)state;
    memset(uuid, 7, sizeof(uuid));
    memset(before, 7, sizeof(before));
    assert_false(gyre_uuid_parse(NULL, uuid));
    for (size_t length = 0; length < 36; length++) {
        char *text = malloc(length + 1); /* exact, for the sanitizer */

        memcpy(text, good, length);
        text[length] = '\0';
        assert_false(gyre_uuid_parse(text, uuid));
        free(text);
    }
    for (size_t i = 0; i < 36; i++) {
        for (const char *c = wrong; *c != '\0'; c++) {
            char text[37];

            memcpy(text, good, sizeof(text));
            if (text[i] == *c || (text[i] == '-' && *c == '-'))
                continue;
            text[i] = *c;
            assert_false(gyre_uuid_parse(text, uuid));
        }
    }
    assert_false(
        gyre_uuid_parse("00112233-4455-6677-8899-aabbccddeeff0", uuid));
    assert_memory_equal(uuid, before, 16);
}

static void test_random_uuid(void **state)
{
    uint8_t uuids[64][16];
    uint8_t set[16] = {0};
    uint8_t clear[16] = {0};

    (void)state;
    for (int i = 0; i < 64; i++) {
        assert_int_equal(gyre_random_uuid(uuids[i], NULL), GYRE_OK);
        assert_int_equal(uuids[i][6] >> 4, 4);
        assert_int_equal(uuids[i][8] >> 6, 2);
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(uuids[i], uuids[j], 16);
        for (int j = 0; j < 16; j++) {
            set[j] |= uuids[i][j];
            clear[j] |= (uint8_t)~uuids[i][j];
        }
    }
    /* every other bit is seen both ways; 2^-64 per bit to fail by chance */
    for (int j = 0; j < 16; j++) {
        uint8_t fixed = j == 6 ? 0xf0 : j == 8 ? 0xc0 : 0;

        assert_int_equal(set[j] | fixed, 0xff);
        assert_int_equal(clear[j] | fixed, 0xff);
    }
}

static void test_clock_does_not_go_back(void **state)
{
    uint64_t last = gyre_now();

    (void)state;
    assert_true(last > 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t now = gyre_now();

        assert_true(now >= last);
        last = now;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_round_up),
        cmocka_unit_test(test_numbers_in_words),
        cmocka_unit_test(test_numbers_in_a_host_that_writes_a_comma),
        cmocka_unit_test(test_uuid_text_and_back),
        cmocka_unit_test(test_bad_uuid),
        cmocka_unit_test(test_random_uuid),
        cmocka_unit_test(test_clock_does_not_go_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
