/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts cover every token once; cells agree with asking pair by pair. */
#include "../unit.h"
#include "plan/plan.h"

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void layouts_cover_every_token_once(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    uint64_t bounds[] = {2, 9, 9, 20, 31};
    gyre_documents documents = {bounds, 4, 0};
    for (uint32_t layout = 0; layout < GYRE_LAYOUT_COUNT; layout++)
        for (uint32_t ranks = 1; ranks <= 12; ranks++)
            for (uint32_t parts = 1; parts <= ranks; parts++) {
                if (ranks % parts != 0)
                    continue;
                gyre_grid grid[12];
                for (uint32_t r = 0; r < ranks; r++)
                    grid[r] =
                        (gyre_grid){r / parts, ranks / parts, r % parts, parts};
                for (uint64_t tokens = 31; tokens < 70; tokens += 13) {
                    gyre_chunks chunks;
                    gyre_error error;
                    assert_int_equal(gyre_layout_cut(context, layout, tokens,
                                                     &documents, grid, ranks,
                                                     &chunks, &error),
                                     GYRE_OK);
                    assert_int_equal(gyre_chunks_check(context, chunks.at,
                                                       chunks.count, tokens,
                                                       ranks, "Q", &error),
                                     GYRE_OK);
                    gyre_free(context, chunks.at, chunks.count,
                              sizeof(*chunks.at));
                }
            }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* Zigzag goes by place and then splits, not by rank: the 2D layout. */
static void zigzag_splits_places_not_ranks(void **state)
{
    (void)state;
    gyre_context *context = unit_context(&(unit_memory){0});
    gyre_grid grid[4] = {
        {0, 2, 0, 2}, {0, 2, 1, 2}, {1, 2, 0, 2}, {1, 2, 1, 2}};
    gyre_chunks chunks;
    assert_int_equal(gyre_layout_cut(context, GYRE_LAYOUT_ZIGZAG, 64, NULL,
                                     grid, 4, &chunks, NULL),
                     GYRE_OK);
    const uint32_t owner[] = {0, 1, 2, 3, 2, 3, 0, 1};
    assert_int_equal(chunks.count, 8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(chunks.at[i].start, 8 * i);
        assert_int_equal(chunks.at[i].owner, owner[i]);
    }
    gyre_free(context, chunks.at, chunks.count, sizeof(*chunks.at));
    gyre_context_destroy(context);
}

static void bad_tables_are_named(void **state)
{
    (void)state;
    gyre_context *context = unit_context(&(unit_memory){0});
    gyre_error error;
    gyre_chunk twice[] = {{0, 4, 1, 0, 0}, {3, 4, 1, 0, 0}, {7, 1, 1, 0, 0}};
    assert_int_equal(gyre_chunks_check(context, twice, 3, 9, 1, "KV", &error),
                     GYRE_INVALID);
    assert_non_null(strstr(error.text, "KV chunk 1 overlaps another at "
                                       "position 3"));
    gyre_chunk few[] = {{0, 4, 1, 0, 0}};
    assert_int_equal(gyre_chunks_check(context, few, 1, 9, 1, "Q", &error),
                     GYRE_INVALID);
    assert_non_null(strstr(error.text, "hold 4 of 9 tokens"));
    gyre_chunk beyond[] = {{0, 4, UINT64_MAX / 2, 0, 0}};
    assert_int_equal(gyre_chunks_check(context, beyond, 1, 9, 1, "Q", &error),
                     GYRE_INVALID);
    gyre_chunk owner[] = {{0, 4, 1, 3, 0}};
    assert_int_equal(gyre_chunks_check(context, owner, 1, 4, 3, "Q", &error),
                     GYRE_INVALID);
    gyre_grid grid[2] = {{0, 2, 0, 1}, {0, 2, 0, 1}};
    gyre_chunks chunks;
    assert_int_equal(
        gyre_layout_cut(context, 0, 9, NULL, grid, 2, &chunks, &error),
        GYRE_INVALID);
    assert_non_null(strstr(error.text, "ranks 0 and 1 both stand"));
    gyre_context_destroy(context);
}

/* ---- cells ----------------------------------------------------------------
 */

enum { TOKENS = 40, BATCH = 2, BLOCKS = 6 };

typedef struct random_mask {
    gyre_mask mask;
    gyre_documents documents[BATCH];
    uint64_t bounds[BATCH][5];
    uint8_t blocks[BLOCKS * BLOCKS];
} random_mask;

static void make_mask(random_mask *m, uint32_t *seed)
{
    *m = (random_mask){.mask = {.size = sizeof(gyre_mask)}};
    uint32_t choice = next_random(seed);
    m->mask.causal = choice & 1;
    m->mask.window = choice & 2 ? 1 + next_random(seed) % 20 : 0;
    if (choice & 4) {
        m->mask.document_count = choice & 8 ? 1 : BATCH;
        m->mask.documents = m->documents;
        for (int b = 0; b < BATCH; b++) {
            uint64_t at = next_random(seed) % 4;
            for (int d = 0; d < 5; d++) {
                m->bounds[b][d] = at;
                at += next_random(seed) % 10;
            }
            m->documents[b] = (gyre_documents){m->bounds[b], 4, 0};
        }
    }
    if (choice & 16) {
        m->mask.blocks = m->blocks;
        m->mask.block_q = 7, m->mask.block_k = 5;
        m->mask.block_rows = m->mask.block_columns = BLOCKS;
        for (int i = 0; i < BLOCKS * BLOCKS; i++)
            m->blocks[i] = next_random(seed) % 3 > 0;
    }
}

/* The definition, written out. */
static bool allowed(const random_mask *m, int b, uint64_t q, uint64_t k)
{
    const gyre_mask *mask = &m->mask;
    if (mask->causal && k > q)
        return false;
    if (mask->window && (q > k ? q - k : k - q) >= mask->window)
        return false;
    if (mask->document_count) {
        const uint64_t *at = m->bounds[mask->document_count == 1 ? 0 : b];
        bool together = false;
        for (int d = 0; d < 4; d++)
            together |=
                q >= at[d] && q < at[d + 1] && k >= at[d] && k < at[d + 1];
        if (!together)
            return false;
    }
    if (mask->blocks) {
        uint64_t row = q / 7, column = k / 5;
        if (row >= BLOCKS || column >= BLOCKS ||
            !m->blocks[row * BLOCKS + column])
            return false;
    }
    return true;
}

static gyre_chunk random_chunk(uint32_t *seed)
{
    gyre_chunk chunk = {.start = next_random(seed) % 20,
                        .length = next_random(seed) % 6,
                        .stride = 1 + next_random(seed) % 4};
    if (next_random(seed) % 2)
        chunk.stride = 1;
    return chunk;
}

static void cells_agree_with_pairs(void **state)
{
    (void)state;
    uint32_t seed = 7, seen[3] = {0};
    for (int trial = 0; trial < 20000; trial++) {
        random_mask m;
        make_mask(&m, &seed);
        gyre_chunk q = random_chunk(&seed), kv = random_chunk(&seed);
        uint64_t area = 0, pairs = q.length * kv.length;
        for (int b = 0; b < BATCH; b++) {
            uint64_t mine = 0;
            for (uint64_t i = 0; i < q.length; i++)
                for (uint64_t j = 0; j < kv.length; j++) {
                    uint64_t a = q.start + i * q.stride;
                    uint64_t c = kv.start + j * kv.stride;
                    bool yes = allowed(&m, b, a, c);
                    assert_int_equal(gyre_mask_allows(&m.mask, b, a, c), yes);
                    mine += yes;
                }
            gyre_cell want = mine == 0       ? GYRE_CELL_EMPTY
                             : mine == pairs ? GYRE_CELL_FULL
                                             : GYRE_CELL_PARTIAL;
            assert_int_equal(gyre_mask_cell(&m.mask, b, &q, &kv), want);
            area += mine;
        }
        assert_int_equal(gyre_mask_area(&m.mask, BATCH, &q, &kv), area);
        gyre_cell want = area == 0               ? GYRE_CELL_EMPTY
                         : area == BATCH * pairs ? GYRE_CELL_FULL
                                                 : GYRE_CELL_PARTIAL;
        assert_int_equal(gyre_mask_cells(&m.mask, BATCH, &q, &kv), want);
        seen[want]++;
    }
    for (int i = 0; i < 3; i++)
        assert_true(seen[i] > 500);
}

static void masks_are_copied_and_checked(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    uint32_t seed = 3;
    uint64_t before = memory.bytes;
    for (int trial = 0; trial < 64; trial++) {
        random_mask m;
        make_mask(&m, &seed);
        for (uint64_t n = 1;; n++) {
            gyre_mask *copy = NULL;
            memory.fail_at = memory.requests + n;
            gyre_status status =
                gyre_mask_copy(context, &m.mask, BATCH, &copy, NULL);
            memory.fail_at = 0;
            if (status == GYRE_OK) {
                for (uint64_t q = 0; q < TOKENS; q += 3)
                    for (uint64_t k = 0; k < TOKENS; k++)
                        assert_int_equal(gyre_mask_allows(copy, 1, q, k),
                                         allowed(&m, 1, q, k));
                gyre_mask_free(context, copy);
                break;
            }
            assert_int_equal(status, GYRE_NO_MEMORY);
            assert_int_equal(memory.bytes, before);
        }
        assert_int_equal(memory.bytes, before);
    }
    gyre_mask bad = {.size = sizeof(bad), .document_count = 3};
    gyre_mask *copy = NULL;
    gyre_error error;
    assert_int_equal(gyre_mask_copy(context, &bad, 2, &copy, &error),
                     GYRE_INVALID);
    assert_non_null(strstr(error.text, "3 document tables for a batch of 2"));
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_cover_every_token_once),
        cmocka_unit_test(zigzag_splits_places_not_ranks),
        cmocka_unit_test(bad_tables_are_named),
        cmocka_unit_test(cells_agree_with_pairs),
        cmocka_unit_test(masks_are_copied_and_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
