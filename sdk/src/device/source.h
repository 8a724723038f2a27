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

/*
 * source_birth.c: the program of a device on which gradients are born, for a
 * codec with an encoder; *shared as above.  Three kernels with one list of
 * arguments: five blocks of device memory (birth.h), memory of the caller's,
 * GYRE_BIRTH_MOST_WORDS words, and memory of the work-group.  The words:
 *
 *     gyre_take    1 work-item an element: from `from` into gradients
 *         0 elements  1,2 first element there  3,4 offset in bytes
 *         5,6 stride in elements  7 dtype  8: add
 *     gyre_leaf    16 grains a work-group
 *         0 first grain  1 grains  2,3 elements from the first grain on
 *     gyre_encode  a work-group a grain
 *         0 first grain  1 elements from it on  2,3 index of the first
 *         4 q  5 kappa (f32)  6,7 key  8: there is an e  9 bytes of a whole
 *         grain's payload  10 of the last one  11 where leaves of D(c) begin
 *
 * A leaf of D(c) that is NaN says that an a was not finite.
 */
enum { GYRE_BIRTH_LEAVES_A_GROUP = 16 };
gyre_status gyre_source_birth(gyre_context *context, const char *language,
                              const gyre_codec *codec, char **out,
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

/* What every program of a language begins with; and a codec's constants, as
 * int locals, and its table, bit for bit. */
void gyre_source_words(gyre_text *text, const char *language);
void gyre_source_constants(gyre_text *text, const gyre_codec *codec);
void gyre_source_table(gyre_text *text, const gyre_codec *codec);

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
