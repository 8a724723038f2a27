/* SPDX-License-Identifier: Apache-2.0 */
/* Each rule of a proof with a small plan that breaks it. */
#include "../unit.h"
#include "hand.h"

/*
 * The hand-written ring of 4, by rank (all alike but for rows and peers):
 *
 *     slots  0 Q  1 KV  2 O  3 ST  4 O*  5 6 7 received KV; 5 and 7 on one buf
 *     views  0 KV  1 slot 5  2 Q  3 O*  4 slot 6  5 slot 7  6 O  7 ST.lse
 *     ops    0 PUT 1 GET | 2 ATT | 3 PUT 4 GET | 5 ATT | 6 PUT 7 GET | 8 ATT
 *            | 9 ATT | 10 FIN
 */
enum { RANKS = 4, TOKENS = 64 };

typedef struct broken {
    const char *text; /* of the reason */
    void (*change)(gyre_plan *plan);
    void (*more)(const gyre_plan_host *host, gyre_builder *b, uint32_t rank);
    uint32_t rank, op, q, kv; /* where it is seen */
} broken;

static gyre_plan_program *at(gyre_plan *plan, uint32_t rank)
{
    return &plan->programs[rank];
}

static void narrow_slot(gyre_plan *plan)
{
    at(plan, 1)->slots[0].dtype = GYRE_BF16;
}
static void narrow_sum(gyre_plan *plan)
{
    plan->problem.wire_dtype = GYRE_BF16;
    at(plan, 2)->slots[4].dtype = GYRE_BF16;
}
static void foreign_rows(gyre_plan *plan)
{
    at(plan, 1)->views[2].rows = plan->owned[GYRE_SIDE_Q][0];
}
static void heads_beyond(gyre_plan *plan)
{
    at(plan, 1)->slots[5].h1 = 1;
}
static void other_heads(gyre_plan *plan)
{
    at(plan, 1)->views[3].h1 = 1;
}
static void wrong_planes(gyre_plan *plan)
{
    at(plan, 0)->views[7].planes = GYRE_PLANE_DELTA;
}
static void wrong_kind(gyre_plan *plan)
{
    at(plan, 0)->ops[2].view[0] = 6;
}
static void to_itself(gyre_plan *plan)
{
    at(plan, 3)->ops[0].view[1] = 3;
}
static void one_buf(gyre_plan *plan)
{
    at(plan, 3)->slots[4].buf = at(plan, 3)->slots[5].buf;
}
static void user_buf_shared(gyre_plan *plan)
{
    at(plan, 3)->slots[4].buf = at(plan, 3)->slots[0].buf;
}
static void part_external(gyre_plan *plan)
{
    at(plan, 1)->slots[2].h1 = 1;
}
static void other_channel(gyre_plan *plan)
{
    at(plan, 2)->ops[6].channel = 7;
}
static void other_rows_sent(gyre_plan *plan)
{
    at(plan, 2)->ops[3].view[0] = 0;
}
static void other_lane(gyre_plan *plan)
{
    gyre_plan_program *p = at(plan, 2);
    p->ops[3].lane = p->ops[4].lane = p->groups[1].lane = 2;
    p->units[2].lane = 2;
}
static void over_given(gyre_plan *plan)
{
    at(plan, 1)->ops[1].view[0] = 0;
}
static void no_team(gyre_plan *plan)
{
    for (uint32_t r = 0; r < RANKS; r++)
        at(plan, r)->groups[0].pattern = GYRE_PATTERN_A2A;
}
static void no_sums(gyre_plan *plan)
{
    plan->problem.ranks = RANKS;
    for (uint32_t r = 0; r < RANKS; r++)
        at(plan, r)->groups[0].pattern = GYRE_PATTERN_RS;
}
static void computed_twice(gyre_plan *plan)
{
    at(plan, 3)->ops[5].view[1] = 0;
}
static void read_early(gyre_plan *plan)
{
    at(plan, 3)->ops[2].view[1] = 4;
}
static void read_late(gyre_plan *plan)
{
    at(plan, 3)->ops[9].view[1] = 1;
}
static void not_at_home(gyre_plan *plan)
{
    at(plan, 1)->slots[2].flags = 0;
}
static void saved_not_written(gyre_plan *plan)
{
    at(plan, 1)->ops[10].view[2] = GYRE_NO_VIEW;
}

