/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of a script turned into the structs of <gyre/store.h>. */
#include "config.h"

#include "module.h"

#include <string.h>

#define MAX_INTEGER INT64_MAX

static const char *const option_fields[] = {
    "io",        "buffers",      "commit_every",
    "fast",      "read_only",    "no_read_check",
    "lock_wait", "memory_limit", "devices",
    "progress",  "compute",      "link_rate",
    "placement", "gradients",    "allow_inexact",
    "endurance", "wear_budget",  NULL};

static const char *const create_fields[] = {"tensors",        "optimizer",
                                            "devices",        "weights",
                                            "chunk_elements", "blob_bytes",
                                            "in_place",       "io",
                                            "buffers",        "commit_every",
                                            "no_read_check",  "lock_wait",
                                            "memory_limit",   "state",
                                            "compressor",     "residual",
                                            "spill",          "seed",
                                            "compute",        "link_rate",
                                            "placement",      "gradients",
                                            "allow_inexact",  "endurance",
                                            "wear_budget",    NULL};

void gl_check_store_fields(lua_State *L, int t, bool create)
{
    if (create)
        gl_check_fields(L, t, "a store", create_fields);
    else
        gl_check_fields(L, t, "opening a store", option_fields);
}

/* ---- tensors ----------------------------------------------------------- */

static void read_shape(lua_State *L, int t, gyre_tensor *tensor)
{
    if (!gl_table(L, t, "shape"))
        luaL_error(L, "tensor '%s' has no shape", tensor->name);
    size_t rank = lua_rawlen(L, -1);
    if (rank > GYRE_MAX_RANK)
        luaL_error(L, "tensor '%s': rank %I is above %d", tensor->name,
                   (LUAI_UACINT)rank, GYRE_MAX_RANK);
    tensor->rank = (uint32_t)rank;
    for (size_t i = 0; i < rank; i++) {
        int exact;

        lua_rawgeti(L, -1, (lua_Integer)i + 1);
        lua_Integer n = lua_tointegerx(L, -1, &exact);
        if (!exact || n < 0)
            luaL_error(L, "tensor '%s': extent %d of its shape is %s",
                       tensor->name, (int)i + 1, luaL_tolstring(L, -1, NULL));
        tensor->shape[i] = (uint64_t)n;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

static uint64_t elements_of(lua_State *L, const gyre_tensor *tensor)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < tensor->rank; i++)
        if (__builtin_mul_overflow(n, tensor->shape[i], &n))
            luaL_error(L, "tensor '%s' has more than 2^64 elements",
                       tensor->name);
    return n;
}

static void read_data(lua_State *L, int t, gyre_tensor *tensor)
{
    const char *dtype = gl_text(L, t, "dtype");
    gyre_error error = {0};

    if (dtype != NULL && gyre_dtype_parse(dtype, &tensor->dtype, &error))
        luaL_error(L, "tensor '%s': %s", tensor->name, error.text);
    if (lua_getfield(L, t, "data") != LUA_TNIL) {
        gyre_lua_array *a = luaL_testudata(L, -1, GYRE_LUA_ARRAY);
        uint64_t n = elements_of(L, tensor);

        if (a == NULL || (a->data == NULL && a->n != 0))
            luaL_error(L, "tensor '%s': its data is not a gyre.array%s",
                       tensor->name, a != NULL ? " that is open" : "");
        if (a->n != n)
            luaL_error(L, "tensor '%s' has %I elements, its data %I",
                       tensor->name, (LUAI_UACINT)n, (LUAI_UACINT)a->n);
        tensor->data = a->data;
        tensor->dtype = (gyre_dtype)a->dtype;
    }
    lua_pop(L, 1);
}

/* { name = "wte", shape = { 256, 64 }, group = 1, data = array }, the name
 * may also come first without its key. */
