/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two halves of a diff share: the problem (diff.c) and the programs
 * (diff_program.c).
 */
#ifndef GYRE_SRC_PLAN_DIFF_H
#define GYRE_SRC_PLAN_DIFF_H

#include "plan/plan.h"

enum { DIFF_TEXT_BYTES = 512 };

typedef struct differ {
    const gyre_plan *plans[2];
    void (*each)(void *user, const gyre_plan_difference *difference);
    void *user;
    uint64_t count;
    gyre_context *context;
    uint64_t *row_hashes[2]; /* by row set: of its side and chunks */
} differ;

/* Count one, and hand it to the caller. */
void gyre_diff_tell(differ *d, const char *what, uint32_t rank, uint32_t one,
                    uint32_t other, const char *text);
/* All that the programs of a rank do not share.  Errors: NO_MEMORY. */
gyre_status gyre_diff_program(differ *d, uint32_t rank, gyre_error *error);

#endif
