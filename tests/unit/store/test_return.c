/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters back to the caller: every dtype, waiting for single tensors while
 * others update, and old values again when a round is given up.
 */
#include "config.h"

#include "fixture.h"

typedef struct world {
    fixture f;
    model m;
    oracle o;
    gyre_dtype dtype[MODEL_MOST];
    void *out[MODEL_MOST];
} world;

static int setup(void **state)
{
    world *w = calloc(1, sizeof(*w));
    gyre_store_spec spec;
    gyre_store_options options = plain_options();

    assert_non_null(w);
    model_mixed(&w->m);
    fixture_begin(&w->f);
    spec = spec_of(&w->m);
    spec.chunk_elements = 2048;
    options.io = "faulty,delay=300"; /* so that chunks are still to come */
    options.buffers = 2;
    fixture_devices(&w->f, &spec, 2);
    fixture_create(&w->f, &w->m, &spec, &options);
    oracle_begin(&w->o, &w->m);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;

    fixture_end(&w->f);
    oracle_end(&w->o);
    for (size_t i = 0; i < w->m.count; i++)
        free(w->out[i]);
    model_free(&w->m);
    free(w);
    return 0;
}

/* Bind all tensors, dtypes in turn from `first`, buffers full of a canary. */
static void bind_all(world *w, size_t first)
{
    static const gyre_dtype dtypes[] = {GYRE_F32, GYRE_BF16, GYRE_F16,
                                        GYRE_F64};

    for (size_t i = 0; i < w->m.count; i++) {
        size_t bytes = (size_t)w->m.elements[i] * 8 + 8;

        free(w->out[i]);
        w->out[i] = malloc(bytes);
        assert_non_null(w->out[i]);
        memset(w->out[i], 0x5a, bytes);
        w->dtype[i] = dtypes[(i + first) % 4];
        good(&w->f, gyre_store_bind(w->f.store, i, w->dtype[i], w->out[i],
                                    &w->f.error));
    }
}

/* The buffer holds these values as its dtype, and nothing behind them. */
static void expect_out(const world *w, size_t tensor, const float *values)
{
    size_t n = (size_t)w->m.elements[tensor];
    size_t bytes = n * gyre_dtype_bytes(w->dtype[tensor]);
    unsigned char *want = malloc(bytes + 8);

    assert_non_null(want);
    memset(want, 0x5a, bytes + 8);
    assert_true(gyre_from_f32(w->dtype[tensor], values, want, n));
    assert_memory_equal(w->out[tensor], want, bytes + 8);
    free(want);
}

static void expect_all_out(const world *w)
{
    for (size_t i = 0; i < w->m.count; i++)
        expect_out(w, i, w->o.p[i]);
}

static void expect_canary(const world *w, size_t tensor)
{
    const unsigned char *byte = w->out[tensor];

    for (size_t i = 0; i < w->m.elements[tensor] * 8 + 8; i++)
        assert_int_equal(byte[i], 0x5a);
}

static void test_every_dtype_is_returned_whole(void **state)
{
    world *w = *state;

    for (uint64_t t = 0; t < 4; t++) {
        bind_all(w, t);
        good(&w->f, gyre_store_pull(w->f.store, &w->f.error));
        expect_all_out(w);
        fixture_round(&w->f, &w->m, t, NULL, NULL);
        oracle_give_all(&w->o, t);
        oracle_step(&w->o, 1, 1, 0);
        expect_all_out(w);
    }
}

static void test_round_writes_what_it_updates_only(void **state)
{
    world *w = *state;
    gyre_round *round;

    bind_all(w, 1);
    round = fixture_open_round(&w->f, NULL);
    for (size_t i = 0; i < w->m.count; i++) {
        if (i == 4 || i == 6)
            give_tensor(&w->f, round, &w->m, i, 1);
        else
            good(&w->f, gyre_round_absent(round, i, &w->f.error));
    }
    good(&w->f, gyre_round_update(round, NULL, &w->f.error));
    for (size_t i = 0; i < w->m.count; i++) /* absent, frozen: at once */
        good(&w->f, gyre_round_wait(round, i, &w->f.error));
    good(&w->f, gyre_round_finish(round, NULL, 0, NULL, &w->f.error));
    for (size_t i = 0; i < w->m.count; i++)
        if (i != 4 && i != 6)
            expect_canary(w, i);
    good(&w->f, gyre_store_bind(w->f.store, 0, GYRE_F32, NULL, &w->f.error));
    fixture_round(&w->f, &w->m, 2, NULL, NULL);
    expect_canary(w, 0); /* unbound */
    expect_canary(w, 1); /* frozen */
}

