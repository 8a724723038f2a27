/* SPDX-License-Identifier: Apache-2.0 */
/* What the queue makes of an engine that no kernel would be: one that is never
 * ready, takes nothing, or moves odd amounts. */
#include "config.h"

#include "common.h"
#include "io/queue.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The posix engine with one answer bent; one test at a time uses these. */
static const gyre_io_backend_class *real;
static int32_t answer;
static uint32_t asked;

static int bent_wait(gyre_io_backend *engine, gyre_io_result *results,
                     size_t max, size_t min, size_t *count)
{
    int err = real->wait(engine, results, max, min, count);

    for (size_t i = 0; i < *count; i++)
        results[i].moved = answer;
    asked++;
    return err;
}

static int no_wait(gyre_io_backend *engine, gyre_io_result *results, size_t max,
                   size_t min, size_t *count)
{
    (void)engine;
    (void)results;
    (void)max;
    (void)min;
    *count = 0;
    return EBADF;
}

static int no_submit(gyre_io_backend *engine, const gyre_io_transfer *transfer)
{
    (void)engine;
    (void)transfer;
    return EAGAIN;
}

/* Moves all that is asked, without looking at the memory. */
static gyre_io_transfer claimed;

static int claim(gyre_io_backend *engine, const gyre_io_transfer *transfer)
{
    (void)engine;
    assert_true(transfer->bytes <= GYRE_IO_TRANSFER_MOST);
    assert_int_equal(asked > 0, transfer->again);
    claimed = *transfer;
    asked++;
    return 0;
}

static int claim_wait(gyre_io_backend *engine, gyre_io_result *results,
                      size_t max, size_t min, size_t *count)
{
    (void)engine;
    (void)max;
    (void)min;
    results[0] = (gyre_io_result){claimed.slot, (int32_t)claimed.bytes};
    *count = 1;
    return 0;
}

static gyre_io *bent_queue(io_fixture *f, gyre_io_backend_class *bent,
                           gyre_io_recorder *recorder)
{
    gyre_io *io = io_queue(f, "posix", 2, recorder);

    real = io->engine->call;
    *bent = *real;
    io->engine->call = bent;
    asked = 0;
    return io;
}

static gyre_io_op an_op(io_fixture *f, gyre_io *io, int fd, void *data,
                        gyre_io_kind kind)
{
    return (gyre_io_op){
        .kind = kind,
        .file = io_add(f, io, fd, "bent"),
        .buffer = -1,
        .data = data,
        .bytes = 512,
    };
}

static void test_never_ready(void **state)
{
    static const int errors[] = {EAGAIN, EINTR};
    gyre_io_backend_class bent;
    char data[512] = "";

    for (int i = 0; i < 2; i++) {
        gyre_io *io = bent_queue(*state, &bent, NULL);
        int fd = io_file_of(*state, "bent", 512, 0, NULL);
        gyre_io_op op = an_op(*state, io, fd, data, GYRE_IO_READ);
        bent.wait = bent_wait;
        answer = -errors[i];
        io_submit(*state, io, &op);
        gyre_io_done done = io_wait_one(*state, io);
        assert_int_equal(errors[i], done.error);
        assert_int_equal(0, done.moved);
        assert_true(asked > 100);
        gyre_io_destroy(io);
        close(fd);
    }
}

static void test_takes_nothing(void **state)
{
    io_fixture *f = *state;
    gyre_io_backend_class bent;
    gyre_io_recorder *recorder;
    char data[512] = "";

    assert_ok(f, gyre_io_recorder_create(f->context, &recorder, &f->error));
    gyre_io *io = bent_queue(f, &bent, recorder);
    int fd = io_file_of(f, "bent", 512, 0, NULL);
    gyre_io_op op = an_op(f, io, fd, data, GYRE_IO_WRITE);
    bent.submit = no_submit;
    assert_int_equal(GYRE_SYSTEM, gyre_io_submit(io, &op, &f->error));
    assert_says(f, "'bent': the kernel takes no operation");
    assert_int_equal(0, gyre_io_in_flight(io));
    assert_int_equal(1, gyre_io_recorder_count(recorder));
    /* The rest of a short transfer is refused: an error, not a hang. */
    bent.submit = real->submit;
    bent.wait = bent_wait;
    answer = 100;
    io_submit(f, io, &op);
    bent.submit = no_submit;
    gyre_io_done done = io_wait_one(f, io);
    assert_int_equal(EAGAIN, done.error);
    assert_int_equal(100, done.moved);
    assert_int_equal(2, gyre_io_recorder_count(recorder));
    gyre_io_destroy(io);
    gyre_io_recorder_destroy(recorder);
    close(fd);
}

