/* SPDX-License-Identifier: Apache-2.0 */
/* The waits of random programs against the rules, asked pair by pair. */
#include "../unit.h"
#include "hand.h"

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

enum { ROWS = 4, HEADS = 4, SLOTS = 6, BUFS = 3, UNITS = 40 };

/* Random ops on slots that share bufs. */
static void emit_random(void *user, uint32_t pass, uint32_t rank,
                        const gyre_plan_host *host, gyre_builder *b)
{
    (void)pass, (void)rank;
    uint32_t *seed = user;
    uint32_t all[ROWS] = {0, 1, 2, 3};
    uint32_t slots[SLOTS];
    for (uint32_t s = 0; s < SLOTS; s++)
        slots[s] = host->slot(
            b, &(gyre_plan_slot){.kind = GYRE_VALUE_DQ_SUM,
                                 .rows = host->rows(b, 0, all, ROWS),
                                 .h1 = HEADS,
                                 .dtype = GYRE_F32,
                                 .buf = s < BUFS ? GYRE_NEW_BUF : s % BUFS});
    for (uint32_t u = 0; u < UNITS; u++) {
        uint32_t views[2], buf[2] = {0, 0};
        for (int i = 0; i < 2; i++) {
            uint32_t s;
            do {
                s = next_random(seed) % SLOTS;
                buf[i] = s % BUFS;
            } while (i == 1 && buf[1] == buf[0]);
            uint32_t some[ROWS], count = 0;
            for (uint32_t r = 0; r < ROWS; r++)
                if (next_random(seed) % 2)
                    some[count++] = r;
            uint32_t h0 = next_random(seed) % HEADS;
            uint32_t h1 = h0 + 1 + next_random(seed) % (HEADS - h0);
            views[i] = host->view(b, slots[s], host->rows(b, 0, some, count),
                                  h0, h1, 1);
        }
        host->op(b, next_random(seed) % 3, GYRE_OP_RED, views, 2);
    }
}

static bool meet(const gyre_plan *plan, const gyre_plan_view *a,
                 const gyre_plan_view *b)
{
    if (a->h0 >= b->h1 || b->h0 >= a->h1)
        return false;
    const gyre_plan_rows *x = &plan->rows[a->rows], *y = &plan->rows[b->rows];
    for (uint32_t i = 0; i < x->count; i++)
        for (uint32_t j = 0; j < y->count; j++)
            if (gyre_plan_row_list(plan, a->rows)[i] ==
                gyre_plan_row_list(plan, b->rows)[j])
                return true;
    return false;
}

/* Must unit v wait for unit u < v by the rules? */
static bool must_wait(const gyre_plan *plan, uint32_t u, uint32_t v)
{
    const gyre_plan_program *p = &plan->programs[0];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            const gyre_plan_view *a = &p->views[p->ops[u].view[i]];
            const gyre_plan_view *b = &p->views[p->ops[v].view[j]];
            if (p->slots[a->slot].buf != p->slots[b->slot].buf)
                continue;
            if (a->slot != b->slot)
                return true;
            if ((i == 1 || j == 1) && meet(plan, a, b))
                return true;
        }
    return false;
}

static void waits_are_those_of_the_rules(void **state)
{
    (void)state;
    uint32_t seed = 11, waits = 0, free_pairs = 0;
    for (int trial = 0; trial < 200; trial++) {
        unit_memory memory = {0};
        gyre_context *context = unit_context(&memory);
        gyre_plan_spec spec = hand_spec(1, 8);
        gyre_chunk chunks[ROWS];
        for (uint32_t i = 0; i < ROWS; i++)
            chunks[i] = (gyre_chunk){2 * i, 2, 1, 0, 0};
        spec.problem.heads = spec.problem.kv_heads = HEADS;
        for (int side = 0; side < 2; side++) {
            spec.problem.chunks[side] = chunks;
            spec.problem.chunk_count[side] = ROWS;
        }
        spec.emit = emit_random;
        spec.user = &seed;
        gyre_plan *plan;
        gyre_plan_order order;
        assert_int_equal(gyre_plan_create(context, &spec, &plan, NULL),
                         GYRE_OK);
        assert_int_equal(gyre_plan_order_make(plan, 0, &order, NULL), GYRE_OK);
        /* after[v] bit u: v starts after u has ended, by lanes and waits. */
        uint64_t after[UNITS] = {0};
        const gyre_plan_program *p = &plan->programs[0];
        for (uint32_t v = 0; v < UNITS; v++) {
            for (uint32_t u = 0; u < v; u++)
                if (p->units[u].lane == p->units[v].lane)
                    after[v] |= after[u] | UINT64_C(1) << u;
            for (uint32_t d = order.first[v]; d < order.first[v + 1]; d++) {
                uint32_t u = order.deps[d];
                assert_true(u < v);
                assert_int_not_equal(p->units[u].lane, p->units[v].lane);
                after[v] |= after[u] | UINT64_C(1) << u;
            }
        }
        /* What must be, closed over itself and over lanes: nothing less and
         * nothing more. */
        uint64_t must[UNITS] = {0};
        for (uint32_t v = 0; v < UNITS; v++)
            for (uint32_t u = 0; u < v; u++)
                if (must_wait(plan, u, v) ||
                    p->units[u].lane == p->units[v].lane)
                    must[v] |= must[u] | UINT64_C(1) << u;
        for (uint32_t v = 0; v < UNITS; v++) {
            assert_int_equal(after[v] & must[v], must[v]);
            waits += __builtin_popcountll(must[v]);
            free_pairs += v - __builtin_popcountll(after[v]);
        }
        gyre_plan_order_free(&order);
        gyre_plan_free(plan);
        gyre_context_destroy(context);
        unit_memory_check(&memory);
    }
    assert_true(waits > 1000 && free_pairs > 1000);
}

