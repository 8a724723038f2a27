/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The example gpt towards its caller and the system: memory as announced, every
 * refusal of the system, bad input, the order of the callbacks, and the pool of
 * threads.
 */
#include "small_gpt.h"

/* Sees the pool itself. */
#include "gpt_internal.h"

#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static size_t in_use(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

static void memory_is_as_announced(void **state)
{
    static const gpt_config config = {.layers = 3,
                                      .heads = 4,
                                      .width = 64,
                                      .context = 64,
                                      .threads = 2,
                                      .seed = 1};
    const size_t announced = gpt_memory(&config, 4);
    size_t before, used;
    gpt *g;

    (void)state;
    gpt_destroy(make(config)); /* what the C library keeps for threads */
    before = in_use();
    g = make(config);
    assert_int_equal(gpt_reserve(g, 4), 0);
    used = in_use() - before;
    if (used == 0) { /* a sanitizer's allocator keeps no such account */
        gpt_destroy(g);
        skip();
    }
    if (used > announced + announced / 50 || announced > used + used / 50)
        fail_msg("announced %zu bytes, used %zu", announced, used);
    gpt_destroy(g);
}

/* ---- failures of the system ---- */

/* The linker sends the model's calls here (--wrap, see local.mk). Number
 * `refuse` of them fails; 0: none. */
static int refuse;

static bool refused(void)
{
    return refuse > 0 && --refuse == 0;
}

typedef void *(*thread_fn)(void *);
void *__real_calloc(size_t n, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          thread_fn fn, void *arg);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          thread_fn fn, void *arg);

