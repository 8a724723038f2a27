/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients in pieces: any order, size, thread, stride and dtype give what the
 * textbook gives; what is wrong is refused and changes nothing.
 */
#include "config.h"

#include "fixture.h"

#include <limits.h>

typedef struct piece {
    size_t tensor;
    uint64_t first, count;
} piece;

enum { PIECES_MOST = 4000, THREADS = 4 };

/* Cut every trainable tensor at random and shuffle all pieces. */
static size_t random_pieces(const model *m, uint64_t seed, uint64_t largest,
                            piece *pieces)
{
    size_t n = 0;

    for (size_t i = 0; i < m->count; i++)
        for (uint64_t at = 0; at < m->elements[i];) {
            uint64_t left = m->elements[i] - at;
            uint64_t count = 1 + random_next(&seed) % largest;

            if (m->tensors[i].flags & GYRE_TENSOR_FROZEN)
                break;
            assert_true(n < PIECES_MOST);
            pieces[n] = (piece){i, at, count < left ? count : left};
            at += pieces[n++].count;
        }
    for (size_t i = n; i > 1; i--) {
        size_t k = (size_t)(random_next(&seed) % i);
        piece swap = pieces[i - 1];

        pieces[i - 1] = pieces[k];
        pieces[k] = swap;
    }
    return n;
}

static gyre_status give_piece(gyre_round *round, const piece *p, uint64_t seed,
                              gyre_error *error)
{
    float *g = malloc(p->count * sizeof(float));
    gyre_gradient gradient = {.dtype = GYRE_F32, .data = g};
    gyre_status status;

    assert_non_null(g);
    gradient_fill(seed, p->tensor, p->first, (size_t)p->count, g);
    status = gyre_round_gradient(round, p->tensor, p->first, p->count,
                                 &gradient, error);
    free(g); /* copied before it returned */
    return status;
}

typedef struct world {
    fixture f;
    model m;
    oracle o;
} world;

