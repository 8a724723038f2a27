/* SPDX-License-Identifier: Apache-2.0 */
/* Block kernels against a naive reference in double, over masks, layouts,
 * heads, dims and ways of calling. */
#include "config.h"

#include "kernel_case.h"

#include <float.h>
#include <math.h>

static const uint64_t bounds_a[] = {0, 7, 40, 41, 90};
static const uint64_t bounds_b[] = {3, 50, 150};
static const gyre_documents one_table[] = {{bounds_a, 4, 0}};
static const gyre_documents two_tables[] = {{bounds_a, 4, 0}, {bounds_b, 2, 0}};
static const uint8_t blocks[] = {1, 0, 1, 1, 0, 1, 0, 0, 1};
static const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0625f};

#define CAUSAL      \
    {               \
        .causal = 1 \
    }
#define WINDOW                   \
    {                            \
        .causal = 1, .window = 9 \
    }
#define BOTH_WAYS    \
    {                \
        .window = 70 \
    }
#define DOCUMENTS                                                \
    {                                                            \
        .causal = 1, .document_count = 1, .documents = one_table \
    }
#define DOCUMENTS_2                                  \
    {                                                \
        .document_count = 2, .documents = two_tables \
    }
#define BLOCKS                                                           \
    {                                                                    \
        .blocks = blocks, .block_q = 40, .block_k = 33, .block_rows = 3, \
        .block_columns = 3                                               \
    }

static const kernel_shape shapes[] = {
    {"full", 1, 1, 1, 32, 32, 64, 64, .mask = {.causal = 0}},
    {"causal", 2, 2, 2, 64, 64, 130, 130, .mask = CAUSAL},
    {"long", 1, 1, 1, 32, 32, 600, 1100, .mask = CAUSAL},
    {"grouped", 1, 4, 2, 32, 48, 77, 77, .mask = CAUSAL, .layout = CASE_ZIGZAG},
    {"one KV head", 2, 4, 1, 40, 24, 61, 93, .mask = CAUSAL,
     .layout = CASE_STRIPED},
    {"window", 1, 2, 1, 128, 128, 100, 100, .mask = WINDOW,
     .layout = CASE_STRIPED},
    {"both ways", 1, 1, 1, 32, 32, 300, 300, .mask = BOTH_WAYS,
     .layout = CASE_ODD},
    {"documents", 2, 2, 2, 32, 32, 100, 100, .mask = DOCUMENTS,
     .layout = CASE_ODD},
    {"two tables", 2, 2, 2, 32, 32, 160, 160, .mask = DOCUMENTS_2,
     .layout = CASE_ZIGZAG},
    {"blocks", 1, 1, 1, 32, 32, 130, 110, .mask = BLOCKS, .layout = CASE_ODD},
    {"head dim 256", 1, 1, 1, 256, 256, 37, 45, .mask = CAUSAL},
    {"one token", 1, 2, 2, 32, 32, 1, 1, .mask = CAUSAL},
    {"scale", 1, 1, 1, 32, 32, 50, 50, .params = {.scale = 0.7}},
    {"alibi", 1, 4, 4, 32, 32, 90, 90, .mask = CAUSAL,
     .params = {.slopes = slopes}, .layout = CASE_STRIPED},
    {"dropout", 2, 4, 2, 32, 40, 83, 83, .mask = CAUSAL,
     .params = {.dropout = 0.3, .seed = 0x123456789abcdefu},
     .layout = CASE_ZIGZAG},
    {"all of it", 2, 4, 2, 48, 32, 100, 100, .mask = DOCUMENTS_2,
     .params = {.dropout = 0.1, .seed = 9, .scale = 0.2, .slopes = slopes},
     .layout = CASE_ODD},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static const case_how ways[] = {
    {.kernel = "", .workers = 1},
    {.kernel = "", .workers = 3, .gap = 5},
    {.kernel = "", .workers = 1, .split = 2, .by_head = true, .gap = 1},
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static void f64_is_the_naive_reference(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < SHAPES; i++)
        for (size_t w = 0; w < WAYS; w++) {
            if (unit_sampled() && w != i % WAYS)
                continue;
            kernel_case c;
            case_how how = ways[w];

            how.kernel = "f64";
            case_make(&c, &shapes[i], GYRE_F64, i);
            kernel_values ref = case_naive(&c);
            kernel_values got = case_run(&c, &how);
            /* The naive sums are off by as much: 1e-12 of the largest. */
            values_check(shapes[i].name, &got, &ref, &ref, 0.25e-12);
            values_free(&got);
            values_free(&ref);
            case_free(&c);
        }
}

static void within_the_rule(const char *kernel, gyre_dtype dtype, uint32_t tile)
{
    for (size_t i = 0; i < SHAPES; i++)
        for (size_t w = 0; w < WAYS; w++) {
            if (unit_sampled() && w != i % WAYS)
                continue;
            kernel_case c;
            case_how how = ways[w];
            kernel_shape shape = shapes[i];

            how.kernel = kernel;
            shape.params.tile = tile;
            case_make(&c, &shape, dtype, i);
            kernel_values ref = case_naive(&c), plain = case_plain(&c);
            kernel_values got = case_run(&c, &how);
            values_check(shapes[i].name, &got, &plain, &ref, FLT_EPSILON);
            values_free(&got);
            values_free(&ref);
            values_free(&plain);
            case_free(&c);
        }
}

static void f32_is_as_good_as_plain_loops(void **unused)
{
    (void)unused;
    within_the_rule("f32", GYRE_F32, 0);
}

static void bf16_is_as_good_as_plain_loops(void **unused)
{
    (void)unused;
    within_the_rule("bf16", GYRE_BF16, 0);
}

static void fixed_tiles_are_as_good(void **unused)
{
    (void)unused;
    within_the_rule("f32", GYRE_F32, 32);
    within_the_rule("bf16", GYRE_BF16, 24);
}

static void same_values(const char *what, const kernel_values *a,
                        const kernel_values *b)
{
    if (memcmp(a->o, b->o, a->o_n * 8) || memcmp(a->lse, b->lse, a->lse_n * 8))
        fail_msg("%s: another (O, LSE)", what);
    if (memcmp(a->dq, b->dq, a->dq_n * 8) ||
        memcmp(a->dk, b->dk, a->dk_n * 8) || memcmp(a->dv, b->dv, a->dv_n * 8))
        fail_msg("%s: other gradients", what);
}

static void workers_change_no_bit(void **unused)
{
    static const char *const names[] = {"f32", "bf16", "f64", "count"};

    (void)unused;
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < SHAPES; i += 3) {
            kernel_case c;
            case_how one = {.kernel = names[k], .workers = 1};
            case_how many = {.kernel = names[k], .workers = 5};

            case_make(&c, &shapes[i], gyre_kernel_find(names[k])->dtype, i);
            kernel_values a = case_run(&c, &one);
            kernel_values b = case_run(&c, &many);
            same_values(shapes[i].name, &a, &b);
            values_free(&a);
            values_free(&b);
            case_free(&c);
        }
}

