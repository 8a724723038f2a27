/* SPDX-License-Identifier: Apache-2.0 */
/* Export, import, reshard and fsck in Lua. */
#include "config.h"

#include "module.h"

#include <string.h>

/* ---- progress, called from inside the library -------------------------- */

typedef struct bridge {
    lua_State *L;
    int call;    /* stack index of a function(done, total), or 0 */
    bool failed; /* its error is on top of the stack */
} bridge;

static int on_progress(void *user, uint64_t done, uint64_t total)
{
    bridge *b = user;
    lua_State *L = b->L;

    if (b->call == 0 || b->failed)
        return b->failed;
    lua_pushvalue(L, b->call);
    lua_pushinteger(L, (lua_Integer)done);
    lua_pushinteger(L, (lua_Integer)total);
    b->failed = lua_pcall(L, 2, 0, 0) != LUA_OK;
    return b->failed;
}

/* update(done, total) of the progress object in upvalue 1. */
static int update_bar(lua_State *L)
{
    lua_settop(L, 2);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_getfield(L, -1, "update");
    lua_insert(L, -2);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    lua_pushvalue(L, 2);
    lua_call(L, 4, 0);
    return 0;
}

/* Field `progress` of the table at t (0: no table): a function, or a progress
 * object.  Leaves what it needs on the stack. */
static bridge read_progress(lua_State *L, int t)
{
    bridge b = {.L = L};

    luaL_checkstack(L, LUA_MINSTACK, "progress");
    if (t == 0)
        return b;
    int type = lua_getfield(L, t, "progress");
    if (type == LUA_TNIL)
        return b;
    if (luaL_testudata(L, -1, GL_PROGRESS) != NULL)
        lua_pushcclosure(L, update_bar, 1);
    else if (type != LUA_TFUNCTION)
        luaL_error(L,
                   "field 'progress': function or gyre.progress expected, "
                   "got %s",
                   lua_typename(L, type));
    b.call = lua_gettop(L);
    return b;
}

/* True, or nil and why; an error of the progress function goes on. */
static int end_with(lua_State *L, const bridge *b, gyre_status status,
                    const gyre_error *error)
{
    if (b->failed)
        return lua_error(L);
    return status == GYRE_OK ? gl_done(L) : gl_fail(L, status, error);
}

/* The table of options at `arg`, or 0. */
static int options_at(lua_State *L, int arg)
{
    if (lua_isnoneornil(L, arg))
        return 0;
    luaL_checktype(L, arg, LUA_TTABLE);
    return arg;
}

/* ---- the four ---------------------------------------------------------- */

/* store:export(file [, { parameters_only =, progress = }]) */
int gl_export(lua_State *L)
{
    static const char *const names[] = {"parameters_only", "progress", NULL};
    gl_store *s = gl_check_store(L, 1);
    const char *file = luaL_checkstring(L, 2);
    int t = options_at(L, 3);
    gyre_error error = {0};
    bool parameters_only = false;

    if (t != 0) {
        gl_check_fields(L, t, "export", names);
        parameters_only = gl_flag(L, t, "parameters_only");
    }
    bridge b = read_progress(L, t);
    gyre_status status = gyre_store_export(s->store, file, parameters_only,
                                           on_progress, &b, &error);
    return end_with(L, &b, status, &error);
}

/* gyre.import(path, file [, options]) */
int gl_import(lua_State *L)
{
    gl_context *context;
    int base = gl_take_context(L, &context);
    const char *path = luaL_checkstring(L, base + 1);
    const char *file = luaL_checkstring(L, base + 2);
    gyre_store_options options = {.size = sizeof(options)};
    gyre_error error = {0};
    int t = options_at(L, lua_gettop(L) > base + 3 ? base + 3 : 0);

    lua_newtable(L);
    if (t != 0) {
        gl_check_store_fields(L, t, false);
        gl_store_options(L, t, lua_gettop(L), &options);
    }
    bridge b = read_progress(L, t);
    gyre_status status = gyre_store_import(context->context, path, file,
                                           &options, on_progress, &b, &error);
    return end_with(L, &b, status, &error);
}

/* gyre.reshard(path, { devices =, weights =, chunk_elements = }) */
int gl_reshard(lua_State *L)
{
    static const char *const names[] = {
        "devices",   "weights",      "chunk_elements", "io", "buffers",
        "lock_wait", "memory_limit", "progress",       NULL};
    gl_context *context;
    int base = gl_take_context(L, &context);
    const char *path = luaL_checkstring(L, base + 1);
    gyre_store_spec spec = {.size = sizeof(spec)};
    gyre_store_options options = {0};
    gyre_error error = {0};
    int t = base + 2;

    luaL_checktype(L, t, LUA_TTABLE);
    gl_check_fields(L, t, "reshard", names);
    lua_newtable(L);
    int anchor = lua_gettop(L);
    gl_store_options(L, t, anchor, &options);
    options.devices = NULL; /* these name the new layout, not the old */
    options.device_count = 0;
    gl_devices(L, t, anchor, &spec.devices, &spec.device_count);
    gl_weights(L, t, anchor, &spec.weights, &spec.device_count);
    spec.chunk_elements =
        (uint64_t)gl_integer(L, t, "chunk_elements", 0, 0, INT64_MAX);
    bridge b = read_progress(L, t);
    gyre_status status = gl_measured(L, context, t, anchor, &spec, &error);
    if (status == GYRE_OK)
        status = gyre_store_reshard(context->context, path, &spec, &options,
                                    on_progress, &b, &error);
    return end_with(L, &b, status, &error);
}

