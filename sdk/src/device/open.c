/* SPDX-License-Identifier: Apache-2.0 */
/* A device by its name: the CPU, or a module. */
#include "config.h"

#include "device/device.h"

#include <assert.h>
#include <string.h>

struct gyre_device {
    gyre_context *context;
    uint32_t lanes;
};

gyre_status gyre_device_open(gyre_context *context,
                             const gyre_device_spec *spec, gyre_device **out,
                             gyre_error *error)
{
    gyre_device *device;

    if (strcmp(spec->name, "cpu") != 0)
        return gyre_fail(error, GYRE_NOT_FOUND,
                         "compute device \"%.64s\": there is cpu", spec->name);
    device = gyre_alloc_zero(context, 1, sizeof(*device));
    if (device == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "device %s: no memory",
                         spec->name);
    device->context = context;
    device->lanes = 1;
    *out = device;
    return GYRE_OK;
}

void gyre_device_close(gyre_device *device)
{
    if (device != NULL)
        gyre_free(device->context, device, 1, sizeof(*device));
}

uint32_t gyre_device_lanes(const gyre_device *device)
{
    return device->lanes;
}

uint64_t gyre_device_memory(const gyre_device *device)
{
    (void)device;
    return 0;
}

void gyre_device_pin(gyre_device *device, void *data, size_t bytes)
{
    (void)device;
    (void)data;
    (void)bytes;
}

void gyre_device_unpin(gyre_device *device, void *data, size_t bytes)
{
    (void)device;
    (void)data;
    (void)bytes;
}

gyre_status gyre_device_submit(gyre_device *device, uint32_t lane,
                               gyre_update_job *job, gyre_error *error)
{
    assert(lane < device->lanes);
    (void)device;
    (void)lane;
    (void)error;
    gyre_device_update(job);
    return GYRE_OK;
}

bool gyre_device_ready(gyre_device *device, uint32_t lane)
{
    (void)device;
    (void)lane;
    return true;
}

gyre_status gyre_device_finish(gyre_device *device, uint32_t lane,
                               gyre_update_job *job, gyre_error *error)
{
    (void)device;
    (void)lane;
    (void)job;
    (void)error;
    return GYRE_OK;
}
