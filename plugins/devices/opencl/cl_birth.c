/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where gradients are born: blocks and kernels in the context of somebody's
 * buffer, which they hold as long as they are there.  The queue is our own.
 */
#include "config.h"

#include "cl.h"

#include <string.h>

typedef struct cl_birth {
    const gyre_services *services;
    cl_calls cl;
    cl_context context; /* the caller's */
    cl_device_id id;
    cl_command_queue queue;
    cl_program program;
    cl_kernel kernels[GYRE_BIRTH_KERNELS];
    cl_mem blocks[GYRE_BIRTH_BLOCKS]; /* NULL: none */
    uint32_t group;
    size_t shared_bytes;
} cl_birth;

static const char *const kernel_names[GYRE_BIRTH_KERNELS] = {
    "gyre_take", "gyre_leaf", "gyre_encode"};

static void birth_close(void *opaque)
{
    cl_birth *b = opaque;
    const gyre_services *services = b->services;

    if (b->queue != NULL)
        (void)b->cl.clFinish(b->queue);
    for (int i = 0; i < GYRE_BIRTH_BLOCKS; i++)
        if (b->blocks[i] != NULL)
            (void)b->cl.clReleaseMemObject(b->blocks[i]);
    for (int i = 0; i < GYRE_BIRTH_KERNELS; i++)
        if (b->kernels[i] != NULL)
            (void)b->cl.clReleaseKernel(b->kernels[i]);
    if (b->program != NULL)
        (void)b->cl.clReleaseProgram(b->program);
    if (b->queue != NULL)
        (void)b->cl.clReleaseCommandQueue(b->queue);
    services->give(services->user, b, sizeof(*b));
}

/* By the device's own numbers: are doubles, work-groups and room there? */
static gyre_status check_device(const cl_birth *b, const gyre_birth_plan *plan,
                                gyre_error *error)
{
    cl_device_fp_config doubles = 0;
    cl_ulong total = 0, each = 0, shared = 0, bytes = 0, most = 0;
    size_t group = 0;
    char name[128];
    int exact;
    gyre_status status;

    cl_name(&b->cl, b->id, name, sizeof(name));
    status = cl_check(&b->cl, b->id, name, 0, &exact, error);
    if (status != GYRE_OK)
        return status;
    (void)b->cl.clGetDeviceInfo(b->id, CL_DEVICE_DOUBLE_FP_CONFIG,
                                sizeof(doubles), &doubles, NULL);
    if (doubles == 0)
        return cl_say(error, GYRE_UNSUPPORTED,
                      "opencl: %s: no double precision, which norms need",
                      name);
    (void)b->cl.clGetDeviceInfo(b->id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(total),
                                &total, NULL);
    (void)b->cl.clGetDeviceInfo(b->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE,
                                sizeof(each), &each, NULL);
    (void)b->cl.clGetDeviceInfo(b->id, CL_DEVICE_MAX_WORK_GROUP_SIZE,
                                sizeof(group), &group, NULL);
    (void)b->cl.clGetDeviceInfo(b->id, CL_DEVICE_LOCAL_MEM_SIZE, sizeof(shared),
                                &shared, NULL);
    for (int i = 0; i < GYRE_BIRTH_BLOCKS; i++) {
        bytes += plan->bytes[i];
        most = plan->bytes[i] > most ? plan->bytes[i] : most;
    }
    if (bytes > total || most > each)
        return cl_say(error, GYRE_UNSUPPORTED,
                      "opencl: %s: %llu bytes, %llu in a piece; it has %llu "
                      "bytes, at most %llu in a piece",
                      name, (unsigned long long)bytes, (unsigned long long)most,
                      (unsigned long long)total, (unsigned long long)each);
    if (group < plan->group || shared < plan->shared_bytes)
        return cl_say(error, GYRE_UNSUPPORTED,
                      "opencl: %s: work-groups of at most %zu items and %llu "
                      "bytes; the program needs %u and %zu",
                      name, group, (unsigned long long)shared, plan->group,
                      plan->shared_bytes);
    return GYRE_OK;
}

