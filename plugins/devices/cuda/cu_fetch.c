/* SPDX-License-Identifier: Apache-2.0 */
/* From memory of the caller on a GPU to the host. */
#include "config.h"

#include "cu.h"

gyre_status cu_fetch(const gyre_services *services, int32_t device,
                     const void *data, uint64_t offset, size_t bytes,
                     void *host, gyre_error *error)
{
    CUdeviceptr from = (CUdeviceptr)(uintptr_t)data + offset;
    CUcontext context, popped;
    CUdevice id = 0;
    char name[128];
    cu_calls cu;
    CUresult code;
    gyre_status status = cu_load(&cu, error);

    (void)services;
    if (status == GYRE_OK)
        status = cu_pick(&cu, (uint32_t)device, &id, name, sizeof(name), error);
    if (status != GYRE_OK)
        return status;
    code = cu.cuDevicePrimaryCtxRetain(&context, id);
    if (code != CUDA_SUCCESS)
        return cu_fail(&cu, error, GYRE_IO, "cuDevicePrimaryCtxRetain", code);
    code = cu.cuCtxPushCurrent(context);
    if (code == CUDA_SUCCESS) {
        code = cu.cuMemcpyDtoH(host, from, bytes);
        (void)cu.cuCtxPopCurrent(&popped);
    }
    (void)cu.cuDevicePrimaryCtxRelease(id);
    if (code != CUDA_SUCCESS)
        return cu_fail(&cu, error, GYRE_IO, "copying the gradient", code);
    return GYRE_OK;
}
