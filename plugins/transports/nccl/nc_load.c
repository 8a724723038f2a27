/* SPDX-License-Identifier: Apache-2.0 */
/* The driver and NCCL, found when asked for. */
#include "config.h"

#include "nc.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

gyre_status nc_say(gyre_error *error, gyre_status status, const char *format,
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

gyre_status nc_cuda_fail(const nc_calls *calls, gyre_error *error,
                         const char *what, CUresult code)
{
    const char *name = NULL;

    if (calls->cuGetErrorName(code, &name) != CUDA_SUCCESS || name == NULL)
        name = "an error of the driver";
    return nc_say(error,
                  code == CUDA_ERROR_OUT_OF_MEMORY ? GYRE_NO_MEMORY : GYRE_IO,
                  "nccl: %s: %s (%d)", what, name, (int)code);
}

gyre_status nc_nccl_fail(const nc_calls *calls, gyre_error *error,
                         const char *what, ncclResult_t code)
{
    return nc_say(error, GYRE_IO, "nccl: %s: %s (%d)", what,
                  calls->ncclGetErrorString(code), (int)code);
}

static gyre_status find(void *library, const char *file, const char *symbol,
                        void *out, gyre_error *error)
{
    void *at = dlsym(library, symbol);

    if (at == NULL)
        return nc_say(error, GYRE_UNSUPPORTED,
                      "nccl: %s has no %s; it is older than the headers that "
                      "this module was built with (NCCL %d.%d): install a "
                      "newer one",
                      file, symbol, NCCL_MAJOR, NCCL_MINOR);
    memcpy(out, &at, sizeof(at));
    return GYRE_OK;
}

#define NC_TEXT_(name) #name
#define NC_TEXT(name) NC_TEXT_(name)

gyre_status nc_load(nc_calls *calls, int *gpus, gyre_error *error)
{
    static const char *const files[] = {"libnccl.so.2", "libnccl.so",
                                        "/usr/local/cuda/lib64/libnccl.so.2"};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *nccl = NULL;
    gyre_status status = GYRE_OK;
    CUresult code;

    if (driver == NULL)
        return nc_say(error, GYRE_UNSUPPORTED,
                      "no NVIDIA driver: libcuda.so.1 not found; install the "
                      "driver of the GPU, or use the transport \"threads\" or "
                      "\"mpi\"");
    for (size_t i = 0; nccl == NULL && i < sizeof(files) / sizeof(files[0]);
         i++)
        nccl = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    if (nccl == NULL)
        return nc_say(error, GYRE_UNSUPPORTED,
                      "no NCCL: libnccl.so.2 not found; install libnccl2, or "
                      "use the transport \"threads\" or \"mpi\"");
#define NC_FIND_CUDA(name) \
    if (status == GYRE_OK) \
        status =           \
            find(driver, "libcuda.so.1", NC_TEXT(name), &calls->name, error);
    NC_CUDA_CALLS(NC_FIND_CUDA)
#define NC_FIND_NCCL(name) \
    if (status == GYRE_OK) \
        status = find(nccl, "libnccl.so.2", NC_TEXT(name), &calls->name, error);
    NC_NCCL_CALLS(NC_FIND_NCCL)
    if (status != GYRE_OK)
        return status;
    code = calls->cuInit(0);
    if (code == CUDA_SUCCESS)
        code = calls->cuDeviceGetCount(gpus);
    if (code == CUDA_ERROR_NO_DEVICE) {
        *gpus = 0;
        return GYRE_OK;
    }
    if (code != CUDA_SUCCESS)
        return nc_cuda_fail(calls, error, "the driver does not start", code);
    return GYRE_OK;
}
