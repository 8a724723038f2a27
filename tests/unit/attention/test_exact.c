/* SPDX-License-Identifier: Apache-2.0 */
/* Deterministic mode: the same bits for every schedule, layout and number of
 * ranks. */
#include "../unit.h"
#include "trial.h"

static const char *const schedules[] = {
    "ring",
    "ring direction=descending hops=published",
    "double-ring window=2",
    "2d heads=2",
    "multi-ring team=2",
    "tile a=2",
    "ulysses",
    "allgather strides=2",
    "burst",
    "tokenring",
};
enum { SCHEDULES = sizeof(schedules) / sizeof(*schedules) };
static const uint32_t sizes[] = {1, 2, 3, 4, 5, 6, 8};
enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

static void take_hashes(const gyre_trial *trial, uint64_t *out)
{
    for (int i = 0; i < GYRE_TRIAL_TENSORS; i++)
        out[i] = trial->tensor[i].hash;
}

static bool same_hashes(const gyre_trial *trial, const uint64_t *hashes)
{
    for (int i = 0; i < GYRE_TRIAL_TENSORS; i++)
        if (trial->tensor[i].compared && trial->tensor[i].hash != hashes[i])
            return false;
    return true;
}

static gyre_status open_with(gyre_context *context, const trial_case *c,
                             gyre_error *error)
{
    trial_options t;
    gyre_attention_cost cost = {.size = sizeof(cost)};
    trial_prepare(context, c, &t);
    return gyre_attention_measure(context, &t.options, 0, &cost, error);
}

/* Runs whatever fits: some schedules not the ranks, and tiles not every chunk.
 * Returns how many differ in bits from the first. */
static uint32_t differing(trial_case c, uint32_t layouts, uint32_t *ran)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    uint64_t first[GYRE_TRIAL_TENSORS] = {0};
    uint32_t differ = 0;
    *ran = 0;
    if (unit_sampled())
        layouts = (layouts + 1) / 2;
    for (c.layout = 0; c.layout < layouts; c.layout++)
        for (uint32_t s = 0; s < SCHEDULES; s += unit_sampled() ? 4 : 1)
            for (uint32_t i = 0; i < SIZES; i++) {
                gyre_trial trial;
                if (unit_sampled() && sizes[i] != 3 && sizes[i] % 4 != 0)
                    continue;
                c.words = schedules[s];
                c.ranks = sizes[i];
                if (open_with(context, &c, NULL) != GYRE_OK ||
                    !trial_run(context, &c, &trial))
                    continue;
                assert_int_equal(trial.ledger_ok, 1);
                assert_true(trial.tensor[GYRE_TRIAL_DQ].compared);
                if ((*ran)++ == 0)
                    take_hashes(&trial, first);
                differ += !same_hashes(&trial, first);
            }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    return differ;
}

static const trial_case problem = {.kernel = "f32",
                                   .dtype = GYRE_F32,
                                   .tokens = 13,
                                   .batch = 1,
                                   .heads = 8, /* ranks share a group of 4 */
                                   .kv_heads = 2,
                                   .head_dim = 8,
                                   .v_head_dim = 8};

static void every_token_a_tile_fits_everything(void **state)
{
    (void)state;
    trial_case c = problem;
    uint32_t ran;
    c.tiles = 240;
    assert_int_equal(differing(c, 3, &ran), 0);
    assert_true(ran > (unit_sampled() ? 10 : 120));
}

static void larger_tiles_fit_what_they_divide(void **state)
{
    (void)state;
    trial_case c = problem;
    uint32_t ran;
    c.tokens = 240;
    c.batch = 1;
    c.heads = c.kv_heads = 2;
    c.tiles = 120;
    c.head_dim = c.v_head_dim = 4;
    c.delay = 20000;
    assert_int_equal(differing(c, 1, &ran), 0);
    assert_true(ran > (unit_sampled() ? 5 : 40));
}

/* Tiles of 4 positions, padded, and of 16, full; two sequences, grouped heads,
 * chunks of another order. */
