/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a store lies: its device list (devices.c), files by name and who owns
 * them (place.c), and what a change of generation may leave behind (journal.c).
 */
#ifndef GYRE_SRC_STORE_PLACE_H
#define GYRE_SRC_STORE_PLACE_H

#include "store/store.h"

/* ---- the device list -------------------------------------------------- */

/* Take the device list: paths (NULL: the store's own folder), weights, count.
 */
gyre_status gyre_store_take_devices(gyre_store *store,
                                    const gyre_store_spec *spec,
                                    gyre_error *error);
/* Open and lock every device of the manifest, wherever it is now. */
gyre_status gyre_store_open_devices(gyre_store *store, gyre_error *error);
/* Is the list of `options` (NULL, or none: any) the manifest's?  LAYOUT names
 * the command that changes it. */
gyre_status gyre_store_check_devices(const gyre_store *store,
                                     const gyre_store_options *options,
                                     gyre_error *error);

/* ---- names and locks -------------------------------------------------- */

/* Of a store's folder: room for the names in it stays below PATH_MAX. */
enum { GYRE_PATH_MOST = 4000 };

/* Make store->path absolute, so that no later change of folder matters.  RANGE
 * when it is longer than GYRE_PATH_MOST. */
gyre_status gyre_place_resolve(gyre_store *store, gyre_error *error);
/* Take DIR/lock.  BUSY at once when a living process holds it. */
gyre_status gyre_place_lock(gyre_store *store, uint64_t wait_ns,
                            gyre_error *error);
void gyre_place_unlock(gyre_store *store);
/* Lock an opened device file on the description that goes into the ring;
 * waits for a dead owner's I/O. */
gyre_status gyre_place_lock_file(gyre_store *store, gyre_place *place,
                                 uint64_t wait_ns, gyre_error *error);
/* n places without files, each with its weight; false without memory. */
bool gyre_place_table(gyre_store *store, size_t n);
/* The folder or block file that a manifest path means. */
const char *gyre_place_folder(const gyre_store *store, const char *path);
/* Name of a device's file: the block file itself, or DIR/UUID8.gN.dNN; freed
 * with gyre_free_text. */
char *gyre_place_file_name(const gyre_store *store, const char *path,
                           uint32_t index);
/* UUID8.gN.dNN: what such a name ends with, where it is no block file. */
bool gyre_place_is_device_name(const char *name);
bool gyre_place_is_block(const char *path);
/* Two names of one block device? */
bool gyre_place_same_block(const char *a, const char *b);

/* ---- the journal ------------------------------------------------------ */

/*
 * The journal DIR/changing: names of files, one a line, that a change of
 * generation makes or removes.  Whatever device file it names and the manifest
 * in force does not is garbage after a crash.  It came with the folder, so what
 * else it names is not ours to remove.
 */
gyre_status gyre_journal_write(const gyre_store *store, const gyre_store *old,
                               gyre_error *error);
/* Remove what the journal in the folder of `at` names and `store` does not use,
 * then the journal.  `store` NULL: none is used. */
void gyre_journal_settle(const gyre_store *at, const gyre_store *store);

#endif
