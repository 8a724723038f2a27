/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making the device files of a store: what spec says, the layout, first
 * contents, first record (create.c, build.c).
 */
#ifndef GYRE_SRC_STORE_BUILD_H
#define GYRE_SRC_STORE_BUILD_H

#include "store/store.h"

/* Where initial contents come from (create.c, generation.c). */
typedef struct gyre_source {
    /* Elements [first, first + n) of a tensor, the parameter and then each
     * slot, `vars` in all: variable v from out + v * stride on, where zeros
     * are.  Any worker thread, one call at a time per device. */
    gyre_status (*fill)(void *user, size_t tensor, uint64_t first, size_t n,
                        uint32_t vars, float *out, size_t stride,
                        gyre_error *error);
    /* The same of the residual; NULL: zeros. */
    gyre_status (*residual)(void *user, size_t tensor, uint64_t first, size_t n,
                            float *out, gyre_error *error);
    /* Called by the builder's thread while the workers fill: returns when
     * `ended` has come for every device (or sooner).  Both may be NULL. */
    void (*watch)(void *user);
    void (*ended)(void *user, uint32_t device, gyre_status status);
    void *user;
} gyre_source;

/*
 * Make the device files of `store` (tensors, devices, optimizer, chunk_grains
 * and `now` are filled in), write all chunks from `source` and the first
 * record with `blob`; not the manifest.  `old` is the generation that this one
 * follows, or NULL.  What a failure leaves is named by the journal.
 */
gyre_status gyre_store_build(gyre_store *store, const gyre_store *old,
                             const gyre_source *source, const void *blob,
                             size_t blob_bytes, gyre_error *error);
/* What spec says, and the layout: the first parts of a create, for planning. */
gyre_status gyre_store_prepare(gyre_store *store, const gyre_store_spec *spec,
                               gyre_error *error);
gyre_status gyre_store_lay_out(gyre_store *store, gyre_error *error);
/* Superblock and manifest copy of every device. */
gyre_status gyre_store_write_heads(gyre_store *store, gyre_error *error);
/* Choose the chunk size and the rest of the layout that `spec` leaves open. */
gyre_status gyre_store_shape(gyre_store *store, const gyre_store_spec *spec,
                             gyre_error *error);
/* Allocate tables, image, blob for the layout. */
gyre_status gyre_store_tables(gyre_store *store, gyre_error *error);

#endif
