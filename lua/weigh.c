/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring devices in Lua. */
#include "config.h"

#include "module.h"

#include <string.h>

static void push_speed(lua_State *L, const char *device,
                       const gyre_device_speed *s)
{
    lua_createtable(L, 0, 7);
    gl_set_text(L, "device", device);
    gl_set_number(L, "read_rate", s->read_rate);
    gl_set_number(L, "write_rate", s->write_rate);
    gl_set_number(L, "rate", s->rate);
    gl_set_number(L, "weight", s->weight);
    gl_set_integer(L, "bytes", s->bytes);
    gl_set_flag(L, "direct", s->direct);
}

/* gyre.weigh(devices [, { bytes =, seconds = }]) -> a table for each */
int gl_weigh(lua_State *L)
{
    static const char *const names[] = {"bytes", "seconds", NULL};
    gl_context *context;
    int base = gl_take_context(L, &context);
    gyre_device_speed speeds[GYRE_MAX_DEVICES];
    const char *const *devices = NULL;
    size_t count = 0;
    gyre_error error = {0};
    uint64_t bytes = 0;
    double seconds = 0;

    luaL_checktype(L, base + 1, LUA_TTABLE);
    if (!lua_isnoneornil(L, base + 2)) {
        luaL_checktype(L, base + 2, LUA_TTABLE);
        gl_check_fields(L, base + 2, "weigh", names);
        bytes = (uint64_t)gl_integer(L, base + 2, "bytes", 0, 0, INT64_MAX);
        seconds = gl_number(L, base + 2, "seconds", 0);
    }
    if (!(seconds >= 0 && seconds <= 3600))
        luaL_error(L, "field 'seconds': 0 to 3600 expected");
    /* gl_devices reads a field. */
    lua_settop(L, base + 2);
    lua_newtable(L);
    lua_pushvalue(L, base + 1);
    lua_setfield(L, base + 3, "devices");
    lua_newtable(L);
    gl_devices(L, base + 3, base + 4, &devices, &count);
    gyre_status status =
        gyre_store_measure(context->context, devices, count, bytes,
                           (uint64_t)(seconds * 1e9), speeds, &error);
    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    lua_createtable(L, (int)count, 0);
    for (size_t d = 0; d < count; d++) {
        push_speed(L, devices[d], &speeds[d]);
        lua_rawseti(L, -2, (lua_Integer)d + 1);
    }
    return 1;
}

gyre_status gl_measured(lua_State *L, gl_context *context, int t, int anchor,
                        gyre_store_spec *spec, gyre_error *error)
{
    gyre_device_speed speeds[GYRE_MAX_DEVICES];
    bool asked = lua_getfield(L, t, "weights") == LUA_TSTRING;

    lua_pop(L, 1);
    /* One folder for all of them: there is nothing to tell apart. */
    if (!asked || spec->devices == NULL)
        return GYRE_OK;
    gyre_status status =
        gyre_store_measure(context->context, spec->devices, spec->device_count,
                           0, 0, speeds, error);
    if (status != GYRE_OK)
        return status;
    double *weights =
        gl_scratch(L, anchor, spec->device_count, sizeof(*weights));
    for (size_t d = 0; d < spec->device_count; d++)
        weights[d] = speeds[d].weight;
    spec->weights = weights;
    return GYRE_OK;
}
