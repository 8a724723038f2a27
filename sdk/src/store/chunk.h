/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One chunk in memory: its checksum and label, and its way to the user.
 */
#ifndef GYRE_SRC_STORE_CHUNK_H
#define GYRE_SRC_STORE_CHUNK_H

#include "store/store.h"

/* Checksum of a chunk in memory as of `step`. */
uint64_t gyre_store_hash(const gyre_store *store, uint64_t chunk,
                         const uint8_t *data, uint64_t step);
/* Give it its label. */
void gyre_store_label(const gyre_store *store, uint64_t chunk, uint8_t *data,
                      const gyre_entry *entry);
/* Verify chunk in memory against entry; CORRUPT with device, chunk, range. */
gyre_status gyre_store_verify(const gyre_store *store, uint32_t device,
                              uint64_t chunk, const gyre_entry *entry,
                              const uint8_t *data, gyre_error *error);
/* Elements of the committed residual of a trainable tensor, all in one
 * chunk. */
gyre_status gyre_store_read_residual(gyre_store *store, size_t tensor,
                                     uint64_t first, size_t n, float *out,
                                     gyre_error *error);
/* Read and verify one chunk into store->peek, kept for the next call. */
gyre_status gyre_store_peek(gyre_store *store, uint64_t chunk,
                            gyre_error *error);
/* Copy the parameter of a chunk into bound buffers, but for the tensors
 * that `skip` marks (NULL: none); returns the bytes delivered. */
uint64_t gyre_store_deliver(const gyre_store *store, uint64_t chunk,
                            const uint8_t *data, const bool *skip);
/* Deliver again, from current, the chunks whose byte in `which` is not 0
 * (NULL: all).  Only chunks of trainable tensors have a byte. */
gyre_status gyre_store_redeliver(gyre_store *store, const uint8_t *which,
                                 gyre_error *error);

#endif
