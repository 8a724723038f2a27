/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass over a chunk: checksums by their definition, the gradient's scale,
 * which elements change, and a caller whose floating-point state is spoiled.
 */
#include "config.h"

#include "../unit.h"

#include "device/device.h"

#include <math.h>
#include <xxhash.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Chunks of three strips and a part, so that strips are crossed. */
enum { GRAINS = 13, ELEMENTS = GRAINS * 1024, VARS = 3 };

typedef struct bench {
    unit_memory memory;
    gyre_context *context;
    gyre_opt *opt;
    gyre_var vars[VARS];
    float scalars[GYRE_OPT_MAX_SCALARS];
    float *data; /* VARS * ELEMENTS, and what stood there before */
    float *before;
    float *g; /* ELEMENTS */
} bench;

static float small(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*seed >> 32) * 0x1p-33f;
}

static int setup(void **state)
{
    bench *b = calloc(1, sizeof(*b));
    uint64_t seed = 42;
    double values[GYRE_OPT_MAX_PARAMETERS];

    b->context = unit_context(&b->memory);
    assert_int_equal(
        gyre_opt_create(b->context, "adamw", NULL, 0, &b->opt, NULL), GYRE_OK);
    assert_int_equal(gyre_opt_values(b->opt, NULL, 0, values, NULL), GYRE_OK);
    assert_int_equal(gyre_opt_scalars(b->opt, values, 3, b->scalars, NULL),
                     GYRE_OK);
    b->data = malloc(VARS * ELEMENTS * sizeof(float));
    b->before = malloc(VARS * ELEMENTS * sizeof(float));
    b->g = malloc(ELEMENTS * sizeof(float));
    for (size_t v = 0; v < VARS; v++)
        b->vars[v] = (gyre_var){GYRE_STATE_F32, v * ELEMENTS * 4, 4096};
    for (size_t i = 0; i < VARS * ELEMENTS; i++)
        b->data[i] = fabsf(small(&seed));
    for (size_t i = 0; i < ELEMENTS; i++)
        b->g[i] = small(&seed);
    memcpy(b->before, b->data, VARS * ELEMENTS * sizeof(float));
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    bench *b = *state;

    gyre_opt_destroy(b->opt);
    gyre_context_destroy(b->context);
    unit_memory_check(&b->memory);
    free(b->data);
    free(b->before);
    free(b->g);
    free(b);
    return 0;
}

static gyre_update_job job_of(bench *b, const gyre_segment *segments,
                              size_t count)
{
    gyre_update_job job = {
        .opt = b->opt,
        .data = (uint8_t *)b->data,
        .vars = b->vars,
        .var_count = VARS,
        .elements = ELEMENTS,
        .segments = segments,
        .segment_count = count,
        .q = 1,
        .check = 1,
        .seed_before = 7,
        .seed_after = 8,
    };

    return job;
}

/* h_i = XXH3(seed, variable i); hash = XXH3(seed, h_0 h_1 ...), fed to the
 * library in uneven bites. */
static uint64_t hash_by_definition(const float *data, size_t vars,
                                   size_t elements, uint64_t seed)
{
    XXH3_state_t *state = XXH3_createState();
    uint64_t each[16];

    for (size_t v = 0; v < vars; v++) {
        const char *at = (const char *)(data + v * elements);
        size_t left = elements * sizeof(float), bite = 1;

        XXH3_64bits_reset_withSeed(state, seed);
        for (; left > 0; at += bite, left -= bite, bite = bite * 3 % 1009 + 1) {
            if (bite > left)
                bite = left;
            XXH3_64bits_update(state, at, bite);
        }
        each[v] = XXH3_64bits_digest(state);
    }
    XXH3_64bits_reset_withSeed(state, seed);
    XXH3_64bits_update(state, each, vars * sizeof(*each));
    each[0] = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return each[0];
}

static uint64_t hash_of(const bench *b, size_t count, size_t elements,
                        uint64_t seed)
{
    gyre_var vars[VARS];

    for (size_t v = 0; v < count; v++)
        vars[v] = (gyre_var){GYRE_STATE_F32, v * elements * 4, 4096};
    return gyre_device_hash((const uint8_t *)b->data, vars, count, elements,
                            seed);
}

/* Every element on its own, in the plainest loop. */
static void update_plainly(bench *b, const gyre_segment *segments, size_t count,
                           float q)
{
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; segments[s].g != NULL && i < segments[s].n; i++) {
            float *slot[VARS];
            float x = segments[s].g[i] * q;

            for (size_t v = 0; v < VARS; v++)
                slot[v] = b->before + v * ELEMENTS + segments[s].at + i;
            gyre_opt_update(b->opt, 1, &x, slot, segments[s].scalars,
                            segments[s].index + i);
        }
}