static void finished_again(const gyre_plan_host *host, gyre_builder *b,
                           uint32_t rank)
{
    if (rank == 2)
        host->op(b, 0, GYRE_OP_FIN, (uint32_t[]){3, 6, 7}, 3);
}
static void put_alone(const gyre_plan_host *host, gyre_builder *b,
                      uint32_t rank)
{
    if (rank == 2) {
        host->begin(b, 1, "ring", GYRE_PATTERN_NONE);
        host->put(b, 0, 3, 9);
        host->end(b);
    }
}
static void lost(const gyre_plan_host *host, gyre_builder *b, uint32_t rank)
{
    if (rank != 1)
        return;
    uint32_t sum =
        host->slot(b, &(gyre_plan_slot){.kind = GYRE_VALUE_O_SUM,
                                        .rows = host->owned(b, GYRE_SIDE_Q, 1),
                                        .h1 = 2,
                                        .dtype = GYRE_F32,
                                        .buf = GYRE_NEW_BUF});
    host->op(b, 0, GYRE_OP_ATT, (uint32_t[]){2, 0, host->whole(b, sum)}, 3);
}
static void shared_head(const gyre_plan_host *host, gyre_builder *b,
                        uint32_t rank)
{
    if (rank != 0)
        return;
    uint32_t rows = host->owned(b, GYRE_SIDE_KV, 0), views[2];
    for (int i = 0; i < 2; i++) {
        uint32_t s = host->slot(b, &(gyre_plan_slot){.kind = GYRE_VALUE_DKV,
                                                     .rows = rows,
                                                     .h1 = 2,
                                                     .dtype = GYRE_F32,
                                                     .buf = GYRE_NEW_BUF});
        if (i == 0)
            s = host->slot(b, &(gyre_plan_slot){.kind = GYRE_VALUE_DKV_SUM,
                                                .rows = rows,
                                                .h1 = 2,
                                                .dtype = GYRE_F32,
                                                .buf = GYRE_NEW_BUF});
        views[i] = host->view(b, s, rows, 0, 1, 1);
    }
    host->op(b, 0, GYRE_OP_FIN, views, 2);
}
/* Each gets from the rank above before it puts to the one below. */
static void circle(const gyre_plan_host *host, gyre_builder *b, uint32_t rank)
{
    uint32_t above = (rank + 1) % RANKS, below = (rank + RANKS - 1) % RANKS;
    uint32_t s = host->slot(
        b, &(gyre_plan_slot){.kind = GYRE_VALUE_KV,
                             .rows = host->owned(b, GYRE_SIDE_KV, above),
                             .h1 = 2,
                             .dtype = GYRE_F32,
                             .buf = GYRE_NEW_BUF});
    host->begin(b, 1, "ring", GYRE_PATTERN_NONE);
    host->get(b, host->whole(b, s), above, 3);
    host->end(b);
    host->begin(b, 1, "ring", GYRE_PATTERN_NONE);
    host->put(b, 0, below, 3);
    host->end(b);
}

