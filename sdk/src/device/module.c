/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that a module drives.  The host packs the job and takes the
 * checksums around it, so that the bytes that go to storage are those that
 * came back over the link.
 */
#include "config.h"

#include "device/open.h"

#include "device/pack.h"
#include "device/source.h"
#include "registry/compressor.h"

#include <stdio.h>
#include <string.h>

typedef struct module_device {
    gyre_device device;
    gyre_services services;
    const gyre_driver *driver;
    void *opened;
    size_t grains;
} module_device;

/* ---- services -------------------------------------------------------- */

static void service_log(void *user, int level, const char *text)
{
    gyre_log(user, (gyre_log_level)level, "%s", text);
}

static void *service_take(void *user, size_t bytes)
{
    return gyre_alloc_zero(user, 1, bytes);
}

static void service_give(void *user, void *block, size_t bytes)
{
    gyre_free(user, block, 1, bytes);
}

void gyre_device_services(gyre_context *context, gyre_services *out)
{
    *out = (gyre_services){sizeof(*out), context, service_log, service_take,
                           service_give};
}

/* ---- jobs ------------------------------------------------------------ */

static void module_close(gyre_device *device)
{
    module_device *m = (module_device *)device;

    if (m->opened != NULL)
        m->driver->close(m->opened);
    gyre_free(device->context, m, 1, sizeof(*m));
}

static uint64_t module_memory(const gyre_device *device)
{
    const module_device *m = (const module_device *)device;

    return m->driver->memory(m->opened);
}

static void module_pin(gyre_device *device, void *data, size_t bytes, bool on)
{
    module_device *m = (module_device *)device;

    if (on && m->driver->pin != NULL)
        m->driver->pin(m->opened, data, bytes);
    if (!on && m->driver->unpin != NULL)
        m->driver->unpin(m->opened, data, bytes);
}

static size_t job_bytes(const gyre_update_job *job)
{
    size_t bytes = 0;

    for (size_t v = 0; v < job->var_count; v++)
        bytes += job->elements / GYRE_GRAIN * job->vars[v].stride;
    return bytes;
}

static gyre_status module_submit(gyre_device *device, uint32_t lane,
                                 gyre_update_job *job, gyre_error *error)
{
    module_device *m = (module_device *)device;
    gyre_launch launch = {.size = sizeof(launch), .state = job->data};

    if (job->elements / GYRE_GRAIN > m->grains)
        return gyre_fail(error, GYRE_RANGE,
                         "device %s: a job of %zu grains; it was opened for "
                         "%zu",
                         device->name, job->elements / GYRE_GRAIN, m->grains);
    job->refused = NULL;
    if (job->check)
        job->before = gyre_device_hash(job->data, job->vars, job->var_count,
                                       job->elements, job->seed_before);
    launch.state_bytes = job_bytes(job);
    launch.input_bytes = gyre_pack_job(job, m->driver->input(m->opened, lane));
    launch.grains = (uint32_t)(job->elements / GYRE_GRAIN);
    return m->driver->submit(m->opened, lane, &launch, error);
}

static bool module_ready(gyre_device *device, uint32_t lane)
{
    module_device *m = (module_device *)device;

    return m->driver->ready(m->opened, lane) != 0;
}

static gyre_status module_finish(gyre_device *device, uint32_t lane,
                                 gyre_update_job *job, gyre_error *error)
{
    module_device *m = (module_device *)device;
    gyre_status status = m->driver->finish(m->opened, lane, error);

    if (status == GYRE_OK)
        job->after = gyre_device_hash(job->data, job->vars, job->var_count,
                                      job->elements, job->seed_after);
    return status;
}

static const gyre_device_calls module_calls = {module_close, module_memory,
                                               module_pin,   module_submit,
                                               module_ready, module_finish};

/* ---- memory ---------------------------------------------------------- */

static size_t state_bytes(const gyre_device_spec *spec)
{
    size_t bytes = 0;

    for (size_t v = 0; v < spec->vars; v++)
        bytes += gyre_state_stride(spec->states[v]);
    return spec->grains * bytes;
}

static uint32_t lanes_of(const gyre_device_spec *spec)
{
    return spec->lanes > 0 ? spec->lanes : 2;
}

uint64_t gyre_device_plan_memory(const gyre_device_spec *spec, uint64_t *host)
{
    uint64_t input = gyre_pack_bound(spec->codec, spec->grains);

    *host = 0;
    if (strcmp(spec->name, "cpu") == 0)
        return 0;
    *host = lanes_of(spec) * input;
    return lanes_of(spec) * (state_bytes(spec) + input);
}

/* ---- open ------------------------------------------------------------ */

static gyre_status open_driver(module_device *m, const gyre_device_spec *spec,
                               uint32_t index, gyre_error *error)
{
    gyre_context *context = m->device.context;
    gyre_device_plan plan = {.size = sizeof(plan), .index = index};
    char *source = NULL;
    gyre_status status;

    plan.lanes = m->device.lanes;
    plan.group = GYRE_SOURCE_GROUP;
    plan.allow_inexact = spec->allow_inexact;
    plan.state_bytes = state_bytes(spec);
    plan.input_bytes = gyre_pack_bound(spec->codec, spec->grains);
    status = gyre_source_make(context, m->driver->language, spec, &source,
                              &plan.shared_bytes, error);
    if (status != GYRE_OK)
        return status;
    plan.source = source;
    status = m->driver->open(&m->services, &plan, &m->opened, error);
    gyre_free_text(context, source);
    return status;
}

gyre_status gyre_device_open_module(gyre_context *context,
                                    const gyre_device_spec *spec,
                                    const char *name, uint32_t index,
                                    gyre_device **out, gyre_error *error)
{
    const gyre_plugin *plugin = NULL;
    module_device *m;
    gyre_status status =
        gyre_plugin_find(context, GYRE_KIND_DEVICE, name, &plugin, error);

    if (status != GYRE_OK)
        return status;
    m = gyre_alloc_zero(context, 1, sizeof(*m));
    if (m == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "device %s: no memory", name);
    gyre_device_services(context, &m->services);
    m->driver = plugin->descriptor;
    m->grains = spec->grains;
    m->device.context = context;
    m->device.calls = &module_calls;
    m->device.lanes = lanes_of(spec);
    snprintf(m->device.name, sizeof(m->device.name), "%.24s:%u", name, index);
    status = open_driver(m, spec, index, error);
    if (status != GYRE_OK) {
        module_close(&m->device);
        return status;
    }
    m->device.inexact =
        m->driver->exact != NULL && m->driver->exact(m->opened) == 0;
    *out = &m->device;
    return GYRE_OK;
}

/* ---- memory of others ------------------------------------------------ */

gyre_status gyre_device_fetch(gyre_context *context, gyre_memory_kind kind,
                              int32_t device, const void *data, uint64_t offset,
                              size_t bytes, void *host, gyre_error *error)
{
    const char *name = kind == GYRE_CUDA_MEMORY ? "cuda" : "opencl";
    const gyre_plugin *plugin = NULL;
    const gyre_driver *driver;
    gyre_services services;
    gyre_status status =
        gyre_plugin_find(context, GYRE_KIND_DEVICE, name, &plugin, error);

    if (status == GYRE_NOT_FOUND)
        return gyre_fail_prefix(error, GYRE_UNSUPPORTED,
                                "memory of kind %d needs the module %s",
                                (int)kind, name);
    if (status != GYRE_OK)
        return status;
    driver = plugin->descriptor;
    gyre_device_services(context, &services);
    return driver->fetch(&services, device, data, offset, bytes, host, error);
}
