/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a list of tensors to chunks on devices: pure arithmetic, no I/O.
 *
 * Element space.  Trainable tensors in the order given, then frozen ones; each
 * starts on a grain of 1,024 elements.  Trainable grains are cut into chunks
 * of G grains with 1 + slots variables, frozen ones into chunks with one:
 *
 *     grains   | t0 t0 t0. | t1 t1. | t2 ... |  | f0 f0 f0. |
 *     chunks   [   0     ][   1     ][  2  ]    [    3   ]
 *
 * A store that commits the residual of its compressor has one more chunk for
 * each trainable one, numbered behind all others and on the same device: the
 * residual of the same grains, one variable, f32.  What walks parameters stops
 * at `state_chunks`; tables, records, fsck and reshard know all `chunks`.
 *
 * One version ("slot") of a chunk, moved by one transfer:
 *
 *     var 0 (parameter) | var 1 | ... | label 4096 | padding to alignment
 *
 * Each variable lies there as its codec has it, grain by grain
 * (device/state.h); the label (format.h) starts on a page, after zeros if need
 * be.
 *
 * The gradient region of a trainable chunk is there when spec.spill was set.
 * It has no versions, no label and no entry: what it holds matters within one
 * round, whose memory holds its checksum.
 */
#ifndef GYRE_SRC_STORE_LAYOUT_H
#define GYRE_SRC_STORE_LAYOUT_H

#include "base/base.h"
#include "device/state.h"
#include "registry/optimizer.h"

#include <gyre/store.h>

typedef struct gyre_codec gyre_codec; /* registry/compressor.h */

enum {
    GYRE_PAGE = 4096, /* unit of everything on disk */
    GYRE_LABEL = GYRE_PAGE,
    GYRE_STORE_VARS = 1 + GYRE_OPT_MAX_SLOTS
};

/* ---- types ------------------------------------------------------------ */

typedef struct gyre_tensor_state {
    char *name;
    uint32_t rank;
    uint32_t group;
    uint32_t flags;
    uint64_t shape[GYRE_MAX_RANK];
    uint64_t elements;
    uint64_t first_grain;
    uint64_t grains;
    uint64_t step; /* its own t */
    uint64_t committed_step;
    gyre_dtype out_dtype;
    void *out; /* bound buffer or NULL */
} gyre_tensor_state;

typedef struct gyre_chunk_place {
    uint64_t offset; /* of slot 0 in its device file */
    uint32_t device;
} gyre_chunk_place;

typedef struct gyre_layout {
    gyre_tensor_state *tensors;
    size_t tensor_count;
    size_t *order; /* tensors by first_grain; empty ones first */
    uint32_t groups;
    uint64_t elements;
    uint64_t train_grains;
    uint64_t frozen_grains;
    uint64_t chunk_grains; /* G */
    uint64_t train_chunks;
    uint64_t state_chunks;   /* trainable and frozen */
    uint64_t chunks;         /* and those of the residual */
    bool residual;           /* there are such; set before the placing */
    uint32_t gradient_grain; /* room of one grain in a gradient region; 0: no
                                regions; set before the placing */
    uint32_t slots;          /* state slots */
    gyre_state_codec codecs[GYRE_STORE_VARS]; /* parameter, slots */
    uint32_t versions;                        /* 2, or 1 in place */
    uint32_t align; /* of every offset and size on disk */
    uint32_t devices;
    double *weights;          /* [devices] */
    gyre_chunk_place *places; /* [chunks] */
    uint64_t area_room;       /* of record, entries, steps and blob */
    uint64_t area_bytes;      /* that, rounded */
    uint64_t area_at[2];
    uint64_t data_at;
    uint64_t *device_bytes; /* [devices], whole file */
    uint64_t blob_capacity;
    uint64_t manifest_bytes; /* room for it, rounded */
} gyre_layout;

/* One tensor's run in a chunk. */
typedef struct gyre_run {
    size_t tensor;
    uint64_t index; /* first element in the tensor */
    size_t at;      /* first element in the chunk */
    size_t n;
} gyre_run;

/* ---- making one (layout.c) -------------------------------------------- */

