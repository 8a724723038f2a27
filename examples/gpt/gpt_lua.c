/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_lua.c - the Lua module "gpt": models. Texts are in gpt_lua_text.c, ranks
 * in gpt_lua_ranks.c.
 *
 *   local gpt = require "gpt"
 *   local model <close> = gpt.new{layers=4, heads=4, width=128, context=128}
 *   -- or with attention by ranks: {..., schedule="ring", ranks=4, exact=true}
 *   for i, p in ipairs(model:parameters()) do ... p.data, p.grad ... end
 *   local loss = model:forward_backward(tokens, batch, length, 1.0,
 *       function(i) ... end,  -- the gradient of parameter i is ready
 *       function(i) ... end)  -- parameter i is about to be read
 *   loss = model:loss(tokens, batch, length, function(i) ... end)  -- likewise
 *
 * The functions must not use the model, but for model:share; an error of theirs
 * comes out of the call, which finishes its arithmetic first and calls neither
 * again.
 *
 * Arrays of a closed model stay valid until they are collected: closing
 * frees the workspace only, the weights go with the last reference.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gpt_lua.h"
#include "gpt.h"
#include "gpt_ranks.h"

#include <gyre/dtype.h>
#include <lauxlib.h>
#include <lua.h>

#include <gyre/lua.h>
#include <limits.h>
#include <stdbool.h>

#if defined(__GNUC__)
#define EXPORT __attribute__((visibility("default")))
#else
#define EXPORT
#endif

typedef gpt_lua_model model;

lua_Integer gpt_lua_field(lua_State *L, int index, const char *name,
                          lua_Integer low, lua_Integer fallback)
{
    lua_Integer value = fallback;
    int whole = 1;

    if (lua_getfield(L, index, name) != LUA_TNIL)
        value = lua_tointegerx(L, -1, &whole);
    if (!whole || value < low)
        luaL_error(L, "gpt: %s is %s, must be a whole number >= %I", name,
                   luaL_tolstring(L, -1, NULL), low);
    lua_pop(L, 1);
    return value;
}

size_t gpt_lua_size(lua_State *L, int arg)
{
    lua_Integer value = luaL_checkinteger(L, arg);

    luaL_argcheck(L, value >= 1, arg, "must be at least 1");
    return (size_t)value;
}

gpt_lua_model *gpt_lua_check_model(lua_State *L)
{
    model *m = luaL_checkudata(L, 1, GPT_LUA_MODEL);

    luaL_argcheck(L, m->g && !m->closed, 1, "the model is closed");
    return m;
}

static model *check_model(lua_State *L)
{
    model *m = gpt_lua_check_model(L);

    luaL_argcheck(L, !m->busy, 1,
                  "the model is busy: called from its callback");
    return m;
}

static gpt_config check_config(lua_State *L)
{
    gpt_config config = {0};

    luaL_checktype(L, 1, LUA_TTABLE);
    config.layers = (size_t)gpt_lua_field(L, 1, "layers", 1, 4);
    config.heads = (size_t)gpt_lua_field(L, 1, "heads", 1, 4);
    config.width = (size_t)gpt_lua_field(L, 1, "width", 1, 128);
    config.context = (size_t)gpt_lua_field(L, 1, "context", 1, 128);
    config.threads = (size_t)gpt_lua_field(L, 1, "threads", 0, 0);
    config.seed = (uint64_t)gpt_lua_field(L, 1, "seed", LUA_MININTEGER, 1);
    return config;
}

static int model_new(lua_State *L)
{
    gpt_config config = check_config(L);
    char reason[200] = "";
    model *m;

    m = lua_newuserdatauv(L, sizeof *m, 0);
    *m = (model){0};
    luaL_setmetatable(L, GPT_LUA_MODEL);
    m->g = gpt_create(&config, reason, sizeof reason);
    if (!m->g)
        return luaL_error(L, "%s", reason);
    gpt_lua_use_ranks(L, m);
    return 1;
}

/* The fields of a parameter that it has before there is memory for it. */
static void push_parameter(lua_State *L, const gpt_parameter *p)
{
    lua_createtable(L, 0, 6);
    lua_pushstring(L, p->name);
    lua_setfield(L, -2, "name");
    lua_pushinteger(L, (lua_Integer)p->n);
    lua_setfield(L, -2, "n");
    lua_pushboolean(L, p->decay);
    lua_setfield(L, -2, "decay");
    lua_createtable(L, p->rank, 0);
    for (int k = 0; k < p->rank; k++) {
        lua_pushinteger(L, (lua_Integer)p->shape[k]);
        lua_rawseti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "shape");
}

/* gpt.plan({layers = ...}, batch) -> parameters without data, bytes of a
 * model used with batches of that size */
