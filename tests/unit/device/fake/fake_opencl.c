/* SPDX-License-Identifier: Apache-2.0 */
/* The OpenCL loader of fake.h: one device, whose arithmetic the test chooses.
 */
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include "fake.h"

#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)

fake_opencl_state fake_opencl;

/* Every object is a counter with its references. */
typedef struct object {
    int alive;
    size_t bytes;
    void *data;
} object;

static int fails(void)
{
    return ++fake_opencl.calls == fake_opencl.fail_at;
}

static void *make(size_t bytes, cl_int *code)
{
    object *o;

    if (fails()) {
        *code = CL_OUT_OF_RESOURCES;
        return NULL;
    }
    o = calloc(1, sizeof(*o));
    o->alive = 1;
    o->bytes = bytes;
    o->data = calloc(1, bytes);
    fake_opencl.live++;
    *code = CL_SUCCESS;
    return o;
}

static cl_int drop(void *at)
{
    object *o = at;

    fake_opencl.live--;
    free(o->data);
    free(o);
    return CL_SUCCESS;
}

#define MAYBE return fails() ? CL_OUT_OF_RESOURCES : CL_SUCCESS

/* ---- device ---------------------------------------------------------- */

cl_int clGetPlatformIDs(cl_uint room, cl_platform_id *ids, cl_uint *count)
{
    if (fake_opencl.platforms == 0)
        return -1001;
    if (fails())
        return CL_OUT_OF_HOST_MEMORY;
    if (room > 0)
        ids[0] = (cl_platform_id)(void *)&fake_opencl;
    *count = 1;
    return CL_SUCCESS;
}

cl_int clGetDeviceIDs(cl_platform_id platform, cl_device_type type,
                      cl_uint room, cl_device_id *ids, cl_uint *count)
{
    (void)platform;
    (void)type;
    if (room > 0)
        ids[0] = (cl_device_id)(void *)&fake_opencl;
    *count = 1;
    return CL_SUCCESS;
}

cl_int clGetDeviceInfo(cl_device_id id, cl_device_info what, size_t size,
                       void *value, size_t *used)
{
    cl_ulong big = fake_opencl.bytes;
    cl_bool yes = CL_TRUE;
    size_t group = 1024;
    const void *from = &big;

    (void)id;
    (void)used;
    if (what == CL_DEVICE_NAME || what == CL_DRIVER_VERSION)
        from =
            "fake\0...........................................................";
    else if (what == CL_DEVICE_SINGLE_FP_CONFIG)
        from = &fake_opencl.fp_config;
    else if (what == CL_DEVICE_COMPILER_AVAILABLE)
        from = &fake_opencl.compiler;
    else if (what == CL_DEVICE_ENDIAN_LITTLE)
        from = &yes;
    else if (what == CL_DEVICE_MAX_WORK_GROUP_SIZE)
        from = &group;
    memcpy(value, from, size < 60 ? size : 60);
    return CL_SUCCESS;
}

cl_context clCreateContext(const cl_context_properties *properties,
                           cl_uint count, const cl_device_id *ids,
                           void(CL_CALLBACK *told)(const char *, const void *,
                                                   size_t, void *),
                           void *user, cl_int *code)
{
    (void)properties;
    (void)count;
    (void)ids;
    (void)told;
    (void)user;
    return make(1, code);
}

cl_int clReleaseContext(cl_context context)
{
    return drop(context);
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id id,
                                      cl_command_queue_properties properties,
                                      cl_int *code)
{
    (void)context;
    (void)id;
    (void)properties;
    return make(1, code);
}

cl_int clReleaseCommandQueue(cl_command_queue queue)
{
    return drop(queue);
}

/* ---- program --------------------------------------------------------- */

cl_program clCreateProgramWithSource(cl_context context, cl_uint count,
                                     const char **texts, const size_t *lengths,
                                     cl_int *code)
{
    (void)context;
    (void)count;
    (void)texts;
    (void)lengths;
    return make(1, code);
}

cl_int clBuildProgram(cl_program program, cl_uint count,
                      const cl_device_id *ids, const char *options,
                      void(CL_CALLBACK *told)(cl_program, void *), void *user)
{
    (void)program;
    (void)count;
    (void)ids;
    (void)told;
    (void)user;
    fake_opencl.exact =
        strstr(options, "-cl-fp32-correctly-rounded-divide-sqrt") != NULL;
    return fails() ? CL_BUILD_PROGRAM_FAILURE : CL_SUCCESS;
}

cl_int clGetProgramBuildInfo(cl_program program, cl_device_id id,
                             cl_program_build_info what, size_t size,
                             void *value, size_t *used)
{
    static const char text[] = "line 7: this does not build";

    (void)program;
    (void)id;
    (void)what;
    if (used != NULL)
        *used = sizeof(text);
    if (value != NULL)
        memcpy(value, text, size < sizeof(text) ? size : sizeof(text));
    return CL_SUCCESS;
}

