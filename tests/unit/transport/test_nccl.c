/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Module nccl on GPUs and an NCCL that are not there (fake/).  Skips where the
 * module was not built.
 */
#include "config.h"

#include "../device/open_fake.h"
#include "ranks.h"

#include "fake/fake_gpu.h"

#include <sched.h>

static fake_gpu_state *gpu;
static fake_nccl_state *nccl;

static int setup(void **state)
{
    (void)state;
    if (gpu == NULL) {
        gpu = open_fake_of("transport", "libcuda.so.1", "fake_gpu");
        nccl = open_fake_of("transport", "libnccl.so.2", "fake_nccl");
    }
    gpu->gpus = 8;
    gpu->fail_at = nccl->fail_at = 0;
    nccl->gate = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_int_equal(gpu->live, 0);
    assert_int_equal(gpu->wrong, 0);
    assert_int_equal(nccl->live, 0);
    assert_int_equal(nccl->wrong, 0);
    return 0;
}

enum { CHANNELS = 3, DEEP = 4 };

/* Everybody with everybody, on channels that the two ends list in another
 * order. */
static void all_to_all_body(gyre_endpoint *endpoint, void *user)
{
    const ranks *r = user;
    uint32_t rank = gyre_transport_rank(endpoint);
    uint32_t sent[MAX_RANKS][CHANNELS], got[DEEP][MAX_RANKS][CHANNELS];
    one ones[DEEP][2 * MAX_RANKS * CHANNELS];
    gyre_message group[2 * MAX_RANKS * CHANNELS];
    waiter w = WAITER;

    for (uint32_t p = 0; p < r->count; p++)
        for (uint32_t c = 0; c < CHANNELS; c++)
            sent[p][c] = 0x10000 * rank + 100 * p + c;
    for (uint32_t k = 0; k < DEEP; k++) {
        uint32_t n = 0;

        for (uint32_t p = 0; p < r->count; p++)
            for (uint32_t c = 0; c < CHANNELS && p != rank; c++) {
                uint32_t turned = CHANNELS - 1 - c;

                group[n] = *one_put(&ones[k][n], p, c, &sent[p][c], 4);
                n++;
                group[n] =
                    *one_get(&ones[k][n], p, turned, &got[k][p][turned], 4);
                n++;
            }
        assert_int_equal(gyre_transport_begin(endpoint, k % 2, 3, group, n,
                                              waiter_done, &w, NULL),
                         GYRE_OK);
    }
    assert_int_equal(waiter_wait(&w, DEEP), GYRE_OK);
    for (uint32_t k = 0; k < DEEP; k++)
        for (uint32_t p = 0; p < r->count; p++)
            for (uint32_t c = 0; c < CHANNELS && p != rank; c++)
                assert_int_equal(got[k][p][c], 0x10000 * p + 100 * rank + c);
    assert_int_equal(gyre_transport_barrier(endpoint, NULL), GYRE_OK);
}

static void test_all_to_all(void **state)
{
    (void)state;
    for (uint32_t count = 1; count < 6; count++)
        for (int delayed = 0; delayed < 2; delayed++) {
            gyre_world_options options = {.backend = "nccl",
                                          .ranks = count,
                                          .delay = delayed ? 200000 : 0};
            ranks r;

            ranks_begin(&r, &options);
            each_rank(&r, all_to_all_body, &r);
            assert_int_equal(gyre_transport_count(r.at[0], 3, 0).sent,
                             DEEP * CHANNELS * (count - 1) * 4);
            ranks_end(&r);
        }
}

