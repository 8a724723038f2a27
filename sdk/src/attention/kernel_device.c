/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks on a module's device: one launch a sequence and KV head. */
#include "config.h"

#include "attention/kernel_device_pack.h"
#include "device/module.h"
#include "device/open.h"

#include <gyre/registry.h>

struct gyre_block_device {
    gyre_context *context;
    gyre_services services;
    const gyre_driver *driver;
    void *opened;
    gyre_device_room room;
    gyre_kernel kernel; /* what gyre_block_check asks about */
    float *state;
    size_t state_bytes;
};

void gyre_block_device_close(gyre_block_device *device)
{
    if (device == NULL)
        return;
    if (device->opened != NULL)
        device->driver->close(device->opened);
    gyre_free_aligned(device->context, device->state, device->state_bytes, 64);
    gyre_free(device->context, device, 1, sizeof(*device));
}

static gyre_status open_driver(gyre_block_device *device, uint32_t index,
                               uint64_t words, gyre_error *error)
{
    char *source;
    gyre_status status = gyre_block_source(
        device->context, device->driver->language, &source, error);

    if (status != GYRE_OK)
        return status;
    gyre_device_plan plan = {
        .size = sizeof(plan),
        .index = index,
        .lanes = 1,
        .group = GYRE_DEVICE_TILE * GYRE_DEVICE_TILE,
        .allow_inexact = 1, /* bits are not promised here */
        .source = source,
        .shared_bytes =
            sizeof(float) *
            gyre_block_shared(device->room.head_dim, device->room.v_head_dim),
        .state_bytes = device->state_bytes,
        .input_bytes = (size_t)words * sizeof(uint32_t)};
    status =
        device->driver->open(&device->services, &plan, &device->opened, error);
    gyre_free_text(device->context, source);
    return status;
}

static gyre_status check_room(const gyre_device_room *room, uint64_t *words,
                              uint64_t *floats, gyre_error *error)
{
    if (room->dtype != GYRE_F32 && room->dtype != GYRE_BF16)
        return gyre_fail(error, GYRE_INVALID,
                         "block device: dtype number %d: f32 or bf16",
                         (int)room->dtype);
    if (room->head_dim == 0 || room->v_head_dim == 0 || room->group == 0 ||
        !gyre_pack_room(room, words, floats))
        return gyre_fail(error, GYRE_INVALID,
                         "block device: room for %llu rows of %u heads, %llu "
                         "keys, %llu runs of head dims %u and %u: above 0, "
                         "together below 2^32 words",
                         (unsigned long long)room->rows, room->group,
                         (unsigned long long)room->keys,
                         (unsigned long long)room->runs, room->head_dim,
                         room->v_head_dim);
    return GYRE_OK;
}

void gyre_device_room_hold(gyre_device_room *room, const gyre_block *block)
{
    gyre_pack pack = gyre_pack_count(block);

    room->rows = pack.rows > room->rows ? pack.rows : room->rows;
    room->keys = pack.keys > room->keys ? pack.keys : room->keys;
    room->runs = pack.runs > room->runs ? pack.runs : room->runs;
}

gyre_status gyre_device_room_bytes(const gyre_device_room *room,
                                   uint64_t *bytes, gyre_error *error)
{
    uint64_t words, floats;
    gyre_status status = check_room(room, &words, &floats, error);

    if (status == GYRE_OK)
        *bytes = words * sizeof(uint32_t) + floats * sizeof(float);
    return status;
}

