/* SPDX-License-Identifier: Apache-2.0 */
/* Plugins as tables, and optimizers checked against their parameters. */
#include "config.h"

#include "module.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The stride of the table is its first element's size, so that a plugin built
 * against a newer header can be read. */
static const gyre_parameter *parameter_at(const gyre_plugin *plugin, size_t i)
{
    const char *first = (const char *)plugin->parameters;

    return (const gyre_parameter *)(const void *)(first +
                                                  i * plugin->parameters->size);
}

/* Push the words of a choice as a list. */
static void push_words(lua_State *L, const char *words)
{
    lua_Integer n = 0;

    lua_newtable(L);
    while (*words != '\0') {
        size_t length = strcspn(words, "|");

        lua_pushlstring(L, words, length);
        lua_rawseti(L, -2, ++n);
        words += length;
        words += *words == '|';
    }
}

/* Push a value of this parameter the way that scripts write it. */
static void push_value(lua_State *L, const gyre_parameter *p, double value)
{
    switch (p->type) {
    case GYRE_TYPE_SWITCH:
        lua_pushboolean(L, value != 0);
        break;
    case GYRE_TYPE_INT:
        if (fabs(value) <= 0x1p53) {
            lua_pushinteger(L, (lua_Integer)value);
            break;
        }
        /* fall through */
    case GYRE_TYPE_FLOAT:
    default:
        lua_pushnumber(L, value);
        break;
    case GYRE_TYPE_CHOICE:
        push_words(L, p->words);
        lua_rawgeti(L, -1, (lua_Integer)value + 1);
        lua_remove(L, -2);
        break;
    }
}

static void push_parameter(lua_State *L, const gyre_parameter *p)
{
    static const char *const types[] = {"switch", "integer", "number",
                                        "choice"};

    lua_createtable(L, 0, 8);
    gl_set_text(L, "name", p->name);
    gl_set_text(L, "doc", p->doc);
    gl_set_text(L, "type", types[p->type & 3]);
    gl_set_text(L, "class",
                p->klass == GYRE_STRUCTURAL ? "structural" : "step");
    push_value(L, p, p->initial);
    lua_setfield(L, -2, "default");
    if (p->type == GYRE_TYPE_CHOICE) {
        push_words(L, p->words);
        lua_setfield(L, -2, "words");
    } else if (p->type != GYRE_TYPE_SWITCH) {
        push_value(L, p, p->min);
        lua_setfield(L, -2, "min");
        push_value(L, p, p->max);
        lua_setfield(L, -2, "max");
        gl_set_text(L, "ends", p->ends);
    }
}

/* Append the plugin (1) and its path (2) to the list (3). */
static int append_plugin(lua_State *L)
{
    const gyre_plugin *plugin = lua_touserdata(L, 1);
    const char *path = lua_touserdata(L, 2);

    lua_createtable(L, 0, 8);
    gl_set_text(L, "kind", plugin->kind);
    gl_set_text(L, "name", plugin->name);
    gl_set_text(L, "version", plugin->version);
    gl_set_text(L, "summary", plugin->summary);
    gl_set_text(L, "licence", plugin->licence);
    gl_set_text(L, "path", path);
    lua_createtable(L, (int)plugin->parameter_count, 0);
    for (size_t i = 0; i < plugin->parameter_count; i++) {
        push_parameter(L, parameter_at(plugin, i));
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "parameters");
    lua_rawseti(L, 3, (lua_Integer)lua_rawlen(L, 3) + 1);
    return 0;
}

typedef struct walk {
    lua_State *L;
    int list;         /* stack index of the result */
    const char *name; /* NULL: all */
    bool failed;      /* the error is on top of the stack */
} walk;

static int each_plugin(void *user, const gyre_plugin *plugin, const char *path)
{
    walk *w = user;
    lua_State *L = w->L;

    if (w->name != NULL && strcmp(w->name, plugin->name) != 0)
        return 0;
    lua_pushcfunction(L, append_plugin);
    lua_pushlightuserdata(L, (void *)(uintptr_t)plugin);
    lua_pushlightuserdata(L, (void *)(uintptr_t)path);
    lua_pushvalue(L, w->list);
    w->failed = lua_pcall(L, 3, 0, 0) != LUA_OK;
    return w->failed;
}

/* Push the list of plugins, or of those with this name. */
static gyre_status list_plugins(lua_State *L, gl_context *context,
                                const char *name, gyre_error *error)
{
    walk w = {.L = L, .name = name};

    luaL_checkstack(L, LUA_MINSTACK, "plugins");
    lua_newtable(L);
    w.list = lua_gettop(L);
    gyre_status status =
        gyre_plugin_each(context->context, each_plugin, &w, error);
    if (w.failed)
        lua_error(L);
    return status;
}

int gl_plugins(lua_State *L)
{
    gl_context *context;
    gyre_error error = {0};

    gl_take_context(L, &context);
    gyre_status status = list_plugins(L, context, NULL, &error);
    return status == GYRE_OK ? 1 : gl_fail(L, status, &error);
}

