/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout as properties over random tensor lists: no element lost or doubled,
 * tensors on grains, extents apart and aligned, devices filled by weight;
 * half of the lists with residual chunks, half with gradient regions.
 */
#include "config.h"

#include "fixture.h"

#include "store/format.h"
#include "store/layout.h"

enum { LISTS = 120, MOST = 40 };

typedef struct list {
    unit_memory memory;
    gyre_context *context;
    gyre_layout layout;
    gyre_tensor tensors[MOST];
    char names[MOST][24];
    size_t count;
    double weights[DEVICES_MOST];
} list;

/* Sizes that are multiples of nothing, none, one, and whole grains. */
static uint64_t random_elements(uint64_t *seed)
{
    switch (random_next(seed) % 6) {
    case 0:
        return 0;
    case 1:
        return 1;
    case 2:
        return random_next(seed) % 40 * 1024;
    case 3:
        return random_next(seed) % 40 * 1024 + (random_next(seed) % 3) - 1 +
               1024;
    default:
        return random_next(seed) % 50000;
    }
}

static void shape(list *l, uint64_t *seed, uint32_t devices, bool weighted)
{
    gyre_layout *layout = &l->layout;
    static const uint32_t aligns[] = {4096, 16384, 65536};

    layout->chunk_grains = 1 + random_next(seed) % 20;
    layout->slots = (uint32_t)(random_next(seed) % 4);
    layout->versions = 1 + (uint32_t)(random_next(seed) % 2);
    layout->align = aligns[random_next(seed) % 3];
    layout->residual = random_next(seed) % 2;
    layout->gradient_grain = random_next(seed) % 2
                                 ? 4096 + 8 * (uint32_t)(random_next(seed) % 99)
                                 : 0;
    layout->blob_capacity = random_next(seed) % 10000;
    layout->manifest_bytes = 4096 * (1 + random_next(seed) % 9);
    layout->devices = devices;
    layout->weights = gyre_alloc(l->context, devices, sizeof(double));
    assert_non_null(layout->weights);
    for (uint32_t d = 0; d < devices; d++) {
        l->weights[d] = weighted ? ldexp(1, (int)(random_next(seed) % 13)) : 3;
        layout->weights[d] = l->weights[d];
    }
    assert_int_equal(gyre_layout_place(l->context, layout, NULL), GYRE_OK);
}

static void begin(list *l, uint64_t seed, uint32_t devices, bool weighted)
{
    memset(l, 0, sizeof(*l));
    l->context = unit_context(&l->memory);
    l->count = 1 + random_next(&seed) % MOST;
    for (size_t i = 0; i < l->count; i++) {
        gyre_tensor *t = &l->tensors[i];

        snprintf(l->names[i], sizeof(l->names[i]), "t%zu", i);
        t->name = l->names[i];
        t->rank = 1;
        t->shape[0] = random_elements(&seed);
        t->group = (uint32_t)(random_next(&seed) % 3);
        t->flags = random_next(&seed) % 4 == 0 ? GYRE_TENSOR_FROZEN : 0;
    }
    assert_int_equal(
        gyre_layout_tensors(l->context, &l->layout, l->tensors, l->count, NULL),
        GYRE_OK);
    shape(l, &seed, devices, weighted);
}

static void end(list *l)
{
    gyre_layout_free(l->context, &l->layout);
    gyre_context_destroy(l->context);
    unit_memory_check(&l->memory);
}

/* ---- elements --------------------------------------------------------- */

/* Runs of one chunk: ascending, apart, inside, of its own kind. */
static void check_runs(const list *l, uint64_t chunk, uint64_t *seen)
{
    const gyre_layout *layout = &l->layout;
    uint64_t first = gyre_layout_first_grain(layout, chunk);
    size_t cursor = GYRE_RUN_FIRST, behind = 0;
    gyre_run run;

    while (gyre_layout_next_run(layout, chunk, &cursor, &run)) {
        const gyre_tensor_state *t = &layout->tensors[run.tensor];
        bool frozen = t->flags & GYRE_TENSOR_FROZEN;

        assert_true(run.n > 0);
        assert_true(run.at >= behind);
        behind = run.at + run.n;
        assert_true(behind <= gyre_layout_chunk_elements(layout, chunk));
        assert_int_equal(run.at % GYRE_GRAIN, 0);
        assert_int_equal(run.index % GYRE_GRAIN, 0);
        assert_int_equal(first + run.at / GYRE_GRAIN,
                         t->first_grain + run.index / GYRE_GRAIN);
        assert_int_equal(frozen, chunk >= layout->train_chunks);
        /* what came of this tensor so far ends where this run begins */
        assert_int_equal(seen[run.tensor], run.index);
        seen[run.tensor] += run.n;
    }
}

