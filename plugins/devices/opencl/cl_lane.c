/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: an in-order queue with its own buffers.
 *
 *     submit   write state, write input, kernel, read state: none waits
 *     finish   wait for the last one's event
 *
 * Two lanes overlap because their queues know nothing of each other.
 */
#include "config.h"

#include "cl.h"

gyre_status cl_lane_make(cl_device *device, cl_lane *lane, gyre_error *error)
{
    const cl_calls *cl = &device->cl;
    const char *what = "clCreateCommandQueue";
    cl_int code = CL_SUCCESS;

    lane->queue =
        cl->clCreateCommandQueue(device->context, device->id, 0, &code);
    if (code == CL_SUCCESS) {
        what = "clCreateKernel gyre_update";
        lane->kernel =
            cl->clCreateKernel(device->program, "gyre_update", &code);
    }
    if (code == CL_SUCCESS) {
        what = "memory for the state";
        lane->state = cl->clCreateBuffer(device->context, CL_MEM_READ_WRITE,
                                         device->state_bytes, NULL, &code);
    }
    if (code == CL_SUCCESS) {
        what = "memory for the gradients";
        lane->input = cl->clCreateBuffer(device->context, CL_MEM_READ_ONLY,
                                         device->input_bytes, NULL, &code);
    }
    if (code == CL_SUCCESS) {
        what = "page-locked memory for the gradients";
        lane->staging = cl->clCreateBuffer(
            device->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
            device->input_bytes, NULL, &code);
    }
    if (code == CL_SUCCESS)
        lane->host = cl->clEnqueueMapBuffer(
            lane->queue, lane->staging, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
            device->input_bytes, 0, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return cl_fail(error, GYRE_NO_MEMORY, what, code);
    device->memory += device->state_bytes + device->input_bytes;
    return GYRE_OK;
}

void cl_lane_free(cl_device *device, cl_lane *lane)
{
    const cl_calls *cl = &device->cl;

    if (lane->queue != NULL && lane->host != NULL)
        (void)cl->clEnqueueUnmapMemObject(lane->queue, lane->staging,
                                          lane->host, 0, NULL, NULL);
    if (lane->queue != NULL)
        (void)cl->clFinish(lane->queue);
    if (lane->done != NULL)
        (void)cl->clReleaseEvent(lane->done);
    if (lane->staging != NULL)
        (void)cl->clReleaseMemObject(lane->staging);
    if (lane->input != NULL)
        (void)cl->clReleaseMemObject(lane->input);
    if (lane->state != NULL)
        (void)cl->clReleaseMemObject(lane->state);
    if (lane->kernel != NULL)
        (void)cl->clReleaseKernel(lane->kernel);
    if (lane->queue != NULL)
        (void)cl->clReleaseCommandQueue(lane->queue);
}

static cl_int enqueue(cl_device *device, cl_lane *lane,
                      const gyre_launch *launch, const char **what)
{
    const cl_calls *cl = &device->cl;
    size_t local = device->group, global = local * launch->grains;
    cl_uint grains = launch->grains;
    cl_int code;

    *what = "clSetKernelArg";
    code =
        cl->clSetKernelArg(lane->kernel, 0, sizeof(lane->state), &lane->state);
    if (code == CL_SUCCESS)
        code = cl->clSetKernelArg(lane->kernel, 1, sizeof(lane->input),
                                  &lane->input);
    if (code == CL_SUCCESS)
        code = cl->clSetKernelArg(lane->kernel, 2, sizeof(grains), &grains);
    if (code == CL_SUCCESS) /* none is not allowed */
        code = cl->clSetKernelArg(
            lane->kernel, 3,
            device->shared_bytes > 0 ? device->shared_bytes : sizeof(float),
            NULL);
    if (code != CL_SUCCESS)
        return code;
    *what = "writing the state";
    code = cl->clEnqueueWriteBuffer(lane->queue, lane->state, CL_FALSE, 0,
                                    launch->state_bytes, launch->state, 0, NULL,
                                    NULL);
    if (code != CL_SUCCESS)
        return code;
    *what = "writing the gradients";
    code = cl->clEnqueueWriteBuffer(lane->queue, lane->input, CL_FALSE, 0,
                                    launch->input_bytes, lane->host, 0, NULL,
                                    NULL);
    if (code != CL_SUCCESS)
        return code;
    *what = "starting the kernel";
    code = cl->clEnqueueNDRangeKernel(lane->queue, lane->kernel, 1, NULL,
                                      &global, &local, 0, NULL, NULL);
    if (code != CL_SUCCESS)
        return code;
    *what = "reading the state";
    return cl->clEnqueueReadBuffer(lane->queue, lane->state, CL_FALSE, 0,
                                   launch->state_bytes, launch->state, 0, NULL,
                                   &lane->done);
}

gyre_status cl_submit(void *opaque, uint32_t index, const gyre_launch *launch,
                      gyre_error *error)
{
    cl_device *device = opaque;
    cl_lane *lane = &device->lanes[index];
    const char *what = "";
    cl_int code;

    if (launch->state_bytes > device->state_bytes ||
        launch->input_bytes > device->input_bytes || launch->grains == 0)
        return cl_say(error, GYRE_RANGE,
                      "opencl: %s: a launch of %zu + %zu bytes; the device "
                      "was opened for %zu + %zu",
                      device->name, launch->state_bytes, launch->input_bytes,
                      device->state_bytes, device->input_bytes);
    code = enqueue(device, lane, launch, &what);
    if (code == CL_SUCCESS)
        code = device->cl.clFlush(lane->queue);
    if (code == CL_SUCCESS)
        return GYRE_OK;
    /* Nothing may touch the caller's memory once this returns. */
    (void)device->cl.clFinish(lane->queue);
    if (lane->done != NULL)
        (void)device->cl.clReleaseEvent(lane->done);
    lane->done = NULL;
    return cl_fail(error, GYRE_IO, what, code);
}

int cl_ready(void *opaque, uint32_t index)
{
    cl_device *device = opaque;
    cl_lane *lane = &device->lanes[index];
    cl_int state = CL_COMPLETE;

    if (lane->done == NULL)
        return 1;
    if (device->cl.clGetEventInfo(lane->done, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                  sizeof(state), &state, NULL) != CL_SUCCESS)
        return 1; /* finish will say what it is */
    return state <= CL_COMPLETE;
}

gyre_status cl_finish(void *opaque, uint32_t index, gyre_error *error)
{
    cl_device *device = opaque;
    cl_lane *lane = &device->lanes[index];
    cl_int code, state = CL_COMPLETE;

    if (lane->done == NULL)
        return GYRE_OK;
    code = device->cl.clWaitForEvents(1, &lane->done);
    if (code == CL_SUCCESS)
        code = device->cl.clGetEventInfo(lane->done,
                                         CL_EVENT_COMMAND_EXECUTION_STATUS,
                                         sizeof(state), &state, NULL);
    if (code == CL_SUCCESS && state < 0)
        code = state;
    if (code != CL_SUCCESS)
        (void)device->cl.clFinish(lane->queue);
    (void)device->cl.clReleaseEvent(lane->done);
    lane->done = NULL;
    if (code != CL_SUCCESS)
        return cl_fail(error, GYRE_IO, "the update failed on the device", code);
    return GYRE_OK;
}
