/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which engine a text means, and the table of descriptors that engines share.
 */
#include "config.h"

#include "io/engine.h"

#include <string.h>

static gyre_status create_auto(gyre_context *context, uint32_t depth,
                               gyre_io_backend **out, gyre_error *error)
{
    gyre_error reason;
    gyre_status status = gyre_io_uring_create(context, depth, out, &reason);

    /* Only a refusal by the kernel or the build is a reason to go on: out of
     * memory must not turn into another engine. */
    if (status == GYRE_UNSUPPORTED) {
        gyre_log(context, GYRE_LOG_INFO, "I/O by the posix engine: %s",
                 reason.text);
        return gyre_io_posix_create(context, depth, out, error);
    }
    if (status)
        return gyre_fail(error, status, "%s", reason.text);
    return GYRE_OK;
}

static gyre_status create_faulty(gyre_context *context, const char *text,
                                 uint32_t depth, gyre_io_backend **out,
                                 gyre_error *error)
{
    gyre_io_faults faults;
    gyre_io_backend *inner;
    gyre_status status = gyre_io_faults_parse(text, &faults, error);

    if (status)
        return status;
    status =
        gyre_io_backend_create(context, faults.inner, depth, &inner, error);
    if (status)
        return status;
    status = gyre_io_faulty_create(context, depth, &faults, inner, out, error);
    if (status)
        inner->call->destroy(inner);
    return status;
}

gyre_status gyre_io_backend_create(gyre_context *context, const char *text,
                                   uint32_t depth, gyre_io_backend **out,
                                   gyre_error *error)
{
    if (strcmp(text, "auto") == 0)
        return create_auto(context, depth, out, error);
    if (strcmp(text, "uring") == 0)
        return gyre_io_uring_create(context, depth, out, error);
    if (strcmp(text, "posix") == 0)
        return gyre_io_posix_create(context, depth, out, error);
    if (strncmp(text, "faulty", 6) == 0 && strchr(":,", text[6]))
        return create_faulty(context, text, depth, out, error);
    return gyre_fail(error, GYRE_INVALID,
                     "unknown I/O engine '%s'; there are auto, uring, posix "
                     "and, for tests, faulty[:posix|:uring][,FAULT=N]...",
                     text);
}

gyre_status gyre_io_fds_add(gyre_context *context, gyre_io_fds *fds, int fd,
                            gyre_error *error)
{
    if (fds->count == fds->capacity) {
        size_t more = fds->capacity ? 2 * fds->capacity : 8;
        int *grown =
            gyre_grow(context, fds->fd, fds->capacity, more, sizeof *grown);
        if (!grown)
            return gyre_fail(error, GYRE_NO_MEMORY,
                             "table of %zu descriptors: out of memory", more);
        fds->fd = grown;
        fds->capacity = more;
    }
    fds->fd[fds->count++] = fd;
    return GYRE_OK;
}

void gyre_io_fds_free(gyre_context *context, gyre_io_fds *fds)
{
    gyre_free(context, fds->fd, fds->capacity, sizeof *fds->fd);
}
