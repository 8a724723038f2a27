/* SPDX-License-Identifier: Apache-2.0 */
/* Loop devices, and control groups that slow them down. */
#include "config.h"

#include "fault/slow.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define GROUPS_V1 "/sys/fs/cgroup/blkio"
#define GROUPS_V2 "/sys/fs/cgroup"

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

void slow_disk_make(slow_disk *s, const char *folder, uint64_t bytes)
{
    static unsigned number;
    char command[FAULT_PATH + 128];
    FILE *pipe;
    int fd;

    memset(s, 0, sizeof(*s));
    snprintf(s->file, sizeof(s->file), "%s/disk%u.img", folder, number++);
    fd = open(s->file, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(posix_fallocate(fd, 0, (off_t)bytes), 0);
    close(fd);
    if (geteuid() != 0)
        return;
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

/* A control group, made when `name` can be written in it. */
static bool try_group(slow_disk *s, const char *groups, const char *name,
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

void slow_disk_limit(slow_disk *s, unsigned read_rate, unsigned write_rate)
{
    char disk[32], one[64], two[64];
    struct stat info;

    if (s->disk[0] == '\0')
        return;
    assert_int_equal(stat(s->disk, &info), 0);
    snprintf(disk, sizeof(disk), "%u:%u", major(info.st_rdev),
             minor(info.st_rdev));
    snprintf(one, sizeof(one), "%s %u", disk, write_rate);
    snprintf(two, sizeof(two), "%s %u", disk, read_rate);
    if (try_group(s, GROUPS_V1, "blkio.throttle.write_bps_device", one)) {
        (void)write_text(s->group, "blkio.throttle.read_bps_device", two);
        return;
    }
    snprintf(one, sizeof(one), "%s wbps=%u", disk, write_rate);
    snprintf(two, sizeof(two), "%s rbps=%u", disk, read_rate);
    if (!write_text(GROUPS_V2, "cgroup.subtree_control", "+io"))
        return;
    if (try_group(s, GROUPS_V2, "io.max", write_rate > 0 ? one : two) &&
        read_rate > 0)
        (void)write_text(s->group, "io.max", two);
}

bool slow_disk_join(const slow_disk *s)
{
    return write_text(s->group, "cgroup.procs", "0");
}

void slow_disk_remove(slow_disk *s)
{
    char command[128];

    if (s->group[0] != '\0')
        rmdir(s->group);
    snprintf(command, sizeof(command), "losetup --detach %s", s->disk);
    if (s->disk[0] != '\0' && system(command) != 0)
        printf("# %s stays\n", s->disk);
    unlink(s->file);
}
