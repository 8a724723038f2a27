/* SPDX-License-Identifier: Apache-2.0 */
/* Every schedule is proven: ranks, heads, masks and layouts, forward and
 * backward, as it is and pruned. */
#include "../unit.h"
#include "in_context.h"
#include "schedules.h"

#include "attention/make.h"

#include <stdio.h>

static const char *const schedules[] = {
    "ring",
    "ring direction=descending",
    "ring hops=published",
    "double-ring window=2",
    "double-ring window=3",
    "double-ring window=4",
    "double-ring window=4 hops=published",
    "2d heads=2",
    "2d heads=3",
    "2d heads=4",
    "2d heads=4 keep=split",
    "2d heads=2 placement=context_first",
    "2d heads=4 placement=context_first keep=split",
    "multi-ring team=2",
    "multi-ring team=3",
    "multi-ring team=4",
    "tile",
    "ulysses",
    "ulysses keep=split",
    "allgather",
    "allgather strides=2",
    "burst",
    "burst hops=published",
    "tokenring",
};
enum { SCHEDULES = sizeof(schedules) / sizeof(*schedules) };

typedef struct shape {
    uint32_t heads, kv_heads;
} shape;
static const shape shapes[] = {{8, 8}, {8, 2}, {24, 8}, {10, 5}};

static const uint64_t bounds[] = {0, 7, 8, 40, 131};
static const gyre_documents documents = {bounds, 4, 0};
static const gyre_mask masks[] = {
    {.size = sizeof(gyre_mask), .causal = 1},
    {.size = sizeof(gyre_mask)},
    {.size = sizeof(gyre_mask), .causal = 1, .window = 9},
    {.size = sizeof(gyre_mask),
     .causal = 1,
     .document_count = 1,
     .documents = &documents},
};
enum { MASKS = sizeof(masks) / sizeof(*masks) };

static void set(schedule_request *r, const char *words, uint32_t ranks,
                const shape *s, uint32_t pass)
{
    memset(r, 0, sizeof(*r));
    r->request.ranks = ranks;
    r->request.heads = s->heads;
    r->request.kv_heads = s->kv_heads;
    r->request.head_dim = 8;
    r->request.v_head_dim = 4;
    r->request.dtype = GYRE_F32;
    r->request.wire_dtype = GYRE_F32;
    r->request.tokens = 131;
    r->request.pass = pass;
    schedule_set(context, r, words);
}

/* Proven as it is, and pruned; how many were. */
static uint32_t prove(const schedule_request *r, const gyre_plan *forward)
{
    gyre_proof proof;
    gyre_error error = {0};
    gyre_proof_options options = {.size = sizeof(options), .forward = forward};
    for (uint32_t drop = 0; drop < 2; drop++) {
        gyre_plan_request request = r->request;
        request.drop = drop;
        gyre_status status = gyre_plan_prove_request(context, &request,
                                                     &options, &proof, &error);
        if (status == GYRE_INVALID && drop == 0)
            return 0; /* the schedule's check */
        if (status != GYRE_OK)
            fail_msg("%s", error.text);
        if (!proof.ok)
            fail_msg("%s%s, %u ranks, %u:%u heads, pass %u, layout %u: rank "
                     "%d op %d cell (%d, %d, %d): %s",
                     r->text, drop ? " pruned" : "", request.ranks,
                     request.heads, request.kv_heads, request.pass,
                     request.layout, (int)proof.rank, (int)proof.op,
                     (int)proof.q_chunk, (int)proof.kv_chunk, (int)proof.head,
                     proof.reason);
        if (drop != 0)
            assert_int_equal(proof.dead_bytes, 0);
    }
    return 1;
}

