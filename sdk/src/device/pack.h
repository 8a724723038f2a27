/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What travels to a device beside the state: a record per grain, the scalars of
 * each segment, gradients or payloads.  Words of 32 bits, little-endian:
 *
 *     | record of grain 0, 1, ... | scalars, 16 per segment | gradients ... |
 *
 * A grain whose segment has no gradient has a record of zeros.
 */
#ifndef GYRE_SRC_DEVICE_PACK_H
#define GYRE_SRC_DEVICE_PACK_H

#include "device/device.h"

enum {
    GYRE_RECORD_N,        /* elements that have a gradient; 0: leave alone */
    GYRE_RECORD_SCALARS,  /* where they begin, in words from the start */
    GYRE_RECORD_GRADIENT, /* the same */
    GYRE_RECORD_WIRE,     /* 0: raw f32; 1: a payload */
    GYRE_RECORD_BYTES,    /* of the payload */
    GYRE_RECORD_INDEX,    /* of the grain's first element in its tensor */
    GYRE_RECORD_INDEX_HIGH,
    GYRE_RECORD_Q,   /* bits of the f32 that scales the gradient */
    GYRE_RECORD_KEY, /* of the segment */
    GYRE_RECORD_KEY_HIGH,
    GYRE_RECORD_WORDS = 12
};

/* Room that any job of at most `grains` grains needs. */
size_t gyre_pack_bound(const gyre_codec *codec, size_t grains);

/* Write the job's input to `out`, aligned to 4; returns the bytes. */
size_t gyre_pack_job(const gyre_update_job *job, uint32_t *out);

#endif
