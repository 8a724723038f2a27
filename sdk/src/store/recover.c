/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A manifest out of a device file.
 *
 * During a reshard two generations lie in the folder, and only the lost
 * manifest knew which one stands.  The newest one that holds a commit record
 * is taken: a record is written last, so its chunks are there; and as both
 * hold the same values, either would be right.
 */
#include "config.h"

#include "store/fsck.h"
#include "store/manifest.h"
#include "store/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

typedef struct recovering {
    gyre_context *context;
    const char *folder;
    char *text; /* best so far */
    uint64_t generation;
    uint8_t uuid[16];
    bool several; /* stores */
} recovering;

static bool read_all(int fd, void *data, size_t bytes, uint64_t offset)
{
    char *at = data;

    while (bytes > 0) {
        ssize_t n = pread(fd, at, bytes, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool has_record(gyre_store *probe, int fd)
{
    gyre_layout *layout = &probe->layout;
    uint64_t bytes = layout->area_bytes;
    void *image = gyre_alloc(probe->context, bytes, 1);
    bool found = false;

    for (int a = 0; image != NULL && !found && a < 2; a++) {
        const gyre_entry *entries;
        const uint64_t *steps;
        const void *blob;
        gyre_record record;

        found = read_all(fd, image, bytes, layout->area_at[a]) &&
                gyre_format_read_area(image, layout->area_room, probe->uuid,
                                      probe->generation, layout->chunks,
                                      layout->tensor_count, &record, &entries,
                                      &steps, &blob, NULL) == GYRE_OK;
    }
    gyre_free(probe->context, image, bytes, 1);
    return found;
}

/* Text that belongs to a store of this folder, and to this file of it? */
static bool fits(recovering *r, int fd, const gyre_super *super,
                 const char *text)
{
    gyre_store *probe;
    bool good;

    if (gyre_store_blank(r->context, r->folder, NULL, &probe, NULL) != GYRE_OK)
        return false;
    good = gyre_manifest_parse(probe, text, strlen(text), "copy", NULL) ==
               GYRE_OK &&
           memcmp(probe->uuid, super->store, 16) == 0 &&
           probe->generation == super->generation &&
           super->index < probe->layout.devices &&
           strcmp(probe->places[super->index].path, ".") == 0 &&
           probe->layout.area_at[0] == super->area_at[0] &&
           has_record(probe, fd);
    gyre_store_free(probe);
    return good;
}

static char *read_copy(recovering *r, int fd, gyre_super *super)
{
    char page[GYRE_PAGE];
    struct stat info;
    char *text;

    if (!read_all(fd, page, sizeof(page), 0) ||
        gyre_format_read_super(page, "", super, NULL) != GYRE_OK ||
        fstat(fd, &info) != 0 || super->manifest_bytes > (uint64_t)info.st_size)
        return NULL;
    text = gyre_alloc_zero(r->context, super->manifest_bytes + 1, 1);
    if (text == NULL)
        return NULL;
    if (read_all(fd, text, super->manifest_bytes, GYRE_PAGE) &&
        strlen(text) == super->manifest_bytes &&
        XXH3_64bits(text, super->manifest_bytes) == super->manifest_hash)
        return text;
    gyre_free(r->context, text, super->manifest_bytes + 1, 1);
    return NULL;
}

static void try_file(recovering *r, const char *name)
{
    char path[4096];
    gyre_super super;
    char *text;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", r->folder, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    text = read_copy(r, fd, &super);
    if (text != NULL && fits(r, fd, &super, text)) {
        r->several |= r->text != NULL && memcmp(r->uuid, super.store, 16) != 0;
        if (r->text == NULL || super.generation > r->generation) {
            gyre_free_text(r->context, r->text);
            r->text = text;
            r->generation = super.generation;
            memcpy(r->uuid, super.store, 16);
            text = NULL;
        }
    }
    gyre_free_text(r->context, text);
    close(fd);
}

gyre_status gyre_fsck_recover(gyre_context *context, const char *path,
                              char **out, gyre_error *error)
{
    recovering r = {.context = context, .folder = path};
    DIR *folder = opendir(path);
    const struct dirent *entry;

    if (folder == NULL)
        return gyre_fail_errno(error, GYRE_IO, errno, "cannot open %s", path);
    while ((entry = readdir(folder)) != NULL)
        if (gyre_place_is_device_name(entry->d_name))
            try_file(&r, entry->d_name);
    closedir(folder);
    if (r.text != NULL && !r.several) {
        *out = r.text;
        return GYRE_OK;
    }
    gyre_free_text(context, r.text);
    return gyre_fail(error, GYRE_NOT_FOUND, "%s: %s", path,
                     r.several ? "device files of several stores are there"
                               : "no device file there has a whole manifest");
}
