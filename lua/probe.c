/* SPDX-License-Identifier: Apache-2.0 */
/* What a dry run measures: the disk's rates and the process's memory. */
#include "config.h"

#include "module.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 20 };

/* The nearest folder above `path` that is there. */
static bool existing_folder(const char *path, char *out, size_t size)
{
    struct stat st;

    if (snprintf(out, size, "%s", path) >= (int)size)
        return false;
    while (stat(out, &st) != 0 || !S_ISDIR(st.st_mode)) {
        char *slash = strrchr(out, '/');

        if (slash == NULL)
            snprintf(out, size, ".");
        else if (slash == out)
            out[1] = '\0';
        else
            *slash = '\0';
    }
    return true;
}

/* A file that nobody else sees and that is gone with its descriptor.  Past the
 * page cache where the file system allows it, since a store goes past it. */
static int open_nameless(const char *folder)
{
    char name[512];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);

    if (fd < 0)
        fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    if (snprintf(name, sizeof(name), "%s/.gyre-probe-XXXXXX", folder) >=
        (int)sizeof(name))
        return -1;
    fd = mkstemp(name);
    if (fd >= 0)
        unlink(name);
    return fd;
}

static bool write_all(int fd, const char *buffer, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PIECE)
        if (pwrite(fd, buffer, PIECE, (off_t)at) != PIECE)
            return false;
    return fdatasync(fd) == 0;
}

static bool read_all(int fd, char *buffer, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PIECE)
        if (pread(fd, buffer, PIECE, (off_t)at) != PIECE)
            return false;
    return true;
}

bool gl_measure(const char *path, void *buffer, size_t bytes, gl_rates *rates)
{
    bool good = false;
    uint64_t start, written, done;

    if (!existing_folder(path, rates->where, sizeof(rates->where)))
        return false;
    int fd = open_nameless(rates->where);
    if (fd < 0)
        return false;
    memset(buffer, 0x5a, PIECE);
    start = gl_now();
    if (!write_all(fd, buffer, bytes))
        goto close_file;
    written = gl_now();
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (!read_all(fd, buffer, bytes))
        goto close_file;
    done = gl_now();
    rates->write = (double)bytes / ((double)(written - start + 1) * 1e-9);
    rates->read = (double)bytes / ((double)(done - written + 1) * 1e-9);
    good = true;

close_file:
    close(fd);
    return good;
}

uint64_t gl_resident(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (file == NULL)
        return 0;
    if (fscanf(file, "%*u %llu", &pages) != 1)
        pages = 0;
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