static void read_tensor(lua_State *L, int t, lua_Integer i, gyre_tensor *tensor)
{
    static const char *const names[] = {"name",  "shape", "group", "frozen",
                                        "dtype", "data",  NULL};

    gl_check_fields(L, t, "a tensor", names);
    tensor->name = gl_text(L, t, "name");
    if (tensor->name == NULL) {
        if (lua_rawgeti(L, t, 1) != LUA_TSTRING)
            luaL_error(L, "tensor %I has no name", (LUAI_UACINT)i);
        tensor->name = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    tensor->group = (uint32_t)gl_integer(L, t, "group", 1, 1, INT32_MAX) - 1;
    tensor->flags = gl_flag(L, t, "frozen") ? GYRE_TENSOR_FROZEN : 0;
    read_shape(L, t, tensor);
    read_data(L, t, tensor);
}

static void read_tensors(lua_State *L, int t, int anchor, gyre_store_spec *spec)
{
    if (!gl_table(L, t, "tensors"))
        luaL_error(L, "field 'tensors' is missing: a list of tables with "
                      "name, shape, group, data");
    size_t n = lua_rawlen(L, -1);
    gyre_tensor *tensors = gl_scratch(L, anchor, n, sizeof(*tensors));

    for (size_t i = 0; i < n; i++) {
        if (lua_rawgeti(L, -1, (lua_Integer)i + 1) != LUA_TTABLE)
            luaL_error(L, "tensor %I is a %s, not a table", (LUAI_UACINT)i + 1,
                       luaL_typename(L, -1));
        read_tensor(L, lua_gettop(L), (lua_Integer)i + 1, &tensors[i]);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    spec->tensors = tensors;
    spec->tensor_count = n;
}

/* ---- devices and options ----------------------------------------------- */

void gl_devices(lua_State *L, int t, int anchor, const char *const **devices,
                size_t *count)
{
    if (lua_getfield(L, t, "devices") != LUA_TTABLE) {
        lua_pop(L, 1);
        *count = (size_t)gl_integer(L, t, "devices", 0, 0, GYRE_MAX_DEVICES);
        return;
    }
    size_t n = lua_rawlen(L, -1);
    if (n == 0 || n > GYRE_MAX_DEVICES)
        luaL_error(L, "field 'devices': %I paths; 1 to %d are possible",
                   (LUAI_UACINT)n, GYRE_MAX_DEVICES);
    const char **list = gl_scratch(L, anchor, n, sizeof(*list));
    for (size_t i = 0; i < n; i++) {
        if (lua_rawgeti(L, -1, (lua_Integer)i + 1) != LUA_TSTRING)
            luaL_error(L, "device %d is a %s, not a path", (int)i + 1,
                       luaL_typename(L, -1));
        list[i] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    *devices = list;
    *count = n;
}

void gl_weights(lua_State *L, int t, int anchor, const double **weights,
                size_t *count)
{
    if (lua_getfield(L, t, "weights") == LUA_TSTRING) {
        if (strcmp(lua_tostring(L, -1), "measured") != 0)
            luaL_error(L,
                       "field 'weights': a list of numbers, or "
                       "\"measured\", not \"%s\"",
                       lua_tostring(L, -1));
        lua_pop(L, 1);
        return; /* gl_measured */
    }
    lua_pop(L, 1);
    if (!gl_table(L, t, "weights"))
        return;
    size_t n = lua_rawlen(L, -1);
    if (*count == 0)
        *count = n;
    if (n != *count)
        luaL_error(L, "%I weights for %I devices", (LUAI_UACINT)n,
                   (LUAI_UACINT)*count);
    double *list = gl_scratch(L, anchor, n, sizeof(*list));
    for (size_t i = 0; i < n; i++) {
        if (lua_rawgeti(L, -1, (lua_Integer)i + 1) != LUA_TNUMBER)
            luaL_error(L, "weight %d is a %s, not a number", (int)i + 1,
                       luaL_typename(L, -1));
        list[i] = lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    *weights = list;
}

void gl_store_options(lua_State *L, int t, int anchor,
                      gyre_store_options *options)
{
    double wait = gl_number(L, t, "lock_wait", 0);

    options->size = sizeof(*options);
    options->io = gl_text(L, t, "io");
    options->buffers = (uint32_t)gl_integer(L, t, "buffers", 0, 0, UINT32_MAX);
    options->commit_every =
        (uint32_t)gl_integer(L, t, "commit_every", 0, 0, UINT32_MAX);
    options->fast = gl_flag(L, t, "fast");
    options->read_only = gl_flag(L, t, "read_only");
    options->no_read_check = gl_flag(L, t, "no_read_check");
    if (!(wait >= 0 && wait < 1e9))
        luaL_error(L, "field 'lock_wait': seconds from 0 to 1e9 expected");
    options->lock_wait_ns = (uint64_t)(wait * 1e9);
    options->memory_limit =
        (uint64_t)gl_integer(L, t, "memory_limit", 0, 0, MAX_INTEGER);
    gl_devices(L, t, anchor, &options->devices, &options->device_count);
    gl_near_options(L, t, anchor, options);
}

static gyre_status read_optimizer(lua_State *L, gl_context *context, int t,
                                  int anchor, gyre_store_spec *spec,
                                  gyre_error *error)
{
    gyre_status status = GYRE_OK;
    int type = lua_getfield(L, t, "optimizer");

    if (type == LUA_TSTRING) {
        spec->optimizer = lua_tostring(L, -1);
    } else if (type == LUA_TTABLE) {
        int settings = lua_gettop(L);

        if (lua_rawgeti(L, settings, 1) != LUA_TSTRING)
            luaL_error(L, "field 'optimizer': the name comes first, as in "
                          "{ \"adamw\", lr = 1e-3 }");
        spec->optimizer = lua_tostring(L, -1);
        status = gl_settings(L, context, GYRE_KIND_OPTIMIZER, spec->optimizer,
                             settings, anchor, true, &spec->settings,
                             &spec->setting_count, error);
        lua_settop(L, settings);
    } else if (type != LUA_TNIL) {
        luaL_error(L, "field 'optimizer': name or table expected, got %s",
                   lua_typename(L, type));
    }
    lua_pop(L, 1);
    return status;
}

gyre_status gl_spec(lua_State *L, gl_context *context, int t, int anchor,
                    gyre_store_spec *spec, gyre_error *error)
{
    luaL_checkstack(L, LUA_MINSTACK, "store");
    spec->size = sizeof(*spec);
    read_tensors(L, t, anchor, spec);
    gl_devices(L, t, anchor, &spec->devices, &spec->device_count);
    gl_weights(L, t, anchor, &spec->weights, &spec->device_count);
    spec->chunk_elements =
        (uint64_t)gl_integer(L, t, "chunk_elements", 0, 0, MAX_INTEGER);
    spec->blob_bytes =
        (uint64_t)gl_integer(L, t, "blob_bytes", 0, 0, MAX_INTEGER);
    spec->in_place = gl_flag(L, t, "in_place");
    gyre_status status = gl_measured(L, context, t, anchor, spec, error);
    if (status == GYRE_OK)
        status = read_optimizer(L, context, t, anchor, spec, error);
    if (status == GYRE_OK)
        status = gl_near_spec(L, context, t, anchor, spec, error);
    return status;
}