static void a_ring_overlaps(void **state)
{
    (void)state;
    gyre_context *context = unit_context(&(unit_memory){0});
    gyre_plan_spec spec = hand_spec(5, 50);
    gyre_plan *plan;
    gyre_plan_order order;
    assert_int_equal(gyre_plan_create(context, &spec, &plan, NULL), GYRE_OK);
    assert_int_equal(gyre_plan_order_make(plan, 2, &order, NULL), GYRE_OK);
    assert_int_equal(order.clash_unit, GYRE_NO_VIEW);
    /* units: G0 A0 G1 A1 G2 A2 G3 A3 A4 F; hop i feeds product i + 1, and a
     * buffer is filled again only after the product that read it. */
    const struct {
        uint32_t unit, count, dep;
    } want[] = {{0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {3, 1, 0}, {4, 1, 3},
                {5, 1, 2}, {6, 1, 5}, {7, 1, 4}, {8, 1, 6}, {9, 0, 0}};
    for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
        assert_int_equal(order.first[i + 1] - order.first[i], want[i].count);
        if (want[i].count)
            assert_int_equal(order.deps[order.first[i]], want[i].dep);
    }
    gyre_plan_order_free(&order);
    gyre_plan_free(plan);
    gyre_context_destroy(context);
}

/* Two query heads add to their one KV head on two lanes. */
static void emit_shared(void *user, uint32_t pass, uint32_t rank,
                        const gyre_plan_host *host, gyre_builder *b)
{
    (void)user, (void)pass, (void)rank;
    uint32_t slots[3];
    for (int i = 0; i < 3; i++)
        slots[i] = host->slot(
            b, &(gyre_plan_slot){.kind = GYRE_VALUE_DKV_SUM,
                                 .rows = host->owned(b, GYRE_SIDE_KV, 0),
                                 .h1 = 2,
                                 .dtype = GYRE_F32,
                                 .buf = GYRE_NEW_BUF});
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t rows = host->owned(b, GYRE_SIDE_KV, 0);
        uint32_t views[] = {host->view(b, slots[i], rows, i, i + 1, 1),
                            host->view(b, slots[2], rows, i, i + 1, 1)};
        host->op(b, i, GYRE_OP_RED, views, 2);
    }
}

static void queries_of_one_kv_head_conflict(void **state)
{
    (void)state;
    gyre_context *context = unit_context(&(unit_memory){0});
    gyre_plan_spec spec = hand_spec(1, 8);
    spec.emit = emit_shared;
    gyre_plan *plan;
    gyre_plan_order order;
    assert_int_equal(gyre_plan_create(context, &spec, &plan, NULL), GYRE_OK);
    assert_int_equal(gyre_plan_order_make(plan, 0, &order, NULL), GYRE_OK);
    assert_int_equal(order.dep_count, 1);
    gyre_plan_order_free(&order);
    gyre_plan_free(plan);
    gyre_context_destroy(context);
}

/* A group that gets into what it sends is one conflict. */
static void emit_clash(void *user, uint32_t pass, uint32_t rank,
                       const gyre_plan_host *host, gyre_builder *b)
{
    (void)user, (void)pass;
    uint32_t slot =
        host->slot(b, &(gyre_plan_slot){.kind = GYRE_VALUE_Q,
                                        .rows = host->owned(b, GYRE_SIDE_Q, 0),
                                        .h1 = 1,
                                        .dtype = GYRE_F32,
                                        .buf = GYRE_NEW_BUF});
    host->begin(b, 1, "ring", GYRE_PATTERN_NONE);
    host->put(b, host->whole(b, slot), 1 - rank, 0);
    host->get(b, host->whole(b, slot), 1 - rank, 0);
    host->end(b);
}

static void a_clash_within_a_group_is_seen(void **state)
{
    (void)state;
    gyre_context *context = unit_context(&(unit_memory){0});
    gyre_plan_spec spec = hand_spec(2, 8);
    spec.emit = emit_clash;
    gyre_plan *plan;
    gyre_plan_order order;
    assert_int_equal(gyre_plan_create(context, &spec, &plan, NULL), GYRE_OK);
    assert_int_equal(gyre_plan_order_make(plan, 1, &order, NULL), GYRE_OK);
    assert_int_equal(order.clash_unit, 0);
    gyre_plan_order_free(&order);
    gyre_plan_free(plan);
    gyre_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_are_those_of_the_rules),
        cmocka_unit_test(a_ring_overlaps),
        cmocka_unit_test(queries_of_one_kv_head_conflict),
        cmocka_unit_test(a_clash_within_a_group_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
