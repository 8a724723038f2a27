/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e of error feedback: its memory, and its way to storage and back.  What the
 * compressor left out of a round's gradients is added to those of the next.
 */
#ifndef GYRE_SRC_STORE_RESIDUAL_H
#define GYRE_SRC_STORE_RESIDUAL_H

#include "store/layout.h"

/*
 * e of error feedback, in memory for GYRE_RESIDUAL_COMMITTED and _VOLATILE: two
 * versions of all trainable grains.  The round writes the one that `which`
 * does not name and flips on adopting; a skipped one flips nothing.
 */
typedef struct gyre_residual_memory {
    float *e[2];      /* [train_grains * GYRE_GRAIN]; NULL: none */
    uint8_t *which;   /* [train_chunks]: 0 or 1, the version in force */
    uint8_t *unsaved; /* [train_chunks]: changed since the last commit */
    float *kappa;     /* [tensors]: clip late, of the tensor's last round; what
                         the next one takes is kappa e */
    uint8_t *at;      /* [tensors]: where the version in force is, born.c */
} gyre_residual_memory;

enum {
    GYRE_E_ZERO, /* here, and zeros */
    GYRE_E_HERE, /* in e[which] */
    GYRE_E_BORN  /* where gradients are born, same version */
};

/* Memory for store->residual, zeros; nothing when the store keeps none, or is
 * read-only. */
gyre_status gyre_residual_allocate(gyre_store *store, gyre_error *error);
void gyre_residual_free(gyre_store *store);
/* Write the chunks that are unsaved into their other slots and their entries
 * into `current`: the first part of every commit.  Only of a committed
 * residual. */
gyre_status gyre_residual_save(gyre_store *store, gyre_error *error);
/* ... and the last part: nothing is unsaved any more. */
void gyre_residual_saved(gyre_store *store);
/* After an open, or a rollback over several rounds: committed ones are read as
 * `current` has them and verified, volatile ones become zero (told to the log
 * when there was something).  kappa is 1 then. */
gyre_status gyre_residual_load(gyre_store *store, gyre_error *error);

/* Of a run that is GYRE_E_BORN, the residual in force to the host (born.c). */
gyre_status gyre_born_residual(gyre_store *store, uint64_t chunk,
                               const gyre_run *run, float *out,
                               gyre_error *error);

#endif
