/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Over time and side by side: nothing grows, nothing hangs, nothing is shared,
 * and a store can be closed at any moment.
 */
#include "config.h"

#include "fixture.h"

#include <dirent.h>

static size_t open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t n = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static void create(fixture *f, const model *m, size_t devices)
{
    gyre_store_spec spec = spec_of(m);

    spec.chunk_elements = 4096;
    fixture_devices(f, &spec, devices);
    fixture_create(f, m, &spec, NULL);
}

/* DS#8075, #8005: descriptors; DS#5700, #7370: memory, again and again. */
static void test_reopening_leaks_neither_files_nor_memory(void **state)
{
    model m = {0};
    fixture f;
    uint64_t bytes = 0;
    size_t files = 0;

    (void)state;
    model_mixed(&m);
    fixture_begin(&f);
    create(&f, &m, 3);
    for (uint64_t t = 0; t < 20; t++) {
        fixture_round(&f, &m, t, NULL, NULL);
        fixture_close(&f);
        if (t == 0) {
            files = open_files();
            bytes = gyre_context_memory(f.context, NULL);
        }
        assert_int_equal(open_files(), files);
        assert_int_equal(gyre_context_memory(f.context, NULL), bytes);
        fixture_open(&f, NULL);
    }
    assert_int_equal(info_of(&f).step, 20);
    fixture_end(&f);
    model_free(&m);
}

/* DS#4871: memory grew with each step; #6630: with each pipelined write. */
static void test_rounds_do_not_grow_memory(void **state)
{
    model m = {0};
    gyre_store_options options = plain_options();
    uint64_t bytes = 0, peak = 0;
    fixture f;

    (void)state;
    model_mixed(&m);
    fixture_begin(&f);
    options.commit_every = 10;
    fixture_create(&f, &m, NULL, &options);
    for (uint64_t t = 0; t < 60; t++) {
        uint64_t highest;

        fixture_round(&f, &m, t, NULL, NULL);
        if (t == 2) {
            bytes = f.memory.bytes;
            peak = f.memory.peak;
        }
        assert_int_equal(gyre_context_memory(f.context, &highest),
                         f.memory.bytes);
        assert_true(t < 3 || (f.memory.bytes == bytes && highest == peak));
    }
    fixture_end(&f);
    model_free(&m);
}

static void test_contexts_and_stores_live_side_by_side(void **state)
{
    model m = {0};
    fixture f[3];
    oracle o[3];

    (void)state;
    model_mixed(&m);
    for (size_t i = 0; i < 3; i++) {
        fixture_begin(&f[i]);
        create(&f[i], &m, 1 + i);
        oracle_begin(&o[i], &m);
    }
    for (uint64_t t = 0; t < 3; t++) {
        gyre_round *round[3];

        for (size_t i = 0; i < 3; i++)
            round[i] = fixture_open_round(&f[i], NULL);
        for (size_t i = 0; i < 3; i++) {
            give_all(&f[i], round[i], &m, 10 * i + t);
            oracle_give_all(&o[i], 10 * i + t);
            oracle_step(&o[i], 1, 1, 0);
        }
        for (size_t i = 0; i < 3; i++)
            good(&f[i], gyre_round_update(round[i], NULL, &f[i].error));
        for (size_t i = 3; i-- > 0;)
            good(&f[i],
                 gyre_round_finish(round[i], NULL, 0, NULL, &f[i].error));
    }
    for (size_t i = 0; i < 3; i++) {
        expect_oracle(&f[i], &o[i]);
        fixture_end(&f[i]);
        oracle_end(&o[i]);
    }
    model_free(&m);
}

static void test_two_stores_of_one_context(void **state)
{
    model m = {0};
    gyre_store *second = NULL, *first;
    char path[200];
    fixture f;
    oracle o;

    (void)state;
    model_mixed(&m);
    oracle_begin(&o, &m);
    fixture_begin(&f);
    create(&f, &m, 2);
    snprintf(path, sizeof(path), "%s/second", f.root);
    good(&f,
         gyre_store_create(f.context, path,
                           &(gyre_store_spec){.size = sizeof(gyre_store_spec),
                                              .tensors = m.tensors,
                                              .tensor_count = m.count},
                           NULL, &second, &f.error));
    first = f.store;
    for (uint64_t t = 0; t < 3; t++) {
        f.store = t % 2 ? second : first;
        fixture_round(&f, &m, t, NULL, NULL);
        f.store = t % 2 ? first : second;
        fixture_round(&f, &m, t, NULL, NULL);
        oracle_give_all(&o, t);
        oracle_step(&o, 1, 1, 0);
    }
    f.store = second;
    expect_oracle(&f, &o);
    gyre_store_close(second);
    f.store = first;
    expect_oracle(&f, &o);
    fixture_end(&f);
    oracle_end(&o);
    model_free(&m);
}

/* DS#1813: a destructor aborted with operations pending; #7703: waiting on an
 * empty queue did. */
