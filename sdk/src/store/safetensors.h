/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors files (huggingface/safetensors, format of 2022):
 *
 *     0      N, the bytes of the header, 64 bits little-endian
 *     8      header: JSON, padded with blanks
 *     8 + N  data: the tensors, without a gap, in one piece each
 *
 *     {"__metadata__": {"key": "text", ...},
 *      "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
 *
 * Offsets count from the start of the data.  What is parsed here came from
 * anywhere: every number is checked against the file before it is used, and an
 * error names file, tensor and field.
 */
#ifndef GYRE_SRC_STORE_SAFETENSORS_H
#define GYRE_SRC_STORE_SAFETENSORS_H

#include "base/base.h"

#include <gyre/dtype.h>
#include <gyre/store.h>

enum {
    GYRE_ST_HEAD = 8,
    GYRE_ST_MOST = 100000000 /* bytes of header, as in the format's own
                                reader */
};

typedef struct gyre_st_tensor {
    char *name;
    char dtype[12]; /* as in the file */
    int known;      /* one of the dtypes that we convert */
    gyre_dtype as;  /* which, if known */
    uint32_t item;  /* bytes of one element */
    uint32_t rank;
    uint64_t shape[GYRE_MAX_RANK];
    uint64_t elements;
    uint64_t begin, end; /* in the file, not in its data */
} gyre_st_tensor;

typedef struct gyre_st_pair {
    char *key;
    char *value;
} gyre_st_pair;

typedef struct gyre_st {
    gyre_context *context;
    char *path;
    int fd;                  /* -1: parsed from memory */
    gyre_st_tensor *tensors; /* in the order of their data */
    size_t count, room;
    gyre_st_pair *pairs; /* metadata */
    size_t pair_count, pair_room;
} gyre_st;

/* Parse `bytes` of header of a file of `file_bytes`; `path` is for messages.
 * FORMAT for all that is wrong in it. */
gyre_status gyre_st_parse(gyre_context *context, const char *path,
                          const void *header, size_t bytes, uint64_t file_bytes,
                          gyre_st *out, gyre_error *error);
/* Open and parse.  NOT_FOUND, PERMISSION, IO, FORMAT. */
gyre_status gyre_st_open(gyre_context *context, const char *path, gyre_st *out,
                         gyre_error *error);
void gyre_st_close(gyre_st *st);

/* Value of a metadata key, or NULL. */
const char *gyre_st_metadata(const gyre_st *st, const char *key);
/* Read elements [first, first + n) of a known dtype as f32.  The caller has
 * checked the range. */
gyre_status gyre_st_read(const gyre_st *st, const gyre_st_tensor *tensor,
                         uint64_t first, size_t n, float *out,
                         gyre_error *error);

#endif
