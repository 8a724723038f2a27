/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast is the disk underneath, reading and writing at once?
 *
 * A few threads each go through a part of one file in a shuffled order and
 * read or write the next block, whichever is behind its share.
 */
#include "config.h"

#include "bench_near.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 16, BLOCKS = 12, ALIGNMENT = 4096 };

static const uint64_t LASTS = 2000000000; /* ns */

typedef struct probe {
    int fd;
    size_t block;
    double read_share;
    uint64_t until;
    atomic_uint_fast64_t moved;
    atomic_int trouble; /* errno of the first that failed */
    atomic_uint next;   /* thread */
} probe;

static void *run_thread(void *user)
{
    probe *p = user;
    off_t first = (off_t)(atomic_fetch_add(&p->next, 1) * BLOCKS * p->block);
    double read = 0, written = 0;
    void *data = NULL;

    if (posix_memalign(&data, ALIGNMENT, p->block) != 0) {
        atomic_store(&p->trouble, ENOMEM);
        return NULL;
    }
    memset(data, 1, p->block);
    for (unsigned i = 0; gyre_trace_clock() < p->until; i++) {
        /* 5 and BLOCKS have no common divisor: each block in its turn */
        off_t at = first + (off_t)(i * 5 % BLOCKS * p->block);
        bool reads = read <= p->read_share * (read + written);
        ssize_t n = reads ? pread(p->fd, data, p->block, at)
                          : pwrite(p->fd, data, p->block, at);

        if (n != (ssize_t)p->block) {
            atomic_store(&p->trouble, n < 0 ? errno : EIO);
            break;
        }
        *(reads ? &read : &written) += (double)n;
    }
    atomic_fetch_add(&p->moved, (uint64_t)(read + written));
    free(data);
    return NULL;
}

static int open_file(const char *name)
{
    int flags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC;
    int fd = open(name, flags | O_DIRECT, 0600);

    return fd >= 0 || errno != EINVAL ? fd : open(name, flags, 0600);
}

/* The whole file written once, so that no read is of a hole. */
static int fill(const probe *p)
{
    off_t bytes = (off_t)(THREADS * BLOCKS * p->block);
    void *data = NULL;
    int trouble = posix_fallocate(p->fd, 0, bytes);

    if (trouble == 0)
        trouble = posix_memalign(&data, ALIGNMENT, p->block);
    if (trouble != 0)
        return trouble;
    memset(data, 1, p->block);
    for (off_t at = 0; at < bytes && trouble == 0; at += (off_t)p->block)
        if (pwrite(p->fd, data, p->block, at) != (ssize_t)p->block)
            trouble = errno != 0 ? errno : EIO;
    free(data);
    return trouble;
}

static void run_threads(probe *p, double *seconds)
{
    uint64_t begun = gyre_trace_clock();
    pthread_t threads[THREADS];
    int started = 0;

    p->until = begun + LASTS;
    while (started < THREADS &&
           pthread_create(&threads[started], NULL, run_thread, p) == 0)
        started++;
    if (started == 0)
        p->trouble = EAGAIN;
    while (started > 0)
        pthread_join(threads[--started], NULL);
    *seconds = (double)(gyre_trace_clock() - begun) * 1e-9;
}

gyre_status near_disk_rate(const char *folder, size_t block, double read_share,
                           double *out, gyre_error *error)
{
    probe p = {.read_share = read_share};
    char name[4096];
    double seconds = 1;
    int trouble;

    p.block = (block + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    snprintf(name, sizeof(name), "%s/probe", folder);
    p.fd = open_file(name);
    if (p.fd < 0)
        return near_fail(error, GYRE_IO, "cannot make %s: %s", name,
                         strerror(errno));
    trouble = fill(&p);
    if (trouble == 0)
        run_threads(&p, &seconds);
    if (trouble == 0)
        trouble = atomic_load(&p.trouble);
    close(p.fd);
    unlink(name);
    if (trouble != 0)
        return near_fail(error, trouble == ENOSPC ? GYRE_NO_SPACE : GYRE_IO,
                         "cannot measure the disk with %s: %s", name,
                         strerror(trouble));
    *out = (double)atomic_load(&p.moved) / seconds;
    return GYRE_OK;
}