/* store:reshard { devices =, ..., and what gyre.open takes } */
int gl_move(lua_State *L)
{
    static const char *const names[] = {
        "devices",     "weights",   "chunk_elements", "io",
        "buffers",     "lock_wait", "memory_limit",   "progress",
        "compute",     "link_rate", "placement",      "gradients",
        "endurance",   "fast",      "commit_every",   "allow_inexact",
        "wear_budget", NULL};
    gl_store *s = gl_check_store(L, 1);
    gyre_store_spec spec = {.size = sizeof(spec)};
    gyre_store_options options = {.size = sizeof(options)};
    gyre_error error = {0};

    luaL_checktype(L, 2, LUA_TTABLE);
    gl_check_fields(L, 2, "reshard", names);
    lua_settop(L, 2);
    lua_newtable(L);
    gl_store_options(L, 2, 3, &options);
    gl_devices(L, 2, 3, &spec.devices, &spec.device_count);
    gl_weights(L, 2, 3, &spec.weights, &spec.device_count);
    spec.chunk_elements =
        (uint64_t)gl_integer(L, 2, "chunk_elements", 0, 0, INT64_MAX);
    bridge b = read_progress(L, 2);
    gyre_status status = gl_measured(L, s->context, 2, 3, &spec, &error);
    if (status == GYRE_OK)
        status = gyre_store_move(&s->store, &spec, &options, on_progress, &b,
                                 &error);
    if (s->store == NULL)
        gl_unbind(L, 1);
    return end_with(L, &b, status, &error);
}

typedef struct findings {
    lua_State *L;
    int list;
    bool failed; /* no memory: the error is on top of the stack */
} findings;

static int push_problem(lua_State *L)
{
    const gyre_fsck_problem *p = lua_touserdata(L, 1);

    lua_createtable(L, 0, 5);
    gl_set_text(L, "device", p->device);
    gl_set_integer(L, "chunk", p->chunk);
    gl_set_text(L, "what", p->what);
    gl_set_text(L, "text", p->text);
    gl_set_flag(L, "note", p->note);
    lua_rawseti(L, 2, (lua_Integer)lua_rawlen(L, 2) + 1);
    return 0;
}

static void on_problem(void *user, const gyre_fsck_problem *problem)
{
    findings *f = user;

    if (f->failed)
        return;
    lua_pushcfunction(f->L, push_problem);
    lua_pushlightuserdata(f->L, (void *)(uintptr_t)problem);
    lua_pushvalue(f->L, f->list);
    f->failed = lua_pcall(f->L, 2, 0, 0) != LUA_OK;
}

/* gyre.fsck(path [, { repair =, salvage = }]) -> report with `list` */
int gl_fsck(lua_State *L)
{
    static const char *const names[] = {"repair", "salvage", "io", "lock_wait",
                                        NULL};
    gl_context *context;
    int base = gl_take_context(L, &context);
    const char *path = luaL_checkstring(L, base + 1);
    gyre_store_options options = {.size = sizeof(options)};
    gyre_fsck_report report = {.size = sizeof(report)};
    gyre_error error = {0};
    unsigned flags = 0;

    if (lua_istable(L, base + 2)) {
        gl_check_fields(L, base + 2, "fsck", names);
        flags |= gl_flag(L, base + 2, "repair") ? GYRE_FSCK_REPAIR : 0;
        flags |= gl_flag(L, base + 2, "salvage") ? GYRE_FSCK_SALVAGE : 0;
        lua_newtable(L);
        gl_store_options(L, base + 2, lua_gettop(L), &options);
    }
    luaL_checkstack(L, LUA_MINSTACK, "fsck");
    lua_newtable(L);
    findings f = {.L = L, .list = lua_gettop(L)};
    gyre_status status =
        gyre_store_fsck(context->context, path, &options, flags, on_problem, &f,
                        &report, &error);
    if (f.failed)
        return lua_error(L);
    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    lua_createtable(L, 0, 8);
    gl_set_integer(L, "chunks", report.chunks);
    gl_set_integer(L, "problems", report.problems);
    gl_set_integer(L, "notes", report.notes);
    gl_set_integer(L, "step", report.step);
    gl_set_flag(L, "previous_whole", report.previous_whole);
    gl_set_flag(L, "repaired", report.repaired);
    gl_set_flag(L, "salvaged", report.salvaged);
    lua_pushvalue(L, f.list);
    lua_setfield(L, -2, "list");
    return 1;
}
