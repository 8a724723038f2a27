/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: declared, then held against what was taken, chunk by chunk and page
 * by page.
 */
#include "config.h"

#include "planned.h"

#include "store/worker.h"

#include <sys/mman.h>

/* Everything that a store does, and the most memory it took at once. */
static uint64_t measured_peak(world *w, const gyre_store_spec *spec,
                              const gyre_store_options *options)
{
    uint64_t base = gyre_context_memory(w->f.context, NULL), peak;
    float x;

    w->f.memory.peak = w->f.memory.bytes;
    fixture_create(&w->f, &w->m, spec, options);
    for (uint64_t t = 0; t < 2; t++)
        fixture_round(&w->f, &w->m, t, NULL, NULL);
    good(&w->f,
         gyre_store_read(w->f.store, 0, -1, 0, 1, GYRE_F32, &x, &w->f.error));
    good(&w->f, gyre_store_digest(w->f.store, (char[GYRE_DIGEST_TEXT]){0},
                                  &w->f.error));
    fixture_round(&w->f, &w->m, 3, NULL, NULL);
    fixture_close(&w->f);
    fixture_open(&w->f, options);
    fixture_round(&w->f, &w->m, 4, NULL, NULL);
    fixture_close(&w->f);
    peak = w->f.memory.peak;
    assert_int_equal(gyre_context_memory(w->f.context, NULL), base);
    return peak - base;
}

/* DS#1891, #3606: a hard cap that fails early; how do I size buffers? */
static void test_planned_memory_is_what_is_taken(void **state)
{
    static const struct {
        size_t devices;
        uint64_t chunk;
        uint32_t buffers;
        const char *optimizer, *compressor;
        gyre_residual residual;
        int spill;
        gyre_state_codec codec; /* of the slots */
    } cases[] = {
        {1, 0, 0, "adamw", NULL, GYRE_RESIDUAL_OFF, 0, GYRE_STATE_F32},
        {1, 65536, 8, "adamw", NULL, GYRE_RESIDUAL_OFF, 0, GYRE_STATE_F32},
        {1, 65536, 2, "adam", NULL, GYRE_RESIDUAL_OFF, 0, GYRE_STATE_F32},
        {2, 65536, 3, "adagrad", NULL, GYRE_RESIDUAL_OFF, 0, GYRE_STATE_F32},
        {3, 32768, 4, "sgd", NULL, GYRE_RESIDUAL_OFF, 0, GYRE_STATE_F32},
        {1, 8192, 4, "lion", NULL, GYRE_RESIDUAL_OFF, 0, GYRE_STATE_F32},
        {2, 32768, 2, "adamw", "topk", GYRE_RESIDUAL_COMMITTED, 0,
         GYRE_STATE_F32},
        {1, 32768, 2, "adamw", "quantize", GYRE_RESIDUAL_VOLATILE, 1,
         GYRE_STATE_F32},
        {2, 32768, 4, "adamw", "sign", GYRE_RESIDUAL_OFF, 0, GYRE_STATE_F32},
        {2, 65536, 1, "adamw", NULL, GYRE_RESIDUAL_OFF, 1, GYRE_STATE_F32},
        {2, 32768, 3, "adamw", NULL, GYRE_RESIDUAL_OFF, 0, GYRE_STATE_Q8},
        {1, 32768, 2, "adamw", "topk", GYRE_RESIDUAL_COMMITTED, 1,
         GYRE_STATE_Q8},
    };
    world *w = *state;

    model_add(&w->m, "a", 300000, 0, 0);
    model_add(&w->m, "b", 200001, 0, 0);
    model_add(&w->m, "c", 100000, 0, GYRE_TENSOR_FROZEN);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        gyre_store_spec spec = spec_of(&w->m);
        gyre_store_options options = plain_options();
        gyre_store_plan plan;
        uint64_t planned, peak;

        gyre_slot_codec codec = {"*", cases[i].codec};

        spec.codecs = &codec;
        spec.codec_count = 1;
        spec.compressor = cases[i].compressor;
        spec.residual = cases[i].residual;
        spec.spill = cases[i].spill;
        spec.optimizer = cases[i].optimizer;
        spec.chunk_elements = cases[i].chunk;
        options.buffers = cases[i].buffers;
        fixture_devices(&w->f, &spec, cases[i].devices);
        snprintf(w->f.path, sizeof(w->f.path), "%s/c%zu", w->f.root, i);
        plan = plan_of(w, &spec, &options);
        planned = plan.total_bytes;
        /* mapped, page by page as it is needed: not of the allocator */
        if (cases[i].compressor != NULL || cases[i].spill)
            planned -= plan.gradient_bytes;
        peak = measured_peak(w, &spec, &options);
        if (peak > planned || planned > peak + peak / 10)
            fail_msg("case %d: %d bytes planned, %d taken", (int)i,
                     (int)planned, (int)peak);
    }
}

