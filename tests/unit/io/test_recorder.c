/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder: order, contents, threads, and that it claims no more
 * durability than is true. */
#include "config.h"

#include "common.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static gyre_io_recorder *recorder_of(io_fixture *f)
{
    gyre_io_recorder *recorder;

    assert_ok(f, gyre_io_recorder_create(f->context, &recorder, &f->error));
    return recorder;
}

static void is_event(const gyre_io_recorder *recorder, size_t index,
                     gyre_io_event_kind kind, uint64_t id)
{
    const gyre_io_event *event = gyre_io_recorder_at(recorder, index);

    assert_non_null(event);
    assert_int_equal(kind, event->kind);
    assert_int_equal(id, event->id);
    assert_int_equal(kind == GYRE_IO_WRITE_START, event->data != NULL);
}

static void test_order(void **state)
{
    io_fixture *f = *state;
    gyre_io_recorder *r = recorder_of(f);
    char data[600], name[80], back[600];
    gyre_io *io = io_queue(f, "posix", 4, r);

    int fd = io_file_of(f, "order", 4096, 0, NULL);
    memset(name, 'x', sizeof name);
    strcpy(name + 60, "/dev0/chunks");
    gyre_io_op write =
                   {
                       .kind = GYRE_IO_WRITE,
                       .file = io_add(f, io, fd, name),
                       .buffer = -1,
                       .data = data,
                       .bytes = sizeof data,
                       .offset = 100,
                   },
               flush = write, read = write;
    flush.kind = GYRE_IO_FLUSH;
    read.kind = GYRE_IO_READ;
    read.data = back;
    io_fill(data, sizeof data, 3);
    gyre_io_recorder_mark(r, 42);
    io_submit(f, io, &write);
    io_submit(f, io, &flush); /* the write has not been seen to end: no cover */
    io_submit(f, io, &read);
    for (int i = 0; i < 3; i++)
        io_wait_one(f, io);
    assert_ok(f, gyre_io_do(io, &flush, &f->error));
    /* Later writes do not change the copy. */
    const gyre_io_event *start = gyre_io_recorder_at(r, 1);
    assert_int_equal(100, start->offset);
    assert_int_equal(sizeof data, start->bytes);
    assert_memory_equal(back, start->data, sizeof back);
    memset(data, 0, sizeof data);
    assert_memory_equal(back, start->data, sizeof back);
    assert_int_equal(47, strlen(start->file));
    assert_string_equal("xxx/dev0/chunks", start->file + 47 - 15);
    is_event(r, 0, GYRE_IO_MARK, 42);
    is_event(r, 1, GYRE_IO_WRITE_START, 1);
    is_event(r, 2, GYRE_IO_FLUSH_START, 2);
    is_event(r, 3, GYRE_IO_WRITE_END, 1);
    is_event(r, 4, GYRE_IO_FLUSH_END, 2);
    is_event(r, 5, GYRE_IO_FLUSH_START, 3);
    is_event(r, 6, GYRE_IO_FLUSH_END, 3);
    assert_int_equal(7, gyre_io_recorder_count(r));
    assert_null(gyre_io_recorder_at(r, 7));
    assert_int_equal(0, gyre_io_recorder_lost(r));
    gyre_io_destroy(io);
    gyre_io_recorder_destroy(r);
    close(fd);
}

/* What failed has no end; what was only short or late has one. */
static void test_failures(void **state)
{
    io_fixture *f = *state;
    gyre_io_recorder *r = recorder_of(f);
    char data[512] = {1};
    gyre_io *io = io_queue(f, "faulty:posix,short=1,fail=2,every=2", 2, r);

    int fd = io_file_of(f, "failures", 4096, 0, NULL);
    gyre_io_op op = {
        .kind = GYRE_IO_WRITE,
        .file = io_add(f, io, fd, "failures"),
        .buffer = -1,
        .data = data,
        .bytes = sizeof data,
    };
    assert_ok(f, gyre_io_do(io, &op, &f->error));
    assert_int_equal(GYRE_IO, gyre_io_do(io, &op, &f->error));
    assert_ok(f, gyre_io_do(io, &op, &f->error));
    op.kind = GYRE_IO_FLUSH;
    assert_int_equal(GYRE_IO, gyre_io_do(io, &op, &f->error));
    assert_ok(f, gyre_io_do(io, &op, &f->error));
    static const gyre_io_event_kind kinds[] = {
        GYRE_IO_WRITE_START, GYRE_IO_WRITE_END, GYRE_IO_WRITE_START,
        GYRE_IO_WRITE_START, GYRE_IO_WRITE_END, GYRE_IO_FLUSH_START,
        GYRE_IO_FLUSH_START, GYRE_IO_FLUSH_END,
    };
    static const uint64_t ids[] = {1, 1, 2, 3, 3, 4, 5, 5};
    assert_int_equal(8, gyre_io_recorder_count(r));
    for (size_t i = 0; i < 8; i++)
        is_event(r, i, kinds[i], ids[i]);
    gyre_io_destroy(io);
    gyre_io_recorder_destroy(r);
    close(fd);
}

