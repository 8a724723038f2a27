/* SPDX-License-Identifier: Apache-2.0 */
/* libmpi, and the life of MPI in this process. */
#include "config.h"

#include "mp.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

gyre_status mp_say(gyre_error *error, gyre_status status, const char *format,
                   ...)
{
    va_list list;

    if (error == NULL)
        return status;
    va_start(list, format);
    vsnprintf(error->text, sizeof(error->text), format, list);
    va_end(list);
    error->status = status;
    return status;
}

gyre_status mp_fail(const mp_calls *mpi, gyre_error *error, const char *what,
                    int code)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;

    if (mpi->MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        snprintf(text, sizeof(text), "an error of MPI");
    return mp_say(error, GYRE_IO, "mpi: %s: %s (%d)", what, text, code);
}

/* ---- the library ----------------------------------------------------- */

static gyre_status find(void *library, const char *symbol, void *out,
                        gyre_error *error)
{
    void *at = dlsym(library, symbol);

    if (at == NULL)
        return mp_say(error, GYRE_UNSUPPORTED,
                      "mpi: libmpi has no %s; this module was built with Open "
                      "MPI %d.%d: install that",
                      symbol, OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION);
    memcpy(out, &at, sizeof(at));
    return GYRE_OK;
}

#define MP_TEXT_(name) #name
#define MP_TEXT(name) MP_TEXT_(name)

gyre_status mp_load(mp_calls *mpi, gyre_error *error)
{
    static const char *const files[] = {"libmpi.so.40", "libmpi.so"};
    gyre_status status = GYRE_OK;
    void *library = NULL;

    /* Its components look for its symbols among the global ones. */
    for (size_t i = 0; library == NULL && i < 2; i++)
        library = dlopen(files[i], RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL)
        return mp_say(error, GYRE_UNSUPPORTED,
                      "no Open MPI: libmpi.so.40 not found (%.200s); install "
                      "openmpi-bin and libopenmpi3, or use the transport "
                      "\"threads\"",
                      dlerror());
#define MP_FIND(name)      \
    if (status == GYRE_OK) \
        status = find(library, MP_TEXT(name), &mpi->name, error);
    MP_CALLS(MP_FIND)
    if (status == GYRE_OK)
        status = find(library, "ompi_mpi_comm_world", &mpi->world, error);
    if (status == GYRE_OK)
        status = find(library, "ompi_mpi_byte", &mpi->byte, error);
    if (status == GYRE_OK)
        status =
            find(library, "ompi_mpi_errors_return", &mpi->errors_return, error);
    if (status == GYRE_OK)
        status = find(library, "ompi_mpi_info_null", &mpi->no_info, error);
    return status;
}

/* ---- MPI in this process --------------------------------------------- */

/* One MPI for all contexts: what is beyond our choice is a global here. */
static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned worlds;
static unsigned callers; /* worlds that may still call MPI */
static bool ours;        /* a world started MPI */
static bool held;        /* MPI holds an abandoned message of some world */

void mp_lock(void)
{
    pthread_mutex_lock(&process_lock);
}

void mp_unlock(void)
{
    pthread_mutex_unlock(&process_lock);
}

gyre_status mp_start(const mp_calls *mpi, gyre_error *error)
{
    int is = 0, level = MPI_THREAD_SINGLE, code;

    if (mpi->MPI_Finalized(&is) == MPI_SUCCESS && is)
        return mp_say(error, GYRE_STATE,
                      "mpi: MPI has ended in this process and cannot start "
                      "again; keep one world until the program ends");
    if (held)
        return mp_say(error, GYRE_STATE,
                      "mpi: a transport of this process broke while messages "
                      "were under way that MPI cannot take back; start the "
                      "program again");
    (void)mpi->MPI_Initialized(&is);
    if (is)
        code = mpi->MPI_Query_thread(&level);
    else
        code = mpi->MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS)
        return mp_fail(mpi, error, "MPI does not start", code);
    if (!is)
        ours = true;
    if (level < MPI_THREAD_SERIALIZED) {
        if (!is) {
            ours = false;
            (void)mpi->MPI_Finalize();
        }
        return mp_say(error, GYRE_UNSUPPORTED,
                      "mpi: MPI runs with thread level %d; at least "
                      "MPI_THREAD_SERIALIZED (%d) is needed, and "
                      "MPI_THREAD_MULTIPLE when the program uses MPI as well",
                      level, MPI_THREAD_SERIALIZED);
    }
    worlds++;
    callers++;
    return GYRE_OK;
}

void mp_hold(void)
{
    held = true;
}

bool mp_is_held(void)
{
    return held;
}

void mp_leave(void)
{
    callers--;
}

bool mp_is_called(void)
{
    return callers > 0;
}

void mp_finish(const mp_calls *mpi)
{
    if (--worlds == 0 && ours && !held)
        (void)mpi->MPI_Finalize();
}
