/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Module nccl on the GPUs of this machine, as many as there are; skips without
 * the module, the driver, NCCL or a GPU.  With one GPU that is a world of one
 * rank: the libraries are opened, a communicator, a stream and a thread are
 * made and given back.
 */
#include "config.h"

#include "ranks.h"

enum { BYTES = 1 << 20 };

static void ring_body(gyre_endpoint *endpoint, void *user)
{
    const ranks *r = user;
    uint32_t rank = gyre_transport_rank(endpoint), count = r->count;
    uint8_t *from = malloc(BYTES), *to = malloc(BYTES);
    gyre_message group[2];
    waiter w = WAITER;
    one put, get;

    memset(from, (int)rank, BYTES);
    for (unsigned turn = 1; turn <= 10 && count > 1; turn++) {
        group[0] = *one_put(&put, (rank + 1) % count, 0, from, BYTES);
        group[1] = *one_get(&get, (rank + count - 1) % count, 0, to, BYTES);
        assert_int_equal(gyre_transport_begin(endpoint, 0, 0, group, 2,
                                              waiter_done, &w, NULL),
                         GYRE_OK);
        assert_int_equal(waiter_wait(&w, turn), GYRE_OK);
        assert_int_equal(to[0], (rank + count - 1) % count);
        assert_int_equal(to[BYTES - 1], (rank + count - 1) % count);
    }
    assert_int_equal(gyre_transport_barrier(endpoint, NULL), GYRE_OK);
    free(from);
    free(to);
}

static void test_a_ring_of_gpus(void **state)
{
    gyre_world_options options = {.backend = "nccl", .timeout = 60000000000};
    gyre_world *world = NULL;
    gyre_error error = {0};
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_status status =
        gyre_transport_create(context, &options, &world, &error);
    ranks r;

    (void)state;
    gyre_transport_destroy(world);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    if (status == GYRE_NOT_FOUND || status == GYRE_UNSUPPORTED) {
        print_message("# %s\n", error.text);
        skip();
    }
    if (status != GYRE_OK)
        fail_msg("%s", error.text);
    ranks_begin(&r, &options);
    each_rank(&r, ring_body, &r);
    ranks_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_ring_of_gpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
