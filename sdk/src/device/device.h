/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where arithmetic happens: one pass over a chunk that scales the gradient,
 * runs the optimizer and takes the checksums while the data are in cache.
 *
 * A chunk in memory is `vars` arrays of `elements` f32 one behind the other,
 * variable 0 the parameter:
 *
 *     | p p p p ... | m m m m ... | v v v v ... |
 *
 * Its checksum is XXH3-64 over the checksums of its variables, both seeded:
 *     h_i = XXH3(seed, variable i)      hash = XXH3(seed, h_0 h_1 ... )
 *
 * Reductions (STORE.md 1.2): a leaf is one grain of one tensor, 16 double
 * lanes by index mod 16, folded 8-4-2-1; the caller adds leaves in index
 * order.  Products of two f32 are exact in double, so contraction is harmless.
 */
#ifndef GYRE_SRC_DEVICE_DEVICE_H
#define GYRE_SRC_DEVICE_DEVICE_H

#include "base/base.h"
#include "registry/optimizer.h"

/* A run of one tensor inside a chunk. */
typedef struct gyre_segment {
    size_t at; /* first element, counted from the chunk's start */
    size_t n;
    uint64_t index;       /* first element, counted from the tensor's start */
    const float *g;       /* its gradient, unscaled; NULL: leave it alone */
    const float *scalars; /* of the tensor's group and step */
} gyre_segment;

typedef struct gyre_update_job {
    const gyre_opt *opt;
    float *data;
    size_t vars;     /* 1 + slots */
    size_t elements; /* of each variable, padding included */
    const gyre_segment *segments;
    size_t segment_count;
    float q;   /* x = G q; 1 leaves G as it is */
    int check; /* take `before` too */
    uint64_t seed_before;
    uint64_t seed_after;
    uint64_t before; /* out: checksums */
    uint64_t after;
} gyre_update_job;

/* Update one chunk in place on the CPU.  Pins the FP control word.  Any
 * thread. */
void gyre_device_update(gyre_update_job *job);

/* Checksum of a chunk as above. */
uint64_t gyre_device_hash(const float *data, size_t vars, size_t elements,
                          uint64_t seed);

/* Sum of squares of n <= GYRE_GRAIN gradients; *finite is 0 when one is NaN or
 * infinite.  The same bits on every instruction set. */
double gyre_device_leaf(gyre_isa isa, const float *g, size_t n, int *finite);

/* The same sum when all of them are known to be finite. */
double gyre_device_leaf_finite(gyre_isa isa, const float *g, size_t n);

/* dst += src, n elements; the plain f32 sum. */
void gyre_device_add(float *dst, const float *src, size_t n);

#endif
