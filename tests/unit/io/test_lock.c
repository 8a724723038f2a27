/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of a killed writer: a flock on the description that is registered
 * in the ring comes free only when nothing of it is in flight.
 *
 * The child locks the file, puts many writes in flight and is killed by its
 * last submission.  Once the parent has the lock, the file must not change any
 * more.  A disk that is fast shows little here; set GYRE_TEST_FOLDER to a
 * folder on a throttled device for a hard test.
 */
#include "config.h"

#include "common.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WRITES = 12, BYTES = 1 << 20 };

static void child_writes(io_fixture *f, const char *path, const char *kill)
{
    gyre_io_options options = {.engine = kill, .depth = WRITES};
    char *data = NULL;
    gyre_io *io;
    uint32_t file;
    int fd, direct;

    if (posix_memalign((void **)&data, 4096, BYTES) != 0)
        _exit(1);
    memset(data, 0xab, BYTES);
    if (gyre_io_open_file(path, 0, &fd, &direct, &f->error) ||
        flock(fd, LOCK_EX) != 0 ||
        gyre_io_create(f->context, &options, &io, &f->error) ||
        gyre_io_add_file(io, fd, path, &file, &f->error))
        _exit(2);
    for (uint64_t i = 0; i < WRITES; i++) {
        gyre_io_op op = {
            .kind = GYRE_IO_WRITE,
            .file = file,
            .buffer = -1,
            .data = data,
            .bytes = BYTES,
            .offset = i * BYTES,
        };
        if (gyre_io_submit(io, &op, &f->error))
            _exit(3);
    }
    _exit(4); /* the last submission should have killed it */
}

/* Which writes have landed: first byte of each. */
static unsigned landed(int fd)
{
    static char block[BYTES] __attribute__((aligned(4096)));
    unsigned set = 0;

    for (int i = 0; i < WRITES; i++) {
        /* The end lands last, should a write be split. */
        assert_int_equal(BYTES, pread(fd, block, BYTES, (off_t)i * BYTES));
        for (size_t k = 0; k < BYTES; k += 4096)
            if (block[k])
                set += 1u << i, k = BYTES;
    }
    return set;
}

static void sleep_ms(long ms)
{
    struct timespec time = {.tv_sec = ms / 1000,
                            .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&time, NULL);
}

static void test_killed_writer(void **state)
{
    io_fixture *f = *state;
    char engine[64];
    const char *path = io_path(f, "locked");
    int fd, direct, status;
    gyre_io *io;

    IO_QUEUE_OR_SKIP(io, f, "uring", 1, NULL);
    gyre_io_destroy(io);
    fd = io_file_of(f, "locked", 0, 1, NULL);
    assert_ok(f, gyre_io_reserve(fd, path, WRITES * BYTES, &f->error));
    assert_int_equal(0, fsync(fd));
    close(fd);
    snprintf(engine, sizeof engine, "faulty:uring,kill=%d", WRITES);
    pid_t child = fork();
    if (child == 0)
        child_writes(f, path, engine);
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    uint64_t killed = gyre_now();
    assert_ok(f, gyre_io_open_file(path, 0, &fd, &direct, &f->error));
    assert_int_equal(0, flock(fd, LOCK_EX));
    uint64_t free_after = gyre_now() - killed;
    unsigned first = landed(fd);
    sleep_ms(300);
    assert_int_equal(first, landed(fd));
    print_message("lock free %.1f ms after the end; writes landed %#x\n",
                  (double)free_after / 1e6, first);
    close(fd);
}

/* A queue that was destroyed holds no lock: the ring's end is not left to the
 * kernel's own time. */
static void test_destroyed_queue(void **state)
{
    io_fixture *f = *state;
    gyre_io *io;

    for (int i = 0; i < 200; i++) {
        IO_QUEUE_OR_SKIP(io, f, "uring", 1, NULL);
        int fd = io_file_of(f, "free", 4096, 0, NULL);
        assert_int_equal(0, flock(fd, LOCK_EX));
        io_add(f, io, fd, "free");
        gyre_io_destroy(io);
        close(fd);
        fd = open(io_path(f, "free"), O_RDWR | O_CLOEXEC);
        assert_int_equal(0, flock(fd, LOCK_EX | LOCK_NB));
        close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_writer),
        cmocka_unit_test(test_destroyed_queue),
    };
    return cmocka_run_group_tests_name("io lock", tests, io_setup, io_teardown);
}
