/* SPDX-License-Identifier: Apache-2.0 */
/* The serial BLAS at run time, and its copies. */
#include "config.h"

#include "attention/kernel_library.h"
#include "attention/team.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 64 };

struct gyre_blas_copy {
    _Alignas(64) pthread_mutex_t busy;
    gyre_sgemm *sgemm;
};

static gyre_blas_copy copies[MOST];
static atomic_uint count; /* of them are open */
static atomic_uint limit; /* there will not be more */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char name[128];
/* Where this thread looks first: its last, whose work space is in its cache. */
static _Thread_local uint32_t last;

#ifdef GYRE_SERIAL_BLAS
/* Both builds of OpenBLAS have one soname and the same symbols.  By path the
 * serial file is loaded beside a threaded one, and with DEEPBIND its own calls
 * stay inside it; the address sanitizer cannot do DEEPBIND. */
#ifdef GYRE_SANITIZED
#define BIND 0
#else
#define BIND RTLD_DEEPBIND
#endif

static gyre_sgemm *open_path(const char *path, void **library)
{
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | BIND);
    return *library == NULL ? NULL
                            : (gyre_sgemm *)dlsym(*library, "cblas_sgemm");
}

static void open_first(void)
{
    void *library;
    gyre_sgemm *found = open_path(GYRE_SERIAL_BLAS, &library);
    if (library == NULL) {
        snprintf(name, sizeof(name), "plain C (cannot open %s)",
                 GYRE_SERIAL_BLAS);
        return;
    }
    int (*parallel)(void) =
        (int (*)(void))dlsym(library, "openblas_get_parallel");
    char *(*core)(void) =
        (char *(*)(void))dlsym(library, "openblas_get_corename");
    char *(*config)(void) =
        (char *(*)(void))dlsym(library, "openblas_get_config");
    if (found == NULL || parallel == NULL || parallel() != 0) {
        snprintf(name, sizeof(name), "plain C (%s is not serial)",
                 GYRE_SERIAL_BLAS);
        dlclose(library);
        return;
    }
    /* "OpenBLAS 0.3.21 NO_LAPACKE ..." : the first two words */
    const char *text = config != NULL ? config() : "OpenBLAS";
    size_t words = strcspn(text, " ");
    if (text[words] != '\0')
        words += 1 + strcspn(text + words + 1, " ");
    snprintf(name, sizeof(name), "%.*s %s", (int)words, text,
             core != NULL ? core() : "");
    copies[0].sgemm = found;
    for (uint32_t i = 0; i < MOST; i++)
        pthread_mutex_init(&copies[i].busy, NULL);
    uint32_t cores = gyre_team_cores();
    atomic_store(&limit, cores < MOST ? cores : MOST);
    atomic_store(&count, 1);
}

/* The file once more, under an inode of its own: the loader takes files of one
 * inode for one library.  -1: cannot be had. */
static int copy_file(void)
{
    struct stat file;
    int from = open(GYRE_SERIAL_BLAS, O_RDONLY | O_CLOEXEC);
    int to = memfd_create("serial-blas", MFD_CLOEXEC);
    bool whole = from >= 0 && to >= 0 && fstat(from, &file) == 0;
    off_t left = whole ? file.st_size : 0;
    while (whole && left > 0) {
        ssize_t n = sendfile(to, from, NULL, (size_t)left);
        whole = n > 0;
        left -= n > 0 ? n : 0;
    }
    if (from >= 0)
        close(from);
    if (to >= 0 && !whole)
        close(to);
    return whole ? to : -1;
}

static bool is_new(gyre_sgemm *found, uint32_t have)
{
    for (uint32_t i = 0; i < have; i++)
        if (copies[i].sgemm == found)
            return false;
    return found != NULL;
}

/* With `opening`.  A path that the loader has seen is the library that it saw
 * there, so each copy spells its own: with one "/." more. */
static bool open_next(uint32_t have)
{
    char path[32 + 2 * MOST] = "/proc/self/fd";
    void *library;
    int file = copy_file();
    if (file < 0)
        return false;
    size_t at = strlen(path);
    for (uint32_t i = 0; i < have; i++, at += 2)
        memcpy(path + at, "/.", 2);
    snprintf(path + at, sizeof(path) - at, "/%d", file);
    gyre_sgemm *found = open_path(path, &library);
    close(file);
    if (!is_new(found, have)) {
        if (library != NULL)
            dlclose(library);
        return false;
    }
    copies[have].sgemm = found;
    atomic_store(&count, have + 1);
    return true;
}
#else
static void open_first(void)
{
    snprintf(name, sizeof(name), "plain C (configured without a serial BLAS)");
}

static bool open_next(uint32_t have)
{
    (void)have;
    return false;
}
#endif

const char *gyre_blas_name(void)
{
    pthread_once(&once, open_first);
    return name;
}

uint32_t gyre_blas_copies(uint32_t *most)
{
    pthread_once(&once, open_first);
    *most = atomic_load(&limit);
    return atomic_load(&count);
}

/* One that is free now, its mutex held; or NULL. */
static gyre_blas_copy *free_one(uint32_t have)
{
    for (uint32_t i = 0; i < have; i++) {
        uint32_t at = last + i < have ? last + i : last + i - have;
        if (pthread_mutex_trylock(&copies[at].busy) == 0) {
            last = at;
            return &copies[at];
        }
    }
    return NULL;
}

/* One more, unless another thread is at it: then there will soon be one. */
static void grow(void)
{
    if (pthread_mutex_trylock(&opening) != 0)
        return;
    uint32_t have = atomic_load(&count);
    if (have < atomic_load(&limit) && !open_next(have))
        atomic_store(&limit, have);
    pthread_mutex_unlock(&opening);
}

gyre_blas_copy *gyre_blas_take(gyre_sgemm **sgemm)
{
    pthread_once(&once, open_first);
    uint32_t have = atomic_load(&count);
    if (have == 0)
        return NULL;
    gyre_blas_copy *copy = free_one(have);
    if (copy == NULL && have < atomic_load(&limit)) {
        grow();
        copy = free_one(atomic_load(&count));
    }
    if (copy == NULL) {
        copy = &copies[last];
        pthread_mutex_lock(&copy->busy);
    }
    *sgemm = copy->sgemm;
    return copy;
}

void gyre_blas_give(gyre_blas_copy *copy)
{
    pthread_mutex_unlock(&copy->busy);
}
