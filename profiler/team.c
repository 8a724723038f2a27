/* SPDX-License-Identifier: Apache-2.0 */
/* A team of threads behind two barriers. */
#include "config.h"

#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

typedef struct member {
    team *of;
    size_t number;
    pthread_t thread;
} member;

struct team {
    size_t count;
    pthread_barrier_t start, end;
    team_work work; /* NULL: go home */
    void *user;
    member *members;
    cpu_set_t before; /* the caller's cores */
};

size_t team_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    return (size_t)CPU_COUNT(&set);
}

/* The n-th of the cores that the process may use; a failure only means that
 * the scheduler chooses. */
static void bind(const cpu_set_t *allowed, size_t n)
{
    cpu_set_t one;

    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, allowed) || n-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        (void)pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
        return;
    }
}

static void *live(void *user)
{
    member *self = user;
    team *of = self->of;

    bind(&of->before, self->number);
    for (;;) {
        pthread_barrier_wait(&of->start);
        if (of->work == NULL)
            return NULL;
        of->work(of->user, self->number);
        pthread_barrier_wait(&of->end);
    }
}

team *team_start(size_t count)
{
    team *of = calloc(1, sizeof(*of));

    if (of == NULL)
        return NULL;
    of->members = calloc(count, sizeof(of->members[0]));
    if (of->members == NULL)
        goto free_team;
    of->count = count;
    if (sched_getaffinity(0, sizeof(of->before), &of->before) != 0)
        goto free_members;
    pthread_barrier_init(&of->start, NULL, (unsigned)count);
    pthread_barrier_init(&of->end, NULL, (unsigned)count);
    for (size_t i = 1; i < count; i++) {
        of->members[i].of = of;
        of->members[i].number = i;
        /* Members that run wait at a barrier for the missing one: there is
         * no way back but the end of the process. */
        if (pthread_create(&of->members[i].thread, NULL, live,
                           &of->members[i]) != 0)
            exit(99);
    }
    bind(&of->before, 0);
    return of;

free_members:
    free(of->members);
free_team:
    free(of);
    return NULL;
}

static uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t team_run(team *of, team_work work, void *user)
{
    uint64_t start;

    of->work = work;
    of->user = user;
    start = now();
    pthread_barrier_wait(&of->start);
    work(user, 0);
    pthread_barrier_wait(&of->end);
    return now() - start;
}

void team_stop(team *of)
{
    of->work = NULL;
    pthread_barrier_wait(&of->start);
    for (size_t i = 1; i < of->count; i++)
        pthread_join(of->members[i].thread, NULL);
    (void)sched_setaffinity(0, sizeof(of->before), &of->before);
    pthread_barrier_destroy(&of->start);
    pthread_barrier_destroy(&of->end);
    free(of->members);
    free(of);
}
