/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device files before any queue: which alignment direct I/O needs, opening
 * with it, and reserving real blocks.
 */
#include "config.h"

#include "io/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define ALIGN_LEAST 512
#define PROBE_MOST 65536

/* ---- alignment ------------------------------------------------------- */

/* Linux 6.1 and later say it, for file systems that know; false otherwise. */
static bool alignment_by_statx(int fd, uint32_t *memory, uint32_t *offset)
{
#ifdef STATX_DIOALIGN
    struct statx info;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
        (info.stx_mask & STATX_DIOALIGN)) {
        *memory = info.stx_dio_mem_align;
        *offset = info.stx_dio_offset_align;
        return true;
    }
#else
    (void)fd;
    (void)memory;
    (void)offset;
#endif
    return false;
}

/* The first power of two at which a direct read is not EINVAL; 0 for none.
 * A read at or past the end gives 0 without any check, and says nothing. */
static uint32_t alignment_by_reading(int fd, uint64_t size)
{
    void *block;
    uint32_t found = 0;

    if (posix_memalign(&block, PROBE_MOST, PROBE_MOST) != 0)
        return 0;
    for (uint32_t n = ALIGN_LEAST; !found && n <= PROBE_MOST && n < size;
         n *= 2)
        if (pread(fd, block, n, n) > 0)
            found = n;
    free(block);
    return found;
}

/* Before Linux 6.1, and for file systems that do not say. */
static void alignment_by_probe(int fd, const struct stat *info,
                               uint32_t *memory, uint32_t *offset)
{
    char path[32];
    uint32_t found = 0;
    int size = 0;

    *memory = *offset = 0;
    /* The same file again: flags set on fd itself would be seen by all who
     * share it. */
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (direct < 0)
        return;
    if (S_ISBLK(info->st_mode) && ioctl(direct, BLKSSZGET, &size) == 0)
        found = (uint32_t)size;
    else
        found = alignment_by_reading(direct, (uint64_t)info->st_size);
    close(direct);
    if (found == 0)
        found = info->st_blksize > 4096 ? (uint32_t)info->st_blksize : 4096;
    *memory = *offset = found;
}

/* tmpfs takes O_DIRECT since Linux 6.6, and means nothing by it. */
static bool in_memory(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 &&
           (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

void gyre_io_alignment(int fd, uint32_t *memory, uint32_t *offset)
{
    struct stat info;

    *memory = *offset = 0;
    if (fstat(fd, &info) != 0 ||
        !(S_ISREG(info.st_mode) || S_ISBLK(info.st_mode)) ||
        (S_ISREG(info.st_mode) && in_memory(fd)))
        return;
    if (!alignment_by_statx(fd, memory, offset))
        alignment_by_probe(fd, &info, memory, offset);
    if (*memory == 0 || *offset == 0) {
        *memory = *offset = 0;
        return;
    }
    if (*memory < ALIGN_LEAST)
        *memory = ALIGN_LEAST;
    if (*offset < ALIGN_LEAST)
        *offset = ALIGN_LEAST;
}

void gyre_io_transfer_alignment(int fd, uint32_t *memory, uint32_t *offset)
{
    int flags = fcntl(fd, F_GETFL);

    *memory = *offset = 0;
    if (flags >= 0 && (flags & O_DIRECT))
        gyre_io_alignment(fd, memory, offset);
    if (*offset == 0)
        *memory = *offset = 1;
}

/* ---- opening --------------------------------------------------------- */

gyre_status gyre_io_open_file(const char *path, int create, int *fd,
                              int *direct, gyre_error *error)
{
    int flags = O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0);
    uint32_t memory, offset;
    int opened;

    do
        opened = open(path, flags, 0600);
    while (opened < 0 && errno == EINTR);
    if (opened < 0)
        return gyre_fail_errno(error, GYRE_IO, errno, "%s '%s'",
                               create ? "creating" : "opening", path);
    /* O_DIRECT comes after: with O_CREAT, a file system without it would
     * refuse the open and leave the new file behind. */
    gyre_io_alignment(opened, &memory, &offset);
    *direct = 0;
    if (offset > 0) {
        int now = fcntl(opened, F_GETFL);
        *direct = now >= 0 && fcntl(opened, F_SETFL, now | O_DIRECT) == 0;
    }
    *fd = opened;
    return GYRE_OK;
}

/* ---- reserving ------------------------------------------------------- */

static gyre_status check_block_device(int fd, const char *path, uint64_t bytes,
                                      gyre_error *error)
{
    uint64_t size;

    if (ioctl(fd, BLKGETSIZE64, &size) != 0)
        return gyre_fail_errno(error, GYRE_IO, errno, "size of '%s'", path);
    if (size < bytes)
        return gyre_fail(error, GYRE_NO_SPACE,
                         "'%s': %llu bytes are needed, and the device has "
                         "%llu",
                         path, (unsigned long long)bytes,
                         (unsigned long long)size);
    return GYRE_OK;
}

/* Asked before reserving: a full disk halfway through would leave none for
 * anybody else meanwhile. */
static gyre_status check_free(int fd, const char *path, const struct stat *info,
                              uint64_t bytes, gyre_error *error)
{
    uint64_t has = (uint64_t)info->st_blocks * 512;
    uint64_t more = bytes > has ? bytes - has : 0;
    struct statvfs fs;

    if (fstatvfs(fd, &fs) != 0)
        return gyre_fail_errno(error, GYRE_IO, errno, "free space at '%s'",
                               path);
    uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (more > available)
        return gyre_fail(error, GYRE_NO_SPACE,
                         "'%s': %llu bytes are needed beside the %llu it has, "
                         "and %llu are free",
                         path, (unsigned long long)more,
                         (unsigned long long)has,
                         (unsigned long long)available);
    return GYRE_OK;
}

static int reserve_blocks(int fd, uint64_t bytes)
{
    int flags = fcntl(fd, F_GETFL);
    int err;

    do
        err = fallocate(fd, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
    while (err == EINTR);
    if (err != EOPNOTSUPP && err != ENOSYS)
        return err;
    /* The C library then writes a byte into each block, which is not aligned:
     * so not with O_DIRECT. */
    if (flags & O_DIRECT)
        fcntl(fd, F_SETFL, flags & ~O_DIRECT);
    do
        err = posix_fallocate(fd, 0, (off_t)bytes);
    while (err == EINTR);
    if (flags & O_DIRECT)
        fcntl(fd, F_SETFL, flags);
    return err;
}

gyre_status gyre_io_reserve(int fd, const char *path, uint64_t bytes,
                            gyre_error *error)
{
    struct stat info;
    gyre_status status;

    if (bytes == 0)
        return GYRE_OK;
    if (bytes > INT64_MAX)
        return gyre_fail(error, GYRE_RANGE,
                         "'%s': %llu bytes are more than a file can have", path,
                         (unsigned long long)bytes);
    if (fstat(fd, &info) != 0)
        return gyre_fail_errno(error, GYRE_IO, errno, "reserving '%s'", path);
    if (S_ISBLK(info.st_mode))
        return check_block_device(fd, path, bytes, error);
    status = check_free(fd, path, &info, bytes, error);
    if (status)
        return status;
    int err = reserve_blocks(fd, bytes);
    if (err)
        return gyre_fail_errno(error, GYRE_IO, err,
                               "reserving %llu bytes for '%s'",
                               (unsigned long long)bytes, path);
    return GYRE_OK;
}
