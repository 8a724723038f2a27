/* SPDX-License-Identifier: Apache-2.0 */
/* One launch of the device kernel: what lies where, in and out. */
#ifndef GYRE_SRC_ATTENTION_KERNEL_DEVICE_PACK_H
#define GYRE_SRC_ATTENTION_KERNEL_DEVICE_PACK_H

#include "attention/kernel_device.h"
#include "attention/kernel_inner.h"

typedef struct gyre_pack {
    const gyre_block *block;
    gyre_dtype dtype;
    uint32_t b, kv_head, h0, h1; /* of this launch */
    uint64_t rows, keys, runs;
    bool grad;
    uint32_t *input;
    float *state;
    size_t words, floats; /* used of input and state */
} gyre_pack;

/* Words of input and floats of state that a room needs at most. */
bool gyre_pack_room(const gyre_device_room *room, uint64_t *words,
                    uint64_t *floats);
/* Rows, keys and runs of a block; runs of its worst sequence. */
gyre_pack gyre_pack_count(const gyre_block *block);
/* Fill input and state for pack->b and pack->kv_head. */
void gyre_pack_fill(gyre_pack *pack);
/* State into the block's outputs. */
void gyre_pack_give(const gyre_pack *pack);
uint32_t gyre_pack_groups(const gyre_pack *pack);

#endif
