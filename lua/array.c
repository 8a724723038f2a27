/* SPDX-License-Identifier: Apache-2.0 */
/* gyre.array(dtype, n) and the methods of every array. */
#include "config.h"

#include "module.h"

#include <string.h>

/* gyre.array(dtype, n | table | string) */
int gl_array(lua_State *L)
{
    gyre_error error = {0};
    gyre_dtype dtype;
    size_t bytes = 0;
    lua_Integer n;

    luaL_argcheck(
        L, gyre_dtype_parse(luaL_checkstring(L, 1), &dtype, &error) == GYRE_OK,
        1, error.text);
    size_t size = gyre_lua_dtype_bytes((int)dtype);
    if (lua_istable(L, 2)) {
        n = luaL_len(L, 2);
    } else if (lua_type(L, 2) == LUA_TSTRING) {
        lua_tolstring(L, 2, &bytes);
        luaL_argcheck(L, bytes % size == 0, 2,
                      "its length is no multiple of the element's bytes");
        n = (lua_Integer)(bytes / size);
    } else {
        n = luaL_checkinteger(L, 2);
    }
    luaL_argcheck(L, n >= 0 && (uint64_t)n <= INT64_MAX / 16, 2,
                  "cannot have that many elements");
    gyre_lua_array *a = gyre_lua_new_array(L, (int)dtype, (uint64_t)n);
    if (lua_type(L, 2) == LUA_TSTRING)
        memcpy(a->data, lua_tostring(L, 2), bytes);
    for (lua_Integer i = 0; lua_istable(L, 2) && i < n; i++) {
        lua_geti(L, 2, i + 1);
        gyre_lua_array_put(L, a, (uint64_t)i, lua_gettop(L));
        lua_pop(L, 1);
    }
    return 1;
}

/* The range first (from 1, at `arg`) and count (at arg + 1), checked; the
 * whole array when they are not given. */
static void check_range(lua_State *L, const gyre_lua_array *a, int arg,
                        uint64_t *first, uint64_t *count)
{
    lua_Integer f = luaL_optinteger(L, arg, 1);

    luaL_argcheck(L, f >= 1 && (uint64_t)f <= a->n + 1, arg,
                  "outside the array");
    lua_Integer n =
        luaL_optinteger(L, arg + 1, (lua_Integer)(a->n + 1 - (uint64_t)f));
    luaL_argcheck(L, n >= 0 && (uint64_t)n <= a->n + 1 - (uint64_t)f, arg + 1,
                  "past the end of the array");
    *first = (uint64_t)f - 1;
    *count = (uint64_t)n;
}

static void *at(const gyre_lua_array *a, uint64_t i)
{
    return (char *)a->data + i * gyre_lua_dtype_bytes(a->dtype);
}

static int array_table(lua_State *L)
{
    gyre_lua_array *a = gyre_lua_check_array(L, 1);
    uint64_t first, count;

    check_range(L, a, 2, &first, &count);
    lua_createtable(L, count < INT32_MAX ? (int)count : 0, 0);
    for (uint64_t i = 0; i < count; i++) {
        gyre_lua_array_push(L, a, first + i);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

static int array_string(lua_State *L)
{
    gyre_lua_array *a = gyre_lua_check_array(L, 1);
    uint64_t first, count;

    check_range(L, a, 2, &first, &count);
    lua_pushlstring(L, at(a, first),
                    (size_t)count * gyre_lua_dtype_bytes(a->dtype));
    return 1;
}

static int array_fill(lua_State *L)
{
    gyre_lua_array *a = gyre_lua_check_array(L, 1);
    uint64_t first, count;

    check_range(L, a, 3, &first, &count);
    for (uint64_t i = 0; i < count; i++)
        gyre_lua_array_put(L, a, first + i, 2);
    lua_settop(L, 1);
    return 1;
}

/* set(table | string of raw bytes | array of the same dtype [, first]) */
static int array_set(lua_State *L)
{
    gyre_lua_array *a = gyre_lua_check_array(L, 1);
    size_t size = gyre_lua_dtype_bytes(a->dtype), bytes = 0;
    gyre_lua_array *other = luaL_testudata(L, 2, GYRE_LUA_ARRAY);
    const char *raw = NULL;
    uint64_t first, count, n;

    if (other != NULL) {
        gyre_lua_check_array(L, 2);
        luaL_argcheck(L, other->dtype == a->dtype, 2, "of another dtype");
        raw = other->data;
        n = other->n;
    } else if (lua_type(L, 2) == LUA_TSTRING) {
        raw = lua_tolstring(L, 2, &bytes);
        luaL_argcheck(L, bytes % size == 0, 2,
                      "its length is no multiple of the element's bytes");
        n = bytes / size;
    } else {
        luaL_checktype(L, 2, LUA_TTABLE);
        n = (uint64_t)luaL_len(L, 2);
    }
    lua_settop(L, 3);
    lua_pushinteger(L, (lua_Integer)n);
    check_range(L, a, 3, &first, &count);
    if (raw != NULL && n != 0)
        memmove(at(a, first), raw, (size_t)n * size);
    for (uint64_t i = 0; raw == NULL && i < n; i++) {
        lua_geti(L, 2, (lua_Integer)i + 1);
        gyre_lua_array_put(L, a, first + i, 5);
        lua_pop(L, 1);
    }
    lua_settop(L, 1);
    return 1;
}

/* A window on the same memory, which it keeps alive.  Another module could not
 * take its memory back from under a window that it does not know, so only
 * arrays that hold their own have windows. */
static int array_view(lua_State *L)
{
    gyre_lua_array *a = gyre_lua_check_array(L, 1);
    uint64_t first, count;

    check_range(L, a, 2, &first, &count);
    if (a->data == (void *)(a + 1)) {
        gyre_lua_push_array(L, 1, a->dtype, at(a, first), count);
        return 1;
    }
    lua_getiuservalue(L, 1, 1);
    luaL_argcheck(L, luaL_testudata(L, -1, GYRE_LUA_ARRAY) != NULL, 1,
                  "an array of another module has no views");
    gyre_lua_push_array(L, -1, a->dtype, at(a, first), count);
    return 1;
}

static int array_copy(lua_State *L)
{
    gyre_lua_array *a = gyre_lua_check_array(L, 1);

    lua_settop(L, 1);
    lua_pushcfunction(L, gl_array);
    lua_pushstring(L, gyre_lua_dtype_name(a->dtype));
    lua_pushinteger(L, (lua_Integer)a->n);
    lua_call(L, 2, 1);
    gyre_lua_array *b = lua_touserdata(L, -1);
    memcpy(b->data, a->data, (size_t)a->n * gyre_lua_dtype_bytes(a->dtype));
    return 1;
}

void gl_open_array(lua_State *L)
{
    static const luaL_Reg methods[] = {{"table", array_table},
                                       {"string", array_string},
                                       {"fill", array_fill},
                                       {"set", array_set},
                                       {"view", array_view},
                                       {"copy", array_copy},
                                       {NULL, NULL}};

    gyre_lua_array_metatable(L);
    lua_getfield(L, -1, "__methods");
    luaL_setfuncs(L, methods, 0);
    lua_pop(L, 2);
}
