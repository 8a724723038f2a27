/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention plans in Lua.
 *
 *     gyre.plan{ schedule = "ring", ranks = 8, seq = 4096, heads = 8 }
 *     gyre.plan{ schedule = function(b, rank, pass) ... end, ... }
 *     gyre.plan{ file = "ring.plan" }
 *
 * One object holds the plans of both passes, or of the one asked for.
 */
#include "config.h"

#include "plan_object.h"

#include <stdlib.h>
#include <string.h>

/* User values: the context, and what the request points to. */
enum { CONTEXT = 1, ANCHOR = 2 };

gl_attention *gl_check_attention(lua_State *L)
{
    gl_attention *o = luaL_checkudata(L, 1, GL_ATTENTION_PLAN);

    if (o->context == NULL)
        luaL_error(L, "this plan has been closed");
    return o;
}

const char *gl_pass_name(uint32_t pass)
{
    return pass == GYRE_PASS_BACKWARD ? "backward" : "forward";
}

gyre_plan *gl_check_pass(lua_State *L, gl_attention *o, int arg)
{
    static const char *const names[] = {"forward", "backward", NULL};
    uint32_t pass = o->plans[0] != NULL ? 0 : 1;

    if (!lua_isnoneornil(L, arg))
        pass = (uint32_t)luaL_checkoption(L, arg, NULL, names);
    if (o->plans[pass] == NULL)
        luaL_error(L, "this plan has no %s pass", names[pass]);
    return o->plans[pass];
}

static int plan_close(lua_State *L)
{
    gl_attention *o = luaL_checkudata(L, 1, GL_ATTENTION_PLAN);

    for (int pass = 0; pass < GYRE_PASS_COUNT; pass++) {
        gyre_plan_free(o->plans[pass]);
        o->plans[pass] = NULL;
    }
    if (o->context != NULL)
        gl_context_release(o->context);
    o->context = NULL;
    return 0;
}

/* ---- making one ---------------------------------------------------------- */

static void read_mask(lua_State *L, int t, int anchor, gyre_mask *mask)
{
    int type = lua_getfield(L, t, "mask");
    const char *text = type == LUA_TSTRING ? lua_tostring(L, -1) : "causal";

    *mask = (gyre_mask){.size = sizeof(*mask), .causal = 1};
    if (type == LUA_TTABLE) { /* { documents = { 5, 9 }, window =, causal = } */
        static const char *const names[] = {"causal", "window", "documents",
                                            NULL};
        int m = lua_gettop(L);
        gl_check_fields(L, m, "a mask", names);
        lua_getfield(L, m, "causal");
        mask->causal = lua_isnil(L, -1) || lua_toboolean(L, -1);
        lua_pop(L, 1);
        mask->window =
            (uint64_t)gl_integer(L, m, "window", 0, 0, LUA_MAXINTEGER);
        if (gl_table(L, m, "documents")) {
            int list = lua_gettop(L);
            size_t n = lua_rawlen(L, list);
            gyre_documents *documents =
                gl_scratch(L, anchor, 1, sizeof(*documents));
            uint64_t *bounds = gl_scratch(L, anchor, n + 1, sizeof(*bounds));
            for (size_t i = 0; i < n; i++) {
                lua_rawgeti(L, list, (lua_Integer)i + 1);
                if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 0)
                    luaL_error(L, "field 'documents': a list of lengths");
                bounds[i + 1] = bounds[i] + (uint64_t)lua_tointeger(L, -1);
                lua_pop(L, 1);
            }
            *documents =
                (gyre_documents){.bounds = bounds, .count = (uint32_t)n};
            mask->documents = documents;
            mask->document_count = 1;
            lua_pop(L, 1);
        }
    } else if (type != LUA_TNIL && strcmp(text, "full") == 0) {
        mask->causal = 0;
    } else if (strcmp(text, "causal") != 0 ||
               (type != LUA_TNIL && type != LUA_TSTRING)) {
        luaL_error(L, "field 'mask': causal, full, or { causal =, window =, "
                      "documents = { lengths } }");
    }
    lua_pop(L, 1);
}

