/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leaf of a norm against a scalar program that follows the definition word
 * for word: 16 double lanes by index mod 16, folded 8-4-2-1.
 */
#include "config.h"

#include "../unit.h"

#include "device/device.h"

#include <math.h>

static double leaf_by_definition(const float *g, size_t n)
{
    double lane[16] = {0};

    for (size_t i = 0; i < n; i++)
        lane[i % 16] += (double)g[i] * (double)g[i];
    for (size_t l = 0; l < 8; l++)
        lane[l] += lane[l + 8];
    for (size_t l = 0; l < 4; l++)
        lane[l] += lane[l + 4];
    for (size_t l = 0; l < 2; l++)
        lane[l] += lane[l + 2];
    return lane[0] + lane[1];
}

/* The sets that this machine has, and under valgrind those it emulates. */
static size_t instruction_sets(gyre_isa sets[GYRE_ISA_COUNT])
{
    size_t count = 0;

    for (int isa = 0; isa < GYRE_ISA_COUNT; isa++) {
        gyre_context_options options = {.size = sizeof(options)};
        gyre_context *context;

        options.instruction_set = gyre_isa_name((gyre_isa)isa);
        if (gyre_context_create(&options, &context, NULL) != GYRE_OK)
            continue;
        sets[count++] = (gyre_isa)isa;
        gyre_context_destroy(context);
    }
    return count;
}

/* Any finite f32, all exponents alike. */
static float any_float(uint64_t *seed)
{
    union {
        uint32_t bits;
        float value;
    } u;

    do {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        u.bits = (uint32_t)(*seed >> 32);
    } while (!isfinite(u.value));
    return u.value;
}

static void expect_leaf(const gyre_isa *sets, size_t count, const float *g,
                        size_t n)
{
    double want = leaf_by_definition(g, n);

    for (size_t s = 0; s < count; s++) {
        int finite = -1;
        double have = gyre_device_leaf(sets[s], g, n, &finite);

        assert_int_equal(finite, 1);
        if (memcmp(&want, &have, sizeof(want)) != 0)
            fail_msg("%s, %zu elements: %a, by definition %a",
                     gyre_isa_name(sets[s]), n, have, want);
    }
}

static void test_leaf_of_every_length_is_the_definition(void **state)
{
    gyre_isa sets[GYRE_ISA_COUNT];
    size_t count = instruction_sets(sets);
    static float g[1024];
    uint64_t seed = 1;

    (void)state;
    assert_true(count >= 1);
    for (size_t n = 0; n <= 1024; n++) {
        for (size_t i = 0; i < n; i++)
            g[i] = any_float(&seed);
        expect_leaf(sets, count, g, n);
        for (size_t i = 0; i < n; i++)
            g[i] = (float)(i % 7 + 1) / (float)(1 + n);
        expect_leaf(sets, count, g, n);
    }
}

/* An order that is not the one defined gives other bits: the numbers above
 * tell them apart. */
static void test_the_numbers_tell_orders_apart(void **state)
{
    float g[1024];
    double straight = 0;
    uint64_t seed = 5;
    double leaf;

    (void)state;
    for (size_t i = 0; i < 1024; i++)
        g[i] = (float)((seed = seed * 6364136223846793005u + 1) >> 40) / 1e7f;
    leaf = leaf_by_definition(g, 1024);
    for (size_t i = 0; i < 1024; i++)
        straight += (double)g[i] * (double)g[i];
    assert_true(fabs(straight - leaf) < 1e-9 * leaf);
    assert_memory_not_equal(&straight, &leaf, sizeof(leaf));
}

static void test_largest_values_do_not_overflow(void **state)
{
    gyre_isa sets[GYRE_ISA_COUNT];
    size_t count = instruction_sets(sets);
    float g[1024];

    (void)state;
    for (size_t i = 0; i < 1024; i++)
        g[i] = i % 2 ? 3.402823466e38f : -3.402823466e38f;
    expect_leaf(sets, count, g, 1024);
    for (size_t i = 0; i < 1024; i++)
        g[i] = i % 2 ? 1e-45f : -1e-45f; /* denormal */
    expect_leaf(sets, count, g, 1024);
    assert_true(leaf_by_definition(g, 1024) > 0);
}

/* NaN or infinity at every place of every short length, and of a whole one. */
static void test_nonfinite_is_seen_at_every_place(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    gyre_isa sets[GYRE_ISA_COUNT];
    size_t count = instruction_sets(sets);
    float g[1024] = {0};

    (void)state;
    for (size_t n = 1; n <= 1024; n += n < 70 ? 1 : 477)
        for (size_t at = 0; at < n; at++)
            for (size_t s = 0; s < count; s++) {
                int finite = 1;
                double leaf;

                g[at] = bad[(at + n) % 3];
                leaf = gyre_device_leaf(sets[s], g, n, &finite);
                g[at] = 0;
                assert_int_equal(finite, 0);
                assert_false(isfinite(leaf));
            }
}

/* Two infinities of opposite sign must not cancel into something finite. */
static void test_opposite_infinities_do_not_cancel(void **state)
{
    gyre_isa sets[GYRE_ISA_COUNT];
    size_t count = instruction_sets(sets);
    float g[64] = {0};

    (void)state;
    g[3] = INFINITY;
    g[11] = -INFINITY;
    g[19] = -INFINITY;
    for (size_t s = 0; s < count; s++) {
        int finite = 1;

        (void)gyre_device_leaf(sets[s], g, 64, &finite);
        assert_int_equal(finite, 0);
    }
}

/* What lies behind the n-th element is not read. */
static void test_what_lies_behind_does_not_count(void **state)
{
    gyre_isa sets[GYRE_ISA_COUNT];
    size_t count = instruction_sets(sets);
    float g[1024];

    (void)state;
    for (size_t n = 0; n < 100; n++) {
        for (size_t i = 0; i < 1024; i++)
            g[i] = i < n ? 0.5f : NAN;
        expect_leaf(sets, count, g, n);
    }
}

static void test_add_is_the_plain_sum(void **state)
{
    float dst[777], src[777], want[777];
    uint64_t seed = 11;

    (void)state;
    for (size_t i = 0; i < 777; i++) {
        dst[i] =
            (float)(int32_t)(seed = seed * 6364136223846793005u + 1) * 1e-6f;
        src[i] = (float)(int32_t)(seed >> 32) * 1e-9f;
        want[i] = dst[i] + src[i];
    }
    gyre_device_add(dst, src, 777);
    assert_memory_equal(dst, want, sizeof(want));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaf_of_every_length_is_the_definition),
        cmocka_unit_test(test_the_numbers_tell_orders_apart),
        cmocka_unit_test(test_largest_values_do_not_overflow),
        cmocka_unit_test(test_nonfinite_is_seen_at_every_place),
        cmocka_unit_test(test_opposite_infinities_do_not_cancel),
        cmocka_unit_test(test_what_lies_behind_does_not_count),
        cmocka_unit_test(test_add_is_the_plain_sum),
    };

    return cmocka_run_group_tests_name("device: leaf", tests, NULL, NULL);
}
