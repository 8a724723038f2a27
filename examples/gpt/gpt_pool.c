/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_pool.c - a fixed set of threads that share out numbered tasks.
 *
 * Every task writes only its own results, so who runs a task decides when a
 * value is computed, never how. A free thread takes the next task: one that
 * the system keeps from running delays a round by the task it holds, and by
 * nothing when it holds none.
 *
 * Protocol. Tasks have tickets, numbered on through all rounds. The caller
 * stores the job and moves `end`; whoever moves `next` from t to t + 1 owns
 * ticket t; `finished` counts what is done, and the round is over when it
 * reaches `end`. The owner of an unfinished ticket keeps its round open,
 * therefore the job it reads is the right one, however late it comes.
 *
 * Nobody holds a lock while others wait. Threads spin for some microseconds
 * before they sleep, because a step consists of about a hundred short rounds.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_internal.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Where a thread sleeps. */
typedef struct bed {
    atomic_bool taken;
    sem_t wake;
} bed;

typedef struct worker {
    gpt_pool *pool;
    size_t index;
    bed bed;
    pthread_t thread;
} worker;

struct gpt_pool {
    atomic_size_t next, end, finished; /* tickets; they wrap */
    atomic_bool stop;
    /* Of this round; only owners of its tickets read them. */
    gpt_task_fn fn;
    void *job;
    size_t first;   /* ticket of task 0 */
    size_t threads; /* the caller included */
    size_t started;
    worker workers[]; /* 0 is the caller */
};

enum { SPINS = 400 };

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* ---- waiting ---- */

typedef bool (*ready_fn)(gpt_pool *pool);

static bool has_work(gpt_pool *pool)
{
    return atomic_load(&pool->next) != atomic_load(&pool->end) ||
           atomic_load(&pool->stop);
}

static bool is_over(gpt_pool *pool)
{
    return atomic_load(&pool->finished) == atomic_load(&pool->end);
}

/* Every rise() that finds the bed taken posts once, and that post is waited
 * for, so none is left over for the next sleep. The bed is taken before the
 * last look at the pool and the pool changed before rise() looks at the bed,
 * all sequentially consistent: one of the two sees the other. */
static void wait_until(gpt_pool *pool, ready_fn ready, bed *b)
{
    for (int i = 0; i < SPINS; i++) {
        if (ready(pool))
            return;
        relax();
    }
    while (!ready(pool)) {
        atomic_store(&b->taken, true);
        if (ready(pool) && atomic_exchange(&b->taken, false))
            return;
        while (sem_wait(&b->wake) != 0)
            ; /* interrupted */
    }
}

static void rise(bed *b)
{
    if (atomic_load(&b->taken) && atomic_exchange(&b->taken, false))
        sem_post(&b->wake);
}

/* ---- work ---- */

/* `next` is read before `end` and never passes it, so they differ only when
 * ticket `next` exists. */
static bool take_ticket(gpt_pool *pool, size_t *ticket, size_t *end)
{
    *ticket = atomic_load(&pool->next);
    do {
        *end = atomic_load(&pool->end);
        if (*ticket == *end)
            return false;
    } while (!atomic_compare_exchange_weak(&pool->next, ticket, *ticket + 1));
    return true;
}

static void run_tasks(gpt_pool *pool, size_t index)
{
    size_t ticket, end;

    while (take_ticket(pool, &ticket, &end)) {
        pool->fn(pool->job, ticket - pool->first, index);
        if (atomic_fetch_add(&pool->finished, 1) + 1 == end)
            rise(&pool->workers[0].bed);
    }
}

static void *work(void *arg)
{
    worker *w = arg;

    for (;;) {
        wait_until(w->pool, has_work, &w->bed);
        if (atomic_load(&w->pool->stop))
            return NULL;
        run_tasks(w->pool, w->index);
    }
}

void gpt_pool_run(gpt_pool *pool, gpt_task_fn fn, void *job, size_t tasks)
{
    if (pool->threads == 1 || tasks == 1) {
        for (size_t t = 0; t < tasks; t++)
            fn(job, t, 0);
        return;
    }
    pool->fn = fn;
    pool->job = job;
    pool->first = atomic_load(&pool->end);
    atomic_store(&pool->end, pool->first + tasks);
    for (size_t i = 1; i < pool->threads && i < tasks; i++)
        rise(&pool->workers[i].bed);
    run_tasks(pool, 0);
    wait_until(pool, is_over, &pool->workers[0].bed);
}

/* ---- creation ---- */

void gpt_pool_destroy(gpt_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, true);
    for (size_t i = 1; i <= pool->started; i++) {
        rise(&pool->workers[i].bed);
        pthread_join(pool->workers[i].thread, NULL);
    }
    for (size_t i = 0; i < pool->threads; i++)
        sem_destroy(&pool->workers[i].bed.wake);
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
    pool->threads = threads;
    for (size_t i = 0; i < threads; i++)
        sem_init(&pool->workers[i].bed.wake, 0, 0);
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