static void test_every_element_lies_in_exactly_one_run(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < LISTS; seed++) {
        list l;
        uint64_t seen[MOST] = {0};

        begin(&l, seed, 1 + (uint32_t)(seed % 7), false);
        for (uint64_t c = 0; c < l.layout.state_chunks; c++)
            check_runs(&l, c, seen);
        for (size_t i = 0; i < l.count; i++) {
            assert_int_equal(seen[i], l.tensors[i].shape[0]);
            assert_int_equal(l.layout.tensors[i].elements, seen[i]);
        }
        end(&l);
    }
}

static void test_tensors_begin_on_grains_in_the_order_given(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < LISTS; seed++) {
        uint64_t grain = 0, elements = 0;
        list l;

        begin(&l, seed, 2, false);
        for (int frozen = 0; frozen < 2; frozen++) {
            for (size_t i = 0; i < l.count; i++) {
                if ((int)(l.tensors[i].flags & 1) != frozen)
                    continue;
                assert_int_equal(l.layout.tensors[i].first_grain, grain);
                grain += (l.tensors[i].shape[0] + 1023) / 1024;
                elements += l.tensors[i].shape[0];
            }
            assert_int_equal(grain,
                             l.layout.train_grains +
                                 (uint64_t)frozen * l.layout.frozen_grains);
        }
        assert_int_equal(l.layout.elements, elements);
        end(&l);
    }
}

static void test_chunk_of_agrees_with_the_cuts(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        uint64_t grain = 0;
        list l;

        begin(&l, seed, 3, false);
        for (uint64_t c = 0; c < l.layout.state_chunks; c++) {
            uint64_t n = gyre_layout_chunk_grains(&l.layout, c);

            assert_true(n >= 1 && n <= l.layout.chunk_grains);
            assert_int_equal(gyre_layout_first_grain(&l.layout, c), grain);
            for (; n > 0; n--)
                assert_int_equal(gyre_layout_chunk_of(&l.layout, grain++), c);
        }
        assert_int_equal(grain, l.layout.train_grains + l.layout.frozen_grains);
        end(&l);
    }
}

/* ---- places ----------------------------------------------------------- */

/* Behind the versions of a trainable chunk; returns where the region ends. */
static uint64_t check_region(const gyre_layout *layout, uint64_t chunk,
                             uint64_t behind)
{
    uint64_t bytes = gyre_layout_gradient_bytes(layout, chunk);
    uint64_t need =
        gyre_layout_chunk_grains(layout, chunk) * layout->gradient_grain;

    if (chunk >= layout->train_chunks || layout->gradient_grain == 0) {
        assert_int_equal(bytes, 0);
        return behind;
    }
    assert_true(bytes >= need && bytes < need + layout->align);
    assert_true(bytes <= gyre_layout_max_gradient_bytes(layout));
    assert_int_equal(bytes % layout->align, 0);
    assert_int_equal(gyre_layout_gradient_offset(layout, chunk), behind);
    return behind + bytes;
}

/* Chunks of a device come in ascending order, so one pass shows that extents
 * do not meet. */
static void check_device(const list *l, uint32_t device)
{
    const gyre_layout *layout = &l->layout;
    uint64_t behind = layout->data_at;

    for (uint64_t c = 0; c < layout->chunks; c++) {
        uint64_t bytes = gyre_layout_chunk_bytes(layout, c);
        uint32_t vars = c < layout->train_chunks ? 1 + layout->slots : 1;

        if (layout->places[c].device != device)
            continue;
        assert_int_equal(gyre_layout_vars(layout, c), vars);
        assert_true(bytes >= gyre_layout_chunk_elements(layout, c) * vars * 4 +
                                 GYRE_LABEL);
        assert_true(bytes <= gyre_layout_max_chunk_bytes(layout));
        assert_int_equal(bytes % layout->align, 0);
        for (uint32_t v = 0; v < gyre_layout_versions(layout, c); v++) {
            assert_true(gyre_layout_offset(layout, c, v) >= behind);
            assert_int_equal(gyre_layout_offset(layout, c, v) % layout->align,
                             0);
            behind = gyre_layout_offset(layout, c, v) + bytes;
        }
        behind = check_region(layout, c, behind);
    }
    assert_int_equal(layout->device_bytes[device], behind);
}

