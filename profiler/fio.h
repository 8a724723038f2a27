/* SPDX-License-Identifier: Apache-2.0 */
/* The program fio as a peer: it replays a log of transfers. */
#ifndef GYRE_PROFILER_FIO_H
#define GYRE_PROFILER_FIO_H

#include <gyre/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct fio_job {
    const char *log; /* of "fio version 2 iolog" */
    uint32_t depth;
    uint64_t block; /* bytes of the largest transfer */
    bool huge;      /* buffers in reserved huge pages */
} fio_job;

bool fio_found(void);

/* Whether the system holds huge pages enough for a job's buffers; if not,
 * `why` says what to do. */
bool fio_huge_pages(const fio_job *job, char why[160]);

/*
 * Run it: direct, io_uring, registered buffers, flushed at the end.  *rate in
 * bytes per second by fio's own clock and count, its flush included.  A few
 * transfers at the end of a replay are not counted by it, so compare rates and
 * not times.
 */
gyre_status fio_replay(const fio_job *job, double *rate, gyre_error *error);

#endif
