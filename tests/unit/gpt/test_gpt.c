/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gpt.c - the example gpt: same bits in every process and for every
 * number of threads, gradients against finite differences, memory, sampling,
 * the order of the callbacks and the pool of threads.
 *
 * Called as "test_gpt --hash THREADS" it prints a hash of one step instead;
 * the test of equal bits starts itself that way.
 */
#include "gpt.h"

/* Sees the pool and the exponential themselves. */
#include "gpt_internal.h"
#include "gpt_math.h"

#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 5, LENGTH = 37 };

/* Odd on purpose: no row block, query block or tile is whole. */
static const gpt_config odd = {.layers = 2,
                               .heads = 3,
                               .width = 48,
                               .context = 40,
                               .threads = 2,
                               .seed = 11};

static gpt *make(gpt_config config)
{
    char reason[200] = "";
    gpt *g = gpt_create(&config, reason, sizeof reason);

    if (!g)
        fail_msg("%s", reason);
    return g;
}

static void fill(int32_t *tokens, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        tokens[i] = (int32_t)(seed >> 24);
    }
}

static double train_step(gpt *g, float scale)
{
    int32_t tokens[2 * BATCH * LENGTH];

    fill(tokens, 2 * BATCH * LENGTH, 3);
    return gpt_forward_backward(g, tokens, tokens + BATCH * LENGTH, BATCH,
                                LENGTH, scale);
}

static uint64_t mix_bits(uint64_t hash, const void *data, size_t n)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t hash_step(size_t threads)
{
    gpt_config config = odd;
    uint64_t hash = UINT64_C(14695981039346656037);
    double loss;
    gpt *g;

    config.threads = threads;
    g = make(config);
    loss = train_step(g, 1.0f);
    hash = mix_bits(hash, &loss, sizeof loss);
    for (size_t i = 0; i < gpt_parameter_count(g); i++) {
        const gpt_parameter *p = gpt_parameter_at(g, i);

        hash = mix_bits(hash, p->data, p->n * sizeof(float));
        hash = mix_bits(hash, p->grad, p->n * sizeof(float));
    }
    gpt_destroy(g);
    return hash;
}

static const char *self;

/* valgrind looks at the memory only: it is slow, and shows this process, but
 * not those it starts, a processor for which the BLAS has other kernels. */
static bool in_valgrind(void)
{
    return getenv("GYRE_VALGRIND") != NULL;
}

static uint64_t hash_in_process(size_t threads)
{
    char command[4200];
    unsigned long long hash = 0;
    FILE *pipe;

    snprintf(command, sizeof command, "'%s' --hash %zu", self, threads);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%llx", &hash), 1);
    assert_int_equal(pclose(pipe), 0);
    return hash;
}

static void same_bits_everywhere(void **state)
{
    const uint64_t wanted = hash_step(2);

    (void)state;
    for (size_t threads = 1; threads <= 5; threads++)
        assert_int_equal(hash_step(threads), wanted);
    if (in_valgrind())
        return;
    for (int run = 0; run < 3; run++)
        assert_int_equal(hash_in_process(2), wanted);
    assert_int_equal(hash_in_process(3), wanted);
}

/* A second, smaller batch must not see what the first left behind. */
static void gradients_are_overwritten(void **state)
{
    gpt *used = make(odd), *fresh = make(odd);
    int32_t tokens[40];

    (void)state;
    fill(tokens, 40, 8);
    train_step(used, 1.0f);
    assert_true(gpt_forward_backward(used, tokens, tokens + 20, 2, 10, 1.0f) ==
                gpt_forward_backward(fresh, tokens, tokens + 20, 2, 10, 1.0f));
    for (size_t i = 0; i < gpt_parameter_count(used); i++)
        assert_memory_equal(gpt_parameter_at(used, i)->grad,
                            gpt_parameter_at(fresh, i)->grad,
                            gpt_parameter_at(used, i)->n * sizeof(float));
    gpt_destroy(fresh);
    gpt_destroy(used);
}

/* A power of two scales every gradient exactly. */
static void scale_is_exact(void **state)
{
    gpt *g = make(odd), *scaled = make(odd);
    double loss = train_step(g, 1.0f);

    (void)state;
    assert_true(train_step(scaled, 1024.0f) == loss);
    for (size_t i = 0; i < gpt_parameter_count(g); i++) {
        const gpt_parameter *a = gpt_parameter_at(g, i);
        const gpt_parameter *b = gpt_parameter_at(scaled, i);

        for (size_t k = 0; k < a->n; k++)
            assert_true(a->grad[k] * 1024.0f == b->grad[k]);
    }
    gpt_destroy(scaled);
    gpt_destroy(g);
}

/*
 * Along its own gradient, L(w + h g) - L(w - h g) = 2 h |g|^2 + O(h^3). The
 * loss carries about 1e-7 of rounding; h is chosen so that the difference is
 * 4e-3, which leaves 1e-4 of noise and a cubic term below 1e-2.
 */
