/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One program text for a device that builds its own: the optimizer's kernel,
 * the state codecs, and the gradient's decoder, in OpenCL C or CUDA C.
 *
 * Kernel `gyre_update(state, input, grains, shared)`: one work-group of
 * GYRE_SOURCE_GROUP work-items per grain.  `shared` is memory of the work-group
 * (in CUDA no argument but dynamic shared memory): variables in the kernel
 * itself were mixed up between work-groups by PoCL 3.1.  state holds the
 * variables as in device.h; input is what pack.h draws.
 *
 * Bits: contraction is off by a pragma at file scope (OpenCL) or a flag (CUDA);
 * everything else is gy_fma, gy_sqrt and plain f32 operations.
 */
#ifndef GYRE_SRC_DEVICE_SOURCE_H
#define GYRE_SRC_DEVICE_SOURCE_H

#include "device/device.h"

enum { GYRE_SOURCE_GROUP = 256 };

/* `language` as in gyre_driver; the text is freed with gyre_free_text; *shared
 * is the memory that a work-group shares, bytes.  Errors: NO_MEMORY,
 * UNSUPPORTED (a codec without portable text). */
gyre_status gyre_source_make(gyre_context *context, const char *language,
                             const gyre_device_spec *spec, char **out,
                             size_t *shared, gyre_error *error);

/* A text that grows; `failed` when memory ran out. */
typedef struct gyre_text {
    gyre_context *context;
    char *at;
    size_t length, room;
    bool failed;
} gyre_text;
void gyre_text_add(gyre_text *text, const char *format, ...) GYRE_PRINTF(2, 3);
void gyre_text_free(gyre_text *text);

/*
 * source_state.c: the functions of the state codecs, and what the kernel says
 * of its variables: arrays in shared memory, keys of random rounding, variable
 * v to and from a float `name` in the loop over elements, and behind the loop
 * the encoding of whole grains.
 */
void gyre_source_states(gyre_text *text);
size_t gyre_source_shared(gyre_text *text, const gyre_device_spec *spec,
                          size_t used); /* words; returns those in use */
void gyre_source_keys(gyre_text *text, const gyre_device_spec *spec);
void gyre_source_load(gyre_text *text, const gyre_device_spec *spec, size_t v,
                      const char *name);
void gyre_source_store(gyre_text *text, const gyre_device_spec *spec, size_t v,
                       const char *name);
void gyre_source_encode(gyre_text *text, const gyre_device_spec *spec);

#endif
