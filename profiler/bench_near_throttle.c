/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices that the kernel slows down; see bench_near.h.
 *
 *     folder/loop-NN    made, given its space, attached, unlinked
 *     /dev/loopN        over it, direct, frees itself at its last close
 *     GROUP/gyre-near-PID
 *                       limits for each loop device; this process is in it
 *
 * GROUP is where the controller blkio (cgroups of the first version) or io (of
 * the second) is mounted.  Data go past the page cache, so that the limits fall
 * on this process's own requests; what the loop driver then does to the file is
 * another's I/O to another device and is not limited.
 */
#include "config.h"

#include "bench_near.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { TRIES = 20, PATH_ROOM = 1024 };

#define GROUP_PREFIX "gyre-near-"

struct near_throttle {
    unsigned count;
    int fds[NEAR_MAX_DEVICES];
    dev_t devices[NEAR_MAX_DEVICES];
    char names[NEAR_MAX_DEVICES][32];
    const char *paths[NEAR_MAX_DEVICES];
    char group[PATH_ROOM];
    bool second; /* version */
};

/* ---- control groups --------------------------------------------------- */

static int put(const char *folder, const char *name, const char *text)
{
    char path[PATH_ROOM + 64];
    ssize_t n;
    int fd, trouble;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    n = write(fd, text, strlen(text));
    trouble = n < 0 ? errno : 0;
    close(fd);
    return trouble;
}

static bool has_io(const char *folder)
{
    char path[PATH_ROOM + 64], word[64];
    bool found = false;
    FILE *f;

    snprintf(path, sizeof(path), "%s/cgroup.controllers", folder);
    f = fopen(path, "re");
    while (f != NULL && !found && fscanf(f, "%63s", word) == 1)
        found = strcmp(word, "io") == 0;
    if (f != NULL)
        fclose(f);
    return found;
}

/* Where the controller is mounted; false when it is nowhere. */
static bool find_root(char root[PATH_ROOM], bool *second)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char line[4096], place[PATH_ROOM], kind[64], options[1024];
    bool found = false;

    while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
        const char *rest = strstr(line, " - ");

        if (rest == NULL ||
            sscanf(line, "%*s %*s %*s %*s %1023s", place) != 1 ||
            sscanf(rest, " - %63s %*s %1023s", kind, options) != 2)
            continue;
        *second = strcmp(kind, "cgroup2") == 0;
        found = (*second && has_io(place)) ||
                (strcmp(kind, "cgroup") == 0 && strstr(options, "blkio"));
    }
    if (f != NULL)
        fclose(f);
    if (found)
        snprintf(root, PATH_ROOM, "%s", place);
    return found;
}

static gyre_status join_group(near_throttle *t, gyre_error *error)
{
    char root[PATH_ROOM], name[PATH_ROOM + 64];
    int trouble;

    if (!find_root(root, &t->second))
        return near_fail(error, GYRE_UNSUPPORTED,
                         "--throttle kernel: no control group with the "
                         "controller blkio or io is mounted");
    snprintf(name, sizeof(name), "%s/%s%ld", root, GROUP_PREFIX,
             (long)getpid());
    if (strlen(name) >= sizeof(t->group))
        return near_fail(error, GYRE_RANGE, "--throttle kernel: %s is too long",
                         name);
    if (t->second)
        put(root, "cgroup.subtree_control", "+io");
    if (mkdir(name, 0755) != 0 && errno != EEXIST)
        return near_fail(error, GYRE_PERMISSION,
                         "--throttle kernel: cannot make the control group "
                         "%s: %s; run as root",
                         name, strerror(errno));
    memcpy(t->group, name, strlen(name) + 1);
    trouble = put(t->group, "cgroup.procs", "0");
    return trouble == 0 ? GYRE_OK
                        : near_fail(error, GYRE_PERMISSION,
                                    "--throttle kernel: cannot join %s: %s",
                                    name, strerror(trouble));
}

void near_throttle_forget(void)
{
    char root[PATH_ROOM], path[PATH_ROOM + 300];
    struct dirent *entry;
    bool second;
    DIR *dir;

    if (!find_root(root, &second) || (dir = opendir(root)) == NULL)
        return;
    while ((entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, GROUP_PREFIX, strlen(GROUP_PREFIX)) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", root, entry->d_name);
        /* one with a process in it stays: busy */
        for (int i = 0;
             i < TRIES && rmdir(path) != 0 && errno == EBUSY && i + 1 < TRIES;
             i++)
            usleep(10000);
    }
    closedir(dir);
}

/* ---- loop devices ----------------------------------------------------- */

