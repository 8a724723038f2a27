/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The uring engine: one io_uring, its files and buffers registered.
 *
 * Files are registered for the lock as much as for speed.  A flock belongs to
 * the open file description, and the ring holds a reference to that until the
 * ring itself is gone, which the kernel puts off until nothing is in flight.
 * So when this process is killed, its lock comes free only after its last
 * write has landed, and whoever opens the store next cannot be overwritten.
 */
#include "config.h"

#include "io/engine.h"

#ifndef HAVE_LIBURING

gyre_status gyre_io_uring_create(gyre_context *context, uint32_t depth,
                                 gyre_io_backend **out, gyre_error *error)
{
    (void)context;
    (void)depth;
    (void)out;
    return gyre_fail(error, GYRE_UNSUPPORTED,
                     "this build has no io_uring; install liburing (Debian: "
                     "liburing-dev) and configure again, or use engine posix");
}

#else

#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>

#define FILES_AT_FIRST 16
/* Tries to hand over one entry while the kernel is out of request memory, a
 * millisecond apart. */
#define SUBMIT_TRIES 1000
/* user_data of an entry taken back; slots are smaller. */
#define NO_SLOT UINT64_MAX

typedef struct uring_engine {
    gyre_io_backend base;
    struct io_uring ring;
    gyre_io_fds files;
    uint32_t table; /* size of the registered file table; 0: plain */
    bool buffers;   /* registered */
} uring_engine;

static const char *uring_name(gyre_io_backend *base)
{
    return ((uring_engine *)base)->buffers ? "uring+buffers" : "uring";
}

/* ---- registration ---------------------------------------------------- */

/*
 * Register a table with room for all files known.  A table cannot grow: it is
 * given up and made again.  The queue adds files only when idle, so the lock
 * is never without cover.  *ret is what the kernel says.
 */
static gyre_status make_table(uring_engine *engine, int *ret, gyre_error *error)
{
    gyre_context *context = engine->base.context;
    uint32_t size = FILES_AT_FIRST;
    struct rlimit limit;

    while (size < engine->files.count)
        size *= 2;
    /* A table may have as many entries as the process may have descriptors;
     * beyond, liburing would raise that limit, which is the host's. */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && size > limit.rlim_cur)
        size = (uint32_t)limit.rlim_cur;
    if (size < engine->files.count) {
        *ret = -EMFILE;
        return GYRE_OK;
    }
    int *fds = gyre_alloc(context, size, sizeof *fds);
    if (!fds)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "io_uring table of %u files: out of memory", size);
    for (uint32_t i = 0; i < size; i++)
        fds[i] = i < engine->files.count ? engine->files.fd[i] : -1;
    if (engine->table)
        io_uring_unregister_files(&engine->ring);
    *ret = io_uring_register_files(&engine->ring, fds, size);
    engine->table = *ret == 0 ? size : 0;
    gyre_free(context, fds, size, sizeof *fds);
    return GYRE_OK;
}

/* The kernel takes no such descriptor (one of a ring, or O_PATH): forget it,
 * and have the table again that it broke. */
static gyre_status fail_descriptor(uring_engine *engine, int fd,
                                   gyre_error *error)
{
    int ret;

    engine->files.count--;
    if (engine->files.count > 0 && !engine->table)
        (void)make_table(engine, &ret, NULL);
    return gyre_fail_errno(error, GYRE_INVALID, EBADF,
                           "io_uring takes no descriptor %d", fd);
}

static gyre_status uring_add_file(gyre_io_backend *base, int fd, uint32_t index,
                                  gyre_error *error)
{
    uring_engine *engine = (uring_engine *)base;
    gyre_status status =
        gyre_io_fds_add(base->context, &engine->files, fd, error);
    int ret = 0;

    if (status)
        return status;
    if (index < engine->table)
        ret = io_uring_register_files_update(&engine->ring, index, &fd, 1);
    else if (index == 0 || engine->table) /* else refused before, and said */
        status = make_table(engine, &ret, error);
    if (status) {
        engine->files.count--;
        return status;
    }
    if (ret == -EBADF)
        return fail_descriptor(engine, fd, error);
    if (ret < 0) {
        if (engine->table)
            io_uring_unregister_files(&engine->ring);
        engine->table = 0;
        gyre_log(base->context, GYRE_LOG_WARNING,
                 "io_uring: files are not registered (%s); each request holds "
                 "its file until it is done",
                 gyre_io_errno_name(-ret));
    }
    return GYRE_OK;
}