static uint32_t prove_both(const char *words, uint32_t ranks, const shape *s,
                           const gyre_mask *mask, uint32_t layout)
{
    schedule_request r;
    gyre_plan *forward = NULL;
    set(&r, words, ranks, s, GYRE_PASS_FORWARD);
    r.request.mask = mask;
    r.request.layout = layout;
    if (gyre_plan_make(context, &r.request, &forward, NULL) != GYRE_OK)
        return 0;
    uint32_t count = prove(&r, NULL);
    r.request.pass = GYRE_PASS_BACKWARD;
    count += prove(&r, forward);
    gyre_plan_free(forward);
    return count;
}

static void every_schedule_is_right(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 2, 3, 4, 5, 6, 8, 12, 16};
    bool all = getenv("GYRE_SOAK") != NULL;
    uint32_t proven = 0, turn = 0;
    for (uint32_t i = 0; i < SCHEDULES; i++)
        for (size_t p = 0; p < sizeof(counts) / sizeof(*counts); p++)
            for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++)
                for (uint32_t m = 0; m < MASKS; m++)
                    for (uint32_t l = 0; l < GYRE_LAYOUT_COUNT; l++)
                        if ((all || turn++ % 5 == 0) &&
                            (l != GYRE_LAYOUT_DOCUMENTS || m == 3))
                            proven += prove_both(schedules[i], counts[p],
                                                 &shapes[s], &masks[m], l);
    print_message("# %u plans\n", proven);
    assert_true(proven > 500);
}

/* Up to 64 ranks with one shape that suits all. */
static void many_ranks_are_right(void **state)
{
    (void)state;
    static const char *const wide[] = {
        "ring direction=descending",
        "double-ring window=8",
        "2d heads=8",
        "2d heads=16 keep=split",
        "multi-ring team=2",
        "multi-ring team=4",
        "tile",
        "ulysses",
        "allgather",
        "burst",
        "tokenring",
    };
    static const shape s = {64, 8};
    uint32_t proven = 0;
    for (size_t i = 0; i < sizeof(wide) / sizeof(*wide); i++)
        for (uint32_t ranks = 32; ranks <= 64; ranks *= 2)
            proven += prove_both(wide[i], ranks, &s, &masks[i % 2 ? 0 : 3],
                                 GYRE_LAYOUT_ZIGZAG);
    print_message("# %u plans\n", proven);
    assert_true(proven > 30);
}

/* One program for all, or all: the same verdict and sums.  Most schedules are
 * alike on all ranks, also those that move heads. */
static void a_quotient_says_the_same(void **state)
{
    (void)state;
    static const shape s = {16, 8};
    uint32_t quotients = 0, sum = 0;
    for (uint32_t i = 0; i < SCHEDULES; i++)
        for (uint32_t pass = 0; pass < GYRE_PASS_COUNT; pass++) {
            schedule_request r;
            set(&r, schedules[i], 8, &s, pass);
            r.request.tokens = 128;
            r.request.layout = GYRE_LAYOUT_ZIGZAG;
            r.request.mask = &masks[0];
            gyre_proof one, all;
            gyre_proof_options expanded = {.size = sizeof(expanded),
                                           .expanded = 1};
            if (gyre_plan_prove_request(context, &r.request, NULL, &one,
                                        NULL) != GYRE_OK)
                continue;
            assert_int_equal(gyre_plan_prove_request(context, &r.request,
                                                     &expanded, &all, NULL),
                             GYRE_OK);
            assert_true(one.ok && all.ok && !all.quotient);
            assert_int_equal(one.ops, all.ops);
            assert_int_equal(one.sent_bytes, all.sent_bytes);
            assert_int_equal(one.peak_bytes, all.peak_bytes);
            assert_int_equal(one.cast_depth, all.cast_depth);
            assert_int_equal(one.one_lane, all.one_lane);
            quotients += one.quotient;
            sum++;
        }
    print_message("# %u of %u as quotients\n", quotients, sum);
    assert_true(quotients * 2 > sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_is_right),
        cmocka_unit_test(many_ranks_are_right),
        cmocka_unit_test(a_quotient_says_the_same),
    };
    return in_context(tests);
}
