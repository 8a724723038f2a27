/* SPDX-License-Identifier: Apache-2.0 */
/* What a proof says: counts, costs, backward passes, formulas, and that ranks
 * alike are proven once.  The rules one by one: test_prove_rules. */
#include "../unit.h"
#include "hand.h"

static unit_memory heap;
static gyre_context *context;

static int open_context(void **state)
{
    (void)state;
    heap = (unit_memory){0};
    context = unit_context(&heap);
    return 0;
}

static int close_context(void **state)
{
    (void)state;
    gyre_context_destroy(context);
    unit_memory_check(&heap);
    return 0;
}

static gyre_plan *make(const gyre_plan_spec *spec)
{
    gyre_plan *plan;
    assert_int_equal(gyre_plan_create(context, spec, &plan, NULL), GYRE_OK);
    return plan;
}

static gyre_proof prove(gyre_plan *plan, const gyre_proof_options *options)
{
    gyre_proof proof;
    assert_int_equal(gyre_plan_prove(plan, options, &proof, NULL), GYRE_OK);
    return proof;
}

static gyre_proof prove_spec(const gyre_plan_spec *spec,
                             const gyre_proof_options *options)
{
    gyre_proof proof;
    assert_int_equal(gyre_plan_prove_spec(context, spec, options, &proof, NULL),
                     GYRE_OK);
    return proof;
}

static void a_ring_is_right(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 9; ranks++)
        for (uint64_t tokens = ranks; tokens < 60; tokens += 29) {
            gyre_plan_spec spec = hand_spec(ranks, tokens);
            gyre_plan *plan = make(&spec);
            gyre_proof proof = prove(plan, NULL);
            uint64_t memory_bytes, external, total = 0, received[16];
            if (!proof.ok)
                fail_msg("%u ranks: %s", ranks, proof.reason);
            assert_true(proof.one_lane);
            assert_int_equal(proof.quotient, 0);
            assert_int_equal(proof.ops, ranks * (3 * ranks - 1));
            for (uint32_t r = 0; r < ranks; r++) {
                uint64_t sent[16] = {0};
                gyre_plan_count_bytes(plan, r, sent, received);
                total += sent[0];
                gyre_plan_count_memory(plan, r, &memory_bytes, &external, NULL);
                assert_true(memory_bytes <= proof.peak_bytes);
            }
            assert_int_equal(proof.sent_bytes, ranks > 1 ? total : 0);
            gyre_plan_free(plan);
        }
}

/* Rank r of a ring of P with zigzag needs the blocks above it by half. */
static void what_nobody_needs_is_counted(void **state)
{
    (void)state;
    gyre_plan_spec spec = hand_spec(8, 8 * 16);
    gyre_plan *plan = make(&spec);
    gyre_proof proof = prove(plan, NULL);
    uint64_t block = 16 * 12 * 4;
    assert_int_equal(proof.sent_bytes, 8 * 7 * block);
    assert_int_equal(proof.unused_bytes, proof.sent_bytes / 4);
    assert_int_equal(proof.dead_bytes, proof.sent_bytes / 16);
    assert_true(proof.balance >= 1 && proof.balance < 1.01);
    gyre_plan_free(plan);

    /* Contiguous: the last rank works twice the mean. */
    spec.layout = GYRE_LAYOUT_CONTIGUOUS;
    plan = make(&spec);
    proof = prove(plan, NULL);
    assert_true(proof.balance > 1.8 && proof.balance < 2);
    assert_true(proof.critical_path == proof.work);
    gyre_plan_free(plan);
}

static void what_travels_costs_on_the_critical_path(void **state)
{
    (void)state;
    gyre_plan_spec spec = hand_spec(5, 5 * 16);
    spec.mask = NULL;
    gyre_plan *plan = make(&spec);
    double block = 16 * 12 * 4, step = 16 * 16 * 2;
    /* Hidden, and five times as slow as the products. */
    gyre_proof_options options = {.size = sizeof(options),
                                  .byte_cost = step / block / 2};
    assert_true(prove(plan, &options).critical_path == 5 * step);
    options.byte_cost = step / block * 5;
    assert_true(prove(plan, &options).critical_path == 4 * 5 * step + step);
    gyre_plan_free(plan);
}

/* ---- backward ------------------------------------------------------------ */

enum { RIGHT, NO_DELTA, PARTED, NOT_FINISHED };

