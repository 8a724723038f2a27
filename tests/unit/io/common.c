/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the io room. */
#include "config.h"

#include "common.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- context --------------------------------------------------------- */

static void test_log(void *user, gyre_log_level level, const char *text)
{
    io_fixture *f = user;
    size_t n = strlen(f->log);

    (void)level;
    snprintf(f->log + n, sizeof f->log - n, "%s\n", text);
}

/* Tests want a real file system: /tmp is often in memory, without O_DIRECT. */
static void make_folder(io_fixture *f)
{
    const char *where = getenv("GYRE_TEST_FOLDER");

    snprintf(f->folder, sizeof f->folder, "%s/gyre-io-XXXXXX",
             where ? where : ".");
    assert_non_null(mkdtemp(f->folder));
}

static void remove_folder(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    rmdir(path);
}

io_fixture *io_fixture_create(void)
{
    io_fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    make_folder(f);
    gyre_context_options options = unit_options(&f->memory);
    options.log = test_log;
    options.log_user = f;
    assert_ok(f, gyre_context_create(&options, &f->context, &f->error));
    f->idle = f->memory.bytes;
    return f;
}

void io_fixture_destroy(io_fixture *f)
{
    gyre_context_destroy(f->context);
    remove_folder(f->folder);
    unit_memory_check(&f->memory);
    free(f);
}

int io_setup(void **state)
{
    *state = io_fixture_create();
    return 0;
}

int io_teardown(void **state)
{
    io_fixture_destroy(*state);
    return 0;
}

/* ---- files ----------------------------------------------------------- */

const char *io_path(io_fixture *f, const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", f->folder, name);
    return path;
}

int io_file_of(io_fixture *f, const char *name, size_t bytes, int direct,
               uint32_t *align)
{
    const char *path = io_path(f, name);
    uint32_t memory, offset;
    int fd, is_direct;

    unlink(path);
    assert_ok(f, gyre_io_open_file(path, 1, &fd, &is_direct, &f->error));
    if (!direct)
        assert_int_equal(0, fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT));
    assert_int_equal(0, ftruncate(fd, (off_t)bytes));
    gyre_io_transfer_alignment(fd, &memory, &offset);
    if (align)
        *align = memory > offset ? memory : offset;
    return fd;
}

void *io_block(size_t bytes)
{
    void *block = NULL;

    assert_int_equal(0, posix_memalign(&block, 4096, bytes));
    memset(block, 0, bytes);
    return block;
}

/* ---- queues ---------------------------------------------------------- */

gyre_io *io_queue(io_fixture *f, const char *engine, uint32_t depth,
                  gyre_io_recorder *recorder)
{
    gyre_io_options options = {
        .engine = engine, .depth = depth, .recorder = recorder};
    gyre_io *io;
    gyre_status status = gyre_io_create(f->context, &options, &io, &f->error);

    if (status == GYRE_UNSUPPORTED && strstr(engine, "uring"))
        return NULL;
    if (status)
        fail_msg("%s: %s", engine, f->error.text);
    return io;
}

uint32_t io_add(io_fixture *f, gyre_io *io, int fd, const char *name)
{
    uint32_t index;

    assert_ok(f, gyre_io_add_file(io, fd, name, &index, &f->error));
    return index;
}

void io_submit(io_fixture *f, gyre_io *io, const gyre_io_op *op)
{
    assert_ok(f, gyre_io_submit(io, op, &f->error));
}

gyre_io_done io_wait_one(io_fixture *f, gyre_io *io)
{
    gyre_io_done done;
    size_t count;

    assert_ok(f, gyre_io_wait(io, &done, 1, 1, &count, &f->error));
    assert_int_equal(1, count);
    return done;
}

/* ---- numbers --------------------------------------------------------- */

uint64_t io_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

void io_fill(void *data, size_t bytes, uint64_t seed)
{
    unsigned char *p = data;

    for (size_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)io_random(&seed);
}