static gyre_status make_objects(cl_birth *b, const gyre_birth_plan *plan,
                                gyre_error *error)
{
    cl_int code = CL_SUCCESS;

    b->queue = b->cl.clCreateCommandQueue(b->context, b->id, 0, &code);
    if (code != CL_SUCCESS)
        return cl_fail(error, GYRE_UNSUPPORTED, "clCreateCommandQueue", code);
    for (int i = 0; i < GYRE_BIRTH_KERNELS; i++) {
        b->kernels[i] =
            b->cl.clCreateKernel(b->program, kernel_names[i], &code);
        if (code != CL_SUCCESS)
            return cl_fail(error, GYRE_PLUGIN_BAD, kernel_names[i], code);
    }
    for (int i = 0; i < GYRE_BIRTH_BLOCKS; i++) {
        if (plan->bytes[i] == 0)
            continue;
        b->blocks[i] = b->cl.clCreateBuffer(b->context, CL_MEM_READ_WRITE,
                                            plan->bytes[i], NULL, &code);
        if (code != CL_SUCCESS)
            return cl_fail(error, GYRE_UNSUPPORTED,
                           "memory beside the gradients", code);
    }
    return GYRE_OK;
}

static gyre_status birth_open(const gyre_services *services,
                              const gyre_birth_plan *plan, void **out,
                              gyre_error *error)
{
    cl_birth *b = services->take(services->user, sizeof(*b));
    gyre_status status;
    cl_int code;

    if (b == NULL)
        return cl_say(error, GYRE_NO_MEMORY, "opencl: no memory");
    b->services = services;
    b->group = plan->group;
    b->shared_bytes = plan->shared_bytes;
    status = cl_load(&b->cl, error);
    if (status == GYRE_OK) {
        code = cl_find(&b->cl, (cl_mem)(uintptr_t)plan->data, plan->device,
                       &b->context, &b->id);
        if (code != CL_SUCCESS)
            status = cl_fail(error, GYRE_INVALID, "the buffer's device", code);
    }
    if (status == GYRE_OK)
        status = check_device(b, plan, error);
    if (status == GYRE_OK)
        status = cl_build(services, &b->cl, b->context, b->id, plan->source, 1,
                          &b->program, error);
    if (status == GYRE_OK)
        status = make_objects(b, plan, error);
    if (status != GYRE_OK) {
        birth_close(b);
        return status;
    }
    *out = b;
    return GYRE_OK;
}

static int birth_reaches(void *opaque, int32_t device, const void *data,
                         uint64_t offset, uint64_t bytes)
{
    cl_birth *b = opaque;
    cl_mem memory = (cl_mem)(uintptr_t)data;
    cl_context context = NULL;
    cl_device_id id = NULL;
    size_t size = 0;

    if (cl_find(&b->cl, memory, device, &context, &id) != CL_SUCCESS ||
        context != b->context || id != b->id ||
        b->cl.clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof(size), &size,
                                 NULL) != CL_SUCCESS)
        return 0;
    return offset <= size && bytes <= size - offset;
}

static gyre_status failed(gyre_error *error, const char *what, cl_int code)
{
    if (code == CL_SUCCESS)
        return GYRE_OK;
    return cl_fail(error, GYRE_IO, what, code);
}

