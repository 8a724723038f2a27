/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a file's path to its module descriptor.
 *
 * Immediate binding, since a lazy one hides a missing symbol until mid-run;
 * local scope, so that two plugins may define the same names; never closed,
 * since descriptors are used until the process ends.  POSIX makes dlopen and
 * dlerror safe between threads.
 */
#include "config.h"

#include "registry/registry.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Another loader (libltdl) would replace these four. */
#define loader_open(path) dlopen((path), RTLD_NOW | RTLD_LOCAL)
#define loader_symbol(handle, name) dlsym((handle), (name))
#define loader_cause() dlerror()
#define loader_owns(handle, address) same_object((handle), (address))

#define ENTRY "gyre_module_entry"

static gyre_status open_failed(gyre_error *error, const char *path,
                               const char *cause)
{
    return gyre_fail(error, GYRE_PLUGIN_OPEN, "%s: open: %s", path, cause);
}

/* ---- the file's bytes ------------------------------------------------ */

typedef struct file_image {
    const uint8_t *bytes;
    size_t size;
} file_image;

static gyre_status map_file(const char *path, file_image *out,
                            gyre_error *error)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *bytes;
    gyre_status status = GYRE_OK;

    if (fd < 0)
        return open_failed(error, path, strerror(errno));
    if (fstat(fd, &info) != 0)
        status = open_failed(error, path, strerror(errno));
    else if (S_ISDIR(info.st_mode))
        status = open_failed(error, path,
                             "is a folder; name a module file (.so) in it");
    else if (!S_ISREG(info.st_mode) || info.st_size == 0)
        status = open_failed(error, path, "is empty or not a regular file");
    if (status != GYRE_OK)
        goto close_file;
    bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) {
        status = open_failed(error, path, strerror(errno));
        goto close_file;
    }
    out->bytes = bytes;
    out->size = (size_t)info.st_size;

close_file:
    close(fd);
    return status;
}

static void unmap_file(file_image *image)
{
    munmap((void *)(uintptr_t)image->bytes, image->size);
}

typedef struct needs {
    int (*each)(void *user, const char *library, int allowed);
    void *user;
} needs;

static int pass_on(void *user, const char *library)
{
    const needs *to = user;

    return to->each(to->user, library, gyre_elf_allowed(library));
}

gyre_status gyre_plugin_needs(const char *path,
                              int (*each)(void *user, const char *library,
                                          int allowed),
                              void *user, gyre_error *error)
{
    needs to = {each, user};
    file_image image = {NULL, 0};
    const char *why = NULL;
    gyre_status status;

    if (path == NULL || each == NULL)
        return gyre_fail(error, GYRE_INVALID, "gyre_plugin_needs: NULL");
    status = map_file(path, &image, error);
    if (status != GYRE_OK)
        return status;
    if (!gyre_elf_needed(image.bytes, image.size, pass_on, &to, &why))
        status = open_failed(error, path, why);
    unmap_file(&image);
    return status;
}

/* ---- dlopen ---------------------------------------------------------- */

typedef struct warn_user {
    gyre_context *context;
    const char *path;
} warn_user;

static int warn_foreign(void *user, const char *library, int allowed)
{
    const warn_user *to = user;

    if (!allowed)
        gyre_log(to->context, GYRE_LOG_WARNING,
                 "%s: links to %s; a plugin links to libc and libm only, so "
                 "that it loads on every machine that has Gyre",
                 to->path, library);
    return 0;
}

/*
 * The loader's text begins with the object that failed.  When that is not the
 * module, the module is there and something that it needs is not: "no such
 * file" alone would send the reader to the wrong file.
 */
static gyre_status explain(const char *path, const char *cause,
                           gyre_error *error)
{
    const char *colon;

    if (cause == NULL)
        return open_failed(error, path, "the loader gives no cause");
    colon = strchr(cause, ':');
    if (colon != NULL && strstr(cause, "cannot open shared object") != NULL &&
        strncmp(cause, path, strlen(path)) != 0)
        return gyre_fail(error, GYRE_PLUGIN_OPEN,
                         "%s: open: the file is there, but a library that it "
                         "needs is missing: %.*s (%s)",
                         path, (int)(colon - cause), cause, cause);
    if (strstr(cause, "undefined symbol") != NULL)
        return gyre_fail(error, GYRE_PLUGIN_OPEN,
                         "%s: open: it uses a symbol that no library of its "
                         "own defines; a plugin links to libc and libm (-lm) "
                         "only: %s",
                         path, cause);
    return open_failed(error, path, cause);
}

/* A symbol found in a library that the module links to is not the module's:
 * it would register somebody else's plugins. */
static bool same_object(void *handle, void *address)
{
    struct link_map *own = NULL;
    void *found = NULL;
    Dl_info info;

    return dlinfo(handle, RTLD_DI_LINKMAP, &own) == 0 &&
           dladdr1(address, &info, &found, RTLD_DL_LINKMAP) != 0 &&
           found == (void *)own;
}

gyre_status gyre_module_open(gyre_context *context, const char *path,
                             const gyre_module **out, gyre_error *error)
{
    warn_user warn = {context, path};
    gyre_module_entry_function entry;
    const gyre_module *module;
    gyre_status status;
    void *handle, *symbol;

    status = gyre_plugin_needs(path, warn_foreign, &warn, error);
    if (status != GYRE_OK)
        return status;
    handle = loader_open(path);
    if (handle == NULL)
        return explain(path, loader_cause(), error);
    symbol = loader_symbol(handle, ENTRY);
    if (symbol == NULL)
        return gyre_fail(error, GYRE_PLUGIN_OPEN,
                         "%s: symbol: it exports no " ENTRY
                         "; end the plugin with GYRE_MODULE(...) and keep "
                         "that name visible",
                         path);
    if (!loader_owns(handle, symbol))
        return gyre_fail(error, GYRE_PLUGIN_OPEN,
                         "%s: symbol: " ENTRY " comes from a library that it "
                         "links to, not from the file itself; do not link "
                         "one plugin to another",
                         path);
    memcpy(&entry, &symbol, sizeof(entry));
    module = entry();
    status = gyre_check_module(module, path, error);
    if (status == GYRE_OK)
        *out = module;
    return status;
}