static gyre_status uring_add_buffers(gyre_io_backend *base, void *const *blocks,
                                     size_t bytes, size_t count,
                                     gyre_error *error)
{
    uring_engine *engine = (uring_engine *)base;
    struct iovec *list = gyre_alloc(base->context, count, sizeof *list);

    if (!list)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "list of %zu buffers: out of memory", count);
    for (size_t i = 0; i < count; i++)
        list[i] = (struct iovec){.iov_base = blocks[i], .iov_len = bytes};
    int ret = io_uring_register_buffers(&engine->ring, list, (unsigned)count);
    gyre_free(base->context, list, count, sizeof *list);
    engine->buffers = ret == 0;
    /* Pinned pages count against RLIMIT_MEMLOCK, 8 MiB for ordinary users, and
     * kernels differ in the errno; without registration each transfer pins
     * and unpins its own pages, which is slower and otherwise the same. */
    if (ret < 0)
        gyre_log(base->context, GYRE_LOG_INFO,
                 "io_uring: %zu buffers of %zu bytes are not registered (%s), "
                 "going on with plain ones; raise the limit of locked memory "
                 "(ulimit -l, LimitMEMLOCK) to at least %zu KiB",
                 count, bytes, gyre_io_errno_name(-ret),
                 count * ((bytes + 1023) / 1024));
    return GYRE_OK;
}

/* ---- transfers ------------------------------------------------------- */

static void prepare(const uring_engine *engine, struct io_uring_sqe *sqe,
                    const gyre_io_transfer *t)
{
    int fd = engine->table ? (int)t->file : engine->files.fd[t->file];
    bool fixed = engine->buffers && t->buffer >= 0;

    if (t->kind == GYRE_IO_FLUSH)
        io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
    else if (t->kind == GYRE_IO_READ && fixed)
        io_uring_prep_read_fixed(sqe, fd, t->data, t->bytes, t->offset,
                                 t->buffer);
    else if (t->kind == GYRE_IO_READ)
        io_uring_prep_read(sqe, fd, t->data, t->bytes, t->offset);
    else if (fixed)
        io_uring_prep_write_fixed(sqe, fd, t->data, t->bytes, t->offset,
                                  t->buffer);
    else
        io_uring_prep_write(sqe, fd, t->data, t->bytes, t->offset);
    if (engine->table)
        sqe->flags |= IOSQE_FIXED_FILE;
    sqe->user_data = t->slot;
}

static int uring_submit(gyre_io_backend *base, const gyre_io_transfer *t)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};
    uring_engine *engine = (uring_engine *)base;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&engine->ring);
    int ret;

    if (!sqe)
        return EAGAIN; /* full of entries taken back, see below */
    prepare(engine, sqe, t);
    for (int tries = 0; tries < SUBMIT_TRIES; tries++) {
        ret = io_uring_submit(&engine->ring);
        if (ret >= 0)
            return 0;
        if (ret == -EINTR)
            continue;
        if (ret != -EAGAIN && ret != -EBUSY)
            break;
        nanosleep(&millisecond, NULL);
    }
    /* The entry is in the ring, and the next submit would hand it over behind
     * the caller's back: turn it into nothing. */
    io_uring_prep_nop(sqe);
    sqe->user_data = NO_SLOT;
    return -ret;
}

static size_t take(uring_engine *engine, gyre_io_result *results, size_t max)
{
    struct io_uring_cqe *cqe;
    size_t n = 0;

    while (n < max && io_uring_peek_cqe(&engine->ring, &cqe) == 0) {
        if (cqe->user_data != NO_SLOT)
            results[n++] = (gyre_io_result){
                .slot = (uint32_t)cqe->user_data,
                .moved = cqe->res,
            };
        io_uring_cqe_seen(&engine->ring, cqe);
    }
    return n;
}