static uint32_t read_dtype(lua_State *L, int t, const char *name,
                           gyre_dtype standard)
{
    const char *text = gl_text(L, t, name);
    gyre_error error = {0};

    if (text != NULL && gyre_dtype_parse(text, &standard, &error) != GYRE_OK)
        luaL_error(L, "field '%s': %s", name, error.text);
    return standard;
}

static void read_problem(lua_State *L, int t, int anchor, gyre_plan_request *r)
{
    gyre_mask *mask = gl_scratch(L, anchor, 1, sizeof(*mask));
    gyre_error error = {0};

    r->size = sizeof(*r);
    r->ranks = (uint32_t)gl_integer(L, t, "ranks", 4, 1, UINT32_MAX);
    r->batch = (uint32_t)gl_integer(L, t, "batch", 1, 1, UINT32_MAX);
    r->heads = (uint32_t)gl_integer(L, t, "heads", 8, 1, UINT32_MAX);
    r->kv_heads = (uint32_t)gl_integer(L, t, "kv_heads", 0, 1, UINT32_MAX);
    r->head_dim = (uint32_t)gl_integer(L, t, "head_dim", 64, 1, UINT32_MAX);
    r->v_head_dim = (uint32_t)gl_integer(L, t, "v_head_dim", 0, 1, UINT32_MAX);
    r->tokens = (uint64_t)gl_integer(L, t, "seq", 64 * (lua_Integer)r->ranks, 1,
                                     LUA_MAXINTEGER);
    r->dtype = read_dtype(L, t, "dtype", GYRE_BF16);
    r->wire_dtype = read_dtype(L, t, "wire_dtype", GYRE_F32);
    read_mask(L, t, anchor, mask);
    r->mask = mask;
    r->layout = mask->causal ? GYRE_LAYOUT_ZIGZAG : GYRE_LAYOUT_CONTIGUOUS;
    const char *layout = gl_text(L, t, "layout");
    if (layout != NULL &&
        gyre_layout_parse(layout, &r->layout, &error) != GYRE_OK)
        luaL_error(L, "field 'layout': %s", error.text);
    const char *drop = gl_text(L, t, "drop");
    if (drop != NULL && strcmp(drop, "dead") != 0 && strcmp(drop, "none") != 0)
        luaL_error(L, "field 'drop': none or dead, not '%s'", drop);
    r->drop = drop != NULL && drop[0] == 'd' ? GYRE_DROP_DEAD : GYRE_DROP_NONE;
}

/* A name, { name, parameter = value }, or a function; which stays on the
 * stack. */
static gyre_status read_schedule(lua_State *L, gl_context *context, int t,
                                 int anchor, gyre_plan_request *r,
                                 gl_emitter *emitter, gyre_error *error)
{
    int type = lua_getfield(L, t, "schedule");
    int at = lua_gettop(L);

    if (type == LUA_TSTRING) {
        r->schedule = lua_tostring(L, at);
    } else if (type == LUA_TFUNCTION) {
        const char *name = gl_text(L, t, "name");
        emitter->L = L;
        emitter->function = at;
        r->schedule = name != NULL ? name : "script";
        r->emit = gl_emit;
        r->emit_user = emitter;
    } else if (type == LUA_TTABLE) {
        if (lua_rawgeti(L, at, 1) != LUA_TSTRING)
            luaL_error(L, "field 'schedule': the name comes first, as in { "
                          "\"double-ring\", window = 4 }");
        r->schedule = lua_tostring(L, -1);
        gyre_status status =
            gl_settings(L, context, GYRE_KIND_SCHEDULE, r->schedule, at, anchor,
                        true, &r->settings, &r->setting_count, error);
        lua_settop(L, at);
        return status;
    } else {
        luaL_error(L,
                   "field 'schedule': name, table or function expected, "
                   "got %s",
                   lua_typename(L, type));
    }
    return GYRE_OK;
}

