/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule of the user's own, linked in: written op by op, and spoilt. */
#define GYRE_STATIC_MODULE
#define GY_SCHEDULE
#define GY_PARAMETERS(P) \
    P(most, GYRE_STRUCTURAL, GYRE_INT(2, 1, 9), "ranks at most")
#include <gyre/plugin.h>

#include "../unit.h"
#include "counted.h"
#include "in_context.h"
#include "schedules.h"

#include <stdio.h>

/* All KV to every rank, then one ATT a block. */
static int check(const double *values, const gyre_problem *p, char *text,
                 size_t size)
{
    if (p->chunks[0] != NULL || p->rank_tokens[0] != NULL)
        return 1;
    if (p->ranks <= GY_VALUES_(values)->most)
        return 0;
    snprintf(text, size, "%u ranks: at most %g", p->ranks,
             GY_VALUES_(values)->most);
    return 1;
}

static uint32_t slot_of(const gyre_plan_host *host, gyre_builder *b,
                        uint32_t kind, uint32_t rows, uint32_t flags)
{
    const gyre_problem *p = host->problem(b);
    uint32_t dtype = kind == GYRE_VALUE_O_SUM ? p->sum_dtype
                     : kind == GYRE_VALUE_ST  ? p->stat_dtype
                                              : p->dtype;
    gyre_plan_slot slot = {kind,  rows,         0,     p->heads,
                           dtype, GYRE_NEW_BUF, flags, 0};

    return host->slot(b, &slot);
}

static void emit(const double *values, uint32_t pass, uint32_t rank,
                 const gyre_plan_host *host, gyre_builder *b)
{
    const gyre_problem *p = host->problem(b);
    uint32_t keep = GYRE_SLOT_EXTERNAL | GYRE_SLOT_SAVED;
    uint32_t rows = host->owned(b, GYRE_SIDE_Q, rank);
    uint32_t q = slot_of(host, b, GYRE_VALUE_Q, rows, keep);
    uint32_t o = slot_of(host, b, GYRE_VALUE_O, rows, keep);
    uint32_t st = slot_of(host, b, GYRE_VALUE_ST, rows, GYRE_SLOT_SAVED);
    uint32_t sum = slot_of(host, b, GYRE_VALUE_O_SUM, rows, 0);
    uint32_t kv[9] = {0};

    (void)values;
    if (pass != GYRE_PASS_FORWARD) {
        host->refuse(b, "there is no way back");
        return;
    }
    for (uint32_t r = 0; r < p->ranks; r++)
        kv[r] = slot_of(host, b, GYRE_VALUE_KV, host->owned(b, GYRE_SIDE_KV, r),
                        r == rank ? keep : 0);
    host->begin(b, 1, "all", GYRE_PATTERN_AG);
    for (uint32_t r = 0; r < p->ranks; r++)
        if (r != rank) {
            host->put(b, host->whole(b, kv[rank]), r, 3);
            host->get(b, host->whole(b, kv[r]), r, 3);
        }
    host->end(b);
    for (uint32_t r = 0; r < p->ranks; r++) {
        uint32_t views[] = {host->whole(b, q), host->whole(b, kv[r]),
                            host->whole(b, sum)};

        host->op(b, 0, GYRE_OP_ATT, views, 3);
    }
    uint32_t views[] = {host->whole(b, sum), host->whole(b, o),
                        host->view(b, st, rows, 0, p->heads, GYRE_PLANE_LSE)};
    host->op(b, 0, GYRE_OP_FIN, views, 3);
}

static uint32_t bytes(const double *values, const gyre_problem *p,
                      uint32_t pass, uint32_t rank, gyre_phase_bytes *out)
{
    uint64_t row = (uint64_t)p->batch * p->kv_heads *
                   (p->head_dim + p->v_head_dim) * p->dtype_bytes;
    uint64_t own = p->rank_tokens[GYRE_SIDE_KV][rank];

    (void)values, (void)pass;
    out->phase = "all";
    out->sent = row * own * (p->ranks - 1);
    out->received = row * (p->tokens[GYRE_SIDE_KV] - own);
    return 1;
}

static uint64_t memory(const double *values, const gyre_problem *p,
                       uint32_t pass, uint32_t rank)
{
    (void)values, (void)pass;
    return rank + p->ranks; /* not asked here */
}

static const gyre_schedule good = {
    sizeof(gyre_schedule), check, NULL, emit, bytes, memory};
GYRE_SCHEDULE(own, "own", "0.1", "an all-gather by hand", "Apache-2.0", 0,
              &good)
GYRE_MODULE(own, &gyre_plugin_own)

