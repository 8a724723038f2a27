/* SPDX-License-Identifier: Apache-2.0 */
/* The driver and the run-time compiler, found when asked for. */
#include "config.h"

#include "cu.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

gyre_status cu_say(gyre_error *error, gyre_status status, const char *format,
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

gyre_status cu_fail(const cu_calls *cu, gyre_error *error, gyre_status status,
                    const char *what, CUresult code)
{
    const char *name = NULL;

    if (cu->cuGetErrorName(code, &name) != CUDA_SUCCESS || name == NULL)
        name = "an error of the driver";
    return cu_say(error, status, "cuda: %s: %s (%d)", what, name, (int)code);
}

/* Libraries stay open: drivers do not bear to be unloaded. */
static gyre_status find(void *library, const char *file, const char *symbol,
                        void *out, gyre_error *error)
{
    void *at = dlsym(library, symbol);

    if (at == NULL)
        return cu_say(error, GYRE_UNSUPPORTED,
                      "cuda: %s has no %s; it is older than CUDA %d.%d, which "
                      "this module was built with: install a newer one",
                      file, symbol, CUDA_VERSION / 1000,
                      CUDA_VERSION % 1000 / 10);
    memcpy(out, &at, sizeof(at));
    return GYRE_OK;
}

#define CU_TEXT_(name) #name
#define CU_TEXT(name) CU_TEXT_(name)

static gyre_status start(const cu_calls *cu, gyre_error *error)
{
    CUresult code = cu->cuInit(0);

    if (code == CUDA_ERROR_NO_DEVICE)
        return cu_say(error, GYRE_NOT_FOUND,
                      "no CUDA device: the driver is there, but it sees no "
                      "GPU");
    if (code != CUDA_SUCCESS)
        return cu_fail(cu, error, GYRE_UNSUPPORTED,
                       "the driver does not start (cuInit); check that it "
                       "fits the kernel module (nvidia-smi)",
                       code);
    return GYRE_OK;
}

gyre_status cu_load(cu_calls *cu, gyre_error *error)
{
    static const char file[] = "libcuda.so.1";
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    gyre_status status = GYRE_OK;

    if (library == NULL)
        return cu_say(error, GYRE_UNSUPPORTED,
                      "no NVIDIA driver: libcuda.so.1 not found; install the "
                      "driver of the GPU, or use compute \"cpu\" or "
                      "\"opencl\"");
#define CU_FIND(name)      \
    if (status == GYRE_OK) \
        status = find(library, file, CU_TEXT(name), &cu->name, error);
    CU_CALLS(CU_FIND)
    return status == GYRE_OK ? start(cu, error) : status;
}

gyre_status nvrtc_load(nvrtc_calls *rtc, gyre_error *error)
{
    static const char *const files[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                        "libnvrtc.so.11.2", "libnvrtc.so",
                                        "/usr/local/cuda/lib64/libnvrtc.so"};
    enum { FILES = sizeof(files) / sizeof(files[0]) };
    gyre_status status = GYRE_OK;
    const char *file = files[0];
    void *library = NULL;

    for (size_t i = 0; library == NULL && i < FILES; i++) {
        file = files[i];
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL)
        return cu_say(error, GYRE_UNSUPPORTED,
                      "no NVRTC: libnvrtc.so not found (nor .so.13, .so.12, "
                      ".so.11.2); install cuda-nvrtc, which builds the "
                      "kernels at run time");
#define NVRTC_FIND(name)   \
    if (status == GYRE_OK) \
        status = find(library, file, CU_TEXT(name), &rtc->name, error);
    NVRTC_CALLS(NVRTC_FIND)
    return status;
}

gyre_status cu_pick(const cu_calls *cu, uint32_t index, CUdevice *out,
                    char *name, size_t size, gyre_error *error)
{
    char plain[96] = "unnamed";
    int count = 0, version = 0;
    CUresult code = cu->cuDeviceGetCount(&count);

    if (code != CUDA_SUCCESS)
        return cu_fail(cu, error, GYRE_UNSUPPORTED, "cuDeviceGetCount", code);
    if (count <= 0 || index >= (uint32_t)count)
        return cu_say(error, GYRE_NOT_FOUND,
                      "no CUDA device %u; the driver sees %d", index, count);
    code = cu->cuDeviceGet(out, (int)index);
    if (code != CUDA_SUCCESS)
        return cu_fail(cu, error, GYRE_UNSUPPORTED, "cuDeviceGet", code);
    (void)cu->cuDeviceGetName(plain, sizeof(plain), *out);
    (void)cu->cuDriverGetVersion(&version);
    snprintf(name, size, "%.90s (driver for CUDA %d.%d)", plain, version / 1000,
             version % 1000 / 10);
    return GYRE_OK;
}