/* DS#7727, #8196: a blocking wait and a worker that needed each other. */
static void test_wait_gives_new_values_tensor_by_tensor(void **state)
{
    world *w = *state;

    bind_all(w, 0);
    good(&w->f, gyre_store_pull(w->f.store, &w->f.error));
    for (uint64_t t = 0; t < 3; t++) {
        gyre_round *round = fixture_open_round(&w->f, NULL);

        give_all(&w->f, round, &w->m, t);
        oracle_give_all(&w->o, t);
        oracle_step(&w->o, 1, 1, 0);
        good(&w->f, gyre_round_update(round, NULL, &w->f.error));
        for (size_t k = 0; k < w->m.count; k++) {
            size_t i = t == 1 ? w->m.count - 1 - k : k;

            good(&w->f, gyre_round_wait(round, i, &w->f.error));
            expect_out(w, i, w->o.p[i]);
        }
        expect(&w->f, gyre_round_wait(round, 99, &w->f.error), GYRE_INVALID);
        good(&w->f, gyre_round_finish(round, NULL, 0, NULL, &w->f.error));
    }
}

typedef struct waiter {
    world *w;
    gyre_round *round;
    size_t tensor;
    gyre_status status;
    bool right;
} waiter;

static void *wait_for_tensor(void *arg)
{
    waiter *a = arg;
    const world *w = a->w;
    size_t n = (size_t)w->m.elements[a->tensor];
    char *want = calloc(n + 1, 8);

    a->status = gyre_round_wait(a->round, a->tensor, NULL);
    gyre_from_f32(w->dtype[a->tensor], w->o.p[a->tensor], want, n);
    a->right = memcmp(want, w->out[a->tensor],
                      n * gyre_dtype_bytes(w->dtype[a->tensor])) == 0;
    free(want);
    return NULL;
}

static void test_wait_from_a_thread_per_tensor(void **state)
{
    world *w = *state;
    pthread_t threads[MODEL_MOST];
    waiter waiters[MODEL_MOST];
    gyre_round *round;

    bind_all(w, 2);
    good(&w->f, gyre_store_pull(w->f.store, &w->f.error));
    round = fixture_open_round(&w->f, NULL);
    give_all(&w->f, round, &w->m, 1);
    oracle_give_all(&w->o, 1);
    oracle_step(&w->o, 1, 1, 0);
    good(&w->f, gyre_round_update(round, NULL, &w->f.error));
    for (size_t i = 0; i < w->m.count; i++) {
        waiters[i] = (waiter){w, round, i, GYRE_INTERNAL, false};
        assert_int_equal(
            pthread_create(&threads[i], NULL, wait_for_tensor, &waiters[i]), 0);
    }
    for (size_t i = 0; i < w->m.count; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(waiters[i].status, GYRE_OK);
        assert_true(waiters[i].right);
    }
    good(&w->f, gyre_round_finish(round, NULL, 0, NULL, &w->f.error));
}

static void test_bind_is_checked(void **state)
{
    world *w = *state;
    fixture *f = &w->f;
    gyre_round *round;
    float x[4];

    expect(f, gyre_store_bind(f->store, 10, GYRE_F32, x, &f->error),
           GYRE_RANGE);
    expect(f, gyre_store_bind(f->store, 3, GYRE_I32, x, &f->error),
           GYRE_INVALID);
    expect(f, gyre_store_bind(NULL, 3, GYRE_F32, x, &f->error), GYRE_INVALID);
    round = fixture_open_round(f, NULL);
    expect(f, gyre_store_bind(f->store, 3, GYRE_F32, x, &f->error), GYRE_STATE);
    expect(f, gyre_store_pull(f->store, &f->error), GYRE_STATE);
    expect(f, gyre_store_read(f->store, 3, -1, 0, 1, GYRE_F32, x, &f->error),
           GYRE_STATE);
    expect(f,
           gyre_store_digest(f->store, (char[GYRE_DIGEST_TEXT]){0}, &f->error),
           GYRE_STATE);
    good(f, gyre_round_abort(round, &f->error));
}

