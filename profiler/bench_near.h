/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `gyre bench near`: what updating beside the storage gains, for 1 to many
 * devices on emulated links, held against closed forms (near_model.h).
 *
 *     bench_near.c           the command: options, the order of cases
 *     bench_near_run.c       steps of one case over the public interface
 *     bench_near_disk.c      rate of the disk underneath
 *     bench_near_throttle.c  devices that the kernel slows down
 *     bench_near_print.c     table, JSON, plot
 *
 * Each case makes a store of its own in `folder`, takes one step that is not
 * counted and `steps` that are, and removes the store.  A step is: sleep as
 * long as forward and backward, give all gradients and wait until they have
 * arrived, update and commit.  Nothing is left out of its time: flushes and the
 * commit's own writes are in it, though the closed forms know none.
 */
#ifndef GYRE_PROFILER_BENCH_NEAR_H
#define GYRE_PROFILER_BENCH_NEAR_H

#include "near_model.h"

#include <gyre/gyre.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum { NEAR_CASES = 6, NEAR_MAX_DEVICES = GYRE_MAX_DEVICES };

typedef struct near_case {
    const char *name;  /* on the command line and in JSON */
    const char *label; /* in table and plot */
    near_scheme scheme;
    uint32_t buffers;      /* per device; 0: the store's default */
    uint32_t commit_every; /* rounds per commit of the residual; 0: it is not
                              committed */
} near_case;

extern const near_case near_cases[NEAR_CASES];

typedef struct near_throttle near_throttle;

typedef struct near_options {
    const char *path;      /* where `folder` is made */
    const char *optimizer; /* plugin */
    double momentum;       /* its parameter of this name; 0: not given */
    const char *compressor;
    double ratio; /* of elements that the compressor keeps */
    uint64_t elements;
    uint64_t chunk_elements; /* 0: chosen for each number of devices */
    uint64_t steps;
    double link, read, write; /* bytes per second */
    gyre_dtype returned;      /* of updated parameters */
    bool residual_off;        /* in place of volatile */
    bool kernel;              /* devices throttled by the kernel */
    bool chosen[NEAR_CASES];
    unsigned devices[NEAR_MAX_DEVICES];
    size_t device_count;
    char folder[3000]; /* all is made in it, and it is removed */
} near_options;

/* What one case showed.  Bytes are per parameter and step. */
typedef struct near_result {
    const near_case *of;
    unsigned devices;
    uint64_t chunk_elements;
    double seconds; /* whole step: median, or the mean when each n-th round
                       commits */
    double least, most;
    double gradient_seconds; /* of the whole: gradients down */
    double update_seconds;   /* of the whole: all but forward and backward */
    double model_seconds, model_update_seconds;
    double speedup, model_speedup; /* over `host` on as many devices; 0 when
                                      that did not run */
    double update_speedup, model_update_speedup;
    near_bytes bytes, formula;
    bool equal; /* bytes and formula: whole bytes of all steps, residual too */
    double down, up;         /* of bytes.host */
    double residual, frames; /* beside the formula: host link */
    double residual_formula;
    double padding_read, padding_write, commit_write; /* and devices */
    char digest[GYRE_DIGEST_TEXT];
} near_result;

/* ---- bench_near_run.c ------------------------------------------------- */

/* The closed forms' numbers for a case: bytes as the store's own plan says.
 * Nothing is made. */
gyre_status near_prepare(gyre_context *context, const near_options *options,
                         const near_case *of, near_setup *out,
                         gyre_error *error);

/* Run one case; fills all but the speed-ups. */
gyre_status near_run(gyre_context *context, const near_options *options,
                     const near_case *of, unsigned devices, double forward,
                     near_result *out, gyre_error *error);

/* Set `error` as the library does. */
gyre_status near_fail(gyre_error *error, gyre_status status, const char *format,
                      ...) GYRE_PRINTF(3, 4);

/* Remove a folder and what is in it.  No error when it is not there. */
void near_remove(const char *path);

/* ---- bench_near_disk.c ------------------------------------------------ */

/*
 * Bytes per second of a disk that reads and writes at once, `read_share` of
 * the bytes read: transfers of `block` bytes past the page cache where that
 * works, over a file in `folder` that is removed again.  Takes two seconds.
 */
gyre_status near_disk_rate(const char *folder, size_t block, double read_share,
                           double *out, gyre_error *error);

/* ---- bench_near_throttle.c -------------------------------------------- */

/*
 * Block files that the kernel slows down: loop devices over files in `folder`,
 * and a control group (blkio, or io of the second version) that this process
 * joins.  Needs root.  The files have no name any more and the loop devices
 * free themselves, so whatever becomes of the process, nothing of them stays;
 * the empty group is removed by near_throttle_forget.
 */
gyre_status near_throttle_start(const char *folder, unsigned devices,
                                uint64_t bytes, near_throttle **out,
                                gyre_error *error);
const char *const *near_throttle_paths(const near_throttle *throttle);
/* Bytes per second of each device; 0: no limit. */
gyre_status near_throttle_rates(near_throttle *throttle, double read,
                                double write, gyre_error *error);
void near_throttle_stop(near_throttle *throttle);
/* Remove the groups of processes that are gone, from another process. */
void near_throttle_forget(void);

/* ---- bench_near_print.c ----------------------------------------------- */

typedef struct near_report {
    const near_options *options;
    double disk;    /* bytes per second, as measured */
    double forward; /* seconds of forward and backward */
    size_t count;
    const near_result *results; /* by devices, then by case */
} near_report;

json_t *near_json(const near_report *report);
void near_print_head(const near_report *report);
void near_print_row(const near_result *result);
void near_print_foot(const near_report *report);
/* Whole steps, and gradients and update alone: speed-up by devices. */
int near_plot(FILE *file, const near_report *report);

#endif
