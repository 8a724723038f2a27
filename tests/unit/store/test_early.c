/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates that begin before the last gradient came: the same bits as late
 * ones, nothing left of them when the round is skipped or given up, and no
 * buffer touched that the backward pass may still read.
 */
#include "config.h"

#include "fixture.h"

#include "io/io.h"

#include <time.h>

/* Three grains each; a chunk has four, so that 4 tensors fill 3 chunks. */
enum { TENSORS = 12, ELEMENTS = 2500 };

typedef struct world {
    fixture f;
    model m;
    oracle o;
    float *out[TENSORS];
} world;

static void create(world *w, bool in_place, uint32_t commit_every)
{
    gyre_store_spec spec = spec_of(&w->m);
    gyre_store_options options = plain_options();

    spec.chunk_elements = 4096;
    spec.in_place = in_place;
    options.commit_every = commit_every;
    options.io = "faulty"; /* counts transfers */
    fixture_devices(&w->f, &spec, 2);
    fixture_create(&w->f, &w->m, &spec, &options);
}

static int setup_with(void **state, uint32_t commit_every)
{
    world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    for (size_t i = 0; i < TENSORS; i++) {
        char name[16];

        snprintf(name, sizeof(name), "t%zu", i);
        model_add(&w->m, name, ELEMENTS, 0, 0);
        w->out[i] = calloc(ELEMENTS, sizeof(float));
    }
    fixture_begin(&w->f);
    create(w, false, commit_every);
    oracle_begin(&w->o, &w->m);
    *state = w;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, 1);
}

static int setup_every_third(void **state)
{
    return setup_with(state, 3);
}

static int teardown(void **state)
{
    world *w = *state;

    fixture_end(&w->f);
    oracle_end(&w->o);
    for (size_t i = 0; i < TENSORS; i++)
        free(w->out[i]);
    model_free(&w->m);
    free(w);
    return 0;
}

static void bind_all(world *w)
{
    for (size_t i = 0; i < TENSORS; i++)
        good(&w->f,
             gyre_store_bind(w->f.store, i, GYRE_F32, w->out[i], &w->f.error));
    good(&w->f, gyre_store_pull(w->f.store, &w->f.error));
}

static void expect_out(const world *w)
{
    for (size_t i = 0; i < TENSORS; i++)
        assert_memory_equal(w->out[i], w->o.p[i], ELEMENTS * sizeof(float));
}

static gyre_round *begin_early(world *w, uint32_t micro_batches)
{
    gyre_round_options options = round_options();

    options.early = 1;
    options.micro_batches = micro_batches;
    return fixture_open_round(&w->f, &options);
}

static gyre_round_report finish(world *w, gyre_round *round)
{
    gyre_round_report report = {.size = sizeof(report)};

    good(&w->f, gyre_round_finish(round, NULL, 0, &report, &w->f.error));
    return report;
}

static void nap(void)
{
    struct timespec ms = {0, 1000000};

    nanosleep(&ms, NULL);
}

/* Wait until that many transfers were started since `before`: a chunk is
 * delivered before its write is. */
static void wait_for_transfers(const world *w, uint64_t before, uint64_t count)
{
    for (int i = 0; i < 60000; i++) {
        if (gyre_io_submitted(w->f.context) >= before + count)
            return;
        nap();
    }
    fail_msg("%d transfers, %d are wanted",
             (int)(gyre_io_submitted(w->f.context) - before), (int)count);
}

static void test_early_is_bit_equal_to_late(void **state)
{
    world *w = *state;

    bind_all(w);
    for (uint64_t t = 0; t < 6; t++) {
        uint32_t micro = 1 + t % 2;
        gyre_round *round = begin_early(w, micro);

        for (uint32_t k = 0; k < micro; k++) {
            for (size_t n = TENSORS; n-- > 0;) { /* as a backward pass does */
                give_tensor(&w->f, round, &w->m, n, 10 * t + k);
                if ((n + t) % 3)
                    good(&w->f, gyre_round_release(round, n, &w->f.error));
            }
            oracle_give_all(&w->o, 10 * t + k);
            if (k + 1 < micro)
                good(&w->f, gyre_round_next(round, &w->f.error));
        }
        assert_int_equal(finish(w, round).step, t + 1);
        oracle_step(&w->o, 1, 1, 0);
        expect_oracle(&w->f, &w->o);
        expect_out(w);
    }
}

