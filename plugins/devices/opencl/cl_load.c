/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OpenCL loader library, found at run time: a machine without it still has
 * the module, and is told what to install.
 */
#include "config.h"

#include "cl.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PLATFORMS = 16, DEVICES = 64 };

static const struct {
    cl_int code;
    const char *name;
} codes[] = {
    {CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND"},
    {CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE"},
    {CL_COMPILER_NOT_AVAILABLE, "CL_COMPILER_NOT_AVAILABLE"},
    {CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES"},
    {CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY"},
    {CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE"},
    {CL_INVALID_BUILD_OPTIONS, "CL_INVALID_BUILD_OPTIONS"},
    {CL_INVALID_DEVICE, "CL_INVALID_DEVICE"},
    {CL_INVALID_VALUE, "CL_INVALID_VALUE"},
    {CL_INVALID_MEM_OBJECT, "CL_INVALID_MEM_OBJECT"},
    {CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE"},
    {CL_INVALID_WORK_GROUP_SIZE, "CL_INVALID_WORK_GROUP_SIZE"},
    {CL_INVALID_KERNEL_NAME, "CL_INVALID_KERNEL_NAME"},
    {CL_INVALID_KERNEL_ARGS, "CL_INVALID_KERNEL_ARGS"},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
};

gyre_status cl_say(gyre_error *error, gyre_status status, const char *format,
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

gyre_status cl_fail(gyre_error *error, gyre_status status, const char *what,
                    cl_int code)
{
    const char *name = "an OpenCL error";

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (codes[i].code == code)
            name = codes[i].name;
    return cl_say(error, status, "opencl: %s: %s (%d)", what, name, (int)code);
}

gyre_status cl_load(cl_calls *cl, gyre_error *error)
{
    /* Never closed: a driver's threads may outlive its last object. */
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        return cl_say(error, GYRE_UNSUPPORTED,
                      "no OpenCL: libOpenCL.so.1 not found; install "
                      "ocl-icd-libopencl1 and a driver (pocl-opencl-icd for "
                      "the CPU)");
#define CL_CALL_FIND(name)                                                    \
    {                                                                         \
        void *at = dlsym(library, #name);                                     \
        if (at == NULL)                                                       \
            return cl_say(error, GYRE_UNSUPPORTED,                            \
                          "opencl: libOpenCL.so.1 has no " #name "; it must " \
                          "be of OpenCL 1.2 or later");                       \
        memcpy(&cl->name, &at, sizeof(at));                                   \
    }
    CL_CALLS(CL_CALL_FIND)
#undef CL_CALL_FIND
    return GYRE_OK;
}

void cl_name(const cl_calls *cl, cl_device_id id, char *text, size_t size)
{
    char name[96] = "unnamed", version[64] = "";

    (void)cl->clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof(name), name, NULL);
    (void)cl->clGetDeviceInfo(id, CL_DRIVER_VERSION, sizeof(version), version,
                              NULL);
    name[sizeof(name) - 1] = version[sizeof(version) - 1] = '\0';
    snprintf(text, size, "%s (driver %s)", name, version);
}

/* What there is, for a message. */
static gyre_status none_such(const cl_calls *cl, const cl_device_id *ids,
                             uint32_t count, uint32_t index, gyre_error *error)
{
    char list[600] = "";
    size_t at = 0;

    if (count == 0)
        return cl_say(error, GYRE_NOT_FOUND,
                      "no OpenCL device: no driver offers one; install "
                      "pocl-opencl-icd for the CPU, or the vendor's driver");
    for (uint32_t i = 0; i < count && at < sizeof(list); i++) {
        char name[128];
        int n;

        cl_name(cl, ids[i], name, sizeof(name));
        n = snprintf(list + at, sizeof(list) - at, "%sopencl:%u %.100s",
                     i > 0 ? ", " : "", i, name);
        at += n > 0 ? (size_t)n : 0;
    }
    return cl_say(error, GYRE_NOT_FOUND, "no OpenCL device %u; there are: %s",
                  index, list);
}

gyre_status cl_pick(const gyre_services *services, const cl_calls *cl,
                    uint32_t index, cl_device_id *out, gyre_error *error)
{
    cl_platform_id platforms[PLATFORMS];
    cl_device_id ids[DEVICES];
    cl_uint platform_count = 0;
    uint32_t count = 0;
    cl_int code = cl->clGetPlatformIDs(PLATFORMS, platforms, &platform_count);

    (void)services;
    if (code != CL_SUCCESS && code != -1001) /* no platform */
        return cl_fail(error, GYRE_UNSUPPORTED, "clGetPlatformIDs", code);
    for (cl_uint i = 0; code == CL_SUCCESS && i < platform_count &&
                        i < PLATFORMS && count < DEVICES;
         i++) {
        cl_uint more = 0;

        if (cl->clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL,
                               DEVICES - count, ids + count,
                               &more) == CL_SUCCESS)
            count += more < DEVICES - count ? more : DEVICES - count;
    }
    if (index >= count)
        return none_such(cl, ids, count, index, error);
    *out = ids[index];
    return GYRE_OK;
}
