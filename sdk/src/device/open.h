/* SPDX-License-Identifier: Apache-2.0 */
/* What the kinds of devices share: the head of each, and how it is called. */
#ifndef GYRE_SRC_DEVICE_OPEN_H
#define GYRE_SRC_DEVICE_OPEN_H

#include "device/device.h"
#include "device/module.h"

/* As the functions of device.h that they stand behind. */
typedef struct gyre_device_calls {
    void (*close)(gyre_device *device);
    uint64_t (*memory)(const gyre_device *device);
    void (*pin)(gyre_device *device, void *data, size_t bytes, bool on);
    gyre_status (*submit)(gyre_device *device, uint32_t lane,
                          gyre_update_job *job, gyre_error *error);
    bool (*ready)(gyre_device *device, uint32_t lane);
    gyre_status (*finish)(gyre_device *device, uint32_t lane,
                          gyre_update_job *job, gyre_error *error);
} gyre_device_calls;

struct gyre_device {
    gyre_context *context;
    const gyre_device_calls *calls; /* NULL: cpu */
    uint32_t lanes;
    bool inexact;
    char name[40];
};

/* A device of the module `name`, "opencl" say. */
gyre_status gyre_device_open_module(gyre_context *context,
                                    const gyre_device_spec *spec,
                                    const char *name, uint32_t index,
                                    gyre_device **out, gyre_error *error);
void gyre_device_services(gyre_context *context, gyre_services *out);

#endif
