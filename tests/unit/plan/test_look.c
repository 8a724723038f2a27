/* SPDX-License-Identifier: Apache-2.0 */
/* Plans seen from outside: the walk, its text, times, waits, and a diff. */
#include "../unit.h"
#include "hand.h"

#include <math.h>
#include <stdio.h>

static gyre_plan *make(gyre_context *context, const gyre_plan_spec *spec)
{
    gyre_plan *plan;
    gyre_error error;
    if (gyre_plan_create(context, spec, &plan, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    return plan;
}

/* ---- the walk ------------------------------------------------------------ */

typedef struct seen {
    const gyre_plan *plan;
    char text[4096];
    uint32_t ops;
    uint64_t pairs, sent;
    uint32_t stop_at;
} seen;

static gyre_status note(void *user, const gyre_plan_step *step,
                        gyre_error *error)
{
    seen *s = user;
    char text[256];
    if (s->stop_at > 0 && s->ops == s->stop_at)
        return gyre_fail(error, GYRE_STOPPED, "enough");
    assert_int_equal(step->op, s->ops);
    s->ops++;
    s->pairs += step->pairs;
    s->sent += step->code == GYRE_OP_PUT ? step->parts[0].bytes : 0;
    gyre_plan_step_text(s->plan, step, text, sizeof(text));
    size_t used = strlen(s->text);
    snprintf(s->text + used, sizeof(s->text) - used, "%s\n", text);
    return GYRE_OK;
}

static void every_op_is_walked_and_spelt_out(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan_spec spec = hand_spec(2, 16);
    gyre_plan *plan = make(context, &spec);
    seen s = {.plan = plan};
    assert_int_equal(gyre_plan_walk(plan, 0, note, &s, NULL), GYRE_OK);
    assert_string_equal(s.text, "PUT KV[0 3] f32 to rank 1 (ring, lane 1)\n"
                                "GET KV[1 2] f32 from rank 1 (ring, lane 1)\n"
                                "ATT Q[0 3] KV[0 3] -> O*[0 3]\n"
                                "ATT Q[0 3] KV[1 2] -> O*[0 3]\n"
                                "FIN O*[0 3] -> O[0 3] ST.lse[0 3]\n");
    uint64_t pairs = s.pairs;
    s = (seen){.plan = plan};
    assert_int_equal(gyre_plan_walk(plan, 1, note, &s, NULL), GYRE_OK);
    assert_int_equal(pairs + s.pairs, 16 * 17 / 2 * 2); /* x 2 heads */
    assert_int_equal(s.sent, 8 * 12 * 4);
    s = (seen){.plan = plan, .stop_at = 2};
    gyre_error error;
    assert_int_equal(gyre_plan_walk(plan, 0, note, &s, &error), GYRE_STOPPED);
    assert_string_equal(error.text, "enough");
    assert_int_equal(gyre_plan_walk(plan, 2, note, &s, &error), GYRE_RANGE);
    gyre_plan_free(plan);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* ---- time ---------------------------------------------------------------- */

typedef struct times {
    double att_begin[8], att_end[8];
    uint32_t atts;
} times;

static gyre_status note_time(void *user, const gyre_plan_step *step,
                             gyre_error *error)
{
    times *t = user;
    (void)error;
    assert_true(step->end >= step->begin);
    if (step->rank == 0 && step->code == GYRE_OP_ATT) {
        t->att_begin[t->atts] = step->begin;
        t->att_end[t->atts++] = step->end;
    }
    return GYRE_OK;
}

/* A full mask: every step has as many pairs and every hop as many bytes, so
 * that step i begins at i x the longer of both.  A hop is as slow as the
 * slowest of its two ends: between nodes, if there are any. */
static void check_ring_time(gyre_context *context, double link, double near,
                            uint32_t node)
{
    gyre_plan_spec spec = hand_spec(4, 64);
    spec.mask = NULL;
    gyre_plan *plan = make(context, &spec);
    gyre_plan_rates rates = {.size = sizeof(rates),
                             .flops = 2 * (8 + 4), /* a pair a second */
                             .memory = 1e30,
                             .link = link,
                             .near_link = near,
                             .node = node};
    double slowest = node == 4 ? near : link;
    double step = 16 * 16 * 2, hop = 16 * 12 * 4 / slowest, total;
    double longer = step > hop ? step : hop;
    times t = {.atts = 0};
    gyre_error error;
    assert_int_equal(
        gyre_plan_time(plan, &rates, note_time, &t, &total, &error), GYRE_OK);
    assert_int_equal(t.atts, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(t.att_begin[i] > i * longer - 1e-6);
        assert_true(t.att_begin[i] < i * longer + 1e-6);
    }
    assert_true(total > 3 * longer + step - 1e-6);
    assert_true(total < 3 * longer + step + 1e-6);
    gyre_plan_free(plan);
}

static void a_ring_takes_the_longer_of_both(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    check_ring_time(context, 100, 0, 0);
    check_ring_time(context, 1, 0, 1);
    check_ring_time(context, 1, 100, 2);
    check_ring_time(context, 100, 1, 4);
    check_ring_time(context, 1, 100, 4);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* Everybody's KV to the rank two on and, in a group of its own lane each, on to
 * the next. */
static void emit_across(void *user, uint32_t pass, uint32_t rank,
                        const gyre_plan_host *host, gyre_builder *b)
{
    uint32_t groups = *(uint32_t *)user;
    (void)pass;
    for (uint32_t i = 0; i < groups; i++) {
        gyre_plan_slot slot = {.kind = GYRE_VALUE_KV,
                               .rows = host->owned(b, GYRE_SIDE_KV, rank),
                               .h1 = 2,
                               .buf = GYRE_NEW_BUF};
        uint32_t mine = host->whole(b, host->slot(b, &slot));
        slot.rows = host->owned(b, GYRE_SIDE_KV, (rank + 2) % 4);
        uint32_t other = host->whole(b, host->slot(b, &slot));
        host->begin(b, 1 + i, "x", GYRE_PATTERN_NONE);
        host->put(b, mine, (rank + 2) % 4, i);
        host->get(b, other, (rank + 2) % 4, i);
        host->end(b);
    }
}

/* What goes over one link at once takes turns: groups of a rank, and ranks of a
 * node. */
static void a_link_is_shared(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan_spec spec = hand_spec(4, 64);
    spec.emit = emit_across;
    for (uint32_t groups = 1; groups <= 3; groups++)
        for (uint32_t node = 1; node <= 4; node *= 2) {
            spec.user = &groups;
            gyre_plan *plan = make(context, &spec);
            gyre_plan_rates rates = {.size = sizeof(rates),
                                     .flops = 1,
                                     .memory = 1,
                                     .link = 4,
                                     .latency = 0.5,
                                     .near_link = 8,
                                     .node = node};
            double total, one = 16 * 12 * 4;
            double want = groups * (node == 4 ? one / 8 : node * one / 4);
            assert_int_equal(
                gyre_plan_time(plan, &rates, NULL, NULL, &total, NULL),
                GYRE_OK);
            assert_true(fabs(total - want - 0.5) < 1e-9 * want);
            gyre_plan_free(plan);
        }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* Rank 0 puts and rank 1 gets nothing; or both get before they put. */
static void emit_wrong(void *user, uint32_t pass, uint32_t rank,
                       const gyre_plan_host *host, gyre_builder *b)
{
    (void)pass;
    uint32_t v[2];
    for (int i = 0; i < 2; i++) {
        gyre_plan_slot slot = {.kind = GYRE_VALUE_KV,
                               .rows = host->owned(b, GYRE_SIDE_KV, 0),
                               .h1 = 2,
                               .buf = GYRE_NEW_BUF};
        v[i] = host->whole(b, host->slot(b, &slot));
    }
    if (user == NULL) {
        host->begin(b, 1, "x", GYRE_PATTERN_NONE);
        if (rank == 0)
            host->put(b, v[0], 1, 0);
        host->end(b);
        return;
    }
    host->begin(b, 1, "x", GYRE_PATTERN_NONE);
    host->get(b, v[0], 1 - rank, 0);
    host->end(b);
    host->begin(b, 1, "x", GYRE_PATTERN_NONE);
    host->put(b, v[1], 1 - rank, 0);
    host->end(b);
}

static void what_never_ends_has_no_time(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    static const char *const texts[] = {"rank 0 puts 1 times to rank 1",
                                        "deadlocks: 4 of 4 units"};
    gyre_plan_rates rates = {
        .size = sizeof(rates), .flops = 1, .memory = 1, .link = 1};
    for (int i = 0; i < 2; i++) {
        gyre_plan_spec spec = hand_spec(2, 16);
        spec.emit = emit_wrong;
        spec.user = i ? &rates : NULL;
        gyre_plan *plan = make(context, &spec);
        gyre_error error;
        assert_int_equal(gyre_plan_time(plan, &rates, NULL, NULL, NULL, &error),
                         GYRE_PLAN);
        if (strstr(error.text, texts[i]) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", error.text, texts[i]);
        gyre_plan_free(plan);
    }
    gyre_plan_spec spec = hand_spec(2, 16);
    gyre_plan *plan = make(context, &spec);
    rates.link = 0;
    assert_int_equal(gyre_plan_time(plan, &rates, NULL, NULL, NULL, NULL),
                     GYRE_INVALID);
    gyre_plan_free(plan);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static gyre_status note_wait(void *user, uint32_t unit, const uint32_t *waits,
                             uint32_t count, gyre_error *error)
{
    char *text = user;
    (void)error;
    size_t used = strlen(text);
    used += (size_t)snprintf(text + used, 256 - used, "%u:", unit);
    for (uint32_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, 256 - used, "%u,", waits[i]);
    snprintf(text + used, 256 - used, " ");
    return GYRE_OK;
}

static void units_wait_for_lane_and_data(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan_spec spec = hand_spec(2, 16);
    gyre_plan *plan = make(context, &spec);
    char text[256] = "";
    assert_int_equal(gyre_plan_waits(plan, 0, note_wait, text, NULL), GYRE_OK);
    /* ring, ATT of one's own, ATT of what came, FIN */
    assert_string_equal(text, "0: 1: 2:1,0, 3:2, ");
    assert_int_equal(gyre_plan_waits(plan, 2, note_wait, text, NULL),
                     GYRE_RANGE);
    gyre_plan_free(plan);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* ---- diff ---------------------------------------------------------------- */

typedef struct told {
    char text[4096];
} told;

static void tell(void *user, const gyre_plan_difference *d)
{
    told *t = user;
    size_t used = strlen(t->text);
    snprintf(t->text + used, sizeof(t->text) - used, "%s %d %d %d %s\n",
             d->what, (int)d->rank, (int)d->one, (int)d->other, d->text);
}

/* The hand's ring; on rank 1 one ATT more, and another buf. */
static void emit_other(void *user, uint32_t pass, uint32_t rank,
                       const gyre_plan_host *host, gyre_builder *b)
{
    hand_ring(NULL, pass, rank, host, b);
    if (rank == 1)
        host->op(b, 0, GYRE_OP_ATT, (uint32_t[]){2, 0, 3}, 3);
    (void)user;
}

static void a_diff_names_what_is_not_shared(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan_spec spec = hand_spec(2, 16);
    gyre_plan *one = make(context, &spec), *other;
    uint64_t count = 7;
    told t = {""};
    assert_int_equal(gyre_plan_diff(one, one, tell, &t, &count, NULL), GYRE_OK);
    assert_int_equal(count, 0);
    assert_string_equal(t.text, "");
    spec.emit = emit_other;
    other = make(context, &spec);
    assert_int_equal(gyre_plan_diff(one, other, tell, &t, &count, NULL),
                     GYRE_OK);
    assert_int_equal(count, 1);
    assert_string_equal(t.text, "op 1 -1 5 ATT Q[1 2] KV[1 2] -> O*[1 2], "
                                "lane 0, slots 0 1 4\n");
    t.text[0] = '\0';
    gyre_plan_diff(other, one, tell, &t, &count, NULL);
    assert_string_equal(t.text, "op 1 5 -1 ATT Q[1 2] KV[1 2] -> O*[1 2], "
                                "lane 0, slots 0 1 4\n");
    t.text[0] = '\0';
    other->programs[0].slots[5].buf = 1; /* as a wrong plan might */
    gyre_plan_diff(one, other, tell, &t, &count, NULL);
    assert_int_equal(count, 2);
    assert_non_null(strstr(t.text, "buf 0 5 5 buf 5, buf 1: KV f32"));
    gyre_plan_free(other);
    spec = hand_spec(2, 18);
    spec.problem.batch = 3;
    other = make(context, &spec);
    t.text[0] = '\0';
    gyre_plan_diff(one, other, tell, &t, &count, NULL);
    assert_non_null(strstr(t.text, "problem -1 -1 -1 batch 1, 3\n"));
    assert_non_null(strstr(t.text, "tokens 16, 18\n"));
    assert_non_null(strstr(t.text, "the chunks of KV differ\n"));
    gyre_plan_free(one);
    gyre_plan_free(other);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void every_failed_request_leaves_nothing(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan_spec spec = hand_spec(3, 31);
    gyre_plan *one = make(context, &spec), *other;
    spec.emit = emit_other;
    other = make(context, &spec);
    gyre_plan_rates rates = {
        .size = sizeof(rates), .flops = 1, .memory = 1, .link = 1};
    uint64_t before = memory.bytes;
    for (int what = 0; what < 2; what++)
        for (uint64_t n = 1;; n++) {
            memory.fail_at = memory.requests + n;
            gyre_status status =
                what ? gyre_plan_time(one, &rates, NULL, NULL, NULL, NULL)
                     : gyre_plan_diff(one, other, NULL, NULL, NULL, NULL);
            memory.fail_at = 0;
            assert_int_equal(memory.bytes, before);
            if (status == GYRE_OK) {
                assert_true(n > 5);
                break;
            }
            assert_int_equal(status, GYRE_NO_MEMORY);
        }
    gyre_plan_free(one);
    gyre_plan_free(other);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_is_walked_and_spelt_out),
        cmocka_unit_test(a_ring_takes_the_longer_of_both),
        cmocka_unit_test(a_link_is_shared),
        cmocka_unit_test(what_never_ends_has_no_time),
        cmocka_unit_test(units_wait_for_lane_and_data),
        cmocka_unit_test(a_diff_names_what_is_not_shared),
        cmocka_unit_test(every_failed_request_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
