/* SPDX-License-Identifier: Apache-2.0 */
/* Alignment, opening, reserving, and a device that is full. */
#include "config.h"

#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static bool power_of_two(uint32_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

static void test_alignment(void **state)
{
    io_fixture *f = *state;
    uint32_t memory = 7, offset = 7;
    int ends[2];

    int fd = io_file_of(f, "aligned", 65536, 0, NULL);
    gyre_io_alignment(fd, &memory, &offset);
    if (offset == 0) {
        close(fd);
        skip();
    }
    assert_true(power_of_two(memory) && memory >= 512);
    assert_true(power_of_two(offset) && offset >= 512);
    /* What it says works, and is what transfers are held to. */
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT);
    char *data = io_block(65536 + memory);
    assert_int_equal(offset, pwrite(fd, data + memory, offset, offset));
    assert_int_equal(offset, pread(fd, data + memory, offset, offset));
    uint32_t m, o;
    gyre_io_transfer_alignment(fd, &m, &o);
    assert_int_equal(memory, m);
    assert_int_equal(offset, o);
    free(data);
    close(fd);
    assert_int_equal(0, pipe(ends));
    gyre_io_alignment(ends[0], &memory, &offset);
    assert_int_equal(0, memory);
    assert_int_equal(0, offset);
    gyre_io_alignment(-1, &memory, &offset);
    assert_int_equal(0, offset);
    gyre_io_transfer_alignment(ends[0], &memory, &offset);
    assert_int_equal(1, memory);
    assert_int_equal(1, offset);
    close(ends[0]);
    close(ends[1]);
}

static void test_open(void **state)
{
    io_fixture *f = *state;
    const char *path = io_path(f, "opened");
    uint32_t memory, offset;
    struct stat info;
    int fd = -1, direct = -1, other;

    assert_int_equal(GYRE_NOT_FOUND,
                     gyre_io_open_file(path, 0, &fd, &direct, &f->error));
    assert_says(f, path);
    assert_int_equal(-1, fd);
    assert_int_equal(-1, direct);
    assert_ok(f, gyre_io_open_file(path, 1, &fd, &direct, &f->error));
    assert_int_equal(0, fstat(fd, &info));
    assert_int_equal(0600, info.st_mode & 0777);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    gyre_io_alignment(fd, &memory, &offset);
    assert_int_equal(offset != 0, direct);
    assert_int_equal(direct, (fcntl(fd, F_GETFL) & O_DIRECT) != 0);
    assert_int_equal(GYRE_EXISTS,
                     gyre_io_open_file(path, 1, &other, &direct, &f->error));
    close(fd);
    assert_ok(f, gyre_io_open_file(path, 0, &fd, &direct, &f->error));
    close(fd);
    assert_int_equal(
        GYRE_OK != gyre_io_open_file(f->folder, 0, &fd, &direct, &f->error), 1);
}

static void test_reserve(void **state)
{
    io_fixture *f = *state;
    const char *path = io_path(f, "reserved");
    struct stat info;
    int fd, direct;

    assert_ok(f, gyre_io_open_file(path, 1, &fd, &direct, &f->error));
    assert_ok(f, gyre_io_reserve(fd, path, 0, &f->error));
    assert_ok(f, gyre_io_reserve(fd, path, 1000000, &f->error));
    assert_int_equal(0, fstat(fd, &info));
    assert_int_equal(1000000, info.st_size);
    assert_true(info.st_blocks * 512 >= 1000000);
    /* Again, and less: nothing changes. */
    assert_ok(f, gyre_io_reserve(fd, path, 1000000, &f->error));
    assert_ok(f, gyre_io_reserve(fd, path, 1000, &f->error));
    assert_int_equal(0, fstat(fd, &info));
    assert_int_equal(1000000, info.st_size);
    assert_int_equal(GYRE_NO_SPACE,
                     gyre_io_reserve(fd, path, (uint64_t)1 << 60, &f->error));
    assert_says(f, "are free");
    assert_says(f, path);
    assert_int_equal(GYRE_RANGE,
                     gyre_io_reserve(fd, path, UINT64_MAX, &f->error));
    close(fd);
}

/* A file system of 1 MiB in memory: no direct I/O, and soon full. */
static void test_small_file_system(void **state)
{
    io_fixture *f = *state;
    static const char *const engines[] = {"posix", "uring"};
    enum { BYTES = 1 << 20 };
    const char *folder = io_path(f, "mount");
    char path[600];
    int fd, direct = 1;

    assert_int_equal(0, mkdir(folder, 0700));
    if (mount("tmpfs", folder, "tmpfs", 0, "size=1m") != 0) {
        rmdir(folder);
        skip();
    }
    snprintf(path, sizeof path, "%s/file", folder);
    gyre_status opened = gyre_io_open_file(path, 1, &fd, &direct, &f->error);
    /* From here the name is gone, whatever fails below. */
    umount2(folder, MNT_DETACH);
    rmdir(folder);
    assert_ok(f, opened);
    assert_int_equal(0, direct);
    assert_int_equal(GYRE_NO_SPACE,
                     gyre_io_reserve(fd, "small", 2 * BYTES, &f->error));
    assert_says(f, "'small': 2097152 bytes are needed");
    char *data = io_block(2 * BYTES);
    for (size_t i = 0; i < 2; i++) {
        gyre_io *io = io_queue(f, engines[i], 1, NULL);
        if (!io)
            continue;
        gyre_io_op op = {
            .kind = GYRE_IO_WRITE,
            .file = io_add(f, io, fd, "small"),
            .buffer = -1,
            .data = data,
            .bytes = 2 * BYTES,
            .offset = 4096,
        };
        io_submit(f, io, &op);
        gyre_io_done done = io_wait_one(f, io);
        assert_int_equal(ENOSPC, done.error);
        assert_true(done.moved > 0 && done.moved <= BYTES);
        assert_int_equal(GYRE_NO_SPACE, gyre_io_report(io, &done, &f->error));
        assert_says(f, "of 2097152 bytes moved at offset 4096");
        gyre_io_destroy(io);
        assert_int_equal(0, ftruncate(fd, 0));
    }
    free(data);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_small_file_system),
    };
    return cmocka_run_group_tests_name("io file", tests, io_setup, io_teardown);
}
