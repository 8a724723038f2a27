/* SPDX-License-Identifier: Apache-2.0 */
/* Folders for stores under test: making, saving, putting back, removing. */
#include "config.h"

#include "fault/common.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *base_folder(bool disk)
{
    const char *text = getenv("GYRE_FAULT_FOLDER");

    if (text != NULL)
        return text;
    if (!disk && access("/dev/shm", W_OK) == 0)
        return "/dev/shm";
    return disk ? "." : "/tmp";
}

void fault_place_make(fault_place *place, size_t devices, bool disk)
{
    char *base = realpath(base_folder(disk), NULL);

    assert_non_null(base);
    memset(place, 0, sizeof(*place));
    snprintf(place->root, sizeof(place->root), "%.400s/gyre-fault-XXXXXX",
             base);
    free(base);
    assert_non_null(mkdtemp(place->root));
    place->count = devices;
    snprintf(place->store, sizeof(place->store), "%.480s/store", place->root);
    for (size_t d = 0; d < devices; d++) {
        snprintf(place->device[d], sizeof(place->device[d]), "%.480s/d%zu",
                 place->root, d);
        assert_int_equal(mkdir(place->device[d], 0777), 0);
        place->devices[d] = place->device[d];
    }
}

static int remove_one(const char *path, const struct stat *info, int kind,
                      struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

void fault_place_remove(fault_place *place)
{
    nftw(place->root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void fault_place_clear(fault_place *place)
{
    nftw(place->store, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    for (size_t d = 0; d < place->count; d++) {
        nftw(place->device[d], remove_one, 8, FTW_DEPTH | FTW_PHYS);
        assert_int_equal(mkdir(place->device[d], 0777), 0);
    }
}

int fault_entries(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int count = 0;

    if (dir == NULL)
        return -1;
    while ((entry = readdir(dir)) != NULL)
        count +=
            strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

/* ---- saving ----------------------------------------------------------- */

static void save_file(fault_saved *saved, const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY);
    size_t i = saved->count++;

    assert_true(fd >= 0 && i < 16 && fstat(fd, &info) == 0);
    saved->path[i] = strdup(path);
    saved->bytes[i] = (size_t)info.st_size;
    saved->data[i] = malloc(saved->bytes[i] + 1);
    assert_int_equal(pread(fd, saved->data[i], saved->bytes[i], 0),
                     saved->bytes[i]);
    close(fd);
}

static void save_folder(fault_saved *saved, const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        char path[FAULT_PATH + 260];

        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "lock") == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        save_file(saved, path);
    }
    closedir(dir);
}

void fault_save(const fault_place *place, fault_saved *saved)
{
    memset(saved, 0, sizeof(*saved));
    save_folder(saved, place->store);
    for (size_t d = 0; d < place->count; d++)
        save_folder(saved, place->device[d]);
}

void fault_restore(const fault_saved *saved)
{
    for (size_t i = 0; i < saved->count; i++) {
        int fd = open(saved->path[i], O_WRONLY | O_CREAT | O_TRUNC, 0600);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, saved->data[i], saved->bytes[i]),
                         saved->bytes[i]);
        close(fd);
    }
}

void fault_saved_free(fault_saved *saved)
{
    for (size_t i = 0; i < saved->count; i++) {
        free(saved->path[i]);
        free(saved->data[i]);
    }
    saved->count = 0;
}
