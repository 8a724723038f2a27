/* SPDX-License-Identifier: Apache-2.0 */
/* Device module "opencl": any OpenCL 1.2 device that rounds as IEEE 754. */
#include "config.h"

#include "cl.h"

#include <stdio.h>
#include <string.h>

static gyre_status opencl_describe(const gyre_services *services,
                                   uint32_t index, char *text, size_t size,
                                   gyre_error *error)
{
    cl_calls cl;
    cl_device_id id = NULL;
    cl_ulong memory = 0;
    char name[160];
    gyre_status status = cl_load(&cl, error);

    if (status == GYRE_OK)
        status = cl_pick(services, &cl, index, &id, error);
    if (status != GYRE_OK)
        return status;
    (void)cl.clGetDeviceInfo(id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(memory),
                             &memory, NULL);
    cl_name(&cl, id, name, sizeof(name));
    snprintf(text, size, "%s, %.1f GiB", name,
             (double)memory / (double)(1u << 30));
    return GYRE_OK;
}

static gyre_status opencl_compile(const gyre_services *services,
                                  const char *source, const char *target,
                                  gyre_error *error)
{
    cl_calls cl;
    cl_device_id id = NULL;
    cl_context context;
    cl_program program = NULL;
    cl_int code = CL_SUCCESS;
    gyre_status status = cl_load(&cl, error);

    if (status == GYRE_OK && target != NULL)
        status = cl_say(error, GYRE_UNSUPPORTED,
                        "opencl: programs are built for a device, not for "
                        "%s",
                        target);
    if (status == GYRE_OK)
        status = cl_pick(services, &cl, 0, &id, error);
    if (status != GYRE_OK)
        return status;
    context = cl.clCreateContext(NULL, 1, &id, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return cl_fail(error, GYRE_NO_MEMORY, "clCreateContext", code);
    status = cl_build(services, &cl, context, id, source, 1, &program, error);
    if (status == GYRE_OK)
        cl.clReleaseProgram(program);
    cl.clReleaseContext(context);
    return status;
}

static void opencl_close(void *opaque)
{
    cl_device *device = opaque;
    const gyre_services *services = device->services;

    for (uint32_t i = 0; device->lanes != NULL && i < device->lane_count; i++)
        cl_lane_free(device, &device->lanes[i]);
    if (device->lanes != NULL)
        services->give(services->user, device->lanes,
                       device->lane_count * sizeof(device->lanes[0]));
    if (device->program != NULL)
        (void)device->cl.clReleaseProgram(device->program);
    if (device->context != NULL)
        (void)device->cl.clReleaseContext(device->context);
    services->give(services->user, device, sizeof(*device));
}

/* Refuse by the device's own numbers, before anything is taken. */
static gyre_status check_room(const cl_device *device, gyre_error *error)
{
    cl_ulong total = 0, each = 0, shared = 0;
    size_t group = 0;
    uint64_t bytes = (uint64_t)device->lane_count *
                     (device->state_bytes + device->input_bytes);
    size_t most = device->state_bytes > device->input_bytes
                      ? device->state_bytes
                      : device->input_bytes;

    (void)device->cl.clGetDeviceInfo(device->id, CL_DEVICE_GLOBAL_MEM_SIZE,
                                     sizeof(total), &total, NULL);
    (void)device->cl.clGetDeviceInfo(device->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE,
                                     sizeof(each), &each, NULL);
    (void)device->cl.clGetDeviceInfo(device->id, CL_DEVICE_MAX_WORK_GROUP_SIZE,
                                     sizeof(group), &group, NULL);
    if (bytes > total || most > each)
        return cl_say(error, GYRE_NO_MEMORY,
                      "opencl: %s: %u lanes of %zu + %zu bytes; it has %llu "
                      "bytes, at most %llu in a piece; use smaller chunks",
                      device->name, device->lane_count, device->state_bytes,
                      device->input_bytes, (unsigned long long)total,
                      (unsigned long long)each);
    (void)device->cl.clGetDeviceInfo(device->id, CL_DEVICE_LOCAL_MEM_SIZE,
                                     sizeof(shared), &shared, NULL);
    if (group < device->group || shared < device->shared_bytes)
        return cl_say(error, GYRE_UNSUPPORTED,
                      "opencl: %s: work-groups of at most %zu items and %llu "
                      "bytes; the program needs %u and %zu",
                      device->name, group, (unsigned long long)shared,
                      device->group, device->shared_bytes);
    return GYRE_OK;
}

static gyre_status set_up(cl_device *device, const gyre_device_plan *plan,
                          gyre_error *error)
{
    const gyre_services *services = device->services;
    cl_int code = CL_SUCCESS;
    gyre_status status = cl_load(&device->cl, error);

    if (status == GYRE_OK)
        status =
            cl_pick(services, &device->cl, plan->index, &device->id, error);
    if (status != GYRE_OK)
        return status;
    cl_name(&device->cl, device->id, device->name, sizeof(device->name));
    status = cl_check(&device->cl, device->id, device->name,
                      plan->allow_inexact, &device->exact, error);
    if (status == GYRE_OK)
        status = check_room(device, error);
    if (status != GYRE_OK)
        return status;
    device->context =
        device->cl.clCreateContext(NULL, 1, &device->id, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return cl_fail(error, GYRE_NO_MEMORY, "clCreateContext", code);
    status = cl_build(services, &device->cl, device->context, device->id,
                      plan->source, device->exact, &device->program, error);
    for (uint32_t i = 0; status == GYRE_OK && i < device->lane_count; i++)
        status = cl_lane_make(device, &device->lanes[i], error);
    return status;
}

static gyre_status opencl_open(const gyre_services *services,
                               const gyre_device_plan *plan, void **out,
                               gyre_error *error)
{
    cl_device *device = services->take(services->user, sizeof(*device));
    gyre_status status;

    if (device == NULL)
        return cl_say(error, GYRE_NO_MEMORY, "opencl: no memory");
    device->services = services;
    device->group = plan->group;
    device->shared_bytes = plan->shared_bytes;
    device->state_bytes = plan->state_bytes;
    device->input_bytes = plan->input_bytes;
    device->lane_count = plan->lanes;
    device->lanes =
        services->take(services->user, plan->lanes * sizeof(device->lanes[0]));
    if (device->lanes == NULL)
        status = cl_say(error, GYRE_NO_MEMORY, "opencl: no memory");
    else
        status = set_up(device, plan, error);
    if (status != GYRE_OK) {
        opencl_close(device);
        return status;
    }
    *out = device;
    return GYRE_OK;
}

static void *opencl_input(void *device, uint32_t lane)
{
    return ((cl_device *)device)->lanes[lane].host;
}

static int opencl_exact(void *device)
{
    const cl_device *d = device;

    return d->exact;
}

static uint64_t opencl_memory(void *device)
{
    return ((cl_device *)device)->memory;
}

static const gyre_driver driver = {
    .size = sizeof(driver),
    .language = "opencl",
    .describe = opencl_describe,
    .compile = opencl_compile,
    .open = opencl_open,
    .close = opencl_close,
    .input = opencl_input,
    .submit = cl_submit,
    .ready = cl_ready,
    .finish = cl_finish,
    .memory = opencl_memory,
    .fetch = cl_fetch,
    .exact = opencl_exact,
    .birth = &cl_birth_driver,
};

static const gyre_build build = GY_BUILD_(0, NULL);

static const gyre_plugin plugin = {
    .size = sizeof(plugin),
    .kind = GYRE_KIND_DEVICE,
    .name = "opencl",
    .version = "1.0.0",
    .summary = "updates on any OpenCL 1.2 device that rounds as IEEE 754",
    .licence = "Apache-2.0",
    .flags = GYRE_CLAIM_DETERMINISTIC | GYRE_CLAIM_CHUNK_INVARIANT,
    .build = &build,
    .descriptor = &driver,
};

GYRE_MODULE(opencl, &plugin)