static void test_extents_of_a_device_are_apart_and_aligned(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < LISTS; seed++) {
        uint32_t devices = 1 + (uint32_t)(seed % 16);
        list l;

        begin(&l, seed, devices, seed % 2);
        assert_true(l.layout.area_at[0] >= GYRE_PAGE + l.layout.manifest_bytes);
        assert_true(l.layout.area_at[1] >=
                    l.layout.area_at[0] + l.layout.area_bytes);
        assert_true(l.layout.data_at >=
                    l.layout.area_at[1] + l.layout.area_bytes);
        assert_true(l.layout.area_bytes >=
                    gyre_format_head_bytes(l.layout.chunks, l.count) +
                        l.layout.blob_capacity);
        assert_int_equal(l.layout.area_at[0] % l.layout.align, 0);
        assert_int_equal(l.layout.area_at[1] % l.layout.align, 0);
        assert_int_equal(l.layout.data_at % l.layout.align, 0);
        for (uint32_t d = 0; d < devices; d++)
            check_device(&l, d);
        end(&l);
    }
}

static void test_equal_weights_take_turns(void **state)
{
    (void)state;
    for (uint32_t devices = 1; devices <= 16; devices++) {
        list l;

        begin(&l, 1000 + devices, devices, false);
        for (uint64_t c = 0; c < l.layout.state_chunks; c++)
            assert_int_equal(l.layout.places[c].device, c % devices);
        end(&l);
    }
}

/* After any number of chunks each device has its share, to one chunk. */
static void test_weights_hold_to_one_chunk(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        uint32_t devices = 1 + (uint32_t)(seed % 16);
        uint64_t given[DEVICES_MOST] = {0};
        double total = 0;
        list l;

        begin(&l, seed, devices, true);
        for (uint32_t d = 0; d < devices; d++)
            total += l.weights[d];
        for (uint64_t c = 0; c < l.layout.state_chunks; c++) {
            given[l.layout.places[c].device]++;
            for (uint32_t d = 0; d < devices; d++) {
                double share = l.weights[d] / total * (double)(c + 1);

                if (!(fabs((double)given[d] - share) < 1 + 1e-9))
                    fail_msg("seed %d: device %u has %d of its %g chunks",
                             (int)seed, d, (int)given[d], share);
            }
        }
        end(&l);
    }
}

static void test_chosen_chunks_keep_devices_busy(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < LISTS; seed++) {
        uint64_t chunk, grains;
        list l;

        begin(&l, seed, 1, false);
        grains = l.layout.train_grains + l.layout.frozen_grains;
        chunk = gyre_layout_choose_chunk(&l.layout, 4);
        assert_int_equal(chunk % GYRE_GRAIN, 0);
        assert_true(chunk >= 16 * 1024 && chunk <= 256 * 1024);
        if (chunk > 16 * 1024)
            assert_true(chunk / GYRE_GRAIN * 4 * 8 <= grains);
        end(&l);
    }
}

/* ---- residual chunks -------------------------------------------------- */

/* The same grains and runs, the same device, f32, as many versions. */
static void check_residual(const gyre_layout *layout, uint64_t train)
{
    uint64_t chunk = gyre_layout_residual(layout, train);
    size_t a = GYRE_RUN_FIRST, b = GYRE_RUN_FIRST;
    gyre_run x, y;

    assert_true(gyre_layout_is_residual(layout, chunk));
    assert_false(gyre_layout_is_residual(layout, train));
    assert_int_equal(gyre_layout_residual_of(layout, chunk), train);
    assert_int_equal(layout->places[chunk].device,
                     layout->places[train].device);
    assert_int_equal(gyre_layout_vars(layout, chunk), 1);
    assert_int_equal(gyre_layout_versions(layout, chunk), layout->versions);
    assert_int_equal(gyre_layout_first_grain(layout, chunk),
                     gyre_layout_first_grain(layout, train));
    assert_int_equal(gyre_layout_chunk_grains(layout, chunk),
                     gyre_layout_chunk_grains(layout, train));
    while (gyre_layout_next_run(layout, train, &a, &x)) {
        assert_true(gyre_layout_next_run(layout, chunk, &b, &y));
        assert_int_equal(x.tensor, y.tensor);
        assert_int_equal(x.index, y.index);
        assert_int_equal(x.at, y.at);
        assert_int_equal(x.n, y.n);
    }
    assert_false(gyre_layout_next_run(layout, chunk, &b, &y));
}

static void test_a_residual_chunk_mirrors_its_trainable_one(void **state)
{
    size_t with = 0;

    (void)state;
    for (uint64_t seed = 0; seed < LISTS; seed++) {
        list l;

        begin(&l, seed, 1 + (uint32_t)(seed % 5), seed % 2);
        assert_int_equal(l.layout.chunks,
                         l.layout.state_chunks +
                             (l.layout.residual ? l.layout.train_chunks : 0));
        for (uint64_t c = 0; l.layout.residual && c < l.layout.train_chunks;
             c++) {
            check_residual(&l.layout, c);
            with++;
        }
        end(&l);
    }
    assert_true(with > 100);
}

/* ---- texts and refusals ----------------------------------------------- */

