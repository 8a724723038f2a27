/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver and a run-time compiler that are not there: libraries with the
 * names of NVIDIA's, which the cuda module takes for them once a test has
 * opened them.  Copies are made in host memory, objects are counted, the n-th
 * call fails; the "kernel" is a function of the test.
 */
#ifndef GYRE_TESTS_UNIT_DEVICE_FAKE_H
#define GYRE_TESTS_UNIT_DEVICE_FAKE_H

#include <stddef.h>

typedef struct fake_cuda {
    int devices;       /* that the driver sees */
    int init_result;   /* of cuInit, a CUresult */
    size_t free_bytes; /* of the device */
    unsigned calls;    /* that can fail, so far */
    unsigned fail_at;  /* the one that does; 0: none */
    const char *failed;
    int pending; /* event queries that say "not ready" */
    /* counts */
    int live; /* objects: streams, events, memory, modules, pinned */
    int retained;
    int depth; /* contexts pushed */
    int launches;
    int wrong; /* calls out of context, on dead objects, beyond a block */
    void (*kernel)(void *state, const void *input, unsigned grains);
} fake_cuda_state;

typedef struct fake_nvrtc {
    unsigned calls;
    unsigned fail_at;
    int live;
    int wrong; /* an option that keeps the bits was not given */
} fake_nvrtc_state;

#endif