static int uring_wait(gyre_io_backend *base, gyre_io_result *results,
                      size_t max, size_t min, size_t *count)
{
    uring_engine *engine = (uring_engine *)base;
    struct io_uring_cqe *cqe;
    size_t n = take(engine, results, max);
    int ret = 0;

    while (n < min) {
        ret = io_uring_wait_cqe(&engine->ring, &cqe);
        /* The host's signals end the wait; it goes on. */
        if (ret < 0 && ret != -EINTR && ret != -EAGAIN)
            break;
        ret = 0;
        n += take(engine, results + n, max - n);
    }
    *count = n;
    return -ret;
}

/* ---- life ------------------------------------------------------------ */

static void uring_destroy(gyre_io_backend *base)
{
    uring_engine *engine = (uring_engine *)base;

    /* Closing a ring only starts its end, a kernel thread does the rest: the
     * lock of a closed file and the locked memory would stay taken for a
     * while, and the next open would find them so.  Unregistering waits. */
    if (engine->buffers)
        io_uring_unregister_buffers(&engine->ring);
    if (engine->table)
        io_uring_unregister_files(&engine->ring);
    io_uring_queue_exit(&engine->ring);
    gyre_io_fds_free(base->context, &engine->files);
    gyre_free(base->context, engine, 1, sizeof *engine);
}

static const gyre_io_backend_class uring_class = {
    .name = uring_name,
    .add_file = uring_add_file,
    .add_buffers = uring_add_buffers,
    .submit = uring_submit,
    .wait = uring_wait,
    .destroy = uring_destroy,
};

/* Linux 5.1 to 5.5 have the ring, but no plain read and write in it. */
static bool has_operations(struct io_uring *ring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool has = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
               io_uring_opcode_supported(probe, IORING_OP_WRITE) &&
               io_uring_opcode_supported(probe, IORING_OP_READ_FIXED) &&
               io_uring_opcode_supported(probe, IORING_OP_WRITE_FIXED) &&
               io_uring_opcode_supported(probe, IORING_OP_FSYNC);

    if (probe)
        io_uring_free_probe(probe);
    return has;
}

static gyre_status refused(int err, gyre_error *error)
{
    const char *why = "see the kernel's log";

    if (err == ENOSYS)
        why = "the kernel is built without it, or a sandbox hides it";
    else if (err == EPERM || err == EACCES)
        why = "sysctl kernel.io_uring_disabled or a sandbox (seccomp) "
              "forbids it";
    else if (err == ENOMEM)
        why = "raise the limit of locked memory (ulimit -l)";
    else if (err == EMFILE || err == ENFILE)
        why = "raise the limit of open files (ulimit -n)";
    gyre_fail_errno(error, GYRE_UNSUPPORTED, err,
                    "io_uring is refused (%s); engine posix works everywhere",
                    why);
    if (error)
        error->status = GYRE_UNSUPPORTED;
    return GYRE_UNSUPPORTED;
}

gyre_status gyre_io_uring_create(gyre_context *context, uint32_t depth,
                                 gyre_io_backend **out, gyre_error *error)
{
    uring_engine *engine = gyre_alloc_zero(context, 1, sizeof *engine);

    if (!engine)
        return gyre_fail(error, GYRE_NO_MEMORY, "uring engine: out of memory");
    engine->base.call = &uring_class;
    engine->base.context = context;
    int ret = io_uring_queue_init(depth, &engine->ring, 0);
    if (ret < 0) {
        gyre_free(context, engine, 1, sizeof *engine);
        return refused(-ret, error);
    }
    if (!has_operations(&engine->ring)) {
        uring_destroy(&engine->base);
        return gyre_fail(error, GYRE_UNSUPPORTED,
                         "io_uring of this kernel is older than Linux 5.6; "
                         "use engine posix");
    }
    *out = &engine->base;
    return GYRE_OK;
}

#endif
