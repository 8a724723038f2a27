/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedules whose blocks run on a device: OpenCL, or what GYRE_TEST_COMPUTE
 * names.  Skips where there is none.
 */
#include "config.h"

#include "../unit.h"
#include "device/module.h"
#include "device/open.h"
#include "trial.h"

#include <gyre/registry.h>

#include <stdio.h>

static const char *compute = "opencl";
static const char *const schedules[] = {
    "ring",
    "2d heads=2",
    "multi-ring team=2",
    "double-ring window=2",
    "ring direction=descending hops=published",
    "tile a=2",
    "ulysses",
    "allgather strides=2",
    "burst",
    "tokenring",
};
enum { SCHEDULES = sizeof(schedules) / sizeof(*schedules), NAMED = 4 };

/* Grouped heads, two sequences, values longer than keys. */
static const trial_case problem = {.dtype = GYRE_F32,
                                   .tokens = 35,
                                   .batch = 2,
                                   .heads = 8,
                                   .kv_heads = 4,
                                   .head_dim = 8,
                                   .v_head_dim = 12,
                                   .layout = GYRE_LAYOUT_ZIGZAG};

/* The first `count` schedules; returns how many fitted. */
static uint32_t sweep(trial_case c, uint32_t count, const uint32_t *sizes)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    uint32_t ran = 0;
    c.kernel = compute;
    for (uint32_t s = 0; s < count; s += unit_sampled() ? 3 : 1)
        for (const uint32_t *p = sizes; *p != 0; p++) {
            c.words = schedules[s];
            c.ranks = *p;
            ran += trial_good(context, &c);
        }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    return ran;
}

static const uint32_t four[] = {4, 0};

static void every_schedule_is_right(void **state)
{
    static const uint32_t others[] = {2, 6, 0};
    (void)state;
    assert_true(sweep(problem, SCHEDULES, four) > (unit_sampled() ? 2 : 8));
    sweep(problem, unit_sampled() ? 1 : 3, others);
}

static void bf16_is_right(void **state)
{
    (void)state;
    trial_case c = problem;
    c.dtype = GYRE_BF16;
    sweep(c, NAMED, four);
    c.wire_dtype = GYRE_BF16;
    sweep(c, 2, four);
}

static void windows_and_documents(void **state)
{
    (void)state;
    static const uint64_t one[] = {0, 7, 8, 19, 35};
    static const uint64_t other[] = {3, 11, 29}; /* the rest is in none */
    const gyre_documents tables[] = {{.bounds = one, .count = 4},
                                     {.bounds = other, .count = 2}};
    gyre_mask mask = {.size = sizeof(mask), .causal = 1, .window = 9};
    trial_case c = problem;
    c.mask = &mask;
    sweep(c, NAMED, four);
    mask.window = 0;
    mask.documents = tables;
    mask.document_count = 2;
    c.layout = GYRE_LAYOUT_STRIPED;
    c.drop = 1;
    sweep(c, NAMED, four);
}

static void dropout_and_slopes(void **state)
{
    (void)state;
    trial_case c = problem;
    c.dropout = 0.3;
    c.slopes = trial_slopes;
    c.mask = &trial_full;
    sweep(c, NAMED, four);
}

/* Three ranks of one token each, and five with none. */
static void ranks_without_rows(void **state)
{
    (void)state;
    static const uint32_t eight[] = {8, 0};
    trial_case c = problem;
    c.tokens = 3;
    c.layout = GYRE_LAYOUT_CONTIGUOUS;
    assert_true(sweep(c, 1, eight) == 1);
}

