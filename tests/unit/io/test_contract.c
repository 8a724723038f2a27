/* SPDX-License-Identifier: Apache-2.0 */
/* What every engine must do, run on each of them. */
#include "config.h"

#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CELL 65536
#define CELLS 40
#define DEPTH_MOST 32

static const char *const engines[] = {
    "posix",
    "uring",
    "faulty:posix",
    "faulty:uring",
    "faulty:posix,reorder=7",
    "faulty:uring,reorder=7,delay=100",
    "faulty:uring,short=1,every=2",
    "faulty:posix,eintr=1,every=3",
};

#define ENGINES (sizeof engines / sizeof engines[0])

static io_fixture *fixture;

/* ---- reading back what was written ----------------------------------- */

/* A file in memory beside the one on disk.  At most one operation is in flight
 * in each cell, so that the order does not matter. */
typedef struct mirror {
    unsigned char *bytes;
    bool busy[CELLS];
    unsigned char *block[DEPTH_MOST];
    bool used[DEPTH_MOST];
    bool registered;
    uint32_t align, file;
    uint64_t random;
} mirror;

static size_t pick(mirror *m, const bool *taken, size_t n)
{
    size_t i;

    do
        i = (size_t)io_random(&m->random) % n;
    while (taken[i]);
    return i;
}

static void submit_random(gyre_io *io, mirror *m, uint32_t depth)
{
    size_t cell = pick(m, m->busy, CELLS), b = pick(m, m->used, depth);
    size_t units = CELL / m->align;
    size_t start = (size_t)io_random(&m->random) % units;
    size_t count = 1 + (size_t)io_random(&m->random) % (units - start);
    /* Data anywhere in the block, as far as alignment goes. */
    size_t shift = (size_t)io_random(&m->random) % (units - count + 1);
    bool write = io_random(&m->random) % 3 != 0;
    gyre_io_op op = {
        .kind = write ? GYRE_IO_WRITE : GYRE_IO_READ,
        .file = m->file,
        .buffer = m->registered && io_random(&m->random) % 4 ? (int32_t)b : -1,
        .data = m->block[b] + shift * m->align,
        .bytes = count * m->align,
        .offset = cell * CELL + start * m->align,
        .user = (void *)(uintptr_t)b,
    };

    if (write)
        io_fill(op.data, op.bytes, io_random(&m->random));
    m->busy[cell] = m->used[b] = true;
    io_submit(fixture, io, &op);
}

static void finish(mirror *m, const gyre_io_done *done)
{
    const gyre_io_op *op = &done->op;

    assert_int_equal(0, done->error);
    assert_int_equal(op->bytes, done->moved);
    m->busy[op->offset / CELL] = false;
    m->used[(uintptr_t)op->user] = false;
    if (op->kind == GYRE_IO_WRITE)
        memcpy(m->bytes + op->offset, op->data, op->bytes);
    else
        assert_memory_equal(m->bytes + op->offset, op->data, op->bytes);
}

static void run_random(const char *engine, uint32_t depth, int direct,
                       bool registered)
{
    mirror m = {.random = depth * 4 + (uint64_t)direct * 2 + registered};
    gyre_io_done done[DEPTH_MOST];
    size_t count;
    gyre_io *io;
    int fd;

    IO_QUEUE_OR_SKIP(io, fixture, engine, depth, NULL);
    fd = io_file_of(fixture, "mirror", CELL * CELLS, direct, &m.align);
    m.file = io_add(fixture, io, fd, "mirror");
    m.bytes = calloc(CELLS, CELL);
    m.registered = registered;
    for (uint32_t i = 0; i < depth; i++)
        m.block[i] = io_block(CELL);
    if (registered)
        assert_ok(fixture, gyre_io_add_buffers(io, (void **)m.block, CELL,
                                               depth, &fixture->error));
    for (int i = 0; i < 300; i++) {
        if (gyre_io_in_flight(io) == depth || io_random(&m.random) % 4 == 0) {
            size_t min = gyre_io_in_flight(io) == depth ? 1 : 0;
            assert_ok(fixture,
                      gyre_io_wait(io, done, 1 + io_random(&m.random) % depth,
                                   min, &count, &fixture->error));
            for (size_t k = 0; k < count; k++)
                finish(&m, &done[k]);
        } else {
            submit_random(io, &m, depth);
        }
    }
    while (gyre_io_in_flight(io) > 0) {
        gyre_io_done one = io_wait_one(fixture, io);
        finish(&m, &one);
    }
    gyre_io_destroy(io);
    unsigned char *all = malloc(CELL * CELLS);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT);
    assert_int_equal(CELL * CELLS, pread(fd, all, CELL * CELLS, 0));
    assert_memory_equal(all, m.bytes, CELL * CELLS);
    free(all);
    free(m.bytes);
    for (uint32_t i = 0; i < depth; i++)
        free(m.block[i]);
    close(fd);
}