static void test_extents_are_packed(void **state)
{
    gyre_world_options options = {.backend = "nccl", .ranks = 2};
    uint8_t from[30], to[40] = {0};
    gyre_extent a[] = {{from, 5}, {from + 10, 0}, {from + 20, 5}},
                b[] = {{to, 3}, {to + 30, 7}};
    gyre_message put = {true, 1, 0, a, 3, 10}, get = {false, 0, 0, b, 2, 10},
                 nothing = {true, 1, 0, NULL, 0, 0},
                 none = {false, 0, 0, NULL, 0, 0};
    waiter w = WAITER;
    ranks r;

    (void)state;
    ranks_begin(&r, &options);
    for (uint8_t i = 0; i < 30; i++)
        from[i] = i;
    begin_one(r.at[0], &put, &w, NULL);
    begin_one(r.at[0], &nothing, &w, NULL);
    begin_one(r.at[1], &get, &w, NULL);
    begin_one(r.at[1], &none, &w, NULL);
    assert_int_equal(waiter_wait(&w, 4), GYRE_OK);
    assert_int_equal(to[2], 2);
    assert_int_equal(to[3], 0);
    assert_int_equal(to[30], 3);
    assert_int_equal(to[31], 4);
    assert_int_equal(to[32], 20);
    assert_int_equal(to[36], 24);
    ranks_end(&r);
}

/* ---- failure --------------------------------------------------------- */

/* A rank waits in NCCL for another that never comes; the failure frees it. */
static void breaks(gyre_world_options options, gyre_message put,
                   gyre_message get, gyre_status status, const char *part)
{
    waiter w = WAITER, hung = WAITER;
    unsigned ends = 1;
    uint32_t into;
    one o;
    ranks r;

    options.backend = "nccl";
    options.ranks = 3;
    ranks_begin(&r, &options);
    begin_one(r.at[2], one_get(&o, 1, 7, &into, 4), &hung, NULL);
    begin_one(r.at[0], &put, &w, NULL);
    /* Refused when the put alone has broken the world by now. */
    ends += begin_one(r.at[1], &get, &w, NULL) == GYRE_OK;
    assert_int_equal(waiter_wait(&w, ends), status);
    assert_int_equal(waiter_wait(&hung, 1), status);
    if (strstr(hung.text, part) == NULL)
        fail_msg("\"%s\" is not in: %s", part, hung.text);
    ranks_end(&r);
}

static void test_ends_that_disagree(void **state)
{
    uint8_t data[64] = {0}, into[64];
    gyre_extent from = {data, 64}, half = {into, 32}, all = {into, 64};

    (void)state;
    breaks((gyre_world_options){0}, (gyre_message){true, 1, 2, &from, 1, 64},
           (gyre_message){false, 0, 2, &half, 1, 32}, GYRE_INVALID,
           "put of rank 0 has 64 bytes, the get of rank 1 that it meets takes "
           "32: channel 2, number 0");
    breaks((gyre_world_options){0}, (gyre_message){true, 1, 2, &from, 1, 64},
           (gyre_message){false, 0, 3, &all, 1, 64}, GYRE_STATE,
           "not safe on one lane");
    breaks((gyre_world_options){.staging = 63},
           (gyre_message){true, 1, 2, &from, 1, 64},
           (gyre_message){false, 0, 2, &all, 1, 64}, GYRE_NO_MEMORY,
           "raise the option staging");
    breaks((gyre_world_options){.timeout = 20000000},
           (gyre_message){true, 2, 2, &from, 1, 64},
           (gyre_message){false, 2, 2, &all, 1, 64}, GYRE_IO, "has waited");
}

/* Two ranks are in a call of NCCL when the world breaks: their communicators
 * stay until the calls have returned, and so does the memory. */
static void test_a_failure_beside_a_call(void **state)
{
    gyre_world_options options = {.backend = "nccl", .ranks = 3};
    uint32_t from = 1, into = 0;
    waiter w = WAITER;
    one put, get;
    ranks r;

    (void)state;
    ranks_begin(&r, &options);
    nccl->gate = 1;
    begin_one(r.at[0], one_put(&put, 1, 0, &from, 4), &w, NULL);
    begin_one(r.at[1], one_get(&get, 0, 0, &into, 4), &w, NULL);
    while (nccl->inside < 2)
        sched_yield();
    gyre_transport_abort(r.at[2], GYRE_IO, "the test wants it");
    assert_int_equal(waiter_ends(&w), 0);
    nccl->gate = 0;
    assert_int_equal(waiter_wait(&w, 2), GYRE_IO);
    assert_non_null(strstr(w.text, "rank 2 gave up: the test wants it"));
    ranks_end(&r);
}

