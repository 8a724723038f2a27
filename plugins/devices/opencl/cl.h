/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OpenCL device module, inside.
 *
 *     cl_load.c   libOpenCL.so.1 opened at run time, devices counted
 *     cl_build.c  is the device exact enough; the program and its log
 *     cl_lane.c   queues, buffers, launches
 *     cl_fetch.c  gradients from somebody's buffers
 *     cl_birth.c  memory and kernels beside these
 *     opencl.c    the driver table
 */
#ifndef GYRE_PLUGINS_OPENCL_CL_H
#define GYRE_PLUGINS_OPENCL_CL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "device/module.h"

#define CL_CALLS(X)              \
    X(clGetPlatformIDs)          \
    X(clGetDeviceIDs)            \
    X(clGetDeviceInfo)           \
    X(clCreateContext)           \
    X(clReleaseContext)          \
    X(clCreateCommandQueue)      \
    X(clReleaseCommandQueue)     \
    X(clCreateProgramWithSource) \
    X(clBuildProgram)            \
    X(clGetProgramBuildInfo)     \
    X(clReleaseProgram)          \
    X(clCreateKernel)            \
    X(clReleaseKernel)           \
    X(clSetKernelArg)            \
    X(clCreateBuffer)            \
    X(clReleaseMemObject)        \
    X(clGetMemObjectInfo)        \
    X(clGetContextInfo)          \
    X(clEnqueueMapBuffer)        \
    X(clEnqueueUnmapMemObject)   \
    X(clEnqueueWriteBuffer)      \
    X(clEnqueueReadBuffer)       \
    X(clEnqueueCopyBuffer)       \
    X(clEnqueueFillBuffer)       \
    X(clEnqueueNDRangeKernel)    \
    X(clFlush)                   \
    X(clFinish)                  \
    X(clWaitForEvents)           \
    X(clGetEventInfo)            \
    X(clReleaseEvent)

typedef struct cl_calls {
#define CL_CALL_FIELD(name) __typeof__(&name) name;
    CL_CALLS(CL_CALL_FIELD)
#undef CL_CALL_FIELD
} cl_calls;

typedef struct cl_lane {
    cl_command_queue queue;
    cl_kernel kernel;
    cl_mem state, input; /* on the device */
    cl_mem staging;      /* page-locked host memory, mapped at `host` */
    void *host;
    cl_event done; /* of the last transfer; NULL: idle */
} cl_lane;

typedef struct cl_device {
    const gyre_services *services;
    cl_calls cl;
    cl_device_id id;
    cl_context context;
    cl_program program;
    char name[128];
    uint32_t group;
    size_t shared_bytes, state_bytes, input_bytes;
    uint64_t memory;
    int exact; /* 0: by leave of allow_inexact */
    uint32_t lane_count;
    cl_lane *lanes;
} cl_device;

/* Text of a failed call: "opencl: WHAT: CL_NAME (-n)". */
gyre_status cl_fail(gyre_error *error, gyre_status status, const char *what,
                    cl_int code);
gyre_status cl_say(gyre_error *error, gyre_status status, const char *format,
                   ...) GYRE_PRINTF(3, 4);

gyre_status cl_load(cl_calls *cl, gyre_error *error);
/* Device `index`, counted over all platforms.  NOT_FOUND past the last. */
gyre_status cl_pick(const gyre_services *services, const cl_calls *cl,
                    uint32_t index, cl_device_id *out, gyre_error *error);
void cl_name(const cl_calls *cl, cl_device_id id, char *text, size_t size);

/* UNSUPPORTED unless it rounds as IEEE 754 says; `exact` gets 0 when
 * allow_inexact let one pass that does not. */
gyre_status cl_check(const cl_calls *cl, cl_device_id id, const char *name,
                     int allow_inexact, int *exact, gyre_error *error);
gyre_status cl_build(const gyre_services *services, const cl_calls *cl,
                     cl_context context, cl_device_id id, const char *source,
                     int exact, cl_program *out, gyre_error *error);

gyre_status cl_lane_make(cl_device *device, cl_lane *lane, gyre_error *error);
void cl_lane_free(cl_device *device, cl_lane *lane);
gyre_status cl_submit(void *device, uint32_t lane, const gyre_launch *launch,
                      gyre_error *error);
int cl_ready(void *device, uint32_t lane);
gyre_status cl_finish(void *device, uint32_t lane, gyre_error *error);
gyre_status cl_fetch(const gyre_services *services, int32_t device,
                     const void *data, uint64_t offset, size_t bytes,
                     void *host, gyre_error *error);

/* The context of somebody's buffer, and one of its devices. */
cl_int cl_find(const cl_calls *cl, cl_mem memory, int32_t index,
               cl_context *context, cl_device_id *out);
extern const gyre_birth_driver cl_birth_driver;

#endif