cl_int clReleaseProgram(cl_program program)
{
    return drop(program);
}

cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *code)
{
    (void)program;
    (void)name;
    return make(1, code);
}

cl_int clReleaseKernel(cl_kernel kernel)
{
    return drop(kernel);
}

cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size,
                      const void *value)
{
    (void)kernel;
    (void)index;
    (void)size;
    (void)value;
    MAYBE;
}

/* ---- memory and commands --------------------------------------------- */

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t bytes,
                      void *host, cl_int *code)
{
    (void)context;
    (void)flags;
    (void)host;
    return make(bytes, code);
}

cl_int clReleaseMemObject(cl_mem memory)
{
    return drop(memory);
}

cl_int clGetMemObjectInfo(cl_mem memory, cl_mem_info what, size_t size,
                          void *value, size_t *used)
{
    (void)memory;
    (void)what;
    (void)size;
    (void)value;
    (void)used;
    return CL_INVALID_MEM_OBJECT;
}

cl_int clGetContextInfo(cl_context context, cl_context_info what, size_t size,
                        void *value, size_t *used)
{
    (void)context;
    (void)what;
    (void)size;
    (void)value;
    (void)used;
    return CL_INVALID_VALUE;
}

void *clEnqueueMapBuffer(cl_command_queue queue, cl_mem memory, cl_bool wait,
                         cl_map_flags flags, size_t at, size_t bytes,
                         cl_uint count, const cl_event *list, cl_event *event,
                         cl_int *code)
{
    (void)queue;
    (void)wait;
    (void)flags;
    (void)bytes;
    (void)count;
    (void)list;
    (void)event;
    *code = fails() ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
    return *code == CL_SUCCESS ? (char *)((object *)(void *)memory)->data + at
                               : NULL;
}

cl_int clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem memory,
                               void *host, cl_uint count, const cl_event *list,
                               cl_event *event)
{
    (void)queue;
    (void)memory;
    (void)host;
    (void)count;
    (void)list;
    (void)event;
    return CL_SUCCESS;
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem memory, cl_bool wait,
                            size_t at, size_t bytes, const void *host,
                            cl_uint count, const cl_event *list,
                            cl_event *event)
{
    object *o = (object *)(void *)memory;

    (void)queue;
    (void)wait;
    (void)count;
    (void)list;
    (void)event;
    if (fails())
        return CL_OUT_OF_RESOURCES;
    fake_opencl.wrong += at + bytes > o->bytes;
    memcpy((char *)o->data + at, host, bytes);
    return CL_SUCCESS;
}

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem memory, cl_bool wait,
                           size_t at, size_t bytes, void *host, cl_uint count,
                           const cl_event *list, cl_event *event)
{
    object *o = (object *)(void *)memory;
    cl_int code;

    (void)queue;
    (void)wait;
    (void)count;
    (void)list;
    fake_opencl.wrong += at + bytes > o->bytes;
    *event = make(1, &code);
    if (code == CL_SUCCESS)
        memcpy(host, (char *)o->data + at, bytes);
    return code;
}

cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to,
                           size_t at, size_t there, size_t bytes, cl_uint count,
                           const cl_event *list, cl_event *event)
{
    (void)queue;
    (void)from;
    (void)to;
    (void)at;
    (void)there;
    (void)bytes;
    (void)count;
    (void)list;
    (void)event;
    MAYBE;
}

cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem memory,
                           const void *pattern, size_t size, size_t at,
                           size_t bytes, cl_uint count, const cl_event *list,
                           cl_event *event)
{
    (void)queue;
    (void)memory;
    (void)pattern;
    (void)size;
    (void)at;
    (void)bytes;
    (void)count;
    (void)list;
    (void)event;
    MAYBE;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel,
                              cl_uint dimensions, const size_t *offset,
                              const size_t *global, const size_t *local,
                              cl_uint count, const cl_event *list,
                              cl_event *event)
{
    (void)queue;
    (void)kernel;
    (void)offset;
    (void)count;
    (void)list;
    (void)event;
    fake_opencl.wrong += dimensions != 1 || *local != 256 || *global % 256 != 0;
    MAYBE;
}

cl_int clFlush(cl_command_queue queue)
{
    (void)queue;
    MAYBE;
}

cl_int clFinish(cl_command_queue queue)
{
    (void)queue;
    return CL_SUCCESS;
}

cl_int clWaitForEvents(cl_uint count, const cl_event *list)
{
    (void)count;
    (void)list;
    MAYBE;
}

cl_int clGetEventInfo(cl_event event, cl_event_info what, size_t size,
                      void *value, size_t *used)
{
    const cl_int state = fake_opencl.event_state;

    (void)event;
    (void)what;
    (void)used;
    if (fails())
        return CL_OUT_OF_RESOURCES;
    memcpy(value, &state, size);
    return CL_SUCCESS;
}

cl_int clReleaseEvent(cl_event event)
{
    return drop(event);
}
