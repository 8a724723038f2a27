/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs and an NCCL that are not there: libraries with the names of the driver
 * and of NCCL, which module nccl takes for them once a test has opened them.
 * GPU memory is host memory; a stream is what is pending on it; the i-th send
 * of a pair meets the i-th receive, whatever it is for.
 *
 * Communicators do not block, as NCCL's with blocking = 0: what a call begins
 * is done by later calls of ncclCommGetAsyncError, and a group is not on its
 * stream before.  One thread at a time may be in a call with a communicator,
 * ncclCommAbort included.
 */
#ifndef GYRE_TESTS_UNIT_TRANSPORT_FAKE_GPU_H
#define GYRE_TESTS_UNIT_TRANSPORT_FAKE_GPU_H

#include <stdatomic.h>

typedef struct fake_gpu {
    int gpus;
    _Atomic unsigned calls; /* that can fail, so far */
    _Atomic unsigned fail_at;
    _Atomic int live;  /* contexts, streams, memory */
    _Atomic int wrong; /* calls without a context */
} fake_gpu_state;

typedef struct fake_nccl {
    _Atomic unsigned calls;
    _Atomic unsigned fail_at;
    _Atomic int live;  /* communicators */
    _Atomic int wrong; /* sizes that differ; calls on a dead communicator, or
                          while another is in it */
    _Atomic unsigned moved;
    _Atomic int gate;   /* 1: ncclGroupEnd stays in the call */
    _Atomic int inside; /* calls that do */
} fake_nccl_state;

/* What a CUstream points to. */
typedef struct fake_stream {
    _Atomic int pending;
} fake_stream;

#endif