static void finite_differences(void **state)
{
    int32_t tokens[2 * BATCH * LENGTH];
    gpt *g;

    (void)state;
    if (in_valgrind())
        skip();
    g = make(odd);
    fill(tokens, 2 * BATCH * LENGTH, 3);
    train_step(g, 1.0f);
    for (size_t i = 0; i < gpt_parameter_count(g); i++) {
        const gpt_parameter *p = gpt_parameter_at(g, i);
        float *saved = malloc(p->n * sizeof(float));
        double square = 0.0, loss[2], h;

        assert_non_null(saved);
        memcpy(saved, p->data, p->n * sizeof(float));
        for (size_t k = 0; k < p->n; k++)
            square += (double)p->grad[k] * (double)p->grad[k];
        assert_true(square > 0.0);
        h = 2e-3 / square;
        for (int side = 0; side < 2; side++) {
            for (size_t k = 0; k < p->n; k++)
                p->data[k] = (float)((double)saved[k] +
                                     (side ? -h : h) * (double)p->grad[k]);
            loss[side] =
                gpt_loss(g, tokens, tokens + BATCH * LENGTH, BATCH, LENGTH);
        }
        memcpy(p->data, saved, p->n * sizeof(float));
        free(saved);
        if (fabs((loss[0] - loss[1]) / 4e-3 - 1.0) > 1e-2)
            fail_msg("%s: difference %g, wanted %g", p->name, loss[0] - loss[1],
                     4e-3);
    }
    gpt_destroy(g);
}

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
        assert_memory_equal(gpt_parameter_at(g, i)->grad,
                            gpt_parameter_at(plain, i)->grad,
                            gpt_parameter_at(g, i)->n * sizeof(float));
    }
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
    for (size_t i = 0; i < gpt_parameter_count(g); i++)
        assert_memory_equal(gpt_parameter_at(g, i)->grad,
                            gpt_parameter_at(plain, i)->grad,
                            gpt_parameter_at(g, i)->n * sizeof(float));
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

/* Longer than the context, so that the window slides. */
static void generation_repeats(void **state)
{
    gpt_config config = odd;
    uint8_t a[150], b[150];
    gpt *g = make(odd), *other;

    (void)state;
    config.threads = 1;
    other = make(config);
    train_step(other, 1.0f); /* dirty workspace */
    assert_int_equal(
        gpt_generate(g, (const uint8_t *)"ab", 2, sizeof a, 0.9, 20, 5, a), 0);
    assert_int_equal(
        gpt_generate(other, (const uint8_t *)"ab", 2, sizeof b, 0.9, 20, 5, b),
        0);
    assert_memory_equal(a, b, sizeof a);
    gpt_generate(g, (const uint8_t *)"ab", 2, sizeof b, 0.9, 20, 6, b);
    assert_memory_not_equal(a, b, sizeof a);
    gpt_generate(g, NULL, 0, 20, 0.0, 0, 1, a);
    gpt_generate(g, (const uint8_t *)"x\n", 1, 0, 0.0, 0, 1, NULL);
    gpt_generate(g, (const uint8_t *)"\n", 1, 20, 1.0, 1, 9, b);
    assert_memory_equal(a, b, 20); /* top_k 1 is greedy */
    gpt_destroy(other);
    gpt_destroy(g);
}

/*
 * One byte at a time must agree with the whole sequence: the greedy byte
 * after each prefix has the smallest loss as a target.
 */
static void generation_follows_the_loss(void **state)
{
    uint8_t text[17] = {'q'};
    int32_t tokens[17], targets[17];
    gpt *g;

    (void)state;
    if (in_valgrind())
        skip();
    g = make(odd);
    for (size_t i = 0; i < gpt_parameter_count(g); i++)
        for (size_t k = 0; k < gpt_parameter_at(g, i)->n; k++)
            gpt_parameter_at(g, i)->data[k] *= 3.0f;
    assert_int_equal(gpt_generate(g, text, 1, 16, 0.0, 0, 1, text + 1), 0);
    for (size_t n = 1; n <= 16; n += 5) {
        double best = INFINITY;
        int32_t chosen = -1;

        for (int32_t byte = 0; byte < 256; byte++) {
            double loss;

            for (size_t i = 0; i < n; i++) {
                tokens[i] = text[i];
                targets[i] = text[i + 1];
            }
            targets[n - 1] = byte;
            loss = gpt_loss(g, tokens, targets, 1, n);
            if (loss < best) {
                best = loss;
                chosen = byte;
            }
        }
        assert_int_equal(chosen, text[n]);
    }
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

/* Against expl over the whole range in steps of 2^-9 and a bit. */
static void exponential(void **state)
{
    double worst = 0.0;

    (void)state;
    if (in_valgrind())
        skip();
    for (float x = -87.0f; x <= 88.0f; x += 0.0019543f) {
        double exact = exp((double)x);
        int exponent;
        double ulp, error;

        frexp(exact, &exponent);
        ulp = ldexp(1.0, exponent - 24);
        error = fabs((double)gpt_expf(x) - exact) / ulp;
        worst = error > worst ? error : worst;
    }
    if (worst > 1.5)
        fail_msg("gpt_expf is %.2f ulp off", worst);
    assert_true(isnan(gpt_expf(NAN)));
    assert_true(gpt_expf(-1000.0f) > 0.0f && isfinite(gpt_expf(1000.0f)));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_everywhere),
        cmocka_unit_test(gradients_are_overwritten),
        cmocka_unit_test(scale_is_exact),
        cmocka_unit_test(finite_differences),
        cmocka_unit_test(memory_is_as_announced),
        cmocka_unit_test(creation_fails_cleanly),
        cmocka_unit_test(workspace_fails_cleanly),
        cmocka_unit_test(impossible_sizes),
        cmocka_unit_test(bad_input),
        cmocka_unit_test(callback_order),
        cmocka_unit_test(parameters_are_awaited),
        cmocka_unit_test(generation_repeats),
        cmocka_unit_test(generation_follows_the_loss),
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(held_thread_holds_one_task),
        cmocka_unit_test(exponential)};

    if (argc == 3 && strcmp(argv[1], "--hash") == 0) {
        printf("%llx\n", (unsigned long long)hash_step(
                             (size_t)strtoull(argv[2], NULL, 10)));
        return 0;
    }
    self = argv[0];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
