/* SPDX-License-Identifier: Apache-2.0 */
/* The faulty engine: its text, and each fault at each operation. */
#include "config.h"

#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK 8192
#define BLOCKS 6
#define OPERATIONS (2 * BLOCKS + 1)

/* ---- text ------------------------------------------------------------ */

static void test_text(void **state)
{
    io_fixture *f = *state;
    gyre_io_faults faults;

    assert_ok(f, gyre_io_faults_parse("faulty", &faults, &f->error));
    assert_string_equal("auto", faults.inner);
    assert_false(faults.reorder);
    assert_ok(f, gyre_io_faults_parse(
                     "faulty:posix,fail=3/ENOSPC,short=4,zero=5,eintr=6,"
                     "delay=7,reorder=0,kill=9,every=10,all",
                     &faults, &f->error));
    assert_string_equal("posix", faults.inner);
    assert_int_equal(3, faults.fail);
    assert_int_equal(ENOSPC, faults.fail_errno);
    assert_int_equal(4, faults.shorten);
    assert_int_equal(5, faults.zero);
    assert_int_equal(6, faults.eintr);
    assert_int_equal(7000, faults.delay);
    assert_true(faults.reorder);
    assert_int_equal(0, faults.seed);
    assert_int_equal(9, faults.kill);
    assert_int_equal(10, faults.every);
    assert_true(faults.all);
    assert_ok(f, gyre_io_faults_parse("faulty,fail=2", &faults, &f->error));
    assert_int_equal(EIO, faults.fail_errno);
}

static void test_bad_text(void **state)
{
    static const struct {
        const char *text, *says;
        gyre_status status;
    } bad[] = {
        {"faulty:aio", "cannot wrap 'aio'", GYRE_INVALID},
        {"faulty:faulty", "cannot wrap", GYRE_INVALID},
        {"faulty:", "cannot wrap ''", GYRE_INVALID},
        {"faulty:posix,", "'' is no NAME=VALUE", GYRE_INVALID},
        {"faulty,frail=3", "'frail=3' is unknown; allowed are fail=N",
         GYRE_INVALID},
        {"faulty,fail", "'fail' is no NAME=VALUE", GYRE_INVALID},
        {"faulty,fail=", "'fail=' has no count", GYRE_INVALID},
        {"faulty,fail=0", "no count from 1", GYRE_INVALID},
        {"faulty,fail=1/EWHAT", "no known errno", GYRE_INVALID},
        {"faulty,fail=1/", "no known errno", GYRE_INVALID},
        {"faulty,short=-1", "no plain number", GYRE_INVALID},
        {"faulty,short= 1", "no plain number", GYRE_INVALID},
        {"faulty,short=99999999999999999999", "no plain number", GYRE_INVALID},
        {"faulty,short=0", "counts from 1", GYRE_INVALID},
        {"faulty,every=2", "no fault to repeat", GYRE_INVALID},
        {"faulty,every=2,kill=3", "no fault to repeat", GYRE_INVALID},
        {"faulty,delay=18446744073709551615", "too long", GYRE_RANGE},
    };
    io_fixture *f = *state;
    gyre_io_options options = {.depth = 1};
    gyre_io *io = NULL;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        options.engine = bad[i].text;
        assert_int_equal(bad[i].status,
                         gyre_io_create(f->context, &options, &io, &f->error));
        assert_says(f, bad[i].says);
        assert_null(io);
    }
    assert_int_equal(f->idle, f->memory.bytes);
}

/* ---- each fault at each operation ------------------------------------ */

typedef struct outcome {
    int error[OPERATIONS]; /* by number of the operation */
    uint64_t moved[OPERATIONS];
    size_t order[OPERATIONS];
    char text[GYRE_ERROR_TEXT]; /* of the last error */
} outcome;

/* Writes, a flush when they are done, reads; what came of each. */
static void work(io_fixture *f, gyre_io *io, int fd, outcome *out)
{
    char *written = io_block(BLOCKS * BLOCK), *read = io_block(BLOCKS * BLOCK);
    uint32_t file = io_add(f, io, fd, "dev0/work");
    size_t n = 0, seen = 0;

    io_fill(written, BLOCKS * BLOCK, 9);
    for (int phase = 0; phase < 3; phase++) {
        size_t count = phase == 1 ? 1 : BLOCKS;
        for (size_t i = 0; i < count; i++, n++) {
            gyre_io_op op = {
                .kind = phase == 0   ? GYRE_IO_WRITE
                        : phase == 1 ? GYRE_IO_FLUSH
                                     : GYRE_IO_READ,
                .file = file,
                .buffer = -1,
                .data = (phase == 0 ? written : read) + i * BLOCK,
                .bytes = BLOCK,
                .offset = i * BLOCK,
                .user = (void *)(uintptr_t)n,
            };
            io_submit(f, io, &op);
        }
        while (gyre_io_in_flight(io) > 0) {
            gyre_io_done done = io_wait_one(f, io);
            size_t number = (size_t)(uintptr_t)done.op.user;
            out->order[seen++] = number;
            out->error[number] = done.error;
            out->moved[number] = done.moved;
            if (gyre_io_report(io, &done, &f->error))
                memcpy(out->text, f->error.text, sizeof out->text);
        }
    }
    for (size_t i = 0; i < BLOCKS; i++)
        if (!out->error[i] && !out->error[BLOCKS + 1 + i])
            assert_memory_equal(written + i * BLOCK, read + i * BLOCK, BLOCK);
    free(written);
    free(read);
}