static int setup(void **state)
{
    world *w = calloc(1, sizeof(*w));
    gyre_store_spec spec;

    assert_non_null(w);
    model_mixed(&w->m);
    fixture_begin(&w->f);
    spec = spec_of(&w->m);
    spec.chunk_elements = 4096;
    fixture_devices(&w->f, &spec, 2);
    fixture_create(&w->f, &w->m, &spec, NULL);
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

static void finish(world *w, gyre_round *round)
{
    good(&w->f, gyre_round_finish(round, NULL, 0, NULL, &w->f.error));
}

/* DS#2272: only the last gradient of each bucket reached storage. DS#1643: a
 * step over several parameters. */
static void test_every_tensor_is_updated_by_its_own_gradient(void **state)
{
    world *w = *state;

    expect_oracle(&w->f, &w->o);
    for (uint64_t seed = 0; seed < 5; seed++) {
        fixture_round(&w->f, &w->m, seed, NULL, NULL);
        oracle_give_all(&w->o, seed);
        oracle_step(&w->o, 1, 1, 0);
        expect_oracle(&w->f, &w->o);
    }
}

static void test_pieces_come_in_any_order_and_size(void **state)
{
    static const uint64_t largest[] = {40, 700, 1024, 5000, 100000};
    world *w = *state;
    piece *pieces = calloc(PIECES_MOST, sizeof(*pieces));

    assert_non_null(pieces);
    for (uint64_t seed = 0; seed < 5; seed++) {
        gyre_round *round = fixture_open_round(&w->f, NULL);
        size_t n = random_pieces(&w->m, seed, largest[seed], pieces);

        for (size_t i = 0; i < n; i++)
            good(&w->f, give_piece(round, &pieces[i], seed, &w->f.error));
        finish(w, round);
        oracle_give_all(&w->o, seed);
        oracle_step(&w->o, 1, 1, 0);
        expect_oracle(&w->f, &w->o);
    }
    free(pieces);
}

typedef struct giver {
    gyre_round *round;
    const piece *pieces;
    size_t count, from;
    uint64_t seed;
    gyre_status status;
    gyre_error error;
} giver;

static void *give_some(void *arg)
{
    giver *g = arg;

    for (size_t i = g->from; i < g->count && g->status == GYRE_OK; i += THREADS)
        g->status = give_piece(g->round, &g->pieces[i], g->seed, &g->error);
    return NULL;
}

static void test_pieces_come_from_four_threads(void **state)
{
    world *w = *state;
    piece *pieces = calloc(PIECES_MOST, sizeof(*pieces));

    assert_non_null(pieces);
    for (uint64_t seed = 0; seed < 4; seed++) {
        gyre_round *round = fixture_open_round(&w->f, NULL);
        size_t n = random_pieces(&w->m, seed, 300, pieces);
        pthread_t threads[THREADS];
        giver givers[THREADS];

        for (size_t t = 0; t < THREADS; t++) {
            givers[t] = (giver){.round = round,
                                .pieces = pieces,
                                .count = n,
                                .from = t,
                                .seed = seed};
            assert_int_equal(
                pthread_create(&threads[t], NULL, give_some, &givers[t]), 0);
        }
        for (size_t t = 0; t < THREADS; t++) {
            pthread_join(threads[t], NULL);
            assert_int_equal(givers[t].status, GYRE_OK);
        }
        finish(w, round);
        oracle_give_all(&w->o, seed);
        oracle_step(&w->o, 1, 1, 0);
        expect_oracle(&w->f, &w->o);
    }
    free(pieces);
}

/* DS#1318: fp16 data walked with float pointers.  DS#6571: strided tensors
 * rejected late.  DS#4083: bf16 accumulated in f32. */
static void test_dtypes_and_strides_are_what_they_say(void **state)
{
    static const gyre_dtype dtypes[] = {GYRE_F64, GYRE_BF16, GYRE_F16,
                                        GYRE_F32};
    world *w = *state;

    for (size_t k = 0; k < 4; k++) {
        gyre_round *round = fixture_open_round(&w->f, NULL);
        size_t size = gyre_dtype_bytes(dtypes[k]), stride = 1 + k * 2;

        for (size_t i = 0; i < w->m.count; i++) {
            size_t n = (size_t)w->m.elements[i];
            float *g = malloc(n * 4 + 1);
            char *packed = malloc(n * size + 1);
            char *spread = malloc(n * size * stride + 1);
            gyre_gradient gradient = {
                .dtype = dtypes[k], .data = spread, .stride = (int64_t)stride};

            memset(spread, 0x7f, n * size * stride + 1); /* NaN between */
            gradient_fill(k, i, 0, n, g);
            assert_true(gyre_from_f32(dtypes[k], g, packed, n));
            assert_true(gyre_to_f32(dtypes[k], packed, 1, g, n));
            for (size_t e = 0; e < n; e++)
                memcpy(spread + e * stride * size, packed + e * size, size);
            if (!(w->m.tensors[i].flags & GYRE_TENSOR_FROZEN)) {
                good(&w->f, gyre_round_gradient(round, i, 0, n, &gradient,
                                                &w->f.error));
                oracle_give(&w->o, i, g);
            }
            free(g);
            free(packed);
            free(spread);
        }
        finish(w, round);
        oracle_step(&w->o, 1, 1, 0);
        expect_oracle(&w->f, &w->o);
    }
}

/* ---- refusals --------------------------------------------------------- */

static void test_overlaps_are_refused_and_add_nothing(void **state)
{
    /* tensor 0 has 5000 elements; [1000, 2000) and [3000, 3500) came */
    static const piece wrong[] = {
        {0, 1000, 1000}, {0, 999, 2},     {0, 1999, 2},    {0, 1500, 10},
        {0, 0, 5000},    {0, 1999, 1500}, {0, 2000, 1001}, {0, 3499, 1},
    };
    world *w = *state;
    gyre_round *round = fixture_open_round(&w->f, NULL);
    float *poison = malloc(5000 * sizeof(float));

    for (size_t i = 0; i < 5000; i++)
        poison[i] = 1e6f;
    good(&w->f, give_piece(round, &(piece){0, 1000, 1000}, 9, &w->f.error));
    good(&w->f, give_piece(round, &(piece){0, 3000, 500}, 9, &w->f.error));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        expect(&w->f,
               give(&w->f, round, 0, wrong[i].first, wrong[i].count, poison),
               GYRE_DUPLICATE);
        unit_assert_text(&w->f.error, "wte");
    }
    unit_assert_text(&w->f.error, "[3000, 3500)");
    good(&w->f, give_piece(round, &(piece){0, 2000, 1000}, 9, &w->f.error));
    good(&w->f, give_piece(round, &(piece){0, 0, 1000}, 9, &w->f.error));
    good(&w->f, give_piece(round, &(piece){0, 3500, 1500}, 9, &w->f.error));
    expect(&w->f, give(&w->f, round, 0, 0, 1, poison), GYRE_DUPLICATE);
    for (size_t i = 1; i < w->m.count; i++)
        if (!(w->m.tensors[i].flags & GYRE_TENSOR_FROZEN))
            give_tensor(&w->f, round, &w->m, i, 9);
    finish(w, round);
    oracle_give_all(&w->o, 9);
    oracle_step(&w->o, 1, 1, 0);
    expect_oracle(&w->f, &w->o);
    free(poison);
}