gyre_status gyre_block_device_open(gyre_context *context, const char *name,
                                   uint32_t index, const gyre_device_room *room,
                                   gyre_block_device **out, gyre_error *error)
{
    const gyre_plugin *plugin;
    uint64_t words, floats;
    gyre_status status = check_room(room, &words, &floats, error);

    if (status == GYRE_OK)
        status =
            gyre_plugin_find(context, GYRE_KIND_DEVICE, name, &plugin, error);
    if (status != GYRE_OK)
        return status;
    gyre_block_device *device = gyre_alloc_zero(context, 1, sizeof(*device));
    if (device == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "block device: no memory");
    device->context = context;
    device->driver = plugin->descriptor;
    device->room = *room;
    device->kernel = (gyre_kernel){name, room->dtype, GYRE_F32, GYRE_F32,
                                   NULL, NULL,        NULL,     NULL};
    gyre_device_services(context, &device->services);
    device->state_bytes = (size_t)(floats > 0 ? floats : 1) * sizeof(float);
    device->state = gyre_alloc_aligned(context, device->state_bytes, 64);
    if (device->state == NULL)
        status = gyre_fail(error, GYRE_NO_MEMORY,
                           "block device: no memory for %zu bytes",
                           device->state_bytes);
    else
        status = open_driver(device, index, words, error);
    if (status != GYRE_OK) {
        gyre_block_device_close(device);
        return status;
    }
    *out = device;
    return GYRE_OK;
}

/* ---- running ------------------------------------------------------------- */

static gyre_status launch(gyre_block_device *device, gyre_pack *pack,
                          gyre_error *error)
{
    pack->input = device->driver->input(device->opened, 0);
    pack->state = device->state;
    gyre_pack_fill(pack);
    gyre_launch one = {.size = sizeof(one),
                       .state = device->state,
                       .state_bytes = pack->floats * sizeof(float),
                       .input_bytes = pack->words * sizeof(uint32_t),
                       .grains = gyre_pack_groups(pack)};
    if (one.grains == 0)
        return GYRE_OK;
    gyre_status status = device->driver->submit(device->opened, 0, &one, error);
    if (status == GYRE_OK)
        status = device->driver->finish(device->opened, 0, error);
    if (status == GYRE_OK)
        gyre_pack_give(pack);
    return status;
}

static gyre_status check(const gyre_block_device *device,
                         const gyre_block *block, const gyre_pack *pack,
                         gyre_error *error)
{
    const gyre_device_room *room = &device->room;

    if (block->head_dim != room->head_dim ||
        block->v_head_dim != room->v_head_dim ||
        block->heads / block->kv_heads > room->group ||
        pack->rows > room->rows || pack->keys > room->keys ||
        pack->runs > room->runs)
        return gyre_fail(
            error, GYRE_RANGE,
            "block device: head dims %u and %u, %u heads a KV head, %llu rows, "
            "%llu keys, %llu runs; it was opened for %u, %u, %u, %llu, %llu, "
            "%llu",
            block->head_dim, block->v_head_dim, block->heads / block->kv_heads,
            (unsigned long long)pack->rows, (unsigned long long)pack->keys,
            (unsigned long long)pack->runs, room->head_dim, room->v_head_dim,
            room->group, (unsigned long long)room->rows,
            (unsigned long long)room->keys, (unsigned long long)room->runs);
    return GYRE_OK;
}

static gyre_status run(gyre_block_device *device, const gyre_block *block,
                       bool grad, gyre_error *error)
{
    gyre_status status = gyre_block_check(&device->kernel, block, grad, error);

    if (status != GYRE_OK)
        return status;
    gyre_pack pack = gyre_pack_count(block);
    status = check(device, block, &pack, error);
    pack.dtype = device->room.dtype;
    pack.grad = grad;
    for (size_t i = 0; status == GYRE_OK && i < gyre_grad_tasks(block); i++) {
        gyre_task task = gyre_grad_task(block, i);

        pack.b = task.b;
        pack.kv_head = task.head;
        gyre_block_group(block, task.head, &pack.h0, &pack.h1);
        status = launch(device, &pack, error);
    }
    return status;
}

gyre_status gyre_block_device_attend(gyre_block_device *device,
                                     const gyre_block *block, gyre_error *error)
{
    return run(device, block, false, error);
}

gyre_status gyre_block_device_grad(gyre_block_device *device,
                                   const gyre_block *block, gyre_error *error)
{
    return run(device, block, true, error);
}
