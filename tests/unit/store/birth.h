/* SPDX-License-Identifier: Apache-2.0 */
/* A piece of a gradient, from the host or born on a device. */
#ifndef GYRE_TESTS_UNIT_STORE_BIRTH_H
#define GYRE_TESTS_UNIT_STORE_BIRTH_H

#include "../born.h"
#include "fixture.h"

/* Both sides are given the same bytes: dtypes go by tensor. */
static inline gyre_dtype dtype_of(size_t tensor)
{
    static const gyre_dtype list[4] = {GYRE_F32, GYRE_F64, GYRE_BF16, GYRE_F16};

    return list[tensor % 4];
}

static inline gyre_status give_piece(fixture *f, gyre_round *round,
                                     size_t tensor, uint64_t first, size_t n,
                                     const float *values, bool away, int where)
{
    gyre_dtype dtype = dtype_of(tensor);
    size_t size = gyre_dtype_bytes(dtype), stride = 1 + tensor % 3;
    size_t before = 8 * (tensor % 2), bytes = before + n * stride * size;
    char *spread = calloc(1, bytes);
    gyre_gradient g = {.kind = away ? born.kind : GYRE_HOST_MEMORY,
                       .dtype = dtype,
                       .stride = (int64_t)stride,
                       .offset = before};
    void *buffer = NULL;
    gyre_status status;

    for (size_t i = 0; i < n; i++)
        gyre_from_f32(dtype, values + i, spread + before + i * stride * size,
                      1);
    if (away)
        buffer = born_make(where, bytes, spread);
    g.data = away ? (const void *)buffer : spread;
    status = gyre_round_gradient(round, tensor, first, n, &g, &f->error);
    if (away)
        born_drop(buffer);
    free(spread);
    return status;
}

#endif
