/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: a stream with its own buffers.
 *
 *     submit   copy state in, copy input in, kernel, copy state out, event
 *     finish   wait for the event
 *
 * Copies of one stream run beside the kernel of another when host memory is
 * page-locked, as the input always is and the state is once it is pinned.
 */
#include "config.h"

#include "cu.h"

gyre_status cu_lane_make(cu_device *device, cu_lane *lane, gyre_error *error)
{
    const cu_calls *cu = &device->cu;
    const char *what = "cuStreamCreate";
    CUresult code = cu->cuStreamCreate(&lane->stream, CU_STREAM_NON_BLOCKING);

    if (code == CUDA_SUCCESS) {
        what = "cuEventCreate";
        code = cu->cuEventCreate(&lane->done, CU_EVENT_DISABLE_TIMING);
    }
    if (code == CUDA_SUCCESS) {
        what = "memory for the state";
        code = cu->cuMemAlloc(&lane->state, device->state_bytes);
    }
    if (code == CUDA_SUCCESS) {
        what = "memory for the gradients";
        code = cu->cuMemAlloc(&lane->input, device->input_bytes);
    }
    if (code == CUDA_SUCCESS) {
        what = "page-locked memory for the gradients";
        code = cu->cuMemHostAlloc(&lane->host, device->input_bytes, 0);
    }
    if (code != CUDA_SUCCESS)
        return cu_fail(cu, error, GYRE_NO_MEMORY, what, code);
    device->memory += device->state_bytes + device->input_bytes;
    return GYRE_OK;
}

void cu_lane_free(cu_device *device, cu_lane *lane)
{
    const cu_calls *cu = &device->cu;

    if (lane->stream != NULL)
        (void)cu->cuStreamSynchronize(lane->stream);
    if (lane->host != NULL)
        (void)cu->cuMemFreeHost(lane->host);
    if (lane->input != 0)
        (void)cu->cuMemFree(lane->input);
    if (lane->state != 0)
        (void)cu->cuMemFree(lane->state);
    if (lane->done != NULL)
        (void)cu->cuEventDestroy(lane->done);
    if (lane->stream != NULL)
        (void)cu->cuStreamDestroy(lane->stream);
}

static CUresult enqueue(cu_device *device, cu_lane *lane,
                        const gyre_launch *launch, const char **what)
{
    const cu_calls *cu = &device->cu;
    unsigned grains = launch->grains;
    void *arguments[] = {&lane->state, &lane->input, &grains};
    CUresult code;

    *what = "copying the state in";
    code = cu->cuMemcpyHtoDAsync(lane->state, launch->state,
                                 launch->state_bytes, lane->stream);
    if (code != CUDA_SUCCESS)
        return code;
    *what = "copying the gradients in";
    code = cu->cuMemcpyHtoDAsync(lane->input, lane->host, launch->input_bytes,
                                 lane->stream);
    if (code != CUDA_SUCCESS)
        return code;
    *what = "starting the kernel";
    code = cu->cuLaunchKernel(device->kernel, grains, 1, 1, device->group, 1, 1,
                              (unsigned)device->shared_bytes, lane->stream,
                              arguments, NULL);
    if (code != CUDA_SUCCESS)
        return code;
    *what = "copying the state out";
    code = cu->cuMemcpyDtoHAsync(launch->state, lane->state,
                                 launch->state_bytes, lane->stream);
    if (code != CUDA_SUCCESS)
        return code;
    *what = "cuEventRecord";
    return cu->cuEventRecord(lane->done, lane->stream);
}

gyre_status cu_submit(void *opaque, uint32_t index, const gyre_launch *launch,
                      gyre_error *error)
{
    cu_device *device = opaque;
    cu_lane *lane = &device->lanes[index];
    const char *what = "cuCtxPushCurrent";
    CUcontext popped;
    CUresult code;

    if (launch->state_bytes > device->state_bytes ||
        launch->input_bytes > device->input_bytes || launch->grains == 0)
        return cu_say(error, GYRE_RANGE,
                      "cuda: %s: a launch of %zu + %zu bytes; the device was "
                      "opened for %zu + %zu",
                      device->name, launch->state_bytes, launch->input_bytes,
                      device->state_bytes, device->input_bytes);
    code = device->cu.cuCtxPushCurrent(device->context);
    if (code != CUDA_SUCCESS)
        return cu_fail(&device->cu, error, GYRE_IO, what, code);
    code = enqueue(device, lane, launch, &what);
    /* Nothing may touch the caller's memory once a failure is told. */
    if (code != CUDA_SUCCESS)
        (void)device->cu.cuStreamSynchronize(lane->stream);
    (void)device->cu.cuCtxPopCurrent(&popped);
    if (code != CUDA_SUCCESS)
        return cu_fail(&device->cu, error, GYRE_IO, what, code);
    lane->busy = 1;
    return GYRE_OK;
}

int cu_ready(void *opaque, uint32_t index)
{
    cu_device *device = opaque;
    cu_lane *lane = &device->lanes[index];
    CUcontext popped;
    CUresult code;

    if (!lane->busy ||
        device->cu.cuCtxPushCurrent(device->context) != CUDA_SUCCESS)
        return 1; /* finish will say what it is */
    code = device->cu.cuEventQuery(lane->done);
    (void)device->cu.cuCtxPopCurrent(&popped);
    return code != CUDA_ERROR_NOT_READY;
}

gyre_status cu_finish(void *opaque, uint32_t index, gyre_error *error)
{
    cu_device *device = opaque;
    cu_lane *lane = &device->lanes[index];
    CUcontext popped;
    CUresult code;

    if (!lane->busy)
        return GYRE_OK;
    code = device->cu.cuCtxPushCurrent(device->context);
    if (code == CUDA_SUCCESS) {
        code = device->cu.cuEventSynchronize(lane->done);
        if (code != CUDA_SUCCESS)
            (void)device->cu.cuStreamSynchronize(lane->stream);
        (void)device->cu.cuCtxPopCurrent(&popped);
    }
    lane->busy = 0;
    if (code != CUDA_SUCCESS)
        return cu_fail(&device->cu, error, GYRE_IO,
                       "the update failed on the device", code);
    return GYRE_OK;
}