/* False when the machine has no such engine. */
static bool run(io_fixture *f, const char *inner, const char *faults,
                int direct, outcome *out)
{
    char engine[128];

    snprintf(engine, sizeof engine, "faulty:%s,%s", inner, faults);
    memset(out, 0, sizeof *out);
    gyre_io *io = io_queue(f, engine, BLOCKS, NULL);
    if (!io)
        return false;
    int fd = io_file_of(f, "work", BLOCKS * BLOCK, direct, NULL);
    work(f, io, fd, out);
    gyre_io_destroy(io);
    close(fd);
    return true;
}

static void expect(const outcome *out, size_t at, int error)
{
    for (size_t i = 0; i < OPERATIONS; i++)
        assert_int_equal(i == at ? error : 0, out->error[i]);
}

static void test_each_fault(void **state)
{
    io_fixture *f = *state;
    outcome out;
    char text[64];

    for (size_t n = 1; n <= OPERATIONS + 1; n++) {
        size_t at = n - 1;
        bool flush = at == BLOCKS, write = at < BLOCKS;
        for (int i = 0; i < 4; i++) {
            const char *inner = i / 2 ? "uring" : "posix";
            snprintf(text, sizeof text, "fail=%zu/EREMOTEIO", n);
            if (!run(f, inner, text, i % 2, &out))
                continue;
            expect(&out, at, EREMOTEIO);
            if (at < OPERATIONS)
                assert_non_null(strstr(out.text, "dev0/work"));
            snprintf(text, sizeof text, "zero=%zu", n);
            run(f, inner, text, i % 2, &out);
            expect(&out, at, flush ? 0 : write ? ENOSPC : ENODATA);
            snprintf(text, sizeof text, "short=%zu", n);
            run(f, inner, text, i % 2, &out);
            expect(&out, at, 0);
            snprintf(text, sizeof text, "eintr=%zu", n);
            run(f, inner, text, i % 2, &out);
            expect(&out, at, 0);
            snprintf(text, sizeof text, "fail=%zu/EAGAIN", n);
            run(f, inner, text, i % 2, &out);
            expect(&out, at, 0);
        }
    }
}

static void test_every(void **state)
{
    outcome out;

    assert_true(run(*state, "posix", "fail=2,every=5", 0, &out));
    for (size_t i = 0; i < OPERATIONS; i++)
        assert_int_equal(i == 1 || i == 6 || i == 11 ? EIO : 0, out.error[i]);
    assert_true(run(*state, "posix", "fail=3/ENOSPC,zero=3,every=1", 0, &out));
    for (size_t i = 2; i < OPERATIONS; i++)
        assert_int_equal(ENOSPC, out.error[i]);
}

static void test_reorder(void **state)
{
    outcome out, same;
    char text[32];
    int moved = 0;

    for (int seed = 0; seed < 10; seed++) {
        bool seen[OPERATIONS] = {false};
        snprintf(text, sizeof text, "reorder=%d", seed);
        assert_true(run(*state, "posix", text, 0, &out));
        run(*state, "posix", text, 0, &same);
        expect(&out, OPERATIONS, 0);
        assert_memory_equal(out.order, same.order, sizeof out.order);
        for (size_t i = 0; i < OPERATIONS; i++) {
            moved += out.order[i] != i;
            assert_false(seen[out.order[i]]);
            seen[out.order[i]] = true;
        }
    }
    assert_true(moved > 20);
}

static void test_delay(void **state)
{
    io_fixture *f = *state;
    outcome out;
    uint64_t start = gyre_now();

    /* Three phases, each at least one delay long. */
    assert_true(run(f, "posix", "delay=5000", 0, &out));
    expect(&out, OPERATIONS, 0);
    assert_true(gyre_now() - start >= 15000000);
}

/* ---- kill ------------------------------------------------------------ */

static void test_kill(void **state)
{
    io_fixture *f = *state;
    uint64_t before = gyre_io_submitted(f->context);
    outcome out;
    char text[32];

    assert_true(run(f, "posix", "delay=0", 0, &out));
    assert_int_equal(OPERATIONS, gyre_io_submitted(f->context) - before);
    for (uint64_t n = 1; n <= OPERATIONS + 1; n++) {
        /* Two queues share the count: the second one's operations go on where
         * the first one's ended. */
        pid_t child = fork();
        if (child == 0) {
            uint64_t at = gyre_io_submitted(f->context) + OPERATIONS + n;
            snprintf(text, sizeof text, "kill=%llu", (unsigned long long)at);
            run(f, "posix", "delay=0", 0, &out);
            run(f, "posix", text, 0, &out);
            _exit(0);
        }
        int status;
        assert_int_equal(child, waitpid(child, &status, 0));
        if (n <= OPERATIONS)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),  cmocka_unit_test(test_bad_text),
        cmocka_unit_test(test_kill),  cmocka_unit_test(test_each_fault),
        cmocka_unit_test(test_every), cmocka_unit_test(test_reorder),
        cmocka_unit_test(test_delay),
    };
    return cmocka_run_group_tests_name("io fault", tests, io_setup,
                                       io_teardown);
}