static void test_read_is_checked_and_takes_any_range(void **state)
{
    world *w = *state;
    fixture *f = &w->f;
    float x[9217];
    double wide[10];
    uint64_t seed = 3;

    expect(f,
           gyre_store_read(f->store, 0, -1, 4990, 11, GYRE_F32, x, &f->error),
           GYRE_RANGE);
    expect(
        f,
        gyre_store_read(f->store, 0, -1, 1, UINT64_MAX, GYRE_F32, x, &f->error),
        GYRE_RANGE);
    expect(f, gyre_store_read(f->store, 0, 2, 0, 1, GYRE_F32, x, &f->error),
           GYRE_RANGE);
    expect(f, gyre_store_read(f->store, 0, -2, 0, 1, GYRE_F32, x, &f->error),
           GYRE_RANGE);
    expect(f, gyre_store_read(f->store, 1, 0, 0, 1, GYRE_F32, x, &f->error),
           GYRE_INVALID);
    expect(f, gyre_store_read(f->store, 0, -1, 0, 1, GYRE_U8, x, &f->error),
           GYRE_INVALID);
    expect(f, gyre_store_read(f->store, 0, -1, 0, 1, GYRE_F32, NULL, &f->error),
           GYRE_INVALID);
    good(f, gyre_store_read(f->store, 2, -1, 0, 0, GYRE_F32, NULL, &f->error));
    for (int k = 0; k < 50; k++) {
        uint64_t first = random_next(&seed) % 9217;
        uint64_t count = random_next(&seed) % (9218 - first);

        good(f, gyre_store_read(f->store, 8, -1, first, count, GYRE_F32, x,
                                &f->error));
        assert_memory_equal(x, w->o.p[8] + first, count * sizeof(float));
    }
    good(f,
         gyre_store_read(f->store, 8, -1, 2045, 10, GYRE_F64, wide, &f->error));
    for (size_t i = 0; i < 10; i++)
        assert_true(wide[i] == (double)w->o.p[8][2045 + i]);
}

/* OneTrainer#996: decay applied in bf16 rounds away; here it is applied to the
 * f32 master and shows in the bf16 copy when it has added up. */
static void test_small_decay_is_not_lost_in_bf16(void **state)
{
    world *w = *state;
    gyre_setting decay[] = {{"lr", 1e-3}, {"weight_decay", 0.5}};
    gyre_group groups[2] = {{decay, 2}, {decay, 2}};
    gyre_round_options options = round_options();
    float before, after, zero = 0;

    options.groups = groups;
    options.group_count = 2;
    good(&w->f, gyre_store_read(w->f.store, 3, -1, 0, 1, GYRE_F32, &before,
                                &w->f.error));
    for (int t = 0; t < 40; t++) {
        gyre_round *round = fixture_open_round(&w->f, &options);

        for (size_t i = 0; i < w->m.count; i++)
            if (i == 3)
                good(&w->f, give(&w->f, round, 3, 0, 1, &zero));
            else
                good(&w->f, gyre_round_absent(round, i, &w->f.error));
        good(&w->f, gyre_round_finish(round, NULL, 0, NULL, &w->f.error));
    }
    good(&w->f, gyre_store_read(w->f.store, 3, -1, 0, 1, GYRE_F32, &after,
                                &w->f.error));
    /* 40 times 5e-4: 2 %, while one step is below half a bf16 place */
    assert_true(fabsf(after / before - powf(1 - 5e-4f, 40)) < 1e-5f);
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_every_dtype_is_returned_whole),
        IN_A_WORLD(test_round_writes_what_it_updates_only),
        IN_A_WORLD(test_wait_gives_new_values_tensor_by_tensor),
        IN_A_WORLD(test_wait_from_a_thread_per_tensor),
        IN_A_WORLD(test_bind_is_checked),
        IN_A_WORLD(test_read_is_checked_and_takes_any_range),
        IN_A_WORLD(test_small_decay_is_not_lost_in_bf16),
    };

    return cmocka_run_group_tests_name("store: return", tests, NULL, NULL);
}