static void larger_tiles_fit_other_layouts(void **state)
{
    (void)state;
    static const uint32_t tokens[] = {96, 192}, tiles[] = {24, 12};
    for (int i = 0; i < 2; i++) {
        trial_case c = problem;
        uint32_t ran;
        c.tokens = tokens[i];
        c.tiles = tiles[i];
        c.batch = 2;
        c.heads = 4;
        c.head_dim = 16;
        c.v_head_dim = 12;
        assert_int_equal(differing(c, 2, &ran), 0);
        assert_true(ran > (unit_sampled() ? 3 : 50));
    }
}

static void bf16_gets_the_same_bits(void **state)
{
    (void)state;
    trial_case c = problem;
    uint32_t ran;
    c.kernel = "bf16";
    c.dtype = GYRE_BF16;
    c.tiles = 240;
    assert_int_equal(differing(c, 1, &ran), 0);
    assert_true(ran > (unit_sampled() ? 5 : 40));
}

/* Without it bits differ: else the others would show nothing. */
static void off_the_bits_depend_on_the_schedule(void **state)
{
    (void)state;
    uint32_t ran;
    assert_true(differing(problem, 1, &ran) > (unit_sampled() ? 1 : 20));
}

static void results_are_right(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    trial_case c = problem;
    c.tiles = 240;
    c.ranks = 4;
    c.kernel = NULL; /* f64 */
    for (uint32_t s = 0; s < SCHEDULES; s++) {
        c.words = schedules[s];
        trial_good(context, &c);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void what_cannot_be_exact_is_refused(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_error error = {0};
    trial_case c = problem;
    c.words = "ring";
    c.ranks = 4;
    c.tiles = 9;
    assert_int_equal(open_with(context, &c, &error), GYRE_INVALID);
    assert_non_null(strstr(error.text, "chunk 0"));
    assert_non_null(strstr(error.text, "9 tiles of 13"));
    c.tiles = 13;
    assert_int_equal(open_with(context, &c, &error), GYRE_OK);
    c.wire_dtype = GYRE_BF16;
    assert_int_equal(open_with(context, &c, &error), GYRE_INVALID);
    assert_non_null(strstr(error.text, "wire dtype f32"));
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* Bytes and memory of their own lines: the factor is the number of leaves. */
static void its_cost_is_declared(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_error error = {0};
    trial_case c = {.words = "ring",
                    .ranks = 4,
                    .tokens = 32,
                    .tiles = 8,
                    .heads = 2,
                    .kv_heads = 1,
                    .head_dim = 4,
                    .v_head_dim = 4};
    trial_options t;
    gyre_attention_cost cost = {.size = sizeof(cost)};
    trial_prepare(context, &c, &t);
    assert_int_equal(
        gyre_attention_measure(context, &t.options, 1, &cost, &error), GYRE_OK);
    /* Forward: one O* of 8 rows, 2 heads, 4 + 1 doubles, seven times more; and
     * a row folded at a time. */
    uint64_t sum = 8 * 2 * (4 + 1) * 8, fold = 8 * (4 + 1) * 8;
    assert_int_equal(cost.leaves[0], 7 * sum + fold);
    assert_int_equal(cost.leaves_sent[0], 0);
    /* Backward: dKV goes three hops, 8 rows, 1 head, 8 doubles, with 8 x 2
     * leaves. */
    assert_int_equal(cost.leaves_sent[1], 3 * 15 * (8 * 8 * 8));
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_a_tile_fits_everything),
        cmocka_unit_test(larger_tiles_fit_what_they_divide),
        cmocka_unit_test(larger_tiles_fit_other_layouts),
        cmocka_unit_test(bf16_gets_the_same_bits),
        cmocka_unit_test(off_the_bits_depend_on_the_schedule),
        cmocka_unit_test(results_are_right),
        cmocka_unit_test(what_cannot_be_exact_is_refused),
        cmocka_unit_test(its_cost_is_declared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