static void test_random(void **state)
{
    static const uint32_t depths[] = {1, 2, 5, 32};

    for (int direct = 0; direct <= 1; direct++)
        for (size_t d = 0; d < 4; d++)
            for (int registered = 0; registered <= 1; registered++)
                run_random(*state, depths[d], direct, registered);
}

/* ---- ends ------------------------------------------------------------ */

static void check_end(const char *engine, int direct, size_t size)
{
    uint32_t align;
    gyre_io *io;

    IO_QUEUE_OR_SKIP(io, fixture, engine, 2, NULL);
    char *data = io_block(8192);
    int fd = io_file_of(fixture, "short", size, direct, &align);
    gyre_io_op op = {
        .kind = GYRE_IO_READ,
        .file = io_add(fixture, io, fd, "dev0/short"),
        .buffer = -1,
        .data = data,
        .bytes = 8192,
    };
    io_submit(fixture, io, &op);
    gyre_io_done done = io_wait_one(fixture, io);
    assert_int_equal(ENODATA, done.error);
    assert_int_equal(size, done.moved);
    assert_int_equal(GYRE_IO, gyre_io_report(io, &done, &fixture->error));
    assert_int_equal(GYRE_IO, fixture->error.status);
    assert_says(fixture, "dev0/short");
    assert_says(fixture, "8192");
    assert_says(fixture, "ends after");
    assert_int_equal(GYRE_IO, gyre_io_do(io, &op, &fixture->error));
    gyre_io_destroy(io);
    free(data);
    close(fd);
}

static void test_end_of_file(void **state)
{
    check_end(*state, 0, 5000);
    check_end(*state, 0, 0);
    check_end(*state, 1, 5000);
    check_end(*state, 1, 4096);
    check_end(*state, 1, 0);
}

static void test_full_device(void **state)
{
    char data[4096] = {1};
    gyre_io *io;

    IO_QUEUE_OR_SKIP(io, fixture, *state, 1, NULL);
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        gyre_io_destroy(io);
        skip();
    }
    gyre_io_op op = {
        .kind = GYRE_IO_WRITE,
        .file = io_add(fixture, io, fd, "full"),
        .buffer = -1,
        .data = data,
        .bytes = sizeof data,
        .offset = 12288,
    };
    assert_int_equal(GYRE_NO_SPACE, gyre_io_do(io, &op, &fixture->error));
    assert_int_equal(GYRE_NO_SPACE, fixture->error.status);
    assert_says(fixture, "'full': 0 of 4096 bytes moved at offset 12288");
    gyre_io_destroy(io);
    close(fd);
}

/* ---- refusals -------------------------------------------------------- */

static void refuse(gyre_io *io, gyre_io_op op, gyre_status status,
                   const char *text)
{
    assert_int_equal(status, gyre_io_submit(io, &op, &fixture->error));
    assert_int_equal(status, fixture->error.status);
    assert_says(fixture, text);
    assert_int_equal(0, gyre_io_in_flight(io));
}

static void test_refusals(void **state)
{
    static _Alignas(4096) char data[8192];
    void *block = data;
    size_t count;
    gyre_io_done done;
    gyre_io *io;

    IO_QUEUE_OR_SKIP(io, fixture, *state, 1, NULL);
    int fd = io_file_of(fixture, "refuse", 65536, 0, NULL);
    gyre_io_op op =
                   {
                       .kind = GYRE_IO_READ,
                       .file = io_add(fixture, io, fd, "refuse"),
                       .buffer = -1,
                       .data = data,
                       .bytes = 512,
                   },
               bad = op;
    bad.file = 1;
    refuse(io, bad, GYRE_INVALID, "file 1, but 1 were added");
    bad = op, bad.bytes = 0;
    refuse(io, bad, GYRE_INVALID, "'refuse'");
    bad = op, bad.data = NULL;
    refuse(io, bad, GYRE_INVALID, "'refuse'");
    bad = op, bad.offset = INT64_MAX;
    refuse(io, bad, GYRE_INVALID, "2^63");
    bad = op, bad.bytes = UINT64_MAX;
    refuse(io, bad, GYRE_INVALID, "2^63");
    bad = op, bad.buffer = 0;
    refuse(io, bad, GYRE_INVALID, "buffer 0, but 0 were added");
    bad = op, bad.kind = (gyre_io_kind)9;
    refuse(io, bad, GYRE_INVALID, "unknown I/O operation 9");
    assert_ok(fixture,
              gyre_io_add_buffers(io, &block, 4096, 1, &fixture->error));
    bad = op, bad.buffer = 0, bad.data = data + 3584, bad.bytes = 1024;
    refuse(io, bad, GYRE_INVALID, "reach outside buffer 0");
    assert_int_equal(GYRE_STATE,
                     gyre_io_add_buffers(io, &block, 4096, 1, &fixture->error));
    io_submit(fixture, io, &op);
    assert_int_equal(GYRE_STATE, gyre_io_submit(io, &op, &fixture->error));
    assert_says(fixture, "depth of 1");
    assert_int_equal(GYRE_STATE, gyre_io_do(io, &op, &fixture->error));
    assert_int_equal(GYRE_STATE,
                     gyre_io_add_file(io, fd, "x", &bad.file, &fixture->error));
    assert_int_equal(GYRE_INVALID,
                     gyre_io_wait(io, &done, 2, 2, &count, &fixture->error));
    assert_int_equal(1, gyre_io_in_flight(io));
    gyre_io_destroy(io);
    close(fd);
}

