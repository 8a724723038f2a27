/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_lua_ranks.c - models whose attention is by ranks, and the processes that
 * the ranks are in.
 *
 *   local model <close> = gpt.new{..., schedule="ring", backend="mpi"}
 *
 *   local process, processes = model:process()
 *                              -- from 0 on; 0 and 1 with threads
 *
 *   local texts = model:gather(text)
 *                              -- texts[p + 1] is process p's
 *
 *   model:share(i)             -- data of parameter i: process 0's to all
 *
 *   model:give_up("no space")  -- the others fail, and do not wait
 *
 * Processes make the same calls in the same order.  A model that an error
 * closes gives up by itself.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_lua.h"

#include <gyre/status.h>
#include <lauxlib.h>
#include <string.h>

/* ---- attention by ranks ---- */

static uint64_t timeout_field(lua_State *L)
{
    lua_Number seconds = 120;

    if (lua_getfield(L, 1, "timeout") != LUA_TNIL)
        seconds = luaL_checknumber(L, -1);
    lua_pop(L, 1);
    if (!(seconds >= 0 && seconds < 1e9))
        luaL_error(L, "gpt: timeout is %f, must be 0 to 1e9 seconds", seconds);
    return (uint64_t)(seconds * 1e9);
}

void gpt_lua_use_ranks(lua_State *L, gpt_lua_model *m)
{
    const int top = lua_gettop(L);
    gpt_ranks_config config = {0};
    char reason[GYRE_ERROR_TEXT] = "";
    gpt_attention_by by;
    lua_Integer least;

    if (lua_getfield(L, 1, "schedule") == LUA_TNIL) {
        lua_settop(L, top);
        return;
    }
    config.schedule = luaL_checkstring(L, -1);
    lua_getfield(L, 1, "backend");
    config.backend = luaL_optstring(L, -1, "threads");
    least = strcmp(config.backend, "mpi") != 0; /* 0: as mpirun has it */
    config.ranks = (size_t)gpt_lua_field(L, 1, "ranks", least, least);
    config.timeout = timeout_field(L);
    lua_getfield(L, 1, "exact");
    config.exact = lua_toboolean(L, -1);
    m->ranks = gpt_ranks_create(gpt_configuration(m->g), &config, reason,
                                sizeof reason);
    if (!m->ranks)
        luaL_error(L, "%s", reason);
    by = gpt_ranks_attention(m->ranks);
    gpt_use_attention(m->g, &by);
    lua_settop(L, top);
}

/* ---- processes ---- */

static size_t process_of(const gpt_lua_model *m, size_t *processes)
{
    *processes = 1;
    return m->ranks ? gpt_ranks_process(m->ranks, processes) : 0;
}

static int model_process(lua_State *L)
{
    size_t processes;
    size_t process = process_of(gpt_lua_check_model(L), &processes);

    lua_pushinteger(L, (lua_Integer)process);
    lua_pushinteger(L, (lua_Integer)processes);
    return 2;
}

static int model_ranks(lua_State *L)
{
    const gpt_lua_model *m = gpt_lua_check_model(L);

    lua_pushinteger(L, m->ranks ? (lua_Integer)gpt_ranks_count(m->ranks) : 1);
    return 1;
}

static void gather(lua_State *L, const gpt_lua_model *m, const size_t *bytes,
                   void *all)
{
    char reason[GYRE_ERROR_TEXT] = "";

    if (m->ranks &&
        gpt_ranks_gather(m->ranks, bytes, all, reason, sizeof reason) != 0)
        luaL_error(L, "%s", reason);
}

/* First how long the texts are, then the texts. */
static int model_gather(lua_State *L)
{
    const gpt_lua_model *m = gpt_lua_check_model(L);
    size_t processes, before = 0, total = 0, length;
    const char *own = luaL_checklstring(L, 2, &length);
    size_t process = process_of(m, &processes);
    size_t *sizes = lua_newuserdatauv(L, processes * sizeof *sizes, 0);
    size_t *bytes = lua_newuserdatauv(L, processes * sizeof *bytes, 0);
    char *all;

    for (size_t p = 0; p < processes; p++)
        sizes[p] = sizeof *bytes;
    bytes[process] = length;
    gather(L, m, sizes, bytes);
    for (size_t p = 0; p < processes; p++) {
        before += p < process ? bytes[p] : 0;
        total += bytes[p];
    }
    all = lua_newuserdatauv(L, total + 1, 0);
    memcpy(all + before, own, length);
    gather(L, m, bytes, all);
    lua_createtable(L, (int)processes, 0);
    for (size_t p = 0; p < processes; all += bytes[p++]) {
        lua_pushlstring(L, all, bytes[p]);
        lua_rawseti(L, -2, (lua_Integer)p + 1);
    }
    return 1;
}

static int model_share(lua_State *L)
{
    const gpt_lua_model *m = gpt_lua_check_model(L);
    const gpt_parameter *p = gpt_parameter_at(m->g, gpt_lua_size(L, 2) - 1);
    size_t processes, *bytes;

    luaL_argcheck(L, p, 2, "no such parameter");
    process_of(m, &processes);
    bytes = lua_newuserdatauv(L, processes * sizeof *bytes, 0);
    memset(bytes, 0, processes * sizeof *bytes);
    bytes[0] = p->n * sizeof *p->data;
    gather(L, m, bytes, p->data);
    return 0;
}

static int model_give_up(lua_State *L)
{
    const gpt_lua_model *m = gpt_lua_check_model(L);
    const char *why = luaL_checkstring(L, 2);

    if (m->ranks)
        gpt_ranks_give_up(m->ranks, why);
    return 0;
}

void gpt_lua_add_ranks(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"ranks", model_ranks},     {"process", model_process},
        {"gather", model_gather},   {"share", model_share},
        {"give_up", model_give_up}, {NULL, NULL}};

    luaL_setfuncs(L, methods, 0);
}
