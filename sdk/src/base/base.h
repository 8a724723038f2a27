/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ground: errors, memory, logging, dtypes, floating-point state, rounding
 * and small numbers.  Every other room may include this and nothing here
 * includes another room.
 *
 * Memory goes through the context's allocator and is counted.  Freeing takes
 * the size, so that the count is exact and a test can fail the n-th request.
 */
#ifndef GYRE_SRC_BASE_BASE_H
#define GYRE_SRC_BASE_BASE_H

#include <gyre/context.h>
#include <gyre/dtype.h>
#include <gyre/status.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- errors ---------------------------------------------------------- */

/* Write status and text (cut at the size); returns `status`.  error may be
 * NULL. */
gyre_status gyre_fail(gyre_error *error, gyre_status status, const char *format,
                      ...) GYRE_PRINTF(3, 4);
gyre_status gyre_fail_list(gyre_error *error, gyre_status status,
                           const char *format, va_list arguments)
    GYRE_PRINTF(3, 0);
/* Put "prefix: " before the text that is there; returns error's status. */
gyre_status gyre_fail_prefix(gyre_error *error, gyre_status status,
                             const char *format, ...) GYRE_PRINTF(3, 4);
/* For a failed system call: text "what: strerror", status by errno
 * (ENOSPC/EDQUOT, ENOMEM, EACCES/EPERM, ENOENT, EEXIST; else `fallback`). */
gyre_status gyre_fail_errno(gyre_error *error, gyre_status fallback, int err,
                            const char *format, ...) GYRE_PRINTF(4, 5);

/* Print behind the first `used` of `size` bytes, cut there; returns how many
 * are used now, the NUL not counted. */
size_t gyre_print(char *text, size_t size, size_t used, const char *format, ...)
    GYRE_PRINTF(4, 5);

/* ---- memory ---------------------------------------------------------- */

/* All return NULL when out of memory or when the product overflows, and never
 * for a size of 0.  A block that cannot grow stays as it was.  `align` is a
 * power of two, at least 16.  Freeing NULL does nothing. */
void *gyre_alloc(gyre_context *context, size_t count, size_t size);
void *gyre_alloc_zero(gyre_context *context, size_t count, size_t size);
void *gyre_alloc_aligned(gyre_context *context, size_t bytes, size_t align);
void *gyre_grow(gyre_context *context, void *block, size_t old_count,
                size_t new_count, size_t size);
void gyre_free(gyre_context *context, void *block, size_t count, size_t size);
void gyre_free_aligned(gyre_context *context, void *block, size_t bytes,
                       size_t align);
/* A copy of text; freed by gyre_free_text.  NULL stays NULL. */
char *gyre_copy_text(gyre_context *context, const char *text);
void gyre_free_text(gyre_context *context, char *text);

/* a*b, a+b; false on overflow and *out untouched. */
bool gyre_mul(uint64_t a, uint64_t b, uint64_t *out);
bool gyre_add(uint64_t a, uint64_t b, uint64_t *out);
/* Round up to a multiple of m (m > 0); the caller knows it fits. */
static inline uint64_t gyre_round_up(uint64_t n, uint64_t m)
{
    return (n + m - 1) / m * m;
}

/* ---- context --------------------------------------------------------- */

typedef enum gyre_isa {
    GYRE_ISA_SCALAR,
    GYRE_ISA_AVX2,
    GYRE_ISA_AVX512,
    GYRE_ISA_COUNT
} gyre_isa;

gyre_isa gyre_context_isa(const gyre_context *context);
const char *gyre_isa_name(gyre_isa isa);
const char *gyre_context_plugin_path(const gyre_context *context);
void gyre_log(gyre_context *context, gyre_log_level level, const char *format,
              ...) GYRE_PRINTF(3, 4);

/*
 * One pointer per room: what a room above base hangs on the context.  The room
 * sets it once with the function that frees it; rooms later in this list are
 * freed first.  gyre_context_lock guards setting and the room's own state;
 * reading the pointer needs no lock.
 */
typedef enum gyre_room {
    GYRE_ROOM_TRACE,
    GYRE_ROOM_REGISTRY,
    GYRE_ROOM_IO,
    GYRE_ROOM_COUNT
} gyre_room;
void *gyre_context_room(gyre_context *context, gyre_room room);
void gyre_context_set_room(gyre_context *context, gyre_room room, void *state,
                           void (*release)(gyre_context *, void *));
void gyre_context_lock(gyre_context *context);
void gyre_context_unlock(gyre_context *context);
uint32_t gyre_context_trace_records(const gyre_context *context);

/* gyre_to_f32 and gyre_from_f32 with the loops of one set, for tests: the
 * public ones take the best that the machine has. */
int gyre_to_f32_with(gyre_isa isa, gyre_dtype from, const void *src,
                     size_t stride, float *dst, size_t n);
int gyre_from_f32_with(gyre_isa isa, gyre_dtype to, const float *src, void *dst,
                       size_t n);

/* ---- floating point -------------------------------------------------- */

/*
 * Save the control word and pin round-to-nearest, no FTZ, no DAZ, no traps;
 * restore it afterwards.  A host linked with -ffast-math passes FTZ and DAZ on
 * to every thread it starts, so each worker and entry point that does
 * arithmetic brackets itself with these.
 */
typedef struct gyre_fp {
    uint32_t word;
} gyre_fp;
gyre_fp gyre_fp_pin(void);
void gyre_fp_restore(gyre_fp saved);

/* The whole text is a number as the "C" locale writes it, whatever locale the
 * host has set. */
bool gyre_number_parse(const char *text, double *out);

/* Nanoseconds of the monotonic clock. */
uint64_t gyre_now(void);
/* The end of a wait from `begin` on; beyond what the clock can say it never
 * comes. */
static inline uint64_t gyre_until(uint64_t begin, uint64_t wait_ns)
{
    return wait_ns < UINT64_MAX - begin ? begin + wait_ns : UINT64_MAX;
}

/* 16 random bytes for a uuid (version 4 bits set). */
gyre_status gyre_random_uuid(uint8_t uuid[16], gyre_error *error);
/* Text form, 36 characters and NUL; and back (false when malformed). */
void gyre_uuid_text(const uint8_t uuid[16], char text[37]);
bool gyre_uuid_parse(const char *text, uint8_t uuid[16]);

#endif
