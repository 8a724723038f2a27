/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads that compute for a rank.
 *
 *     start --> each, each, ... --> stop
 *
 * The thread that calls is worker 0; the others sleep between calls.  Each
 * takes the next item until there is none, so that a slow one gets fewer.
 */
#ifndef GYRE_SRC_ATTENTION_TEAM_H
#define GYRE_SRC_ATTENTION_TEAM_H

#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

enum { GYRE_MAX_WORKERS = 1024 };

typedef void gyre_team_body(void *state, size_t index, uint32_t worker);

typedef struct gyre_team {
    gyre_context *context;
    struct gyre_team_member *members; /* [workers], the first unused */
    uint32_t workers;                 /* that there is room for */
    uint32_t started;                 /* now, with the caller */
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    uint64_t call;    /* which; members wait for the next */
    uint32_t working; /* members in the call */
    bool leave;
    gyre_team_body *body;
    void *state;
    size_t count;
    atomic_size_t next;
} gyre_team;

/* Cores that this process may use, and all that run. */
uint32_t gyre_team_cores(void);
uint32_t gyre_team_all_cores(void);

/* Room for so many, at least 1.  Errors: NO_MEMORY. */
gyre_status gyre_team_open(gyre_context *context, uint32_t workers,
                           gyre_team *team, gyre_error *error);
/* Also of one that is all zero. */
void gyre_team_close(gyre_team *team);

/* The threads, as many as the system gives: fewer only take longer.  stop joins
 * them.  Both, and each, on one thread. */
void gyre_team_start(gyre_team *team);
void gyre_team_stop(gyre_team *team);

/* As gyre_kernel_run.each: `user` is the team. */
void gyre_team_each(void *user, size_t count, gyre_team_body *body,
                    void *state);

#endif
