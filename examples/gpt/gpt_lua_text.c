/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_lua_text.c - gpt.text of the Lua module: a mapped file of tokens.
 *
 *   local text <close> = gpt.text("book.txt", {split = 0.9})
 *   local tokens = text:batch("train", 16, 128, seed, step)
 *   print(#text, text:ngram(3))
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_lua.h"
#include "gpt_text.h"

#include <gyre/dtype.h>
#include <lauxlib.h>
#include <lua.h>

#include <gyre/lua.h>
#include <limits.h>
#include <string.h>

#define TEXT "gyre.example.gpt.text"

static gpt_text *check_text(lua_State *L)
{
    gpt_text *text = luaL_checkudata(L, 1, TEXT);

    luaL_argcheck(L, text->map, 1, "the text is closed");
    return text;
}

/* gpt.text(path [, {split = 0.9, dtype = "u8" | "u16" | "i32"}]) */
static int text_new(lua_State *L)
{
    static const char *const names[] = {"u8", "u16", "i32", NULL};
    const char *path = luaL_checkstring(L, 1);
    double fraction = 0.9;
    int dtype = GPT_TEXT_U8;
    char reason[300] = "";
    gpt_text *text;

    if (!lua_isnoneornil(L, 2)) {
        luaL_checktype(L, 2, LUA_TTABLE);
        lua_settop(L, 2);
        lua_getfield(L, 2, "split");
        fraction = luaL_optnumber(L, 3, fraction);
        lua_getfield(L, 2, "dtype");
        dtype = luaL_checkoption(L, 4, "u8", names);
    }
    text = lua_newuserdatauv(L, sizeof *text, 0);
    *text = (gpt_text){0};
    luaL_setmetatable(L, TEXT);
    if (gpt_text_open(text, path, (gpt_text_dtype)dtype, fraction, reason,
                      sizeof reason) != 0)
        return luaL_error(L, "gpt: %s", reason);
    return 1;
}

static int text_close(lua_State *L)
{
    gpt_text_close(luaL_checkudata(L, 1, TEXT));
    return 0;
}

static int text_length(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)check_text(L)->n);
    return 1;
}

static int text_tostring(lua_State *L)
{
    const gpt_text *text = luaL_checkudata(L, 1, TEXT);

    if (text->map)
        lua_pushfstring(L, "gpt.text (%I tokens, %I to train)",
                        (lua_Integer)text->n, (lua_Integer)text->split);
    else
        lua_pushliteral(L, "gpt.text (closed)");
    return 1;
}

/* Pushes an array of n zeros that lie behind its struct. */
static int32_t *push_tokens(lua_State *L, size_t n)
{
    const size_t bytes = n * sizeof(int32_t);
    gyre_lua_array *a = lua_newuserdatauv(L, sizeof *a + bytes, 1);

    *a = (gyre_lua_array){
        .size = sizeof *a, .data = a + 1, .n = n, .dtype = GYRE_I32};
    memset(a->data, 0, bytes);
    gyre_lua_array_metatable(L);
    lua_setmetatable(L, -2);
    return a->data;
}

/* text:batch(part, batch, length, seed, k) -> i32 array */
static int text_batch(lua_State *L)
{
    static const char *const parts[] = {"train", "valid", NULL};
    gpt_text *text = check_text(L);
    int part = luaL_checkoption(L, 2, NULL, parts);
    size_t batch = gpt_lua_size(L, 3), length = gpt_lua_size(L, 4);
    uint64_t seed = (uint64_t)luaL_checkinteger(L, 5);
    uint64_t k = (uint64_t)luaL_checkinteger(L, 6);
    char reason[200] = "";
    int32_t *tokens;

    /* Checked here too: the array is allocated before the windows are. */
    luaL_argcheck(L, length < text->n, 4, "longer than the text");
    luaL_argcheck(L, batch <= INT_MAX / (length + 1), 3, "too large");
    tokens = push_tokens(L, batch * (length + 1));
    if (gpt_text_batch(text, (gpt_text_part)part, batch, length, seed, k,
                       tokens, reason, sizeof reason) != 0)
        return luaL_error(L, "gpt: %s", reason);
    return 1;
}

/* text:windows(part, batch, length, k) -> i32 array, rows; nothing behind the
 * end of the part */
static int text_windows(lua_State *L)
{
    static const char *const parts[] = {"train", "valid", NULL};
    gpt_text *text = check_text(L);
    int part = luaL_checkoption(L, 2, NULL, parts);
    size_t batch = gpt_lua_size(L, 3), length = gpt_lua_size(L, 4);
    lua_Integer k = luaL_checkinteger(L, 5);
    char reason[200] = "";
    int32_t *tokens;
    int rows;

    luaL_argcheck(L, length < text->n, 4, "longer than the text");
    luaL_argcheck(L, batch <= INT_MAX / (length + 1), 3, "too large");
    luaL_argcheck(L, k >= 0, 5, "must be 0 or more");
    tokens = push_tokens(L, batch * (length + 1));
    rows = gpt_text_windows(text, (gpt_text_part)part, batch, length,
                            (uint64_t)k, tokens, reason, sizeof reason);
    if (rows < 0)
        return luaL_error(L, "gpt: %s", reason);
    if (rows == 0)
        return 0;
    ((gyre_lua_array *)lua_touserdata(L, -1))->n = (size_t)rows * (length + 1);
    lua_pushinteger(L, rows);
    return 2;
}

/* text:ngram([order = 3]) -> nats per byte of the valid part */
static int text_ngram(lua_State *L)
{
    char reason[200] = "";
    gpt_text *text = check_text(L);
    lua_Integer order = luaL_optinteger(L, 2, 3);
    double nats;

    luaL_argcheck(L, order >= 0 && order <= 3, 2, "must be 0 to 3");
    nats = gpt_text_ngram(text, (int)order, reason, sizeof reason);
    if (nats < 0.0)
        return luaL_error(L, "gpt: %s", reason);
    lua_pushnumber(L, nats);
    return 1;
}

void gpt_lua_open_text(lua_State *L)
{
    static const luaL_Reg methods[] = {{"batch", text_batch},
                                       {"windows", text_windows},
                                       {"ngram", text_ngram},
                                       {"close", text_close},
                                       {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__close", text_close},
                                    {"__gc", text_close},
                                    {"__len", text_length},
                                    {"__tostring", text_tostring},
                                    {NULL, NULL}};

    luaL_newmetatable(L, TEXT);
    luaL_setfuncs(L, meta, 0);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_pushcfunction(L, text_new);
    lua_setfield(L, -2, "text");
}
