/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drivers that are not there: libraries with the names of OpenCL's loader, of
 * NVIDIA's driver and of its run-time compiler, which the modules take for them
 * once a test has opened them.  Copies are made in host memory, objects are
 * counted, the n-th call fails; the "kernel" is a function of the test.
 */
#ifndef GYRE_TESTS_UNIT_DEVICE_FAKE_H
#define GYRE_TESTS_UNIT_DEVICE_FAKE_H

#include <stddef.h>

typedef struct fake_cuda {
    int devices;              /* that the driver sees */
    int init_result;          /* of cuInit, a CUresult */
    size_t free_bytes;        /* of the device */
    _Atomic unsigned calls;   /* that can fail, so far */
    _Atomic unsigned fail_at; /* the one that does; 0: none */
    const char *failed;
    int pending; /* event queries that say "not ready" */
    /* counts */
    int live; /* objects: streams, events, memory, modules, pinned */
    int retained;
    int abandoned; /* objects that went with their context */
    int depth;     /* contexts pushed */
    int launches;
    int wrong;       /* calls out of context, on dead objects, beyond a block */
    unsigned shared; /* bytes of the last launch's work-groups */
    unsigned group;  /* work-items that gyre_update must have; 0: 256 */
    void (*kernel)(void *state, const void *input, unsigned grains);
    /* Kernels beside gradients: name, work-groups, six blocks, words. */
    void (*birth)(const char *name, unsigned groups, void *const *blocks,
                  const unsigned *words);
} fake_cuda_state;

typedef struct fake_nvrtc {
    _Atomic unsigned calls;
    _Atomic unsigned fail_at;
    int live;
    int wrong; /* an option that keeps the bits was not given */
} fake_nvrtc_state;

typedef struct fake_opencl {
    int platforms;       /* 0: no driver */
    unsigned long bytes; /* of memory */
    unsigned long fp_config;
    unsigned compiler; /* 1: there is one */
    _Atomic unsigned calls;
    _Atomic unsigned fail_at;
    int event_state; /* of a transfer: 0 complete, 3 queued, below 0 failed */
    int live;
    int wrong;
    int exact; /* the option for correct division was given */
} fake_opencl_state;

#endif