static void test_bad_descriptors(void **state)
{
    char data[512] = {0};
    uint32_t index = 77;
    gyre_io *io;

    IO_QUEUE_OR_SKIP(io, fixture, *state, 1, NULL);
    assert_int_equal(GYRE_INVALID,
                     gyre_io_add_file(io, -1, "gone", &index, &fixture->error));
    assert_says(fixture, "'gone'");
    assert_int_equal(77, index);
    close(io_file_of(fixture, "readonly", 4096, 0, NULL));
    int fd = open(io_path(fixture, "readonly"), O_RDONLY | O_CLOEXEC);
    gyre_io_op op = {
        .kind = GYRE_IO_WRITE,
        .file = io_add(fixture, io, fd, "readonly"),
        .buffer = -1,
        .data = data,
        .bytes = sizeof data,
    };
    assert_int_equal(GYRE_IO, gyre_io_do(io, &op, &fixture->error));
    assert_says(fixture, "write to 'readonly'");
    int ends[2];
    assert_int_equal(0, pipe(ends));
    op.kind = GYRE_IO_FLUSH;
    op.file = io_add(fixture, io, ends[1], "pipe");
    assert_int_equal(GYRE_IO, gyre_io_do(io, &op, &fixture->error));
    assert_says(fixture, "flush of 'pipe'");
    gyre_io_destroy(io);
    close(ends[0]);
    close(ends[1]);
    close(fd);
}

static void test_misaligned(void **state)
{
    static _Alignas(4096) char data[16384];
    uint32_t align;
    gyre_io *io;

    IO_QUEUE_OR_SKIP(io, fixture, *state, 1, NULL);
    int fd = io_file_of(fixture, "direct", 65536, 1, &align);
    if (align == 1) {
        gyre_io_destroy(io);
        close(fd);
        skip();
    }
    gyre_io_op op =
                   {
                       .kind = GYRE_IO_WRITE,
                       .file = io_add(fixture, io, fd, "direct"),
                       .buffer = -1,
                       .data = data,
                       .bytes = align,
                   },
               bad = op;
    assert_ok(fixture, gyre_io_do(io, &op, &fixture->error));
    bad.offset = 100;
    refuse(io, bad, GYRE_INVALID, "offset 100, size");
    bad = op, bad.bytes = align + 1;
    refuse(io, bad, GYRE_INVALID, "direct I/O here needs");
    bad = op, bad.data = data + 1;
    refuse(io, bad, GYRE_INVALID, "memory in multiples");
    /* The kernel's own EINVAL, should one come, is explained as well. */
    gyre_io_done done = {.op = bad, .error = EINVAL};
    assert_int_equal(GYRE_IO, gyre_io_report(io, &done, &fixture->error));
    assert_says(fixture, "memory in multiples");
    gyre_io_destroy(io);
    close(fd);
}

/* ---- life ------------------------------------------------------------ */

static void test_destroy_in_flight(void **state)
{
    enum { N = 16, BYTES = 65536 };
    gyre_io *io;

    IO_QUEUE_OR_SKIP(io, fixture, *state, N, NULL);
    unsigned char *data = io_block(N * BYTES), *back = io_block(N * BYTES);
    io_fill(data, N * BYTES, 5);
    int fd = io_file_of(fixture, "destroy", N * BYTES, 1, NULL);
    uint32_t file = io_add(fixture, io, fd, "destroy");
    for (size_t i = 0; i < N; i++) {
        gyre_io_op op = {
            .kind = GYRE_IO_WRITE,
            .file = file,
            .buffer = -1,
            .data = data + i * BYTES,
            .bytes = BYTES,
            .offset = i * BYTES,
        };
        io_submit(fixture, io, &op);
    }
    gyre_io_destroy(io);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT);
    assert_int_equal(N * BYTES, pread(fd, back, N * BYTES, 0));
    assert_memory_equal(data, back, N * BYTES);
    close(fd);
    free(data);
    free(back);
}

