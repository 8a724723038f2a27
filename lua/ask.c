/* SPDX-License-Identifier: Apache-2.0 */
/* What a script can ask a store: info, tensors, digest, blob, elements. */
#include "config.h"

#include "module.h"

#include <string.h>

static void push_names(lua_State *L, const gyre_store *store)
{
    const char *name;

    lua_newtable(L);
    for (size_t i = 0; (name = gyre_store_slot(store, i)) != NULL; i++) {
        lua_pushstring(L, name);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "slot_names");
    lua_newtable(L);
    for (size_t i = 0; (name = gyre_store_device(store, i, NULL)); i++) {
        lua_pushstring(L, name);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "device_paths");
}

/* codecs = { parameter = "bf16", exp_avg = "q8" } */
static void push_codecs(lua_State *L, const gyre_store *store)
{
    const char *name = "parameter";

    lua_newtable(L);
    for (int slot = -1; name != NULL;
         name = gyre_store_slot(store, (size_t)slot)) {
        gl_set_text(L, name,
                    gyre_state_codec_name(gyre_store_codec(store, slot)));
        slot++;
    }
    lua_setfield(L, -2, "codecs");
}

/* compressor = { name =, version =, residual =, parameters = {} } */
static void push_compressor(lua_State *L, const gyre_store *store,
                            const gyre_store_info *info)
{
    const char *name;
    double value;

    lua_createtable(L, 0, 4);
    gl_set_text(L, "name", info->compressor);
    gl_set_text(L, "version", info->compressor_version);
    gl_set_text(L, "residual", gyre_residual_name(info->residual));
    lua_newtable(L);
    for (size_t i = 0;
         (name = gyre_store_compressor_setting(store, i, &value)) != NULL; i++)
        gl_set_number(L, name, value);
    lua_setfield(L, -2, "parameters");
    lua_setfield(L, -2, "compressor");
}

static int store_info(lua_State *L)
{
    gl_store *s = gl_check_store(L, 1);
    gyre_store_info info = {.size = sizeof(info)};
    gyre_error error = {0};
    gyre_status status = gyre_store_get_info(s->store, &info, &error);

    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    lua_createtable(L, 0, 40);
    gl_set_integer(L, "round", info.round);
    gl_set_integer(L, "step", info.step);
    gl_set_integer(L, "commit", info.commit);
    gl_set_integer(L, "committed_round", info.committed_round);
    gl_set_integer(L, "committed_step", info.committed_step);
    gl_set_integer(L, "generation", info.generation);
    gl_set_integer(L, "tensors", info.tensors);
    gl_set_integer(L, "elements", info.elements);
    gl_set_integer(L, "chunks", info.chunks);
    gl_set_integer(L, "chunk_elements", info.chunk_elements);
    gl_set_integer(L, "padding_bytes", info.padding_bytes);
    gl_set_integer(L, "disk_bytes", info.disk_bytes);
    gl_set_integer(L, "blob_capacity", info.blob_capacity);
    gl_set_integer(L, "devices", info.devices);
    gl_set_integer(L, "groups", info.groups);
    gl_set_integer(L, "slots", info.slots);
    gl_set_flag(L, "in_place", info.in_place);
    gl_set_flag(L, "whole", info.whole);
    gl_set_flag(L, "fell_back", info.fell_back);
    gl_set_text(L, "uuid", info.uuid);
    gl_set_text(L, "path", info.path);
    gl_set_text(L, "optimizer", info.optimizer);
    gl_set_text(L, "optimizer_version", info.optimizer_version);
    gl_set_text(L, "variant", info.variant);
    gl_set_text(L, "io", info.io);
    gl_set_number(L, "loss_scale", info.loss_scale);
    gl_set_flag(L, "spill", info.spill);
    gl_set_flag(L, "exact", info.exact);
    gl_set_integer(L, "seed", info.seed);
    gl_set_integer(L, "written", info.written);
    push_names(L, s->store);
    push_codecs(L, s->store);
    if (info.compressor != NULL)
        push_compressor(L, s->store, &info);
    return 1;
}

static gyre_status push_tensor(lua_State *L, const gyre_store *store, size_t i,
                               gyre_error *error)
{
    gyre_tensor t = {0};
    uint64_t step = 0, n = 1;
    gyre_status status = gyre_store_tensor(store, i, &t, &step, error);

    if (status != GYRE_OK)
        return status;
    lua_createtable(L, 0, 8);
    gl_set_text(L, "name", t.name);
    gl_set_integer(L, "group", t.group + 1);
    gl_set_flag(L, "frozen", t.flags & GYRE_TENSOR_FROZEN);
    gl_set_integer(L, "step", step);
    lua_createtable(L, (int)t.rank, 0);
    for (uint32_t k = 0; k < t.rank; k++) {
        n *= t.shape[k];
        lua_pushinteger(L, (lua_Integer)t.shape[k]);
        lua_rawseti(L, -2, (lua_Integer)k + 1);
    }
    lua_setfield(L, -2, "shape");
    gl_set_integer(L, "elements", n);
    return GYRE_OK;
}

