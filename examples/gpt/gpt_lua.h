/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_lua.h - what the two halves of the Lua module share. */
#ifndef GYRE_EXAMPLE_GPT_LUA_H
#define GYRE_EXAMPLE_GPT_LUA_H

#include <lua.h>
#include <stdint.h>

/* A whole number >= low in field `name` of the table at index; fallback when
 * absent. Raises an error that names the field. */
lua_Integer gpt_lua_field(lua_State *L, int index, const char *name,
                          lua_Integer low, lua_Integer fallback);
size_t gpt_lua_size(lua_State *L, int arg);
/* Adds gpt.text to the table on top of the stack. */
void gpt_lua_open_text(lua_State *L);

#endif