static void test_wrong_pieces_are_refused_and_change_nothing(void **state)
{
    world *w = *state;
    fixture *f = &w->f;
    gyre_round *round = fixture_open_round(f, NULL);
    float x[4] = {1e6f, 1e6f, 1e6f, 1e6f};
    gyre_gradient g = {.dtype = GYRE_F32, .data = x};
    gyre_gradient bad = g;

    expect(f, give(f, round, 3, 0, 2, x), GYRE_RANGE);
    unit_assert_text(&f->error, "bias has 1 elements");
    expect(f, give(f, round, 0, 5001, 0, x), GYRE_RANGE);
    expect(f, give(f, round, 0, 4999, 2, x), GYRE_RANGE);
    expect(f, give(f, round, 0, 2, UINT64_MAX, x), GYRE_RANGE);
    expect(f, give(f, round, 2, 0, 1, x), GYRE_RANGE);
    expect(f, give(f, round, 10, 0, 1, x), GYRE_RANGE);
    unit_assert_text(&f->error, "the store has 10");
    expect(f, give(f, round, 1, 0, 1, x), GYRE_INVALID);
    unit_assert_text(&f->error, "frozen.a is frozen");
    expect(f, give(f, round, 0, 0, 1, NULL), GYRE_INVALID);
    expect(f, gyre_round_gradient(round, 0, 0, 1, NULL, &f->error),
           GYRE_INVALID);
    bad.dtype = GYRE_I32;
    expect(f, gyre_round_gradient(round, 0, 0, 1, &bad, &f->error),
           GYRE_INVALID);
    unit_assert_text(&f->error, "not i32");
    bad.dtype = (gyre_dtype)99;
    expect(f, gyre_round_gradient(round, 0, 0, 1, &bad, &f->error),
           GYRE_INVALID);
    bad = g;
    bad.kind = (gyre_memory_kind)77;
    expect(f, gyre_round_gradient(round, 0, 0, 1, &bad, &f->error),
           GYRE_UNSUPPORTED);
    bad = g;
    bad.stride = -1;
    expect(f, gyre_round_gradient(round, 0, 0, 1, &bad, &f->error), GYRE_RANGE);
    bad.stride = INT64_MIN;
    expect(f, gyre_round_gradient(round, 0, 0, 1, &bad, &f->error), GYRE_RANGE);
    expect(f, gyre_round_gradient(NULL, 0, 0, 1, &g, &f->error), GYRE_INVALID);
    good(f, give(f, round, 0, 5000, 0, x)); /* nothing is fine everywhere */
    good(f, give(f, round, 2, 0, 0, NULL));
    give_all(f, round, &w->m, 3);
    finish(w, round);
    oracle_give_all(&w->o, 3);
    oracle_step(&w->o, 1, 1, 0);
    expect_oracle(f, &w->o);
}

