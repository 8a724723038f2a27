/* SPDX-License-Identifier: Apache-2.0 */
/* One store under I/O faults: what an error must say, what must stand. */
#ifndef GYRE_TESTS_FAULT_IO_TRIAL_H
#define GYRE_TESTS_FAULT_IO_TRIAL_H

#include "fault/common.h"

typedef struct io_trial {
    fault_model model;
    fault_place place;
    fault_saved fresh; /* files as created */
    fault_history history;
    uint64_t data_at;
    uint32_t commit_every;
    uint64_t failures; /* seen, to know that faults were made */
    uint64_t dirty;    /* stores lost in place */
    bool mended;       /* nothing may be seen */
    bool asked;        /* commits by gyre_store_commit alone */
    bool early;
} io_trial;

/* Make a store, keep its files, and record an undisturbed run. */
enum {
    IO_TRIAL_EARLY = 1,
    IO_TRIAL_IN_PLACE = 2,
    IO_TRIAL_SPILLED = 4,
    IO_TRIAL_RESIDUAL = 8, /* committed */
    IO_TRIAL_LATE = 16
};
io_trial *io_trial_begin(size_t devices, bool disk, uint32_t commit_every,
                         unsigned how);
void io_trial_end(io_trial *t);

/* The text names device file, offset, errno and, for chunks, device, chunk and
 * tensor range. */
void io_trial_text(const io_trial *t, const gyre_error *error);
void io_trial_status(const gyre_error *error);

uint64_t io_trial_round(const gyre_store *store);
/* The store is what the undisturbed run was at this round. */
void io_trial_expect(io_trial *t, gyre_store *store, uint64_t round,
                     const char *when);
/* Open without faults; and look whether it is at this round. */
void io_trial_open(io_trial *t, gyre_context *context, gyre_store **store);
void io_trial_reopen(io_trial *t, gyre_context *context, uint64_t round);

#endif
