/* SPDX-License-Identifier: Apache-2.0 */
/* libcuda.so.1, as far as module nccl uses it. */
#include "fake_gpu.h"

#include <cuda.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

extern fake_gpu_state fake_gpu;
EXPORT fake_gpu_state fake_gpu;

static _Thread_local CUcontext current;

static int fails(void)
{
    return ++fake_gpu.calls == fake_gpu.fail_at;
}

static CUresult in_context(void)
{
    if (current != NULL)
        return fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
    fake_gpu.wrong++;
    return CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuInit(unsigned flags)
{
    (void)flags;
    return fake_gpu.gpus == 0 ? CUDA_ERROR_NO_DEVICE
           : fails()          ? CUDA_ERROR_UNKNOWN
                              : CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **text)
{
    *text = code == CUDA_ERROR_UNKNOWN ? "FAKE_UNKNOWN" : "FAKE_OTHER";
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
    *count = fake_gpu.gpus;
    return fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int index)
{
    *device = index;
    return fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    if (fails())
        return CUDA_ERROR_UNKNOWN;
    *context = (CUcontext)(void *)((char *)&fake_gpu + device);
    fake_gpu.live++;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    fake_gpu.live--;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    CUresult code = in_context();

    (void)flags;
    if (code != CUDA_SUCCESS)
        return code;
    *stream = calloc(1, sizeof(fake_stream));
    fake_gpu.live++;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamDestroy(CUstream stream)
{
    free(stream);
    fake_gpu.live--;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
    CUresult code = in_context();

    if (code != CUDA_SUCCESS)
        return code;
    return ((fake_stream *)(void *)stream)->pending > 0 ? CUDA_ERROR_NOT_READY
                                                        : CUDA_SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    while (((fake_stream *)(void *)stream)->pending > 0)
        sched_yield();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc(CUdeviceptr *out, size_t bytes)
{
    CUresult code = in_context();

    if (code != CUDA_SUCCESS)
        return code;
    *out = (CUdeviceptr)(uintptr_t)malloc(bytes);
    fake_gpu.live++;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree(CUdeviceptr at)
{
    free((void *)(uintptr_t)at);
    fake_gpu.live--;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from,
                                  size_t bytes, CUstream stream)
{
    CUresult code = in_context();

    (void)stream;
    if (code == CUDA_SUCCESS)
        memcpy((void *)(uintptr_t)to, from, bytes);
    return code;
}

EXPORT CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes,
                                  CUstream stream)
{
    CUresult code = in_context();

    (void)stream;
    if (code == CUDA_SUCCESS)
        memcpy(to, (const void *)(uintptr_t)from, bytes);
    return code;
}
