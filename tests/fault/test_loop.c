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

#include "fault/common.h"

#include "io/io.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GROUPS_V1 "/sys/fs/cgroup/blkio"
#define GROUPS_V2 "/sys/fs/cgroup"
enum { RATE = 65536, DISK_BYTES = 2 << 20 };

/*
 * 14 chunks to update and one frozen: an open has 2 + 15 operations, the first
 * round 14 reads, and then 14 writes of 16 KiB that take 3.5 seconds.
 */
enum { CHUNKS = 14, FIRST_WRITE = 2 + 15 + CHUNKS + 1 };

typedef struct slow {
    fault_model model;
    fault_place place;
    char file[FAULT_PATH + 16];
    char disk[64];   /* /dev/loopN; "": none */
    char group[128]; /* control group; "": none */
    bool waited;     /* the library said so */
} slow;

/* ---- a slow disk ------------------------------------------------------ */

static bool write_text(const char *folder, const char *name, const char *text)
{
    char path[256];
    int fd;
    bool good;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_WRONLY);
    if (fd < 0)
        return false;
    good = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return good;
}

static void make_disk(slow *s)
{
    char command[FAULT_PATH + 128];
    FILE *pipe;
    int fd;

    snprintf(s->file, sizeof(s->file), "%s/disk.img", s->place.root);
    fd = open(s->file, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(posix_fallocate(fd, 0, DISK_BYTES), 0);
    close(fd);
    snprintf(command, sizeof(command), "losetup --find --show %s 2>/dev/null",
             s->file);
    pipe = popen(command, "r");
    if (pipe == NULL)
        return;
    if (fgets(s->disk, sizeof(s->disk), pipe) == NULL)
        s->disk[0] = '\0';
    s->disk[strcspn(s->disk, "\n")] = '\0';
    pclose(pipe);
}

/* A control group that writes to the disk as slowly as `text` says. */
static bool try_group(slow *s, const char *groups, const char *name,
                      const char *text)
{
    snprintf(s->group, sizeof(s->group), "%s/gyre-test-%ld", groups,
             (long)getpid());
    if (mkdir(s->group, 0755) == 0) {
        if (write_text(s->group, name, text))
            return true;
        rmdir(s->group);
    }
    s->group[0] = '\0';
    return false;
}

static void make_group(slow *s)
{
    struct stat info;
    char text[64];

    assert_int_equal(stat(s->disk, &info), 0);
    snprintf(text, sizeof(text), "%u:%u %d", major(info.st_rdev),
             minor(info.st_rdev), RATE);
    if (try_group(s, GROUPS_V1, "blkio.throttle.write_bps_device", text))
        return;
    snprintf(text, sizeof(text), "%u:%u wbps=%d", major(info.st_rdev),
             minor(info.st_rdev), RATE);
    if (write_text(GROUPS_V2, "cgroup.subtree_control", "+io"))
        (void)try_group(s, GROUPS_V2, "io.max", text);
}

static int end_slow(void **state)
{
    slow *s = *state;
    char command[128];

    if (s->group[0] != '\0')
        rmdir(s->group);
    snprintf(command, sizeof(command), "losetup --detach %s", s->disk);
    if (s->disk[0] != '\0' && system(command) != 0)
        printf("# %s stays\n", s->disk);
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
    if (geteuid() == 0)
        make_disk(s);
    if (s->disk[0] != '\0')
        make_group(s);
    s->place.devices[0] = s->disk;
    return 0;
}

static void *read_disk(const slow *s)
{
    int fd = open(s->disk, O_RDONLY | O_DIRECT);
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
    if (status == GYRE_OK && !write_text(s->group, "cgroup.procs", "0"))
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
    if (s->group[0] == '\0') {
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
