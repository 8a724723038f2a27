/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of an OpenCL device, for gradients that are born there. */
#ifndef GYRE_TESTS_UNIT_STORE_BORN_H
#define GYRE_TESTS_UNIT_STORE_BORN_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "fixture.h"

#include <dlfcn.h>

static struct {
    __typeof__(&clGetPlatformIDs) platforms;
    __typeof__(&clGetDeviceIDs) devices;
    __typeof__(&clCreateContext) create_context;
    __typeof__(&clReleaseContext) release_context;
    __typeof__(&clCreateBuffer) create_buffer;
    __typeof__(&clReleaseMemObject) release_buffer;
} cl;

static cl_device_id born_device;

static inline void born_symbol(void *library, const char *name, void *out)
{
    void *at = dlsym(library, name);

    memcpy(out, &at, sizeof(at));
}

static inline cl_context born_context(void)
{
    cl_int code;
    cl_context context =
        cl.create_context(NULL, 1, &born_device, NULL, NULL, &code);

    return code == CL_SUCCESS ? context : NULL;
}

/* NULL, or what is missing. */
static inline const char *born_open(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    cl_platform_id platform;

    if (library == NULL)
        return "no libOpenCL.so.1";
    born_symbol(library, "clGetPlatformIDs", &cl.platforms);
    born_symbol(library, "clGetDeviceIDs", &cl.devices);
    born_symbol(library, "clCreateContext", &cl.create_context);
    born_symbol(library, "clReleaseContext", &cl.release_context);
    born_symbol(library, "clCreateBuffer", &cl.create_buffer);
    born_symbol(library, "clReleaseMemObject", &cl.release_buffer);
    if (cl.platforms(1, &platform, NULL) != CL_SUCCESS ||
        cl.devices(platform, CL_DEVICE_TYPE_ALL, 1, &born_device, NULL) !=
            CL_SUCCESS)
        return "no OpenCL device";
    return NULL;
}

/* A buffer with these bytes, which the caller releases. */
static inline cl_mem born_buffer(cl_context context, size_t bytes, void *from)
{
    cl_int code;
    cl_mem buffer = cl.create_buffer(
        context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, from, &code);

    assert_int_equal(code, CL_SUCCESS);
    return buffer;
}

#endif
