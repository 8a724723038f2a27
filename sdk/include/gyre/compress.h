/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressed gradients without a store: for another link, or for trying a
 * compressor.  A store does the same by itself (gyre/store.h).
 *
 *     a  = fma(g, q, kappa e)     e NULL: a = g q
 *     block = compress(a)         self-describing, with a checksum
 *     e' = a - decompress(block)  what was left out, for the next time
 *
 * The same bits on every instruction set, for any cut on a multiple of
 * GYRE_GRAIN elements.
 */
#ifndef GYRE_COMPRESS_H
#define GYRE_COMPRESS_H

#include <gyre/registry.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gyre_compression gyre_compression;

/* Find the compressor plugin and check its settings.  Errors: NOT_FOUND,
 * PARAMETER, PLUGIN_..., NO_MEMORY.  Any thread; read-only afterwards, so that
 * the functions below may be called by many threads at once. */
GYRE_API gyre_status gyre_compression_create(
    gyre_context *context, const char *compressor, const gyre_setting *settings,
    size_t count, gyre_compression **out, gyre_error *error);
/* NULL is fine.  When no other thread uses it. */
GYRE_API void gyre_compression_destroy(gyre_compression *compression);

/* Most bytes of a block of `elements`; a multiple of 8. */
GYRE_API uint64_t gyre_compression_bound(const gyre_compression *compression,
                                         uint64_t elements);

/* Elements [index, index + elements) of one tensor.  Zero it, set `size`; q
 * and kappa are 1 in the plain case.  All arrays are the caller's. */
typedef struct gyre_compression_job {
    size_t size;
    uint64_t elements;
    uint64_t index;     /* a multiple of GYRE_GRAIN */
    const float *g;     /* gradient, finite */
    const float *e;     /* residual before; NULL: none */
    float *e_next;      /* residual after, may be e; NULL: not wanted */
    float q, kappa;     /* factors of g and e */
    uint64_t seed;      /* of stochastic rounding, with tensor and step */
    const char *tensor; /* its name; NULL: "" */
    uint64_t step;
    uint8_t *block;       /* gyre_compression_bound bytes, aligned to 8 */
    uint64_t block_bytes; /* out */
    double sum_squares;   /* out: of what decompresses */
} gyre_compression_job;

/* Compress.  Where the plugin looks at all elements before it chooses (topk
 * with scope global), all means those of this job.  Errors: INVALID, RANGE (an
 * a is not finite; e_next and block hold nothing of use then), NO_MEMORY. */
GYRE_API gyre_status gyre_compression_run(const gyre_compression *compression,
                                          gyre_compression_job *job,
                                          gyre_error *error);

/* Check a block of `bytes` bytes, from anywhere, and decode its `elements`.
 * Errors: FORMAT (another compressor, other settings or count), CORRUPT; the
 * text names the field.  `out` may be partly written then. */
GYRE_API gyre_status gyre_compression_decode(
    const gyre_compression *compression, const uint8_t *block, uint64_t bytes,
    uint64_t elements, float *out, gyre_error *error);

#ifdef __cplusplus
}
#endif

#endif
