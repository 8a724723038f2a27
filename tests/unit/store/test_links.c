/* SPDX-License-Identifier: Apache-2.0 */
/* Rates, the texts that declare them, and the arithmetic of a bucket on a
 * clock of our own. */
#include "config.h"

#include "../comma.h"
#include "fixture.h"

#include "store/compute.h"
#include "store/worker.h"

/* ---- rates ------------------------------------------------------------ */

static void test_rates(void **state)
{
    static const struct {
        const char *text;
        double rate; /* 0: refused */
    } cases[] = {
        {"65M", 65e6}, {"1.5G", 1.5e9}, {"800k", 8e5}, {"1000000", 1e6},
        {".5k", 500},  {"", 0},         {"k", 0},      {"0", 0},
        {"0M", 0},     {"-1M", 0},      {" 1M", 0},    {"1 M", 0},
        {"1m", 0},     {"1K", 0},       {"1MM", 0},    {"1.2.3", 0},
        {"inf", 0},    {"nan", 0},      {"0x10", 0},   {"1e9", 0},
        {"1MiB/s", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        double rate = -1;
        bool good =
            gyre_rate_parse(cases[i].text, strlen(cases[i].text), &rate);

        if (good != (cases[i].rate != 0) || (good && rate != cases[i].rate))
            fail_msg("\"%s\" gives %d, %g", cases[i].text, good, rate);
        if (!good)
            assert_true(rate == -1);
    }
}

/* Rates are written as in the manual in every country. */
static void test_rates_in_a_host_that_writes_a_comma(void **state)
{
    double rate = -1;
    bool good;

    (void)state;
    if (!comma_locale())
        skip();
    good = gyre_rate_parse("1.5G", 4, &rate);
    setlocale(LC_NUMERIC, "C");
    assert_true(good && rate == 1.5e9);
}

static void test_compute_texts(void **state)
{
    static const char *const good[] = {
        "cpu",  "opencl", "opencl:0",         "opencl:12",
        "cuda", "cuda:1", "emulated:read=1M", "emulated:write=1k,read=2G",
    };
    static const char *const bad[] = {
        "",
        "gpu",
        "cpu:0",
        "opencl:",
        "opencl:x",
        "opencl0",
        "cuda:-1",
        "emulated",
        "emulated:",
        "emulated:read",
        "emulated:read=",
        "emulated:read=1M,",
        "emulated:read=1M,read=1M",
        "emulated:read=1M,write",
        "emulated:link=1M",
        "emulated:read=0,write=1",
        "emulatedread=1M",
    };
    gyre_compute c;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        assert_int_equal(gyre_compute_parse(good[i], &c, NULL), GYRE_OK);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        gyre_error error = {GYRE_OK, ""};

        if (gyre_compute_parse(bad[i], &c, &error) != GYRE_INVALID)
            fail_msg("\"%s\" is taken", bad[i]);
        unit_assert_text(&error, "emulated:read=RATE,write=RATE");
    }
    assert_int_equal(
        gyre_compute_parse("emulated:write=35M,read=65M", &c, NULL), GYRE_OK);
    assert_string_equal(c.device, "cpu");
    assert_true(c.read_rate == 65e6 && c.write_rate == 35e6);
    assert_int_equal(gyre_compute_parse("opencl:1", &c, NULL), GYRE_OK);
    assert_string_equal(c.device, "opencl:1");
    assert_true(c.read_rate == 0 && c.write_rate == 0);
}

/* ---- buckets ---------------------------------------------------------- */

static void test_no_rate_takes_no_time(void **state)
{
    gyre_bucket b = {0, 0, 0};
    gyre_turn turn = gyre_bucket_reserve(&b, 1000, 1u << 30);

    (void)state;
    assert_int_equal(turn.end, 0);
    b.rate = 1e6;
    turn = gyre_bucket_reserve(&b, 1000, 0);
    assert_int_equal(turn.end, 0);
    assert_int_equal(b.next, 0);
}

