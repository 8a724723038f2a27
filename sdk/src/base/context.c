/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a context, its options, its log, and what the rooms hang on it. */
#include "config.h"

#include "base/context.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- instruction sets ------------------------------------------------ */

static const char *const isa_names[GYRE_ISA_COUNT] = {"scalar", "avx2",
                                                      "avx512"};

const char *gyre_isa_name(gyre_isa isa)
{
    return (unsigned)isa < GYRE_ISA_COUNT ? isa_names[isa] : "unknown";
}

static bool machine_has(gyre_isa isa)
{
    switch (isa) {
    case GYRE_ISA_SCALAR:
        return true;
#if defined(__x86_64__)
    case GYRE_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case GYRE_ISA_AVX512:
        return __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl");
#endif
    default:
        return false;
    }
}

static gyre_isa best_isa(void)
{
    int isa = GYRE_ISA_COUNT - 1;

    while (!machine_has((gyre_isa)isa))
        isa--;
    return (gyre_isa)isa;
}

/* The option wins over GYRE_ISA, which wins over what the machine has. */
static gyre_status choose_isa(const char *name, gyre_isa *out,
                              gyre_error *error)
{
    const char *origin = "option instruction_set";

    if (name == NULL) {
        name = getenv("GYRE_ISA");
        origin = "environment variable GYRE_ISA";
    }
    if (name == NULL || name[0] == '\0') {
        *out = best_isa();
        return GYRE_OK;
    }
    for (int i = 0; i < GYRE_ISA_COUNT; i++) {
        if (strcmp(name, isa_names[i]) != 0)
            continue;
        if (!machine_has((gyre_isa)i))
            return gyre_fail(error, GYRE_UNSUPPORTED,
                             "%s: this machine has no %s; its best is %s",
                             origin, name, isa_names[best_isa()]);
        *out = (gyre_isa)i;
        return GYRE_OK;
    }
    return gyre_fail(error, GYRE_INVALID,
                     "%s: \"%s\" is not one of scalar, avx2, avx512", origin,
                     name);
}

/* ---- options --------------------------------------------------------- */

/*
 * Copy what the caller knows.  A caller built against a later header may pass
 * more; that is fine as long as it leaves what we do not know at zero.
 */
static gyre_status read_options(const gyre_context_options *given,
                                gyre_context_options *out, gyre_error *error)
{
    const unsigned char *bytes = (const unsigned char *)given;

    memset(out, 0, sizeof(*out));
    if (given == NULL)
        return GYRE_OK;
    if (given->size < sizeof(given->size))
        return gyre_fail(error, GYRE_INVALID,
                         "context options: size is %zu; set it to "
                         "sizeof(gyre_context_options)",
                         given->size);
    for (size_t i = sizeof(*out); i < given->size; i++) {
        if (bytes[i] != 0)
            return gyre_fail(error, GYRE_UNSUPPORTED,
                             "context options: byte %zu is set, but version "
                             "%s of the library knows only %zu bytes",
                             i, gyre_version(), sizeof(*out));
    }
    memcpy(out, given, given->size < sizeof(*out) ? given->size : sizeof(*out));
    return GYRE_OK;
}

/* ---- life ------------------------------------------------------------ */

gyre_status gyre_context_create(const gyre_context_options *options,
                                gyre_context **out, gyre_error *error)
{
    gyre_context_options chosen;
    gyre_context *context;
    gyre_status status;
    gyre_isa isa = GYRE_ISA_SCALAR;

    if (out == NULL)
        return gyre_fail(error, GYRE_INVALID,
                         "gyre_context_create: out is NULL");
    status = read_options(options, &chosen, error);
    if (status != GYRE_OK)
        return status;
    status = choose_isa(chosen.instruction_set, &isa, error);
    if (status != GYRE_OK)
        return status;
    if (chosen.allocator.resize == NULL)
        chosen.allocator.resize = gyre_resize_default;

    context = chosen.allocator.resize(chosen.allocator.user, NULL, 0,
                                      sizeof(*context), 16);
    if (context == NULL)
        goto no_memory;
    memset(context, 0, sizeof(*context));
    context->allocator = chosen.allocator;
    context->memory = sizeof(*context);
    context->memory_peak = sizeof(*context);
    context->log = chosen.log;
    context->log_user = chosen.log_user;
    context->isa = isa;
    context->trace_records = chosen.trace_records;
    context->plugin_path = gyre_copy_text(context, chosen.plugin_path);
    if (context->plugin_path == NULL && chosen.plugin_path != NULL)
        goto free_context;
    if (pthread_mutex_init(&context->lock, NULL) != 0)
        goto free_path;
    *out = context;
    return GYRE_OK;

free_path:
    gyre_free_text(context, context->plugin_path);
free_context:
    chosen.allocator.resize(chosen.allocator.user, context, sizeof(*context), 0,
                            16);
no_memory:
    return gyre_fail(error, GYRE_NO_MEMORY,
                     "context: the allocator refused %zu bytes",
                     sizeof(*context));
}

void gyre_context_destroy(gyre_context *context)
{
    gyre_allocator allocator;

    if (context == NULL)
        return;
    for (int i = GYRE_ROOM_COUNT - 1; i >= 0; i--) {
        gyre_room_slot *slot = &context->rooms[i];

        if (slot->state != NULL && slot->release != NULL)
            slot->release(context, slot->state);
        slot->state = NULL;
    }
    pthread_mutex_destroy(&context->lock);
    gyre_free_text(context, context->plugin_path);
    allocator = context->allocator;
    allocator.resize(allocator.user, context, sizeof(*context), 0, 16);
}

/* ---- what it holds --------------------------------------------------- */

const char *gyre_context_instruction_set(const gyre_context *context)
{
    return gyre_isa_name(context->isa);
}

gyre_isa gyre_context_isa(const gyre_context *context)
{
    return context->isa;
}

const char *gyre_context_plugin_path(const gyre_context *context)
{
    return context->plugin_path;
}

uint32_t gyre_context_trace_records(const gyre_context *context)
{
    return context->trace_records;
}

void gyre_log(gyre_context *context, gyre_log_level level, const char *format,
              ...)
{
    char text[GYRE_ERROR_TEXT];
    va_list arguments;

    if (context->log == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    context->log(context->log_user, level, text);
}

void *gyre_context_room(gyre_context *context, gyre_room room)
{
    assert((unsigned)room < GYRE_ROOM_COUNT);
    return atomic_load_explicit(&context->rooms[room].state,
                                memory_order_acquire);
}

void gyre_context_set_room(gyre_context *context, gyre_room room, void *state,
                           void (*release)(gyre_context *, void *))
{
    assert((unsigned)room < GYRE_ROOM_COUNT);
    context->rooms[room].release = release;
    atomic_store_explicit(&context->rooms[room].state, state,
                          memory_order_release);
}

void gyre_context_lock(gyre_context *context)
{
    pthread_mutex_lock(&context->lock);
}

void gyre_context_unlock(gyre_context *context)
{
    pthread_mutex_unlock(&context->lock);
}
