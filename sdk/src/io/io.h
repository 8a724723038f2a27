/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue of reads, writes and flushes on a few files: the only way the store
 * touches its device files once they are open.
 *
 *     engine      how
 *     uring       io_uring; registered files, registered buffers.  Registering
 *                 buffers beyond RLIMIT_MEMLOCK fails for ordinary users: it
 *                 then logs so and goes on with plain buffers (STORE.md 6.8)
 *     posix       pread, pwrite, fdatasync, done inside gyre_io_submit
 *     faulty      wraps one of the two; see gyre_io_fault below
 *
 * A queue belongs to one thread, which must live until what it submitted is
 * done (the kernel cancels requests of a thread that ends).  Each transfer goes
 * to the kernel inside gyre_io_submit.  Operations may complete in any order; a
 * flush covers the writes that had *completed* when it was submitted.  The
 * queue resubmits the rest of a short transfer and retries EINTR and EAGAIN
 * (a transfer of 0 bytes is an error: end of file, or a full device), so that
 * a completion is either whole or an error.  End of file is ENODATA, a write
 * that moves nothing ENOSPC.
 */
#ifndef GYRE_SRC_IO_IO_H
#define GYRE_SRC_IO_IO_H

#include <gyre/context.h>
#include <stdbool.h>

typedef struct gyre_io gyre_io;
typedef struct gyre_io_recorder gyre_io_recorder;

typedef enum gyre_io_kind {
    GYRE_IO_READ,
    GYRE_IO_WRITE,
    GYRE_IO_FLUSH
} gyre_io_kind;

typedef struct gyre_io_op {
    gyre_io_kind kind;
    uint32_t file;  /* as given by gyre_io_add_file */
    int32_t buffer; /* registered buffer that holds `data`, or -1 */
    void *data;
    uint64_t bytes;
    uint64_t offset;
    void *user; /* returned with the completion */
} gyre_io_op;

typedef struct gyre_io_done {
    gyre_io_op op;
    int error;      /* 0, or an errno */
    uint64_t moved; /* bytes moved before the error; op.bytes when 0 */
} gyre_io_done;

/*
 * Faults of the faulty engine, counted over all operations of one queue from
 * 1.  Text form, as in an engine string:
 *
 *     faulty[:posix|:uring][,fail=N[/ERRNO]][,short=N][,zero=N][,eintr=N]
 *           [,delay=MICROSECONDS][,reorder=SEED][,kill=N][,every=N][,all]
 *
 * Without :posix or :uring it wraps what "auto" gives.  fail: the N-th
 * operation gives ERRNO (a name, default EIO) and never reaches the kernel.
 * short: it moves half of its bytes, kept to the alignment of direct I/O (the
 * queue goes on with the rest).  zero: it moves none and returns 0.  eintr: it
 * is interrupted once.  Of several chosen for one operation the first of fail,
 * zero, eintr, short is made; short and zero leave flushes alone.  every=M
 * repeats the chosen faults at each M-th operation after the N-th.  delay: each
 * operation takes that much longer.  reorder: completions are held back until
 * all are there and released in a seeded order.  kill: SIGKILL to this process
 * right after the N-th operation was submitted, counted over all faulty queues
 * of the context (gyre_io_submitted).  all: so are the others.  Rests and
 * retries are not counted.
 */
typedef struct gyre_io_options {
    const char *engine;         /* "auto", "uring", "posix", "faulty:..." */
    uint32_t depth;             /* operations in flight, at least 1 */
    gyre_io_recorder *recorder; /* or NULL; wraps any engine */
} gyre_io_options;

/* Errors: INVALID (unknown engine: lists them), UNSUPPORTED (uring asked for
 * by name and the kernel refuses; "auto" falls back to posix and logs why). */
gyre_status gyre_io_create(gyre_context *context,
                           const gyre_io_options *options, gyre_io **out,
                           gyre_error *error);
/* Waits for what is in flight, then frees.  Does not close files; when it
 * returns, the queue holds none of them nor any locked memory. */
void gyre_io_destroy(gyre_io *io);

/* Operations submitted so far over all faulty queues of a context, so that a
 * test can try each of them as a fault.  Any thread. */
uint64_t gyre_io_submitted(gyre_context *context);

/* "uring+buffers", "uring", "posix", "faulty(posix)": for reports. */
const char *gyre_io_engine(const gyre_io *io);

/* Register an open file; the caller keeps the descriptor open and owns it.
 * `name` is copied, for error texts and the recorder.  On an idle queue. */
gyre_status gyre_io_add_file(gyre_io *io, int fd, const char *name,
                             uint32_t *index, gyre_error *error);
/* Register buffers; once per queue, after all files, on an idle queue.  Falling
 * back is not an error.  Blocks stay the caller's. */
gyre_status gyre_io_add_buffers(gyre_io *io, void *const *blocks, size_t bytes,
                                size_t count, gyre_error *error);

/* Queue one operation; of a flush only kind, file and user count.  STATE when
 * `depth` are in flight already; INVALID for what can be seen to be wrong
 * before the kernel sees it: size 0, outside of its buffer, not aligned for
 * direct I/O.  On any error nothing is in flight and no completion comes. */
gyre_status gyre_io_submit(gyre_io *io, const gyre_io_op *op,
                           gyre_error *error);
/* Take up to `max` completions; blocks until at least `min` are there (min no
 * more than in flight).  Returns the number in *count, on failure too. */
gyre_status gyre_io_wait(gyre_io *io, gyre_io_done *done, size_t max,
                         size_t min, size_t *count, gyre_error *error);