static const broken cases[] = {
    {"slot 0 (Q) is bf16, not f32", narrow_slot, NULL, 1, GYRE_NO_VIEW,
     GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"sums stay f32 until FIN", narrow_sum, NULL, 2, 2, GYRE_NO_VIEW,
     GYRE_NO_VIEW},
    {"view 2 has rows that its slot 0 lacks", foreign_rows, NULL, 1,
     GYRE_NO_VIEW, GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"view 1 has heads 0..2 of slot 5, which has 0..1", heads_beyond, NULL, 1,
     GYRE_NO_VIEW, GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"views of different heads", other_heads, NULL, 1, 2, GYRE_NO_VIEW,
     GYRE_NO_VIEW},
    {"wrong planes", wrong_planes, NULL, 0, 10, GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"view 0 of ATT is O, not Q", wrong_kind, NULL, 0, 2, GYRE_NO_VIEW,
     GYRE_NO_VIEW},
    {"use CPY", to_itself, NULL, 3, 0, GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"two views in buf 5", one_buf, NULL, 3, 5, GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"outlives the pass, but another slot has its buf 0", user_buf_shared, NULL,
     3, GYRE_NO_VIEW, GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"slot 2 (O) is external", part_external, NULL, 1, GYRE_NO_VIEW,
     GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"on channel 7 meets no GET", other_channel, NULL, 2, 6, GYRE_NO_VIEW,
     GYRE_NO_VIEW},
    {"rows differ", other_rows_sent, NULL, 3, 4, GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"is on lane 2, one before it on lane 1", other_lane, NULL, 2, 3,
     GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"GET writes over slot 1 (KV), which was given", over_given, NULL, 1, 1,
     GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"phase 'ring' is no a2a: one way alone", no_team, NULL, 0, 0, GYRE_NO_VIEW,
     GYRE_NO_VIEW},
    {"phase 'ring' is no rs", no_sums, NULL, 0, 0, GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"a cell of slot 4 (O*) is added twice", computed_twice, NULL, 3, 5, 3, 3},
    {"ATT reads an unwritten row of slot 6 (KV)", read_early, NULL, 3, 2,
     GYRE_NO_VIEW, 1},
    {"slot 5 is touched after slot 7 took its buf 5", read_late, NULL, 3, 9,
     GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"no external slot of O", not_at_home, NULL, 1, GYRE_NO_VIEW, GYRE_NO_VIEW,
     GYRE_NO_VIEW},
    {"saved slot 3 (ST) is not written", saved_not_written, NULL, 1,
     GYRE_NO_VIEW, 1, GYRE_NO_VIEW},
    {"writes a final row again", NULL, finished_again, 2, 11, 2, GYRE_NO_VIEW},
    {"PUT to rank 3 on channel 9 meets no GET", NULL, put_alone, 2, 11,
     GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"what slot 8 (O*) gathered is lost", NULL, lost, 1, GYRE_NO_VIEW, 1,
     GYRE_NO_VIEW},
    {"a part of the queries of a KV head", NULL, shared_head, 0, 11,
     GYRE_NO_VIEW, GYRE_NO_VIEW},
    {"deadlock: it waits for rank", NULL, circle, GYRE_NO_VIEW, 11,
     GYRE_NO_VIEW, GYRE_NO_VIEW},
};

static void emit_more(void *user, uint32_t pass, uint32_t rank,
                      const gyre_plan_host *host, gyre_builder *b)
{
    const broken *one = user;
    hand_ring(NULL, pass, rank, host, b);
    if (one->more != NULL)
        one->more(host, b, rank);
}

static void every_rule_is_named_where_it_breaks(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const broken *one = &cases[i];
        gyre_plan_spec spec = hand_spec(RANKS, TOKENS);
        spec.emit = emit_more;
        spec.user = (void *)one;
        gyre_plan *plan;
        gyre_proof proof;
        assert_int_equal(gyre_plan_create(context, &spec, &plan, NULL),
                         GYRE_OK);
        if (one->change != NULL)
            one->change(plan);
        assert_int_equal(gyre_plan_prove(plan, NULL, &proof, NULL), GYRE_OK);
        if (proof.ok || strstr(proof.reason, one->text) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", proof.reason, one->text);
        if (one->rank != GYRE_NO_VIEW)
            assert_int_equal(proof.rank, one->rank);
        if (proof.op != one->op || proof.q_chunk != one->q ||
            proof.kv_chunk != one->kv)
            fail_msg("%s: op %d, cell (%d, %d)", proof.reason, (int)proof.op,
                     (int)proof.q_chunk, (int)proof.kv_chunk);
        gyre_plan_free(plan);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_is_named_where_it_breaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
