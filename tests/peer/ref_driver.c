/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run an optimizer's reference formula (name.ref.lua, the argument) over a job
 * (job.h), f64 in the answer.
 */
#include "config.h"

#include "base/base.h"
#include "job.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

/* A switch becomes true or false, a choice its word. */
static void push_value(lua_State *L, const gyre_parameter *p, double value)
{
    const char *word = p->words;

    if (p->type == GYRE_TYPE_SWITCH) {
        lua_pushboolean(L, value != 0.0);
        return;
    }
    if (p->type != GYRE_TYPE_CHOICE) {
        lua_pushnumber(L, value);
        return;
    }
    for (int i = 0; i < (int)value; i++)
        word = strchr(word, '|') + 1;
    lua_pushlstring(L, word, strcspn(word, "|"));
}

static void push_hyper(lua_State *L, const gyre_opt *opt, const job *j,
                       const double *vary)
{
    const gyre_plugin *plugin = gyre_opt_plugin(opt);
    gyre_setting settings[JOB_MAX];
    double values[GYRE_OPT_MAX_PARAMETERS];
    gyre_error error = {0};

    for (size_t i = 0; i < j->varied; i++) {
        settings[i].name = j->vary[i];
        settings[i].value = vary[i];
    }
    if (gyre_opt_values(opt, settings, j->varied, values, &error) != GYRE_OK)
        job_die(error.text);
    lua_newtable(L);
    for (size_t i = 0; i < plugin->parameter_count; i++) {
        push_value(L, &plugin->parameters[i], values[i]);
        lua_setfield(L, -2, plugin->parameters[i].name);
    }
}

static const char *slot_name(const gyre_opt *opt, size_t k)
{
    return k == 0 ? "p" : gyre_opt_slot_name(opt, k - 1);
}

/* The stack holds the function at 1 and hyper at 2. */
static void step_element(lua_State *L, const gyre_opt *opt, double **slot,
                         size_t i, float g, unsigned long t)
{
    size_t slots = gyre_opt_slot_count(opt);

    lua_newtable(L);
    for (size_t k = 0; k <= slots; k++) {
        lua_pushnumber(L, slot[k][i]);
        lua_setfield(L, 3, slot_name(opt, k));
    }
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 3);
    lua_pushnumber(L, (double)g);
    lua_pushvalue(L, 2);
    lua_pushinteger(L, (lua_Integer)t);
    if (lua_pcall(L, 4, 0, 0) != LUA_OK)
        job_die(lua_tostring(L, -1));
    for (size_t k = 0; k <= slots; k++) {
        lua_getfield(L, 3, slot_name(opt, k));
        slot[k][i] = lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    lua_settop(L, 2);
}

static void run(lua_State *L, const gyre_opt *opt, const job *j)
{
    size_t n = j->cuts[j->groups], slots = gyre_opt_slot_count(opt);
    double *slot[1 + GYRE_OPT_MAX_SLOTS];
    double *vary = job_array(j->groups * j->varied, sizeof(double));
    float *g = job_array(n, sizeof(float));

    for (size_t k = 0; k <= slots; k++) {
        slot[k] = job_array(n, sizeof(double));
        for (size_t i = 0; k > 0 && i < n; i++)
            slot[k][i] = (double)gyre_opt_slot_initial(opt, k - 1);
    }
    job_bytes(g, n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        slot[0][i] = (double)g[i];
    for (unsigned long t = 1; t <= j->steps; t++) {
        job_bytes(vary, j->groups * j->varied * sizeof(double));
        job_bytes(g, n * sizeof(float));
        for (size_t group = 0; group < j->groups; group++) {
            push_hyper(L, opt, j, vary + group * j->varied);
            for (size_t i = j->cuts[group]; i < j->cuts[group + 1]; i++)
                step_element(L, opt, slot, i, g[i], t);
            lua_settop(L, 1);
        }
        for (size_t k = 0; k <= slots; k++)
            job_answer(slot[k], n * sizeof(double));
    }
    for (size_t k = 0; k <= slots; k++)
        free(slot[k]);
    free(g);
    free(vary);
}

int main(int count, char **words)
{
    lua_State *L = luaL_newstate();
    gyre_context *context = NULL;
    gyre_opt *opt = NULL;
    gyre_error error = {0};
    job j;

    if (count != 2 || L == NULL)
        job_die("want the path of a .ref.lua");
    luaL_openlibs(L);
    if (luaL_loadfile(L, words[1]) != LUA_OK ||
        lua_pcall(L, 0, 1, 0) != LUA_OK || !lua_isfunction(L, 1))
        job_die(lua_isstring(L, -1) ? lua_tostring(L, -1) : "no function");
    job_read(&j);
    if (gyre_context_create(NULL, &context, &error) != GYRE_OK ||
        gyre_opt_create(context, j.optimizer, j.settings, j.count, &opt,
                        &error) != GYRE_OK)
        job_die(error.text);
    run(L, opt, &j);
    gyre_opt_destroy(opt);
    gyre_context_destroy(context);
    lua_close(L);
    return 0;
}
