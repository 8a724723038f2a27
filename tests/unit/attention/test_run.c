/* SPDX-License-Identifier: Apache-2.0 */
/* Every schedule, run: against the definition, with delays, bytes as planned.
 */
#include "../unit.h"
#include "trial.h"

static const char *const schedules[] = {
    "ring",
    "ring direction=descending hops=published",
    "double-ring",
    "double-ring window=2 hops=published",
    "2d",
    "2d heads=2 window=2 placement=context_first",
    "2d heads=4 keep=split",
    "multi-ring",
    "multi-ring team=2 placement=ring_first",
    "tile a=2",
    "tile a=4 a_backward=2",
    "tile",
    "ulysses",
    "ulysses keep=split",
    "allgather",
    "allgather strides=2",
    "burst",
    "tokenring",
};
enum { SCHEDULES = sizeof(schedules) / sizeof(*schedules) };
static const uint32_t sizes[] = {1, 2, 3, 4, 5, 6, 8};
enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

/* Runs all that check allows; returns how many that are. */
static uint32_t sweep(trial_case c)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    uint32_t ran = 0;
    for (uint32_t s = 0; s < SCHEDULES; s++)
        for (uint32_t p = 0; p < SIZES; p++) {
            c.words = schedules[s];
            c.ranks = sizes[p];
            ran += trial_good(context, &c);
        }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    return ran;
}

static void test_pairs_are_counted_once(void **state)
{
    (void)state;
    trial_case c = {.kernel = "count",
                    .dtype = GYRE_F64,
                    .tokens = 48,
                    .layout = GYRE_LAYOUT_ZIGZAG};
    assert_true(sweep(c) > 60);
}

static void test_f64_equals_the_definition(void **state)
{
    (void)state;
    trial_case c = {.tokens = 48, .layout = GYRE_LAYOUT_ZIGZAG};
    assert_true(sweep(c) > 60);
}

static void test_delays_change_nothing(void **state)
{
    (void)state;
    trial_case c = {
        .tokens = 35, .layout = GYRE_LAYOUT_STRIPED, .delay = 200000};
    assert_true(sweep(c) > 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_are_counted_once),
        cmocka_unit_test(test_f64_equals_the_definition),
        cmocka_unit_test(test_delays_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
