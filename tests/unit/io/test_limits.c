/* SPDX-License-Identifier: Apache-2.0 */
/* What a process may lack: memory, locked memory, descriptors, io_uring. */
#include "config.h"

#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

/* ---- the n-th allocation --------------------------------------------- */

/* All that allocates; the first failure ends it. */
static gyre_status everything(io_fixture *f, const char *engine, int fd,
                              void *block)
{
    gyre_io_recorder *recorder = NULL;
    gyre_io *io = NULL;
    gyre_io_options options = {.engine = engine, .depth = 4};
    gyre_io_op op = {
        .kind = GYRE_IO_WRITE,
        .buffer = 0,
        .data = block,
        .bytes = 4096,
    };
    gyre_status status =
        gyre_io_recorder_create(f->context, &recorder, &f->error);

    options.recorder = recorder;
    if (!status)
        status = gyre_io_create(f->context, &options, &io, &f->error);
    for (int i = 0; !status && i < 20; i++)
        status = gyre_io_add_file(io, fd, "file", &op.file, &f->error);
    if (!status)
        status = gyre_io_add_buffers(io, &block, 4096, 1, &f->error);
    for (int i = 0; !status && i < 40; i++)
        status = gyre_io_do(io, &op, &f->error);
    gyre_io_destroy(io);
    gyre_io_recorder_destroy(recorder);
    return status;
}

static void test_each_allocation(void **state)
{
    static const char *const engines[] = {"posix", "uring", "auto",
                                          "faulty:posix", "faulty:uring"};
    io_fixture *f = *state;
    void *block = io_block(4096);
    gyre_status status;

    int fd = io_file_of(f, "allocation", 4096, 0, NULL);
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        uint64_t n = 0, before = f->memory.requests;
        /* Once without a fault, so that what a context keeps is there. */
        status = everything(f, engines[e], fd, block);
        if (status == GYRE_UNSUPPORTED)
            continue;
        assert_int_equal(GYRE_OK, status);
        uint64_t all = f->memory.requests - before;
        uint64_t idle = f->memory.bytes;
        do {
            f->memory.fail_at = f->memory.requests + ++n;
            status = everything(f, engines[e], fd, block);
            f->memory.fail_at = 0;
            if (status) {
                assert_int_equal(GYRE_NO_MEMORY, status);
                assert_int_equal(GYRE_NO_MEMORY, f->error.status);
            }
            assert_int_equal(idle, f->memory.bytes);
        } while (status);
        assert_true(n > 40 && n >= all);
    }
    free(block);
    close(fd);
}

/* The shared count is made once in a context: its failure needs a new one. */
static void test_first_faulty(void **state)
{
    io_fixture *f = io_fixture_create();
    gyre_io_options options = {.engine = "faulty:posix", .depth = 1};
    gyre_status status;
    gyre_io *io;
    uint64_t n = 0;

    (void)state;
    assert_int_equal(0, gyre_io_submitted(f->context));
    do {
        f->memory.fail_at = f->memory.requests + ++n;
        status = gyre_io_create(f->context, &options, &io, &f->error);
        if (status)
            assert_int_equal(GYRE_NO_MEMORY, status);
    } while (status);
    assert_true(n > 8);
    gyre_io_destroy(io);
    io_fixture_destroy(f);
}

/* ---- a child with less ----------------------------------------------- */

/* In the child: no cmocka, the exit code says which check failed. */
#define CHILD(check)                   \
    do {                               \
        if (!(check))                  \
            _exit(__LINE__ % 200 + 1); \
    } while (0)

static void assert_child(pid_t child)
{
    int status;

    assert_true(child > 0);
    assert_int_equal(child, waitpid(child, &status, 0));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("child: status %#x, check at line %d (or that + 200...)",
                 (unsigned)status, WEXITSTATUS(status) - 1);
}

/* Write through buffer 0 and read back through plain memory. */
static bool moves(gyre_context *context, gyre_io *io, int fd, char **blocks,
                  size_t bytes, size_t count)
{
    gyre_error error;
    char *back = NULL;
    uint32_t file;

    (void)context;
    if (posix_memalign((void **)&back, 4096, bytes) != 0)
        return false;
    memset(back, 0, bytes);
    if (gyre_io_add_file(io, fd, "file", &file, &error) ||
        gyre_io_add_buffers(io, (void **)blocks, bytes, count, &error))
        return false;
    gyre_io_op op = {
        .kind = GYRE_IO_WRITE,
        .file = file,
        .data = blocks[0],
        .bytes = bytes,
    };
    io_fill(blocks[0], bytes, 11);
    if (gyre_io_do(io, &op, &error))
        return false;
    op.kind = GYRE_IO_READ;
    op.buffer = -1;
    op.data = back;
    bool same =
        !gyre_io_do(io, &op, &error) && memcmp(back, blocks[0], bytes) == 0;
    free(back);
    return same;
}

