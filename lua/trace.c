/* SPDX-License-Identifier: Apache-2.0 */
/* The trace in Lua: spans of the script's own, and what has been recorded. */
#include "config.h"

#include "module.h"

#include <gyre/trace.h>

#include <string.h>

#define SPAN "gyre.span"

typedef struct span {
    gl_context *context; /* kept alive by user value 1; NULL: recorded */
    gyre_trace_category category;
    uint32_t name;
    uint64_t begin;
} span;

static gyre_trace_category check_category(lua_State *L, int arg)
{
    const char *wanted = luaL_optstring(L, arg, "host");

    for (int i = 0; i < GYRE_TRACE_CATEGORY_COUNT; i++) {
        gyre_trace_category category = (gyre_trace_category)i;

        if (strcmp(gyre_trace_category_name(category), wanted) == 0)
            return category;
    }
    luaL_argerror(L, arg,
                  "host, compute, storage read, storage write or "
                  "link expected");
    return GYRE_TRACE_HOST;
}

/* ctx:span(name [, category]): lasts until it is closed. */
int gl_span(lua_State *L)
{
    gl_context *context;
    int base = gl_take_context(L, &context);
    const char *name = luaL_checkstring(L, base + 1);
    gyre_trace_category category = check_category(L, base + 2);
    span *s = lua_newuserdatauv(L, sizeof(*s), 1);

    s->context = NULL;
    luaL_setmetatable(L, SPAN);
    lua_insert(L, -2); /* below it the context, as gl_take_context left it */
    lua_setiuservalue(L, -2, 1);
    s->category = category;
    s->name = gyre_trace_intern(context->context, name);
    s->context = context;
    s->begin = gyre_trace_clock();
    return 1;
}

/* close([bytes]) */
static int span_close(lua_State *L)
{
    span *s = luaL_checkudata(L, 1, SPAN);
    uint64_t bytes = lua_isinteger(L, 2) ? (uint64_t)lua_tointeger(L, 2) : 0;

    if (s->context != NULL && s->context->context != NULL)
        gyre_trace_record(s->context->context, s->category, s->name, s->begin,
                          gyre_trace_clock(), bytes);
    s->context = NULL;
    return 0;
}

/* ---- reading ------------------------------------------------------------ */

typedef struct walk {
    lua_State *L;
    int list;
    bool failed; /* the error is on top of the stack */
} walk;

static int push_span(lua_State *L)
{
    const gyre_span *s = lua_touserdata(L, 1);

    lua_createtable(L, 0, 8);
    gl_set_integer(L, "begin", s->begin);
    gl_set_integer(L, "finish", s->end);
    gl_set_integer(L, "bytes", s->arg);
    gl_set_integer(L, "thread", s->thread);
    gl_set_text(L, "thread_name", s->thread_name);
    gl_set_text(L, "category", gyre_trace_category_name(s->category));
    gl_set_text(L, "name", s->name);
    lua_rawseti(L, 2, (lua_Integer)lua_rawlen(L, 2) + 1);
    return 0;
}

static int each_span(void *user, const gyre_span *s)
{
    walk *w = user;

    lua_pushcfunction(w->L, push_span);
    lua_pushlightuserdata(w->L, (void *)(uintptr_t)s);
    lua_pushvalue(w->L, w->list);
    w->failed = lua_pcall(w->L, 2, 0, 0) != LUA_OK;
    return w->failed;
}

/* ctx:trace() -> list of spans by begin, number dropped */
int gl_trace(lua_State *L)
{
    gl_context *context;
    gyre_error error = {0};
    walk w = {.L = L};

    gl_take_context(L, &context);
    luaL_checkstack(L, LUA_MINSTACK, "trace");
    lua_newtable(L);
    w.list = lua_gettop(L);
    gyre_status status =
        gyre_trace_each(context->context, each_span, &w, &error);
    if (w.failed)
        return lua_error(L);
    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    lua_pushinteger(L, (lua_Integer)gyre_trace_dropped(context->context));
    return 2;
}

/* ctx:write_trace(path): Chrome trace events. */
int gl_write_trace(lua_State *L)
{
    gl_context *context;
    gyre_error error = {0};
    int base = gl_take_context(L, &context);
    const char *path = luaL_checkstring(L, base + 1);
    gyre_status status = gyre_trace_write_json(context->context, path, &error);

    return status == GYRE_OK ? gl_done(L) : gl_fail(L, status, &error);
}

int gl_clear_trace(lua_State *L)
{
    gl_context *context;

    gl_take_context(L, &context);
    gyre_trace_clear(context->context);
    return 0;
}

void gl_open_trace(lua_State *L)
{
    static const luaL_Reg methods[] = {{"close", span_close}, {NULL, NULL}};

    luaL_newmetatable(L, SPAN);
    lua_pushcfunction(L, span_close);
    lua_setfield(L, -2, "__close");
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}
