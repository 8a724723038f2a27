/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rates and placement change when things happen and nothing else: whatever is
 * emulated, wherever the update runs, with one buffer or many, the same rounds
 * give the same bits.
 */
#include "config.h"

#include "fixture.h"

enum { ROUNDS = 3 };

typedef struct variant {
    uint32_t buffers;
    const char *compute;
    double link_rate;
    gyre_placement placement;
    bool early;
    const char *io;
} variant;

/* Rates that make a chunk of 24 KiB take about as long as its I/O, ten times
 * less, and ten times more. */
static const variant variants[] = {
    {1, NULL, 0, GYRE_NEAR, false, NULL},
    {2, NULL, 0, GYRE_NEAR, true, NULL},
    {4, "cpu", 0, GYRE_HOST, false, NULL},
    {1, "emulated:read=65M,write=35M", 174e6, GYRE_NEAR, false, NULL},
    {2, "emulated:read=65M,write=35M", 174e6, GYRE_NEAR, true, NULL},
    {4, "emulated:read=65M,write=35M", 174e6, GYRE_HOST, false, NULL},
    {1, "emulated:read=65M,write=35M", 174e6, GYRE_HOST, true, "posix"},
    {3, "emulated:read=1G", 0, GYRE_NEAR, false, "posix"},
    {3, "emulated:write=20M", 0, GYRE_HOST, false, NULL},
    {5, NULL, 40e6, GYRE_NEAR, true, NULL},
    {5, NULL, 400e6, GYRE_HOST, false, "faulty:posix,reorder=5"},
    {2, "emulated:read=2G,write=900M", 20e6, GYRE_HOST, true,
     "faulty,short=3,every=5"},
};

static snapshot run(const model *m, size_t devices, const variant *v)
{
    gyre_store_spec spec = spec_of(m);
    gyre_store_options options = plain_options();
    fixture f;
    snapshot end;

    fixture_begin(&f);
    spec.chunk_elements = 2048;
    fixture_devices(&f, &spec, devices);
    fixture_create(&f, m, &spec, NULL);
    fixture_close(&f);
    options.buffers = v->buffers;
    options.compute = &v->compute;
    options.compute_count = v->compute != NULL;
    options.link_rate = v->link_rate;
    options.placement = v->placement;
    options.io = v->io;
    fixture_open(&f, &options);
    for (uint64_t t = 0; t < ROUNDS; t++) {
        gyre_round_options round = round_options();

        round.early = v->early && t != 1;
        round.clip = t == 1 ? 1e-3 : 0;
        fixture_round(&f, m, t, &round, NULL);
    }
    fixture_close(&f);
    fixture_open(&f, NULL);
    end = snapshot_of(&f, m);
    fixture_end(&f);
    return end;
}

static void test_same_bits(void **state)
{
    const variant plain = {0, NULL, 0, GYRE_NEAR, false, NULL};
    model m = {0};
    snapshot want;

    (void)state;
    model_mixed(&m);
    want = run(&m, 1, &plain);
    for (size_t i = 0; i < sizeof(variants) / sizeof(*variants); i++) {
        snapshot have = run(&m, 1 + i % 3, &variants[i]);

        if (strcmp(want.digest, have.digest) != 0 || want.slots != have.slots)
            fail_msg("variant %zu: digest %s, wanted is %s", i, have.digest,
                     want.digest);
    }
    model_free(&m);
}

/* ---- options ---------------------------------------------------------- */

static void expect_refused(fixture *f, const gyre_store_options *options,
                           gyre_status want, const char *text)
{
    expect(f,
           gyre_store_open(f->context, f->path, options, &f->store, &f->error),
           want);
    unit_assert_text(&f->error, text);
    assert_null(f->store);
}

static void test_options_are_checked(void **state)
{
    static const char *const three[] = {"cpu", "cpu", "cpu"};
    static const char *const wrong[] = {"cpu", "gpu"};
    static const char *const none[] = {"cpu", NULL};
    model m = {0};
    gyre_store_spec spec;
    gyre_store_options options = plain_options();
    fixture f;

    (void)state;
    model_mixed(&m);
    spec = spec_of(&m);
    fixture_begin(&f);
    fixture_devices(&f, &spec, 2);
    fixture_create(&f, &m, &spec, NULL);
    fixture_close(&f);
    options.compute = three;
    options.compute_count = 3;
    expect_refused(&f, &options, GYRE_INVALID, "3 devices and the store has 2");
    options.compute = wrong;
    options.compute_count = 2;
    expect_refused(&f, &options, GYRE_INVALID, "\"gpu\" is unknown");
    options.compute = none;
    expect_refused(&f, &options, GYRE_INVALID, "compute[1] is NULL");
    options.compute = NULL;
    expect_refused(&f, &options, GYRE_INVALID, "compute_count is 2");
    options = plain_options();
    options.link_rate = -1;
    expect_refused(&f, &options, GYRE_RANGE, "link_rate");
    options.link_rate = NAN;
    expect_refused(&f, &options, GYRE_RANGE, "link_rate");
    options = plain_options();
    options.placement = (gyre_placement)7;
    expect_refused(&f, &options, GYRE_INVALID, "placement is 7");
    options = plain_options();
    options.compute = three;
    options.compute_count = 1;
    fixture_open(&f, &options);
    fixture_end(&f);
    model_free(&m);
}

/* ---- memory ----------------------------------------------------------- */

/* Peak memory of a round over `chunks` chunks, but for what grows with the
 * tensors: gradients, tables and the rest, as the dry run declares them. */
static uint64_t buffers_at_peak(uint64_t chunks, const variant *v)
{
    model m = {0};
    gyre_store_spec spec;
    gyre_store_options options = plain_options();
    gyre_store_plan plan = {.size = sizeof(plan)};
    uint64_t rest;
    fixture f;

    model_add(&m, "t", chunks * 1024, 0, 0);
    spec = spec_of(&m);
    spec.chunk_elements = 1024;
    options.buffers = v->buffers;
    options.compute = &v->compute;
    options.compute_count = v->compute != NULL;
    options.link_rate = v->link_rate;
    fixture_begin(&f);
    good(&f, gyre_store_make_plan(f.context, &spec, &options, &plan, &f.error));
    fixture_create(&f, &m, &spec, &options);
    fixture_round(&f, &m, 1, NULL, NULL);
    assert_true(f.memory.peak <= plan.total_bytes);
    rest = plan.total_bytes - plan.buffer_bytes;
    assert_true(rest < plan.total_bytes);
    fixture_end(&f);
    model_free(&m);
    return plan.buffer_bytes;
}

static void test_buffers_do_not_grow(void **state)
{
    const variant v = {3,   "emulated:read=9G,write=9G", 0, GYRE_NEAR, false,
                       NULL};

    (void)state;
    assert_int_equal(buffers_at_peak(10, &v), buffers_at_peak(10000, &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_options_are_checked),
        cmocka_unit_test(test_buffers_do_not_grow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
