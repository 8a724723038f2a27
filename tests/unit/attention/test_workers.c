/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads compute for a rank: one BLAS each, and the same bits. */
#include "config.h"

#include "../unit.h"
#include "trial.h"

#include "attention/kernel_blas.h"
#include "attention/kernel_library.h"
#include "attention/team.h"

#include <pthread.h>

/* ---- products side by side ----------------------------------------------- */

enum { SIDE = 64, SHAPES = 8, CALLERS = 4 };

static const uint32_t shapes[SHAPES][3] = {
    {1, 1, 8}, {4, 4, 8},    {1, 8, 1},   {8, 1, 8},
    {1, 8, 5}, {16, 16, 16}, {31, 8, 31}, {64, 64, 64}};
static float a[SIDE * SIDE], b[SIDE * SIDE];
static float alone[SHAPES][SIDE * SIDE];

static void multiply(uint32_t shape, float *c)
{
    gyre_product p = {.b_transposed = shape % 2,
                      .m = shapes[shape][0],
                      .n = shapes[shape][1],
                      .k = shapes[shape][2],
                      .alpha = 1.0f,
                      .a = a,
                      .b = b,
                      .c = c,
                      .lda = SIDE,
                      .ldb = SIDE,
                      .ldc = SIDE};
    memset(c, 0, sizeof(alone[0]));
    gyre_multiply(&p);
}

/* How many products differ from what one thread got. */
static void *many_products(void *rounds)
{
    static _Thread_local float c[SIDE * SIDE];
    uintptr_t bad = 0;
    for (uintptr_t i = 0; i < (uintptr_t)rounds; i++) {
        multiply(i % SHAPES, c);
        bad += memcmp(c, alone[i % SHAPES], sizeof(c)) != 0;
    }
    return (void *)bad;
}

static void callers_side_by_side_do_not_disturb_each_other(void **unused)
{
    pthread_t threads[CALLERS];
    uintptr_t rounds = unit_sampled() ? 2000 : 20000;
    (void)unused;
    for (int i = 0; i < SIDE * SIDE; i++) {
        a[i] = (float)(i * 7919 % 1000) * 0.001f - 0.5f;
        b[i] = (float)(i * 104729 % 1000) * 0.001f - 0.5f;
    }
    for (uint32_t i = 0; i < SHAPES; i++)
        multiply(i, alone[i]);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, many_products, (void *)rounds),
            0);
    for (int i = 0; i < CALLERS; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        assert_int_equal((uintptr_t)bad, 0);
    }
    uint32_t most, copies = gyre_blas_copies(&most);
    assert_true(copies <= most);
}

static void a_second_caller_gets_another_library(void **unused)
{
    uint32_t most;
    gyre_sgemm *first = NULL, *second = NULL;
    (void)unused;
    if (gyre_blas_copies(&most) == 0 || most < 2) {
        print_message("one processor, or no serial BLAS\n");
        skip();
    }
    gyre_blas_copy *one = gyre_blas_take(&first);
    /* Should no copy be possible, this would wait for ever. */
    gyre_blas_copy *two = gyre_blas_take(&second);
    assert_true(one != two && first != second);
    gyre_blas_give(two);
    gyre_blas_give(one);
    assert_true(gyre_blas_copies(&most) >= 2);
}

/* ---- the team -------------------------------------------------------------
 */

enum { ITEMS = 37, WORKERS = 4 };

typedef struct tally {
    atomic_uint done[ITEMS];
    atomic_uint bad;
} tally;

static void mark(void *state, size_t index, uint32_t worker)
{
    tally *t = state;
    atomic_fetch_add(&t->done[index], 1);
    if (worker >= WORKERS)
        atomic_fetch_add(&t->bad, 1);
}

