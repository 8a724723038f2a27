/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_lua.h - what the parts of the Lua module share. */
#ifndef GYRE_EXAMPLE_GPT_LUA_H
#define GYRE_EXAMPLE_GPT_LUA_H

#include "gpt.h"
#include "gpt_ranks.h"

#include <lua.h>
#include <stdint.h>

#define GPT_LUA_MODEL "gyre.example.gpt"

typedef struct gpt_lua_model {
    gpt *g;
    gpt_ranks *ranks; /* NULL: attention on one rank */
    int closed;
    int busy;
} gpt_lua_model;

/* A whole number >= low in field `name` of the table at index; fallback when
 * absent. Raises an error that names the field. */
lua_Integer gpt_lua_field(lua_State *L, int index, const char *name,
                          lua_Integer low, lua_Integer fallback);
size_t gpt_lua_size(lua_State *L, int arg);
/* Argument 1, open; also from its callbacks. */
gpt_lua_model *gpt_lua_check_model(lua_State *L);
/* {schedule = "ring", ranks = 4, exact = true, backend = "mpi", timeout = 120}
 * of the table at 1: attention by ranks, when it has a schedule. */
void gpt_lua_use_ranks(lua_State *L, gpt_lua_model *m);
/* Adds the methods about processes to the table on top of the stack. */
void gpt_lua_add_ranks(lua_State *L);
/* Adds gpt.text to the table on top of the stack. */
void gpt_lua_open_text(lua_State *L);

#endif
