/* SPDX-License-Identifier: Apache-2.0 */
/* A device by its name: the CPU, or one of a module. */
#include "config.h"

#include "device/open.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* "word" or "word:N". */
static bool parse_name(const char *name, char word[32], uint32_t *index)
{
    size_t length = strcspn(name, ":");
    const char *at = name + length;
    uint32_t n = 0;

    if (length == 0 || length >= 32)
        return false;
    memcpy(word, name, length);
    word[length] = '\0';
    if (*at == ':' && *++at == '\0')
        return false;
    for (; *at != '\0'; at++) {
        if (*at < '0' || *at > '9' || n > 9999)
            return false;
        n = n * 10 + (uint32_t)(*at - '0');
    }
    *index = n;
    return true;
}

static gyre_status open_cpu(gyre_context *context, gyre_device **out,
                            gyre_error *error)
{
    gyre_device *device = gyre_alloc_zero(context, 1, sizeof(*device));

    if (device == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "device cpu: no memory");
    device->context = context;
    device->lanes = 1;
    strcpy(device->name, "cpu");
    *out = device;
    return GYRE_OK;
}

gyre_status gyre_device_open(gyre_context *context,
                             const gyre_device_spec *spec, gyre_device **out,
                             gyre_error *error)
{
    char word[32];
    uint32_t index = 0;

    if (!parse_name(spec->name, word, &index))
        return gyre_fail(error, GYRE_INVALID,
                         "compute device \"%.64s\": write cpu, opencl, cuda, "
                         "or one of them with a number (opencl:1)",
                         spec->name);
    if (strcmp(spec->name, "cpu") == 0)
        return open_cpu(context, out, error);
    return gyre_device_open_module(context, spec, word, index, out, error);
}

void gyre_device_close(gyre_device *device)
{
    if (device == NULL)
        return;
    if (device->calls != NULL)
        device->calls->close(device);
    else
        gyre_free(device->context, device, 1, sizeof(*device));
}

uint32_t gyre_device_lanes(const gyre_device *device)
{
    return device->lanes;
}

bool gyre_device_is_exact(const gyre_device *device)
{
    return !device->inexact;
}

uint64_t gyre_device_memory(const gyre_device *device)
{
    return device->calls != NULL ? device->calls->memory(device) : 0;
}

void gyre_device_pin(gyre_device *device, void *data, size_t bytes)
{
    if (device->calls != NULL)
        device->calls->pin(device, data, bytes, true);
}

void gyre_device_unpin(gyre_device *device, void *data, size_t bytes)
{
    if (device->calls != NULL)
        device->calls->pin(device, data, bytes, false);
}

gyre_status gyre_device_submit(gyre_device *device, uint32_t lane,
                               gyre_update_job *job, gyre_error *error)
{
    assert(lane < device->lanes);
    if (device->calls != NULL)
        return device->calls->submit(device, lane, job, error);
    gyre_device_update(job);
    return GYRE_OK;
}

bool gyre_device_ready(gyre_device *device, uint32_t lane)
{
    return device->calls == NULL || device->calls->ready(device, lane);
}

gyre_status gyre_device_finish(gyre_device *device, uint32_t lane,
                               gyre_update_job *job, gyre_error *error)
{
    if (device->calls == NULL)
        return GYRE_OK;
    return device->calls->finish(device, lane, job, error);
}