void *__wrap_calloc(size_t n, size_t size)
{
    return refused() ? NULL : __real_calloc(n, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return refused() ? NULL : __real_aligned_alloc(align, size);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          thread_fn fn, void *arg)
{
    return refused() ? EAGAIN
                     : __real_pthread_create(thread, attributes, fn, arg);
}

static void creation_fails_cleanly(void **state)
{
    gpt_config config = odd;
    gpt *g = NULL;
    int call = 0;

    (void)state;
    config.threads = 3;
    while (!g) {
        char reason[200] = "";

        refuse = ++call;
        g = gpt_create(&config, reason, sizeof reason);
        if (!g && !strstr(reason, "no memory or threads"))
            fail_msg("call %d: \"%s\"", call, reason);
        assert_true(call < 100);
    }
    /* struct, table, names, arena, pool, two threads */
    assert_int_equal(call, 8);
    refuse = 1;
    assert_null(gpt_create(&config, NULL, 0));
    refuse = 0;
    gpt_destroy(g);
}

static void workspace_fails_cleanly(void **state)
{
    gpt *g = make(odd), *plain = make(odd);
    uint8_t byte = 0;

    (void)state;
    refuse = 1;
    assert_int_equal(gpt_reserve(g, 2), -1);
    assert_non_null(strstr(gpt_error(g), "no memory for a workspace"));
    refuse = 1;
    assert_true(train_step(g, 1.0f) == -1.0);
    assert_non_null(strstr(gpt_error(g), "no memory for a workspace"));
    refuse = 1;
    assert_int_equal(gpt_generate(g, NULL, 0, 1, 0.0, 0, 1, &byte), -1);
    refuse = 2;
    assert_int_equal(gpt_generate(g, NULL, 0, 1, 0.0, 0, 1, &byte), -1);
    assert_non_null(strstr(gpt_error(g), "no memory for a window"));
    refuse = 1; /* a larger one: the old block is gone, the model is not */
    assert_int_equal(gpt_reserve(g, 9), -1);
    assert_int_equal(refuse, 0);
    assert_true(train_step(g, 1.0f) == train_step(plain, 1.0f));
    gpt_destroy(plain);
    gpt_destroy(g);
}

static void impossible_sizes(void **state)
{
    gpt_config config = odd;
    char reason[200] = "";

    (void)state;
    config.heads = 5;
    assert_null(gpt_create(&config, reason, sizeof reason));
    assert_non_null(strstr(reason, "divide width"));
    assert_int_equal(gpt_memory(&config, 1), 0);
    config = odd;
    assert_int_equal(gpt_memory(&config, SIZE_MAX / 8), 0);
    config.width = 3 * 100000000;
    config.layers = 4096;
    assert_int_equal(gpt_memory(&config, 1), 0);
    assert_null(gpt_create(&config, reason, sizeof reason));
}

static void bad_input(void **state)
{
    gpt *g = make(odd);
    int32_t tokens[2] = {1, 256};

    (void)state;
    assert_true(gpt_loss(g, tokens, tokens + 1, 1, 1) == -1.0);
    assert_non_null(strstr(gpt_error(g), "targets[0] is 256"));
    assert_true(gpt_loss(g, tokens, tokens, 0, 1) == -1.0);
    assert_true(gpt_loss(g, tokens, tokens, 1, 41) == -1.0);
    assert_null(gpt_parameter_at(g, gpt_parameter_count(g)));
    gpt_destroy(g);
}

typedef struct record {
    size_t order[64], n;
    bool refused;
} record;

/* A caller may overwrite a parameter as soon as it is announced. */
static void on_gradient(gpt *g, size_t i, void *user)
{
    record *r = user;
    const gpt_parameter *p = gpt_parameter_at(g, i);
    int32_t token = 0;

    r->order[r->n++] = i;
    r->refused = gpt_loss(g, &token, &token, 1, 1) == -1.0;
    for (size_t k = 0; k < p->n; k++)
        p->data[k] = 1e30f;
}

static void callback_order(void **state)
{
    gpt *g = make(odd), *plain = make(odd);
    record r = {.n = 0};
    const size_t count = gpt_parameter_count(g);
    bool seen[64] = {false};

    (void)state;
    gpt_on_gradient(g, on_gradient, &r);
    assert_true(train_step(g, 1.0f) == train_step(plain, 1.0f));
    assert_int_equal(r.n, count);
    assert_true(r.refused);
    assert_string_equal(gpt_parameter_at(g, r.order[0])->name,
                        "lm_head.weight");
    assert_string_equal(gpt_parameter_at(g, r.order[count - 1])->name,
                        "wpe.weight");
    for (size_t i = 0; i < count; i++) {
        assert_false(seen[r.order[i]]);
        seen[r.order[i]] = true;
    }
    expect_same_gradients(g, plain);
    gpt_destroy(plain);
    gpt_destroy(g);
}

typedef struct delivery {
    float *fresh[64]; /* what the optimizer is about to write */
    size_t n, calls;
    bool in_order, refused;
} delivery;

static void take_away(gpt *g, delivery *d)
{
    d->n = d->calls = 0;
    d->in_order = d->refused = true;
    for (size_t i = 0; i < gpt_parameter_count(g); i++) {
        const gpt_parameter *p = gpt_parameter_at(g, i);

        d->fresh[i] = malloc(p->n * sizeof(float));
        assert_non_null(d->fresh[i]);
        memcpy(d->fresh[i], p->data, p->n * sizeof(float));
        for (size_t k = 0; k < p->n; k++)
            p->data[k] = NAN;
    }
}

static void deliver(gpt *g, size_t i, void *user)
{
    delivery *d = user;
    int32_t token = 0;

    d->calls++;
    d->in_order &= i == d->n++;
    d->refused &= gpt_loss(g, &token, &token, 1, 1) == -1.0;
    if (!d->fresh[i])
        return;
    memcpy(gpt_parameter_at(g, i)->data, d->fresh[i],
           gpt_parameter_at(g, i)->n * sizeof(float));
    free(d->fresh[i]);
    d->fresh[i] = NULL;
}

static void check_delivery(const gpt *g, const delivery *d)
{
    assert_int_equal(d->calls, gpt_parameter_count(g));
    assert_true(d->in_order);
    assert_true(d->refused);
}

/* Weights are NaN until they are announced, and the results the usual. */
static void parameters_are_awaited(void **state)
{
    gpt *g = make(odd), *plain = make(odd);
    int32_t tokens[20];
    uint8_t a[60], b[60];
    delivery d;

    (void)state;
    fill(tokens, 20, 8);
    gpt_on_parameter(g, deliver, &d);
    take_away(g, &d);
    assert_true(train_step(g, 1.0f) == train_step(plain, 1.0f));
    check_delivery(g, &d);
    expect_same_gradients(g, plain);
    take_away(g, &d);
    assert_true(gpt_loss(g, tokens, tokens + 10, 1, 10) ==
                gpt_loss(plain, tokens, tokens + 10, 1, 10));
    check_delivery(g, &d);
    take_away(g, &d); /* 60 bytes: the window slides */
    gpt_generate(g, NULL, 0, sizeof a, 1.0, 0, 3, a);
    check_delivery(g, &d);
    gpt_generate(plain, NULL, 0, sizeof b, 1.0, 0, 3, b);
    assert_memory_equal(a, b, sizeof a);
    assert_true(gpt_loss(g, tokens, tokens, 1, 41) == -1.0);
    check_delivery(g, &d); /* no more calls */
    gpt_on_parameter(g, NULL, NULL);
    assert_true(train_step(g, 1.0f) == train_step(plain, 1.0f));
    check_delivery(g, &d);
    gpt_destroy(plain);
    gpt_destroy(g);
}

/* ---- pool ---- */

enum { MOST_TASKS = 300 };

static void count_task(void *job, size_t task, size_t worker)
{
    unsigned char *hits = job;

    (void)worker;
    hits[task]++; /* not atomic: the thread sanitizer watches */
}

static void every_task_runs_once(void **state)
{
    const int rounds = in_valgrind() ? 20 : 500;
    uint32_t random = 1;

    (void)state;
    for (size_t threads = 1; threads <= 5; threads++) {
        gpt_pool *pool = gpt_pool_create(threads);

        assert_non_null(pool);
        for (int round = 0; round < rounds; round++) {
            unsigned char hits[MOST_TASKS] = {0};
            size_t tasks;

            random = random * 1664525u + 1013904223u;
            tasks = (random >> 16) % MOST_TASKS;
            gpt_pool_run(pool, count_task, hits, tasks);
            for (size_t t = 0; t < MOST_TASKS; t++)
                assert_int_equal(hits[t], t < tasks);
        }
        gpt_pool_destroy(pool);
    }
}

static void hold_the_first(void *job, size_t task, size_t worker)
{
    atomic_size_t *done = job;

    (void)worker;
    while (task == 0 && atomic_load(done) != MOST_TASKS - 1)
        sched_yield();
    atomic_fetch_add(done, 1);
}

/* Never ends when tasks belong to threads before somebody runs them. */
static void held_thread_holds_one_task(void **state)
{
    gpt_pool *pool = gpt_pool_create(2);

    (void)state;
    assert_non_null(pool);
    for (int round = 0; round < 20; round++) {
        atomic_size_t done = 0;

        gpt_pool_run(pool, hold_the_first, &done, MOST_TASKS);
        assert_int_equal(atomic_load(&done), MOST_TASKS);
    }
    gpt_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_as_announced),
        cmocka_unit_test(creation_fails_cleanly),
        cmocka_unit_test(workspace_fails_cleanly),
        cmocka_unit_test(impossible_sizes),
        cmocka_unit_test(bad_input),
        cmocka_unit_test(callback_order),
        cmocka_unit_test(parameters_are_awaited),
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(held_thread_holds_one_task),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
