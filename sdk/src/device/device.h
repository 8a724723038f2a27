/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where arithmetic happens: one pass over a chunk that decodes, scales the
 * gradient, runs the optimizer, encodes and takes the checksums while the data
 * are in cache.
 *
 * A chunk in memory is its variables one behind the other, variable 0 the
 * parameter, each cut into grains of 1,024 elements as its codec has them:
 *
 *     | p0 p1 p2 ... | m0 m1 m2 ... | v0 v1 v2 ... |
 *
 * Its checksum is XXH3-64 over the checksums of its variables, both seeded:
 *     h_i = XXH3(seed, bytes of variable i)   hash = XXH3(seed, h_0 h_1 ... )
 *
 * Reductions (STORE.md 1.2): a leaf is one grain of one tensor, 16 double
 * lanes by index mod 16, folded 8-4-2-1; the caller adds leaves in index
 * order.  Products of two f32 are exact in double, so contraction is harmless.
 */
#ifndef GYRE_SRC_DEVICE_DEVICE_H
#define GYRE_SRC_DEVICE_DEVICE_H

#include "base/base.h"
#include "device/state.h"
#include "registry/compressor.h"
#include "registry/optimizer.h"

#include <gyre/store.h>

/* A run of one tensor inside a chunk.  It starts on a grain, and no other run
 * has a part of a grain that it has. */
typedef struct gyre_segment {
    size_t at; /* first element, counted from the chunk's start */
    size_t n;
    uint64_t index;       /* first element, counted from the tensor's start */
    const float *g;       /* its gradient, unscaled; or: */
    const uint8_t *wire;  /* that as a checked wire block of n elements; both
                             NULL: leave the run alone, its bytes as well */
    const float *scalars; /* of the tensor's group and step */
    uint32_t key[2];      /* of stochastic rounding: seed, tensor, t */
} gyre_segment;

typedef struct gyre_update_job {
    const gyre_opt *opt;
    const gyre_codec *codec; /* of wire blocks; may be NULL without any */
    uint8_t *data;
    const gyre_var *vars; /* 1 + slots */
    size_t var_count;
    size_t elements; /* of each variable, padding included: whole grains */
    const gyre_segment *segments;
    size_t segment_count;
    float q;   /* x = G q; 1 leaves G as it is */
    int check; /* take `before` too */
    gyre_isa isa;
    uint64_t seed_before;
    uint64_t seed_after;
    uint64_t before; /* out: checksums */
    uint64_t after;
    const gyre_segment *refused; /* out: its payload is impossible, and the
                                    chunk in no state to be used; or NULL */
} gyre_update_job;

/* Update one chunk in place on the CPU.  Pins the FP control word.  Any
 * thread. */
void gyre_device_update(gyre_update_job *job);

/* Checksum of a chunk as above. */
uint64_t gyre_device_hash(const uint8_t *data, const gyre_var *vars,
                          size_t var_count, size_t elements, uint64_t seed);

/* Sum of squares of n <= GYRE_GRAIN gradients; *finite is 0 when one is NaN or
 * infinite.  The same bits on every instruction set. */
double gyre_device_leaf(gyre_isa isa, const float *g, size_t n, int *finite);

/* The same sum when all of them are known to be finite. */
double gyre_device_leaf_finite(gyre_isa isa, const float *g, size_t n);

/* dst += src, n elements; the plain f32 sum. */
void gyre_device_add(float *dst, const float *src, size_t n);

/* ---- a device that updates chunks ------------------------------------ */

typedef struct gyre_device gyre_device;

typedef struct gyre_device_spec {
    const char *name;        /* "cpu", "opencl[:N]", "cuda[:N]" */
    const gyre_opt *opt;     /* outlives the device */
    const gyre_codec *codec; /* of wire segments; NULL: raw gradients only */
    const gyre_state_codec *states; /* of each variable */
    size_t vars;
    size_t grains;  /* the most of one job */
    uint32_t lanes; /* wanted; 0: 2 */
    int allow_inexact;
} gyre_device_spec;

/*
 * Open: "cpu" is always there and has one lane; the others are modules.
 * Errors: NOT_FOUND (no such device, lists what there is), UNSUPPORTED (no
 * driver; no correctly rounded division and root, or no denormals, unless
 * allow_inexact), PLUGIN_BAD (the kernel does not build: the text holds the
 * build log), NO_MEMORY, INVALID (a malformed name).
 */
gyre_status gyre_device_open(gyre_context *context,
                             const gyre_device_spec *spec, gyre_device **out,
                             gyre_error *error);
/* Waits for what runs.  NULL is allowed. */
void gyre_device_close(gyre_device *device);

uint32_t gyre_device_lanes(const gyre_device *device);
/* False: it does not round as IEEE 754 says, and allow_inexact let it pass. */
bool gyre_device_is_exact(const gyre_device *device);
/* Memory on the device itself, bytes; 0 for cpu.  The same before it is opened,
 * and with it *host: the page-locked memory through which gradients go. */
uint64_t gyre_device_memory(const gyre_device *device);
uint64_t gyre_device_plan_memory(const gyre_device_spec *spec, uint64_t *host);
/* Tell it of memory that jobs' data will lie in, so that it can be locked. */
void gyre_device_pin(gyre_device *device, void *data, size_t bytes);
void gyre_device_unpin(gyre_device *device, void *data, size_t bytes);

/*
 * Give a job to an idle lane; it, its data and segments stay alone until
 * `finish` has returned, which fills in the checksums.  A gradient need live
 * only until submit returns.  cpu does all of it in `submit`.  One thread at a
 * time per device.  What a payload that its codec would refuse does to its own
 * grain is told in `refused` by cpu and not defined elsewhere; nothing else is
 * touched.  Errors: IO (the device failed), RANGE (more than it was opened
 * for).  After an error the lane is idle and data are not defined.
 */
gyre_status gyre_device_submit(gyre_device *device, uint32_t lane,
                               gyre_update_job *job, gyre_error *error);
/* Would `finish` return at once? */
bool gyre_device_ready(gyre_device *device, uint32_t lane);
gyre_status gyre_device_finish(gyre_device *device, uint32_t lane,
                               gyre_update_job *job, gyre_error *error);

/* ---- memory of devices ----------------------------------------------- */

/* Copy `bytes` from `offset` of device memory to the host, as gyre_gradient
 * names it; waits.  Errors: UNSUPPORTED (no module, no driver), IO (the driver
 * refuses).  Any thread. */
gyre_status gyre_device_fetch(gyre_context *context, gyre_memory_kind kind,
                              int32_t device, const void *data, uint64_t offset,
                              size_t bytes, void *host, gyre_error *error);

#endif
