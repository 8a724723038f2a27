/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compression with error feedback (STORE.md 2), one run of one tensor at a
 * time, each grain while it is in the first-level cache:
 *
 *     a  = fma(G, q, kappa e)      e NULL: a = G q;  kappa e is rounded first
 *     c  = compress(a)             into the wire block
 *     e' = a - D(c)                e_next NULL: not kept
 *     leaf of D(c)                 for the norm of what the optimizer sees
 *
 * An a of -0 counts as +0.  The same bits on every instruction set.  With topk
 * in f32, 16-bit topk, fp8 and quantize by nearest, D(c) + e' = a bit for bit
 * (the subtraction is exact: D(c) is 0, or within a factor of two of a, by
 * Sterbenz' lemma); with stochastic rounding and sign within one ulp of
 * max(|a|, |D(c)|).
 */
#ifndef GYRE_SRC_DEVICE_FEEDBACK_H
#define GYRE_SRC_DEVICE_FEEDBACK_H

#include "base/base.h"
#include "registry/compressor.h"

enum {
    GYRE_FEEDBACK_SLOT = 0xffff, /* a compressor's, in a rounding key */
    GYRE_FEEDBACK_DECIDED = 256  /* room that any codec's decision fits */
};

typedef struct gyre_feedback_job {
    const gyre_codec *codec;
    gyre_isa isa;
    uint64_t n;      /* elements of the run */
    uint64_t index;  /* of its first in the tensor; a multiple of GYRE_GRAIN */
    uint64_t place;  /* as in gyre_codec_survey; 0 without a barrier */
    const float *g;  /* G: unscaled, finite */
    const float *e;  /* residual before; NULL: none */
    float *e_next;   /* residual after; may be e; NULL: not wanted */
    float q, kappa;  /* kappa is ignored without e */
    uint32_t key[2]; /* seed, tensor's name and t, mixed: gyre_feedback_key */
    const void *decided; /* of a barrier; else NULL */
    uint8_t *wire;       /* gyre_codec_bound bytes, aligned to 8 */
    double *leaves; /* per grain: sum of squares of D(c); NULL: not wanted */
    int mixed;      /* e_next holds a already: see gyre_feedback_survey */
    uint64_t bytes; /* out: of the wire block */
    int finite;     /* out: 0 when an a was not (overflow of G q + kappa e) */
} gyre_feedback_job;

/* Run it.  Pins the FP control word; no allocation; any thread.  When `finite`
 * comes back 0, wire block and e_next are not to be used: keep e apart from
 * e_next where that can happen. */
void gyre_feedback_run(gyre_feedback_job *job);

/* One survey pass over the same a, without writing anything: adds to `summary`
 * (gyre_codec_survey).  Reads codec, isa, g, e, q, kappa, n, place, decided;
 * `elements`: of the whole survey.  Sets `finite`.
 *
 * With e_next given, pass 0 writes a there.  Set `mixed` from then on, in later
 * passes and in the run: they read a and neither g nor e (which is a must when
 * e_next is e, and elsewhere saves half of what is read).
 * When `finite` came back 0, do not go on: nobody looks again. */
void gyre_feedback_survey(gyre_feedback_job *job, uint32_t pass,
                          uint64_t elements, void *summary);

/* The key of a tensor's roundings in a step, from the store's seed, the hash of
 * the tensor's name, the slot (GYRE_FEEDBACK_SLOT: a compressor) and t. */
void gyre_feedback_key(uint64_t seed, uint64_t name_hash, uint32_t slot,
                       uint64_t t, uint32_t key[2]);

#endif