static void test_early_leaves_absent_tensors_alone(void **state)
{
    world *w = *state;

    bind_all(w);
    for (uint64_t t = 0; t < 4; t++) {
        gyre_round *round = begin_early(w, 1);

        for (size_t i = 0; i < TENSORS; i++) {
            float g[ELEMENTS];

            if ((i + t) % 3 == 0) {
                good(&w->f, gyre_round_absent(round, i, &w->f.error));
                continue;
            }
            give_tensor(&w->f, round, &w->m, i, t);
            gradient_fill(t, i, 0, ELEMENTS, g);
            oracle_give(&w->o, i, g);
            good(&w->f, gyre_round_release(round, i, &w->f.error));
        }
        (void)finish(w, round);
        oracle_step(&w->o, 1, 1, 0);
        expect_oracle(&w->f, &w->o);
        expect_out(w);
    }
}

/* What the backward pass may read stays until it is released, and then comes
 * before gyre_round_update was called. */
static void test_bound_tensors_wait_for_their_release(void **state)
{
    world *w = *state;
    gyre_round *round;
    uint64_t before;

    bind_all(w);
    round = begin_early(w, 1);
    before = gyre_io_submitted(w->f.context);
    give_all(&w->f, round, &w->m, 1);
    for (int i = 0; i < 30; i++)
        nap(); /* time in which a wrong update would show */
    expect_out(w);
    assert_int_equal(gyre_io_submitted(w->f.context), before);
    for (size_t i = 0; i < 3; i++)
        good(&w->f, gyre_round_release(round, i, &w->f.error));
    good(&w->f, gyre_round_release(round, 0, &w->f.error)); /* again: fine */
    wait_for_transfers(w, before, 4); /* two chunks, read and written */
    for (size_t i = 0; i < 2; i++)
        assert_memory_not_equal(w->out[i], w->o.p[i], ELEMENTS * sizeof(float));
    for (size_t i = 3; i < TENSORS; i++)
        assert_memory_equal(w->out[i], w->o.p[i], ELEMENTS * sizeof(float));
    (void)finish(w, round);
    oracle_give_all(&w->o, 1);
    oracle_step(&w->o, 1, 1, 0);
    expect_out(w);
}

/* All but the last element are given and updated; it is then not finite.  The
 * buffers are right again when the update says "skipped": a next forward pass
 * may follow a wait at once. */
static void test_skip_takes_an_early_update_back(void **state)
{
    world *w = *state;
    snapshot before, after;
    gyre_round *round;
    gyre_round_report report = {.size = sizeof(report)};
    float nan = NAN, rest[ELEMENTS];
    uint64_t started;

    fixture_round(&w->f, &w->m, 1, NULL, NULL);
    oracle_give_all(&w->o, 1);
    oracle_step(&w->o, 1, 1, 0);
    bind_all(w);
    before = snapshot_of(&w->f, &w->m);
    round = begin_early(w, 1);
    started = gyre_io_submitted(w->f.context);
    for (size_t i = 0; i < TENSORS - 1; i++) {
        give_tensor(&w->f, round, &w->m, i, 2);
        good(&w->f, gyre_round_release(round, i, &w->f.error));
    }
    wait_for_transfers(w, started, 16); /* 8 of 9 chunks */
    assert_memory_not_equal(w->out[0], w->o.p[0], ELEMENTS * sizeof(float));
    gradient_fill(2, TENSORS - 1, 0, ELEMENTS, rest);
    rest[ELEMENTS - 1] = nan;
    good(&w->f, give(&w->f, round, TENSORS - 1, 0, ELEMENTS, rest));
    good(&w->f, gyre_round_update(round, &report, &w->f.error));
    assert_int_equal(report.skipped, 1);
    for (size_t i = 0; i < TENSORS; i++)
        good(&w->f, gyre_round_wait(round, i, &w->f.error));
    expect_out(w);
    (void)finish(w, round);
    expect_out(w);
    after = snapshot_of(&w->f, &w->m);
    expect_same_contents(&before, &after);
    fixture_close(&w->f);
    fixture_open(&w->f, NULL);
    after = snapshot_of(&w->f, &w->m);
    expect_same_contents(&before, &after);
    fixture_round(&w->f, &w->m, 3, NULL, NULL);
    oracle_give_all(&w->o, 3);
    oracle_step(&w->o, 1, 1, 0);
    expect_oracle(&w->f, &w->o);
}