/* A block that is not there stands for no argument: the gradients, unread. */
static cl_int set_arguments(const cl_birth *b, const gyre_birth_launch *launch)
{
    const cl_mem *blocks = b->blocks;
    const cl_mem from = launch->from != NULL ? (cl_mem)(uintptr_t)launch->from
                                             : blocks[GYRE_BIRTH_STAGING];
    cl_mem list[] = {blocks[GYRE_BIRTH_GRADIENTS],
                     blocks[GYRE_BIRTH_E0 + launch->version],
                     blocks[GYRE_BIRTH_E1 - launch->version],
                     blocks[GYRE_BIRTH_PAYLOADS],
                     blocks[GYRE_BIRTH_LEAVES],
                     from};
    enum { LIST = sizeof(list) / sizeof(list[0]) };
    cl_kernel kernel = b->kernels[launch->kernel];
    cl_int code = CL_SUCCESS;

    for (cl_uint i = 0; code == CL_SUCCESS && i < LIST; i++) {
        if (list[i] == NULL)
            list[i] = blocks[GYRE_BIRTH_GRADIENTS];
        code = b->cl.clSetKernelArg(kernel, i, sizeof(list[i]), &list[i]);
    }
    for (cl_uint i = 0; code == CL_SUCCESS && i < GYRE_BIRTH_MOST_WORDS; i++)
        code = b->cl.clSetKernelArg(kernel, LIST + i, sizeof(launch->words[i]),
                                    &launch->words[i]);
    if (code == CL_SUCCESS)
        code = b->cl.clSetKernelArg(kernel, LIST + GYRE_BIRTH_MOST_WORDS,
                                    b->shared_bytes, NULL);
    return code;
}

static gyre_status birth_launch(void *opaque, const gyre_birth_launch *launch,
                                gyre_error *error)
{
    cl_birth *b = opaque;
    size_t local = b->group, global = local * launch->groups;
    cl_int code = set_arguments(b, launch);

    if (code != CL_SUCCESS)
        return failed(error, "clSetKernelArg", code);
    code = b->cl.clEnqueueNDRangeKernel(b->queue, b->kernels[launch->kernel], 1,
                                        NULL, &global, &local, 0, NULL, NULL);
    return failed(error, kernel_names[launch->kernel], code);
}

static gyre_status birth_read(void *opaque, uint32_t block, size_t at,
                              size_t bytes, void *host, gyre_error *error)
{
    cl_birth *b = opaque;

    return failed(error, "reading from the gradients' device",
                  b->cl.clEnqueueReadBuffer(b->queue, b->blocks[block], CL_TRUE,
                                            at, bytes, host, 0, NULL, NULL));
}

static gyre_status birth_write(void *opaque, uint32_t block, size_t at,
                               size_t bytes, const void *host,
                               gyre_error *error)
{
    cl_birth *b = opaque;

    return failed(error, "writing to the gradients' device",
                  b->cl.clEnqueueWriteBuffer(b->queue, b->blocks[block],
                                             CL_TRUE, at, bytes, host, 0, NULL,
                                             NULL));
}

static gyre_status birth_copy(void *opaque, uint32_t from, uint32_t to,
                              size_t at, size_t bytes, gyre_error *error)
{
    cl_birth *b = opaque;

    return failed(error, "copying a residual",
                  b->cl.clEnqueueCopyBuffer(b->queue, b->blocks[from],
                                            b->blocks[to], at, at, bytes, 0,
                                            NULL, NULL));
}

static gyre_status birth_clear(void *opaque, uint32_t block, size_t at,
                               size_t bytes, gyre_error *error)
{
    const cl_uint zero = 0;
    cl_birth *b = opaque;

    return failed(error, "clearing a residual",
                  b->cl.clEnqueueFillBuffer(b->queue, b->blocks[block], &zero,
                                            sizeof(zero), at, bytes, 0, NULL,
                                            NULL));
}

static gyre_status birth_wait(void *opaque, gyre_error *error)
{
    cl_birth *b = opaque;

    return failed(error, "the gradients' device", b->cl.clFinish(b->queue));
}

const gyre_birth_driver cl_birth_driver = {
    .size = sizeof(cl_birth_driver),
    .open = birth_open,
    .close = birth_close,
    .reaches = birth_reaches,
    .launch = birth_launch,
    .read = birth_read,
    .write = birth_write,
    .copy = birth_copy,
    .clear = birth_clear,
    .wait = birth_wait,
};
