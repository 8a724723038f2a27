/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores in Lua: making, opening, binding, closing.
 *
 * An open round belongs to its store: the round's userdata is a view of it by
 * number, so that closing the store, in whatever order a script or the
 * collector does it, leaves no dangling round.
 */
#include "config.h"

#include "module.h"

#include <string.h>

/* User values of a store. */
enum { STORE_CONTEXT = 1, STORE_BOUND, STORE_GUARD, STORE_VALUES = 3 };

#define GUARD "gyre.guard"

gl_store *gl_check_store(lua_State *L, int arg)
{
    gl_store *s = luaL_checkudata(L, arg, GL_STORE);

    luaL_argcheck(L, s->store != NULL, arg, "this store has been closed");
    return s;
}

size_t gl_check_tensor(lua_State *L, gl_store *s, int arg)
{
    size_t index;
    gyre_error error = {0};

    if (lua_type(L, arg) == LUA_TSTRING) {
        const char *name = lua_tostring(L, arg);

        if (gyre_store_find(s->store, name, &index, &error) != GYRE_OK)
            luaL_argerror(L, arg,
                          error.text[0] ? error.text : "no such tensor");
        return index;
    }
    lua_Integer i = luaL_checkinteger(L, arg);
    gyre_store_info info = {.size = sizeof(info)};

    if (gyre_store_get_info(s->store, &info, &error) != GYRE_OK)
        luaL_error(L, "%s", error.text);
    if (i < 1 || (uint64_t)i > info.tensors) {
        lua_pushfstring(L, "tensor %I of a store with %I", (LUAI_UACINT)i,
                        (LUAI_UACINT)info.tensors);
        luaL_argerror(L, arg, lua_tostring(L, -1));
    }
    return (size_t)i - 1;
}

/* ---- binding ----------------------------------------------------------- */

/* Make room in the table of bindings: nothing may fail once the store holds on
 * to the memory. */
static void reserve_bound(lua_State *L, int store, size_t tensor)
{
    lua_getiuservalue(L, store, STORE_BOUND);
    if (lua_rawgeti(L, -1, (lua_Integer)tensor + 1) == LUA_TNIL) {
        lua_pushboolean(L, 0);
        lua_rawseti(L, -3, (lua_Integer)tensor + 1);
    }
    lua_pop(L, 2);
}

/* Unpin the array bound to `tensor` and put the one at `arg` (0: none) in its
 * place in the table of bindings, which keeps it alive. */
static void replace_bound(lua_State *L, int store, size_t tensor, int arg)
{
    lua_getiuservalue(L, store, STORE_BOUND);
    lua_rawgeti(L, -1, (lua_Integer)tensor + 1);
    gyre_lua_array *old = luaL_testudata(L, -1, GYRE_LUA_ARRAY);
    if (old != NULL)
        old->pins--;
    lua_pop(L, 1);
    if (arg != 0)
        lua_pushvalue(L, arg);
    else
        lua_pushboolean(L, 0);
    lua_rawseti(L, -2, (lua_Integer)tensor + 1);
    lua_pop(L, 1);
}

/*
 * The end of a Lua state runs finalizers from the newest object to the oldest,
 * references or not: a model made after its store would free its memory while
 * the store's workers still fill it.  So each binding makes a guard, newer than
 * the array's owner, whose finalizer closes the store.
 */
static void renew_guard(lua_State *L, gl_store *s)
{
    gl_store **guard;

    lua_getiuservalue(L, 1, STORE_GUARD);
    guard = luaL_testudata(L, -1, GUARD);
    gl_store **fresh = lua_newuserdatauv(L, sizeof(gl_store *), 1);
    *fresh = NULL;
    luaL_setmetatable(L, GUARD);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    lua_setiuservalue(L, 1, STORE_GUARD);
    if (guard != NULL)
        *guard = NULL;
    *fresh = s;
    lua_pop(L, 1);
}

