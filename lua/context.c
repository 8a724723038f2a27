/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts in Lua: options, plugins, trace. */
#include "config.h"

#include "module.h"

#include <stdio.h>
#include <string.h>

/* Key of the default context in the registry. */
static const char default_key;

/* Called from any thread, so it must not touch the Lua state. */
static void log_line(void *user, gyre_log_level level, const char *text)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};

    (void)user;
    if (level <= GYRE_LOG_WARNING)
        fprintf(stderr, "gyre: %s: %s\n", names[level], text);
}

static void destroy_when_unused(gl_context *c)
{
    if (c->closed && c->users == 0) {
        gyre_context_destroy(c->context);
        c->context = NULL;
    }
}

void gl_context_release(gl_context *c)
{
    c->users--;
    destroy_when_unused(c);
}

static int context_close(lua_State *L)
{
    gl_context *c = luaL_checkudata(L, 1, GL_CONTEXT);

    c->closed = true;
    destroy_when_unused(c);
    return 0;
}

static int context_tostring(lua_State *L)
{
    gl_context *c = luaL_checkudata(L, 1, GL_CONTEXT);

    if (c->closed)
        lua_pushliteral(L, "gyre.context (closed)");
    else
        lua_pushfstring(L, "gyre.context (%s)",
                        gyre_context_instruction_set(c->context));
    return 1;
}

/* Push a new context made with `options`; raises for misuse, else status. */
static gyre_status push_context(lua_State *L, gyre_context_options *options,
                                gyre_error *error)
{
    gl_context *c = lua_newuserdatauv(L, sizeof(*c), 0);

    memset(c, 0, sizeof(*c));
    c->closed = true; /* until there is one */
    luaL_setmetatable(L, GL_CONTEXT);
    options->size = sizeof(*options);
    options->log = log_line;
    gyre_status status = gyre_context_create(options, &c->context, error);
    if (status == GYRE_OK)
        c->closed = false;
    return status;
}

int gl_context_new(lua_State *L)
{
    static const char *const names[] = {"plugin_path", "instruction_set",
                                        "trace_records", NULL};
    gyre_context_options options = {0};
    gyre_error error = {0};

    if (!lua_isnoneornil(L, 1)) {
        luaL_checktype(L, 1, LUA_TTABLE);
        gl_check_fields(L, 1, "gyre.context", names);
        options.plugin_path = gl_text(L, 1, "plugin_path");
        options.instruction_set = gl_text(L, 1, "instruction_set");
        options.trace_records =
            (uint32_t)gl_integer(L, 1, "trace_records", 0, 0, UINT32_MAX);
    }
    gyre_status status = push_context(L, &options, &error);
    return status == GYRE_OK ? 1 : gl_fail(L, status, &error);
}

int gl_take_context(lua_State *L, gl_context **out)
{
    gl_context *c = luaL_testudata(L, 1, GL_CONTEXT);

    if (c != NULL) {
        luaL_argcheck(L, !c->closed, 1, "this context has been closed");
        lua_pushvalue(L, 1);
        *out = c;
        return 1;
    }
    lua_rawgetp(L, LUA_REGISTRYINDEX, &default_key);
    c = luaL_testudata(L, -1, GL_CONTEXT);
    if (c == NULL) {
        gyre_context_options options = {0};
        gyre_error error = {0};

        lua_pop(L, 1);
        options.plugin_path = gl_text(L, LUA_REGISTRYINDEX, GL_PLUGIN_PATH);
        options.instruction_set = gl_text(L, LUA_REGISTRYINDEX, GL_ISA);
        if (push_context(L, &options, &error) != GYRE_OK)
            luaL_error(L, "no context: %s", error.text);
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &default_key);
        c = lua_touserdata(L, -1);
    }
    *out = c;
    return 0;
}

static int context_memory(lua_State *L)
{
    gl_context *c;
    uint64_t peak = 0;

    gl_take_context(L, &c);
    lua_pushinteger(L, (lua_Integer)gyre_context_memory(c->context, &peak));
    lua_pushinteger(L, (lua_Integer)peak);
    return 2;
}

static int context_instruction_set(lua_State *L)
{
    gl_context *c;

    gl_take_context(L, &c);
    lua_pushstring(L, gyre_context_instruction_set(c->context));
    return 1;
}

void gl_open_context(lua_State *L)
{
    static const luaL_Reg meta[] = {{"__gc", context_close},
                                    {"__close", context_close},
                                    {"__tostring", context_tostring},
                                    {NULL, NULL}};
    static const luaL_Reg methods[] = {
        {"close", context_close},
        {"memory", context_memory},
        {"instruction_set", context_instruction_set},
        {"plugins", gl_plugins},
        {"plugin", gl_plugin},
        {"optimizer", gl_optimizer},
        {"create", gl_create},
        {"open", gl_open},
        {"open_or_create", gl_open_or_create},
        {"plan", gl_plan},
        {"import", gl_import},
        {"reshard", gl_reshard},
        {"weigh", gl_weigh},
        {"fsck", gl_fsck},
        {"span", gl_span},
        {"trace", gl_trace},
        {"write_trace", gl_write_trace},
        {"clear_trace", gl_clear_trace},
        {NULL, NULL}};

    luaL_newmetatable(L, GL_CONTEXT);
    luaL_setfuncs(L, meta, 0);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}