/* More than the first table of registered files holds. */
static void test_many_files(void **state)
{
    enum { FILES = 40 };
    int fd[FILES];
    char text[16] = "", back[16];
    gyre_io *io;

    IO_QUEUE_OR_SKIP(io, fixture, *state, 4, NULL);
    for (int i = 0; i < FILES; i++) {
        snprintf(text, sizeof text, "many%d", i);
        fd[i] = io_file_of(fixture, text, 16, 0, NULL);
        assert_int_equal(i, io_add(fixture, io, fd[i], text));
        gyre_io_op op = {
            .kind = GYRE_IO_WRITE,
            .file = (uint32_t)i / 2,
            .buffer = -1,
            .data = text,
            .bytes = sizeof text,
        };
        assert_ok(fixture, gyre_io_do(io, &op, &fixture->error));
        op.kind = GYRE_IO_FLUSH;
        assert_ok(fixture, gyre_io_do(io, &op, &fixture->error));
        assert_int_equal(sizeof back, pread(fd[i / 2], back, 16, 0));
        assert_memory_equal(text, back, sizeof back);
    }
    gyre_io_destroy(io);
    for (int i = 0; i < FILES; i++)
        close(fd[i]);
}

static void test_names(void **state)
{
    gyre_io *io;

    (void)state;
    io = io_queue(fixture, "posix", 1, NULL);
    assert_string_equal("posix", gyre_io_engine(io));
    gyre_io_destroy(io);
    io = io_queue(fixture, "faulty:posix,delay=1", 1, NULL);
    assert_string_equal("faulty(posix)", gyre_io_engine(io));
    gyre_io_destroy(io);
    IO_QUEUE_OR_SKIP(io, fixture, "faulty:uring", 1, NULL);
    assert_string_equal("faulty(uring)", gyre_io_engine(io));
    static _Alignas(4096) char block[4096];
    void *blocks[1] = {block};
    assert_ok(fixture,
              gyre_io_add_buffers(io, blocks, 4096, 1, &fixture->error));
    assert_string_equal("faulty(uring+buffers)", gyre_io_engine(io));
    gyre_io_destroy(io);
}

static void test_options(void **state)
{
    gyre_io_options options = {.engine = "aio", .depth = 1};
    gyre_io *io = NULL;

    (void)state;
    assert_int_equal(GYRE_INVALID, gyre_io_create(fixture->context, &options,
                                                  &io, &fixture->error));
    assert_says(fixture, "auto, uring, posix");
    options.engine = "faultyposix";
    assert_int_equal(GYRE_INVALID, gyre_io_create(fixture->context, &options,
                                                  &io, &fixture->error));
    options.engine = "posix";
    options.depth = 0;
    assert_int_equal(GYRE_RANGE, gyre_io_create(fixture->context, &options, &io,
                                                &fixture->error));
    options.depth = 1000000;
    assert_int_equal(GYRE_RANGE, gyre_io_create(fixture->context, &options, &io,
                                                &fixture->error));
    assert_null(io);
    options.depth = 1;
    options.engine = NULL;
    assert_ok(fixture,
              gyre_io_create(fixture->context, &options, &io, &fixture->error));
    gyre_io_destroy(io);
    gyre_io_destroy(NULL);
}

static int set_up(void **state)
{
    (void)state;
    fixture = io_fixture_create();
    return 0;
}

static int take_down(void **state)
{
    (void)state;
    io_fixture_destroy(fixture);
    return 0;
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } each[] = {
        {"random", test_random},
        {"end of file", test_end_of_file},
        {"full device", test_full_device},
        {"refusals", test_refusals},
        {"bad descriptors", test_bad_descriptors},
        {"misaligned", test_misaligned},
        {"destroy in flight", test_destroy_in_flight},
        {"many files", test_many_files},
    };
    enum { EACH = sizeof each / sizeof each[0] };
    struct CMUnitTest tests[ENGINES * EACH + 2];
    static char names[ENGINES * EACH][80];
    size_t n = 0;

    for (size_t e = 0; e < ENGINES; e++) {
        for (size_t i = 0; i < EACH; i++, n++) {
            snprintf(names[n], sizeof names[n], "%s: %s", engines[e],
                     each[i].name);
            tests[n] = (struct CMUnitTest){
                .name = names[n],
                .test_func = each[i].run,
                .initial_state = (void *)(uintptr_t)engines[e],
            };
        }
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_names);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_options);
    return _cmocka_run_group_tests("io contract", tests, n, set_up, take_down);
}
