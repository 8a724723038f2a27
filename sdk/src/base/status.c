/* SPDX-License-Identifier: Apache-2.0 */
/* Names of status codes, and writing error texts. */
#include "config.h"

#include "base/base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *gyre_status_name(gyre_status status)
{
    switch (status) {
#define STATUS_NAME(name, number, text) \
    case GYRE_##name:                   \
        return #name;
        GYRE_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "UNKNOWN";
}

const char *gyre_status_text(gyre_status status)
{
    switch (status) {
#define STATUS_TEXT(name, number, text) \
    case GYRE_##name:                   \
        return text;
        GYRE_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

/*
 * Texts are made in a buffer of their own and copied, so that an argument may
 * point into the error that is written.
 */
static void put(gyre_error *error, gyre_status status, const char *text)
{
    size_t length = strlen(text);

    if (length >= sizeof(error->text))
        length = sizeof(error->text) - 1;
    memcpy(error->text, text, length);
    error->text[length] = '\0';
    error->status = status;
}

gyre_status gyre_fail(gyre_error *error, gyre_status status, const char *format,
                      ...)
{
    va_list arguments;
    va_start(arguments, format);
    gyre_fail_list(error, status, format, arguments);
    va_end(arguments);
    return status;
}

gyre_status gyre_fail_list(gyre_error *error, gyre_status status,
                           const char *format, va_list arguments)
{
    char text[GYRE_ERROR_TEXT];
    if (error == NULL)
        return status;
    vsnprintf(text, sizeof(text), format, arguments);
    put(error, status, text);
    return status;
}

gyre_status gyre_fail_prefix(gyre_error *error, gyre_status status,
                             const char *format, ...)
{
    char text[2 * GYRE_ERROR_TEXT + 2];
    size_t length;
    va_list arguments;

    if (error == NULL)
        return status;
    va_start(arguments, format);
    vsnprintf(text, GYRE_ERROR_TEXT, format, arguments);
    va_end(arguments);
    length = strlen(text);
    snprintf(text + length, sizeof(text) - length, ": %s", error->text);
    put(error, status, text);
    return status;
}

static gyre_status status_of_errno(gyre_status fallback, int err)
{
    switch (err) {
    case ENOSPC:
    case EDQUOT:
        return GYRE_NO_SPACE;
    case ENOMEM:
        return GYRE_NO_MEMORY;
    case EACCES:
    case EPERM:
        return GYRE_PERMISSION;
    case ENOENT:
        return GYRE_NOT_FOUND;
    case EEXIST:
        return GYRE_EXISTS;
    default:
        return fallback;
    }
}

gyre_status gyre_fail_errno(gyre_error *error, gyre_status fallback, int err,
                            const char *format, ...)
{
    gyre_status status = status_of_errno(fallback, err);
    char text[GYRE_ERROR_TEXT];
    char reason[128];
    const char *words = reason;
    va_list arguments;

    if (error == NULL)
        return status;
#ifdef STRERROR_R_CHAR_P
    words = strerror_r(err, reason, sizeof(reason));
#else
    if (strerror_r(err, reason, sizeof(reason)) != 0)
        snprintf(reason, sizeof(reason), "errno %d", err);
#endif
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return gyre_fail(error, status, "%s: %s", text, words);
}

size_t gyre_print(char *text, size_t size, size_t used, const char *format, ...)
{
    va_list arguments;

    if (used + 1 >= size)
        return used;
    va_start(arguments, format);
    int n = vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
    if (n < 0)
        return used;
    return (size_t)n < size - used ? used + (size_t)n : size - 1;
}
