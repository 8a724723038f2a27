/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records: which one stands (open.c), the next one, and the way back
 * (commit.c).
 */
#ifndef GYRE_SRC_STORE_COMMIT_H
#define GYRE_SRC_STORE_COMMIT_H

#include "store/store.h"

/* Of all records numbered below `below` take the newest into now, current,
 * area, steps and blob (open.c).  *newest rises to the highest number seen.
 * NOT_FOUND when there is none, FORMAT when its entries are impossible. */
gyre_status gyre_store_choose(gyre_store *store, uint64_t below,
                              uint64_t *newest, gyre_error *error);
/* Fails with `unread`: what could not be read may be the newest record. */
gyre_status gyre_store_tell_unread(const gyre_store *store, gyre_error *error);
/* The rest of an open after gyre_store_attach: choose, verify, go back if need
 * be, sweep.  A read-only store is left as it is. */
gyre_status gyre_store_settle(gyre_store *store, gyre_error *error);
/* What is in memory is what the last commit left. */
void gyre_store_take_commit(gyre_store *store);

/* RANGE for a blob that does not fit. */
gyre_status gyre_store_check_blob(const gyre_store *store, const void *blob,
                                  size_t blob_bytes, gyre_error *error);
/* Commit `now`, `current` and the blob (commit.c).  On failure the store is as
 * at the last commit, or BROKEN when that could not be made sure. */
gyre_status gyre_store_commit_now(gyre_store *store, const void *blob,
                                  size_t blob_bytes, gyre_error *error);
/* The text of a failure that took the store back to its last commit; `lost`:
 * whole rounds went (ROLLED_BACK). */
gyre_status gyre_store_tell_back(const gyre_store *store, bool lost,
                                 gyre_status cause, gyre_error *error);
/* In place: make the dirty mark durable before the first write. */
gyre_status gyre_store_mark_dirty(gyre_store *store, gyre_error *error);
/* Memory back to the last commit. */
void gyre_store_rewind(gyre_store *store);

#endif
