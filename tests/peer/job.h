/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job of an optimizer driver, read from stdin:
 *
 *     optimizer NAME
 *     set NAME VALUE            a setting at creation; any number
 *     vary NAME                 a step parameter given per step and group
 *     cuts 0 A B ... N          element ranges of the groups
 *     steps T
 *     go
 *     f32 p[N]; then per step: f64 vary[groups][varied]; f32 g[N]
 *
 * The answer on stdout is, per step, p[N] and then each slot [N].
 */
#ifndef GYRE_TESTS_PEER_JOB_H
#define GYRE_TESTS_PEER_JOB_H

#include "registry/optimizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOB_MAX = 16, JOB_NAME = 64 };

typedef struct job {
    char optimizer[JOB_NAME];
    char names[JOB_MAX][JOB_NAME];
    gyre_setting settings[JOB_MAX];
    size_t count;
    char vary[JOB_MAX][JOB_NAME];
    size_t varied;
    size_t cuts[JOB_MAX + 1];
    size_t groups;
    unsigned long steps;
} job;

static inline void job_die(const char *what)
{
    fprintf(stderr, "driver: %s\n", what);
    exit(99);
}

static inline void job_cuts(job *j, char *at)
{
    size_t count = 0;

    for (char *word = strtok(at, " \n"); word != NULL && count <= JOB_MAX;
         word = strtok(NULL, " \n"))
        j->cuts[count++] = strtoul(word, NULL, 10);
    if (count < 2)
        job_die("cuts");
    j->groups = count - 1;
}

static inline void job_read(job *j)
{
    char line[1024];

    memset(j, 0, sizeof(*j));
    while (fgets(line, sizeof(line), stdin) != NULL) {
        double value;

        if (strcmp(line, "go\n") == 0)
            return;
        if (j->count < JOB_MAX &&
            sscanf(line, "set %63s %lf", j->names[j->count], &value) == 2) {
            j->settings[j->count].name = j->names[j->count];
            j->settings[j->count++].value = value;
        } else if (j->varied < JOB_MAX &&
                   sscanf(line, "vary %63s", j->vary[j->varied]) == 1) {
            j->varied++;
        } else if (strncmp(line, "cuts ", 5) == 0) {
            job_cuts(j, line + 5);
        } else if (sscanf(line, "optimizer %63s", j->optimizer) != 1 &&
                   sscanf(line, "steps %lu", &j->steps) != 1) {
            job_die(line);
        }
    }
    job_die("no go");
}

static inline void job_bytes(void *to, size_t size)
{
    if (fread(to, 1, size, stdin) != size)
        job_die("input ends early");
}

static inline void job_answer(const void *from, size_t size)
{
    if (fwrite(from, 1, size, stdout) != size)
        job_die("cannot write");
}

static inline void *job_array(size_t n, size_t size)
{
    void *block = calloc(n + 1, size);

    if (block == NULL)
        job_die("no memory");
    return block;
}

#endif
