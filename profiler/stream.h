/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peer of `bench update`: a loop that reads and writes the same arrays with
 * one addition each, on the best instruction set of the machine.
 *
 *     fused:  for i: x0[i] += g[i]; x1[i] += g[i]; ...   one pass
 *     split:  for i: x0[i] += g[i];  for i: x1[i] += g[i]; ...
 *     ahead:  fused, and every line is fetched before its turn
 *
 * Which of them is faster depends on the machine; the bench takes the
 * fastest.  Tiles of at most 4096 elements, like the updates.
 */
#ifndef GYRE_PROFILER_STREAM_H
#define GYRE_PROFILER_STREAM_H

#include <stddef.h>

enum { STREAM_MAX = 8 };
enum { STREAM_FUSED, STREAM_SPLIT, STREAM_AHEAD, STREAM_SHAPES };

typedef void (*stream_function)(size_t n, const float *g, float *const *x);

/* For `arrays` written arrays (1 to STREAM_MAX). */
stream_function stream_best(size_t arrays, int shape);
const char *stream_isa(void);

#endif