static void test_hash_is_the_definition(void **state)
{
    bench *b = *state;

    for (size_t vars = 1; vars <= VARS; vars++)
        for (size_t n = 1024; n <= ELEMENTS; n += 3072)
            for (uint64_t seed = 0; seed < 3; seed++)
                assert_int_equal(hash_of(b, vars, n, seed),
                                 hash_by_definition(b->data, vars, n, seed));
    /* variables are hashed apart: two halves are not the whole */
    assert_int_not_equal(hash_of(b, 1, 2048, 1), hash_of(b, 2, 1024, 1));
}

static void test_update_gives_both_checksums(void **state)
{
    bench *b = *state;
    gyre_segment segment = {0, ELEMENTS, 0, b->g, NULL, b->scalars, {0}};
    gyre_update_job job = job_of(b, &segment, 1);

    gyre_device_update(&job);
    assert_int_equal(job.before,
                     hash_by_definition(b->before, VARS, ELEMENTS, 7));
    assert_int_equal(job.after, hash_by_definition(b->data, VARS, ELEMENTS, 8));
    job = job_of(b, &segment, 1);
    job.check = 0;
    gyre_device_update(&job);
    assert_int_equal(job.before, 0);
    assert_int_equal(job.after, hash_by_definition(b->data, VARS, ELEMENTS, 8));
}

/*
 * Segments that begin and end anywhere: in a strip, across one, a whole one,
 * one element; one without a gradient; padding between.
 */
static void test_segments_change_what_is_theirs(void **state)
{
    bench *b = *state;
    const gyre_segment segments[] = {
        {0, 1, 0, b->g, NULL, b->scalars, {0}},
        {1024, 1000, 5, b->g + 1024, NULL, b->scalars, {0}},
        {2048, 7000, 0, b->g + 2048, NULL, b->scalars, {0}},
        {9216, 1024, 77, NULL, NULL, b->scalars, {0}},
        {10240, 2049, 0, b->g + 10240, NULL, b->scalars, {0}},
    };
    gyre_update_job job = job_of(b, segments, 5);

    job.q = 0.37f;
    gyre_device_update(&job);
    update_plainly(b, segments, 5, 0.37f);
    assert_memory_equal(b->data, b->before, VARS * ELEMENTS * sizeof(float));
    assert_int_equal(job.after, hash_by_definition(b->data, VARS, ELEMENTS, 8));
}

static void test_no_segment_changes_nothing(void **state)
{
    bench *b = *state;
    gyre_update_job job = job_of(b, NULL, 0);

    gyre_device_update(&job);
    assert_memory_equal(b->data, b->before, VARS * ELEMENTS * sizeof(float));
    assert_int_equal(job.after, hash_by_definition(b->data, VARS, ELEMENTS, 8));
}

/* A host linked with -ffast-math hands FTZ and DAZ to its threads; the update
 * must not see them, and must hand them back. */
static void test_denormals_survive_a_fast_math_host(void **state)
{
#if defined(__x86_64__)
    bench *b = *state;
    gyre_segment segment = {0, ELEMENTS, 0, b->g, NULL, b->scalars, {0}};
    gyre_update_job job = job_of(b, &segment, 1);
    unsigned word = _mm_getcsr();

    if (getenv("GYRE_VALGRIND") != NULL)
        skip(); /* which has no FTZ */
    for (size_t i = 0; i < ELEMENTS; i++) {
        b->g[i] *= 0x1p-130f;
        b->data[2 * ELEMENTS + i] = b->before[2 * ELEMENTS + i] *= 0x1p-140f;
        b->data[ELEMENTS + i] = b->before[ELEMENTS + i] *= 0x1p-135f;
    }
    update_plainly(b, &segment, 1, 1);
    _mm_setcsr(word | 0x8040); /* FTZ, DAZ */
    gyre_device_update(&job);
    assert_int_equal(_mm_getcsr() & 0x8040, 0x8040);
    _mm_setcsr(word);
    assert_memory_equal(b->data, b->before, VARS * ELEMENTS * sizeof(float));
#else
    (void)state;
    skip();
#endif
}

#define WITH_BENCH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BENCH(test_hash_is_the_definition),
        WITH_BENCH(test_update_gives_both_checksums),
        WITH_BENCH(test_segments_change_what_is_theirs),
        WITH_BENCH(test_no_segment_changes_nothing),
        WITH_BENCH(test_denormals_survive_a_fast_math_host),
    };

    return cmocka_run_group_tests_name("device: update", tests, NULL, NULL);
}