size_t gyre_io_in_flight(const gyre_io *io);

/* Submit one operation on an idle queue and wait for it; an I/O error becomes
 * status IO (NO_SPACE for ENOSPC) and a text with file, offset, bytes, errno.
 */
gyre_status gyre_io_do(gyre_io *io, const gyre_io_op *op, gyre_error *error);
/* The text for a failed completion, as used by gyre_io_do. */
gyre_status gyre_io_report(const gyre_io *io, const gyre_io_done *done,
                           gyre_error *error);

/*
 * The recorder keeps what a crash could leave: every write (start, end, data)
 * and every flush (start, end) of all queues that share it, and every step with
 * names, in one global order, plus marks that the test sets between them.  Any
 * thread.
 *
 * The order never claims more durability than is true: a start stands before
 * the kernel could begin, an end after the completion was seen.  What failed
 * has a start and no end: such a write may have landed in part at any time
 * after.  Reads are not recorded.
 */
typedef enum gyre_io_event_kind {
    GYRE_IO_WRITE_START,
    GYRE_IO_WRITE_END,
    GYRE_IO_FLUSH_START,
    GYRE_IO_FLUSH_END,
    GYRE_IO_MARK,
    GYRE_IO_MADE,  /* an empty file of this name */
    GYRE_IO_SIZED, /* it has `bytes`, zeros */
    GYRE_IO_RENAMED,
    GYRE_IO_REMOVED,
    GYRE_IO_FOLDER_MADE,
    GYRE_IO_FOLDER_SYNCED /* the names in it */
} gyre_io_event_kind;

typedef struct gyre_io_event {
    gyre_io_event_kind kind;
    char file[48]; /* the last 47 bytes of the name of the file */
    uint64_t id;   /* joins start and end; value of a mark */
    uint64_t offset;
    uint64_t bytes;
    const void *data; /* of a write, at WRITE_START; of RENAMED the old name;
                         else NULL */
} gyre_io_event;

gyre_status gyre_io_recorder_create(gyre_context *context,
                                    gyre_io_recorder **out, gyre_error *error);
void gyre_io_recorder_destroy(gyre_io_recorder *recorder);
void gyre_io_recorder_mark(gyre_io_recorder *recorder, uint64_t value);
size_t gyre_io_recorder_count(const gyre_io_recorder *recorder);
/* Valid until the recorder is destroyed; NULL past the end. */
const gyre_io_event *gyre_io_recorder_at(const gyre_io_recorder *recorder,
                                         size_t index);
/* Marks and names for which there was no memory; an operation is refused
 * instead. */
size_t gyre_io_recorder_lost(const gyre_io_recorder *recorder);
/* Let the n-th step with names from now on fail with `err`; 0: none.  Then how
 * many were asked for since. */
void gyre_io_recorder_refuse(gyre_io_recorder *recorder, uint64_t n, int err);
uint64_t gyre_io_recorder_asked(const gyre_io_recorder *recorder);

/* Alignment for O_DIRECT on an open file, discovered by statx (memory and
 * offset), at least 512; 0, 0 when the file system has no direct I/O. */
void gyre_io_alignment(int fd, uint32_t *memory, uint32_t *offset);

/* Open a device file: O_DIRECT where it works, plain otherwise; *direct says
 * which.  `create` makes it (mode 0600) and fails if it exists; making the name
 * durable (fsync of the directory) is the caller's. */
gyre_status gyre_io_open_file(const char *path, int create, int *fd,
                              int *direct, gyre_error *error);
/* Reserve `bytes` of real blocks from the start of the file, which grows to
 * hold them.  NO_SPACE names what is needed and free. */
gyre_status gyre_io_reserve(int fd, const char *path, uint64_t bytes,
                            gyre_error *error);

/*
 * Names: steps outside of any queue that a recorder (NULL: none) sees and may
 * refuse.  None is durable before the folder that holds the name is synced.
 */

/* Make a device file, as gyre_io_open_file does; and reserve it. */
gyre_status gyre_io_make_file(gyre_io_recorder *recorder, const char *path,
                              int *fd, int *direct, gyre_error *error);
gyre_status gyre_io_size_file(gyre_io_recorder *recorder, int fd,
                              const char *path, uint64_t bytes,
                              gyre_error *error);
/* *made: it was not there. */
gyre_status gyre_io_make_folder(gyre_io_recorder *recorder, const char *path,
                                bool *made, gyre_error *error);
/* Make `text` the whole of a file, synced; on failure there is none. */
gyre_status gyre_io_put_file(gyre_io_recorder *recorder, const char *path,
                             const char *text, gyre_error *error);
gyre_status gyre_io_rename(gyre_io_recorder *recorder, const char *from,
                           const char *to, gyre_error *error);
/* 0 or an errno. */
int gyre_io_remove(gyre_io_recorder *recorder, const char *path);
gyre_status gyre_io_sync_folder(gyre_io_recorder *recorder, const char *path,
                                gyre_error *error);
/* The folder in which `path` stands. */
gyre_status gyre_io_sync_parent(gyre_io_recorder *recorder, const char *path,
                                gyre_error *error);
/* Read all of `bytes` at `offset`; `path` is for messages.  FORMAT when the
 * file ends before. */
gyre_status gyre_io_read_at(int fd, const char *path, void *data, size_t bytes,
                            uint64_t offset, gyre_error *error);
/* Write all of `bytes` where the file stands; `path` is for messages. */
gyre_status gyre_io_write_all(int fd, const char *path, const void *data,
                              size_t bytes, gyre_error *error);

#endif
