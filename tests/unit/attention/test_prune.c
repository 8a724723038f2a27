/* SPDX-License-Identifier: Apache-2.0 */
/* What the prune pass leaves out: halves of a zigzag ring, all but the halo of
 * a window, what documents do not share. */
#include "../unit.h"
#include "in_context.h"
#include "schedules.h"

#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

static gyre_plan *make(schedule_request *r, const char *words, uint32_t drop)
{
    schedule_set(context, r, words);
    r->request.drop = drop;
    gyre_plan *plan = schedule_plan(context, r);
    gyre_proof proof;
    assert_int_equal(gyre_plan_prove(plan, NULL, &proof, NULL), GYRE_OK);
    if (!proof.ok)
        fail_msg("%s: %s", words, proof.reason);
    if (drop)
        assert_int_equal(proof.dead_bytes, 0);
    return plan;
}

static int64_t sent(schedule_request *r, const char *words, uint32_t drop)
{
    gyre_plan *plan = make(r, words, drop);
    int64_t bytes = schedule_sent(plan, NULL);
    gyre_plan_free(plan);
    return bytes;
}

/* P = 32, S = 128 Ki: with 32 KV heads 1984 MiB a rank.  Dead halves, all but
 * those for rank 0, stay at home: 1488 in the mean, from 992 to 1984 by rank.
 */
static void hold_quarter(schedule_request *r, uint32_t kv)
{
    int64_t mib = (int64_t)kv * 1048576 / 32, least = INT64_MAX, most = 0;
    gyre_plan *plan = make(r, "ring direction=descending", GYRE_DROP_DEAD);
    for (uint32_t rank = 0; rank < 32; rank++) {
        gyre_phase_bytes bytes[GYRE_PLAN_PHASES];
        uint32_t count;
        assert_int_equal(gyre_plan_rank_bytes(plan, rank, bytes, &count, NULL),
                         GYRE_OK);
        assert_int_equal(count, 1);
        int64_t out = (int64_t)bytes[0].sent, in = (int64_t)bytes[0].received;
        least = out < least ? out : least;
        most = out > most ? out : most;
        assert_true(in <= 1984 * mib);
        if (rank == 0)
            assert_int_equal(in, 1984 * mib);
    }
    assert_int_equal(schedule_sent(plan, "ring"), 1488 * mib * 32);
    assert_int_equal(least, 992 * mib);
    assert_int_equal(most, 1984 * mib);
    gyre_plan_free(plan);
}

static void a_descending_zigzag_ring_sends_a_quarter_less(void **state)
{
    (void)state;
    static const gyre_mask causal = {.size = sizeof(causal), .causal = 1};
    const int64_t mib = 1048576;
    schedule_request r;
    schedule_table(&r, 8);
    r.request.mask = &causal;
    hold_quarter(&r, 8);
    r.request.kv_heads = 32;
    hold_quarter(&r, 32);
    /* Ascending, only the last hop is for nobody. */
    assert_int_equal(sent(&r, "ring", GYRE_DROP_DEAD), (1984 - 31) * mib * 32);
    /* No mask, nothing to drop. */
    r.request.mask = NULL;
    assert_int_equal(sent(&r, "ring", GYRE_DROP_DEAD), sent(&r, "ring", 0));
}

/* 8 blocks in a row, a window of one block: each goes one hop of seven. */
static void a_window_leaves_the_halo(void **state)
{
    (void)state;
    static const gyre_mask window = {
        .size = sizeof(window), .causal = 1, .window = 16};
    schedule_request r;
    schedule_table(&r, 32);
    r.request.ranks = 8;
    r.request.tokens = 8 * 16;
    r.request.layout = GYRE_LAYOUT_CONTIGUOUS;
    r.request.mask = &window;
    int64_t all = sent(&r, "ring", 0);
    assert_int_equal(sent(&r, "ring", GYRE_DROP_DEAD) * 8, all);
    /* All but the last rank pass their own 16 rows of K and V on, in bf16. */
    assert_int_equal(all, 8 * 7 * 16 * 2 * 32 * 128 * 2);
    /* An all-gather that is pruned gathers what is needed, no more. */
    assert_int_equal(sent(&r, "allgather", GYRE_DROP_DEAD) * 8, all);
}

/* Blocks in a row, causal: of a document of n blocks, block i makes n - 1 - i
 * hops, n (n - 1) / 2 in all; without documents every block makes P - 1. */
