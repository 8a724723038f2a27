/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA device module, inside.  Driver API and NVRTC, both opened at run
 * time; the runtime library (libcudart) is not used.
 *
 *     cu_load.c   libcuda.so.1, libnvrtc; messages when they are missing
 *     cu_build.c  program text -> machine code of one architecture
 *     cu_lane.c   streams, buffers, launches
 *     cu_fetch.c  gradients from somebody's memory
 *     cu_birth.c  memory and kernels beside these
 *     cuda.c      the driver table
 *
 * The device's primary context is used, as by everybody who shares a GPU with
 * others in one process, and is current only inside our functions.
 */
#ifndef GYRE_PLUGINS_CUDA_CU_H
#define GYRE_PLUGINS_CUDA_CU_H

#include <cuda.h>
#define NVRTC_GET_TYPE_NAME 0 /* the header asks for its value */
#define __DOXYGEN_ONLY__ 0
#include <nvrtc.h>

#include "device/module.h"

#define CU_CALLS(X)              \
    X(cuInit)                    \
    X(cuDriverGetVersion)        \
    X(cuGetErrorName)            \
    X(cuDeviceGetCount)          \
    X(cuDeviceGet)               \
    X(cuDeviceGetName)           \
    X(cuDeviceGetAttribute)      \
    X(cuDeviceTotalMem)          \
    X(cuDevicePrimaryCtxRetain)  \
    X(cuDevicePrimaryCtxRelease) \
    X(cuCtxPushCurrent)          \
    X(cuCtxPopCurrent)           \
    X(cuModuleLoadData)          \
    X(cuModuleUnload)            \
    X(cuModuleGetFunction)       \
    X(cuMemGetInfo)              \
    X(cuMemAlloc)                \
    X(cuMemFree)                 \
    X(cuMemHostAlloc)            \
    X(cuMemFreeHost)             \
    X(cuMemHostRegister)         \
    X(cuMemHostUnregister)       \
    X(cuMemcpyHtoDAsync)         \
    X(cuMemcpyDtoH)              \
    X(cuMemcpyDtoHAsync)         \
    X(cuMemcpyDtoDAsync)         \
    X(cuMemsetD32Async)          \
    X(cuPointerGetAttribute)     \
    X(cuStreamCreate)            \
    X(cuStreamDestroy)           \
    X(cuStreamSynchronize)       \
    X(cuEventCreate)             \
    X(cuEventDestroy)            \
    X(cuEventRecord)             \
    X(cuEventQuery)              \
    X(cuEventSynchronize)        \
    X(cuLaunchKernel)

#define NVRTC_CALLS(X)        \
    X(nvrtcVersion)           \
    X(nvrtcGetErrorString)    \
    X(nvrtcCreateProgram)     \
    X(nvrtcDestroyProgram)    \
    X(nvrtcCompileProgram)    \
    X(nvrtcGetProgramLogSize) \
    X(nvrtcGetProgramLog)     \
    X(nvrtcGetCUBINSize)      \
    X(nvrtcGetCUBIN)

/* The headers rename calls to their newest revision ("cuMemAlloc_v2"): fields
 * and symbols follow. */
#define CU_FIELD(name) __typeof__(&name) name;
typedef struct cu_calls {
    CU_CALLS(CU_FIELD)
} cu_calls;
typedef struct nvrtc_calls {
    NVRTC_CALLS(CU_FIELD)
} nvrtc_calls;

typedef struct cu_lane {
    CUstream stream;
    CUevent done;
    CUdeviceptr state, input;
    void *host; /* page-locked, for input */
    int busy;
} cu_lane;

typedef struct cu_device {
    const gyre_services *services;
    cu_calls cu;
    CUdevice id;
    CUcontext context; /* NULL: not retained */
    CUmodule module;
    CUfunction kernel;
    char name[128];
    uint32_t group;
    size_t shared_bytes, state_bytes, input_bytes;
    uint64_t memory;
    uint32_t lane_count;
    cu_lane *lanes;
} cu_device;

gyre_status cu_say(gyre_error *error, gyre_status status, const char *format,
                   ...) GYRE_PRINTF(3, 4);
/* "cuda: WHAT: CUDA_ERROR_NAME (n)". */
gyre_status cu_fail(const cu_calls *cu, gyre_error *error, gyre_status status,
                    const char *what, CUresult code);

/* UNSUPPORTED when the driver is missing, NOT_FOUND without a GPU. */
gyre_status cu_load(cu_calls *cu, gyre_error *error);
gyre_status nvrtc_load(nvrtc_calls *rtc, gyre_error *error);
gyre_status cu_pick(const cu_calls *cu, uint32_t index, CUdevice *out,
                    char *name, size_t size, gyre_error *error);

/* "sm_90" of a device. */
gyre_status cu_target(const cu_calls *cu, CUdevice id, char target[16],
                      gyre_error *error);
/* Machine code for `target` ("sm_90"), given back by `give` with its size. */
gyre_status cu_build(const gyre_services *services, const char *source,
                     const char *target, void **code, size_t *bytes,
                     gyre_error *error);

/* The device's context is current in all of these. */
gyre_status cu_lane_make(cu_device *device, cu_lane *lane, gyre_error *error);
void cu_lane_free(cu_device *device, cu_lane *lane);

gyre_status cu_submit(void *device, uint32_t lane, const gyre_launch *launch,
                      gyre_error *error);
int cu_ready(void *device, uint32_t lane);
gyre_status cu_finish(void *device, uint32_t lane, gyre_error *error);
gyre_status cu_fetch(const gyre_services *services, int32_t device,
                     const void *data, uint64_t offset, size_t bytes,
                     void *host, gyre_error *error);
extern const gyre_birth_driver cu_birth_driver;

#endif