static void test_missing_names_tensor_and_gap_and_leaves_the_round(void **state)
{
    world *w = *state;
    fixture *f = &w->f;
    gyre_round *round = fixture_open_round(f, NULL);
    gyre_round_report report = {.size = sizeof(report)};

    expect(f, gyre_round_update(round, NULL, &f->error), GYRE_MISSING);
    unit_assert_text(&f->error, "7 tensors");
    unit_assert_text(&f->error, "wte (0 of 5000, first gap at 0)");
    unit_assert_text(&f->error, ", ...");
    for (size_t i = 3; i < w->m.count; i++)
        if (!(w->m.tensors[i].flags & GYRE_TENSOR_FROZEN))
            give_tensor(f, round, &w->m, i, 4);
    good(f, give_piece(round, &(piece){0, 0, 100}, 4, &f->error));
    good(f, give_piece(round, &(piece){0, 101, 4899}, 4, &f->error));
    expect(f, gyre_round_finish(round, NULL, 0, NULL, &f->error), GYRE_MISSING);
    unit_assert_text(&f->error, "wte (4999 of 5000, first gap at 100)");
    expect(f, gyre_round_update(round, NULL, &f->error), GYRE_MISSING);
    expect(f, gyre_round_next(round, &f->error), GYRE_MISSING);
    good(f, give_piece(round, &(piece){0, 100, 1}, 4, &f->error));
    good(f, gyre_round_finish(round, NULL, 0, &report, &f->error));
    assert_int_equal(report.step, 1);
    oracle_give_all(&w->o, 4);
    oracle_step(&w->o, 1, 1, 0);
    expect_oracle(f, &w->o);
}

static void test_gradients_come_before_the_update_only(void **state)
{
    world *w = *state;
    fixture *f = &w->f;
    gyre_round *round = fixture_open_round(f, NULL), *second = NULL;
    float x = 1;

    expect(f, gyre_round_begin(f->store, NULL, &second, &f->error), GYRE_STATE);
    assert_null(second);
    expect(f, gyre_round_wait(round, 0, &f->error), GYRE_STATE);
    give_all(f, round, &w->m, 5);
    good(f, gyre_round_next(round, &f->error)); /* optional after the last */
    expect(f, gyre_round_next(round, &f->error), GYRE_STATE);
    expect(f, give(f, round, 0, 0, 1, &x), GYRE_STATE);
    expect(f, gyre_round_absent(round, 0, &f->error), GYRE_STATE);
    good(f, gyre_round_update(round, NULL, &f->error));
    expect(f, give(f, round, 0, 0, 1, &x), GYRE_STATE);
    expect(f, gyre_round_absent(round, 0, &f->error), GYRE_STATE);
    expect(f, gyre_round_release(round, 0, &f->error), GYRE_STATE);
    expect(f, gyre_round_update(round, NULL, &f->error), GYRE_STATE);
    expect(f, gyre_round_abort(round, &f->error), GYRE_STATE);
    finish(w, round);
    oracle_give_all(&w->o, 5);
    oracle_step(&w->o, 1, 1, 0);
    expect_oracle(f, &w->o);
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_every_tensor_is_updated_by_its_own_gradient),
        IN_A_WORLD(test_pieces_come_in_any_order_and_size),
        IN_A_WORLD(test_pieces_come_from_four_threads),
        IN_A_WORLD(test_dtypes_and_strides_are_what_they_say),
        IN_A_WORLD(test_overlaps_are_refused_and_add_nothing),
        IN_A_WORLD(test_wrong_pieces_are_refused_and_change_nothing),
        IN_A_WORLD(test_missing_names_tensor_and_gap_and_leaves_the_round),
        IN_A_WORLD(test_gradients_come_before_the_update_only),
    };

    return cmocka_run_group_tests_name("store: pieces", tests, NULL, NULL);
}