static gyre_status make_passes(lua_State *L, int t, gl_attention *o,
                               gyre_error *error)
{
    static const char *const names[] = {"forward", "backward", NULL};
    const char *only = gl_text(L, t, "pass");

    if (only != NULL && strcmp(only, names[0]) != 0 &&
        strcmp(only, names[1]) != 0)
        luaL_error(L, "field 'pass': forward or backward, not '%s'", only);
    for (uint32_t pass = 0; pass < GYRE_PASS_COUNT; pass++) {
        if (only != NULL && strcmp(only, names[pass]) != 0)
            continue;
        o->request.pass = pass;
        gyre_status status = gyre_plan_make(o->context->context, &o->request,
                                            &o->plans[pass], error);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

static gyre_status load(gl_attention *o, const char *path, gyre_error *error)
{
    gl_text_buffer g = {0};
    gyre_plan *plan = NULL;
    gyre_status status = gl_read_file(path, &g, error);

    if (status == GYRE_OK)
        status = gyre_plan_read(o->context->context, path, g.at, g.size, &plan,
                                error);
    free(g.at);
    if (status == GYRE_OK)
        o->plans[gyre_plan_pass(plan)] = plan;
    return status;
}

static gl_attention *push_object(lua_State *L, gl_context *context, int at)
{
    gl_attention *o = lua_newuserdatauv(L, sizeof(*o), 2);

    memset(o, 0, sizeof(*o));
    luaL_setmetatable(L, GL_ATTENTION_PLAN);
    lua_pushvalue(L, at);
    lua_setiuservalue(L, -2, CONTEXT);
    lua_newtable(L);
    lua_setiuservalue(L, -2, ANCHOR);
    o->context = context;
    context->users++;
    return o;
}

int gl_attention_plan(lua_State *L, gl_context *context, int at, int t)
{
    static const char *const names[] = {
        "schedule", "name",     "file",     "ranks",      "seq",   "batch",
        "heads",    "kv_heads", "head_dim", "v_head_dim", "dtype", "wire_dtype",
        "mask",     "layout",   "drop",     "pass",       NULL};
    gyre_error error = {0};
    gl_emitter emitter = {0};

    luaL_checkstack(L, LUA_MINSTACK, "plan");
    gl_check_fields(L, t, "a plan", names);
    gl_attention *o = push_object(L, context, at);
    int object = lua_gettop(L);
    const char *path = gl_text(L, t, "file");
    if (path != NULL) {
        gyre_status status = load(o, path, &error);
        lua_settop(L, object);
        return status == GYRE_OK ? 1 : gl_fail(L, status, &error);
    }
    lua_getiuservalue(L, object, ANCHOR);
    int anchor = lua_gettop(L);
    read_problem(L, t, anchor, &o->request);
    gyre_status status =
        read_schedule(L, context, t, anchor, &o->request, &emitter, &error);
    /* what the request points to lives as long as the object */
    lua_pushvalue(L, t);
    lua_rawseti(L, anchor, (lua_Integer)lua_rawlen(L, anchor) + 1);
    if (status == GYRE_OK)
        status = make_passes(L, t, o, &error);
    if (emitter.failed)
        return lua_error(L);
    o->formula = o->request.emit == NULL;
    o->request.emit_user = NULL;
    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    lua_settop(L, object);
    return 1;
}

void gl_open_attention_plan(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"bytes", gl_attention_bytes}, {"prove", gl_attention_prove},
        {"run", gl_attention_run},     {"text", gl_attention_text},
        {"save", gl_attention_save},   {"show", gl_attention_show},
        {"close", plan_close},         {NULL, NULL}};

    luaL_newmetatable(L, GL_ATTENTION_PLAN);
    lua_pushcfunction(L, plan_close);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, plan_close);
    lua_setfield(L, -2, "__close");
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}