static void hold_documents(uint32_t ranks, const uint32_t *blocks,
                           uint32_t count)
{
    uint64_t bounds[65] = {0}, hops = 0;
    const gyre_documents table = {bounds, count, 0};
    const gyre_mask packed = {.size = sizeof(packed),
                              .causal = 1,
                              .document_count = 1,
                              .documents = &table};
    schedule_request r;
    for (uint32_t i = 0; i < count; i++) {
        bounds[i + 1] = bounds[i] + 16 * (uint64_t)blocks[i];
        hops += (uint64_t)blocks[i] * (blocks[i] - 1) / 2;
    }
    schedule_table(&r, 32);
    r.request.ranks = ranks;
    r.request.tokens = ranks * 16;
    assert_int_equal(bounds[count], r.request.tokens);
    r.request.layout = GYRE_LAYOUT_CONTIGUOUS;
    r.request.mask = &packed;
    assert_int_equal(sent(&r, "ring", GYRE_DROP_DEAD) * ranks * (ranks - 1),
                     sent(&r, "ring", 0) * (int64_t)hops);
}

/* D equal documents leave (P / D - 1) / (2 (P - 1)) of the bytes, which goes to
 * 1 / (2 D): a quarter for two, and 31 / 126 at P = 64. */
static void documents_send_what_they_share(void **state)
{
    (void)state;
    hold_documents(8, (const uint32_t[]){2, 2, 2, 2}, 4); /* 1 / 14 */
    hold_documents(8, (const uint32_t[]){4, 4}, 2);       /* 3 / 14 */
    hold_documents(4, (const uint32_t[]){3, 1}, 2);       /* 1 / 4 */
    hold_documents(64, (const uint32_t[]){32, 32}, 2);    /* 31 / 126 */
}

/* Documents as long as a block: nothing is sent at all. */
static void documents_apart_send_nothing(void **state)
{
    (void)state;
    static const uint64_t bounds[] = {0, 16, 32, 48, 64};
    static const gyre_documents packed = {bounds, 4, 0};
    static const gyre_mask mask = {.size = sizeof(mask),
                                   .causal = 1,
                                   .document_count = 1,
                                   .documents = &packed};
    schedule_request r;
    schedule_table(&r, 32);
    r.request.ranks = 4;
    r.request.tokens = 64;
    r.request.layout = GYRE_LAYOUT_CONTIGUOUS;
    r.request.mask = &mask;
    for (uint32_t pass = 0; pass < GYRE_PASS_COUNT; pass++) {
        r.request.pass = pass;
        assert_int_equal(sent(&r, "double-ring window=2", GYRE_DROP_DEAD), 0);
    }
}

/* Buffers shrink to what still comes. */
static void memory_shrinks_with_what_comes(void **state)
{
    (void)state;
    static const gyre_mask window = {
        .size = sizeof(window), .causal = 1, .window = 16};
    schedule_request r;
    schedule_table(&r, 32);
    r.request.ranks = 8;
    r.request.tokens = 8 * 16;
    r.request.layout = GYRE_LAYOUT_CONTIGUOUS;
    r.request.mask = &window;
    uint64_t bytes[2][8], external;
    for (uint32_t drop = 0; drop < 2; drop++) {
        gyre_plan *plan = make(&r, "allgather", drop);
        for (uint32_t rank = 0; rank < 8; rank++)
            assert_int_equal(gyre_plan_rank_memory(plan, rank,
                                                   &bytes[drop][rank],
                                                   &external, NULL),
                             GYRE_OK);
        gyre_plan_free(plan);
    }
    for (uint32_t rank = 0; rank < 8; rank++)
        assert_true(bytes[1][rank] < bytes[0][rank]);
}

/* The last rank's group goes by another name: it loses its PUT, so that what it
 * has left is no all-gather, though no GET of that name changed. */
static void both_ends_of_a_transfer_lose_their_pattern(void **state)
{
    (void)state;
    static const gyre_mask causal = {.size = sizeof(causal), .causal = 1};
    schedule_request r;
    schedule_table(&r, 32);
    r.request.ranks = 2;
    r.request.tokens = 2 * 16;
    r.request.layout = GYRE_LAYOUT_CONTIGUOUS;
    r.request.mask = &causal;
    gyre_plan *plan = make(&r, "allgather", GYRE_DROP_NONE);
    gyre_plan_program *last = &plan->programs[1];
    strcpy(plan->phases[plan->phase_count], "other");
    assert_int_equal(last->group_count, 1);
    assert_int_equal(last->groups[0].pattern, GYRE_PATTERN_AG);
    last->groups[0].phase = (uint8_t)plan->phase_count++;
    assert_int_equal(gyre_plan_prune(plan, NULL), GYRE_OK);
    assert_int_equal(plan->programs[1].groups[0].pattern, GYRE_PATTERN_NONE);
    gyre_proof proof;
    assert_int_equal(gyre_plan_prove(plan, NULL, &proof, NULL), GYRE_OK);
    if (!proof.ok)
        fail_msg("%s", proof.reason);
    gyre_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_descending_zigzag_ring_sends_a_quarter_less),
        cmocka_unit_test(a_window_leaves_the_halo),
        cmocka_unit_test(documents_send_what_they_share),
        cmocka_unit_test(documents_apart_send_nothing),
        cmocka_unit_test(memory_shrinks_with_what_comes),
        cmocka_unit_test(both_ends_of_a_transfer_lose_their_pattern),
    };
    return in_context(tests);
}
