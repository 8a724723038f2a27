/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of a benchmark: a fixed team, each bound to a core, that runs the
 * same function over its own part of the work and is timed as a whole.
 */
#ifndef GYRE_PROFILER_TEAM_H
#define GYRE_PROFILER_TEAM_H

#include <stddef.h>
#include <stdint.h>

typedef struct team team;

/* Called with the member's number. */
typedef void (*team_work)(void *user, size_t member);

/* Cores that this process may use. */
size_t team_cores(void);
/* NULL when a thread cannot be started.  The caller is member 0. */
team *team_start(size_t members);
/* Run `work` on all members; nanoseconds from the first start to the last
 * end. */
uint64_t team_run(team *of, team_work work, void *user);
void team_stop(team *of);

#endif
