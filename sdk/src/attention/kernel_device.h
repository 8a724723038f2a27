/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attend and grad on a device of a module ("opencl", "cuda"; device/module.h).
 *
 *     one launch: one sequence, one KV head, its query heads
 *     input   words of the problem, Q K V [DO L D] in f32, positions, the keys
 *             each query may see as runs
 *     state   attend: O, LSE     grad: DQ, DK, DV       read and written back
 *
 * The program is one text of the common subset of OpenCL C and CUDA C: squares
 * of GYRE_DEVICE_TILE rows by as many keys, one score a work-item, everything
 * in f32.  DQ and DK, DV are summed by work-groups of their own, each its own
 * rows, so no sum is shared and results do not depend on how the device runs
 * them.  Masks, dropout and ALiBi are as in kernel.h.
 */
#ifndef GYRE_SRC_ATTENTION_KERNEL_DEVICE_H
#define GYRE_SRC_ATTENTION_KERNEL_DEVICE_H

#include "attention/kernel.h"

enum { GYRE_DEVICE_TILE = 8 };

/* The most that one launch holds; gives the memory taken. */
typedef struct gyre_device_room {
    uint32_t head_dim, v_head_dim; /* exactly these */
    uint32_t group;                /* query heads of a KV head */
    uint64_t rows, keys;           /* of Q and KV pieces together */
    uint64_t runs;                 /* allowed runs of keys over all rows */
    gyre_dtype dtype;              /* of Q, K, V, DO: f32 or bf16 */
} gyre_device_room;

/* Make room for one more block; head dims, group and dtype are set before. */
void gyre_device_room_hold(gyre_device_room *room, const gyre_block *block);
/* Bytes that are taken on the host, and as many on the device.  Errors: INVALID
 * for a dtype or more than a launch can hold. */
gyre_status gyre_device_room_bytes(const gyre_device_room *room,
                                   uint64_t *bytes, gyre_error *error);

typedef struct gyre_block_device gyre_block_device;

/* Device `index` of module `name`.  Errors: NOT_FOUND, UNSUPPORTED (driver
 * missing: says what to install; head dims beyond the device's shared memory),
 * PLUGIN_BAD with the build log, NO_MEMORY. */
gyre_status gyre_block_device_open(gyre_context *context, const char *name,
                                   uint32_t index, const gyre_device_room *room,
                                   gyre_block_device **out, gyre_error *error);
void gyre_block_device_close(gyre_block_device *device);
/* As gyre_kernel's; sums and statistics are f32.  One thread at a time.
 * Errors: INVALID, RANGE beyond the room; NO_MEMORY or the driver's, with the
 * heads before the one at fault done. */
gyre_status gyre_block_device_attend(gyre_block_device *device,
                                     const gyre_block *block,
                                     gyre_error *error);
gyre_status gyre_block_device_grad(gyre_block_device *device,
                                   const gyre_block *block, gyre_error *error);

/* The program in a language of gyre_driver; freed with gyre_free_text. */
gyre_status gyre_block_source(gyre_context *context, const char *language,
                              char **out, gyre_error *error);
/* Floats that a work-group shares. */
size_t gyre_block_shared(uint32_t head_dim, uint32_t v_head_dim);

/* Words of the head of `input`; GYRE_WORD_AT_...: where an array starts. */
enum {
    GYRE_WORD_GRAD, /* 0 attend, 1 grad */
    GYRE_WORD_HEADS,
    GYRE_WORD_ROWS,
    GYRE_WORD_KEYS,
    GYRE_WORD_DIM,
    GYRE_WORD_V_DIM,
    GYRE_WORD_SCALE,
    GYRE_WORD_BELOW, /* dropout: dropped below this */
    GYRE_WORD_KEEP,
    GYRE_WORD_KEY,  /* hash of seed and sequence */
    GYRE_WORD_HEAD, /* number of the first head */
    GYRE_WORD_AT_Q,
    GYRE_WORD_AT_K,
    GYRE_WORD_AT_V,
    GYRE_WORD_AT_DO,
    GYRE_WORD_AT_L,
    GYRE_WORD_AT_D,
    GYRE_WORD_AT_SLOPES,
    GYRE_WORD_AT_ROW_AT, /* positions, low and high word */
    GYRE_WORD_AT_KEY_AT,
    GYRE_WORD_AT_FIRST, /* [rows + 1] of runs */
    GYRE_WORD_AT_RUNS,  /* first key and the one behind the last */
    GYRE_WORD_AT_REACH, /* of each tile of rows: the same, over its rows */
    GYRE_WORDS = 32
};

#endif
