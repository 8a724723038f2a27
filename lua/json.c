/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON in Lua, by jansson.
 *
 * The root lies in a userdata from the start and every value is hung into it
 * as soon as it is made, so an error of Lua on the way leaves nothing behind.
 */
#include "config.h"

#include "module.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BOX "gyre.json"

enum { MAX_DEPTH = 100 };

typedef struct box {
    json_t *root;
    char *text;
} box;

static int box_close(lua_State *L)
{
    box *b = luaL_checkudata(L, 1, BOX);

    json_decref(b->root);
    free(b->text);
    b->root = NULL;
    b->text = NULL;
    return 0;
}

static box *push_box(lua_State *L)
{
    box *b = lua_newuserdatauv(L, sizeof(*b), 0);

    b->root = NULL;
    b->text = NULL;
    if (luaL_newmetatable(L, BOX)) {
        lua_pushcfunction(L, box_close);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return b;
}

/* Where a new value goes: into the box, a list, or an object under a key. */
typedef struct place {
    box *box;
    json_t *parent;
    const char *key;
} place;

/* Hang it in, or raise for lack of memory; returns it, still owned there. */
static json_t *hang(lua_State *L, const place *at, json_t *value)
{
    int bad = value == NULL;

    if (bad)
        ;
    else if (at->parent == NULL)
        at->box->root = value;
    else if (at->key != NULL)
        bad = json_object_set_new(at->parent, at->key, value);
    else
        bad = json_array_append_new(at->parent, value);
    if (bad)
        luaL_error(L, "text is not UTF-8, or memory has run out");
    return value;
}

static void encode(lua_State *L, const place *at, int depth);

/* A table with element 1 is a list and has nothing else; an empty one is an
 * object. */
static void encode_table(lua_State *L, const place *at, int depth)
{
    int t = lua_gettop(L);
    size_t n = lua_rawlen(L, t);
    place in = {.box = at->box};

    luaL_checkstack(L, 8, "JSON");
    if (n > 0) {
        in.parent = hang(L, at, json_array());
        for (size_t i = 1; i <= n; i++) {
            lua_rawgeti(L, t, (lua_Integer)i);
            encode(L, &in, depth + 1);
            lua_pop(L, 1);
        }
        return;
    }
    in.parent = hang(L, at, json_object());
    lua_pushnil(L);
    while (lua_next(L, t) != 0) {
        if (lua_type(L, -2) != LUA_TSTRING)
            luaL_error(L, "a key of a JSON object is a %s, not a string",
                       luaL_typename(L, -2));
        in.key = lua_tostring(L, -2);
        encode(L, &in, depth + 1);
        lua_pop(L, 1);
    }
}

/* Encode the value on top of the stack.  JSON has no NaN and no infinity:
 * they become null. */
static void encode(lua_State *L, const place *at, int depth)
{
    size_t length;
    const char *text;

    if (depth > MAX_DEPTH)
        luaL_error(L, "JSON deeper than %d levels", MAX_DEPTH);
    switch (lua_type(L, -1)) {
    case LUA_TNIL:
        hang(L, at, json_null());
        return;
    case LUA_TBOOLEAN:
        hang(L, at, json_boolean(lua_toboolean(L, -1)));
        return;
    case LUA_TNUMBER:
        if (lua_isinteger(L, -1))
            hang(L, at, json_integer(lua_tointeger(L, -1)));
        else if (isfinite(lua_tonumber(L, -1)))
            hang(L, at, json_real(lua_tonumber(L, -1)));
        else
            hang(L, at, json_null());
        return;
    case LUA_TSTRING:
        text = lua_tolstring(L, -1, &length);
        hang(L, at, json_stringn(text, length));
        return;
    case LUA_TTABLE:
        encode_table(L, at, depth);
        return;
    default:
        luaL_error(L, "a %s has no form in JSON", luaL_typename(L, -1));
    }
}

/* gyre.json(value [, "indent"]) -> text; keys sorted, numbers exact. */
int gl_json(lua_State *L)
{
    size_t flags = JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17);

    luaL_checkany(L, 1);
    if (lua_toboolean(L, 2))
        flags |= JSON_INDENT(2);
    lua_settop(L, 1);
    place at = {.box = push_box(L)};
    lua_pushvalue(L, 1);
    encode(L, &at, 0);
    at.box->text = json_dumps(at.box->root, flags);
    if (at.box->text == NULL)
        return luaL_error(L, "memory has run out");
    lua_pushstring(L, at.box->text);
    return 1;
}

static void decode(lua_State *L, const json_t *value)
{
    const char *key;
    json_t *item;
    size_t i;

    luaL_checkstack(L, 8, "JSON");
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        lua_newtable(L);
        json_object_foreach((json_t *)(uintptr_t)value, key, item)
        {
            lua_pushstring(L, key);
            decode(L, item);
            lua_rawset(L, -3);
        }
        return;
    case JSON_ARRAY:
        lua_newtable(L);
        json_array_foreach(value, i, item)
        {
            decode(L, item);
            lua_rawseti(L, -2, (lua_Integer)i + 1);
        }
        return;
    case JSON_STRING:
        lua_pushlstring(L, json_string_value(value), json_string_length(value));
        return;
    case JSON_INTEGER:
        lua_pushinteger(L, json_integer_value(value));
        return;
    case JSON_REAL:
        lua_pushnumber(L, json_real_value(value));
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        lua_pushboolean(L, json_is_true(value));
        return;
    default:
        lua_pushnil(L);
    }
}

/* gyre.json_decode(text) -> value, or nil, message, "FORMAT". */
int gl_json_decode(lua_State *L)
{
    size_t length;
    const char *text = luaL_checklstring(L, 1, &length);
    json_error_t problem;
    box *b = push_box(L);

    b->root =
        json_loadb(text, length, JSON_DECODE_ANY | JSON_ALLOW_NUL, &problem);
    if (b->root == NULL) {
        lua_pushnil(L);
        lua_pushfstring(L, "JSON, line %d column %d: %s", problem.line,
                        problem.column, problem.text);
        lua_pushstring(L, gyre_status_name(GYRE_FORMAT));
        return 3;
    }
    decode(L, b->root);
    return 1;
}