/* Ranks that wait for others in NCCL, and some that do nothing. */
static void test_failures_at_any_time(void **state)
{
    (void)state;
    for (unsigned turn = 0; turn < 50; turn++) {
        gyre_world_options options = {.backend = "nccl", .ranks = 4};
        uint32_t from = 1, into = 0, never;
        waiter w = WAITER;
        one put, get, lost;
        ranks r;

        ranks_begin(&r, &options);
        begin_one(r.at[0], one_put(&put, 1, 0, &from, 4), &w, NULL);
        begin_one(r.at[1], one_get(&get, 0, 0, &into, 4), &w, NULL);
        begin_one(r.at[2], one_get(&lost, 1, 0, &never, 4), &w, NULL);
        for (unsigned i = 0; i < turn * turn; i++)
            sched_yield();
        gyre_transport_abort(r.at[1], GYRE_IO, "the test wants it");
        assert_int_equal(waiter_wait(&w, 3), GYRE_IO);
        ranks_end(&r);
        assert_int_equal(nccl->live, 0);
    }
}

static void refused(gyre_world_options options, gyre_status status,
                    const char *part)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_world *world = NULL;
    gyre_error error = {0};

    options.backend = "nccl";
    assert_int_equal(gyre_transport_create(context, &options, &world, &error),
                     status);
    unit_assert_text(&error, part);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_too_few_gpus(void **state)
{
    (void)state;
    refused((gyre_world_options){.ranks = 9}, GYRE_NOT_FOUND,
            "9 ranks need as many GPUs, and the driver sees 8");
    gpu->gpus = 0;
    refused((gyre_world_options){.ranks = 1}, GYRE_NOT_FOUND, "sees 0");
}

/* One life, in which the n-th call of a library may fail. */
static bool lives(void)
{
    gyre_world_options options = {.backend = "nccl", .ranks = 2};
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_world *world = NULL;
    gyre_endpoint *at[2];
    gyre_error error = {0};
    uint32_t sent = 5, got = 0;
    waiter w = WAITER;
    one put, get;
    unsigned began = 0;
    gyre_status status =
        gyre_transport_create(context, &options, &world, &error);

    if (status == GYRE_OK) {
        gyre_transport_endpoint(world, 0, &at[0], NULL);
        gyre_transport_endpoint(world, 1, &at[1], NULL);
        began += begin_one(at[0], one_put(&put, 1, 0, &sent, 4), &w, NULL) ==
                 GYRE_OK;
        began +=
            begin_one(at[1], one_get(&get, 0, 0, &got, 4), &w, NULL) == GYRE_OK;
        status = waiter_wait(&w, began);
        if (began < 2)
            status = gyre_transport_check(world, NULL);
        gyre_transport_destroy(world);
        unit_assert_text(&w, status != GYRE_OK ? "nccl: " : "");
    } else {
        unit_assert_text(&error, "nccl: ");
    }
    if (status == GYRE_OK)
        assert_int_equal(got, 5);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    assert_int_equal(gpu->live, 0);
    assert_int_equal(nccl->live, 0);
    return status == GYRE_OK;
}

static void test_every_call_may_fail(void **state)
{
    (void)state;
    for (unsigned n = 1;; n++) {
        bool good;

        gpu->fail_at = gpu->calls + n;
        good = lives();
        gpu->fail_at = 0;
        if (good)
            break;
    }
    for (unsigned n = 1;; n++) {
        bool good;

        nccl->fail_at = nccl->calls + n;
        good = lives();
        nccl->fail_at = 0;
        if (good)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_to_all, setup, teardown),
        cmocka_unit_test_setup_teardown(test_extents_are_packed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_ends_that_disagree, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_failure_beside_a_call, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_failures_at_any_time, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_too_few_gpus, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_call_may_fail, setup,
                                        teardown),
    };

#ifndef HAVE_NCCL
    printf("1..0 # SKIP the nccl module was not built\n");
    return 0;
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