static void count_counts(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < SHAPES; i++) {
        kernel_case c;
        const kernel_shape *s = &shapes[i];
        case_how how = {.kernel = "count", .workers = 2, .split = 2};
        double o = 0, dq = 0, dk = 0, dv = 0, area = 0;

        case_make(&c, s, GYRE_F64, i);
        kernel_values got = case_run(&c, &how);
        for (uint32_t q = 0; q < c.q_count; q++)
            for (uint32_t k = 0; k < c.kv_count; k++) {
                gyre_chunk rows = {c.q[q].start, c.q[q].length, c.q[q].stride,
                                   0, 0};
                gyre_chunk keys = {c.kv[k].start, c.kv[k].length,
                                   c.kv[k].stride, 0, 0};

                area += (double)gyre_mask_area(&c.shape.mask, s->batch, &rows,
                                               &keys);
            }
        area *= s->heads;
        for (size_t n = 0; n < got.o_n; n++)
            o += got.o[n];
        for (size_t n = 0; n < got.dq_n; n++)
            dq += got.dq[n];
        for (size_t n = 0; n < got.dk_n; n++)
            dk += got.dk[n];
        for (size_t n = 0; n < got.dv_n; n++)
            dv += got.dv[n];
        assert_true(o == area * s->v_dim && dq == area * s->dim);
        assert_true(dk == area * s->dim && dv == area * s->v_dim);
        values_free(&got);
        case_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f64_is_the_naive_reference),
        cmocka_unit_test(f32_is_as_good_as_plain_loops),
        cmocka_unit_test(bf16_is_as_good_as_plain_loops),
        cmocka_unit_test(fixed_tiles_are_as_good),
        cmocka_unit_test(workers_change_no_bit),
        cmocka_unit_test(count_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
