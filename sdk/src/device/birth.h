/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compression with error feedback (feedback.h) where gradients are born: on the
 * device of memory kind GYRE_OPENCL_MEMORY or GYRE_CUDA_MEMORY, in the context
 * that the caller's memory belongs to.
 *
 *     caller's memory --take--> G --leaf--> a double a grain ------------> host
 *                               |
 *                 residual e -> encode -> payload, a double a grain -----> host
 *                          e' <-'
 *
 * G and both versions of e lie there for all trainable grains, counted as the
 * store counts them; what crosses to the host are payloads and leaves.  The
 * same bits as gyre_device_leaf and gyre_feedback_run.
 *
 * Any thread; calls take turns.  Errors are IO, with the driver's own name of
 * the failure; what was to be written is then not defined.
 */
#ifndef GYRE_SRC_DEVICE_BIRTH_H
#define GYRE_SRC_DEVICE_BIRTH_H

#include "device/feedback.h"

#include <gyre/store.h>

typedef struct gyre_birth gyre_birth;

typedef struct gyre_birth_spec {
    const gyre_gradient *first; /* some memory there */
    const gyre_codec *codec;    /* outlives it */
    uint64_t grains;
    bool residual;
} gyre_birth_spec;

/*
 * Take memory there and build the program.  UNSUPPORTED: it has to be done on
 * the host, and the text says why (no module, no encoder for this codec, a
 * device that does not round as IEEE 754 says or lacks doubles, no room).
 * PLUGIN_BAD: the encoder does not build; the text holds the build log.
 * INVALID, NOT_FOUND: the driver knows no such memory or device.
 */
gyre_status gyre_birth_open(gyre_context *context, const gyre_birth_spec *spec,
                            gyre_birth **out, gyre_error *error);
/* NULL is allowed. */
void gyre_birth_close(gyre_birth *birth);
/* Memory on the device, bytes; 0 when the codec has no encoder. */
uint64_t gyre_birth_memory(const gyre_codec *codec, uint64_t grains,
                           bool residual);

/* Can it read `bytes` of this piece, from its offset on? */
bool gyre_birth_reaches(gyre_birth *birth, const gyre_gradient *piece,
                        uint64_t bytes);
/* G[to ...] = or += count elements of a piece that it reaches, or of the host
 * (f32); returns when they were read. */
gyre_status gyre_birth_take(gyre_birth *birth, const gyre_gradient *piece,
                            uint64_t to, uint64_t count, bool add,
                            gyre_error *error);
gyre_status gyre_birth_give(gyre_birth *birth, const float *host, uint64_t to,
                            uint64_t count, bool add, gyre_error *error);
/* The leaf of each grain of `elements` elements from `grain` on. */
gyre_status gyre_birth_leaves(gyre_birth *birth, uint64_t grain,
                              uint64_t elements, double *out,
                              gyre_error *error);
/* gyre_feedback_run of G from `grain` on, with e of this version: fills the
 * job's wire, leaves, bytes and finite.  Its g, e and e_next only tell whether
 * there is a residual. */
gyre_status gyre_birth_encode(gyre_birth *birth, gyre_feedback_job *job,
                              uint64_t grain, uint32_t version,
                              gyre_error *error);

/* Elements [at, at + n) of a version of e: to and from the host, to the other
 * version, to zero. */
gyre_status gyre_birth_read(gyre_birth *birth, uint32_t version, uint64_t at,
                            uint64_t n, float *out, gyre_error *error);
gyre_status gyre_birth_write(gyre_birth *birth, uint32_t version, uint64_t at,
                             uint64_t n, const float *e, gyre_error *error);
gyre_status gyre_birth_copy(gyre_birth *birth, uint32_t version, uint64_t at,
                            uint64_t n, gyre_error *error);
gyre_status gyre_birth_clear(gyre_birth *birth, uint32_t version, uint64_t at,
                             uint64_t n, gyre_error *error);

#endif
