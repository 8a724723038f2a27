/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices that are slower than the others, or fail: the round waits for the
 * slow one within the memory declared, and a failure leaves the last commit
 * whole and a store that goes on.
 */
#include "config.h"

#include "fixture.h"

enum { DEVICES = 3 };

typedef struct world {
    fixture f;
    model m;
    gyre_store_spec spec;
} world;

static void begin(world *w, int spill)
{
    memset(w, 0, sizeof(*w));
    model_mixed(&w->m);
    w->spec = spec_of(&w->m);
    w->spec.chunk_elements = 1024;
    w->spec.spill = spill;
    fixture_begin(&w->f);
    fixture_devices(&w->f, &w->spec, DEVICES);
    fixture_create(&w->f, &w->m, &w->spec, NULL);
    fixture_close(&w->f);
}

static void end(world *w)
{
    fixture_end(&w->f);
    model_free(&w->m);
}

/* Where `rounds` plain rounds lead. */
static snapshot plainly(uint64_t rounds)
{
    snapshot s;
    world w;

    begin(&w, 0);
    fixture_open(&w.f, NULL);
    for (uint64_t t = 0; t < rounds; t++)
        fixture_round(&w.f, &w.m, t, NULL, NULL);
    s = snapshot_of(&w.f, &w.m);
    end(&w);
    return s;
}

static void expect_same(const snapshot *want, const snapshot *have)
{
    assert_string_equal(want->digest, have->digest);
    assert_int_equal(want->slots, have->slots);
}

/* ---- slow ------------------------------------------------------------- */

/* A device at a small part of the rate of the others, each in turn. */
static void test_a_slow_device_is_waited_for(void **state)
{
    snapshot want = plainly(2);

    (void)state;
    for (int slow = 0; slow < DEVICES; slow++) {
        const char *compute[DEVICES] = {"cpu", "emulated:read=40M,write=40M",
                                        "emulated:read=40M"};
        gyre_store_options options = plain_options();
        gyre_store_plan plan = {.size = sizeof(plan)};
        snapshot have;
        world w;

        begin(&w, slow % 2);
        compute[slow] = "emulated:read=4M,write=3M";
        options.compute = compute;
        options.compute_count = DEVICES;
        options.placement = slow == 1 ? GYRE_HOST : GYRE_NEAR;
        options.link_rate = slow == 2 ? 0 : 30e6;
        options.buffers = 2;
        options.fast = 1;
        good(&w.f, gyre_store_make_plan(w.f.context, &w.spec, &options, &plan,
                                        &w.f.error));
        fixture_open(&w.f, &options);
        w.f.memory.peak = 0;
        for (uint64_t t = 0; t < 2; t++)
            fixture_round(&w.f, &w.m, t, NULL, NULL);
        assert_in_range(w.f.memory.peak, 1, plan.total_bytes);
        have = snapshot_of(&w.f, &w.m);
        expect_same(&want, &have);
        end(&w);
    }
}

/* ---- failing ---------------------------------------------------------- */

typedef struct failing {
    int spill;
    gyre_placement placement;
    const char *compute;
    const char *engine;
} failing;

/* The n-th operation of each queue fails in the second round.  True when it
 * did. */
static bool fail_at(const failing *how, unsigned n, const snapshot *one,
                    const snapshot *two)
{
    gyre_store_options options = plain_options();
    gyre_round *round;
    gyre_status status;
    snapshot have;
    char io[64];
    world w;

    begin(&w, how->spill);
    fixture_open(&w.f, NULL);
    fixture_round(&w.f, &w.m, 0, NULL, NULL);
    fixture_close(&w.f);
    /* The first two operations read the areas at open. */
    snprintf(io, sizeof(io), "%s,fail=%u", how->engine, n + 2);
    options.io = io;
    options.buffers = 1 + n % 3;
    options.compute = &how->compute;
    options.compute_count = how->compute != NULL;
    options.link_rate = how->compute != NULL ? 500e6 : 0;
    options.placement = how->placement;
    options.fast = 1;
    fixture_open(&w.f, &options);
    round = fixture_open_round(&w.f, NULL);
    give_all(&w.f, round, &w.m, 1);
    w.f.error.text[0] = '\0';
    status = gyre_round_finish(round, NULL, 0, NULL, &w.f.error);
    if (status != GYRE_OK) {
        unit_assert_text(&w.f.error, w.f.root);
        have = snapshot_of(&w.f, &w.m);
        expect_same(one, &have);
        fixture_round(&w.f, &w.m, 1, NULL, NULL);
    }
    fixture_close(&w.f);
    fixture_open(&w.f, NULL);
    have = snapshot_of(&w.f, &w.m);
    expect_same(two, &have);
    end(&w);
    return status != GYRE_OK;
}

static void test_a_failing_device_aborts_cleanly(void **state)
{
    static const failing ways[] = {
        {0, GYRE_NEAR, "emulated:read=900M,write=500M", "faulty:posix"},
        {1, GYRE_NEAR, NULL, "faulty"},
        {1, GYRE_HOST, "emulated:read=900M,write=500M", "faulty:posix"},
    };
    snapshot one = plainly(1), two = plainly(2);

    (void)state;
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        unsigned n = 1;

        while (fail_at(&ways[i], n, &one, &two))
            n += 1 + n / 6;
        /* Chunks of one device are read and written; then comes the commit. */
        assert_true(n > 12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slow_device_is_waited_for),
        cmocka_unit_test(test_a_failing_device_aborts_cleanly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
