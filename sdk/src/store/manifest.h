/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest: what a store is, in JSON, for people and for open;
 * gyre-store(5) has its form.  DIR/manifest.json names the generation, and
 * every device file carries a copy.  Written by manifest.c, read by
 * manifest_read.c.
 */
#ifndef GYRE_SRC_STORE_MANIFEST_H
#define GYRE_SRC_STORE_MANIFEST_H

#include "store/store.h"

#define GYRE_MANIFEST_NAME "gyre-store"
enum { GYRE_MANIFEST_VERSION = 2 };

/* Text of the manifest; freed with gyre_free_text. */
gyre_status gyre_manifest_text(const gyre_store *store, char **out,
                               gyre_error *error);
/* Write DIR/manifest.json by rename: the flip of create and reshard. */
gyre_status gyre_manifest_write(gyre_store *store, gyre_error *error);
/* A device that is not exact will run rounds: say so in DIR/manifest.json, and
 * with each commit from now on.  Nothing when it is said already. */
gyre_status gyre_manifest_note_inexact(gyre_store *store, gyre_error *error);
/* Make `text` the whole of DIR/NAME by writing aside, rename and sync. */
gyre_status gyre_file_replace(const gyre_store *store, const char *name,
                              const char *text, gyre_error *error);
/* Read DIR/manifest.json into a fresh store (tensors, devices, optimizer). */
gyre_status gyre_manifest_read(gyre_store *store, gyre_error *error);
gyre_status gyre_manifest_parse(gyre_store *store, const char *text,
                                size_t bytes, const char *from,
                                gyre_error *error);

#endif
