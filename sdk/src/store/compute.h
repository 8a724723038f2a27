/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What computes beside a device and how fast it pretends to be, in words:
 * options.compute and options.link_rate (compute.c).
 */
#ifndef GYRE_SRC_STORE_COMPUTE_H
#define GYRE_SRC_STORE_COMPUTE_H

#include "store/store.h"

/* "65M", "1.5G", "800k", "1000000": bytes per second, decimal.  false: not a
 * rate, or not above 0. */
bool gyre_rate_parse(const char *text, size_t length, double *rate);

typedef struct gyre_compute {
    const char *device; /* for gyre_device_open; lies in the text parsed */
    double read_rate;   /* bytes per second; 0: as it is */
    double write_rate;
} gyre_compute;

/* "cpu", "opencl[:N]", "cuda[:N]", "emulated:read=RATE,write=RATE". */
gyre_status gyre_compute_parse(const char *text, gyre_compute *out,
                               gyre_error *error);
/* Are compute, link_rate and placement well formed? */
gyre_status gyre_compute_check(const gyre_store_options *options,
                               gyre_error *error);
/* places[].compute, once the devices are known; options may be NULL. */
gyre_status gyre_compute_take(gyre_store *store,
                              const gyre_store_options *options,
                              gyre_error *error);

#endif
