/* SPDX-License-Identifier: Apache-2.0 */
/* Device module "cuda": an NVIDIA GPU by its driver, kernels by NVRTC. */
#include "config.h"

#include "cu.h"

#include <stdio.h>
#include <string.h>

static gyre_status cuda_describe(const gyre_services *services, uint32_t index,
                                 char *text, size_t size, gyre_error *error)
{
    cu_calls cu;
    CUdevice id = 0;
    char name[160];
    size_t memory = 0;
    gyre_status status = cu_load(&cu, error);

    (void)services;
    if (status == GYRE_OK)
        status = cu_pick(&cu, index, &id, name, sizeof(name), error);
    if (status != GYRE_OK)
        return status;
    (void)cu.cuDeviceTotalMem(&memory, id);
    snprintf(text, size, "%s, %.1f GiB", name,
             (double)memory / (double)(1u << 30));
    return GYRE_OK;
}

gyre_status cu_target(const cu_calls *cu, CUdevice id, char target[16],
                      gyre_error *error)
{
    int major = 0, minor = 0;
    CUresult code = cu->cuDeviceGetAttribute(
        &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, id);

    if (code == CUDA_SUCCESS)
        code = cu->cuDeviceGetAttribute(
            &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, id);
    if (code != CUDA_SUCCESS)
        return cu_fail(cu, error, GYRE_UNSUPPORTED, "compute capability", code);
    snprintf(target, 16, "sm_%d%d", major, minor);
    return GYRE_OK;
}

static gyre_status cuda_compile(const gyre_services *services,
                                const char *source, const char *target,
                                gyre_error *error)
{
    char found[16], name[160];
    void *code = NULL;
    size_t bytes = 0;
    gyre_status status;

    if (target == NULL) {
        cu_calls cu;
        CUdevice id = 0;

        status = cu_load(&cu, error);
        if (status == GYRE_OK)
            status = cu_pick(&cu, 0, &id, name, sizeof(name), error);
        if (status == GYRE_OK)
            status = cu_target(&cu, id, found, error);
        if (status != GYRE_OK)
            return status;
        target = found;
    }
    status = cu_build(services, source, target, &code, &bytes, error);
    if (status == GYRE_OK)
        services->give(services->user, code, bytes);
    return status;
}

/* ---- open and close -------------------------------------------------- */

static void cuda_close(void *opaque)
{
    cu_device *device = opaque;
    const gyre_services *services = device->services;
    CUcontext popped;

    if (device->context != NULL &&
        device->cu.cuCtxPushCurrent(device->context) == CUDA_SUCCESS) {
        for (uint32_t i = 0; i < device->lane_count; i++)
            cu_lane_free(device, &device->lanes[i]);
        if (device->module != NULL)
            (void)device->cu.cuModuleUnload(device->module);
        (void)device->cu.cuCtxPopCurrent(&popped);
    }
    if (device->context != NULL)
        (void)device->cu.cuDevicePrimaryCtxRelease(device->id);
    if (device->lanes != NULL)
        services->give(services->user, device->lanes,
                       device->lane_count * sizeof(device->lanes[0]));
    services->give(services->user, device, sizeof(*device));
}

static gyre_status load_program(cu_device *device, const char *source,
                                gyre_error *error)
{
    const gyre_services *services = device->services;
    const cu_calls *cu = &device->cu;
    char target[16];
    void *code = NULL;
    size_t bytes = 0;
    CUresult result;
    gyre_status status = cu_target(cu, device->id, target, error);

    if (status == GYRE_OK)
        status = cu_build(services, source, target, &code, &bytes, error);
    if (status != GYRE_OK)
        return status;
    result = cu->cuModuleLoadData(&device->module, code);
    services->give(services->user, code, bytes);
    if (result == CUDA_SUCCESS)
        result = cu->cuModuleGetFunction(&device->kernel, device->module,
                                         "gyre_update");
    if (result != CUDA_SUCCESS)
        return cu_fail(cu, error, GYRE_PLUGIN_BAD,
                       "the driver does not take the program", result);
    return GYRE_OK;
}

/* Refuse by the device's own numbers, before anything is taken. */
static gyre_status check_room(const cu_device *device, gyre_error *error)
{
    size_t available = 0, total = 0;
    uint64_t bytes = (uint64_t)device->lane_count *
                     (device->state_bytes + device->input_bytes);
    CUresult code = device->cu.cuMemGetInfo(&available, &total);

    if (code != CUDA_SUCCESS)
        return cu_fail(&device->cu, error, GYRE_IO, "cuMemGetInfo", code);
    if (bytes > available)
        return cu_say(error, GYRE_NO_MEMORY,
                      "cuda: %s: %u lanes of %zu + %zu bytes; it has %zu of "
                      "%zu free; use smaller chunks",
                      device->name, device->lane_count, device->state_bytes,
                      device->input_bytes, available, total);
    return GYRE_OK;
}

