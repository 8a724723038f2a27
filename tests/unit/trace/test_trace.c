/* SPDX-License-Identifier: Apache-2.0 */
/* Recording and reading: order, full rings, threads, contexts, refusal. */
#include "config.h"

#include "../unit.h"

#include "trace/trace.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

static gyre_context *traced(unit_memory *memory, uint32_t records)
{
    gyre_context_options options = unit_options(memory);
    gyre_context *context = NULL;

    options.trace_records = records;
    assert_int_equal(gyre_context_create(&options, &context, NULL), GYRE_OK);
    return context;
}

/* ---- what a reader saw ----------------------------------------------- */

enum { SEEN = 4096 };

typedef struct list {
    size_t count;
    size_t stop_at;
    gyre_span spans[SEEN];
} list;

static int collect(void *user, const gyre_span *span)
{
    list *seen = user;

    assert_true(seen->count < SEEN);
    seen->spans[seen->count++] = *span;
    return seen->count == seen->stop_at;
}

static list *read_all(gyre_context *context)
{
    static list seen;

    seen.count = 0;
    seen.stop_at = 0;
    assert_int_equal(gyre_trace_each(context, collect, &seen, NULL), GYRE_OK);
    return &seen;
}

#ifdef GYRE_NO_TRACE

static void test_compiled_out(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = traced(&memory, 64);
    uint64_t before = memory.requests;
    gyre_error error = {0};

    (void)state;
    assert_int_equal(gyre_trace_intern(context, "a"), 0);
    gyre_trace_record(context, GYRE_TRACE_HOST, 1, 1, 2, 3);
    gyre_trace_span(context, GYRE_TRACE_HOST, 1, 1, 2, 3);
    assert_int_equal(gyre_trace_begin(1), 0);
    gyre_trace_name_thread(context, "main");
    assert_int_equal(read_all(context)->count, 0);
    assert_int_equal(memory.requests, before);
    assert_int_equal(gyre_trace_write_json(context, "/dev/null", &error),
                     GYRE_UNSUPPORTED);
    unit_assert_text(&error, "--disable-trace");
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

#else

static void test_off_costs_nothing(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = traced(&memory, 0);
    uint64_t before = memory.requests;
    gyre_error error = {0};

    (void)state;
    assert_int_equal(gyre_trace_intern(context, "a"), 0);
    assert_int_equal(gyre_trace_begin(0), 0);
    gyre_trace_span(context, GYRE_TRACE_HOST, 0, 1, 2, 3);
    gyre_trace_end(context, GYRE_TRACE_HOST, 0, 1, 2);
    gyre_trace_record(context, GYRE_TRACE_HOST, 0, 1, 2, 3);
    gyre_trace_record(context, GYRE_TRACE_HOST, 1, 1, 2, 3);
    gyre_trace_name_thread(context, "main");
    gyre_trace_clear(context);
    assert_int_equal(gyre_trace_dropped(context), 0);
    assert_true(gyre_trace_cost(context) == 0);
    assert_int_equal(read_all(context)->count, 0);
    assert_int_equal(gyre_trace_write_json(context, "/dev/null", &error),
                     GYRE_STATE);
    unit_assert_text(&error, "trace_records");
    assert_int_equal(memory.requests, before);
    gyre_context_destroy(context);
}

static void test_names(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = traced(&memory, 64);
    uint32_t first = gyre_trace_intern(context, "read");
    char text[16];

    (void)state;
    assert_int_not_equal(first, 0);
    for (int i = 0; i < 100; i++) {
        uint32_t number;

        snprintf(text, sizeof(text), "n%d", i);
        number = gyre_trace_intern(context, text);
        assert_int_not_equal(number, 0);
        assert_int_not_equal(number, first);
        assert_int_equal(gyre_trace_intern(context, text), number);
    }
    assert_int_equal(gyre_trace_intern(context, "read"), first);
    assert_int_equal(gyre_trace_intern(context, NULL), 0);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_category_names(void **state)
{
    (void)state;
    assert_string_equal(gyre_trace_category_name(GYRE_TRACE_HOST), "host");
    assert_string_equal(gyre_trace_category_name(GYRE_TRACE_COMPUTE),
                        "compute");
    assert_string_equal(gyre_trace_category_name(GYRE_TRACE_STORAGE_READ),
                        "storage read");
    assert_string_equal(gyre_trace_category_name(GYRE_TRACE_STORAGE_WRITE),
                        "storage write");
    assert_string_equal(gyre_trace_category_name(GYRE_TRACE_LINK), "link");
    assert_null(gyre_trace_category_name(GYRE_TRACE_CATEGORY_COUNT));
    assert_null(gyre_trace_category_name((gyre_trace_category)-1));
}

static void test_read_back_in_order(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = traced(&memory, 64);
    uint32_t read = gyre_trace_intern(context, "read");
    uint32_t step = gyre_trace_intern(context, "step");
    uint64_t begin;
    list *seen;

    (void)state;
    /* recorded at their ends, as nested spans are */
    gyre_trace_span(context, GYRE_TRACE_STORAGE_READ, read, 20, 30, 4096);
    gyre_trace_span(context, GYRE_TRACE_COMPUTE, read, 10, 15, 1);
    gyre_trace_span(context, GYRE_TRACE_HOST, step, 10, 40, 2);
    gyre_trace_span(context, GYRE_TRACE_LINK, read, 50, 45, 3);
    gyre_trace_span(context, (gyre_trace_category)77, read, 60, 61, 0);
    begin = gyre_trace_begin(step);
    gyre_trace_end(context, GYRE_TRACE_HOST, step, begin, 9);
    seen = read_all(context);
    assert_int_equal(seen->count, 6);
    assert_string_equal(seen->spans[0].name, "step"); /* the outer one */
    assert_int_equal(seen->spans[0].end, 40);
    assert_int_equal(seen->spans[1].arg, 1);
    assert_int_equal(seen->spans[1].category, GYRE_TRACE_COMPUTE);
    assert_int_equal(seen->spans[2].begin, 20);
    assert_int_equal(seen->spans[2].end, 30);
    assert_int_equal(seen->spans[2].arg, 4096);
    assert_int_equal(seen->spans[2].category, GYRE_TRACE_STORAGE_READ);
    assert_int_equal(seen->spans[2].thread, 1);
    assert_null(seen->spans[2].thread_name);
    assert_int_equal(seen->spans[3].begin, 50);
    assert_int_equal(seen->spans[3].end, 50); /* an end before begin */
    assert_int_equal(seen->spans[4].category, GYRE_TRACE_HOST);
    assert_true(begin > 0 && seen->spans[5].begin == begin);
    assert_true(seen->spans[5].end >= begin);
    assert_int_equal(read_all(context)->count, 6); /* reading keeps */

    seen->count = 0;
    seen->stop_at = 2;
    assert_int_equal(gyre_trace_each(context, collect, seen, NULL), GYRE_OK);
    assert_int_equal(seen->count, 2);
    assert_int_equal(gyre_trace_each(context, NULL, seen, NULL), GYRE_INVALID);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* Sorting against insertion into a list kept in order, for many sizes. */
static void test_order_of_many(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = traced(&memory, 500);
    uint32_t name = gyre_trace_intern(context, "x");
    uint32_t random = 1;

    (void)state;
    for (int count = 0; count < 500; count += 37) {
        list *seen;

        gyre_trace_clear(context);
        for (int i = 0; i < count; i++) {
            random = random * 1664525u + 1013904223u;
            gyre_trace_span(context, GYRE_TRACE_HOST, name, random >> 24,
                            (random >> 24) + (random >> 8) % 16, (uint64_t)i);
        }
        seen = read_all(context);
        assert_int_equal(seen->count, count);
        for (int i = 1; i < count; i++) {
            const gyre_span *a = &seen->spans[i - 1];
            const gyre_span *b = &seen->spans[i];

            assert_true(
                a->begin < b->begin ||
                (a->begin == b->begin &&
                 (a->end > b->end || (a->end == b->end && a->arg < b->arg))));
        }
    }
    gyre_context_destroy(context);
}

/* The newest is dropped and counted; after a clear the ring goes round. */
static void test_full_ring(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = traced(&memory, 5); /* no power of two */
    uint32_t name = gyre_trace_intern(context, "x");

    (void)state;
    for (uint64_t lap = 0; lap < 7; lap++) {
        uint64_t first = lap * 100 + 1;
        uint64_t count = lap == 3 ? 3 : 9;
        list *seen;

        for (uint64_t i = 0; i < count; i++)
            gyre_trace_span(context, GYRE_TRACE_HOST, name, first + i,
                            first + i, i);
        seen = read_all(context);
        assert_int_equal(seen->count, count < 5 ? count : 5);
        for (size_t i = 0; i < seen->count; i++)
            assert_int_equal(seen->spans[i].begin, first + i);
        assert_int_equal(gyre_trace_dropped(context), count < 5 ? 0 : 4);
        gyre_trace_clear(context);
        assert_int_equal(read_all(context)->count, 0);
        assert_int_equal(gyre_trace_dropped(context), 0);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_two_contexts_in_one_thread(void **state)
{
    unit_memory memory[2] = {{0}, {0}};
    gyre_context *one = traced(&memory[0], 16);
    gyre_context *two = traced(&memory[1], 16);
    uint32_t a = gyre_trace_intern(one, "a");
    uint32_t b;

    (void)state;
    gyre_trace_intern(two, "unused");
    b = gyre_trace_intern(two, "b");
    for (uint64_t i = 1; i <= 3; i++) {
        gyre_trace_span(one, GYRE_TRACE_HOST, a, i, i, 1);
        gyre_trace_span(two, GYRE_TRACE_LINK, b, i, i, 2);
        gyre_trace_span(two, GYRE_TRACE_LINK, b, i, i + 1, 2);
    }
    assert_int_equal(read_all(one)->count, 3);
    assert_string_equal(read_all(one)->spans[0].name, "a");
    assert_int_equal(read_all(two)->count, 6);
    assert_string_equal(read_all(two)->spans[0].name, "b");
    gyre_context_destroy(one);
    unit_memory_check(&memory[0]);
    gyre_trace_span(two, GYRE_TRACE_LINK, b, 9, 9, 2);
    assert_int_equal(read_all(two)->count, 7);
    gyre_context_destroy(two);
    unit_memory_check(&memory[1]);
}

/* ---- threads --------------------------------------------------------- */

typedef struct job {
    gyre_context *context;
    uint32_t name;
    uint64_t number;
    uint64_t count;
    _Atomic int *running;
} job;

/* begin, end and arg of a record agree, so that half of one would show. */
static void *emit(void *user)
{
    job *work = user;
    char name[16];

    snprintf(name, sizeof(name), "worker %u", (unsigned)work->number);
    gyre_trace_name_thread(work->context, name);
    for (uint64_t i = 1; i <= work->count; i++) {
        uint64_t begin = work->number << 32 | i;

        gyre_trace_span(work->context, GYRE_TRACE_COMPUTE, work->name, begin,
                        begin * 2, begin * 3);
    }
    if (work->running != NULL)
        atomic_fetch_sub(work->running, 1);
    return NULL;
}

static int check_whole(void *user, const gyre_span *span)
{
    char name[16];

    snprintf(name, sizeof(name), "worker %u", (unsigned)(span->begin >> 32));
    if (span->end != span->begin * 2 || span->arg != span->begin * 3 ||
        span->thread_name == NULL || strcmp(span->thread_name, name) != 0)
        fail_msg("a torn record of thread %u", span->thread);
    ++*(uint64_t *)user;
    return 0;
}

/* Four writers, while another thread reads and clears: nothing torn, nothing
 * counted twice. */
static void test_read_and_clear_while_others_write(void **state)
{
    enum { THREADS = 4, EACH = 20000 };
    unit_memory memory = {0};
    gyre_context *context = traced(&memory, 256);
    uint32_t name = gyre_trace_intern(context, "x");
    _Atomic int running = THREADS;
    pthread_t threads[THREADS];
    job jobs[THREADS];
    uint64_t seen = 0;
    uint64_t last = 0;

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){context, name, (uint64_t)i + 1, EACH, &running};
        assert_int_equal(pthread_create(&threads[i], NULL, emit, &jobs[i]), 0);
    }
    while (atomic_load(&running) > 0) {
        assert_int_equal(gyre_trace_each(context, check_whole, &seen, NULL),
                         GYRE_OK);
        gyre_trace_dropped(context);
        gyre_trace_clear(context);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(gyre_trace_each(context, check_whole, &last, NULL),
                     GYRE_OK);
    assert_true(seen + last <= THREADS * EACH);
    assert_true(last <= THREADS * 256);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* Without a reader in between the account is exact. */
static void test_kept_and_dropped_add_up(void **state)
{
    enum { THREADS = 3 };
    unit_memory memory = {0};
    gyre_context *context = traced(&memory, 100);
    uint32_t name = gyre_trace_intern(context, "x");
    pthread_t threads[THREADS];
    job jobs[THREADS];
    uint64_t kept = 0;

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        jobs[i] =
            (job){context, name, (uint64_t)i + 1, (uint64_t)(i + 1) * 75, NULL};
        assert_int_equal(pthread_create(&threads[i], NULL, emit, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(gyre_trace_each(context, check_whole, &kept, NULL),
                     GYRE_OK);
    /* threads may follow one another in one ring, never lose a record */
    assert_int_equal(kept + gyre_trace_dropped(context), 75 + 150 + 225);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* A ring outlives its thread, is read, and goes to the next new one. */
static void test_threads_come_and_go(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = traced(&memory, 512);
    uint32_t name = gyre_trace_intern(context, "x");
    uint64_t bytes = 0;
    uint64_t kept = 0;
    list *seen;

    (void)state;
    for (uint64_t i = 1; i <= 12; i++) {
        job work = {context, name, i, 10, NULL};
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, emit, &work), 0);
        pthread_join(thread, NULL);
        if (i == 1)
            bytes = gyre_context_memory(context, NULL);
    }
    /* no ring beside the first; only the names of the threads */
    assert_true(gyre_context_memory(context, NULL) < bytes + 512);
    assert_int_equal(gyre_trace_each(context, check_whole, &kept, NULL),
                     GYRE_OK);
    assert_int_equal(kept, 120);
    seen = read_all(context);
    for (size_t i = 0; i < seen->count; i++)
        assert_int_equal(seen->spans[i].thread, seen->spans[i].begin >> 32);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void *pass_by(void *user)
{
    job *work = user;

    gyre_trace_span(work->context, GYRE_TRACE_HOST, work->name, 1, 2, 3);
    atomic_store(work->running, 1);
    while (atomic_load(work->running) != 2)
        continue;
    return NULL;
}

/* A thread that once recorded ends after the context is gone. */
static void test_thread_outlives_context(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = traced(&memory, 16);
    _Atomic int phase = 0;
    job work = {context, gyre_trace_intern(context, "x"), 0, 0, &phase};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, pass_by, &work), 0);
    while (atomic_load(&phase) != 1)
        continue;
    assert_int_equal(read_all(context)->count, 1);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    atomic_store(&phase, 2);
    pthread_join(thread, NULL);
}

/* ---- cost and refusal ------------------------------------------------ */

static void test_cost_leaves_nothing(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = traced(&memory, 16);
    uint64_t bytes;

    (void)state;
    gyre_trace_intern(context, "x");
    bytes = memory.bytes;
    assert_true(gyre_trace_cost(context) > 0);
    assert_int_equal(memory.bytes, bytes);
    assert_int_equal(read_all(context)->count, 0);
    gyre_context_destroy(context);
}

static gyre_status all_of_it(gyre_context *context, bool *whole)
{
    static list seen;
    uint32_t name = gyre_trace_intern(context, "one");
    gyre_error error = {0};
    gyre_status status;

    gyre_trace_name_thread(context, "main");
    gyre_trace_span(context, GYRE_TRACE_HOST, name, 1, 2, 3);
    seen.count = 0;
    seen.stop_at = 0;
    status = gyre_trace_each(context, collect, &seen, &error);
    *whole = seen.count == 1 && seen.spans[0].thread_name != NULL;
    if (status == GYRE_OK) {
        status = gyre_trace_write_json(context, "/dev/null", &error);
    }
    if (status != GYRE_OK)
        unit_assert_text(&error, "memory");
    return status;
}

/* Out of memory the trace is poorer, and says so; nothing else breaks. */
static void test_each_allocation_may_fail(void **state)
{
    bool whole = false;
    uint64_t refused = 0;

    (void)state;
    for (uint64_t n = 1; !whole || refused == 0; n++) {
        unit_memory memory = {0};
        gyre_context *context = traced(&memory, 8);
        gyre_status status;

        memory.fail_at = memory.requests + n;
        status = all_of_it(context, &whole);
        refused = memory.requests < memory.fail_at;
        assert_true(status == GYRE_OK || status == GYRE_NO_MEMORY);
        if (refused)
            assert_true(status == GYRE_OK && whole);
        else
            whole = false;
        memory.fail_at = 0;
        assert_int_equal(all_of_it(context, &whole), GYRE_OK);
        gyre_context_destroy(context);
        unit_memory_check(&memory);
        whole = refused;
        assert_true(n < 50);
    }
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef GYRE_NO_TRACE
        cmocka_unit_test(test_compiled_out),
#else
        cmocka_unit_test(test_off_costs_nothing),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_category_names),
        cmocka_unit_test(test_read_back_in_order),
        cmocka_unit_test(test_order_of_many),
        cmocka_unit_test(test_full_ring),
        cmocka_unit_test(test_two_contexts_in_one_thread),
        cmocka_unit_test(test_read_and_clear_while_others_write),
        cmocka_unit_test(test_kept_and_dropped_add_up),
        cmocka_unit_test(test_threads_come_and_go),
        cmocka_unit_test(test_thread_outlives_context),
        cmocka_unit_test(test_cost_leaves_nothing),
        cmocka_unit_test(test_each_allocation_may_fail),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
