/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that compute for a rank. */
#include "config.h"

#include "attention/team.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

typedef struct gyre_team_member {
    gyre_team *team;
    pthread_t thread;
    uint32_t worker;
} gyre_team_member;

uint32_t gyre_team_cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 1 ? (uint32_t)n : 1;
}

uint32_t gyre_team_all_cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 1 ? (uint32_t)n : 1;
}

static void take_items(gyre_team *team, uint32_t worker)
{
    size_t i;
    while ((i = atomic_fetch_add(&team->next, 1)) < team->count)
        team->body(team->state, i, worker);
}

static void *live(void *argument)
{
    gyre_team_member *member = argument;
    gyre_team *team = member->team;
    gyre_fp saved = gyre_fp_pin();
    uint64_t seen = 0;
    pthread_mutex_lock(&team->lock);
    while (!team->leave) {
        if (team->call == seen) {
            pthread_cond_wait(&team->work, &team->lock);
            continue;
        }
        seen = team->call;
        team->working++;
        pthread_mutex_unlock(&team->lock);
        take_items(team, member->worker);
        pthread_mutex_lock(&team->lock);
        if (--team->working == 0)
            pthread_cond_signal(&team->idle);
    }
    pthread_mutex_unlock(&team->lock);
    gyre_fp_restore(saved);
    return NULL;
}

gyre_status gyre_team_open(gyre_context *context, uint32_t workers,
                           gyre_team *team, gyre_error *error)
{
    gyre_team_member *members =
        gyre_alloc_zero(context, workers, sizeof(*members));
    if (members == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for %u workers",
                         workers);
    memset(team, 0, sizeof(*team));
    team->context = context;
    team->members = members;
    team->workers = workers;
    team->started = 1;
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->work, NULL);
    pthread_cond_init(&team->idle, NULL);
    return GYRE_OK;
}

void gyre_team_close(gyre_team *team)
{
    if (team->members == NULL)
        return;
    pthread_mutex_destroy(&team->lock);
    pthread_cond_destroy(&team->work);
    pthread_cond_destroy(&team->idle);
    gyre_free(team->context, team->members, team->workers,
              sizeof(*team->members));
    team->members = NULL;
}

void gyre_team_start(gyre_team *team)
{
    team->leave = false;
    team->call = 0;
    for (; team->started < team->workers; team->started++) {
        gyre_team_member *member = &team->members[team->started];
        member->team = team;
        member->worker = team->started;
        if (pthread_create(&member->thread, NULL, live, member) != 0)
            return;
    }
}

void gyre_team_stop(gyre_team *team)
{
    pthread_mutex_lock(&team->lock);
    team->leave = true;
    pthread_cond_broadcast(&team->work);
    pthread_mutex_unlock(&team->lock);
    while (team->started > 1)
        pthread_join(team->members[--team->started].thread, NULL);
}

/* A member that wakes late finds all items taken; until it has seen so, the
 * next call does not begin. */
void gyre_team_each(void *user, size_t count, gyre_team_body *body, void *state)
{
    gyre_team *team = user;
    pthread_mutex_lock(&team->lock);
    while (team->working > 0)
        pthread_cond_wait(&team->idle, &team->lock);
    team->body = body;
    team->state = state;
    team->count = count;
    atomic_store(&team->next, 0);
    team->call++;
    if (count > 2)
        pthread_cond_broadcast(&team->work);
    else
        pthread_cond_signal(&team->work);
    pthread_mutex_unlock(&team->lock);
    take_items(team, 0);
    pthread_mutex_lock(&team->lock);
    while (team->working > 0)
        pthread_cond_wait(&team->idle, &team->lock);
    pthread_mutex_unlock(&team->lock);
}