/* A wait that fails: an error, and destroy says what it leaves. */
static void test_no_wait(void **state)
{
    io_fixture *f = *state;
    gyre_io_backend_class bent;
    gyre_io_done done;
    size_t count = 9;
    char data[512] = "";
    gyre_io *io = bent_queue(f, &bent, NULL);

    int fd = io_file_of(f, "bent", 512, 0, NULL);
    gyre_io_op op = an_op(f, io, fd, data, GYRE_IO_READ);
    bent.wait = no_wait;
    io_submit(f, io, &op);
    assert_int_equal(GYRE_SYSTEM,
                     gyre_io_wait(io, &done, 1, 1, &count, &f->error));
    assert_int_equal(0, count);
    assert_int_equal(1, gyre_io_in_flight(io));
    f->log[0] = '\0';
    gyre_io_destroy(io);
    assert_non_null(strstr(f->log, "with 1 operations in flight"));
    close(fd);
}

/* Direct I/O that stops inside a block is at the end of the file. */
static void test_odd_amounts(void **state)
{
    io_fixture *f = *state;
    static _Alignas(4096) char data[8192];
    gyre_io_backend_class bent;
    uint32_t align;
    gyre_io *io = bent_queue(f, &bent, NULL);

    int fd = io_file_of(f, "bent", 8192, 1, &align);
    if (align == 1) {
        gyre_io_destroy(io);
        close(fd);
        skip();
    }
    gyre_io_op op = an_op(f, io, fd, data, GYRE_IO_READ);
    op.bytes = 8192;
    bent.wait = bent_wait;
    answer = 100;
    for (int i = 0; i < 2; i++) {
        io_submit(f, io, &op);
        gyre_io_done done = io_wait_one(f, io);
        assert_int_equal(i ? EIO : ENODATA, done.error);
        assert_int_equal(100, done.moved);
        assert_int_equal(GYRE_IO, gyre_io_report(io, &done, &f->error));
        op.kind = GYRE_IO_WRITE;
    }
    gyre_io_destroy(io);
    close(fd);
}

/* More bytes than one transfer may have, and than 32 bits hold. */
static void test_huge(void **state)
{
    io_fixture *f = *state;
    gyre_io_backend_class bent;
    char data[1] = "";
    gyre_io *io = bent_queue(f, &bent, NULL);

    int fd = io_file_of(f, "bent", 0, 0, NULL);
    gyre_io_op op = an_op(f, io, fd, data, GYRE_IO_WRITE);
    op.bytes = ((uint64_t)5 << 30) + 7;
    op.offset = 1000;
    bent.submit = claim;
    bent.wait = claim_wait;
    io_submit(f, io, &op);
    gyre_io_done done = io_wait_one(f, io);
    assert_int_equal(0, done.error);
    assert_int_equal(op.bytes, done.moved);
    assert_int_equal(6, asked);
    assert_int_equal(7, claimed.bytes);
    assert_int_equal(1000 + ((uint64_t)5 << 30), claimed.offset);
    assert_int_equal((uintptr_t)data + ((uint64_t)5 << 30),
                     (uintptr_t)claimed.data);
    gyre_io_destroy(io);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_ready),
        cmocka_unit_test(test_takes_nothing),
        cmocka_unit_test(test_no_wait),
        cmocka_unit_test(test_odd_amounts),
        cmocka_unit_test(test_huge),
    };
    return cmocka_run_group_tests_name("io queue", tests, io_setup,
                                       io_teardown);
}
