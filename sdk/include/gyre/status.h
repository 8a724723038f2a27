/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes and error text: what every Gyre function returns.
 *
 * The first function to detect a failure writes the text: which object, the
 * value seen, the value required, and what to do.  Later layers only pass the
 * code on.  Outputs are set on success only.
 */
#ifndef GYRE_STATUS_H
#define GYRE_STATUS_H

#include <stddef.h>

#if defined(__GNUC__)
#define GYRE_API __attribute__((visibility("default")))
#define GYRE_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define GYRE_API
#define GYRE_PRINTF(f, a)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * One table, grouped by what broke.  Numbers are stable; new ones are appended
 * to their group.
 */
#define GYRE_STATUS_MAP(X)                                      \
    X(OK, 0, "success")                                         \
    /* the caller */                                            \
    X(INVALID, 10, "invalid argument")                          \
    X(RANGE, 11, "value out of range")                          \
    X(STATE, 12, "not allowed in this state")                   \
    X(NOT_FOUND, 13, "not found")                               \
    X(EXISTS, 14, "exists already")                             \
    X(DUPLICATE, 15, "given twice")                             \
    X(MISSING, 16, "not given")                                 \
    X(UNSUPPORTED, 17, "not supported here")                    \
    X(STOPPED, 18, "stopped by the caller")                     \
    /* the machine */                                           \
    X(NO_MEMORY, 30, "out of memory")                           \
    X(NO_SPACE, 31, "no space on device")                       \
    X(IO, 32, "input/output error")                             \
    X(BUSY, 33, "in use by another process")                    \
    X(PERMISSION, 34, "permission denied")                      \
    X(SYSTEM, 35, "system call failed")                         \
    /* the store */                                             \
    X(FORMAT, 50, "not in a known format")                      \
    X(CORRUPT, 51, "data do not match their checksum")          \
    X(DIRTY, 52, "left dirty by an interrupted in-place round") \
    X(ROLLED_BACK, 53, "rolled back to the last commit")        \
    X(LAYOUT, 54, "layout differs from the one on disk")        \
    X(WORN, 55, "wear budget spent")                            \
    /* ranks and plans */                                       \
    X(PLAN, 60, "plan is not right")                            \
    X(PEER, 61, "another rank failed or does not answer")       \
    /* a plugin */                                              \
    X(PLUGIN_OPEN, 70, "plugin cannot be opened")               \
    X(PLUGIN_ABI, 71, "plugin of another ABI")                  \
    X(PLUGIN_BAD, 72, "plugin breaks its contract")             \
    X(PARAMETER, 73, "no such parameter or bad value")          \
    /* Gyre itself */                                           \
    X(INTERNAL, 99, "internal fault")

typedef enum gyre_status {
#define GYRE_STATUS_ENUM(name, number, text) GYRE_##name = number,
    GYRE_STATUS_MAP(GYRE_STATUS_ENUM)
#undef GYRE_STATUS_ENUM
} gyre_status;

#define GYRE_ERROR_TEXT 1024

/*
 * Caller-owned error text.  May be NULL wherever it is taken.  `text` is
 * NUL-terminated and cut at its size; it is untouched on success.
 */
typedef struct gyre_error {
    gyre_status status;
    char text[GYRE_ERROR_TEXT];
} gyre_error;

/* Name of a status ("NO_SPACE") and its meaning.  Any thread; never NULL. */
GYRE_API const char *gyre_status_name(gyre_status status);
GYRE_API const char *gyre_status_text(gyre_status status);

#ifdef __cplusplus
}
#endif

#endif