static gyre_status set_up(cu_device *device, const gyre_device_plan *plan,
                          gyre_error *error)
{
    CUcontext popped;
    CUresult code;
    gyre_status status = cu_load(&device->cu, error);

    if (status == GYRE_OK)
        status = cu_pick(&device->cu, plan->index, &device->id, device->name,
                         sizeof(device->name), error);
    if (status != GYRE_OK)
        return status;
    code = device->cu.cuDevicePrimaryCtxRetain(&device->context, device->id);
    if (code != CUDA_SUCCESS) {
        device->context = NULL;
        return cu_fail(&device->cu, error, GYRE_UNSUPPORTED,
                       "cuDevicePrimaryCtxRetain", code);
    }
    code = device->cu.cuCtxPushCurrent(device->context);
    if (code != CUDA_SUCCESS)
        return cu_fail(&device->cu, error, GYRE_IO, "cuCtxPushCurrent", code);
    status = check_room(device, error);
    if (status == GYRE_OK)
        status = load_program(device, plan->source, error);
    for (uint32_t i = 0; status == GYRE_OK && i < device->lane_count; i++)
        status = cu_lane_make(device, &device->lanes[i], error);
    (void)device->cu.cuCtxPopCurrent(&popped);
    return status;
}

static gyre_status cuda_open(const gyre_services *services,
                             const gyre_device_plan *plan, void **out,
                             gyre_error *error)
{
    cu_device *device = services->take(services->user, sizeof(*device));
    gyre_status status;

    if (device == NULL)
        return cu_say(error, GYRE_NO_MEMORY, "cuda: no memory");
    device->services = services;
    device->group = plan->group;
    device->shared_bytes = plan->shared_bytes;
    device->state_bytes = plan->state_bytes;
    device->input_bytes = plan->input_bytes;
    device->lane_count = plan->lanes;
    device->lanes =
        services->take(services->user, plan->lanes * sizeof(device->lanes[0]));
    if (device->lanes == NULL)
        status = cu_say(error, GYRE_NO_MEMORY, "cuda: no memory");
    else
        status = set_up(device, plan, error);
    if (status != GYRE_OK) {
        cuda_close(device);
        return status;
    }
    *out = device;
    return GYRE_OK;
}

/* ---- the rest -------------------------------------------------------- */

static void *cuda_input(void *device, uint32_t lane)
{
    return ((cu_device *)device)->lanes[lane].host;
}

static void change_pin(cu_device *device, void *data, size_t bytes, int on)
{
    CUcontext popped;
    CUresult code;

    if (device->cu.cuCtxPushCurrent(device->context) != CUDA_SUCCESS)
        return;
    code = on ? device->cu.cuMemHostRegister(data, bytes, 0)
              : device->cu.cuMemHostUnregister(data);
    (void)device->cu.cuCtxPopCurrent(&popped);
    if (code != CUDA_SUCCESS && on)
        device->services->log(device->services->user, 2,
                              "cuda: buffers could not be page-locked; "
                              "copies will not overlap");
}

static void cuda_pin(void *device, void *data, size_t bytes)
{
    change_pin(device, data, bytes, 1);
}

static void cuda_unpin(void *device, void *data, size_t bytes)
{
    change_pin(device, data, bytes, 0);
}

static uint64_t cuda_memory(void *device)
{
    return ((cu_device *)device)->memory;
}

static const gyre_driver driver = {
    .size = sizeof(driver),
    .language = "cuda",
    .describe = cuda_describe,
    .compile = cuda_compile,
    .open = cuda_open,
    .close = cuda_close,
    .input = cuda_input,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .submit = cu_submit,
    .ready = cu_ready,
    .finish = cu_finish,
    .memory = cuda_memory,
    .fetch = cu_fetch,
    .birth = &cu_birth_driver,
};

static const gyre_build build = GY_BUILD_(0, NULL);

static const gyre_plugin plugin = {
    .size = sizeof(plugin),
    .kind = GYRE_KIND_DEVICE,
    .name = "cuda",
    .version = "1.0.0",
    .summary = "updates on an NVIDIA GPU",
    .licence = "Apache-2.0",
    .flags = GYRE_CLAIM_DETERMINISTIC | GYRE_CLAIM_CHUNK_INVARIANT,
    .build = &build,
    .descriptor = &driver,
};

GYRE_MODULE(cuda, &plugin)
