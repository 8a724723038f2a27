/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds in Lua.
 *
 *     store:begin{...} --> open --update()--> updating --finish()--> gone
 *                            |                   |
 *                            +------finish()-----+--> gone
 *                            +--abort(), __close----> gone
 *
 * A round that is closed while it updates is left to its store: its commit is
 * still to come, so closing the store loses it, and opening finds the last.
 */
#include "config.h"

#include "module.h"

#include <string.h>

typedef struct gl_round {
    gl_store *store; /* kept alive by user value 1 */
    uint64_t number;
} gl_round;

/* The store of a round that is still the open one, or NULL. */
static gl_store *open_store(const gl_round *r)
{
    gl_store *s = r->store;

    return s != NULL && s->store != NULL && s->round != NULL &&
                   s->rounds == r->number
               ? s
               : NULL;
}

static gl_store *check_round(lua_State *L)
{
    gl_store *s = open_store(luaL_checkudata(L, 1, GL_ROUND));

    if (s == NULL)
        luaL_error(L, "this round is over");
    return s;
}

static void push_report(lua_State *L, const gyre_round_report *r, bool bytes)
{
    lua_createtable(L, 0, 24);
    gl_set_integer(L, "round", r->round);
    gl_set_integer(L, "step", r->step);
    gl_set_flag(L, "skipped", r->skipped);
    gl_set_flag(L, "committed", r->committed);
    gl_set_number(L, "norm", r->norm);
    gl_set_number(L, "norm_clipped", r->norm_clipped);
    gl_set_number(L, "clip_coefficient", r->clip_coefficient);
    gl_set_number(L, "loss_scale", r->loss_scale);
    gl_set_text(L, "nonfinite", r->nonfinite);
    gl_set_integer(L, "nonfinite_tensors", r->nonfinite_tensors);
    if (!bytes)
        return;
    gl_set_integer(L, "gradient_bytes", r->gradient_bytes);
    gl_set_integer(L, "parameter_bytes", r->parameter_bytes);
    gl_set_integer(L, "read_bytes", r->read_bytes);
    gl_set_integer(L, "write_bytes", r->write_bytes);
    gl_set_integer(L, "padding_bytes", r->padding_bytes);
    gl_set_integer(L, "commit_bytes", r->commit_bytes);
    gl_set_integer(L, "store_ns", r->store_ns);
    gl_set_integer(L, "exposed_ns", r->exposed_ns);
    gl_set_number(L, "norm_compressed", r->norm_compressed);
    gl_push_ledger(L, &r->ledger);
    lua_setfield(L, -2, "ledger");
}

/* ---- begin ------------------------------------------------------------- */

static gyre_status read_groups(lua_State *L, gl_store *s, int t, int anchor,
                               gyre_round_options *options, gyre_error *error)
{
    gyre_store_info info = {.size = sizeof(info)};
    gyre_status status = gyre_store_get_info(s->store, &info, error);

    if (status != GYRE_OK || !gl_table(L, t, "groups"))
        return status;
    size_t n = lua_rawlen(L, -1);
    if (n != info.groups)
        luaL_error(L, "%I groups given, the store has %I", (LUAI_UACINT)n,
                   (LUAI_UACINT)info.groups);
    gyre_group *groups = gl_scratch(L, anchor, n, sizeof(*groups));
    for (size_t i = 0; i < n && status == GYRE_OK; i++) {
        if (lua_rawgeti(L, -1, (lua_Integer)i + 1) != LUA_TTABLE)
            luaL_error(L, "group %d is a %s, not a table", (int)i + 1,
                       luaL_typename(L, -1));
        int group = lua_gettop(L);
        status = gl_settings(L, s->context, GYRE_KIND_OPTIMIZER, info.optimizer,
                             group, anchor, false, &groups[i].settings,
                             &groups[i].count, error);
        lua_settop(L, group - 1);
    }
    lua_pop(L, 1);
    options->groups = groups;
    options->group_count = n;
    return status;
}

static gyre_status read_round_options(lua_State *L, gl_store *s, int t,
                                      int anchor, gyre_round_options *options,
                                      gyre_error *error)
{
    static const char *const names[] = {
        "groups",        "clip",        "loss_scale",
        "micro_batches", "denominator", "early",
        "dynamic_scale", "late_clip",   NULL};

    luaL_checktype(L, t, LUA_TTABLE);
    gl_check_fields(L, t, "a round", names);
    options->clip = gl_number(L, t, "clip", 0);
    options->loss_scale = gl_number(L, t, "loss_scale", 0);
    options->micro_batches =
        (uint32_t)gl_integer(L, t, "micro_batches", 0, 0, UINT32_MAX);
    options->denominator = gl_number(L, t, "denominator", 0);
    options->early = gl_flag(L, t, "early");
    options->dynamic_scale = gl_flag(L, t, "dynamic_scale");
    options->late_clip = gl_flag(L, t, "late_clip");
    return read_groups(L, s, t, anchor, options, error);
}

