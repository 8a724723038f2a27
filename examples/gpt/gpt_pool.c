/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_pool.c - a fixed set of threads that share out numbered tasks.
 *
 * The split is static and every task writes only its own results, so the
 * number of threads decides who computes a value, never how.
 *
 * Protocol: the caller stores the job, then adds one to `round` under the
 * mutex; each worker sees a new round, runs its share and takes one off
 * `left`; the worker that brings it to 0 wakes the caller. Both sides spin
 * for a few microseconds before they sleep, because a step consists of about
 * a hundred short rounds.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_internal.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct worker {
    gpt_pool *pool;
    size_t index;
    pthread_t thread;
} worker;

struct gpt_pool {
    pthread_mutex_t mutex;
    pthread_cond_t start, done;
    atomic_size_t round;
    atomic_size_t left;
    bool stop; /* guarded by mutex; read after a new round */
    gpt_task_fn fn;
    void *job;
    size_t tasks;
    size_t threads; /* the caller included */
    size_t started;
    worker workers[];
};

enum { SPINS = 2000 };

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* i * count / parts without overflow for large counts */
static size_t share(size_t count, size_t i, size_t parts)
{
    return count / parts * i + count % parts * i / parts;
}

static void run_share(gpt_pool *pool, size_t index)
{
    size_t end = share(pool->tasks, index + 1, pool->threads);

    for (size_t t = share(pool->tasks, index, pool->threads); t < end; t++)
        pool->fn(pool->job, t, index);
}

static void wait_round(gpt_pool *pool, size_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&pool->round, memory_order_acquire) != seen)
            return;
        relax();
    }
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load(&pool->round) == seen)
        pthread_cond_wait(&pool->start, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

static void *work(void *arg)
{
    worker *w = arg;
    gpt_pool *pool = w->pool;

    for (size_t seen = 0;; seen++) {
        wait_round(pool, seen);
        if (pool->stop)
            return NULL;
        run_share(pool, w->index);
        if (atomic_fetch_sub(&pool->left, 1) == 1) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->mutex);
        }
    }
}

static void begin_round(gpt_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->round, 1);
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->mutex);
}

void gpt_pool_run(gpt_pool *pool, gpt_task_fn fn, void *job, size_t tasks)
{
    pool->fn = fn;
    pool->job = job;
    pool->tasks = tasks;
    if (pool->threads == 1) {
        run_share(pool, 0);
        return;
    }
    atomic_store(&pool->left, pool->threads - 1);
    begin_round(pool);
    run_share(pool, 0);
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&pool->left, memory_order_acquire) == 0)
            return;
        relax();
    }
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load(&pool->left) != 0)
        pthread_cond_wait(&pool->done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

void gpt_pool_destroy(gpt_pool *pool)
{
    if (!pool)
        return;
    pool->stop = true;
    begin_round(pool);
    for (size_t i = 1; i <= pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->start);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

size_t gpt_pool_memory(size_t threads)
{
    return sizeof(gpt_pool) + threads * sizeof(worker);
}

gpt_pool *gpt_pool_create(size_t threads)
{
    gpt_pool *pool = calloc(1, gpt_pool_memory(threads));
    sigset_t all, old;

    if (!pool)
        return NULL;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->start, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->threads = threads;
    /* Signals stay with the threads of the host program. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (size_t i = 1; i < threads; i++) {
        worker *w = &pool->workers[i];

        w->pool = pool;
        w->index = i;
        if (pthread_create(&w->thread, NULL, work, w) != 0)
            break;
        pool->started = i;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (pool->started + 1 < threads) {
        gpt_pool_destroy(pool);
        return NULL;
    }
    return pool;
}