/* Buffers do not depend on the number of chunks; what does is small. */
static void test_memory_per_chunk_is_bounded(void **state)
{
    world *w = *state;
    uint64_t few = 0, many = 0, few_chunks = 0;

    model_add(&w->m, "a", 512 * 1024, 0, 0);
    for (int k = 0; k < 2; k++) {
        gyre_store_spec spec = spec_of(&w->m);
        gyre_store_options options = plain_options();
        gyre_store_plan plan;

        spec.chunk_elements = k == 0 ? 16384 : 1024;
        snprintf(w->f.path, sizeof(w->f.path), "%s/k%d", w->f.root, k);
        plan = plan_of(w, &spec, &options);
        many = measured_peak(w, &spec, &options) - plan.buffer_bytes;
        if (k == 0) {
            few = many;
            few_chunks = plan.chunks;
            continue;
        }
        /* The table is 64 bytes: two entries of 24 and a place of 16.  With
         * the commit's image (24), the fresh entry, counter and state of a
         * round (24 + 8 + 1) and two places in the queue (2 * 16) 153; the
         * image is rounded up to a page. */
        assert_true(many > few);
        assert_true(many - few <= 153 * (plan.chunks - few_chunks) + 4096);
    }
}

/* Ten chunks or ten thousand of them: the same buffers, in the plan and in the
 * worker.  As a sample a thousand. */
static void test_buffers_are_the_same_for_10_and_10000_chunks(void **state)
{
    static const gyre_slot_codec codecs[] = {{"*", GYRE_STATE_Q8},
                                             {"parameter", GYRE_STATE_BF16}};
    static const struct {
        const char *optimizer, *compressor;
        int spill;
        size_t codecs;
        bool made;
    } cases[] = {
        {"adamw", NULL, 0, 0, false},   {"adamw", NULL, 1, 0, false},
        {"adamw", "topk", 1, 0, false}, {"adam", "sign", 0, 0, false},
        {"adamw", NULL, 0, 1, false},   {"sgd", "topk", 1, 2, true},
    };
    const uint64_t chunks[] = {10, unit_sampled() ? 1000 : 10000};
    world *w = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint64_t buffers[2], of_one[2] = {0, 0}, payload[2];

        for (int k = 0; k < 2; k++) {
            gyre_store_options options = plain_options();
            gyre_store_spec spec;
            gyre_store_plan plan;

            model_free(&w->m);
            memset(&w->m, 0, sizeof(w->m));
            model_add(&w->m, "a", chunks[k] * GYRE_GRAIN, 0, 0);
            spec = spec_of(&w->m);
            spec.optimizer = cases[i].optimizer;
            spec.compressor = cases[i].compressor;
            spec.residual = GYRE_RESIDUAL_OFF;
            spec.spill = cases[i].spill;
            spec.codecs = codecs;
            spec.codec_count = cases[i].codecs;
            spec.chunk_elements = GYRE_GRAIN;
            snprintf(w->f.path, sizeof(w->f.path), "%s/t%zu.%d", w->f.root, i,
                     k);
            plan = plan_of(w, &spec, &options);
            assert_int_equal(plan.chunks, chunks[k]);
            buffers[k] = plan.buffer_bytes;
            payload[k] = cases[i].spill ? plan.payload_bytes : 0;
            if (!cases[i].made)
                continue;
            fixture_create(&w->f, &w->m, &spec, &options);
            of_one[k] = w->f.store->places[0].worker->buffer_bytes;
            fixture_round(&w->f, &w->m, 0, NULL, NULL);
            fixture_close(&w->f);
        }
        assert_int_equal(buffers[0], buffers[1]);
        assert_int_equal(of_one[0], of_one[1]);
        assert_int_equal(payload[0], payload[1]);
        assert_int_equal(of_one[0] > 0, cases[i].made);
    }
}