/* A file of `bytes` that has no name when this returns. */
static int make_file(const char *folder, unsigned index, uint64_t bytes,
                     gyre_error *error)
{
    char path[4096];
    int fd, trouble;

    snprintf(path, sizeof(path), "%s/loop-%02u", folder, index);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        near_fail(error, GYRE_IO, "--throttle kernel: cannot make %s: %s", path,
                  strerror(errno));
        return -1;
    }
    unlink(path);
    trouble = posix_fallocate(fd, 0, (off_t)bytes);
    if (trouble == 0)
        return fd;
    near_fail(error, trouble == ENOSPC ? GYRE_NO_SPACE : GYRE_IO,
              "--throttle kernel: cannot reserve %llu bytes for %s: %s",
              (unsigned long long)bytes, path, strerror(trouble));
    close(fd);
    return -1;
}

/* Another may take the free device first: then try the next. */
static int attach(near_throttle *t, unsigned index, int file)
{
    const struct loop_config config = {.fd = (uint32_t)file,
                                       .info.lo_flags = LO_FLAGS_AUTOCLEAR |
                                                        LO_FLAGS_DIRECT_IO};
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int trouble = control < 0 ? errno : EBUSY;

    for (int i = 0; i < TRIES && trouble == EBUSY; i++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        int fd;

        snprintf(t->names[index], sizeof(t->names[index]), "/dev/loop%d",
                 number);
        fd = number < 0 ? -1 : open(t->names[index], O_RDWR | O_CLOEXEC);
        if (fd < 0 || ioctl(fd, LOOP_CONFIGURE, &config) != 0) {
            trouble = errno;
            if (fd >= 0)
                close(fd);
            continue;
        }
        trouble = 0;
        t->fds[index] = fd;
    }
    if (control >= 0)
        close(control);
    return trouble;
}

static gyre_status add_device(near_throttle *t, const char *folder,
                              uint64_t bytes, gyre_error *error)
{
    struct stat st;
    int file = make_file(folder, t->count, bytes, error);
    int trouble;

    if (file < 0)
        return error != NULL ? error->status : GYRE_IO;
    trouble = attach(t, t->count, file);
    close(file);
    if (trouble != 0)
        return near_fail(error, GYRE_PERMISSION,
                         "--throttle kernel: cannot attach a loop device: %s; "
                         "run as root where /dev/loop-control works",
                         strerror(trouble));
    t->paths[t->count] = t->names[t->count];
    if (fstat(t->fds[t->count], &st) == 0)
        t->devices[t->count] = st.st_rdev;
    t->count++;
    return GYRE_OK;
}

gyre_status near_throttle_start(const char *folder, unsigned devices,
                                uint64_t bytes, near_throttle **out,
                                gyre_error *error)
{
    near_throttle *t = calloc(1, sizeof(*t));
    gyre_error cause = {0};
    gyre_status status;

    if (t == NULL)
        return near_fail(error, GYRE_NO_MEMORY, "no memory");
    status = join_group(t, &cause);
    for (unsigned d = 0; status == GYRE_OK && d < devices; d++)
        status = add_device(t, folder, (bytes + 4095) / 4096 * 4096, &cause);
    if (status == GYRE_OK) {
        *out = t;
        return GYRE_OK;
    }
    near_throttle_stop(t);
    return near_fail(error, status, "%s", cause.text);
}

const char *const *near_throttle_paths(const near_throttle *throttle)
{
    return throttle->paths;
}

static int set_one(const near_throttle *t, unsigned device, double read,
                   double write)
{
    unsigned a = major(t->devices[device]), b = minor(t->devices[device]);
    char text[128], r[32] = "max", w[32] = "max";
    int trouble;

    if (t->second) {
        if (read > 0)
            snprintf(r, sizeof(r), "%.0f", read);
        if (write > 0)
            snprintf(w, sizeof(w), "%.0f", write);
        snprintf(text, sizeof(text), "%u:%u rbps=%s wbps=%s", a, b, r, w);
        return put(t->group, "io.max", text);
    }
    snprintf(text, sizeof(text), "%u:%u %.0f", a, b, read);
    trouble = put(t->group, "blkio.throttle.read_bps_device", text);
    snprintf(text, sizeof(text), "%u:%u %.0f", a, b, write);
    return trouble != 0
               ? trouble
               : put(t->group, "blkio.throttle.write_bps_device", text);
}

gyre_status near_throttle_rates(near_throttle *throttle, double read,
                                double write, gyre_error *error)
{
    for (unsigned d = 0; d < throttle->count; d++) {
        int trouble = set_one(throttle, d, read, write);

        if (trouble != 0)
            return near_fail(error, GYRE_SYSTEM,
                             "--throttle kernel: %s does not take a limit for "
                             "%s: %s",
                             throttle->group, throttle->names[d],
                             strerror(trouble));
    }
    return GYRE_OK;
}

void near_throttle_stop(near_throttle *throttle)
{
    if (throttle == NULL)
        return;
    near_throttle_rates(throttle, 0, 0, NULL);
    for (unsigned d = 0; d < throttle->count; d++)
        close(throttle->fds[d]);
    free(throttle);
}
