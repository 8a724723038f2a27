/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process is killed with writes in flight on a slow device.  The one that
 * opens the store at once must wait until they have landed: what it reads
 * afterwards must not change under it.
 *
 * The slow device is a loop device whose writes a control group limits to
 * 64 KiB a second; that needs root, loop devices and the blkio controller.
 */
#include "config.h"

#include "fault/slow.h"

#include "io/io.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RATE = 65536, DISK_BYTES = 2 << 20 };

/*
 * 14 chunks to update and one frozen: an open has 2 + 15 operations, the first
 * round 14 reads, and then 14 writes of 16 KiB that take 3.5 seconds.
 */
enum { CHUNKS = 14, FIRST_WRITE = 2 + 15 + CHUNKS + 1 };

typedef struct slow {
    fault_model model;
    fault_place place;
    slow_disk disk;
    bool waited; /* the library said so */
} slow;

/* ---- a slow disk ------------------------------------------------------ */

static int end_slow(void **state)
{
    slow *s = *state;

    slow_disk_remove(&s->disk);
    fault_place_remove(&s->place);
    fault_model_free(&s->model);
    free(s);
    return 0;
}

static int begin_slow(void **state)
{
    slow *s = calloc(1, sizeof(*s));

    *state = s;
    fault_model_make(&s->model, 5);
    fault_place_make(&s->place, 1, true);
    slow_disk_make(&s->disk, s->place.root, DISK_BYTES);
    slow_disk_limit(&s->disk, 0, RATE);
    s->place.devices[0] = s->disk.disk;
    return 0;
}

static void *read_disk(const slow *s)
{
    int fd = open(s->disk.disk, O_RDONLY | O_DIRECT);
    void *data = NULL;

    assert_true(fd >= 0 && posix_memalign(&data, 4096, DISK_BYTES) == 0);
    assert_int_equal(pread(fd, data, DISK_BYTES, 0), DISK_BYTES);
    close(fd);
    return data;
}

/* ---- killed in its second round --------------------------------------- */

static void live(const slow *s, uint64_t operations)
{
    gyre_context *context = NULL;
    char io[64];
    gyre_store_options options;
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;
    gyre_status status = gyre_context_create(NULL, &context, &error);

    snprintf(io, sizeof(io), "faulty:uring,kill=%llu",
             (unsigned long long)operations);
    options = fault_options(io);
    options.buffers = 16;
    if (status == GYRE_OK)
        status = fault_open(context, &s->place, &options, &store, &error);
    if (status == GYRE_OK && !slow_disk_join(&s->disk))
        status = GYRE_SYSTEM;
    while (status == GYRE_OK) {
        gyre_round_report report;

        status = fault_round(&s->model, store, false, &report, &error);
    }
    _exit(1);
}

static void listen_log(void *user, gyre_log_level level, const char *text)
{
    slow *s = user;

    (void)level;
    s->waited |= strstr(text, "in flight") != NULL;
}

static uint64_t now_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* Kill after `operations`; returns how long the next open waited, in ms. */
static uint64_t kill_and_open(slow *s, gyre_context *context,
                              const fault_history *history, uint64_t operations)
{
    const struct timespec second = {1, 500000000};
    gyre_store_options options = fault_options("auto");
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;
    fault_picture now;
    void *before, *after;
    uint64_t begun;
    pid_t pid;
    int status;

    fflush(stdout);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        live(s, operations);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    s->waited = false;
    begun = now_ms();
    fault_ok(fault_open(context, &s->place, &options, &store, &error), &error);
    begun = now_ms() - begun;
    before = read_disk(s);
    fault_ok(fault_look(store, &now, &error), &error);
    assert_true(now.round <= FAULT_ROUNDS);
    if (fault_differs(&now, &history->picture[now.round], true) != NULL)
        fail_msg("%s differs at round %llu",
                 fault_differs(&now, &history->picture[now.round], true),
                 (unsigned long long)now.round);
    nanosleep(&second, NULL);
    after = read_disk(s);
    assert_memory_equal(before, after, DISK_BYTES);
    free(before);
    free(after);
    gyre_store_close(store);
    return begun;
}

static void test_slow_disk(void **state)
{
    slow *s = *state;
    gyre_context_options context_options = {.size = sizeof(context_options)};
    gyre_store_options options = fault_options("auto");
    gyre_error error = {GYRE_OK, ""};
    fault_history *history = calloc(1, sizeof(*history));
    gyre_context *context = NULL;
    gyre_store *store;

    context_options.log = listen_log;
    context_options.log_user = s;
    fault_ok(gyre_context_create(&context_options, &context, &error), &error);
    if (s->disk.group[0] == '\0') {
        fault_skip("no root, loop device, or group to slow it down");
        goto destroy;
    }
    fault_ok(
        fault_create(context, &s->model, &s->place, &options, &store, &error),
        &error);
    fault_record(&s->model, store, false, history);
    for (uint64_t n = FIRST_WRITE + 1; n < FIRST_WRITE + CHUNKS;
         n += fault_long() ? 1 : CHUNKS - 2) {
        uint64_t ms;

        /* From the first state of all: made anew. */
        fault_place_clear(&s->place);
        fault_ok(fault_create(context, &s->model, &s->place, &options, &store,
                              &error),
                 &error);
        gyre_store_close(store);
        ms = kill_and_open(s, context, history, n);
        printf("# killed after %llu operations: the next open waited %llu "
               "ms%s\n",
               (unsigned long long)n, (unsigned long long)ms,
               s->waited ? ", and said why" : "");
    }
destroy:
    gyre_context_destroy(context);
    free(history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_slow_disk, begin_slow, end_slow),
    };

    return cmocka_run_group_tests_name("slow disk", tests, NULL, NULL);
}
