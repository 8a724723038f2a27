/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copy a plugin's tables into this build's shape.
 *
 * A module built with a later header has longer structs and a longer stride;
 * the tail that we do not know is dropped.  One built with an earlier header
 * has shorter ones; what it lacks reads as zero.
 */
#include "config.h"

#include "registry/registry.h"

#include <string.h>

static void copy_sized(void *to, size_t room, const void *from, size_t size)
{
    memset(to, 0, room);
    memcpy(to, from, size < room ? size : room);
    memcpy(to, &room, sizeof(room)); /* the size field comes first */
}

static void copy_array(void *to, size_t room, const void *from, size_t count)
{
    const char *source = from;
    char *target = to;
    size_t stride;

    if (count == 0)
        return;
    memcpy(&stride, source, sizeof(stride));
    for (size_t i = 0; i < count; i++)
        copy_sized(target + i * room, room, source + i * stride, stride);
}

static void lift_optimizer(gyre_entry *entry)
{
    const gyre_optimizer *given = entry->given->descriptor;
    gyre_lifted_optimizer *out = &entry->lifted.optimizer;

    copy_sized(&out->optimizer, sizeof(out->optimizer), given, given->size);
    copy_array(out->slots, sizeof(out->slots[0]), given->slots,
               given->slot_count);
    copy_array(out->variants, sizeof(out->variants[0]), given->variants,
               given->variant_count);
    for (size_t i = 0; i < given->variant_count; i++) {
        gyre_variant *variant = &out->variants[i];
        uint32_t known = variant->loop_count < GYRE_LOOP_COUNT
                             ? variant->loop_count
                             : (uint32_t)GYRE_LOOP_COUNT;

        memcpy(out->loops[i], variant->loops, known * sizeof(out->loops[i][0]));
        variant->loops = out->loops[i];
        variant->loop_count = GYRE_LOOP_COUNT;
    }
    out->optimizer.slots = out->slots;
    out->optimizer.variants = out->variants;
    entry->plugin.descriptor = &out->optimizer;
}

static void lift_compressor(gyre_entry *entry)
{
    const gyre_compressor *given = entry->given->descriptor;
    gyre_lifted_compressor *out = &entry->lifted.compressor;

    copy_sized(&out->compressor, sizeof(out->compressor), given, given->size);
    copy_array(out->loops, sizeof(out->loops[0]), given->loops,
               given->loop_count < GYRE_LOOP_COUNT ? given->loop_count
                                                   : (size_t)GYRE_LOOP_COUNT);
    out->compressor.loops = out->loops;
    out->compressor.loop_count = GYRE_LOOP_COUNT;
    entry->plugin.descriptor = &out->compressor;
}

static void lift_schedule(gyre_entry *entry)
{
    const gyre_schedule *given = entry->given->descriptor;

    copy_sized(&entry->lifted.schedule, sizeof(entry->lifted.schedule), given,
               given->size);
    entry->plugin.descriptor = &entry->lifted.schedule;
}

void gyre_lift(const gyre_plugin *given, gyre_entry *entry)
{
    entry->given = given;
    copy_sized(&entry->plugin, sizeof(entry->plugin), given, given->size);
    copy_array(entry->parameters, sizeof(entry->parameters[0]),
               given->parameters, given->parameter_count);
    entry->plugin.parameters = entry->parameters;
    if (strcmp(given->kind, GYRE_KIND_OPTIMIZER) == 0)
        lift_optimizer(entry);
    if (strcmp(given->kind, GYRE_KIND_COMPRESSOR) == 0)
        lift_compressor(entry);
    if (strcmp(given->kind, GYRE_KIND_SCHEDULE) == 0)
        lift_schedule(entry);
}
