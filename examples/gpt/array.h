/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array.h - the userdata with which Lua modules hand arrays to each other.
 *
 * An array is a full userdata with the metatable "gyre.array". It does not
 * own what data points to: user value 1 of the userdata is the object that
 * does, or nil when the elements follow the struct in the same userdata.
 */
#ifndef GYRE_EXAMPLE_ARRAY_H
#define GYRE_EXAMPLE_ARRAY_H

#include <lauxlib.h>
#include <lua.h>
#include <stdint.h>

#define GYRE_LUA_ARRAY "gyre.array"

enum {
    GYRE_LUA_F32,
    GYRE_LUA_F64,
    GYRE_LUA_BF16,
    GYRE_LUA_F16,
    GYRE_LUA_I32,
    GYRE_LUA_U8
};

typedef struct gyre_lua_array {
    size_t size; /* sizeof(gyre_lua_array) */
    void *data;
    uint64_t n; /* elements */
    int32_t dtype;
    int32_t flags; /* 0 */
} gyre_lua_array;

static inline int gyre_lua_array_length(lua_State *L)
{
    const gyre_lua_array *a = luaL_checkudata(L, 1, GYRE_LUA_ARRAY);

    lua_pushinteger(L, (lua_Integer)a->n);
    return 1;
}

/* a[i], 1 <= i <= #a; nil outside, and for 16-bit floats, which Lua cannot
 * hold. */
static inline int gyre_lua_array_index(lua_State *L)
{
    const gyre_lua_array *a = luaL_checkudata(L, 1, GYRE_LUA_ARRAY);
    lua_Integer i = lua_isinteger(L, 2) ? lua_tointeger(L, 2) : 0;

    if (i < 1 || (lua_Unsigned)i > a->n) {
        lua_pushnil(L);
        return 1;
    }
    switch (a->dtype) {
    case GYRE_LUA_F32:
        lua_pushnumber(L, (lua_Number)((const float *)a->data)[i - 1]);
        break;
    case GYRE_LUA_F64:
        lua_pushnumber(L, ((const double *)a->data)[i - 1]);
        break;
    case GYRE_LUA_I32:
        lua_pushinteger(L, ((const int32_t *)a->data)[i - 1]);
        break;
    case GYRE_LUA_U8:
        lua_pushinteger(L, ((const uint8_t *)a->data)[i - 1]);
        break;
    default:
        lua_pushnil(L);
    }
    return 1;
}

/* Whichever module comes first makes the metatable, luaL_newmetatable sets
 * its __name; leaves it on the stack. */
static inline void gyre_lua_array_metatable(lua_State *L)
{
    if (!luaL_newmetatable(L, GYRE_LUA_ARRAY))
        return;
    lua_pushcfunction(L, gyre_lua_array_length);
    lua_setfield(L, -2, "__len");
    lua_pushcfunction(L, gyre_lua_array_index);
    lua_setfield(L, -2, "__index");
}

/* Pushes an array over memory of the object at stack index `owner`; 0 and
 * `extra` bytes: the elements are zeroed and live in the userdata itself. */
static inline gyre_lua_array *gyre_lua_array_push(lua_State *L, int owner,
                                                  size_t extra, void *data,
                                                  uint64_t n, int32_t dtype)
{
    gyre_lua_array *a = lua_newuserdatauv(L, sizeof *a + extra, 1);
    unsigned char *inside = (unsigned char *)(a + 1);

    for (size_t i = 0; i < extra; i++)
        inside[i] = 0;
    *a = (gyre_lua_array){.size = sizeof *a,
                          .data = data ? data : inside,
                          .n = n,
                          .dtype = dtype};
    if (owner) {
        lua_pushvalue(L, owner);
        lua_setiuservalue(L, -2, 1);
    }
    gyre_lua_array_metatable(L);
    lua_setmetatable(L, -2);
    return a;
}

#endif