static void small(schedule_request *q, uint32_t ranks)
{
    memset(q, 0, sizeof(*q));
    schedule_set(context, q, "own");
    q->request.ranks = ranks;
    q->request.heads = 2;
    q->request.head_dim = 4;
    q->request.tokens = 7;
}

static void test_own(void **state)
{
    gyre_error error = {0};
    gyre_plan *plan = NULL;
    schedule_request q;
    char text[256];
    gyre_plan_info info = {.size = sizeof(info)};
    gyre_phase_bytes counted[GYRE_PLAN_PHASES], formed[GYRE_PLAN_PHASES];
    uint32_t counts[2] = {0, 0};
    uint64_t held = 0;

    (void)state;
    assert_int_equal(gyre_plugin_add(context, gyre_module_entry_own, &error),
                     GYRE_OK);
    small(&q, 2);
    assert_int_equal(gyre_plan_make(context, &q.request, &plan, &error),
                     GYRE_OK);
    if (!counted_run(plan, text))
        fail_msg("%s", text);
    gyre_plan_get_info(plan, &info);
    assert_string_equal(info.schedule, "own");
    assert_int_equal(info.ranks, 2);
    assert_int_equal(info.op_count, 2 * (2 + 2 + 1));
    assert_int_equal(info.unit_count, 2 * (1 + 2 + 1));
    assert_int_equal(info.phase_count, 1);
    assert_string_equal(info.phases[0], "all");
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(
            gyre_plan_rank_bytes(plan, r, counted, &counts[0], &error),
            GYRE_OK);
        assert_int_equal(gyre_plan_formula(context, &q.request, r, formed,
                                           &counts[1], &held, &error),
                         GYRE_OK);
        assert_int_equal(counts[0], 1);
        assert_int_equal(counts[1], 1);
        assert_int_equal(counted->sent, formed->sent);
        assert_int_equal(counted->received, formed->received);
        assert_int_equal(held, r + 2);
    }
    assert_int_equal(gyre_plan_formula(context, &q.request, 2, formed,
                                       &counts[1], &held, &error),
                     GYRE_RANGE);
    gyre_plan_free(plan);
}

/* What it says itself, in check and while emitting. */
static void test_refusals(void **state)
{
    gyre_error error = {0};
    gyre_plan *plan = NULL;
    schedule_request q;

    (void)state;
    small(&q, 3);
    assert_int_equal(gyre_plan_make(context, &q.request, &plan, &error),
                     GYRE_INVALID);
    assert_string_equal(error.text, "schedule 'own': 3 ranks: at most 2");
    small(&q, 2);
    q.request.pass = GYRE_PASS_BACKWARD;
    assert_int_equal(gyre_plan_make(context, &q.request, &plan, &error),
                     GYRE_PLAN);
    assert_non_null(strstr(error.text, "there is no way back"));
    assert_null(plan);
}

/* ---- modules that break the contract
 * -------------------------------------------- */

static gyre_module module;
static const gyre_plugin *plugins[1];
static gyre_plugin plugin;
static gyre_schedule schedule;
static gyre_parameter parameter;

static const gyre_module *entry(void)
{
    return &module;
}

static void refused(const char *text)
{
    gyre_context *fresh = NULL;
    gyre_error error = {0};

    assert_int_equal(gyre_context_create(NULL, &fresh, NULL), GYRE_OK);
    assert_int_equal(gyre_plugin_add(fresh, entry, &error), GYRE_PLUGIN_BAD);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" has no \"%s\"", error.text, text);
    gyre_context_destroy(fresh);
}

static void start_good(void)
{
    module = *gyre_module_entry_own();
    plugin = gyre_plugin_own;
    schedule = good;
    parameter = plugin.parameters[0];
    plugin.descriptor = &schedule;
    plugin.parameters = &parameter;
    plugins[0] = &plugin;
    module.plugins = plugins;
}

#define BAD(spoil, text) \
    do {                 \
        start_good();    \
        spoil;           \
        refused(text);   \
    } while (0)

static void test_broken_modules(void **state)
{
    (void)state;
    BAD(plugin.descriptor = NULL, "the descriptor is missing");
    BAD(schedule.size -= sizeof(void *), "shorter than in ABI 1.0");
    BAD(schedule.check = NULL, "lacks check, emit, bytes or memory");
    BAD(schedule.emit = NULL, "lacks check, emit, bytes or memory");
    BAD(schedule.bytes = NULL, "lacks check, emit, bytes or memory");
    BAD(schedule.memory = NULL, "lacks check, emit, bytes or memory");
    BAD(parameter.klass = GYRE_STEP, "a schedule's must be structural");
    BAD(plugin.name = "-own", "illegal name");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_broken_modules),
    };

    return in_context(tests);
}
