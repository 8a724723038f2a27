/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores that work in place, that are only read, and what a round makes of
 * damage that it reads.
 */
#include "config.h"

#include "fixture.h"

#include "store/store.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* ---- in place --------------------------------------------------------- */

static void test_in_place_does_the_same_in_half_the_space(void **state)
{
    world *w = *state;
    uint64_t two;

    create(w, 1, 0);
    two = info_of(&w->f).disk_bytes;
    fixture_close(&w->f);
    snprintf(w->f.path, sizeof(w->f.path), "%s/place", w->f.root);
    create(w, 1, 1);
    assert_true(info_of(&w->f).disk_bytes < two * 2 / 3);
    assert_int_equal(info_of(&w->f).in_place, 1);
    for (uint64_t t = 0; t < 4; t++) {
        step(w, t);
        expect_oracle(&w->f, &w->o);
        reopen(w, 1);
    }
    assert_int_equal(info_of(&w->f).in_place, 1);
    expect_oracle(&w->f, &w->o);
}

/* Nothing is there to go back to, so that closing commits what stands. */
static void test_in_place_rounds_are_not_lost_by_closing(void **state)
{
    world *w = *state;

    create(w, 3, 1);
    for (uint64_t t = 0; t < 5; t++)
        step(w, t);
    assert_int_equal(info_of(&w->f).committed_step, 3);
    reopen(w, 3);
    assert_int_equal(info_of(&w->f).step, 5);
    expect_oracle(&w->f, &w->o);
}

static void test_in_place_killed_in_a_round_is_dirty(void **state)
{
    world *w = *state;
    pid_t child;
    int how;

    create(w, 1, 1);
    step(w, 1);
    fixture_close(&w->f);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        gyre_round *round = NULL;

        if (gyre_store_open(w->f.context, w->f.path, NULL, &w->f.store, NULL) ==
                GYRE_OK &&
            gyre_round_begin(w->f.store, NULL, &round, NULL) == GYRE_OK) {
            give_all(&w->f, round, &w->m, 2);
            if (gyre_round_update(round, NULL, NULL) == GYRE_OK)
                raise(SIGKILL);
        }
        _exit(1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    expect(&w->f,
           gyre_store_open(w->f.context, w->f.path, NULL, &w->f.store,
                           &w->f.error),
           GYRE_DIRTY);
    unit_assert_text(&w->f.error, "after step 1");
    unit_assert_text(&w->f.error, "export");
    assert_null(w->f.store);
}

/* ---- read-only -------------------------------------------------------- */

static void test_read_only_reads_and_refuses_the_rest(void **state)
{
    world *w = *state;
    gyre_store_options options = plain_options();
    gyre_round *round = NULL;
    snapshot before, after;
    float *out = malloc(5000 * sizeof(float));

    create(w, 1, 0);
    step(w, 1);
    before = snapshot_of(&w->f, &w->m);
    fixture_close(&w->f);
    options.read_only = 1;
    fixture_open(&w->f, &options);
    after = snapshot_of(&w->f, &w->m);
    expect_same_contents(&before, &after);
    expect_oracle(&w->f, &w->o);
    expect(&w->f, gyre_round_begin(w->f.store, NULL, &round, &w->f.error),
           GYRE_STATE);
    unit_assert_text(&w->f.error, "read-only");
    expect(&w->f, gyre_store_commit(w->f.store, NULL, 0, &w->f.error),
           GYRE_STATE);
    good(&w->f, gyre_store_bind(w->f.store, 0, GYRE_F32, out, &w->f.error));
    good(&w->f, gyre_store_pull(w->f.store, &w->f.error));
    assert_memory_equal(out, w->o.p[0], 5000 * sizeof(float));
    free(out);
}

/* ---- damage ----------------------------------------------------------- */

/* Flip one bit of a chunk where it lies now. */
static void flip(world *w, uint64_t chunk, off_t at)
{
    const gyre_store *store = w->f.store;
    const gyre_layout *layout = &store->layout;
    int fd = open(store->places[layout->places[chunk].device].file,
                  O_RDWR | O_CLOEXEC);
    unsigned char byte;

    at +=
        (off_t)gyre_layout_offset(layout, chunk, store->current[chunk].version);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

/* What a round reads is checked before anything is made of it; unless that is
 * switched off, which shows that nothing else would have seen it. */
static void test_damage_is_seen_by_the_round_that_reads_it(void **state)
{
    world *w = *state;
    gyre_store_options options = plain_options();
    float out[9217];
    gyre_round *round;

    create(w, 1, 0);
    step(w, 1);
    good(&w->f, gyre_store_bind(w->f.store, 8, GYRE_F32, out, &w->f.error));
    good(&w->f, gyre_store_pull(w->f.store, &w->f.error));
    flip(w, 3, 10000);
    round = fixture_open_round(&w->f, NULL);
    give_all(&w->f, round, &w->m, 2);
    expect(&w->f, gyre_round_finish(round, NULL, 0, NULL, &w->f.error),
           GYRE_CORRUPT);
    unit_assert_text(&w->f.error, "chunk 3");
    unit_assert_text(&w->f.error, "h.1.w [");
    assert_memory_equal(out, w->o.p[8], sizeof(out));
    flip(w, 3, 10000); /* back: the round before stands as it was */
    expect_oracle(&w->f, &w->o);
    step(w, 3);
    expect_oracle(&w->f, &w->o);
    fixture_close(&w->f);
    options.no_read_check = 1;
    fixture_open(&w->f, &options);
    flip(w, 3, 10000);
    step(w, 4);
    good(&w->f, gyre_store_read(w->f.store, 8, -1, 0, 9217, GYRE_F32, out,
                                &w->f.error));
    assert_memory_not_equal(out, w->o.p[8], sizeof(out));
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_in_place_does_the_same_in_half_the_space),
        IN_A_WORLD(test_in_place_rounds_are_not_lost_by_closing),
        IN_A_WORLD(test_in_place_killed_in_a_round_is_dirty),
        IN_A_WORLD(test_read_only_reads_and_refuses_the_rest),
        IN_A_WORLD(test_damage_is_seen_by_the_round_that_reads_it),
    };

    return cmocka_run_group_tests_name("store: in place", tests, NULL, NULL);
}