static uint64_t resident_gradients(const gyre_store *store)
{
    size_t bytes = store->gradient_count * sizeof(float);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (bytes + page - 1) / page;
    unsigned char *there = malloc(n);
    uint64_t resident = 0;

    assert_true(store->gradients_mapped);
    assert_int_equal(mincore(store->gradients, bytes, there), 0);
    for (size_t i = 0; i < n; i++)
        resident += (there[i] & 1) * page;
    free(there);
    return resident;
}

/* Gradients of a spilled store wait in pages that are given back: never more of
 * them than the plan says, however slow the device is. */
static void test_spilled_gradients_wait_in_planned_pages(void **state)
{
    enum { CHUNKS = 64, CHUNK = 4096 };
    static float g[CHUNK];
    static const char *const slow[] = {"emulated:read=16M,write=16M"};
    world *w = *state;
    gyre_store_options options = plain_options();
    gyre_round_options how = {.size = sizeof(how), .micro_batches = 2};
    gyre_gradient piece = {.dtype = GYRE_F32, .data = g};
    gyre_store_spec spec;
    gyre_store_plan plan;
    gyre_round *round;
    uint64_t most = 0;

    model_add(&w->m, "a", CHUNKS * CHUNK, 0, 0);
    spec = spec_of(&w->m);
    spec.optimizer = "sgd";
    spec.spill = 1;
    spec.chunk_elements = CHUNK;
    options.buffers = 2;
    options.compute = slow;
    options.compute_count = 1;
    plan = plan_of(w, &spec, &options);
    assert_true(plan.gradient_bytes < CHUNKS * CHUNK * sizeof(float) / 4);
    fixture_create(&w->f, &w->m, &spec, &options);
    for (size_t i = 0; i < CHUNK; i++)
        g[i] = 1;
    good(&w->f, gyre_round_begin(w->f.store, &how, &round, &w->f.error));
    for (int micro = 0; micro < 2; micro++) {
        for (uint64_t c = 0; c < CHUNKS; c++) {
            uint64_t now;

            good(&w->f, gyre_round_gradient(round, 0, c * CHUNK, CHUNK, &piece,
                                            &w->f.error));
            now = resident_gradients(w->f.store);
            most = now > most ? now : most;
        }
        if (micro > 0)
            continue;
        good(&w->f, gyre_round_next(round, &w->f.error));
        assert_int_equal(resident_gradients(w->f.store), 0);
    }
    good(&w->f, gyre_round_finish(round, NULL, 0, NULL, &w->f.error));
    assert_int_equal(resident_gradients(w->f.store), 0);
    if (most > plan.gradient_bytes || most < 2 * CHUNK * sizeof(float))
        fail_msg("%d bytes of gradients planned, %d resident",
                 (int)plan.gradient_bytes, (int)most);
}

static void test_memory_limit_refuses_before_anything_is_made(void **state)
{
    world *w = *state;
    gyre_store_spec spec;
    gyre_store_options options = plain_options();
    uint64_t total;

    model_mixed(&w->m);
    spec = spec_of(&w->m);
    fixture_devices(&w->f, &spec, 2);
    total = plan_of(w, &spec, NULL).total_bytes;
    options.memory_limit = total - 1;
    expect(&w->f,
           gyre_store_create(w->f.context, w->f.path, &spec, &options,
                             &w->f.store, &w->f.error),
           GYRE_NO_MEMORY);
    unit_assert_text(&w->f.error, "fewer buffers");
    assert_null(w->f.store);
    assert_int_equal(entries(w->f.path), 0);
    assert_int_equal(entries(w->f.device[0]), 0);
    options.memory_limit = total;
    fixture_create(&w->f, &w->m, &spec, &options);
    fixture_round(&w->f, &w->m, 1, NULL, NULL);
    fixture_close(&w->f);
    options.memory_limit = total - 1;
    expect(&w->f,
           gyre_store_open(w->f.context, w->f.path, &options, &w->f.store,
                           &w->f.error),
           GYRE_NO_MEMORY);
    options.read_only = 1; /* holds no gradients */
    fixture_open(&w->f, &options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_planned_memory_is_what_is_taken),
        IN_A_WORLD(test_memory_per_chunk_is_bounded),
        IN_A_WORLD(test_buffers_are_the_same_for_10_and_10000_chunks),
        IN_A_WORLD(test_spilled_gradients_wait_in_planned_pages),
        IN_A_WORLD(test_memory_limit_refuses_before_anything_is_made),
    };

    return cmocka_run_group_tests_name("store: planned memory", tests, NULL,
                                       NULL);
}