static int store_tensors(lua_State *L)
{
    gl_store *s = gl_check_store(L, 1);
    gyre_store_info info = {.size = sizeof(info)};
    gyre_error error = {0};
    gyre_status status = gyre_store_get_info(s->store, &info, &error);

    lua_newtable(L);
    for (size_t i = 0; status == GYRE_OK && i < info.tensors; i++) {
        status = push_tensor(L, s->store, i, &error);
        if (status == GYRE_OK)
            lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return status == GYRE_OK ? 1 : gl_fail(L, status, &error);
}

static int store_tensor(lua_State *L)
{
    gl_store *s = gl_check_store(L, 1);
    size_t i = gl_check_tensor(L, s, 2);
    gyre_error error = {0};
    gyre_status status = push_tensor(L, s->store, i, &error);

    return status == GYRE_OK ? 1 : gl_fail(L, status, &error);
}

static int store_digest(lua_State *L)
{
    gl_store *s = gl_check_store(L, 1);
    char text[GYRE_DIGEST_TEXT];
    gyre_error error = {0};
    gyre_status status = gyre_store_digest(s->store, text, &error);

    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    lua_pushstring(L, text);
    return 1;
}

static int store_blob(lua_State *L)
{
    gl_store *s = gl_check_store(L, 1);
    size_t bytes = 0;
    const void *blob = gyre_store_blob(s->store, &bytes);

    if (blob == NULL)
        lua_pushnil(L);
    else
        lua_pushlstring(L, blob, bytes);
    return 1;
}

/* nil, 0 or "parameter": the parameter; else a state slot by name or, from 1,
 * by number. */
static int check_slot(lua_State *L, gl_store *s, int arg)
{
    const char *name;

    if (lua_isnoneornil(L, arg))
        return -1;
    if (lua_isinteger(L, arg)) {
        lua_Integer i = lua_tointeger(L, arg);

        luaL_argcheck(L,
                      i >= 0 && i < 1024 &&
                          (i == 0 || gyre_store_slot(s->store, (size_t)i - 1)),
                      arg, "no such state slot");
        return (int)i - 1;
    }
    const char *wanted = luaL_checkstring(L, arg);
    if (strcmp(wanted, "parameter") == 0)
        return -1;
    for (size_t i = 0; (name = gyre_store_slot(s->store, i)) != NULL; i++)
        if (strcmp(name, wanted) == 0)
            return (int)i;
    lua_pushfstring(L, "no state slot '%s'; info().slot_names lists them",
                    wanted);
    return luaL_argerror(L, arg, lua_tostring(L, -1));
}

/* read(tensor [, slot [, first [, count [, dtype]]]]) -> array */
static int store_read(lua_State *L)
{
    gl_store *s = gl_check_store(L, 1);
    size_t tensor = gl_check_tensor(L, s, 2);
    int slot = check_slot(L, s, 3);
    lua_Integer first = luaL_optinteger(L, 4, 1);
    const char *dtype_name = luaL_optstring(L, 6, "f32");
    gyre_tensor t = {0};
    gyre_dtype dtype;
    gyre_error error = {0};
    uint64_t n = 1;

    gyre_status status = gyre_store_tensor(s->store, tensor, &t, NULL, &error);
    if (status == GYRE_OK)
        status = gyre_dtype_parse(dtype_name, &dtype, &error);
    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    for (uint32_t i = 0; i < t.rank; i++)
        n *= t.shape[i];
    luaL_argcheck(L, first >= 1 && (uint64_t)first <= n + 1, 4,
                  "past the tensor's end");
    lua_Integer count =
        luaL_optinteger(L, 5, (lua_Integer)(n + 1 - (uint64_t)first));
    luaL_argcheck(L, count >= 0 && (uint64_t)count <= n + 1 - (uint64_t)first,
                  5, "past the tensor's end");
    lua_pushcfunction(L, gl_array);
    lua_pushstring(L, dtype_name);
    lua_pushinteger(L, count);
    lua_call(L, 2, 1);
    gyre_lua_array *a = lua_touserdata(L, -1);
    status = gyre_store_read(s->store, tensor, slot, (uint64_t)first - 1,
                             (uint64_t)count, dtype, a->data, &error);
    return status == GYRE_OK ? 1 : gl_fail(L, status, &error);
}

const luaL_Reg gl_ask_methods[] = {{"info", store_info},
                                   {"tensors", store_tensors},
                                   {"tensor", store_tensor},
                                   {"digest", store_digest},
                                   {"blob", store_blob},
                                   {"read", store_read},
                                   {NULL, NULL}};
