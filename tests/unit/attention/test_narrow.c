/* SPDX-License-Identifier: Apache-2.0 */
/* f32 and bf16, in memory and on the wire: every mask and shape under every
 * kind of schedule, within the bounds of gyre_attention_trial. */
#include "../unit.h"
#include "trial.h"

#include <math.h>

/* Tensors, and sums on the wire. */
static const struct {
    const char *kernel;
    uint32_t dtype, wire;
} kinds[] = {
    {"f32", GYRE_F32, GYRE_F32},
    {"f32", GYRE_F32, GYRE_BF16},
    {"bf16", GYRE_BF16, GYRE_F32},
    {"bf16", GYRE_BF16, GYRE_BF16},
};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

static const uint32_t three_and_eight[] = {3, 8, 0};
static const uint32_t two_to_six[] = {2, 4, 6, 0};
static const uint32_t eight[] = {8, 0};
static const uint32_t four[] = {4, 0};

static void sweep(trial_case c, const uint32_t *ranks, uint32_t at_least)
{
    for (size_t i = 0; i < KINDS; i += unit_sampled() ? KINDS - 1 : 1) {
        c.kernel = kinds[i].kernel;
        c.dtype = kinds[i].dtype;
        c.wire_dtype = kinds[i].wire;
        trial_sweep(c, ranks, at_least);
    }
}

static void causal(void **state)
{
    (void)state;
    trial_case c = {.tokens = 64,
                    .heads = 8,
                    .kv_heads = 2,
                    .head_dim = 32,
                    .v_head_dim = 32,
                    .layout = GYRE_LAYOUT_ZIGZAG};
    sweep(c, two_to_six, 18);
}

static void full(void **state)
{
    (void)state;
    trial_case c = {.tokens = 45, .mask = &trial_full};
    sweep(c, three_and_eight, 12);
}

static void windows(void **state)
{
    (void)state;
    for (uint32_t drop = 0; drop < 2; drop++) {
        trial_case c = {.tokens = 33, .mask = &trial_window, .drop = drop};
        sweep(c, three_and_eight, 12);
    }
    trial_case c = {
        .tokens = 32, .mask = &trial_band, .layout = GYRE_LAYOUT_STRIPED};
    sweep(c, four, 8);
}

static void documents(void **state)
{
    (void)state;
    for (uint32_t layout = 0; layout < GYRE_LAYOUT_COUNT; layout++) {
        trial_case c = {.tokens = 33,
                        .batch = 2,
                        .mask = &trial_documents,
                        .layout = layout,
                        .drop = layout % 2};
        sweep(c, three_and_eight, 12);
    }
}

static void masked_rows(void **state)
{
    (void)state;
    for (uint32_t drop = 0; drop < 2; drop++) {
        trial_case c = {.tokens = 30, .mask = &trial_blocks, .drop = drop};
        sweep(c, four, 8);
    }
}

static void grouped_heads(void **state)
{
    (void)state;
    trial_case c = {.tokens = 24,
                    .batch = 2,
                    .heads = 12,
                    .kv_heads = 2,
                    .head_dim = 5,
                    .v_head_dim = 7,
                    .layout = GYRE_LAYOUT_ZIGZAG};
    sweep(c, two_to_six, 18);
}

static void head_dims(void **state)
{
    (void)state;
    static const uint32_t dims[][2] = {{64, 128}, {192, 128}};
    for (int i = 0; i < 2; i++) {
        trial_case c = {.tokens = 16,
                        .heads = 4,
                        .kv_heads = 2,
                        .head_dim = dims[i][0],
                        .v_head_dim = dims[i][1]};
        sweep(c, four, 8);
    }
}

static void odd_lengths(void **state)
{
    (void)state;
    for (uint32_t layout = 0; layout < 3; layout++) {
        trial_case c = {.tokens = 31, .layout = layout};
        sweep(c, three_and_eight, 12);
    }
    trial_case cross = {.tokens = 12, .kv_tokens = 29, .mask = &trial_full};
    sweep(cross, four, 8);
}

static void one_token_a_rank_and_empty_chunks(void **state)
{
    (void)state;
    for (uint32_t layout = 0; layout < 3; layout++) {
        trial_case c = {.tokens = 8, .layout = layout};
        sweep(c, eight, 8);
        c.tokens = 3; /* five ranks have nothing */
        sweep(c, eight, 8);
    }
}

static void dropout_and_slopes(void **state)
{
    (void)state;
    trial_case c = {.tokens = 24, .dropout = 0.3, .slopes = trial_slopes};
    sweep(c, three_and_eight, 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal),
        cmocka_unit_test(full),
        cmocka_unit_test(windows),
        cmocka_unit_test(documents),
        cmocka_unit_test(masked_rows),
        cmocka_unit_test(grouped_heads),
        cmocka_unit_test(head_dims),
        cmocka_unit_test(odd_lengths),
        cmocka_unit_test(one_token_a_rank_and_empty_chunks),
        cmocka_unit_test(dropout_and_slopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