static void every_item_is_done_once(void **unused)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_team team;
    (void)unused;
    assert_int_equal(gyre_team_open(context, WORKERS, &team, NULL), GYRE_OK);
    for (int run = 0; run < 3; run++) {
        gyre_team_start(&team);
        for (int call = 0; call < 300; call++) {
            tally t = {.bad = 0};
            gyre_team_each(&team, ITEMS - call % ITEMS, mark, &t);
            for (int i = 0; i < ITEMS; i++)
                assert_int_equal(t.done[i], i < ITEMS - call % ITEMS);
            assert_int_equal(t.bad, 0);
        }
        gyre_team_stop(&team);
    }
    gyre_team_close(&team);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* ---- a rank's -------------------------------------------------------------
 */

static void run_with(gyre_context *context, const trial_case *c,
                     uint32_t workers, gyre_trial *out)
{
    trial_options t;
    gyre_world *world = NULL;
    gyre_error error = {0};
    gyre_trial_options asked = {.size = sizeof(asked), .seed = 5};
    trial_prepare(context, c, &t);
    t.options.workers = workers;
    *out = (gyre_trial){.size = sizeof(*out)};
    assert_int_equal(gyre_world_open(context, &t.world, &world, &error), 0);
    gyre_status status =
        gyre_attention_trial(context, world, &t.options, &asked, out, &error);
    gyre_world_close(world);
    if (status != GYRE_OK || !out->ok)
        fail_msg("%s, %s, %u workers: %s", c->words, c->kernel, workers,
                 status != GYRE_OK ? error.text : "wrong");
}

/* Blocks are large enough for the others to be woken. */
static void bits_do_not_depend_on_workers(void **unused)
{
    static const trial_case cases[] = {
        {.words = "ring", .ranks = 2, .kernel = "f32", .dtype = GYRE_F32},
        {.words = "ring",
         .ranks = 1,
         .kernel = "f32",
         .dtype = GYRE_F32,
         .tiles = 4,
         .dropout = 0.2},
        {.words = "2d heads=2",
         .ranks = 2,
         .kernel = "bf16",
         .dtype = GYRE_BF16},
        {.words = "ring", .ranks = 2, .kernel = "f64", .dtype = GYRE_F64},
        {.words = "ulysses", .ranks = 2, .kernel = "count", .dtype = GYRE_F64}};
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    (void)unused;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        trial_case c = cases[i];
        gyre_trial want, got;
        c.tokens = 192;
        c.batch = 2;
        c.head_dim = 32;
        c.v_head_dim = 16;
        c.heads = 4;
        c.kv_heads = 2;
        run_with(context, &c, 1, &want);
        for (uint32_t workers = 2; workers < 5; workers += 2) {
            run_with(context, &c, workers, &got);
            for (int t = 0; t < GYRE_TRIAL_TENSORS; t++)
                assert_int_equal(got.tensor[t].hash, want.tensor[t].hash);
        }
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void scratch_is_for_all_workers(void **unused)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    trial_case c = {.words = "ring",
                    .ranks = 2,
                    .kernel = "f32",
                    .dtype = GYRE_F32,
                    .tokens = 64,
                    .batch = 1};
    gyre_attention_cost one = {.size = sizeof(one)}, three = one;
    gyre_error error = {0};
    trial_options t;
    (void)unused;
    trial_prepare(context, &c, &t);
    assert_int_equal(gyre_attention_measure(context, &t.options, 0, &one, NULL),
                     GYRE_OK);
    t.options.workers = 3;
    assert_int_equal(
        gyre_attention_measure(context, &t.options, 0, &three, NULL), GYRE_OK);
    assert_true(one.scratch[0] > 0);
    assert_int_equal(three.scratch[0], 3 * one.scratch[0]);
    assert_int_equal(three.scratch[1], 3 * one.scratch[1]);
    t.options.workers = 1025;
    assert_int_equal(
        gyre_attention_measure(context, &t.options, 0, &three, &error),
        GYRE_RANGE);
    assert_non_null(strstr(error.text, "1025 workers: 1 to 1024"));
    gyre_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_side_by_side_do_not_disturb_each_other),
        cmocka_unit_test(a_second_caller_gets_another_library),
        cmocka_unit_test(every_item_is_done_once),
        cmocka_unit_test(bits_do_not_depend_on_workers),
        cmocka_unit_test(scratch_is_for_all_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