static int store_bind(lua_State *L)
{
    gl_store *s = gl_check_store(L, 1);
    size_t tensor = gl_check_tensor(L, s, 2);
    gyre_lua_array *a =
        lua_isnoneornil(L, 3) ? NULL : gyre_lua_check_array(L, 3);
    gyre_tensor t = {0};
    gyre_error error = {0};
    uint64_t n = 1;

    gyre_status status = gyre_store_tensor(s->store, tensor, &t, NULL, &error);
    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    for (uint32_t i = 0; i < t.rank; i++)
        n *= t.shape[i];
    if (a != NULL && a->n != n)
        return luaL_error(L, "tensor '%s' has %I elements, the array %I",
                          t.name, (LUAI_UACINT)n, (LUAI_UACINT)a->n);
    reserve_bound(L, 1, tensor);
    if (a != NULL)
        renew_guard(L, s);
    status = gyre_store_bind(s->store, tensor,
                             a != NULL ? (gyre_dtype)a->dtype : GYRE_F32,
                             a != NULL ? a->data : NULL, &error);
    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    if (a != NULL)
        a->pins++;
    replace_bound(L, 1, tensor, a != NULL ? 3 : 0);
    return gl_done(L);
}

static int store_pull(lua_State *L)
{
    gl_store *s = gl_check_store(L, 1);
    gyre_error error = {0};
    gyre_status status = gyre_store_pull(s->store, &error);

    return status == GYRE_OK ? gl_done(L) : gl_fail(L, status, &error);
}

static int store_commit(lua_State *L)
{
    gl_store *s = gl_check_store(L, 1);
    size_t bytes = 0;
    const char *blob = luaL_optlstring(L, 2, NULL, &bytes);
    gyre_error error = {0};
    gyre_status status = gyre_store_commit(s->store, blob, bytes, &error);

    return status == GYRE_OK ? gl_done(L) : gl_fail(L, status, &error);
}

/* ---- life -------------------------------------------------------------- */

