/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new generation of a store: what reshard and import have in common.
 *
 *     old --attach, verify--> old generation, locked
 *     journal                 names the files of both
 *     build                   new files, filled from the old ones
 *     manifest, by rename     the flip
 *     settle                  the old files go
 *
 * A crash before the flip leaves the old generation, after it the new one; the
 * next open sweeps the other by the journal.
 */
#ifndef GYRE_SRC_STORE_GENERATION_H
#define GYRE_SRC_STORE_GENERATION_H

#include "store/store.h"

typedef struct gyre_change {
    gyre_store *old; /* its lock covers both */
    gyre_store *fresh;
    /* Values that do not come from the old store; may be NULL.  Sets *given
     * when it filled variable `var` (0: the parameter) of the elements.
     * Called under `lock`. */
    gyre_status (*value)(void *user, size_t tensor, uint32_t var,
                         uint64_t first, size_t n, float *out, bool *given,
                         gyre_error *error);
    /* Does any value of this tensor come from there?  What compression left
     * out of its gradients then belongs to other values, and becomes zero.  May
     * be NULL: none does. */
    bool (*takes)(void *user, size_t tensor);
    void *value_user;
    gyre_progress progress;
    void *progress_user;

    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t done, total; /* bytes filled */
    uint32_t ended;       /* devices whose stream is over */
    bool stop;
} gyre_change;

/* Open what the new generation follows: locked and attached, no record chosen
 * yet. */
gyre_status gyre_change_begin(gyre_change *change, gyre_context *context,
                              const char *path,
                              const gyre_store_options *options,
                              gyre_error *error);
/* Make `fresh`: all that `old`, its record chosen, holds, but for devices and
 * chunk size, which are those of `spec`. */
gyre_status gyre_change_inherit(gyre_change *change,
                                const gyre_store_spec *spec,
                                const gyre_store_options *options,
                                gyre_error *error);
/* Build it, flip, sweep.  On failure nothing of it stays. */
gyre_status gyre_change_make(gyre_change *change, gyre_error *error);
void gyre_change_end(gyre_change *change);

#endif
