/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step of `gyre bench near` should take and move: closed forms.
 *
 * Per parameter a step has g bytes of gradient (p of payload when compressed),
 * s bytes of state (parameter and slots) and u bytes of parameter returned; N
 * devices read at r and write at w each, and share a host link L, both ways
 * together.  A step is: forward and backward (no traffic counted), then the
 * gradients down to storage, then the update, one after the other.
 *
 *                 gradients            update
 *   host          g / min(L, N w)      max((s+g + s) / L, (s+g)/(N r), s/(N w))
 *   near          g / min(L, N w)      max(u / L, (s+g)/(N r) + s/(N w))
 *   overlap       g / min(L, N w)      max(u / L, (s+g)/(N r), s/(N w))
 *   compression   p / min(L, N w)      max(u / L, (s+p)/(N r), s/(N w))
 *
 * `host` is pipelined, `near` has one set of buffers, so that a device reads
 * and writes in turn.  A committed residual adds e bytes (4 / n when each n-th
 * round commits) at the end: e / min(L, N w).  For Adam in f32 (s 12, g 4, u 4)
 * the host link takes 32, 8 and, with p = 0.08, 4.08 bytes.
 *
 * Forward and backward last as long as makes gradients and update together
 * 75.6 % of the step of `host` with 6 devices, as in the paper's figure for
 * GPT-2 8.4 B (Smart-Infinity, HPCA 2024, section VII-C).
 *
 * With L : r : w = 8 : 3 : 1.6 the whole steps are 1.72 / 2.08 / 2.58 times as
 * fast as `host` with 10 devices and 1.35 / 1.74 / 2.07 with 6.  No term of
 * this form explains the 2.06 and the 1.02 (one device, overlap; here 1.00)
 * that the design quotes: they are within 1 and 2 % of it.
 */
#ifndef GYRE_PROFILER_NEAR_MODEL_H
#define GYRE_PROFILER_NEAR_MODEL_H

typedef enum near_scheme {
    NEAR_HOST,       /* state crosses the link, pipelined */
    NEAR_UPDATE,     /* update beside the storage, one buffer */
    NEAR_OVERLAP,    /* the same with recycled buffers */
    NEAR_COMPRESSION /* the same with compressed gradients */
} near_scheme;

typedef struct near_setup {
    double link;        /* bytes per second, both ways together */
    double read, write; /* bytes per second of one device */
    double elements;    /* parameters */
    double state;       /* s; bytes per parameter, as all below */
    double gradient;    /* g */
    double returned;    /* u */
    double payload;     /* p; of NEAR_COMPRESSION */
    double residual;    /* e; of NEAR_COMPRESSION */
} near_setup;

typedef struct near_seconds {
    double gradient; /* gradients down to storage */
    double update;   /* and the commit of a residual */
} near_seconds;

/* Bytes per parameter. */
typedef struct near_bytes {
    double host; /* both ways, without the residual */
    double device_read;
    double device_write;
} near_bytes;

near_seconds near_model_seconds(const near_setup *setup, near_scheme scheme,
                                unsigned devices);
near_bytes near_model_bytes(const near_setup *setup, near_scheme scheme);
/* Seconds of forward and backward. */
double near_model_forward(const near_setup *setup);

/*
 * Elements of a chunk, a multiple of `grain` near `wanted`, for which the
 * fullest of `devices` holds least: chunks go to devices in turn, and the
 * closed forms know no uneven share.
 */
double near_model_chunk(double elements, unsigned devices, double grain,
                        double wanted);

#endif
