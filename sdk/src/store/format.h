/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes on disk: superblock, label, record (format.c draws them), and how
 * each is checked.  Pure: no I/O.
 *
 * A chunk's label repeats whose it is, so that fsck can tell a stale, a foreign
 * and a damaged one apart; what is true is decided by the entries of the newest
 * record alone.
 */
#ifndef GYRE_SRC_STORE_FORMAT_H
#define GYRE_SRC_STORE_FORMAT_H

#include "base/base.h"

typedef struct gyre_entry {
    uint64_t hash;
    uint64_t step;    /* t at which this version was written */
    uint32_t version; /* 0 or 1 */
    uint32_t pad;
} gyre_entry;

typedef struct gyre_scaler {
    double scale;
    uint32_t good_steps; /* since it last changed */
    uint32_t hysteresis; /* overflows still tolerated */
} gyre_scaler;

/* What a record says besides the entries. */
typedef struct gyre_record {
    uint64_t seq;
    uint64_t round;
    uint64_t step;
    uint64_t generation;
    uint64_t blob_bytes;
    uint32_t dirty; /* in place: a round has begun */
    uint32_t salvaged;
    gyre_scaler scaler;
    uint64_t written; /* to flash in the store's life, this record included */
    uint32_t inexact; /* some round divided or took roots inexactly */
    uint32_t pad;
} gyre_record;

typedef struct gyre_super {
    uint8_t store[16];
    uint8_t device[16];
    uint32_t index;
    uint32_t devices;
    uint64_t generation;
    uint64_t manifest_bytes; /* used */
    uint64_t manifest_hash;
    uint64_t file_bytes;
    uint64_t area_at[2];
    uint64_t area_bytes;
} gyre_super;

/* Seed of a chunk's checksum: store, generation, chunk and t. */
uint64_t gyre_format_seed(const uint8_t uuid[16], uint64_t generation,
                          uint64_t chunk, uint64_t step);
void gyre_format_super(const gyre_super *super, void *page);
gyre_status gyre_format_read_super(const void *page, const char *file,
                                   gyre_super *super, gyre_error *error);
void gyre_format_label(void *page, const uint8_t uuid[16], uint64_t generation,
                       uint64_t chunk, const gyre_entry *entry);

/* Bytes of record, entries and steps, before the blob. */
uint64_t gyre_format_head_bytes(uint64_t chunks, uint64_t tensors);
/* Fill an area image; blob bytes lie in it already.  Returns used bytes,
 * rounded to `align`. */
uint64_t gyre_format_area(void *image, const uint8_t uuid[16],
                          const gyre_record *record, const gyre_entry *entries,
                          uint64_t chunks, const uint64_t *steps,
                          uint64_t tensors, uint32_t align);
/* Check an image with room for `bytes` of head and blob; on success fills
 * record, and entries/steps/blob point into the image.  FORMAT: no record;
 * CORRUPT: torn or damaged. */
gyre_status gyre_format_read_area(const void *image, uint64_t bytes,
                                  const uint8_t uuid[16], uint64_t generation,
                                  uint64_t chunks, uint64_t tensors,
                                  gyre_record *record,
                                  const gyre_entry **entries,
                                  const uint64_t **steps, const void **blob,
                                  gyre_error *error);
/* What a chunk is by its label, when it is not what `entry` says: one word of
 * gyre_fsck_problem.what, and a sentence. */
const char *gyre_format_diagnose(const uint8_t uuid[16], uint64_t generation,
                                 uint64_t chunk, const gyre_entry *entry,
                                 const void *label, char *text, size_t bytes);

#endif
