/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that stay in flight: a read from an empty pipe does until the
 * test writes, so that order and interruption are the test's to choose. */
#include "config.h"

#include "common.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static gyre_io_op pipe_read(uint32_t file, void *data)
{
    return (gyre_io_op){
        .kind = GYRE_IO_READ,
        .file = file,
        .buffer = -1,
        .data = data,
        .bytes = 8,
    };
}

static void test_out_of_order(void **state)
{
    io_fixture *f = *state;
    char late[8] = "", data[8] = "written";
    size_t count;
    gyre_io_done done;
    uint32_t index;
    gyre_io *io;
    int ends[2];

    IO_QUEUE_OR_SKIP(io, f, "uring", 4, NULL);
    assert_int_equal(0, pipe(ends));
    int fd = io_file_of(f, "file", 8, 0, NULL);
    gyre_io_op read = pipe_read(io_add(f, io, ends[0], "pipe"), late);
    gyre_io_op early = {
        .kind = GYRE_IO_WRITE,
        .file = io_add(f, io, fd, "file"),
        .buffer = -1,
        .data = data,
        .bytes = 8,
    };
    io_submit(f, io, &read);
    assert_ok(f, gyre_io_wait(io, &done, 1, 0, &count, &f->error));
    assert_int_equal(0, count);
    assert_int_equal(GYRE_STATE,
                     gyre_io_add_file(io, fd, "busy", &index, &f->error));
    io_submit(f, io, &early);
    done = io_wait_one(f, io);
    assert_int_equal(GYRE_IO_WRITE, done.op.kind);
    assert_int_equal(1, gyre_io_in_flight(io));
    /* In two parts: the queue asks for the rest. */
    assert_int_equal(3, write(ends[1], "abc", 3));
    assert_int_equal(5, write(ends[1], "defgh", 5));
    done = io_wait_one(f, io);
    assert_int_equal(GYRE_IO_READ, done.op.kind);
    assert_int_equal(0, done.error);
    assert_memory_equal("abcdefgh", late, 8);
    gyre_io_destroy(io);
    close(ends[0]);
    close(ends[1]);
    close(fd);
}

/* ---- signals --------------------------------------------------------- */

static int signal_pipe;
static volatile sig_atomic_t signals;

static void on_alarm(int number)
{
    (void)number;
    if (++signals == 5)
        (void)!write(signal_pipe, "afterall", 8);
}

/* Valgrind 3.19 does not know that io_uring_enter blocks, and keeps signals
 * back until it returns: never, here. */
static bool under_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");

    return preload && strstr(preload, "vgpreload");
}

static void test_signals(void **state)
{
    io_fixture *f = *state;
    struct sigaction action = {.sa_handler = on_alarm}, old;
    struct itimerval often = {.it_interval = {.tv_usec = 5000},
                              .it_value = {.tv_usec = 5000}},
                     never = {.it_value = {0}};
    char data[8] = "";
    gyre_io *io;
    int ends[2];

    if (under_valgrind())
        skip();
    IO_QUEUE_OR_SKIP(io, f, "uring", 1, NULL);
    assert_int_equal(0, pipe(ends));
    signal_pipe = ends[1];
    gyre_io_op read = pipe_read(io_add(f, io, ends[0], "pipe"), data);
    sigaction(SIGALRM, &action, &old);
    io_submit(f, io, &read);
    setitimer(ITIMER_REAL, &often, NULL);
    gyre_io_done done = io_wait_one(f, io);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &old, NULL);
    assert_int_equal(0, done.error);
    assert_true(signals >= 5);
    assert_memory_equal("afterall", data, 8);
    gyre_io_destroy(io);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_out_of_order),
        cmocka_unit_test(test_signals),
    };
    return cmocka_run_group_tests_name("io async", tests, io_setup,
                                       io_teardown);
}
