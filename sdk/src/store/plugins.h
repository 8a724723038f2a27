/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The optimizer and the compressor of a store (optimizer.c, compressor.c):
 * taken from spec when it is made, inherited by the next generation, found
 * again and held against the manifest when it is opened.
 *
 * What fails half-way leaves what gyre_store_free frees.
 */
#ifndef GYRE_SRC_STORE_PLUGINS_H
#define GYRE_SRC_STORE_PLUGINS_H

#include "store/store.h"

/* From spec: the optimizer with its slots and settings, and their codecs. */
gyre_status gyre_store_take_optimizer(gyre_store *store,
                                      const gyre_store_spec *spec,
                                      gyre_error *error);
/* All but the plugin itself, and the seed. */
gyre_status gyre_store_inherit_optimizer(gyre_store *to, const gyre_store *from,
                                         gyre_error *error);
/* Find what the manifest names.  LAYOUT when it is not what made the store. */
gyre_status gyre_store_attach_optimizer(gyre_store *store, gyre_error *error);
void gyre_store_free_optimizer(gyre_store *store);

/* From spec: the codec, the residual's mode, and what the layout needs. */
gyre_status gyre_store_take_compressor(gyre_store *store,
                                       const gyre_store_spec *spec,
                                       gyre_error *error);
gyre_status gyre_store_inherit_compressor(gyre_store *to,
                                          const gyre_store *from,
                                          gyre_error *error);
void gyre_store_free_compressor(gyre_store *store);
/* Find what the manifest names.  Read-only, a plugin that is not there is no
 * error.  LAYOUT when it is another format. */
gyre_status gyre_store_attach_compressor(gyre_store *store, gyre_error *error);
bool gyre_residual_parse(const char *name, gyre_residual *out);

#endif
