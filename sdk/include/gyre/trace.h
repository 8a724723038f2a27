/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace: which thread did what, from when to when.
 *
 *     emitter -- gyre_trace_record --> ring of its thread --> gyre_trace_each
 *
 * Each thread writes to a ring of its own, option `trace_records` long, without
 * locks.  A full ring drops the newest record and counts it, so that what is
 * kept is whole from the start or from the last gyre_trace_clear: the sums of
 * bytes over a step are exact or known to be cut.  Recording starts when the
 * first name is interned; with trace_records 0 every name is 0 and recording
 * costs one branch.  A thread that has recorded is not ending while the context
 * is destroyed: join it before.
 *
 * The emitter says what a span is by its category; names are for people.
 */
#ifndef GYRE_TRACE_H
#define GYRE_TRACE_H

#include <gyre/context.h>
#include <gyre/status.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers are written to files and never change. */
typedef enum gyre_trace_category {
    GYRE_TRACE_HOST = 0, /* waiting, bookkeeping, the user's own program */
    GYRE_TRACE_COMPUTE = 1,
    GYRE_TRACE_STORAGE_READ = 2,
    GYRE_TRACE_STORAGE_WRITE = 3,
    GYRE_TRACE_LINK = 4, /* host to device and back, rank to rank */
    GYRE_TRACE_CATEGORY_COUNT = 5
} gyre_trace_category;

typedef struct gyre_span {
    uint64_t begin; /* nanoseconds of gyre_trace_clock */
    uint64_t end;
    uint64_t arg;    /* bytes moved; or what the emitter says */
    uint32_t thread; /* from 1, in order of each thread's first record */
    gyre_trace_category category;
    const char *name;        /* as interned; lives as long as the context */
    const char *thread_name; /* or NULL */
} gyre_span;

/* "host", "compute", "storage read", "storage write", "link"; NULL for an
 * unknown number.  Any thread. */
GYRE_API const char *gyre_trace_category_name(gyre_trace_category category);

/* Nanoseconds of the monotonic clock.  Any thread. */
GYRE_API uint64_t gyre_trace_clock(void);

/* ---- recording ------------------------------------------------------- */

/* The number of a name, the same for the same text.  0, which records nothing,
 * when the trace is off, compiled out or out of memory (logged).  Searches and
 * locks: ask once and keep the number.  Any thread. */
GYRE_API uint32_t gyre_trace_intern(gyre_context *context, const char *name);

/* Record one span of this thread.  An `end` before `begin` is taken as begin.
 * Any thread. */
GYRE_API void gyre_trace_record(gyre_context *context,
                                gyre_trace_category category, uint32_t name,
                                uint64_t begin, uint64_t end, uint64_t arg);

/* Name this thread in what is read and written.  Any thread. */
GYRE_API void gyre_trace_name_thread(gyre_context *context, const char *name);

/* ---- reading --------------------------------------------------------- */

/*
 * Call `each` for all records now held, by begin, outer spans first; nonzero
 * stops.  Takes a copy first: records made meanwhile are not seen, and `each`
 * may use the trace.  Errors: NO_MEMORY.  Any thread.
 */
GYRE_API gyre_status gyre_trace_each(gyre_context *context,
                                     int (*each)(void *user,
                                                 const gyre_span *span),
                                     void *user, gyre_error *error);

/* Records dropped since the last clear.  Any thread. */
GYRE_API uint64_t gyre_trace_dropped(gyre_context *context);

/* Forget what is held and dropped; names and threads stay.  Any thread. */
GYRE_API void gyre_trace_clear(gyre_context *context);

/* Mean cost of one record with its two clock reads, in nanoseconds, measured
 * now on this thread; 0 when the trace is off.  Leaves no record. */
GYRE_API double gyre_trace_cost(gyre_context *context);

/*
 * Write all records as Chrome trace events (for Perfetto, chrome://tracing):
 * complete events, times in microseconds from the first; dropped, cost and the
 * clock of the first are under otherData.  A regular file appears whole or not
 * at all.  Errors: STATE (trace is off), UNSUPPORTED (compiled out), NO_MEMORY,
 * and those of the file system.  Any thread.
 */
GYRE_API gyre_status gyre_trace_write_json(gyre_context *context,
                                           const char *path, gyre_error *error);

#ifdef __cplusplus
}
#endif

#endif