static void test_transfers_queue_up(void **state)
{
    gyre_bucket b = {1e6, 0, 0}; /* 1 byte in 1,000 ns */
    gyre_turn turn = gyre_bucket_reserve(&b, 5000, 10);

    (void)state;
    assert_int_equal(turn.begin, 5000);
    assert_int_equal(turn.end, 15000);
    turn = gyre_bucket_reserve(&b, 6000, 2);
    assert_int_equal(turn.begin, 15000);
    assert_int_equal(turn.end, 17000);
}

/* What rested is not owed: after a pause of any length a transfer takes its
 * whole time. */
static void test_no_credit_is_saved(void **state)
{
    gyre_bucket b = {1e6, 0, 0};
    gyre_turn turn;

    (void)state;
    (void)gyre_bucket_reserve(&b, 1, 1000);
    turn = gyre_bucket_reserve(&b, 1000000000, 1000);
    assert_int_equal(turn.begin, 1000000000);
    assert_int_equal(turn.end, 1001000000);
}

static void test_a_restart_forgets(void **state)
{
    gyre_bucket b = {1e3, 0, 0};
    gyre_turn turn;

    (void)state;
    (void)gyre_bucket_reserve(&b, 100, 1000000);
    gyre_bucket_restart(&b);
    turn = gyre_bucket_reserve(&b, 200, 1);
    assert_int_equal(turn.begin, 200);
    assert_int_equal(turn.end, 1000200);
}

/*
 * However a sum of bytes is cut, its time is the same.  Each reservation
 * carries less than 1 ns on in `rest`, with a rounding error of a double near
 * the largest transfer (1e7 ns: 2e-9 ns) each time; so 1 ns is generous.
 */
static void test_cuts_do_not_matter(void **state)
{
    static const double rates[] = {3e6, 7.7e7, 1.74e8, 8e9, 333};
    uint64_t seed = 7;

    (void)state;
    for (size_t r = 0; r < sizeof(rates) / sizeof(*rates); r++) {
        gyre_bucket b = {rates[r], 0, 0};
        uint64_t sum = 0, end = 0;
        double exact;

        for (int i = 0; i < 10000; i++) {
            uint64_t bytes = 1 + random_next(&seed) % 3000;
            gyre_turn turn = gyre_bucket_reserve(&b, 1000, bytes);

            assert_true(turn.begin == (i == 0 ? 1000 : end));
            end = turn.end;
            sum += bytes;
        }
        exact = 1000 + (double)sum / rates[r] * 1e9;
        assert_true(fabs((double)end - exact) <= 1 + exact * 0x1p-50);
    }
}

/* Two parties with clocks of their own: never two transfers at a time, and no
 * rest while one waits. */
static void test_turns_are_disjoint(void **state)
{
    gyre_bucket b = {1e8, 0, 0};
    uint64_t now[2] = {0, 0}, seed = 3, last = 0;

    (void)state;
    for (int i = 0; i < 10000; i++) {
        int who = (int)(random_next(&seed) % 2);
        gyre_turn turn =
            gyre_bucket_reserve(&b, now[who], 1 + random_next(&seed) % 100);

        assert_true(turn.begin == (last > now[who] ? last : now[who]));
        assert_true(turn.end >= turn.begin);
        last = turn.end;
        now[who] = turn.end + random_next(&seed) % 500;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_rates_in_a_host_that_writes_a_comma),
        cmocka_unit_test(test_compute_texts),
        cmocka_unit_test(test_no_rate_takes_no_time),
        cmocka_unit_test(test_transfers_queue_up),
        cmocka_unit_test(test_no_credit_is_saved),
        cmocka_unit_test(test_a_restart_forgets),
        cmocka_unit_test(test_cuts_do_not_matter),
        cmocka_unit_test(test_turns_are_disjoint),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
