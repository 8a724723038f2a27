/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device list of a store: taken from spec, and found again.
 *
 * A device is known by its uuid and not by its path: when it is not where the
 * manifest says, it is looked for where the others are.
 */
#include "config.h"

#include "store/place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- from a list ------------------------------------------------------ */

static char *manifest_path(gyre_store *store, const char *given)
{
    char *real, *copy;

    if (given == NULL)
        return gyre_copy_text(store->context, ".");
    real = realpath(given, NULL);
    /* By any name, the store's own folder moves with the store. */
    if (real != NULL && strcmp(real, store->path) == 0)
        copy = gyre_copy_text(store->context, ".");
    else
        copy = gyre_copy_text(store->context, real != NULL ? real : given);
    free(real);
    return copy;
}

/* The lock would refuse the second one too, but only after a long wait. */
static gyre_status check_blocks(const gyre_store *store, uint32_t d,
                                gyre_error *error)
{
    for (uint32_t e = 0; e < d; e++)
        if (gyre_place_same_block(store->places[d].file, store->places[e].file))
            return gyre_fail(error, GYRE_INVALID,
                             "devices %u and %u are the same block file, %s; "
                             "each device needs its own",
                             e, d, store->places[d].file);
    return GYRE_OK;
}

gyre_status gyre_store_take_devices(gyre_store *store,
                                    const gyre_store_spec *spec,
                                    gyre_error *error)
{
    size_t n = spec->device_count != 0 ? spec->device_count : 1;

    if (n > GYRE_MAX_DEVICES)
        return gyre_fail(error, GYRE_RANGE, "%zu devices, at most %d allowed",
                         n, GYRE_MAX_DEVICES);
    if (!gyre_place_table(store, n))
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for devices");
    for (size_t d = 0; d < n; d++) {
        gyre_place *place = &store->places[d];
        double weight = spec->weights != NULL ? spec->weights[d] : 1.0;
        gyre_status status;

        if (!(weight > 0) || weight > 1e9)
            return gyre_fail(error, GYRE_RANGE,
                             "weight of device %zu is %g; it must be above 0",
                             d, weight);
        store->layout.weights[d] = weight;
        place->path = manifest_path(
            store, spec->devices != NULL ? spec->devices[d] : NULL);
        if (place->path == NULL)
            return gyre_fail(error, GYRE_NO_MEMORY, "no memory for devices");
        place->file = gyre_place_file_name(store, place->path, (uint32_t)d);
        if (place->file == NULL)
            return gyre_fail(error, GYRE_NO_MEMORY, "no memory for devices");
        status = gyre_random_uuid(place->uuid, error);
        if (status == GYRE_OK)
            status = check_blocks(store, (uint32_t)d, error);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

/* ---- from a manifest -------------------------------------------------- */

static gyre_status read_super(gyre_store *store, gyre_place *place,
                              gyre_super *super, gyre_error *error)
{
    void *page = gyre_alloc_aligned(store->context, GYRE_PAGE, GYRE_PAGE);
    ssize_t n;
    gyre_status status;

    if (page == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a superblock");
    do
        n = pread(place->fd, page, GYRE_PAGE, 0);
    while (n < 0 && errno == EINTR);
    if (n == GYRE_PAGE)
        status = gyre_format_read_super(page, place->file, super, error);
    else if (n < 0)
        status = gyre_fail_errno(error, GYRE_IO, errno, "cannot read %s",
                                 place->file);
    else
        status = gyre_fail(error, GYRE_CORRUPT,
                           "%s is truncated: %zd bytes, no superblock",
                           place->file, n);
    gyre_free_aligned(store->context, page, GYRE_PAGE, GYRE_PAGE);
    return status;
}

static gyre_status check_super(const gyre_store *store, uint32_t d,
                               const gyre_super *super, gyre_error *error)
{
    const gyre_place *place = &store->places[d];
    char other[37];

    if (memcmp(super->store, store->uuid, 16) != 0) {
        gyre_uuid_text(super->store, other);
        return gyre_fail(error, GYRE_FORMAT,
                         "%s belongs to store %s, not to %s", place->file,
                         other, store->uuid_text);
    }
    if (super->generation != store->generation ||
        memcmp(super->device, place->uuid, 16) != 0 || super->index != d)
        return gyre_fail(error, GYRE_FORMAT,
                         "%s is device %u of generation %llu; wanted is device "
                         "%u of generation %llu",
                         place->file, super->index,
                         (unsigned long long)super->generation, d,
                         (unsigned long long)store->generation);
    if (super->area_at[0] != store->layout.area_at[0] ||
        super->area_at[1] != store->layout.area_at[1] ||
        super->file_bytes != store->layout.device_bytes[d])
        return gyre_fail(error, GYRE_FORMAT,
                         "%s: its layout is not what the manifest gives",
                         place->file);
    return GYRE_OK;
}

/* Open device d's file in a folder and lock it. */
static gyre_status take_file(gyre_store *store, uint32_t d, const char *path,
                             gyre_error *error)
{
    gyre_place *place = &store->places[d];
    char *file = gyre_place_file_name(store, path, d);
    gyre_status status;

    if (file == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for a path");
    gyre_free_text(store->context, place->file);
    place->file = file;
    status = gyre_io_open_file(file, 0, &place->fd, &place->direct, error);
    if (status == GYRE_OK)
        status = gyre_place_lock_file(store, place, store->lock_wait_ns, error);
    return status;
}

/* Try device d's file in the folder of device k. */
static gyre_status try_place(gyre_store *store, uint32_t d, uint32_t k,
                             gyre_error *error)
{
    gyre_place *place = &store->places[d];
    gyre_super super;
    gyre_status status = take_file(store, d, store->places[k].path, error);

    if (status == GYRE_OK)
        status = read_super(store, place, &super, error);
    if (status == GYRE_OK)
        status = check_super(store, d, &super, error);
    if (status != GYRE_OK && place->fd >= 0) {
        close(place->fd);
        place->fd = -1;
    }
    return status;
}

/* A device is known by its uuid: when it is not where the manifest says, look
 * where the others are, and say in *found whose place that is.  The first
 * failure is the one to tell. */
static gyre_status open_place(gyre_store *store, uint32_t d, uint32_t *found,
                              gyre_error *error)
{
    gyre_status first = try_place(store, d, d, error);

    *found = d;
    if (first != GYRE_NOT_FOUND && first != GYRE_FORMAT)
        return first;
    for (uint32_t k = 0; k < store->layout.devices; k++)
        if (k != d &&
            strcmp(store->places[k].path, store->places[d].path) != 0 &&
            try_place(store, d, k, NULL) == GYRE_OK) {
            gyre_log(store->context, GYRE_LOG_WARNING,
                     "device %u was found as %s", d, store->places[d].file);
            *found = k;
            return GYRE_OK;
        }
    return first;
}

/* The file that the manifest names, whatever it says about itself. */
static gyre_status open_anyway(gyre_store *store, uint32_t d,
                               const gyre_error *why, gyre_error *error)
{
    gyre_status status = take_file(store, d, store->places[d].path, error);

    if (status == GYRE_OK)
        store->complain(store->complain_user, d, why);
    return status;
}

static gyre_status open_device(gyre_store *store, uint32_t d, uint32_t *found,
                               gyre_error *error)
{
    gyre_error why = {GYRE_OK, ""};
    gyre_status status = open_place(store, d, found, &why);

    if (store->complain != NULL &&
        (status == GYRE_FORMAT || status == GYRE_CORRUPT || status == GYRE_IO))
        return open_anyway(store, d, &why, error);
    if (status != GYRE_OK && error != NULL)
        *error = why;
    return status;
}

/* Search first, then give each device the path where it was found: a search
 * needs the paths of all others as they stand in the manifest. */
gyre_status gyre_store_open_devices(gyre_store *store, gyre_error *error)
{
    uint32_t n = store->layout.devices, found[GYRE_MAX_DEVICES];
    char *path[GYRE_MAX_DEVICES] = {NULL};
    gyre_status status = GYRE_OK;

    for (uint32_t d = 0; status == GYRE_OK && d < n; d++)
        status = open_device(store, d, &found[d], error);
    for (uint32_t d = 0; status == GYRE_OK && d < n; d++) {
        path[d] = gyre_copy_text(store->context, store->places[found[d]].path);
        if (path[d] == NULL)
            status = gyre_fail(error, GYRE_NO_MEMORY, "no memory for a path");
    }
    for (uint32_t d = 0; d < n; d++) {
        char *old = path[d];

        if (status == GYRE_OK) {
            old = store->places[d].path;
            store->places[d].path = path[d];
        }
        gyre_free_text(store->context, old);
    }
    return status;
}

/* ---- against a list --------------------------------------------------- */

/* The same folder or file by any of its names; NULL is the store's own. */
static bool same_place(const gyre_store *store, uint32_t d, const char *given)
{
    const char *path = gyre_place_folder(store, store->places[d].path);
    struct stat have, want;

    if (given == NULL || strcmp(path, given) == 0)
        return given != NULL || strcmp(path, store->path) == 0;
    return stat(path, &have) == 0 && stat(given, &want) == 0 &&
           have.st_dev == want.st_dev && have.st_ino == want.st_ino;
}

gyre_status gyre_store_check_devices(const gyre_store *store,
                                     const gyre_store_options *options,
                                     gyre_error *error)
{
    uint32_t have = store->layout.devices;
    const char *const *list = options != NULL ? options->devices : NULL;
    size_t want = options != NULL ? options->device_count : 0;

    if (list != NULL && want == 0)
        want = 1; /* as in gyre_store_spec */
    if (want != 0 && want != have)
        return gyre_fail(error, GYRE_LAYOUT,
                         "store %s has %u device%s and %zu were asked for; to "
                         "change that run: gyre store reshard %s --devices %zu",
                         store->path, have, have == 1 ? "" : "s", want,
                         store->path, want);
    for (uint32_t d = 0; list != NULL && d < want; d++)
        if (!same_place(store, d, list[d]))
            return gyre_fail(
                error, GYRE_LAYOUT,
                "device %u of store %s is %s, not %s; to move it "
                "run: gyre store reshard %s --device PATH ...",
                d, store->path, gyre_place_folder(store, store->places[d].path),
                list[d] != NULL ? list[d] : store->path, store->path);
    return GYRE_OK;
}
