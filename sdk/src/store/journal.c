/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of a change of generation: what may have to be swept up. */
#include "config.h"

#include "store/manifest.h"
#include "store/place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define JOURNAL "changing"

static size_t name_bytes(const gyre_store *store)
{
    size_t bytes = 0;

    for (uint32_t d = 0; store != NULL && d < store->layout.devices; d++)
        bytes += strlen(store->places[d].file) + 1;
    return bytes;
}

static char *put_names(const gyre_store *store, char *at)
{
    for (uint32_t d = 0; store != NULL && d < store->layout.devices; d++)
        at += sprintf(at, "%s\n", store->places[d].file);
    return at;
}

/* One name, one line. */
static gyre_status check_names(const gyre_store *store, gyre_error *error)
{
    for (uint32_t d = 0; store != NULL && d < store->layout.devices; d++)
        if (strchr(store->places[d].file, '\n') != NULL)
            return gyre_fail(error, GYRE_INVALID,
                             "the path of device %u has a line break in it: "
                             "%s; give a folder without one",
                             d, store->places[d].file);
    return GYRE_OK;
}

gyre_status gyre_journal_write(const gyre_store *store, const gyre_store *old,
                               gyre_error *error)
{
    size_t bytes = name_bytes(store) + name_bytes(old) + 1;
    gyre_status status = check_names(store, error);
    char *text;

    if (status == GYRE_OK)
        status = check_names(old, error);
    if (status != GYRE_OK)
        return status;
    text = gyre_alloc(store->context, bytes, 1);
    if (text == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "no memory for the journal");
    *put_names(old, put_names(store, text)) = '\0';
    status = gyre_file_replace(store, JOURNAL, text, error);
    gyre_free(store->context, text, bytes, 1);
    return status;
}

static const char *base_name(const char *file)
{
    const char *slash = strrchr(file, '/');

    return slash != NULL ? slash + 1 : file;
}

/* By last name, which holds uuid, generation and index: a store that was moved
 * after the journal was written must not lose a file. */
static bool in_use(const gyre_store *store, const char *file)
{
    for (uint32_t d = 0; store != NULL && d < store->layout.devices; d++)
        if (strcmp(base_name(store->places[d].file), base_name(file)) == 0)
            return true;
    return false;
}

/* What a crash left half-written beside the file that it was to replace. */
static void remove_asides(const gyre_store *at)
{
    static const char *const names[] = {JOURNAL, "manifest.json",
                                        "salvaged.json"};
    char aside[4096];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(aside, sizeof(aside), "%s/%s.new", at->path, names[i]);
        if (access(aside, F_OK) == 0)
            (void)gyre_io_remove(at->recorder, aside);
    }
}

/* Gone for good, not only until the power fails: when the journal is gone
 * nobody else would know of the file.  One that is not there may have been
 * removed a moment ago. */
static bool remove_file(const gyre_store *at, const char *file)
{
    int err = gyre_io_remove(at->recorder, file);
    gyre_status status;

    if (err == ENOTDIR)
        return true;
    if (err != 0 && err != ENOENT)
        return false;
    if (err == 0)
        gyre_log(at->context, GYRE_LOG_INFO,
                 "removed %s, not part of the store", file);
    status = gyre_io_sync_parent(at->recorder, file, NULL);
    return status == GYRE_OK || status == GYRE_NOT_FOUND;
}

void gyre_journal_settle(const gyre_store *at, const gyre_store *store)
{
    char name[4096], line[4096];
    bool all = true;
    FILE *file;

    remove_asides(at);
    snprintf(name, sizeof(name), "%s/" JOURNAL, at->path);
    file = fopen(name, "re");
    if (file == NULL)
        return;
    /* The manifest that was read may be a rename that the disk does not know
     * of yet; what it replaces must outlive that. */
    if (gyre_io_sync_folder(at->recorder, at->path, NULL) != GYRE_OK) {
        fclose(file);
        return;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (gyre_place_is_device_name(base_name(line)) &&
            !in_use(store, line) && !gyre_place_is_block(line))
            all &= remove_file(at, line);
    }
    fclose(file);
    if (all)
        (void)gyre_io_remove(at->recorder, name);
}