/* By name alone: the names of all kinds are one name space for people.  The
 * search by kind comes last, for its message says where it looked. */
int gl_plugin(lua_State *L)
{
    gl_context *context;
    const gyre_plugin *plugin;
    gyre_error error = {0};
    int base = gl_take_context(L, &context);
    const char *name = luaL_checkstring(L, base + 1);
    gyre_status status = list_plugins(L, context, name, &error);

    if (status == GYRE_OK) {
        if (lua_rawgeti(L, -1, 1) == LUA_TTABLE)
            return 1;
        status = gyre_plugin_find(context->context, GYRE_KIND_OPTIMIZER, name,
                                  &plugin, &error);
    }
    return gl_fail(L, status, &error);
}

/* ---- settings ---------------------------------------------------------- */

/* The text of the value on top of the stack, as gyre_plugin_parse reads it;
 * NULL for a type that no parameter takes. */
static const char *value_text(lua_State *L, char *buffer, size_t size)
{
    switch (lua_type(L, -1)) {
    case LUA_TBOOLEAN:
        return lua_toboolean(L, -1) ? "true" : "false";
    case LUA_TSTRING:
        return lua_tostring(L, -1);
    case LUA_TNUMBER:
        if (lua_isinteger(L, -1))
            snprintf(buffer, size, "%lld", (long long)lua_tointeger(L, -1));
        else
            snprintf(buffer, size, "%.17g", lua_tonumber(L, -1));
        return buffer;
    default:
        return NULL;
    }
}

/* Words need the table of the plugin; numbers and switches are checked by the
 * library later, too, and go straight through on the way of every step. */
static gyre_status setting_value(lua_State *L, const gyre_plugin *plugin,
                                 const char *key, double *value,
                                 gyre_error *error)
{
    char buffer[64];

    if (plugin == NULL) {
        *value =
            lua_isboolean(L, -1) ? lua_toboolean(L, -1) : lua_tonumber(L, -1);
        return GYRE_OK;
    }
    const char *text = value_text(L, buffer, sizeof(buffer));
    if (text == NULL)
        luaL_error(L, "parameter '%s': a %s is not a value", key,
                   luaL_typename(L, -1));
    return gyre_plugin_parse(plugin, key, text, value, error);
}

/* Count the named fields and say whether one needs the plugin's table. */
static size_t count_settings(lua_State *L, int t, bool *words)
{
    size_t n = 0;

    lua_pushnil(L);
    while (lua_next(L, t) != 0) {
        if (lua_type(L, -2) == LUA_TSTRING)
            n++;
        else if (!(lua_isinteger(L, -2) && lua_tointeger(L, -2) == 1))
            luaL_error(L, "parameters are named fields, as in lr = 1e-3");
        *words |= lua_type(L, -2) == LUA_TSTRING && !lua_isboolean(L, -1) &&
                  lua_type(L, -1) != LUA_TNUMBER;
        lua_pop(L, 1);
    }
    return n;
}

gyre_status gl_settings(lua_State *L, gl_context *context, const char *kind,
                        const char *name, int t, int anchor, bool check,
                        const gyre_setting **out, size_t *count,
                        gyre_error *error)
{
    const gyre_plugin *plugin = NULL;
    gyre_status status = GYRE_OK;
    size_t n = count_settings(L, t, &check), i = 0;
    gyre_setting *settings = gl_scratch(L, anchor, n, sizeof(*settings));

    if (check)
        status = gyre_plugin_find(context->context, kind, name, &plugin, error);
    lua_pushnil(L);
    while (status == GYRE_OK && lua_next(L, t) != 0) {
        if (lua_type(L, -2) == LUA_TSTRING) {
            settings[i].name = lua_tostring(L, -2);
            status = setting_value(L, plugin, settings[i].name,
                                   &settings[i].value, error);
            i++;
        }
        lua_pop(L, 1);
    }
    if (status != GYRE_OK)
        return status;
    *out = settings;
    *count = n;
    return GYRE_OK;
}

/* gyre.optimizer{ "adamw", lr = 1e-3 }: the same table, checked. */
int gl_optimizer(lua_State *L)
{
    gl_context *context;
    const gyre_setting *settings;
    size_t count;
    gyre_error error = {0};
    int base = gl_take_context(L, &context);

    luaL_checktype(L, base + 1, LUA_TTABLE);
    luaL_argcheck(L, lua_rawgeti(L, base + 1, 1) == LUA_TSTRING, base + 1,
                  "the optimizer's name comes first, as in { \"adamw\" }");
    lua_newtable(L);
    gyre_status status =
        gl_settings(L, context, GYRE_KIND_OPTIMIZER, lua_tostring(L, -2),
                    base + 1, lua_gettop(L), true, &settings, &count, &error);
    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    lua_settop(L, base + 1);
    return 1;
}