static void test_closing_at_any_moment(void **state)
{
    model m = {0};
    fixture f;
    oracle o;

    (void)state;
    model_mixed(&m);
    oracle_begin(&o, &m);
    fixture_begin(&f);
    create(&f, &m, 2);
    for (int stage = 0; stage < 8; stage++) {
        gyre_round_options options = round_options();
        gyre_round *round;

        options.early = stage % 2;
        round = fixture_open_round(&f, &options);
        if (stage >= 2)
            give_tensor(&f, round, &m, 0, 1);
        if (stage >= 4)
            for (size_t i = 1; i < m.count; i++)
                if (!(m.tensors[i].flags & GYRE_TENSOR_FROZEN))
                    give_tensor(&f, round, &m, i, 1);
        if (stage >= 6)
            good(&f, gyre_round_update(round, NULL, &f.error));
        if (stage == 7)
            good(&f, gyre_round_wait(round, 2, &f.error)); /* empty */
        fixture_close(&f);
        fixture_open(&f, NULL);
        assert_int_equal(info_of(&f).round, 0);
        expect_oracle(&f, &o);
    }
    fixture_end(&f);
    oracle_end(&o);
    model_free(&m);
}

/* DS#3062: "not enough buffers 0 for swapping 1"; #3506: a tensor larger than
 * buffer_size.  DS#1070: the last part is not a multiple of 512; DS#1033: a
 * padded count above the buffer; DS#4130: a scalar among them. */
static void test_tensors_larger_than_all_buffers(void **state)
{
    model m = {0};
    gyre_store_spec spec;
    gyre_store_options options = plain_options();
    fixture f;
    oracle o;

    (void)state;
    model_add(&m, "large", 40 * 1024 + 179, 0, 0);
    model_add(&m, "scalar", 1, 0, 0);
    m.tensors[1].rank = 0;
    model_add(&m, "odd", 179229, 0, 0);
    oracle_begin(&o, &m);
    fixture_begin(&f);
    spec = spec_of(&m);
    spec.chunk_elements = 1024;
    options.buffers = 2;
    fixture_create(&f, &m, &spec, &options);
    assert_true(info_of(&f).chunks > 200);
    for (uint64_t t = 0; t < 2; t++) {
        fixture_round(&f, &m, t, NULL, NULL);
        oracle_give_all(&o, t);
        oracle_step(&o, 1, 1, 0);
    }
    fixture_close(&f);
    fixture_open(&f, NULL);
    expect_oracle(&f, &o);
    fixture_end(&f);
    oracle_end(&o);
    model_free(&m);
}

/* DS#1983: CPU Adam crashed at 1,024 elements, #479 and others elsewhere. */
static void test_every_small_size(void **state)
{
    static const uint64_t sizes[] = {1,    2,    15,   16,   17,   511,
                                     512,  513,  1023, 1024, 1025, 2047,
                                     2048, 4095, 4096, 4097};
    model m = {0};
    fixture f;
    oracle o;

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        char name[16];

        snprintf(name, sizeof(name), "n%d", (int)sizes[i]);
        model_add(&m, name, sizes[i], 0, 0);
    }
    oracle_begin(&o, &m);
    fixture_begin(&f);
    fixture_create(&f, &m, NULL, NULL);
    for (uint64_t t = 0; t < 3; t++) {
        fixture_round(&f, &m, t, NULL, NULL);
        oracle_give_all(&o, t);
        oracle_step(&o, 1, 1, 0);
        expect_oracle(&f, &o);
    }
    fixture_end(&f);
    oracle_end(&o);
    model_free(&m);
}

/* A store of nothing, and one of frozen tensors alone. */
static void test_nothing_to_train(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        model m = {0};
        snapshot before, after;
        fixture f;

        model_add(&m, "only", k ? 5000 : 0, 0, k ? GYRE_TENSOR_FROZEN : 0);
        fixture_begin(&f);
        fixture_create(&f, &m, NULL, NULL);
        before = snapshot_of(&f, &m);
        fixture_round(&f, &m, 1, NULL, NULL);
        good(&f, gyre_store_pull(f.store, &f.error));
        fixture_close(&f);
        fixture_open(&f, NULL);
        after = snapshot_of(&f, &m);
        assert_string_equal(before.digest, after.digest);
        assert_int_equal(after.step, 1);
        fixture_end(&f);
        model_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reopening_leaks_neither_files_nor_memory),
        cmocka_unit_test(test_rounds_do_not_grow_memory),
        cmocka_unit_test(test_contexts_and_stores_live_side_by_side),
        cmocka_unit_test(test_two_stores_of_one_context),
        cmocka_unit_test(test_closing_at_any_moment),
        cmocka_unit_test(test_tensors_larger_than_all_buffers),
        cmocka_unit_test(test_every_small_size),
        cmocka_unit_test(test_nothing_to_train),
    };

    return cmocka_run_group_tests_name("store: lifetime", tests, NULL, NULL);
}
