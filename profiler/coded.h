/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots of `bench update` that lie in a state codec: the parameter stays f32,
 * and the k-th slot is an array of grains (gyre_state_pack), decoded, updated
 * and encoded one by one as a store does it.
 *
 * The stream of the same shape moves the same bytes: per grain one addition
 * over the parameter, and one over as many floats of each slot as its grain
 * has room for.
 */
#ifndef GYRE_PROFILER_CODED_H
#define GYRE_PROFILER_CODED_H

#include "stream.h"

#include <gyre/plugin.h>
#include <gyre/store.h>

typedef struct coded {
    const gyre_context *context; /* of the loop's instruction set */
    gyre_state_codec codec;
    size_t arrays; /* with the parameter */
    gyre_loop_function loop;
    const float *scalars;
    stream_function parameter, slots; /* for 1 and for arrays - 1 */
} coded;

/* "bf16", ...; 0: there is no such codec. */
int coded_parse(const char *name, gyre_state_codec *codec);
/* Bytes that an update moves per element, gradient included. */
double coded_bytes(const coded *c);

/* Elements [from, to); from is the start of a grain.  x[0]: the parameter. */
void coded_touch(const coded *c, float *const *x, size_t from, size_t to);
void coded_update(const coded *c, const float *g, float *const *x, size_t from,
                  size_t to);
void coded_stream(const coded *c, const float *g, float *const *x, size_t from,
                  size_t to);

#endif