static int model_plan(lua_State *L)
{
    gpt_config config = check_config(L);
    size_t bytes = gpt_memory(&config, gpt_lua_size(L, 2));
    char name[GPT_NAME_BYTES];
    gpt_parameter p;

    if (bytes == 0)
        return luaL_error(L, "gpt: no such model: heads must divide width, "
                             "and the sizes must fit");
    lua_newtable(L);
    for (size_t i = 0; gpt_parameter_plan(&config, i, name, &p) == 0; i++) {
        push_parameter(L, &p);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_pushinteger(L, (lua_Integer)bytes);
    return 2;
}

/* Also __close, whose argument 2 is the error that ends the block. */
static int model_close(lua_State *L)
{
    model *m = luaL_checkudata(L, 1, GPT_LUA_MODEL);

    if (m->busy)
        return luaL_error(L, "gpt: closed from its callback");
    if (m->ranks && !lua_isnoneornil(L, 2))
        gpt_ranks_give_up(m->ranks, luaL_tolstring(L, 2, NULL));
    if (m->g && !m->closed)
        gpt_release(m->g);
    m->closed = 1;
    return 0;
}

static int model_gc(lua_State *L)
{
    model *m = luaL_checkudata(L, 1, GPT_LUA_MODEL);

    gpt_destroy(m->g);
    gpt_ranks_destroy(m->ranks);
    m->g = NULL;
    m->ranks = NULL;
    m->closed = 1;
    return 0;
}

static int model_tostring(lua_State *L)
{
    const model *m = luaL_checkudata(L, 1, GPT_LUA_MODEL);
    const gpt_config *c;

    if (!m->g || m->closed) {
        lua_pushliteral(L, "gpt (closed)");
        return 1;
    }
    c = gpt_configuration(m->g);
    lua_pushfstring(L, "gpt (layers %I, heads %I, width %I, context %I)",
                    (lua_Integer)c->layers, (lua_Integer)c->heads,
                    (lua_Integer)c->width, (lua_Integer)c->context);
    return 1;
}

static int model_parameters(lua_State *L)
{
    model *m = check_model(L);
    size_t count = gpt_parameter_count(m->g);

    lua_createtable(L, (int)count, 0);
    for (size_t i = 0; i < count; i++) {
        const gpt_parameter *p = gpt_parameter_at(m->g, i);

        push_parameter(L, p);
        gyre_lua_push_array(L, 1, GYRE_F32, p->data, p->n);
        lua_setfield(L, -2, "data");
        gyre_lua_push_array(L, 1, GYRE_F32, p->grad, p->n);
        lua_setfield(L, -2, "grad");
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

/* ---- one step ---- */

static int32_t element(lua_State *L, const gyre_lua_array *a, size_t i)
{
    lua_Integer value;
    int whole;

    if (a)
        return a->dtype == GYRE_I32 ? ((const int32_t *)a->data)[i]
                                    : ((const uint8_t *)a->data)[i];
    lua_rawgeti(L, 2, (lua_Integer)i + 1);
    value = lua_tointegerx(L, -1, &whole);
    lua_pop(L, 1);
    if (!whole || value < 0 || value >= GPT_VOCABULARY)
        luaL_error(L, "gpt: tokens[%I] must be a whole number 0 to 255",
                   (lua_Integer)i + 1);
    return (int32_t)value;
}

/*
 * Argument 2 has batch rows of length + 1 tokens. Leaves a buffer on the
 * stack: inputs [batch][length], then targets [batch][length].
 */
static int32_t *split_tokens(lua_State *L, size_t batch, size_t length)
{
    const gyre_lua_array *a = luaL_testudata(L, 2, GYRE_LUA_ARRAY);
    uint64_t have;
    int32_t *out;

    if (!a)
        luaL_checktype(L, 2, LUA_TTABLE);
    else
        gyre_lua_check_array(L, 2);
    if (a && a->dtype != GYRE_I32 && a->dtype != GYRE_U8)
        luaL_argerror(L, 2, "array of i32 or u8 expected");
    have = a ? a->n : lua_rawlen(L, 2);
    if (length >= INT_MAX || batch > INT_MAX / (length + 1) ||
        have != (uint64_t)batch * (length + 1))
        luaL_error(L, "gpt: %I tokens, need batch %I x (length %I + 1)",
                   (lua_Integer)have, (lua_Integer)batch, (lua_Integer)length);
    out = lua_newuserdatauv(L, batch * length * 2 * sizeof *out, 0);
    for (size_t b = 0; b < batch; b++)
        for (size_t i = 0; i <= length; i++) {
            int32_t token = element(L, a, b * (length + 1) + i);

            if (i < length)
                out[b * length + i] = token;
            if (i > 0)
                out[(batch + b) * length + i - 1] = token;
        }
    return out;
}

/* The two callbacks of one call. */
typedef struct callbacks {
    lua_State *L;
    int on_gradient, on_parameter; /* stack indices, 0: none */
    int failed;                    /* the error is on top of the stack */
} callbacks;

/* An error must not jump out of the C code: it waits on the stack, and later
 * parameters are not announced. */
static void call(callbacks *c, int function, size_t parameter)
{
    if (c->failed)
        return;
    lua_pushvalue(c->L, function);
    lua_pushinteger(c->L, (lua_Integer)parameter + 1);
    c->failed = lua_pcall(c->L, 1, 0, 0) != LUA_OK;
}

static void on_gradient(gpt *g, size_t parameter, void *user)
{
    (void)g;
    call(user, ((callbacks *)user)->on_gradient, parameter);
}

static void on_parameter(gpt *g, size_t parameter, void *user)
{
    (void)g;
    call(user, ((callbacks *)user)->on_parameter, parameter);
}

/* arg, or 0 for none and nil */
static int optional_function(lua_State *L, int arg)
{
    if (lua_isnoneornil(L, arg))
        return 0;
    luaL_checktype(L, arg, LUA_TFUNCTION);
    return arg;
}

static int step(lua_State *L, callbacks *c, bool gradient, float scale)
{
    model *m = check_model(L);
    size_t batch = gpt_lua_size(L, 3), length = gpt_lua_size(L, 4);
    int32_t *tokens, *targets;
    double loss;

    luaL_checkstack(L, 8, "gpt");
    tokens = split_tokens(L, batch, length);
    targets = tokens + batch * length;
    gpt_on_gradient(m->g, c->on_gradient ? on_gradient : NULL, c);
    gpt_on_parameter(m->g, c->on_parameter ? on_parameter : NULL, c);
    m->busy = 1;
    loss = gradient ? gpt_forward_backward(m->g, tokens, targets, batch, length,
                                           scale)
                    : gpt_loss(m->g, tokens, targets, batch, length);
    m->busy = 0;
    gpt_on_gradient(m->g, NULL, NULL);
    gpt_on_parameter(m->g, NULL, NULL);
    if (c->failed)
        return lua_error(L);
    if (loss < 0.0)
        return luaL_error(L, "%s", gpt_error(m->g));
    lua_pushnumber(L, loss);
    return 1;
}

/* model:forward_backward(tokens, batch, length [, scale [, on_gradient
 * [, on_parameter]]]): the functions get the number of a parameter */
static int model_forward_backward(lua_State *L)
{
    callbacks c = {.L = L,
                   .on_gradient = optional_function(L, 6),
                   .on_parameter = optional_function(L, 7)};

    return step(L, &c, true, (float)luaL_optnumber(L, 5, 1.0));
}

/* model:loss(tokens, batch, length [, on_parameter]) */
static int model_loss(lua_State *L)
{
    callbacks c = {.L = L, .on_parameter = optional_function(L, 5)};

    return step(L, &c, false, 1.0f);
}

static int model_generate(lua_State *L)
{
    model *m = check_model(L);
    size_t length;
    const char *prompt = luaL_checklstring(L, 2, &length);
    lua_Integer n = luaL_checkinteger(L, 3), top_k = 0, seed = 1;
    lua_Number temperature = 1.0;
    luaL_Buffer buffer;
    char *out;

    luaL_argcheck(L, n >= 0, 3, "must not be negative");
    if (!lua_isnoneornil(L, 4)) {
        luaL_checktype(L, 4, LUA_TTABLE);
        top_k = gpt_lua_field(L, 4, "top_k", 0, 0);
        seed = gpt_lua_field(L, 4, "seed", LUA_MININTEGER, 1);
        lua_getfield(L, 4, "temperature");
        temperature = luaL_optnumber(L, -1, 1.0);
    }
    out = luaL_buffinitsize(L, &buffer, (size_t)n);
    if (gpt_generate(m->g, (const uint8_t *)prompt, length, (size_t)n,
                     temperature, (size_t)top_k, (uint64_t)seed,
                     (uint8_t *)out) != 0)
        return luaL_error(L, "%s", gpt_error(m->g));
    luaL_pushresultsize(&buffer, (size_t)n);
    return 1;
}

static int model_memory(lua_State *L)
{
    model *m = check_model(L);
    size_t bytes = gpt_memory(gpt_configuration(m->g), gpt_lua_size(L, 2));

    if (bytes == 0)
        return luaL_error(L, "gpt: a batch of %I is too large",
                          lua_tointeger(L, 2));
    lua_pushinteger(L, (lua_Integer)bytes);
    return 1;
}

EXPORT int luaopen_gpt(lua_State *L);

int luaopen_gpt(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"parameters", model_parameters},
        {"forward_backward", model_forward_backward},
        {"loss", model_loss},
        {"generate", model_generate},
        {"memory", model_memory},
        {"close", model_close},
        {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__close", model_close},
                                    {"__gc", model_gc},
                                    {"__tostring", model_tostring},
                                    {NULL, NULL}};
    static const luaL_Reg functions[] = {
        {"new", model_new}, {"plan", model_plan}, {NULL, NULL}};

    luaL_checkversion(L);
    gyre_lua_array_metatable(L);
    luaL_newmetatable(L, GPT_LUA_MODEL);
    luaL_setfuncs(L, meta, 0);
    luaL_newlib(L, methods);
    gpt_lua_add_ranks(L);
    lua_setfield(L, -2, "__index");
    luaL_newlib(L, functions);
    gpt_lua_open_text(L);
    return 1;
}