/* ---- threads --------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 60, DEPTH = 4, BYTES = 1024 };

typedef struct worker {
    io_fixture *f;
    gyre_io_recorder *recorder;
    const char *engine;
    int number, fd;
    pthread_t thread;
    char problem[GYRE_ERROR_TEXT];
} worker;

/* cmocka's asserts belong to its own thread: a worker keeps its problem. */
static gyre_status work(worker *w, gyre_error *error)
{
    gyre_io_options options = {
        .engine = w->engine, .depth = DEPTH, .recorder = w->recorder};
    char *data = calloc(DEPTH, BYTES), name[16];
    gyre_io_done done[DEPTH];
    gyre_io *io;
    uint32_t file;
    size_t count;
    gyre_status status = gyre_io_create(w->f->context, &options, &io, error);

    if (status) {
        free(data);
        return status;
    }
    snprintf(name, sizeof name, "w%d", w->number);
    status = gyre_io_add_file(io, w->fd, name, &file, error);
    for (int i = 0; !status && i < ROUNDS; i++) {
        for (size_t k = 0; !status && k < DEPTH; k++) {
            gyre_io_op op = {
                .kind = GYRE_IO_WRITE,
                .file = file,
                .buffer = -1,
                .data = data + k * BYTES,
                .bytes = BYTES,
                .offset = k * BYTES,
            };
            memset(op.data, w->number * 50 + i % 50, BYTES);
            status = gyre_io_submit(io, &op, error);
        }
        if (!status)
            status = gyre_io_wait(io, done, DEPTH, DEPTH, &count, error);
        gyre_io_op flush = {.kind = GYRE_IO_FLUSH, .file = file};
        if (!status && i % 10 == 0)
            status = gyre_io_do(io, &flush, error);
        gyre_io_recorder_mark(w->recorder, (uint64_t)w->number);
        /* Reading beside the others' writing. */
        size_t n = gyre_io_recorder_count(w->recorder);
        if (!gyre_io_recorder_at(w->recorder, n - 1))
            status = gyre_fail(error, GYRE_INTERNAL, "event %zu gone", n - 1);
    }
    gyre_io_destroy(io);
    free(data);
    return status;
}

static void *run_worker(void *argument)
{
    worker *w = argument;
    gyre_error error;

    if (work(w, &error))
        snprintf(w->problem, sizeof w->problem, "%s", error.text);
    return NULL;
}

static void check_events(const gyre_io_recorder *r)
{
    enum { IDS = THREADS * ROUNDS * (DEPTH + 1) + 1 };
    static int begun[IDS], ended[IDS];
    size_t marks[THREADS] = {0}, n = gyre_io_recorder_count(r);

    memset(begun, 0, sizeof begun);
    memset(ended, 0, sizeof ended);
    for (size_t i = 0; i < n; i++) {
        const gyre_io_event *e = gyre_io_recorder_at(r, i);
        assert_true(e->id < IDS);
        int worker_number = e->file[0] ? e->file[1] - '0' : -1;
        if (e->kind == GYRE_IO_MARK) {
            marks[e->id]++;
        } else if (e->kind == GYRE_IO_WRITE_START ||
                   e->kind == GYRE_IO_FLUSH_START) {
            assert_int_equal(0, begun[e->id]++);
        } else {
            assert_int_equal(1, begun[e->id]);
            assert_int_equal(0, ended[e->id]++);
        }
        if (e->kind == GYRE_IO_WRITE_START) {
            const unsigned char *data = e->data;
            int value = worker_number * 50 + (int)marks[worker_number] % 50;
            assert_int_equal(value, data[0]);
            assert_int_equal(value, data[BYTES - 1]);
        }
    }
    for (int w = 0; w < THREADS; w++)
        assert_int_equal(ROUNDS, marks[w]);
    assert_int_equal(n, THREADS * ROUNDS * (2 * DEPTH + 1) +
                            THREADS * (ROUNDS / 10) * 2);
}

static void run_threads(io_fixture *f, const char *engine)
{
    worker workers[THREADS];
    gyre_io_recorder *r = recorder_of(f);
    char name[16];

    for (int i = 0; i < THREADS; i++) {
        worker *w = &workers[i];
        snprintf(name, sizeof name, "thread%d", i);
        *w = (worker){.f = f, .recorder = r, .engine = engine, .number = i};
        w->fd = io_file_of(f, name, DEPTH * BYTES, 0, NULL);
        assert_int_equal(0, pthread_create(&w->thread, NULL, run_worker, w));
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        close(workers[i].fd);
        if (workers[i].problem[0])
            fail_msg("%s: %s", engine, workers[i].problem);
    }
    check_events(r);
    gyre_io_recorder_destroy(r);
}

static void test_threads(void **state)
{
    run_threads(*state, "posix");
    run_threads(*state, "auto");
    run_threads(*state, "faulty,short=1,every=3,reorder=5");
}

static void test_memory(void **state)
{
    io_fixture *f = *state;
    gyre_io_recorder *r = recorder_of(f);

    /* 64 marks fit the first segment; the next finds no memory. */
    for (uint64_t i = 0; i < 64; i++) {
        gyre_io_recorder_mark(r, i);
        f->memory.fail_at = f->memory.requests + 1;
    }
    gyre_io_recorder_mark(r, 64);
    assert_int_equal(64, gyre_io_recorder_count(r));
    assert_int_equal(1, gyre_io_recorder_lost(r));
    f->memory.fail_at = 0;
    gyre_io_recorder_mark(r, 65);
    is_event(r, 64, GYRE_IO_MARK, 65);
    gyre_io_recorder_destroy(r);
    gyre_io_recorder_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("io recorder", tests, io_setup,
                                       io_teardown);
}
