/* SPDX-License-Identifier: Apache-2.0 */
/* The table that `require "gyre"` gives. */
#include "config.h"

#include "module.h"

static int module_version(lua_State *L)
{
    lua_pushstring(L, gyre_version());
    return 1;
}

static int module_build(lua_State *L)
{
    lua_pushstring(L, gyre_build_summary());
    return 1;
}

/* Seconds of the monotonic clock; only differences mean something. */
static int module_clock(lua_State *L)
{
    lua_pushnumber(L, (double)gl_now() * 1e-9);
    return 1;
}

/* exit([code]): as os.exit(code, true), every handle is closed. */
static int module_exit(lua_State *L)
{
    return gl_exit(L, (int)luaL_optinteger(L, 1, 0));
}

__attribute__((visibility("default"))) int luaopen_gyre(lua_State *L)
{
    static const luaL_Reg functions[] = {{"array", gl_array},
                                         {"build", module_build},
                                         {"clock", module_clock},
                                         {"context", gl_context_new},
                                         {"create", gl_create},
                                         {"exit", module_exit},
                                         {"fsck", gl_fsck},
                                         {"import", gl_import},
                                         {"json", gl_json},
                                         {"json_decode", gl_json_decode},
                                         {"memory", gl_memory},
                                         {"open", gl_open},
                                         {"open_or_create", gl_open_or_create},
                                         {"optimizer", gl_optimizer},
                                         {"options", gl_options},
                                         {"plan", gl_plan},
                                         {"plan_run", gl_plan_run},
                                         {"plugin", gl_plugin},
                                         {"plugins", gl_plugins},
                                         {"progress", gl_progress},
                                         {"reshard", gl_reshard},
                                         {"version", module_version},
                                         {"weigh", gl_weigh},
                                         {NULL, NULL}};

    luaL_checkversion(L);
    gl_open_array(L);
    gl_open_context(L);
    gl_open_store(L);
    gl_open_round(L);
    gl_open_progress(L);
    gl_open_trace(L);
    gl_open_attention_plan(L);
    gl_open_builder(L);
    if (lua_getglobal(L, "os") == LUA_TTABLE) {
        lua_getfield(L, -1, "exit");
        lua_setfield(L, LUA_REGISTRYINDEX, GL_EXIT);
    }
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    gl_set_flag(L, "dry_run", 0);
    gl_set_flag(L, "json_output", 0);
    gl_set_flag(L, "quiet", 0);
    return 1;
}
