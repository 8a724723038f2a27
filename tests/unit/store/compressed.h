/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of what a compressor adds to a store: one on two devices, with
 * topk, to be created, and a residual put into its memory by hand.
 */
#ifndef GYRE_TESTS_UNIT_STORE_COMPRESSED_H
#define GYRE_TESTS_UNIT_STORE_COMPRESSED_H

#include "fixture.h"

#include "store/store.h"

typedef struct world {
    fixture f;
    model m;
    gyre_store_spec spec;
} world;

static inline int setup(void **state)
{
    world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    fixture_begin(&w->f);
    model_mixed(&w->m);
    w->spec = spec_of(&w->m);
    w->spec.compressor = "topk";
    w->spec.chunk_elements = 4096;
    fixture_devices(&w->f, &w->spec, 2);
    *state = w;
    return 0;
}

static inline int teardown(void **state)
{
    world *w = *state;

    fixture_end(&w->f);
    model_free(&w->m);
    free(w);
    return 0;
}

static inline void commit(world *w)
{
    good(&w->f, gyre_store_commit(w->f.store, "b", 1, &w->f.error));
}

static inline void reopen(world *w)
{
    fixture_close(&w->f);
    fixture_open(&w->f, NULL);
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* ---- a residual by hand ----------------------------------------------- */

static inline float e_at(uint64_t seed, uint64_t chunk, size_t at)
{
    return gradient_at(seed, (size_t)chunk, at);
}

/* Every run of a trainable chunk. */
static inline void put_chunk(gyre_store *store, uint64_t c, uint64_t seed)
{
    gyre_residual_memory *r = &store->residual;
    float *e = r->e[1 - r->which[c]] +
               gyre_layout_first_grain(&store->layout, c) * GYRE_GRAIN;
    size_t cursor = GYRE_RUN_FIRST;
    gyre_run run;

    while (gyre_layout_next_run(&store->layout, c, &cursor, &run))
        for (size_t i = run.at; i < run.at + run.n; i++)
            e[i] = e_at(seed, c, i);
    r->which[c] = 1 - r->which[c];
    r->unsaved[c] = 1;
}

static inline void put_all(gyre_store *store, uint64_t seed)
{
    for (uint64_t c = 0; c < store->layout.train_chunks; c++)
        put_chunk(store, c, seed);
}

static inline const float *memory_of(const gyre_store *store, uint64_t c)
{
    return store->residual.e[store->residual.which[c]] +
           gyre_layout_first_grain(&store->layout, c) * GYRE_GRAIN;
}

/* What the element at run->at + i is to be. */
typedef float (*wanted)(const void *user, uint64_t c, const gyre_run *run,
                        size_t i);

static inline void expect_chunk(const gyre_store *store, uint64_t c,
                                wanted want, const void *user)
{
    const float *e = memory_of(store, c);
    size_t cursor = GYRE_RUN_FIRST;
    gyre_run run;

    while (gyre_layout_next_run(&store->layout, c, &cursor, &run))
        for (size_t i = 0; i < run.n; i++)
            if (e[run.at + i] != want(user, c, &run, i))
                fail_msg("chunk %d, element %d (%d of tensor %d): %g, not %g",
                         (int)c, (int)(run.at + i), (int)(run.index + i),
                         (int)run.tensor, e[run.at + i],
                         want(user, c, &run, i));
}

static inline void expect_each(const gyre_store *store, wanted want,
                               const void *user)
{
    for (uint64_t c = 0; c < store->layout.train_chunks; c++)
        expect_chunk(store, c, want, user);
}

static inline float by_seed(const void *seed, uint64_t c, const gyre_run *run,
                            size_t i)
{
    uint64_t s = *(const uint64_t *)seed;

    return s != 0 ? e_at(s, c, run->at + i) : 0;
}

static inline void expect_all(const gyre_store *store, uint64_t seed)
{
    expect_each(store, by_seed, &seed);
}

#endif