/* A NaN itself updated early must not stay either. */
static void test_an_early_nan_goes_as_it_came(void **state)
{
    world *w = *state;
    gyre_round *round;
    float bad[ELEMENTS];

    bind_all(w);
    round = begin_early(w, 1);
    for (size_t i = 0; i < ELEMENTS; i++)
        bad[i] = i % 2 ? NAN : INFINITY;
    for (size_t i = 0; i < TENSORS; i++) {
        good(&w->f, give(&w->f, round, i, 0, ELEMENTS, bad));
        good(&w->f, gyre_round_release(round, i, &w->f.error));
    }
    assert_int_equal(finish(w, round).skipped, 1);
    expect_out(w);
    expect_oracle(&w->f, &w->o);
}

static void test_abort_takes_an_early_update_back(void **state)
{
    world *w = *state;

    bind_all(w);
    for (size_t stage = 0; stage <= TENSORS; stage += 3) {
        gyre_round *round = begin_early(w, 1);
        uint64_t before = gyre_io_submitted(w->f.context);

        for (size_t i = 0; i < stage; i++) {
            give_tensor(&w->f, round, &w->m, i, stage);
            good(&w->f, gyre_round_release(round, i, &w->f.error));
        }
        wait_for_transfers(w, before, stage * 3 / 4 * 2);
        good(&w->f, gyre_round_abort(round, &w->f.error));
        expect_out(w);
        assert_int_equal(info_of(&w->f).round, 0);
    }
    expect_oracle(&w->f, &w->o);
    fixture_round(&w->f, &w->m, 7, NULL, NULL);
    oracle_give_all(&w->o, 7);
    oracle_step(&w->o, 1, 1, 0);
    expect_oracle(&w->f, &w->o);
    expect_out(w);
}

/* Chunks rewritten since the last commit have no free slot for an early
 * update: a skip in such a round must find the round before. */
static void test_several_rounds_per_commit_stay_right(void **state)
{
    world *w = *state;

    bind_all(w);
    for (uint64_t t = 0; t < 8; t++) {
        gyre_round *round = begin_early(w, 1);
        float bad[ELEMENTS];
        bool skip = t % 4 == 1 || t == 6;

        for (size_t i = 0; i < TENSORS; i++) {
            gradient_fill(t, i, 0, ELEMENTS, bad);
            if (skip && i == TENSORS - 1)
                bad[100] = NAN;
            good(&w->f, give(&w->f, round, i, 0, ELEMENTS, bad));
            good(&w->f, gyre_round_release(round, i, &w->f.error));
            nap();
        }
        assert_int_equal(finish(w, round).skipped, skip);
        if (!skip) {
            oracle_give_all(&w->o, t);
            oracle_step(&w->o, 1, 1, 0);
        }
        expect_oracle(&w->f, &w->o);
        expect_out(w);
    }
}

static void test_early_is_refused_where_it_cannot_be_right(void **state)
{
    world *w = *state;
    gyre_round_options options = round_options();
    gyre_round *round = NULL;

    options.early = 1;
    options.clip = 1;
    expect(&w->f, gyre_round_begin(w->f.store, &options, &round, &w->f.error),
           GYRE_INVALID);
    unit_assert_text(&w->f.error, "norm");
    fixture_close(&w->f);
    snprintf(w->f.path, sizeof(w->f.path), "%s/place", w->f.root);
    create(w, true, 1);
    options.clip = 0;
    expect(&w->f, gyre_round_begin(w->f.store, &options, &round, &w->f.error),
           GYRE_INVALID);
    unit_assert_text(&w->f.error, "in place");
    assert_null(round);
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_early_is_bit_equal_to_late),
        IN_A_WORLD(test_early_leaves_absent_tensors_alone),
        IN_A_WORLD(test_bound_tensors_wait_for_their_release),
        IN_A_WORLD(test_skip_takes_an_early_update_back),
        IN_A_WORLD(test_an_early_nan_goes_as_it_came),
        IN_A_WORLD(test_abort_takes_an_early_update_back),
        cmocka_unit_test_setup_teardown(
            test_several_rounds_per_commit_stay_right, setup_every_third,
            teardown),
        IN_A_WORLD(test_early_is_refused_where_it_cannot_be_right),
    };

    return cmocka_run_group_tests_name("store: early", tests, NULL, NULL);
}
