/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: files made, replaced, renamed and removed outside of any queue.
 *
 * One step at a time by one thread, so an event after a step says the same as
 * one around it: until the folder is synced, the step is there or not.
 */
#include "config.h"

#include "io/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gyre_status refused(gyre_io_recorder *recorder, const char *what,
                           const char *path, gyre_error *error)
{
    int err = gyre_io_recorder_asks(recorder);

    if (err == 0)
        return GYRE_OK;
    return gyre_fail_errno(error, GYRE_IO, err, "cannot %s %s", what, path);
}

static gyre_status failed(const char *what, const char *path, gyre_error *error)
{
    return gyre_fail_errno(error, GYRE_IO, errno, "cannot %s %s", what, path);
}

gyre_status gyre_io_make_file(gyre_io_recorder *recorder, const char *path,
                              int *fd, int *direct, gyre_error *error)
{
    gyre_status status = refused(recorder, "make", path, error);

    if (status == GYRE_OK)
        status = gyre_io_open_file(path, 1, fd, direct, error);
    if (status == GYRE_OK)
        gyre_io_recorder_note(recorder, GYRE_IO_MADE, path, NULL, 0);
    return status;
}

gyre_status gyre_io_size_file(gyre_io_recorder *recorder, int fd,
                              const char *path, uint64_t bytes,
                              gyre_error *error)
{
    gyre_status status = refused(recorder, "reserve", path, error);

    if (status == GYRE_OK)
        status = gyre_io_reserve(fd, path, bytes, error);
    if (status == GYRE_OK)
        gyre_io_recorder_note(recorder, GYRE_IO_SIZED, path, NULL, bytes);
    return status;
}

gyre_status gyre_io_make_folder(gyre_io_recorder *recorder, const char *path,
                                bool *made, gyre_error *error)
{
    gyre_status status = refused(recorder, "make", path, error);

    if (status != GYRE_OK)
        return status;
    *made = mkdir(path, 0777) == 0;
    if (!*made && errno != EEXIST)
        return failed("make", path, error);
    if (*made)
        gyre_io_recorder_note(recorder, GYRE_IO_FOLDER_MADE, path, NULL, 0);
    return GYRE_OK;
}

gyre_status gyre_io_read_at(int fd, const char *path, void *data, size_t bytes,
                            uint64_t offset, gyre_error *error)
{
    char *at = data;

    while (bytes > 0) {
        ssize_t n = pread(fd, at, bytes, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gyre_fail_errno(error, GYRE_IO, errno,
                                   "cannot read %s at %llu", path,
                                   (unsigned long long)offset);
        if (n == 0)
            return gyre_fail(error, GYRE_FORMAT, "%s ends at byte %llu", path,
                             (unsigned long long)offset);
        at += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return GYRE_OK;
}

gyre_status gyre_io_write_all(int fd, const char *path, const void *data,
                              size_t bytes, gyre_error *error)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t n = write(fd, at, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return failed("write", path, error);
        at += n;
        bytes -= (size_t)n;
    }
    return GYRE_OK;
}

/* As a queue would record it: the write, and the sync that covers it. */
static gyre_status write_and_sync(gyre_io_recorder *recorder, int fd,
                                  const char *path, const char *text,
                                  gyre_error *error)
{
    gyre_io_op write = {.kind = GYRE_IO_WRITE,
                        .data = (void *)(uintptr_t)text,
                        .bytes = strlen(text)};
    gyre_io_op sync = {.kind = GYRE_IO_FLUSH};
    uint64_t id = 0;
    gyre_status status = refused(recorder, "write", path, error);

    if (status == GYRE_OK && recorder != NULL)
        status = gyre_io_recorder_start(recorder, &write, path, &id, error);
    if (status != GYRE_OK)
        return status;
    status = gyre_io_write_all(fd, path, text, strlen(text), error);
    if (recorder != NULL)
        gyre_io_recorder_end(recorder, &write, path, id, status == GYRE_OK);
    if (status == GYRE_OK)
        status = refused(recorder, "sync", path, error);
    if (status == GYRE_OK && recorder != NULL)
        status = gyre_io_recorder_start(recorder, &sync, path, &id, error);
    if (status != GYRE_OK)
        return status;
    if (fsync(fd) != 0)
        status = failed("sync", path, error);
    if (recorder != NULL)
        gyre_io_recorder_end(recorder, &sync, path, id, status == GYRE_OK);
    return status;
}

gyre_status gyre_io_put_file(gyre_io_recorder *recorder, const char *path,
                             const char *text, gyre_error *error)
{
    gyre_status status = refused(recorder, "make", path, error);
    int fd;

    if (status != GYRE_OK)
        return status;
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return failed("make", path, error);
    gyre_io_recorder_note(recorder, GYRE_IO_MADE, path, NULL, 0);
    status = write_and_sync(recorder, fd, path, text, error);
    close(fd);
    if (status != GYRE_OK)
        (void)gyre_io_remove(recorder, path);
    return status;
}

gyre_status gyre_io_rename(gyre_io_recorder *recorder, const char *from,
                           const char *to, gyre_error *error)
{
    gyre_status status = refused(recorder, "rename", from, error);

    if (status != GYRE_OK)
        return status;
    if (rename(from, to) != 0)
        return failed("rename", from, error);
    gyre_io_recorder_note(recorder, GYRE_IO_RENAMED, to, from, 0);
    return GYRE_OK;
}

int gyre_io_remove(gyre_io_recorder *recorder, const char *path)
{
    int err = gyre_io_recorder_asks(recorder);

    if (err == 0 && unlink(path) != 0)
        err = errno;
    if (err == 0)
        gyre_io_recorder_note(recorder, GYRE_IO_REMOVED, path, NULL, 0);
    return err;
}

gyre_status gyre_io_sync_folder(gyre_io_recorder *recorder, const char *path,
                                gyre_error *error)
{
    gyre_status status = refused(recorder, "sync", path, error);
    int fd;

    if (status != GYRE_OK)
        return status;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        status = failed("sync", path, error);
    else
        gyre_io_recorder_note(recorder, GYRE_IO_FOLDER_SYNCED, path, NULL, 0);
    if (fd >= 0)
        close(fd);
    return status;
}

gyre_status gyre_io_sync_parent(gyre_io_recorder *recorder, const char *path,
                                gyre_error *error)
{
    char folder[4096];
    char *slash;

    snprintf(folder, sizeof(folder), "%s", path);
    slash = strrchr(folder, '/');
    if (slash == NULL)
        return gyre_io_sync_folder(recorder, ".", error);
    slash[slash == folder] = '\0';
    return gyre_io_sync_folder(recorder, folder, error);
}