/* One rank; two queries share the KV head. */
static void backward(void *user, uint32_t pass, uint32_t rank,
                     const gyre_plan_host *host, gyre_builder *b)
{
    (void)pass, (void)rank;
    static const uint32_t kinds[] = {
        GYRE_VALUE_Q,   GYRE_VALUE_KV,     GYRE_VALUE_DO, GYRE_VALUE_O,
        GYRE_VALUE_ST,  GYRE_VALUE_DQ_SUM, GYRE_VALUE_DQ, GYRE_VALUE_DKV_SUM,
        GYRE_VALUE_DKV, GYRE_VALUE_DKV_SUM};
    static const uint32_t flags[] = {GYRE_SLOT_EXTERNAL | GYRE_SLOT_SAVED,
                                     GYRE_SLOT_EXTERNAL | GYRE_SLOT_SAVED,
                                     GYRE_SLOT_EXTERNAL,
                                     GYRE_SLOT_SAVED,
                                     GYRE_SLOT_SAVED,
                                     0,
                                     GYRE_SLOT_EXTERNAL,
                                     0,
                                     GYRE_SLOT_EXTERNAL,
                                     0};
    int variant = *(int *)user;
    uint32_t v[10];
    for (int i = 0; i < 10; i++) {
        uint32_t side = gyre_value_side(kinds[i]);
        v[i] = host->slot(b, &(gyre_plan_slot){.kind = kinds[i],
                                               .rows = host->owned(b, side, 0),
                                               .h1 = 2,
                                               .dtype = GYRE_F32,
                                               .buf = GYRE_NEW_BUF,
                                               .flags = flags[i]});
        v[i] = host->whole(b, v[i]);
    }
    uint32_t rows = host->owned(b, GYRE_SIDE_Q, 0);
    uint32_t delta = host->view(b, 4, rows, 0, 2, GYRE_PLANE_DELTA);
    if (variant != NO_DELTA)
        host->op(b, 0, GYRE_OP_DLT, (uint32_t[]){v[3], v[2], delta}, 3);
    host->op(b, 0, GYRE_OP_GRD,
             (uint32_t[]){v[0], v[2], v[4], v[1], v[5], v[7]}, 6);
    rows = host->owned(b, GYRE_SIDE_KV, 0);
    if (variant == PARTED)
        host->op(b, 0, GYRE_OP_CPY,
                 (uint32_t[]){host->view(b, 7, rows, 0, 1, 1),
                              host->view(b, 9, rows, 0, 1, 1)},
                 2);
    host->op(b, 0, GYRE_OP_FIN, (uint32_t[]){v[5], v[6]}, 2);
    if (variant != NOT_FINISHED)
        host->op(b, 0, GYRE_OP_FIN, (uint32_t[]){v[7], v[8]}, 2);
}

static void a_backward_is_proven_like_a_forward(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "", "GRD reads an unwritten row of slot 4 (ST)",
        "CPY of heads 0..1 parts a KV head of slot 7",
        "what slot 7 (DKV*) gathered is lost"};
    for (int variant = 0; variant <= NOT_FINISHED; variant++) {
        gyre_plan_spec spec = hand_spec(1, 8), before = hand_spec(1, 8);
        spec.pass = GYRE_PASS_BACKWARD;
        spec.emit = backward;
        spec.user = &variant;
        gyre_plan *plan = make(&spec), *forward = make(&before);
        gyre_proof_options options = {.size = sizeof(options),
                                      .forward = forward};
        gyre_proof proof = prove(plan, NULL);
        assert_int_equal(proof.ok, variant == RIGHT);
        if (strstr(proof.reason, texts[variant]) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", proof.reason, texts[variant]);
        /* What it binds must have been kept. */
        assert_int_equal(prove(plan, &options).ok, variant == RIGHT);
        forward->programs[0].slots[3].flags = 0;
        proof = prove(plan, &options);
        assert_int_equal(proof.ok, 0);
        if (variant == RIGHT)
            assert_non_null(strstr(proof.reason, "slot 4 (ST) is bound to what "
                                                 "the forward plan does not"));
        gyre_plan_free(forward);
        gyre_plan_free(plan);
    }
}

/* ---- formulas ------------------------------------------------------------ */

typedef struct formula {
    uint64_t sent, memory;
    const char *phase;
} formula;

static uint32_t expect(void *user, uint32_t rank, gyre_phase_bytes *phases,
                       uint64_t *memory)
{
    (void)rank;
    const formula *f = user;
    phases[0] = (gyre_phase_bytes){
        .phase = f->phase, .sent = f->sent, .received = f->sent};
    *memory = f->memory;
    return 1;
}

