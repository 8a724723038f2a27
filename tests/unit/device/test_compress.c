/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/compress.h as a caller without a store meets it. */
#include "config.h"

#include "../unit.h"

#include <gyre/compress.h>

#include <math.h>

enum { N = 2500 };

static uint64_t room[8192];

static gyre_compression *open_one(gyre_context *context, const char *name)
{
    gyre_compression *c = NULL;

    assert_int_equal(gyre_compression_create(context, name, NULL, 0, &c, NULL),
                     GYRE_OK);
    assert_true(gyre_compression_bound(c, N) <= sizeof(room));
    return c;
}

static gyre_compression_job job_of(const float *g, float *left)
{
    gyre_compression_job job = {.size = sizeof(job)};

    job.elements = N;
    job.g = g;
    job.e_next = left;
    job.q = 1.0f;
    job.kappa = 1.0f;
    job.block = (uint8_t *)room;
    return job;
}

static void fill(float *g)
{
    for (int i = 0; i < N; i++)
        g[i] = sinf((float)i) / (float)(1 + i % 7);
}

static void test_what_is_sent_and_left_is_all(void **state)
{
    static const char *const names[] = {"topk", "quantize", "fp8"};
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    static float g[N], left[N], out[N];

    (void)state;
    fill(g);
    for (int k = 0; k < 3; k++) {
        gyre_compression *c = open_one(context, names[k]);
        gyre_compression_job job = job_of(g, left);
        double squares = 0;

        assert_int_equal(gyre_compression_run(c, &job, NULL), GYRE_OK);
        assert_int_equal(gyre_compression_decode(c, job.block, job.block_bytes,
                                                 N, out, NULL),
                         GYRE_OK);
        for (int i = 0; i < N; i++) {
            assert_true(out[i] + left[i] == g[i]);
            squares += (double)out[i] * (double)out[i];
        }
        assert_true(fabs(squares - job.sum_squares) <= 1e-12 * squares);
        gyre_compression_destroy(c);
    }
    gyre_compression_destroy(NULL);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_misuse_is_refused(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_compression *c = open_one(context, "topk");
    static float g[N], left[N];
    gyre_compression_job job;
    gyre_error error;

    (void)state;
    fill(g);
    assert_int_equal(gyre_compression_create(context, NULL, NULL, 0, &c, NULL),
                     GYRE_INVALID);
    assert_int_equal(gyre_compression_run(c, NULL, NULL), GYRE_INVALID);
    job = job_of(NULL, left);
    assert_int_equal(gyre_compression_run(c, &job, NULL), GYRE_INVALID);
    job = job_of(g, left);
    job.index = 1000;
    assert_int_equal(gyre_compression_run(c, &job, &error), GYRE_INVALID);
    unit_assert_text(&error, "1024");
    job = job_of(g, left);
    job.block++;
    assert_int_equal(gyre_compression_run(c, &job, NULL), GYRE_INVALID);
    job = job_of(g, left);
    g[7] = INFINITY;
    job.tensor = "wte";
    assert_int_equal(gyre_compression_run(c, &job, &error), GYRE_RANGE);
    unit_assert_text(&error, "wte");
    memset(room, 0, sizeof(room));
    assert_int_equal(gyre_compression_decode(c, (uint8_t *)room, sizeof(room),
                                             N, left, NULL),
                     GYRE_FORMAT);
    gyre_compression_destroy(c);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_each_request_may_fail(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_setting global = {"scope", 1};
    gyre_compression *c = NULL;
    static float g[N], left[N];
    gyre_compression_job job = job_of(g, left);
    uint64_t before;

    (void)state;
    fill(g);
    gyre_compression_destroy(open_one(context, "topk"));
    before = memory.bytes;
    for (uint64_t n = 1;; n++) {
        gyre_status status;

        memory.fail_at = memory.requests + n;
        status = gyre_compression_create(context, "topk", &global, 1, &c, NULL);
        if (status == GYRE_OK)
            status = gyre_compression_run(c, &job, NULL);
        memory.fail_at = 0;
        gyre_compression_destroy(c);
        c = NULL;
        assert_int_equal(memory.bytes, before);
        if (status == GYRE_OK)
            break;
        assert_int_equal(status, GYRE_NO_MEMORY);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_sent_and_left_is_all),
        cmocka_unit_test(test_misuse_is_refused),
        cmocka_unit_test(test_each_request_may_fail),
    };

    return cmocka_run_group_tests_name("device/compress", tests, NULL, NULL);
}
