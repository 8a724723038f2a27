/* SPDX-License-Identifier: Apache-2.0 */
/* Errors and table fields, the same for every function of the Lua module. */
#include "config.h"

#include "module.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The caller's own mistakes raise.  Of that group, what depends on the state
 * of the machine (a path that is missing or taken, a part that was left out)
 * is for the script to decide about. */
static bool is_misuse(gyre_status status)
{
    switch (status) {
    case GYRE_INVALID:
    case GYRE_RANGE:
    case GYRE_STATE:
    case GYRE_DUPLICATE:
    case GYRE_MISSING:
    case GYRE_PARAMETER:
        return true;
    default:
        return false;
    }
}

int gl_fail(lua_State *L, gyre_status status, const gyre_error *error)
{
    const char *text = error->text[0] ? error->text : gyre_status_text(status);

    if (is_misuse(status))
        return luaL_error(L, "%s", text);
    lua_pushnil(L);
    lua_pushstring(L, text);
    lua_pushstring(L, gyre_status_name(status));
    return 3;
}

int gl_done(lua_State *L)
{
    lua_pushboolean(L, 1);
    return 1;
}

void *gl_scratch(lua_State *L, int anchor, size_t count, size_t size)
{
    if (count > SIZE_MAX / 2 / size)
        luaL_error(L, "%I elements are too many", (LUAI_UACINT)count);
    anchor = lua_absindex(L, anchor);
    void *block = lua_newuserdatauv(L, count * size + 1, 0);

    memset(block, 0, count * size + 1);
    lua_rawseti(L, anchor, (lua_Integer)lua_rawlen(L, anchor) + 1);
    return block;
}

static int bad_field(lua_State *L, const char *name, const char *want)
{
    return luaL_error(L, "field '%s': %s expected, got %s", name, want,
                      luaL_typename(L, -1));
}

lua_Integer gl_integer(lua_State *L, int t, const char *name,
                       lua_Integer standard, lua_Integer min, lua_Integer max)
{
    int exact;

    if (lua_getfield(L, t, name) == LUA_TNIL) {
        lua_pop(L, 1);
        return standard;
    }
    lua_Integer value = lua_tointegerx(L, -1, &exact);
    if (!exact || lua_type(L, -1) != LUA_TNUMBER)
        bad_field(L, name, "integer");
    if (value < min || value > max)
        luaL_error(L, "field '%s': %I is outside %I to %I", name,
                   (LUAI_UACINT)value, (LUAI_UACINT)min, (LUAI_UACINT)max);
    lua_pop(L, 1);
    return value;
}

double gl_number(lua_State *L, int t, const char *name, double standard)
{
    if (lua_getfield(L, t, name) == LUA_TNIL) {
        lua_pop(L, 1);
        return standard;
    }
    if (lua_type(L, -1) != LUA_TNUMBER)
        bad_field(L, name, "number");
    double value = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return value;
}

bool gl_flag(lua_State *L, int t, const char *name)
{
    if (lua_getfield(L, t, name) != LUA_TNIL && !lua_isboolean(L, -1))
        bad_field(L, name, "true or false");
    bool value = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

const char *gl_text(lua_State *L, int t, const char *name)
{
    const char *value = NULL;

    if (lua_getfield(L, t, name) != LUA_TNIL) {
        if (lua_type(L, -1) != LUA_TSTRING)
            bad_field(L, name, "string");
        value = lua_tostring(L, -1);
        if (strlen(value) != lua_rawlen(L, -1))
            luaL_error(L, "field '%s' holds a zero byte", name);
    }
    lua_pop(L, 1);
    return value;
}

bool gl_table(lua_State *L, int t, const char *name)
{
    if (lua_getfield(L, t, name) == LUA_TNIL) {
        lua_pop(L, 1);
        return false;
    }
    if (!lua_istable(L, -1))
        bad_field(L, name, "table");
    return true;
}

static void raise_unknown(lua_State *L, const char *what, const char *key,
                          const char *const *names)
{
    luaL_Buffer list;

    luaL_buffinit(L, &list);
    for (size_t i = 0; names[i] != NULL; i++) {
        if (i != 0)
            luaL_addstring(&list, ", ");
        luaL_addstring(&list, names[i]);
    }
    luaL_pushresult(&list);
    luaL_error(L, "%s has no field '%s'; it takes: %s", what, key,
               lua_tostring(L, -1));
}

void gl_check_fields(lua_State *L, int t, const char *what,
                     const char *const *names)
{
    luaL_checkstack(L, 4, "fields");
    lua_pushnil(L);
    while (lua_next(L, t) != 0) {
        if (lua_type(L, -2) == LUA_TSTRING) {
            const char *key = lua_tostring(L, -2);
            size_t i = 0;

            while (names[i] != NULL && strcmp(names[i], key) != 0)
                i++;
            if (names[i] == NULL)
                raise_unknown(L, what, key, names);
        }
        lua_pop(L, 1);
    }
}

void gl_set_integer(lua_State *L, const char *name, uint64_t value)
{
    lua_pushinteger(L, (lua_Integer)value);
    lua_setfield(L, -2, name);
}

void gl_set_number(lua_State *L, const char *name, double value)
{
    lua_pushnumber(L, value);
    lua_setfield(L, -2, name);
}

void gl_set_flag(lua_State *L, const char *name, int value)
{
    lua_pushboolean(L, value);
    lua_setfield(L, -2, name);
}

void gl_set_text(lua_State *L, const char *name, const char *value)
{
    lua_pushstring(L, value);
    lua_setfield(L, -2, name);
}

bool gl_module_flag(lua_State *L, const char *name)
{
    bool value = false;

    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    if (lua_getfield(L, -1, "gyre") == LUA_TTABLE) {
        lua_getfield(L, -1, name);
        value = lua_toboolean(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 2);
    return value;
}

uint64_t gl_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * os.exit(code, true) of the standard library closes every handle, and no pcall
 * of the script can swallow it.  It must be that function itself: lua_close
 * unloads the shared module, this code with it, so nothing here may run after.
 */
int gl_exit(lua_State *L, int code)
{
    fflush(NULL);
    luaL_checkstack(L, LUA_MINSTACK, "exit");
    if (lua_getfield(L, LUA_REGISTRYINDEX, GL_EXIT) != LUA_TFUNCTION)
        return luaL_error(L, "exit %d without os.exit", code);
    lua_pushinteger(L, code);
    lua_pushboolean(L, 1);
    lua_call(L, 2, 0);
    return 0;
}