static void formulas_must_agree(void **state)
{
    (void)state;
    gyre_plan_spec spec = hand_spec(4, 64);
    uint64_t block = 16 * 12 * 4;
    uint64_t held = 16 * (2 * 8 + 2 * 4) * 4 + 3 * block + 16 * 2 * 4 * 2 +
                    16 * 2 * 4 + 16 * 2 * 4 * 4;
    const struct {
        formula formula;
        const char *text;
    } wants[] = {
        {{3 * block, held, "ring"}, NULL},
        {{3 * block, UINT64_MAX, "ring"}, NULL},
        {{3 * block + 1, held, "ring"}, "by the schedule's formula"},
        {{3 * block, held - 1, "ring"}, "bytes of memory"},
        {{0, held, "other"}, "phase 'ring' sends"},
    };
    gyre_plan *plan = make(&spec);
    for (size_t i = 0; i < sizeof(wants) / sizeof(*wants); i++) {
        gyre_proof_options options = {.size = sizeof(options),
                                      .expect = expect,
                                      .user = (void *)&wants[i].formula};
        gyre_proof proof = prove(plan, &options);
        if (wants[i].text == NULL ? !proof.ok
                                  : strstr(proof.reason, wants[i].text) == NULL)
            fail_msg("%zu: %s", i, proof.reason);
    }
    gyre_plan_free(plan);
}

/* ---- quotient ------------------------------------------------------------ */

/* One rank has a slot more than the others. */
static void odd_one(void *user, uint32_t pass, uint32_t rank,
                    const gyre_plan_host *host, gyre_builder *b)
{
    hand_ring(user, pass, rank, host, b);
    if (rank == 2)
        host->slot(b, &(gyre_plan_slot){.kind = GYRE_VALUE_KV,
                                        .rows = host->owned(b, GYRE_SIDE_KV, 1),
                                        .h1 = 1,
                                        .dtype = GYRE_F32,
                                        .buf = GYRE_NEW_BUF});
}

static void added_again(void *user, uint32_t pass, uint32_t rank,
                        const gyre_plan_host *host, gyre_builder *b)
{
    hand_ring(user, pass, rank, host, b);
    uint32_t views[] = {host->whole(b, 0), host->whole(b, 1),
                        host->whole(b, 4)};
    host->op(b, 0, GYRE_OP_ATT, views, 3);
}

static void equal_ranks_are_proven_once(void **state)
{
    (void)state;
    const gyre_proof_options expanded = {.size = sizeof(expanded),
                                         .expanded = 1};
    for (uint32_t ranks = 1; ranks <= 16; ranks++) {
        gyre_plan_spec spec = hand_spec(ranks, 64 * ranks);
        gyre_proof proof = prove_spec(&spec, NULL);
        gyre_proof whole = prove_spec(&spec, &expanded);
        assert_true(proof.ok && whole.ok && proof.one_lane);
        assert_int_equal(proof.quotient, ranks > 1);
        assert_int_equal(whole.quotient, 0);
        assert_int_equal(proof.ops, whole.ops);
        assert_int_equal(proof.sent_bytes, whole.sent_bytes);
        assert_int_equal(proof.peak_bytes, whole.peak_bytes);

        spec.emit = odd_one;
        proof = prove_spec(&spec, NULL);
        assert_int_equal(proof.ok, 1);
        assert_int_equal(proof.quotient, ranks == 2);
        spec.emit = added_again;
        proof = prove_spec(&spec, NULL);
        assert_true(!proof.ok && !proof.quotient);
        assert_non_null(strstr(proof.reason, "twice"));
        spec = hand_spec(ranks, 64 * ranks + 1); /* chunks differ in length */
        proof = prove_spec(&spec, NULL);
        assert_true(proof.ok && !proof.quotient);
    }
}

/* ---- memory -------------------------------------------------------------- */

static gyre_status all_of_it(void)
{
    gyre_plan_spec spec = hand_spec(4, 64);
    gyre_plan *plan;
    gyre_proof proof;
    gyre_error error;
    gyre_status status =
        gyre_plan_prove_spec(context, &spec, NULL, &proof, &error);
    if (status == GYRE_OK)
        status = gyre_plan_create(context, &spec, &plan, &error);
    if (status != GYRE_OK)
        return status;
    status = gyre_plan_prove(plan, NULL, &proof, &error);
    if (status == GYRE_OK)
        status = gyre_plan_prune(plan, &error);
    gyre_plan_free(plan);
    return status;
}

static void every_failed_request_leaves_nothing(void **state)
{
    (void)state;
    uint64_t before = heap.bytes, n = 1;
    for (;; n++) {
        heap.fail_at = heap.requests + n;
        gyre_status status = all_of_it();
        heap.fail_at = 0;
        assert_int_equal(heap.bytes, before);
        if (status == GYRE_OK)
            break;
        assert_int_equal(status, GYRE_NO_MEMORY);
    }
    assert_true(n > 100);
}

#define IN_A_CONTEXT(test) \
    cmocka_unit_test_setup_teardown(test, open_context, close_context)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_CONTEXT(a_ring_is_right),
        IN_A_CONTEXT(what_nobody_needs_is_counted),
        IN_A_CONTEXT(what_travels_costs_on_the_critical_path),
        IN_A_CONTEXT(a_backward_is_proven_like_a_forward),
        IN_A_CONTEXT(formulas_must_agree),
        IN_A_CONTEXT(equal_ranks_are_proven_once),
        IN_A_CONTEXT(every_failed_request_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
