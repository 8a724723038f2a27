/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a commit keeps: several rounds at once, the blob, and nothing of a round
 * that was given up.
 */
#include "config.h"

#include "fixture.h"

typedef struct world {
    fixture f;
    model m;
    oracle o;
} world;

static void create(world *w, uint32_t commit_every, int in_place)
{
    gyre_store_spec spec = spec_of(&w->m);
    gyre_store_options options = plain_options();

    spec.chunk_elements = 4096;
    spec.blob_bytes = 100;
    spec.in_place = in_place;
    options.commit_every = commit_every;
    fixture_devices(&w->f, &spec, 2);
    fixture_create(&w->f, &w->m, &spec, &options);
}

static int setup(void **state)
{
    world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    model_mixed(&w->m);
    fixture_begin(&w->f);
    oracle_begin(&w->o, &w->m);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;

    fixture_end(&w->f);
    oracle_end(&w->o);
    model_free(&w->m);
    free(w);
    return 0;
}

static void reopen(world *w, uint32_t commit_every)
{
    gyre_store_options options = plain_options();

    options.commit_every = commit_every;
    fixture_close(&w->f);
    fixture_open(&w->f, &options);
}

static void step(world *w, uint64_t seed)
{
    fixture_round(&w->f, &w->m, seed, NULL, NULL);
    oracle_give_all(&w->o, seed);
    oracle_step(&w->o, 1, 1, 0);
}

static void expect_blob(world *w, const char *want)
{
    size_t bytes = 77;
    const void *blob = gyre_store_blob(w->f.store, &bytes);

    assert_int_equal(bytes, strlen(want));
    if (bytes > 0)
        assert_memory_equal(blob, want, bytes);
    else
        assert_null(blob);
}

/* ---- several rounds per commit ---------------------------------------- */

static void test_every_third_round_commits(void **state)
{
    world *w = *state;
    snapshot sixth = {0}, again;

    create(w, 3, 0);
    for (uint64_t t = 1; t <= 8; t++) {
        gyre_round_report report = {.size = sizeof(report)};

        fixture_round(&w->f, &w->m, t, NULL, &report);
        oracle_give_all(&w->o, t);
        oracle_step(&w->o, 1, 1, 0);
        assert_int_equal(report.committed, t % 3 == 0);
        assert_int_equal(report.commit_bytes > 0, t % 3 == 0);
        assert_int_equal(info_of(&w->f).step, t);
        assert_int_equal(info_of(&w->f).committed_step, t / 3 * 3);
        expect_oracle(&w->f, &w->o);
        if (t == 6)
            sixth = snapshot_of(&w->f, &w->m);
    }
    reopen(w, 3); /* two rounds are lost, none is half there */
    again = snapshot_of(&w->f, &w->m);
    expect_same_contents(&sixth, &again);
    fixture_round(&w->f, &w->m, 7, NULL, NULL);
    fixture_round(&w->f, &w->m, 8, NULL, NULL);
    expect_oracle(&w->f, &w->o); /* given again, they give the same */
}

static void test_commit_between_rounds(void **state)
{
    world *w = *state;
    gyre_round *round;

    create(w, 10, 0);
    step(w, 1);
    step(w, 2);
    round = fixture_open_round(&w->f, NULL);
    expect(&w->f, gyre_store_commit(w->f.store, "x", 1, &w->f.error),
           GYRE_STATE);
    good(&w->f, gyre_round_abort(round, &w->f.error));
    good(&w->f, gyre_store_commit(w->f.store, "row 2", 5, &w->f.error));
    assert_int_equal(info_of(&w->f).committed_step, 2);
    step(w, 3);
    reopen(w, 10);
    expect_blob(w, "row 2");
    assert_int_equal(info_of(&w->f).step, 2);
    oracle_end(&w->o);
    oracle_begin(&w->o, &w->m);
    for (uint64_t t = 1; t <= 2; t++) {
        oracle_give_all(&w->o, t);
        oracle_step(&w->o, 1, 1, 0);
    }
    expect_oracle(&w->f, &w->o);
    /* ten rounds after a commit, not ten after the last full ten */
    for (uint64_t t = 3; t <= 11; t++)
        step(w, t);
    assert_int_equal(info_of(&w->f).committed_step, 2);
    step(w, 12);
    assert_int_equal(info_of(&w->f).committed_step, 12);
}

/* ---- the blob --------------------------------------------------------- */