static void fixed_tiles_give_the_same_bits(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    uint64_t first[GYRE_TRIAL_TENSORS] = {0};
    trial_case c = problem;
    c.kernel = compute;
    c.tokens = 6;
    c.batch = 1;
    c.heads = 2;
    c.kv_heads = 1;
    c.tiles = 6;
    c.ranks = 4;
    for (uint32_t s = 0; s < NAMED; s += unit_sampled() ? 3 : 1) {
        gyre_trial trial;
        c.words = schedules[s];
        c.layout = s % 2;
        assert_true(trial_run(context, &c, &trial));
        assert_int_equal(trial.ok, 1);
        for (int i = 0; i < GYRE_TRIAL_TENSORS; i++) {
            if (s == 0)
                first[i] = trial.tensor[i].hash;
            if (trial.tensor[i].compared)
                assert_int_equal(trial.tensor[i].hash, first[i]);
        }
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static gyre_status measured(const trial_case *c, gyre_attention_cost *cost,
                            gyre_error *error)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    trial_options t;
    trial_prepare(context, c, &t);
    *cost = (gyre_attention_cost){.size = sizeof(*cost)};
    gyre_status status =
        gyre_attention_measure(context, &t.options, 0, cost, error);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    return status;
}

/* Said without a device; and never the host in its place. */
static void what_it_takes_and_what_is_refused(void **state)
{
    (void)state;
    gyre_attention_cost cost, twice;
    gyre_error error = {0};
    trial_case c = problem;
    c.words = "ring";
    c.ranks = 2;
    c.kernel = "cuda:9";
    assert_int_equal(measured(&c, &cost, &error), GYRE_OK);
    c.tokens *= 2;
    assert_int_equal(measured(&c, &twice, &error), GYRE_OK);
    assert_true(cost.scratch[0] > 0 && cost.scratch[1] > 0);
    assert_true(twice.scratch[0] > cost.scratch[0]);
    c.dtype = GYRE_F64;
    assert_int_equal(measured(&c, &cost, &error), GYRE_INVALID);
    unit_assert_text(&error, "f32 or bf16, the plan has f64");
    static const char *const wrong[] = {"cuda:", "cuda:x", "openclx",
                                        "opencl:12345", "cud"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        c.kernel = wrong[i];
        assert_int_equal(measured(&c, &cost, &error), GYRE_NOT_FOUND);
        unit_assert_text(&error, "no attention kernel");
        unit_assert_text(&error, wrong[i]);
    }
}

static void a_device_that_is_not_there(void **state)
{
    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    char name[64];
    trial_options t;
    gyre_world *world;
    gyre_attention *attention;
    gyre_error error = {0};
    trial_case c = problem;
    snprintf(name, sizeof(name), "%s:9999", compute);
    c.words = "ring";
    c.ranks = 2;
    c.kernel = name;
    trial_prepare(context, &c, &t);
    assert_int_equal(gyre_world_open(context, &t.world, &world, &error),
                     GYRE_OK);
    assert_int_not_equal(
        gyre_attention_open(context, world, &t.options, &attention, &error),
        GYRE_OK);
    unit_assert_text(&error, "rank 0, kernel ");
    unit_assert_text(&error, "9999");
    gyre_world_close(world);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static bool is_there(void)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    const gyre_plugin *plugin;
    gyre_services services;
    gyre_error error = {0};
    char name[128];
    bool good = gyre_plugin_find(context, GYRE_KIND_DEVICE, compute, &plugin,
                                 &error) == GYRE_OK;
    gyre_device_services(context, &services);
    if (good) {
        const gyre_driver *driver = plugin->descriptor;
        good = driver->describe(&services, 0, name, sizeof(name), &error) ==
               GYRE_OK;
    }
    gyre_context_destroy(context);
    return good;
}

int main(void)
{
    const struct CMUnitTest device[] = {
        cmocka_unit_test(every_schedule_is_right),
        cmocka_unit_test(bf16_is_right),
        cmocka_unit_test(windows_and_documents),
        cmocka_unit_test(dropout_and_slopes),
        cmocka_unit_test(ranks_without_rows),
        cmocka_unit_test(fixed_tiles_give_the_same_bits),
        cmocka_unit_test(a_device_that_is_not_there),
        cmocka_unit_test(what_it_takes_and_what_is_refused),
    };
    const struct CMUnitTest names[] = {
        cmocka_unit_test(what_it_takes_and_what_is_refused),
    };
    const char *named = getenv("GYRE_TEST_COMPUTE");

    compute = named != NULL ? named : compute;
    if (is_there())
        return cmocka_run_group_tests_name(compute, device, NULL, NULL);
    return cmocka_run_group_tests_name("names", names, NULL, NULL);
}