int gl_begin(lua_State *L)
{
    gl_store *s = gl_check_store(L, 1);
    gyre_round_options options = {.size = sizeof(options)};
    gyre_error error = {0};
    gyre_status status = GYRE_OK;

    lua_settop(L, 2);
    lua_newtable(L);
    if (!lua_isnil(L, 2))
        status = read_round_options(L, s, 2, 3, &options, &error);
    gl_round *r = lua_newuserdatauv(L, sizeof(*r), 1);
    memset(r, 0, sizeof(*r));
    luaL_setmetatable(L, GL_ROUND);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    gyre_round *round = NULL;
    if (status == GYRE_OK)
        status = gyre_round_begin(s->store, &options, &round, &error);
    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    s->round = round;
    s->updating = false;
    r->store = s;
    r->number = ++s->rounds;
    return 1;
}

/* ---- pieces ------------------------------------------------------------ */

/* gradient(tensor, array [, first [, count]]): element 1 of the array is
 * element `first` of the tensor. */
static int round_gradient(lua_State *L)
{
    gl_store *s = check_round(L);
    size_t tensor = gl_check_tensor(L, s, 2);
    gyre_lua_array *a = gyre_lua_check_array(L, 3);
    lua_Integer first = luaL_optinteger(L, 4, 1);
    lua_Integer count = luaL_optinteger(L, 5, (lua_Integer)a->n);
    gyre_gradient g = {.kind = GYRE_HOST_MEMORY,
                       .dtype = (gyre_dtype)a->dtype,
                       .stride = 1,
                       .data = a->data};
    gyre_error error = {0};

    luaL_argcheck(L, first >= 1, 4, "elements count from 1");
    luaL_argcheck(L, count >= 0 && (uint64_t)count <= a->n, 5,
                  "more than the array holds");
    gyre_status status = gyre_round_gradient(
        s->round, tensor, (uint64_t)first - 1, (uint64_t)count, &g, &error);
    return status == GYRE_OK ? gl_done(L) : gl_fail(L, status, &error);
}

static int round_absent(lua_State *L)
{
    gl_store *s = check_round(L);
    size_t tensor = gl_check_tensor(L, s, 2);
    gyre_error error = {0};
    gyre_status status = gyre_round_absent(s->round, tensor, &error);

    return status == GYRE_OK ? gl_done(L) : gl_fail(L, status, &error);
}

static int round_release(lua_State *L)
{
    gl_store *s = check_round(L);
    size_t tensor = gl_check_tensor(L, s, 2);
    gyre_error error = {0};
    gyre_status status = gyre_round_release(s->round, tensor, &error);

    return status == GYRE_OK ? gl_done(L) : gl_fail(L, status, &error);
}

static int round_next(lua_State *L)
{
    gl_store *s = check_round(L);
    gyre_error error = {0};
    gyre_status status = gyre_round_next(s->round, &error);

    return status == GYRE_OK ? gl_done(L) : gl_fail(L, status, &error);
}

/* ---- the end ----------------------------------------------------------- */

static int round_update(lua_State *L)
{
    gl_store *s = check_round(L);
    gyre_round_report report = {.size = sizeof(report)};
    gyre_error error = {0};
    gyre_status status = gyre_round_update(s->round, &report, &error);

    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    s->updating = true;
    push_report(L, &report, false);
    return 1;
}

static int round_wait(lua_State *L)
{
    gl_store *s = check_round(L);
    size_t tensor = gl_check_tensor(L, s, 2);
    gyre_error error = {0};
    gyre_status status = gyre_round_wait(s->round, tensor, &error);

    return status == GYRE_OK ? gl_done(L) : gl_fail(L, status, &error);
}

static int round_finish(lua_State *L)
{
    gl_store *s = check_round(L);
    size_t bytes = 0;
    const char *blob = luaL_optlstring(L, 2, NULL, &bytes);
    gyre_round_report report = {.size = sizeof(report)};
    gyre_error error = {0};
    gyre_status status =
        gyre_round_finish(s->round, blob, bytes, &report, &error);

    /* Only missing pieces leave the round open. */
    if (status != GYRE_MISSING)
        s->round = NULL;
    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    push_report(L, &report, true);
    return 1;
}

static int round_abort(lua_State *L)
{
    gl_store *s = check_round(L);
    gyre_error error = {0};
    gyre_status status = gyre_round_abort(s->round, &error);

    if (status != GYRE_STATE)
        s->round = NULL;
    return status == GYRE_OK ? gl_done(L) : gl_fail(L, status, &error);
}

static int round_close(lua_State *L)
{
    gl_store *s = open_store(luaL_checkudata(L, 1, GL_ROUND));

    if (s != NULL && !s->updating) {
        gyre_round_abort(s->round, NULL);
        s->round = NULL;
    }
    return 0;
}

static int round_tostring(lua_State *L)
{
    gl_round *r = luaL_checkudata(L, 1, GL_ROUND);
    gl_store *s = open_store(r);

    lua_pushfstring(L, "gyre.round (%s)",
                    s == NULL     ? "over"
                    : s->updating ? "updating"
                                  : "open");
    return 1;
}

void gl_open_round(lua_State *L)
{
    static const luaL_Reg meta[] = {{"__gc", round_close},
                                    {"__close", round_close},
                                    {"__tostring", round_tostring},
                                    {NULL, NULL}};
    static const luaL_Reg methods[] = {
        {"gradient", round_gradient}, {"absent", round_absent},
        {"release", round_release},   {"next", round_next},
        {"update", round_update},     {"wait", round_wait},
        {"finish", round_finish},     {"abort", round_abort},
        {"close", round_close},       {NULL, NULL}};

    luaL_newmetatable(L, GL_ROUND);
    luaL_setfuncs(L, meta, 0);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}
