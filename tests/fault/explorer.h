/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crash explorer: from a record of what a run wrote and flushed, it makes
 * the device files that a crash could have left, and has each one judged.
 *
 * Which states a crash can leave.  At a place in the record, a write has
 *   - landed for sure, when its end stands before the start of a flush of the
 *     same file that has ended;
 *   - landed or not, in any 512-byte sectors, when it has started;
 *   - not happened, otherwise.
 * Writes that both landed in a sector lie there in the order of their starts.
 * A write that failed may have landed, and no flush covers it.  A flush that
 * failed covers nothing, and neither does a later one cover what was written
 * before it: the kernel forgets what it could not write.
 *
 * Which places are enough.  Only the start of a write adds states, and all new
 * ones have that write landed in part at least; the end of a write changes
 * none, the end of a flush only takes some away.  What is *demanded* of a state
 * changes at marks, with the number of commits that were completed.  So it is
 * enough to go through the subsets that hold the new write at each start, and
 * through all subsets at each mark; that is every prefix times every subset,
 * each once.
 */
#ifndef GYRE_TESTS_FAULT_EXPLORER_H
#define GYRE_TESTS_FAULT_EXPLORER_H

#include "io/io.h"

enum { EXPLORER_FILES = 4, EXPLORER_SECTOR = 512 };

typedef struct explorer explorer;

typedef struct explorer_state {
    size_t place;     /* events before the crash */
    uint64_t mark;    /* the last mark before it; 0: none */
    size_t unflushed; /* writes that could have landed or not */
    size_t landed;    /* of them, in part at least */
    size_t torn;      /* of them, in part only */
} explorer_state;

/* Judge the files as they lie now; nonzero: bad.  They may be changed. */
typedef int (*explorer_check)(void *user, const explorer_state *state);

/* Leave this event out, as if the call were not in the code; NULL: none.
 * Asked for starts; the end goes with its start. */
typedef int (*explorer_drop)(void *user, const gyre_io_event *event);

typedef struct explorer_counts {
    uint64_t states;
    uint64_t bad;
    size_t most_unflushed;
} explorer_counts;

/* Remember the files as they are now, before the run.  They keep their size.
 * Fails a cmocka assertion when it cannot. */
explorer *explorer_create(const char *const *paths, size_t count);
void explorer_destroy(explorer *explorer);

/* Lay the files out as they were when they were remembered. */
void explorer_reset(explorer *explorer);

/* Take a record of the run; it must outlive the exploring. */
void explorer_take(explorer *explorer, const gyre_io_recorder *recorder,
                   explorer_drop drop, void *user);

/*
 * Every place, every subset while no more than `most` writes are unflushed
 * (above that 2^most seeded samples of subsets), each subset whole and in
 * `tears` ways of tearing (0 to EXPLORER_TEARS): the first five tear all writes
 * alike (only the first sector landed; all but the last; all but the first;
 * only the last; a random half), the others each write in a form of its own.
 */
enum { EXPLORER_TEARS = 7 };
void explorer_all(explorer *explorer, size_t most, size_t tears, uint64_t seed,
                  explorer_check check, void *user, explorer_counts *counts);

/* `samples` states at random places where something is unflushed: random
 * subsets, torn at random. */
void explorer_sample(explorer *explorer, uint64_t samples, uint64_t seed,
                     explorer_check check, void *user, explorer_counts *counts);

#endif
