/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes, masks and layouts under every kind of schedule, in f64. */
#include "../unit.h"
#include "trial.h"

static const uint32_t two_to_eight[] = {2, 3, 4, 6, 8, 0};
static const uint32_t four[] = {4, 0};
static const uint32_t eight[] = {8, 0};

static void grouped_heads_and_batches(void **state)
{
    (void)state;
    trial_case c = {.tokens = 24,
                    .batch = 3,
                    .heads = 12,
                    .kv_heads = 2,
                    .head_dim = 5,
                    .v_head_dim = 7,
                    .layout = GYRE_LAYOUT_ZIGZAG};
    trial_sweep(c, two_to_eight, 30);
    c.heads = c.kv_heads = 8;
    trial_sweep(c, four, 8);
}

static void head_dims(void **state)
{
    (void)state;
    static const uint32_t dims[][2] = {
        {32, 32}, {64, 128}, {192, 128}, {256, 256}};
    for (int i = 0; i < 4; i++) {
        trial_case c = {.tokens = 16,
                        .heads = 4,
                        .kv_heads = 2,
                        .head_dim = dims[i][0],
                        .v_head_dim = dims[i][1]};
        trial_sweep(c, four, 8);
    }
}

static void odd_lengths_do_not_need_padding(void **state)
{
    (void)state;
    for (uint32_t layout = 0; layout < 3; layout++)
        for (uint64_t tokens = 7; tokens <= 31; tokens += 12) {
            trial_case c = {.tokens = tokens, .layout = layout};
            trial_sweep(c, two_to_eight, 30);
        }
}

static void one_token_a_rank_and_empty_chunks(void **state)
{
    (void)state;
    for (uint32_t layout = 0; layout < 3; layout++) {
        trial_case c = {.tokens = 8, .layout = layout};
        trial_sweep(c, eight, 8);
        c.tokens = 3; /* five ranks have nothing */
        trial_sweep(c, eight, 8);
    }
}

static void cross_attention(void **state)
{
    (void)state;
    trial_case c = {.tokens = 12, .kv_tokens = 29, .mask = &trial_full};
    trial_sweep(c, four, 8);
}

static void sliding_windows(void **state)
{
    (void)state;
    for (uint32_t drop = 0; drop < 2; drop++) {
        trial_case c = {.tokens = 33, .mask = &trial_window, .drop = drop};
        trial_sweep(c, two_to_eight, 30);
    }
    trial_case c = {
        .tokens = 32, .mask = &trial_band, .layout = GYRE_LAYOUT_STRIPED};
    trial_sweep(c, four, 8);
}

static void packed_documents(void **state)
{
    (void)state;
    for (uint32_t layout = 0; layout < GYRE_LAYOUT_COUNT; layout++) {
        trial_case c = {.tokens = 33,
                        .batch = 2,
                        .mask = &trial_documents,
                        .layout = layout};
        c.drop = layout % 2;
        trial_sweep(c, two_to_eight, 30);
    }
}

static void blocks(void **state)
{
    (void)state;
    for (uint32_t drop = 0; drop < 2; drop++) {
        trial_case c = {
            .tokens = 30, .mask = &trial_blocks_short, .drop = drop};
        trial_sweep(c, four, 8);
    }
}

static void dropout_and_slopes(void **state)
{
    (void)state;
    trial_case c = {.tokens = 24, .dropout = 0.3, .slopes = trial_slopes};
    trial_sweep(c, two_to_eight, 30);
    c.mask = &trial_full;
    c.layout = GYRE_LAYOUT_STRIPED;
    trial_sweep(c, four, 8);
}

static void dead_rows_are_left_out(void **state)
{
    (void)state;
    trial_case c = {.tokens = 48, .layout = GYRE_LAYOUT_ZIGZAG, .drop = 1};
    trial_sweep(c, two_to_eight, 30);
    c.kernel = "count";
    c.dtype = GYRE_F64;
    trial_sweep(c, two_to_eight, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grouped_heads_and_batches),
        cmocka_unit_test(head_dims),
        cmocka_unit_test(odd_lengths_do_not_need_padding),
        cmocka_unit_test(one_token_a_rank_and_empty_chunks),
        cmocka_unit_test(cross_attention),
        cmocka_unit_test(sliding_windows),
        cmocka_unit_test(packed_documents),
        cmocka_unit_test(blocks),
        cmocka_unit_test(dropout_and_slopes),
        cmocka_unit_test(dead_rows_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
