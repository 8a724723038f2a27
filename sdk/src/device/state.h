/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State codecs: how a variable (the parameter or a slot) lies on storage.
 *
 * The unit is one grain of 1,024 elements of one tensor, padding included: a
 * codec takes all of it, always from 1,024 floats to the same number of
 * bytes.  So no result depends on where chunks are cut.  Padding is zero, and
 * zero stays zero in every codec.  Values that came out of a codec go through
 * it (to nearest) unchanged: a store may be rewritten through f32 any number
 * of times.
 *
 *     codec             bytes per grain    bytes of n elements
 *     f32               4096               4 n
 *     bf16              2048               2 n, to nearest even
 *     bf16-stochastic   2048               2 n, up or down by a counter
 *     q8                1024 + 4 * 4       n + 4 ceil(n / 256), by a counter
 *
 * The definition of each, and how far off it may be, stands in element.h;
 * gyre-store(5) has it for users.
 *
 * Numbers for rounding by a counter are gyre_hash(key, counter), the upper 16
 * bits of it; the counter is the element's place in its tensor, and the key
 * comes from the store's seed, the tensor's name, t and the variable.
 */
#ifndef GYRE_SRC_DEVICE_STATE_H
#define GYRE_SRC_DEVICE_STATE_H

#include "base/base.h"

#include <gyre/store.h>

enum { GYRE_STATE_CODECS = 4 };

/* One variable of a chunk in memory: grain k lies at `at + k * stride`. */
typedef struct gyre_var {
    gyre_state_codec codec;
    size_t at;     /* bytes from the chunk's start */
    size_t stride; /* bytes of a grain */
} gyre_var;

/* "f32", "bf16", ...; NULL for a number that is no codec. */
const char *gyre_state_name(gyre_state_codec codec);
bool gyre_state_parse(const char *name, gyre_state_codec *codec);

/* Bytes of a grain, and of n elements of a tensor without padding. */
size_t gyre_state_stride(gyre_state_codec codec);
uint64_t gyre_state_bytes(gyre_state_codec codec, uint64_t n);

/* Does rounding in an update want a key? */
bool gyre_state_is_random(gyre_state_codec codec);
/* Key of a tensor at its step t; and from that the one for gyre_state_encode,
 * of variable v and a grain that starts at `index` of the tensor. */
void gyre_state_key(uint64_t seed, const char *name, uint64_t t,
                    uint32_t key[2]);
void gyre_state_grain_key(const uint32_t key[2], uint32_t v, uint64_t index,
                          uint32_t out[2]);

/*
 * One grain.  The FP control word is pinned by the caller.  `key` and `index`
 * decide rounding by a counter alone; key NULL rounds to nearest, which is
 * what contents that come in from outside get.  Any thread.
 */
void gyre_state_decode(gyre_state_codec codec, gyre_isa isa, const uint8_t *src,
                       float *out);
void gyre_state_encode(gyre_state_codec codec, gyre_isa isa, const float *in,
                       uint8_t *dst, const uint32_t key[2], uint64_t index);

/*
 * Variable `var` of a chunk from element `at` on, as f32: where it is f32 all
 * *n elements, in place; else those up to the end of the grain, decoded into
 * `scratch`[GYRE_GRAIN], and *n is how many.
 */
const float *gyre_state_view(const gyre_var *var, gyre_isa isa,
                             const uint8_t *data, size_t at, size_t *n,
                             float *scratch);

/* q8.c: one grain of it. */
void gyre_q8_decode(gyre_isa isa, const uint8_t *src, float *out);
void gyre_q8_encode(gyre_isa isa, const float *in, uint8_t *dst,
                    const uint32_t key[2], uint64_t index);

#endif
