/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a buffer of the caller to the host.  The buffer knows its context, the
 * context its devices; a queue of our own asks for nothing of theirs.
 */
#include "config.h"

#include "cl.h"

enum { DEVICES = 64 };

cl_int cl_find(const cl_calls *cl, cl_mem memory, int32_t index,
               cl_context *context, cl_device_id *out)
{
    cl_device_id ids[DEVICES];
    size_t used = 0;
    cl_int code = cl->clGetMemObjectInfo(memory, CL_MEM_CONTEXT,
                                         sizeof(*context), context, NULL);

    if (code == CL_SUCCESS)
        code = cl->clGetContextInfo(*context, CL_CONTEXT_DEVICES, sizeof(ids),
                                    ids, &used);
    if (code == CL_SUCCESS &&
        (index < 0 || (size_t)index >= used / sizeof(ids[0])))
        code = CL_INVALID_DEVICE;
    if (code == CL_SUCCESS)
        *out = ids[index];
    return code;
}

gyre_status cl_fetch(const gyre_services *services, int32_t device,
                     const void *data, uint64_t offset, size_t bytes,
                     void *host, gyre_error *error)
{
    cl_mem memory = (cl_mem)(uintptr_t)data;
    cl_context context = NULL;
    cl_device_id id = NULL;
    cl_command_queue queue;
    cl_calls cl;
    cl_int code;
    gyre_status status = cl_load(&cl, error);

    (void)services;
    if (status != GYRE_OK)
        return status;
    code = cl_find(&cl, memory, device, &context, &id);
    if (code != CL_SUCCESS)
        return cl_fail(error, GYRE_INVALID, "the buffer's device", code);
    queue = cl.clCreateCommandQueue(context, id, 0, &code);
    if (code != CL_SUCCESS)
        return cl_fail(error, GYRE_NO_MEMORY, "clCreateCommandQueue", code);
    code = cl.clEnqueueReadBuffer(queue, memory, CL_TRUE, (size_t)offset, bytes,
                                  host, 0, NULL, NULL);
    (void)cl.clReleaseCommandQueue(queue);
    if (code != CL_SUCCESS)
        return cl_fail(error, GYRE_IO, "reading the gradient", code);
    return GYRE_OK;
}