static void test_describe_names_three_ranges_and_no_more(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_layout layout = {.chunk_grains = 4,
                          .align = 4096,
                          .devices = 1,
                          .versions = 2,
                          .slots = 2,
                          .residual = true,
                          .manifest_bytes = 4096};
    gyre_tensor tensors[] = {
        {.name = "a", .rank = 1, .shape = {3000}},
        {.name = "b", .rank = 1, .shape = {5000}},
        {.name = "c", .rank = 1, .shape = {1}},
        {.name = "d", .rank = 0},
        {.name = "e", .rank = 2, .shape = {2, 3}},
        {.name = "f", .rank = 1, .shape = {7}},
    };
    char text[256], tight[20];

    (void)state;
    assert_int_equal(gyre_layout_tensors(context, &layout, tensors, 6, NULL),
                     GYRE_OK);
    layout.weights = gyre_alloc_zero(context, 1, sizeof(double));
    layout.weights[0] = 1;
    assert_int_equal(gyre_layout_place(context, &layout, NULL), GYRE_OK);
    gyre_layout_describe(&layout, 0, text, sizeof(text));
    assert_string_equal(text, "a [0, 3000), b [0, 1024)");
    gyre_layout_describe(&layout, 1, text, sizeof(text));
    assert_string_equal(text, "b [1024, 5000)");
    gyre_layout_describe(&layout, 2, text, sizeof(text));
    assert_string_equal(text, "c [0, 1), d [0, 1), e [0, 6), ...");
    gyre_layout_describe(&layout, gyre_layout_residual(&layout, 1), text,
                         sizeof(text));
    assert_string_equal(text, "residual of b [1024, 5000)");
    gyre_layout_describe(&layout, 2, tight, sizeof(tight));
    assert_true(strlen(tight) < sizeof(tight));
    gyre_layout_free(context, &layout);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void expect_refused(const gyre_tensor *tensors, size_t count,
                           gyre_status want, const char *text)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_layout layout = {0};
    gyre_error error = {GYRE_OK, ""};

    assert_int_equal(
        gyre_layout_tensors(context, &layout, tensors, count, &error), want);
    unit_assert_text(&error, text);
    gyre_layout_free(context, &layout);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_bad_lists_are_refused_by_name(void **state)
{
    const gyre_tensor twice[] = {{.name = "x"}, {.name = "y"}, {.name = "x"}};
    const gyre_tensor unnamed[] = {{.name = "x"}, {.name = ""}};
    const gyre_tensor null_name[] = {{.name = NULL}};
    const gyre_tensor deep[] = {{.name = "deep", .rank = 9}};
    const gyre_tensor huge[] = {
        {.name = "huge", .rank = 2, .shape = {1ull << 40, 1ull << 40}}};
    const gyre_tensor sum[] = {
        {.name = "one", .rank = 1, .shape = {UINT64_MAX / 8192}},
        {.name = "two", .rank = 1, .shape = {UINT64_MAX / 4097}}};
    const gyre_tensor far[] = {{.name = "far", .group = 65536}};
    const gyre_tensor wide[] = {
        {.name = "wide", .rank = 2, .shape = {0, 1ull << 63}}};

    (void)state;
    expect_refused(twice, 3, GYRE_DUPLICATE, "\"x\"");
    expect_refused(unnamed, 2, GYRE_INVALID, "tensor 1");
    expect_refused(null_name, 1, GYRE_INVALID, "tensor 0");
    expect_refused(deep, 1, GYRE_RANGE, "deep");
    expect_refused(huge, 1, GYRE_RANGE, "huge");
    expect_refused(sum, 2, GYRE_RANGE, "too many elements");
    expect_refused(far, 1, GYRE_RANGE, "far");
    expect_refused(wide, 1, GYRE_RANGE, "wide");
    expect_refused(NULL, 0, GYRE_INVALID, "at least one tensor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_element_lies_in_exactly_one_run),
        cmocka_unit_test(test_tensors_begin_on_grains_in_the_order_given),
        cmocka_unit_test(test_chunk_of_agrees_with_the_cuts),
        cmocka_unit_test(test_extents_of_a_device_are_apart_and_aligned),
        cmocka_unit_test(test_equal_weights_take_turns),
        cmocka_unit_test(test_weights_hold_to_one_chunk),
        cmocka_unit_test(test_chosen_chunks_keep_devices_busy),
        cmocka_unit_test(test_a_residual_chunk_mirrors_its_trainable_one),
        cmocka_unit_test(test_describe_names_three_ranges_and_no_more),
        cmocka_unit_test(test_bad_lists_are_refused_by_name),
    };

    return cmocka_run_group_tests_name("store: layout", tests, NULL, NULL);
}
