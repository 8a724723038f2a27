/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crash explorer over names: what a power failure inside create, reshard
 * or import leaves in the folders of a store.
 *
 * explorer.h takes files that are there from the start.  Here files are made,
 * sized, renamed and removed, and that can be lost too:
 *   - a step with a name (made, renamed, removed, folder made) has happened for
 *     sure once the folder that holds the name was synced after it; before, it
 *     has happened or not, each by itself and in no order;
 *   - a rename happens whole: the old name goes and the new one comes;
 *   - contents belong to the file, not to its name: what was written before a
 *     flush of the file is there, the size too; else any sectors of it;
 *   - a flush that failed promises nothing, neither does a later one for what
 *     was written before it (the kernel forgets what it could not write).
 * Writes that both landed in a sector lie there in the order of their starts.
 */
#ifndef GYRE_TESTS_FAULT_CRASH_H
#define GYRE_TESTS_FAULT_CRASH_H

#include "io/io.h"

enum { CRASH_FOLDERS = 8 };

typedef struct crash crash;

typedef struct crash_state {
    size_t place;  /* events before the crash */
    uint64_t mark; /* the last mark before it; 0: none */
    size_t names;  /* steps that could have happened or not */
    size_t writes; /* the same of contents */
} crash_state;

/* Judge the folders as they lie now; nonzero: bad.  They may be changed. */
typedef int (*crash_check)(void *user, const crash_state *state);

typedef struct crash_counts {
    uint64_t states;
    uint64_t bad;
    size_t most_names;
} crash_counts;

/* Leave this event out, as if the call were not in the code; or NULL. */
typedef int (*crash_drop)(void *user, const gyre_io_event *event);

/* The folders, with the files that lie in them now (but for "lock"); the first
 * may be missing.  No others are touched. */
crash *crash_create(const char *const *folders, size_t count);
void crash_destroy(crash *crash);

/* Take a record of the run; it must outlive the exploring. */
void crash_take(crash *crash, const gyre_io_recorder *recorder, crash_drop drop,
                void *user);

/* Every place; there every subset of names (above 2^6, as many samples), each
 * with nothing, all, and `samples` random parts of the contents. */
void crash_all(crash *crash, size_t samples, uint64_t seed, crash_check check,
               void *user, crash_counts *counts);

#endif