gyre_status gyre_layout_tensors(gyre_context *context, gyre_layout *layout,
                                const gyre_tensor *tensors, size_t count,
                                gyre_error *error);
/* Choose the chunk size for `elements == 0`. */
uint64_t gyre_layout_choose_chunk(const gyre_layout *layout, uint32_t devices);
/* Cut into chunks and place them; slots, versions, align, devices, weights,
 * chunk_grains and manifest_bytes, blob_capacity are set before. */
gyre_status gyre_layout_place(gyre_context *context, gyre_layout *layout,
                              gyre_error *error);
void gyre_layout_free(gyre_context *context, gyre_layout *layout);

/* ---- asking (layout_chunk.c) ------------------------------------------ */

uint32_t gyre_layout_vars(const gyre_layout *layout, uint64_t chunk);
/* Where a variable of a chunk lies, and all of them; returns how many. */
void gyre_layout_var(const gyre_layout *layout, uint64_t chunk, uint32_t v,
                     gyre_var *var);
uint32_t gyre_layout_all_vars(const gyre_layout *layout, uint64_t chunk,
                              gyre_var vars[GYRE_STORE_VARS]);
/* Bytes of its variables, up to the label. */
uint64_t gyre_layout_data_bytes(const gyre_layout *layout, uint64_t chunk);
/* Of these, what holds elements of tensors: no padding. */
uint64_t gyre_layout_useful_bytes(const gyre_layout *layout, uint64_t chunk);
uint32_t gyre_layout_versions(const gyre_layout *layout, uint64_t chunk);
uint64_t gyre_layout_first_grain(const gyre_layout *layout, uint64_t chunk);
uint64_t gyre_layout_chunk_grains(const gyre_layout *layout, uint64_t chunk);
static inline size_t gyre_layout_chunk_elements(const gyre_layout *layout,
                                                uint64_t chunk)
{
    return (size_t)gyre_layout_chunk_grains(layout, chunk) * GYRE_GRAIN;
}
/* Bytes of one version, label and padding included. */
uint64_t gyre_layout_chunk_bytes(const gyre_layout *layout, uint64_t chunk);
uint64_t gyre_layout_max_chunk_bytes(const gyre_layout *layout);
uint64_t gyre_layout_offset(const gyre_layout *layout, uint64_t chunk,
                            uint32_t version);
uint64_t gyre_layout_chunk_of(const gyre_layout *layout, uint64_t grain);
static inline bool gyre_layout_is_residual(const gyre_layout *layout,
                                           uint64_t chunk)
{
    return chunk >= layout->state_chunks;
}
/* The chunk that holds the residual of a trainable one, and back. */
static inline uint64_t gyre_layout_residual(const gyre_layout *layout,
                                            uint64_t train)
{
    return layout->state_chunks + train;
}
static inline uint64_t gyre_layout_residual_of(const gyre_layout *layout,
                                               uint64_t chunk)
{
    return chunk - layout->state_chunks;
}
/* The gradient region of a trainable chunk in its device file; bytes are a
 * multiple of the alignment, and 0 without regions.  It holds the raw f32 or
 * the wire blocks of all its runs, whichever are larger. */
uint64_t gyre_layout_gradient_offset(const gyre_layout *layout, uint64_t chunk);
uint64_t gyre_layout_gradient_bytes(const gyre_layout *layout, uint64_t chunk);
uint64_t gyre_layout_max_gradient_bytes(const gyre_layout *layout);
/* gradient_grain for a store that spills through `codec` (NULL: none). */
uint32_t gyre_layout_gradient_room(const gyre_codec *codec);
/* Walk the tensor runs of a chunk (a residual one has those of its trainable
 * one): *cursor starts at GYRE_RUN_FIRST; false at the end. */
#define GYRE_RUN_FIRST SIZE_MAX
bool gyre_layout_next_run(const gyre_layout *layout, uint64_t chunk,
                          size_t *cursor, gyre_run *run);
/* "tensor h.0.weight [1024, 2048), ..." for messages. */
void gyre_layout_describe(const gyre_layout *layout, uint64_t chunk, char *text,
                          size_t bytes);

#endif