static void test_locked_memory(void **state)
{
    enum { BYTES = 1 << 20, COUNT = 4 };
    io_fixture *f = *state;
    char *blocks[COUNT];
    gyre_io *io;

    IO_QUEUE_OR_SKIP(io, f, "uring", 4, NULL);
    gyre_io_destroy(io);
    for (int i = 0; i < COUNT; i++)
        blocks[i] = io_block(BYTES);
    int fd = io_file_of(f, "nobody", BYTES, 1, NULL);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {65536, 65536};
        gyre_io_options options = {.engine = "auto", .depth = 4};
        gyre_error error;
        CHILD(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
        /* Root is above the limit. */
        CHILD(geteuid() != 0 || (setgroups(0, NULL) == 0 &&
                                 setgid(NOBODY) == 0 && setuid(NOBODY) == 0));
        CHILD(!gyre_io_create(f->context, &options, &io, &error));
        CHILD(moves(f->context, io, fd, blocks, BYTES, COUNT));
        CHILD(strcmp(gyre_io_engine(io), "uring") == 0);
        CHILD(strstr(f->log, "4 buffers of 1048576 bytes are not registered"));
        CHILD(strstr(f->log, "ENOMEM"));
        CHILD(strstr(f->log, "at least 4096 KiB"));
        gyre_io_destroy(io);
        _exit(0);
    }
    assert_child(child);
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    close(fd);
}

/* The table of files is limited like descriptors are. */
static void test_descriptors(void **state)
{
    io_fixture *f = *state;
    char *block = io_block(4096);
    gyre_io *io;

    IO_QUEUE_OR_SKIP(io, f, "uring", 4, NULL);
    gyre_io_destroy(io);
    int fd = io_file_of(f, "descriptors", 4096, 1, NULL);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit;
        gyre_io_options options = {.engine = "uring", .depth = 4};
        gyre_error error;
        CHILD(getrlimit(RLIMIT_NOFILE, &limit) == 0);
        CHILD(!gyre_io_create(f->context, &options, &io, &error));
        limit.rlim_cur = 0;
        CHILD(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        CHILD(moves(f->context, io, fd, &block, 4096, 1));
        CHILD(strstr(f->log, "files are not registered (EMFILE)"));
        /* liburing would raise the host's limit. */
        CHILD(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == 0);
        gyre_io_destroy(io);
        _exit(0);
    }
    assert_child(child);
    free(block);
    close(fd);
}

/* Make io_uring_setup fail as sandboxes do. */
static bool forbid_uring(int err)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)err),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void check_refused(io_fixture *f, int err, const char *why)
{
    char *block = io_block(4096);
    int fd = io_file_of(f, "refused", 4096, 1, NULL);
    pid_t child = fork();

    if (child == 0) {
        f->log[0] = '\0';
        gyre_io_options options = {.engine = "uring", .depth = 4};
        gyre_error error;
        gyre_io *io = NULL;
        if (!forbid_uring(err))
            _exit(0);
        CHILD(gyre_io_create(f->context, &options, &io, &error) ==
              GYRE_UNSUPPORTED);
        CHILD(error.status == GYRE_UNSUPPORTED && strstr(error.text, why));
        CHILD(io == NULL && f->log[0] == '\0');
        options.engine = "auto";
        CHILD(!gyre_io_create(f->context, &options, &io, &error));
        CHILD(strcmp(gyre_io_engine(io), "posix") == 0);
        CHILD(strstr(f->log, why));
        CHILD(moves(f->context, io, fd, &block, 4096, 1));
        gyre_io_destroy(io);
        _exit(0);
    }
    assert_child(child);
    free(block);
    close(fd);
}

static void test_refused(void **state)
{
#ifdef HAVE_LIBURING
    check_refused(*state, EPERM, "io_uring_disabled");
    check_refused(*state, ENOSYS, "built without it");
    check_refused(*state, ENOMEM, "ulimit -l");
#else
    check_refused(*state, EPERM, "liburing-dev");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation),
        cmocka_unit_test(test_first_faulty),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_locked_memory),
    };
    return cmocka_run_group_tests_name("io limits", tests, io_setup,
                                       io_teardown);
}
