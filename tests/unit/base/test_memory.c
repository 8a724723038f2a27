/* SPDX-License-Identifier: Apache-2.0 */
/* Counted memory: exact now and peak, overflow, alignment, refusal. */
#include "config.h"

#include "../unit.h"

#include "base/base.h"

static void test_count_follows_each_request(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    uint64_t base = gyre_context_memory(context, NULL);
    uint64_t peak = 0;
    char *a, *b;

    (void)state;
    assert_int_equal(base, memory.bytes);
    a = gyre_alloc(context, 100, 3);
    assert_non_null(a);
    assert_int_equal(gyre_context_memory(context, &peak), base + 300);
    assert_int_equal(peak, base + 300);
    b = gyre_alloc_aligned(context, 4096, 4096);
    assert_int_equal((uintptr_t)b % 4096, 0);
    assert_int_equal(gyre_context_memory(context, &peak), base + 4396);
    gyre_free(context, a, 100, 3);
    assert_int_equal(gyre_context_memory(context, &peak), base + 4096);
    assert_int_equal(peak, base + 4396);
    gyre_free_aligned(context, b, 4096, 4096);
    a = gyre_alloc(context, 4397, 1); /* one more than ever */
    gyre_free(context, a, 4397, 1);
    gyre_context_memory(context, &peak);
    assert_int_equal(peak, base + 4397);
    assert_int_equal(gyre_context_memory(context, &peak), base);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_grow_and_shrink(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    uint64_t base = gyre_context_memory(context, NULL);
    uint32_t *list = NULL;

    (void)state;
    for (size_t n = 0; n < 100; n++) {
        list = gyre_grow(context, list, n, n + 1, sizeof(*list));
        assert_non_null(list);
        list[n] = (uint32_t)n;
        assert_int_equal(gyre_context_memory(context, NULL),
                         base + 4 * (n + 1));
    }
    list = gyre_grow(context, list, 100, 10, sizeof(*list));
    for (uint32_t n = 0; n < 10; n++)
        assert_int_equal(list[n], n);
    assert_int_equal(gyre_context_memory(context, NULL), base + 40);
    gyre_free(context, list, 10, sizeof(*list));
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* The C library's allocator keeps contents when a block moves. */
static void test_default_allocator(void **state)
{
    gyre_context *context = NULL;
    unsigned char *a;
    uint64_t base;

    (void)state;
    assert_int_equal(gyre_context_create(NULL, &context, NULL), GYRE_OK);
    base = gyre_context_memory(context, NULL);
    a = gyre_alloc_zero(context, 10, 10);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(a[i], 0);
        a[i] = (unsigned char)i;
    }
    a = gyre_grow(context, a, 100, 100000, 1);
    for (int i = 0; i < 100; i++)
        assert_int_equal(a[i], i);
    gyre_free(context, a, 100000, 1);
    for (size_t align = 16; align <= 1 << 21; align *= 2) {
        a = gyre_alloc_aligned(context, 1000, align);
        assert_int_equal((uintptr_t)a % align, 0);
        memset(a, 1, 1000);
        gyre_free_aligned(context, a, 1000, align);
    }
    assert_int_equal(gyre_context_memory(context, NULL), base);
    gyre_context_destroy(context);
}

static void test_zero_bytes_are_a_block(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    void *a = gyre_alloc(context, 0, 8);
    void *b = gyre_alloc_zero(context, 8, 0);
    void *c = gyre_grow(context, NULL, 0, 0, 8);

    (void)state;
    assert_true(a != NULL && b != NULL && c != NULL);
    c = gyre_grow(context, c, 0, 4, 8);
    assert_non_null(c);
    gyre_free(context, a, 0, 8);
    gyre_free(context, b, 8, 0);
    gyre_free(context, c, 4, 8);
    gyre_free(context, NULL, 4, 8);
    gyre_free_aligned(context, NULL, 4, 64);
    gyre_free_text(context, NULL);
    assert_null(gyre_copy_text(context, NULL));
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_overflow_is_refused_before_the_allocator(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    uint64_t requests = memory.requests;
    uint64_t peak = 0, base = gyre_context_memory(context, &peak);
    void *block;

    (void)state;
    assert_null(gyre_alloc(context, SIZE_MAX, 2));
    assert_null(gyre_alloc(context, SIZE_MAX / 2 + 1, 2));
    assert_null(gyre_alloc(context, (size_t)1 << 32, (size_t)1 << 32));
    assert_null(gyre_alloc_zero(context, SIZE_MAX / 4, 8));
    assert_null(gyre_alloc(context, SIZE_MAX, 1));
    assert_null(gyre_alloc_aligned(context, SIZE_MAX, 64));
    assert_null(gyre_grow(context, NULL, 0, SIZE_MAX, 8));
    assert_int_equal(memory.requests, requests);
    assert_int_equal(gyre_context_memory(context, NULL), base);

    block = gyre_alloc(context, 10, 1);
    assert_null(gyre_grow(context, block, 10, SIZE_MAX, 1));
    gyre_free(context, block, 10, 1);
    gyre_context_memory(context, &peak);
    assert_int_equal(peak, base + 10);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* A refused request is counted nowhere, and the block stays as it was. */
static void test_refusal_changes_nothing(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    uint64_t base = gyre_context_memory(context, NULL);
    uint64_t peak = 0;
    char *text = gyre_copy_text(context, "held");

    (void)state;
    for (int i = 0; i < 5; i++) {
        memory.fail_at = memory.requests + 1;
        switch (i) {
        case 0:
            assert_null(gyre_alloc(context, 1000, 1));
            break;
        case 1:
            assert_null(gyre_alloc_zero(context, 1000, 1));
            break;
        case 2:
            assert_null(gyre_alloc_aligned(context, 1000, 512));
            break;
        case 3:
            assert_null(gyre_grow(context, text, 5, 1000, 1));
            break;
        default:
            assert_null(gyre_copy_text(context, "more"));
        }
        assert_string_equal(text, "held");
        assert_int_equal(gyre_context_memory(context, &peak), base + 5);
        assert_int_equal(peak, base + 5);
    }
    gyre_free_text(context, text);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* ---- many threads ---------------------------------------------------- */

static void *churn(void *user)
{
    gyre_context *context = user;

    for (int i = 0; i < 2000; i++) {
        size_t bytes = (size_t)(i * 37 % 512 + 1);
        char *block = gyre_alloc(context, bytes, 1);

        block[bytes - 1] = 1;
        block = gyre_grow(context, block, bytes, bytes * 2, 1);
        block[bytes * 2 - 1] = 1;
        gyre_free(context, block, bytes * 2, 1);
    }
    return NULL;
}

static void test_threads_keep_the_count(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    uint64_t base = gyre_context_memory(context, NULL);
    uint64_t peak = 0;
    pthread_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, context), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(gyre_context_memory(context, &peak), base);
    assert_true(peak >= base + 1024 && peak <= base + 4 * 1024);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count_follows_each_request),
        cmocka_unit_test(test_grow_and_shrink),
        cmocka_unit_test(test_default_allocator),
        cmocka_unit_test(test_zero_bytes_are_a_block),
        cmocka_unit_test(test_overflow_is_refused_before_the_allocator),
        cmocka_unit_test(test_refusal_changes_nothing),
        cmocka_unit_test(test_threads_keep_the_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
