/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The context: everything that other libraries keep in globals.
 *
 * A context holds the allocator, the log callback, the plugin table and the
 * trace.  Two contexts live side by side in one process.  Whoever creates a
 * context destroys it, once, after every object made from it.
 */
#ifndef GYRE_CONTEXT_H
#define GYRE_CONTEXT_H

#include <gyre/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gyre_context gyre_context;

/*
 * Memory.  `resize(user, NULL, 0, n)` allocates, `resize(user, p, old, n)`
 * resizes, `resize(user, p, old, 0)` frees and returns NULL.  `align` is a
 * power of two of at least 16.  A block asked for with `align` above 64 is
 * never resized.  Called from any thread.
 */
typedef struct gyre_allocator {
    void *(*resize)(void *user, void *block, size_t old_bytes, size_t new_bytes,
                    size_t align);
    void *user;
} gyre_allocator;

typedef enum gyre_log_level {
    GYRE_LOG_ERROR = 0,
    GYRE_LOG_WARNING = 1,
    GYRE_LOG_INFO = 2,
    GYRE_LOG_DEBUG = 3
} gyre_log_level;

typedef void (*gyre_log_function)(void *user, gyre_log_level level,
                                  const char *text);

/*
 * Options; zero everything, set `size`, then what differs from the default.
 * Copied: nothing here needs to outlive the call, but for `user` pointers.
 */
typedef struct gyre_context_options {
    size_t size;              /* sizeof(gyre_context_options) */
    gyre_allocator allocator; /* resize NULL: the C library's */
    gyre_log_function log;    /* NULL: silence */
    void *log_user;
    const char *plugin_path;     /* ':'-separated, searched first; or NULL */
    const char *instruction_set; /* "scalar", "avx2", "avx512", NULL: best, or
                                    GYRE_ISA when that is set */
    uint32_t trace_records;      /* per thread; 0: no trace */
} gyre_context_options;

/*
 * Make a context.  `options` NULL means all defaults.  Errors: NO_MEMORY;
 * INVALID for an unknown instruction set, UNSUPPORTED for one that this
 * machine lacks.  Any thread.
 */
GYRE_API gyre_status gyre_context_create(const gyre_context_options *options,
                                         gyre_context **out, gyre_error *error);

/* Destroy; NULL is allowed.  One thread, after all objects made from it. */
GYRE_API void gyre_context_destroy(gyre_context *context);

/* The instruction set in use: "scalar", "avx2" or "avx512".  Any thread. */
GYRE_API const char *gyre_context_instruction_set(const gyre_context *context);

/* Bytes now allocated from this context, and the highest so far. */
GYRE_API uint64_t gyre_context_memory(const gyre_context *context,
                                      uint64_t *peak);

/* Library version "major.minor.patch", and what configure found, one
 * "name: state" per line.  Any thread. */
GYRE_API const char *gyre_version(void);
GYRE_API const char *gyre_build_summary(void);

#ifdef __cplusplus
}
#endif

#endif
