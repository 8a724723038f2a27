/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `gyre bench store`: whole steps of a store beside fio.
 *
 * One step: gradients in, update, parameters back, commit.  fio then moves the
 * same bytes on the same file: it reads the versions that the next step will
 * read and writes the versions that it will overwrite, in the same order, of
 * the same size, at the same depth, and flushes at the end.  Steps and fio
 * alternate, and the ratio is the median of the pairs.
 *
 * The store's buffers lie in huge pages, which the kernel turns into a few
 * segments per transfer; fio's do not.  Where huge pages are reserved fio runs
 * a second time in each pair with its buffers in them: that is the fair peer.
 */
#ifndef GYRE_PROFILER_BENCH_STORE_H
#define GYRE_PROFILER_BENCH_STORE_H

#include <gyre/gyre.h>
#include <jansson.h>

typedef struct bench_store_options {
    const char *path;        /* a folder; the store in it is made and removed */
    const char *optimizer;   /* NULL: "adamw" */
    const char *io;          /* engine; NULL: "auto" */
    uint64_t elements;       /* 0: 64 Mi; rounded up to whole chunks */
    uint64_t chunk_elements; /* 0: chosen by the store */
    uint32_t buffers;        /* 0: the store's default */
    uint32_t pairs;          /* 0: 11 */
    double clip;             /* 0: none, and chunks update early */
} bench_store_options;

/*
 * Run it.  *out is a new JSON object with figures per pair and medians:
 * `ratio` is gyre's bytes per second over fio's, `ratio_huge` over fio's with
 * huge pages; null, and `fio` and `fio_huge` say why, when that did not run.
 * The caller frees it by json_decref.
 */
gyre_status bench_store_run(gyre_context *context,
                            const bench_store_options *options, json_t **out,
                            gyre_error *error);

#endif
