/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a crash at any moment the store opens whole: the crash explorer over
 * recorded runs of every kind of store.
 */
#include "config.h"

#include "fault/trial.h"

/* ---- small stores: everything ----------------------------------------- */

static uint64_t explore_all(trial *t, const char *what, bool fast)
{
    explorer_counts counts = {0};
    bool plain = t->model.with == 0; /* the others have more writes */
    size_t most = fault_long() ? 10 : fault_stride(1) > 1 ? 3 : plain ? 6 : 4;
    size_t tears = fault_stride(1) > 1 ? 1 : plain ? EXPLORER_TEARS : 3;

    t->fast = fast;
    t->go_on = fast ? 0 : 5;
    t->fsck = fast || t->model.in_place ? 0 : fault_passes_over(1) ? 1 : 3;
    t->continued = t->dirty = t->checked = t->notes = 0;
    explorer_all(t->explorer, most, tears, 1, trial_judge, t, &counts);
    assert_true(counts.states > 100);
    assert_int_equal(t->fsck != 0, t->notes > 0);
    return trial_tell(t, what, &counts);
}

static void small_with(const char *what, uint32_t commit_every, const char *io,
                       kind how, unsigned with)
{
    trial *t = trial_begin(2, 1, commit_every, io, how, with);
    uint64_t bad;

    explorer_take(t->explorer, t->recorder, NULL, NULL);
    bad = explore_all(t, what, false);
    bad += explore_all(t, what, true);
    assert_int_equal(t->dirty > 0, how == IN_PLACE);
    trial_end(t);
    assert_int_equal(bad, 0);
}

static void small(const char *what, uint32_t commit_every, const char *io,
                  kind how)
{
    small_with(what, commit_every, io, how, 0);
}

static void test_posix(void **state)
{
    (void)state;
    small("posix", 1, "posix", PLAIN);
}

static void test_uring(void **state)
{
    (void)state;
    small("uring", 1, "auto", PLAIN);
}

static void test_commit_every_2(void **state)
{
    (void)state;
    small("commit every 2", 2, "auto", PLAIN);
}

static void test_early(void **state)
{
    (void)state;
    small("early", 1, "auto", EARLY);
}

/* The skipped round comes on top of rounds that are not committed yet. */
static void test_early_every_3(void **state)
{
    (void)state;
    small("early, commit every 3", 3, "posix", EARLY);
}

static void test_in_place(void **state)
{
    (void)state;
    small("in place", 1, "auto", IN_PLACE);
    small_with("in place, residual", 1, "auto", IN_PLACE, FAULT_FED);
}

static void test_coded(void **state)
{
    (void)state;
    small_with("coded", 2, "auto", PLAIN, FAULT_CODED);
}

/* The residual is part of what must be whole. */
static void test_residual(void **state)
{
    (void)state;
    small_with("residual", 1, "auto", PLAIN, FAULT_FED);
    small_with("residual, late clip, spilled", 1, "posix", PLAIN,
               FAULT_FED | FAULT_LATE | FAULT_SPILLED);
    small_with("residual, coded, commit every 2", 2, "auto", PLAIN,
               FAULT_FED | FAULT_CODED | FAULT_LATE);
}

/* What lies in a gradient region matters to nobody who opens. */
static void test_spilled(void **state)
{
    (void)state;
    small_with("spilled", 1, "auto", PLAIN, FAULT_SPILLED);
    small_with("spilled, early, residual", 3, "posix", EARLY,
               FAULT_SPILLED | FAULT_FED);
}

/* ---- a larger store: samples ------------------------------------------ */

static void test_samples(void **state)
{
    trial *t = trial_begin(2, 20, 1, "auto", PLAIN, 0);
    uint64_t samples = fault_long() ? 200000 : 10000 / fault_stride(1);
    uint64_t bad = 0;

    (void)state;
    explorer_take(t->explorer, t->recorder, NULL, NULL);
    for (int fast = 0; fast < 2; fast++) {
        explorer_counts counts = {0};

        t->fast = fast;
        t->go_on = fast ? 0 : 50;
        t->continued = 0;
        explorer_sample(t->explorer, fast ? samples / 4 : samples, 2,
                        trial_judge, t, &counts);
        assert_int_equal(counts.states, fast ? samples / 4 : samples);
        bad += trial_tell(t, "larger store, sampled", &counts);
    }
    trial_end(t);
    assert_int_equal(bad, 0);
}

/* test_explorer [PATTERN]: those tests alone. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_posix),          cmocka_unit_test(test_uring),
        cmocka_unit_test(test_commit_every_2), cmocka_unit_test(test_early),
        cmocka_unit_test(test_early_every_3),  cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_coded),          cmocka_unit_test(test_residual),
        cmocka_unit_test(test_spilled),        cmocka_unit_test(test_samples),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("explorer", tests, NULL, NULL);
}