void gl_unbind(lua_State *L, int store)
{
    if (lua_getiuservalue(L, store, STORE_BOUND) == LUA_TTABLE) {
        lua_pushnil(L);
        while (lua_next(L, -2) != 0) {
            gyre_lua_array *a = luaL_testudata(L, -1, GYRE_LUA_ARRAY);
            if (a != NULL)
                a->pins--;
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
    lua_pushnil(L);
    lua_setiuservalue(L, store, STORE_BOUND);
}

/* Safe at any time and any number of times.  No allocation: this also runs in
 * lua_close after memory has run out. */
static int store_close(lua_State *L)
{
    gl_store *s = luaL_checkudata(L, 1, GL_STORE);

    if (s->store != NULL) {
        if (s->round != NULL && !s->updating)
            gyre_round_abort(s->round, NULL);
        gyre_store_close(s->store);
        s->store = NULL;
        s->round = NULL;
    }
    gl_unbind(L, 1);
    if (s->context != NULL) {
        gl_context_release(s->context);
        s->context = NULL;
    }
    return 0;
}

static int guard_gc(lua_State *L)
{
    gl_store **guard = luaL_checkudata(L, 1, GUARD);

    if (*guard == NULL)
        return 0;
    *guard = NULL;
    lua_getiuservalue(L, 1, 1);
    lua_replace(L, 1);
    return store_close(L);
}

static int store_tostring(lua_State *L)
{
    gl_store *s = luaL_checkudata(L, 1, GL_STORE);
    gyre_store_info info = {.size = sizeof(info)};

    if (s->store == NULL ||
        gyre_store_get_info(s->store, &info, NULL) != GYRE_OK)
        lua_pushliteral(L, "gyre.store (closed)");
    else
        lua_pushfstring(L, "gyre.store (%s, step %I)", info.path,
                        (LUAI_UACINT)info.step);
    return 1;
}

/* Push an empty store of the context on top of the stack, which it replaces. */
static gl_store *push_store(lua_State *L, gl_context *context)
{
    gl_store *s = lua_newuserdatauv(L, sizeof(*s), STORE_VALUES);

    memset(s, 0, sizeof(*s));
    luaL_setmetatable(L, GL_STORE);
    lua_insert(L, -2);
    lua_setiuservalue(L, -2, STORE_CONTEXT);
    lua_newtable(L);
    lua_setiuservalue(L, -2, STORE_BOUND);
    context->users++;
    s->context = context;
    return s;
}

/* A store that did not come to be lets its context go at once. */
static gyre_status made(gl_store *s, gyre_status status)
{
    if (status != GYRE_OK) {
        s->store = NULL;
        gl_context_release(s->context);
        s->context = NULL;
    }
    return status;
}

static gyre_status create_at(lua_State *L, gl_context *context, int base,
                             gyre_error *error)
{
    gyre_store_spec spec = {0};
    gyre_store_options options = {0};
    const char *path = luaL_checkstring(L, base + 1);

    luaL_checktype(L, base + 2, LUA_TTABLE);
    gl_check_store_fields(L, base + 2, true);
    lua_newtable(L);
    int anchor = lua_gettop(L);
    gyre_status status = gl_spec(L, context, base + 2, anchor, &spec, error);
    if (status != GYRE_OK)
        return status;
    gl_store_options(L, base + 2, anchor, &options);
    options.devices = NULL; /* the list of the spec is what is made */
    options.device_count = 0;
    lua_pushvalue(L, anchor - 1);
    gl_store *s = push_store(L, context);
    return made(s, gyre_store_create(context->context, path, &spec, &options,
                                     &s->store, error));
}

static gyre_status open_at(lua_State *L, gl_context *context, int base,
                           bool create_fields, gyre_error *error)
{
    gyre_store_options options = {.size = sizeof(options)};
    const char *path = luaL_checkstring(L, base + 1);

    lua_newtable(L);
    int anchor = lua_gettop(L);
    if (!lua_isnoneornil(L, base + 2)) {
        luaL_checktype(L, base + 2, LUA_TTABLE);
        gl_check_store_fields(L, base + 2, create_fields);
        gl_store_options(L, base + 2, anchor, &options);
    }
    lua_pushvalue(L, anchor - 1);
    gl_store *s = push_store(L, context);
    return made(
        s, gyre_store_open(context->context, path, &options, &s->store, error));
}

/* In a dry run nothing may be made or opened: the plan should have ended it
 * before. */
static void refuse_dry_run(lua_State *L, const char *name)
{
    if (gl_module_flag(L, "dry_run"))
        luaL_error(L,
                   "gyre.%s in a dry run: call gyre.plan_run before, it "
                   "prints the plan and ends the script",
                   name);
}

int gl_create(lua_State *L)
{
    gl_context *context;
    gyre_error error = {0};

    refuse_dry_run(L, "create");
    lua_settop(L, luaL_testudata(L, 1, GL_CONTEXT) ? 3 : 2);
    int base = gl_take_context(L, &context);
    gyre_status status = create_at(L, context, base, &error);
    return status == GYRE_OK ? 1 : gl_fail(L, status, &error);
}

int gl_open(lua_State *L)
{
    gl_context *context;
    gyre_error error = {0};

    refuse_dry_run(L, "open");
    lua_settop(L, luaL_testudata(L, 1, GL_CONTEXT) ? 3 : 2);
    int base = gl_take_context(L, &context);
    gyre_status status = open_at(L, context, base, false, &error);
    return status == GYRE_OK ? 1 : gl_fail(L, status, &error);
}

/* Opening comes first, so that a store which is there is never touched; a
 * store that came up between the two is reported as the opening saw it. */
int gl_open_or_create(lua_State *L)
{
    gl_context *context;
    gyre_error missing = {0}, error = {0};

    refuse_dry_run(L, "open_or_create");
    lua_settop(L, luaL_testudata(L, 1, GL_CONTEXT) ? 3 : 2);
    int base = gl_take_context(L, &context);
    int context_at = lua_gettop(L);
    gyre_status status = open_at(L, context, base, true, &missing);
    lua_pushboolean(L, 0);
    if (status == GYRE_NOT_FOUND) {
        lua_settop(L, context_at);
        status = create_at(L, context, base, &error);
        if (status == GYRE_EXISTS)
            return gl_fail(L, GYRE_NOT_FOUND, &missing);
        lua_pushboolean(L, 1);
        return status == GYRE_OK ? 2 : gl_fail(L, status, &error);
    }
    return status == GYRE_OK ? 2 : gl_fail(L, status, &missing);
}

void gl_open_store(lua_State *L)
{
    static const luaL_Reg meta[] = {{"__gc", store_close},
                                    {"__close", store_close},
                                    {"__tostring", store_tostring},
                                    {NULL, NULL}};
    static const luaL_Reg methods[] = {
        {"close", store_close}, {"bind", store_bind},
        {"pull", store_pull},   {"commit", store_commit},
        {"begin", gl_begin},    {"export", gl_export},
        {"ledger", gl_ledger},  {"wear", gl_wear},
        {"reshard", gl_move},   {NULL, NULL}};

    luaL_newmetatable(L, GUARD);
    lua_pushcfunction(L, guard_gc);
    lua_setfield(L, -2, "__gc");
    luaL_newmetatable(L, GL_STORE);
    luaL_setfuncs(L, meta, 0);
    luaL_newlib(L, methods);
    luaL_setfuncs(L, gl_ask_methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 2);
}