static void test_blob_is_of_the_last_commit(void **state)
{
    world *w = *state;
    char full[100];

    create(w, 1, 0);
    expect_blob(w, "");
    for (int t = 0; t < 5; t++) {
        gyre_round *round = fixture_open_round(&w->f, NULL);
        char text[16];

        snprintf(text, sizeof(text), "row %d", t * 1000);
        give_all(&w->f, round, &w->m, 1);
        good(&w->f,
             gyre_round_finish(round, text, strlen(text), NULL, &w->f.error));
        memset(text, 0, sizeof(text)); /* it was copied */
        snprintf(text, sizeof(text), "row %d", t * 1000);
        expect_blob(w, text);
        reopen(w, 1);
        expect_blob(w, text);
    }
    memset(full, 'b', sizeof(full));
    good(&w->f, gyre_store_commit(w->f.store, full, 100, &w->f.error));
    reopen(w, 1);
    assert_int_equal(info_of(&w->f).blob_capacity, 100);
    assert_memory_equal(gyre_store_blob(w->f.store, &(size_t){0}), full, 100);
    good(&w->f, gyre_store_commit(w->f.store, NULL, 0, &w->f.error));
    reopen(w, 1);
    expect_blob(w, "");
}

/* A blob too large is a mistake of the call, not the end of the round; above
 * all not of a store that works in place. */
static void test_blob_too_large_leaves_the_round_open(void **state)
{
    world *w = *state;
    char large[101] = {0};

    for (int in_place = 0; in_place < 2; in_place++) {
        gyre_round *round;

        snprintf(w->f.path, sizeof(w->f.path), "%s/s%d", w->f.root, in_place);
        fixture_close(&w->f);
        create(w, 1, in_place);
        round = fixture_open_round(&w->f, NULL);
        give_all(&w->f, round, &w->m, 1);
        expect(&w->f, gyre_round_finish(round, large, 101, NULL, &w->f.error),
               GYRE_RANGE);
        unit_assert_text(&w->f.error, "room for 100");
        expect(&w->f, gyre_round_finish(round, NULL, 1, NULL, &w->f.error),
               GYRE_RANGE);
        good(&w->f, gyre_round_update(round, NULL, &w->f.error));
        expect(&w->f, gyre_round_finish(round, large, 101, NULL, &w->f.error),
               GYRE_RANGE);
        good(&w->f, gyre_round_finish(round, large, 100, NULL, &w->f.error));
        expect(&w->f, gyre_store_commit(w->f.store, large, 101, &w->f.error),
               GYRE_RANGE);
        assert_int_equal(info_of(&w->f).committed_step, 1);
    }
    oracle_give_all(&w->o, 1);
    oracle_step(&w->o, 1, 1, 0);
    expect_oracle(&w->f, &w->o);
}

/* ---- abort ------------------------------------------------------------ */

/* At each stage of a round: as if it had not begun. */
static void test_abort_at_each_stage(void **state)
{
    world *w = *state;
    gyre_round_options options = round_options();
    snapshot before, after;

    create(w, 1, 0);
    step(w, 1);
    before = snapshot_of(&w->f, &w->m);
    options.micro_batches = 2;
    for (int stage = 0; stage < 5; stage++) {
        gyre_round *round = fixture_open_round(&w->f, &options);

        if (stage >= 1)
            give_tensor(&w->f, round, &w->m, 0, 5);
        if (stage >= 2)
            for (size_t i = 1; i < w->m.count; i++)
                good(&w->f, gyre_round_absent(round, i, &w->f.error));
        if (stage >= 3)
            good(&w->f, gyre_round_next(round, &w->f.error));
        if (stage >= 4)
            give_all(&w->f, round, &w->m, 6);
        good(&w->f, gyre_round_abort(round, &w->f.error));
        after = snapshot_of(&w->f, &w->m);
        expect_same_contents(&before, &after);
        assert_int_equal(after.round, 1);
    }
    step(w, 2);
    expect_oracle(&w->f, &w->o);
    expect(&w->f, gyre_round_abort(NULL, &w->f.error), GYRE_INVALID);
    expect(&w->f, gyre_round_finish(NULL, NULL, 0, NULL, &w->f.error),
           GYRE_INVALID);
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_every_third_round_commits),
        IN_A_WORLD(test_commit_between_rounds),
        IN_A_WORLD(test_blob_is_of_the_last_commit),
        IN_A_WORLD(test_blob_too_large_leaves_the_round_open),
        IN_A_WORLD(test_abort_at_each_stage),
    };

    return cmocka_run_group_tests_name("store: commit", tests, NULL, NULL);
}
