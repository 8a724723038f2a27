/* SPDX-License-Identifier: Apache-2.0 */
/* Element types.  The numbers are stored on disk and never change. */
#ifndef GYRE_DTYPE_H
#define GYRE_DTYPE_H

#include <gyre/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gyre_dtype {
    GYRE_F32 = 0,
    GYRE_F64 = 1,
    GYRE_BF16 = 2,
    GYRE_F16 = 3,
    GYRE_I32 = 4,
    GYRE_U8 = 5
} gyre_dtype;

/* Bytes of one element; 0 for an unknown number. */
GYRE_API size_t gyre_dtype_bytes(gyre_dtype dtype);
/* "f32", ...; NULL for an unknown number. */
GYRE_API const char *gyre_dtype_name(gyre_dtype dtype);
/* By name; RANGE and the list of names when unknown. */
GYRE_API gyre_status gyre_dtype_parse(const char *name, gyre_dtype *out,
                                      gyre_error *error);

/*
 * Convert n elements between f32 and f32, f64, bf16 or f16, round to nearest
 * even; NaN stays NaN, infinities stay; f16 overflows to infinity.  Strides in
 * elements (1: contiguous).  False for a dtype that is not a float.  The
 * caller has pinned the FP control word where denormals matter.
 */
GYRE_API int gyre_to_f32(gyre_dtype from, const void *src, size_t stride,
                         float *dst, size_t n);
GYRE_API int gyre_from_f32(gyre_dtype to, const float *src, void *dst,
                           size_t n);

#ifdef __cplusplus
}
#endif

#endif
