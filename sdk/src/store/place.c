/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device files by name, and who owns them.
 *
 * Two locks.  DIR/lock holds the owner's process number and a flock: it tells
 * "another process lives" from "somebody died a moment ago".  The flock on
 * each device file is what protects the data: it sits on the open file
 * description that is registered in the ring, so that after SIGKILL it stays
 * taken until nothing is in flight (STORE.md section 3).
 */
#include "config.h"

#include "store/place.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { POLL_NS = 5000000 };

static void nap(void)
{
    struct timespec t = {0, POLL_NS};

    nanosleep(&t, NULL);
}

gyre_status gyre_place_resolve(gyre_store *store, gyre_error *error)
{
    char *real = realpath(store->path, NULL);
    char *copy;
    size_t length;

    if (real == NULL)
        return gyre_fail_errno(error, GYRE_IO, errno, "cannot open %s",
                               store->path);
    copy = gyre_copy_text(store->context, real);
    length = strlen(real);
    free(real);
    if (copy == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a path");
    if (length > GYRE_PATH_MOST) {
        gyre_free_text(store->context, copy);
        return gyre_fail(error, GYRE_RANGE,
                         "the path of the store has %zu bytes; at most %d "
                         "leave room for the files in it",
                         length, GYRE_PATH_MOST);
    }
    gyre_free_text(store->context, store->path);
    store->path = copy;
    return GYRE_OK;
}

bool gyre_place_table(gyre_store *store, size_t n)
{
    store->places = gyre_alloc_zero(store->context, n, sizeof(gyre_place));
    store->layout.weights = gyre_alloc_zero(store->context, n, sizeof(double));
    store->layout.devices = (uint32_t)n;
    for (size_t d = 0; store->places != NULL && d < n; d++)
        store->places[d].fd = -1; /* before anything can fail: 0 is a file */
    return store->places != NULL && store->layout.weights != NULL;
}

bool gyre_place_is_device_name(const char *name)
{
    size_t n = strspn(name, "0123456789abcdef");
    const char *at = name + n;

    if (n != 8 || at[0] != '.' || at[1] != 'g' ||
        !isdigit((unsigned char)at[2]))
        return false;
    at += 2 + strspn(at + 2, "0123456789");
    return at[0] == '.' && at[1] == 'd' && isdigit((unsigned char)at[2]) &&
           at[2 + strspn(at + 2, "0123456789")] == '\0';
}

bool gyre_place_is_block(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISBLK(st.st_mode);
}

bool gyre_place_same_block(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && S_ISBLK(x.st_mode) && stat(b, &y) == 0 &&
           S_ISBLK(y.st_mode) && x.st_rdev == y.st_rdev;
}

const char *gyre_place_folder(const gyre_store *store, const char *path)
{
    return strcmp(path, ".") == 0 ? store->path : path;
}

char *gyre_place_file_name(const gyre_store *store, const char *path,
                           uint32_t index)
{
    const char *folder = gyre_place_folder(store, path);
    char name[64];
    size_t bytes;
    char *text;

    if (gyre_place_is_block(folder))
        return gyre_copy_text(store->context, folder);
    bytes = strlen(folder) + 2 +
            (size_t)snprintf(name, sizeof(name), "%.8s.g%llu.d%02u",
                             store->uuid_text,
                             (unsigned long long)store->generation, index);
    text = gyre_alloc(store->context, bytes, 1);
    if (text != NULL)
        snprintf(text, bytes, "%s/%s", folder, name);
    return text;
}

/* The process number in DIR/lock, or 0. */
static long read_owner(int fd)
{
    char text[32] = "";
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

    return n > 0 ? strtol(text, NULL, 10) : 0;
}

static gyre_status lock_failed(gyre_store *store, int fd, gyre_error *error)
{
    long owner = read_owner(fd);

    if (owner == (long)getpid())
        return gyre_fail(error, GYRE_BUSY,
                         "store %s is open in this process already",
                         store->path);
    return gyre_fail(error, GYRE_BUSY,
                     "store %s is in use by process %ld; wait for it to end "
                     "or stop it",
                     store->path, owner);
}

/* Take the lock in `fd`; BUSY when its owner lives, or for too long; SYSTEM
 * when there are no locks here. */
static gyre_status wait_for_lock(gyre_store *store, int fd, uint64_t until,
                                 gyre_error *error)
{
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        long owner;

        if (errno != EWOULDBLOCK && errno != EINTR)
            return gyre_fail_errno(error, GYRE_SYSTEM, errno,
                                   "cannot lock %s/lock", store->path);
        owner = read_owner(fd);
        if ((owner > 0 && (kill((pid_t)owner, 0) == 0 || errno == EPERM)) ||
            gyre_now() >= until)
            return lock_failed(store, fd, error);
        nap();
    }
    return GYRE_OK;
}

/* A create that failed takes its lock away: that one guards nothing. */
static bool is_gone(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

gyre_status gyre_place_lock(gyre_store *store, uint64_t wait_ns,
                            gyre_error *error)
{
    char path[4096];
    char text[32];
    uint64_t until = gyre_until(gyre_now(), wait_ns);
    int fd = -1, n;

    snprintf(path, sizeof(path), "%s/lock", store->path);
    do {
        gyre_status status;

        if (fd >= 0)
            close(fd);
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 && store->read_only && (errno == EACCES || errno == EROFS))
            return GYRE_OK;
        if (fd < 0)
            return gyre_fail_errno(error, GYRE_SYSTEM, errno, "cannot open %s",
                                   path);
        status = wait_for_lock(store, fd, until, error);
        if (status != GYRE_OK) {
            close(fd);
            return status;
        }
    } while (is_gone(fd));
    n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
        gyre_log(store->context, GYRE_LOG_WARNING,
                 "%s: the owner could not be written: %s", path,
                 strerror(errno));
    store->owner_lock = fd;
    return GYRE_OK;
}

void gyre_place_unlock(gyre_store *store)
{
    if (store->owner_lock < 0)
        return;
    if (ftruncate(store->owner_lock, 0) != 0)
        gyre_log(store->context, GYRE_LOG_DEBUG, "%s: lock not cleared: %s",
                 store->path, strerror(errno));
    close(store->owner_lock);
    store->owner_lock = -1;
}

gyre_status gyre_place_lock_file(gyre_store *store, gyre_place *place,
                                 uint64_t wait_ns, gyre_error *error)
{
    uint64_t until = gyre_until(gyre_now(), wait_ns);
    bool told = false;

    while (flock(place->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return gyre_fail_errno(error, GYRE_SYSTEM, errno, "cannot lock %s",
                                   place->file);
        if (gyre_now() >= until)
            return gyre_fail(error, GYRE_BUSY,
                             "%s stays locked: another process has it open, or "
                             "the writes of one that died are still in flight "
                             "after %llu s",
                             place->file,
                             (unsigned long long)(wait_ns / 1000000000));
        if (!told)
            gyre_log(store->context, GYRE_LOG_INFO,
                     "waiting for %s: writes of its last owner are in flight",
                     place->file);
        told = true;
        nap();
    }
    return GYRE_OK;
}
