/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedules over module nccl, on GPUs and an NCCL that are not there
 * (../transport/fake): one queue a rank, where only program order ends.  Skips
 * where the module was not built.
 */
#include "config.h"

#include "../device/open_fake.h"
#include "../plan/hand.h"
#include "../transport/fake/fake_gpu.h"
#include "../unit.h"
#include "trial.h"

#include <stdio.h>

static fake_gpu_state *gpu;
static fake_nccl_state *nccl;

static int setup(void **state)
{
    (void)state;
    gpu = open_fake_of("transport", "libcuda.so.1", "fake_gpu");
    nccl = open_fake_of("transport", "libnccl.so.2", "fake_nccl");
    gpu->gpus = 8;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return gpu->live != 0 || gpu->wrong != 0 || nccl->live != 0 ||
           nccl->wrong != 0;
}

/* ---- schedules ----------------------------------------------------------- */

static bool right(gyre_context *context, const char *words, uint32_t ranks,
                  uint64_t seed)
{
    trial_case c = {
        .words = words, .ranks = ranks, .tokens = 32, .delay = 300000};
    gyre_trial trial = {.size = sizeof(trial)};
    gyre_error error = {0};
    gyre_world *world = NULL;
    trial_options t;

    trial_prepare(context, &c, &t);
    t.options.delay_seed = t.world.delay_seed = seed;
    t.world.backend = "nccl";
    t.world.timeout = UINT64_C(5000000000);
    if (gyre_world_open(context, &t.world, &world, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    gyre_status status =
        gyre_attention_trial(context, world, &t.options, NULL, &trial, &error);
    gyre_world_close(world);
    if (status == GYRE_INVALID || status == GYRE_PARAMETER)
        return false; /* by check, or needs lanes */
    if (status != GYRE_OK)
        fail_msg("%s, %u ranks: %s", words, ranks, error.text);
    if (!trial.ok)
        fail_msg("%s, %u ranks: wrong", words, ranks);
    return true;
}

/* With pauses, so that ranks would begin their groups in different orders if
 * anything but the program said which is next. */
static void test_schedules_run_in_program_order(void **state)
{
    static const char *const schedules[] = {
        "ring",       "double-ring window=2", "2d heads=2 window=2",
        "2d heads=2", "multi-ring team=2",    "tile a=2",
        "ulysses",    "allgather strides=2",  "burst",
        "tokenring",
    };
    uint32_t ran = 0;

    (void)state;
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    for (size_t s = 0; s < sizeof(schedules) / sizeof(*schedules); s++)
        for (uint32_t ranks = 3; ranks <= 8; ranks++)
            ran += right(context, schedules[s], ranks, 1 + s);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    assert_true(ran >= 30);
}

/* ---- a plan that needs lanes ----------------------------------------------
 */

static const gyre_plan_host *real;
static uint32_t put_view, put_to;

static void begin_get(gyre_builder *b, uint32_t lane, const char *phase,
                      uint32_t pattern)
{
    (void)lane;
    real->begin(b, 2, phase, pattern);
}

static void keep_put(gyre_builder *b, uint32_t view, uint32_t to,
                     uint32_t channel)
{
    (void)b, (void)channel;
    put_view = view;
    put_to = to;
}

static void end_get_then_put(gyre_builder *b)
{
    real->end(b);
    real->begin(b, 1, "ring", GYRE_PATTERN_NONE);
    real->put(b, put_view, put_to, 0);
    real->end(b);
}

/* hand_ring, but everybody gets on one lane before it puts on another. */
static void get_first(void *user, uint32_t pass, uint32_t rank,
                      const gyre_plan_host *host, gyre_builder *builder)
{
    gyre_plan_host apart = *host;

    real = host;
    apart.begin = begin_get;
    apart.put = keep_put;
    apart.end = end_get_then_put;
    hand_ring(user, pass, rank, &apart, builder);
}

static void test_a_plan_that_needs_lanes_is_refused(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_plan_spec spec = hand_spec(3, 24);
    gyre_attention_options options = {.size = sizeof(options),
                                      .forward_only = 1};
    gyre_world_request request = {
        .size = sizeof(request), .backend = "nccl", .ranks = 3};
    gyre_trial trial = {.size = sizeof(trial)};
    gyre_error error = {0};
    gyre_world *world = NULL;
    gyre_plan *plan = NULL;

    (void)state;
    spec.emit = get_first;
    assert_int_equal(gyre_plan_create(context, &spec, &plan, &error), GYRE_OK);
    options.forward = plan;
    assert_int_equal(
        gyre_attention_trial(context, NULL, &options, NULL, &trial, &error),
        GYRE_OK);
    assert_true(trial.ok);
    assert_int_equal(gyre_world_open(context, &request, &world, &error),
                     GYRE_OK);
    assert_int_equal(
        gyre_attention_trial(context, world, &options, NULL, &trial, &error),
        GYRE_INVALID);
    assert_non_null(
        strstr(error.text, "plan 'hand' is not proven to end on one lane"));
    assert_non_null(strstr(error.text, "run it on threads or mpi"));
    gyre_world_close(world);
    gyre_plan_free(plan);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_schedules_run_in_program_order,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_plan_that_needs_lanes_is_refused,
                                        setup, teardown),
    };

#ifndef HAVE_NCCL
    printf("1..0 # SKIP the nccl module was not built\n");
    return 0;
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
