/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recorded run, for the crash explorer, and the judge of what it lays out.
 *
 * A state is bad when the store does not open, or holds anything but what the
 * uninterrupted run held at the last commit completed before the crash or at
 * the one in progress.  When a flush was taken out, the commit before is
 * allowed too: then only mixtures are counted.
 */
#ifndef GYRE_TESTS_FAULT_TRIAL_H
#define GYRE_TESTS_FAULT_TRIAL_H

#include "fault/common.h"
#include "fault/explorer.h"

typedef struct trial {
    fault_model model;
    fault_place place;
    unit_memory memory;
    gyre_context *context;
    fault_history history;
    uint32_t commit_every;
    gyre_io_recorder *recorder;
    explorer *explorer;
    char files[FAULT_DEVICES][FAULT_PATH];
    uint64_t area_at, data_at;

    /* how to judge */
    bool fast, lenient, reopen;
    uint64_t killed; /* in the commit of this round, which has no mark */
    uint64_t go_on;  /* one more round in every n-th state; 0: none */
    uint64_t fsck;   /* and a check; 0: none */
    uint64_t given, seen, told, continued, dirty, checked, notes;
} trial;

typedef enum kind { PLAIN, EARLY, IN_PLACE } kind;

/* A model, a store and its recorded run of FAULT_ROUNDS rounds; `with` is
 * FAULT_CODED and so on.  The explorer has the files of before the run and is
 * to take t->recorder. */
trial *trial_begin(size_t devices, uint64_t scale, uint32_t commit_every,
                   const char *io, kind how, unsigned with);
void trial_end(trial *t);

/* The same run once more, with an operation that fails; then on, as a program
 * would that tries again.  `history` is of the undisturbed run.  False when the
 * run was over before. */
bool trial_record_again(trial *t, const char *io);
/* Another record from here on. */
void trial_new_record(trial *t);

/* An explorer_check; user is the trial. */
int trial_judge(void *user, const explorer_state *state);
/* One line of output; the number of bad states. */
uint64_t trial_tell(const trial *t, const char *what,
                    const explorer_counts *counts);

#endif
