/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gyre.options: a script's declaration becomes its command line.
 *
 * The words come from the global table `arg`, so a script takes the same
 * options under `gyre run` and under the stock interpreter.
 */
#include "config.h"

#include "options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const type_names[GL_TYPE_COUNT + 1] = {
    "integer", "number", "string", "path", "switch", "choice", NULL};

static const char *const common[] = {"dry-run", "json", "quiet", "help", NULL};

/* ---- the declaration --------------------------------------------------- */

static void copy_name(lua_State *L, gl_option *o, const char *name)
{
    if (strlen(name) >= GL_OPTION_NAME || name[0] == '-' || name[0] == '\0')
        luaL_error(L, "'%s' cannot be the name of an option", name);
    snprintf(o->flag, sizeof(o->flag), "%s", name);
    snprintf(o->key, sizeof(o->key), "%s", name);
    for (size_t i = 0; name[i] != '\0'; i++) {
        if (name[i] == '_')
            o->flag[i] = '-';
        if (name[i] == '-')
            o->key[i] = '_';
    }
    for (size_t i = 0; common[i] != NULL; i++)
        if (strcmp(common[i], o->flag) == 0)
            luaL_error(L, "every script has --%s already", o->flag);
}

static gl_option_type read_type(lua_State *L, int t, const char *name)
{
    const char *type = gl_text(L, t, "type");
    int i = 0;

    if (type == NULL)
        return GL_STRING;
    while (type_names[i] != NULL && strcmp(type_names[i], type) != 0)
        i++;
    if (type_names[i] == NULL)
        luaL_error(L,
                   "option '%s': type '%s' is not one of integer, number, "
                   "string, path, switch, choice",
                   name, type);
    return (gl_option_type)i;
}

/* A default that the option itself could not be given is the script's
 * mistake; catch it where it is written. */
static void check_default(lua_State *L, const gl_option *o, int t)
{
    static const int wanted[] = {LUA_TNUMBER, LUA_TNUMBER,  LUA_TSTRING,
                                 LUA_TSTRING, LUA_TBOOLEAN, LUA_TSTRING};
    int type = lua_getfield(L, t, "default");

    if (type != LUA_TNIL && type != wanted[o->type])
        luaL_error(L, "option '%s': its default is a %s", o->flag,
                   lua_typename(L, type));
    if (type == LUA_TNIL && o->type == GL_SWITCH) {
        lua_pop(L, 1);
        lua_pushboolean(L, 0);
    }
    if (type == LUA_TNUMBER && o->type == GL_INTEGER && !lua_isinteger(L, -1))
        luaL_error(L, "option '%s': its default is no integer", o->flag);
    lua_setfield(L, -2, o->key);
}

/* Entry t of the declaration; the result table is on top of the stack. */
static void read_option(lua_State *L, int t, gl_option *o)
{
    static const char *const names[] = {"type", "default", "help",     "min",
                                        "max",  "choices", "required", NULL};

    gl_check_fields(L, t, "an option", names);
    if (lua_rawgeti(L, t, 1) != LUA_TSTRING)
        luaL_error(L, "an option begins with its name, as in "
                      "{ \"steps\", type = \"integer\" }");
    copy_name(L, o, lua_tostring(L, -1));
    lua_pop(L, 1);
    o->type = read_type(L, t, o->flag);
    o->help = gl_text(L, t, "help");
    o->min = gl_number(L, t, "min", -HUGE_VAL);
    o->max = gl_number(L, t, "max", HUGE_VAL);
    o->required = gl_flag(L, t, "required");
    if (o->type == GL_CHOICE && !gl_table(L, t, "choices"))
        luaL_error(L, "option '%s': a choice needs a list 'choices'", o->flag);
    else if (o->type == GL_CHOICE)
        lua_pop(L, 1);
    check_default(L, o, t);
}

static void read_declaration(lua_State *L, gl_option_set *set, int anchor)
{
    set->usage = gl_text(L, set->declared, "usage");
    set->arguments = gl_text(L, set->declared, "arguments");
    set->count = lua_rawlen(L, set->declared);
    set->list = gl_scratch(L, anchor, set->count, sizeof(*set->list));
    for (size_t i = 0; i < set->count; i++) {
        if (lua_rawgeti(L, set->declared, (lua_Integer)i + 1) != LUA_TTABLE)
            luaL_error(L, "option %d is a %s, not a table", (int)i + 1,
                       luaL_typename(L, -1));
        lua_insert(L, -2); /* entry below the result */
        set->list[i].entry = (int)i + 1;
        read_option(L, lua_gettop(L) - 1, &set->list[i]);
        lua_remove(L, -2);
    }
}

/* ---- the words --------------------------------------------------------- */

const char *gl_program(lua_State *L)
{
    const char *run = "lua", *script = "script";

    if (lua_getglobal(L, "arg") == LUA_TTABLE) {
        if (lua_rawgeti(L, -1, -1) == LUA_TSTRING)
            run = lua_tostring(L, -1);
        lua_rawgeti(L, -2, 0);
        if (lua_type(L, -1) == LUA_TSTRING)
            script = lua_tostring(L, -1);
        lua_pushfstring(L, "%s %s", run, script);
        lua_replace(L, -4);
        lua_pop(L, 2);
    } else {
        lua_pop(L, 1);
        lua_pushliteral(L, "script");
    }
    return lua_tostring(L, -1);
}

/* Print program and text and leave with 2. */
static void usage_error(lua_State *L, const char *text)
{
    fprintf(stderr, "%s: %s\n", gl_program(L), text);
    gl_exit(L, 2);
}

static void unknown_option(lua_State *L, const gl_option_set *set,
                           const char *word)
{
    luaL_Buffer list;

    luaL_buffinit(L, &list);
    for (size_t i = 0; i < set->count; i++) {
        luaL_addstring(&list, "--");
        luaL_addstring(&list, set->list[i].flag);
        luaL_addstring(&list, ", ");
    }
    for (size_t i = 0; common[i] != NULL; i++) {
        luaL_addstring(&list, i == 0 ? "--" : ", --");
        luaL_addstring(&list, common[i]);
    }
    luaL_pushresult(&list);
    usage_error(L, lua_pushfstring(L, "no option '%s'; there are: %s", word,
                                   lua_tostring(L, -1)));
}

static bool push_number(lua_State *L, const gl_option *o, const char *text)
{
    int exact = 1;

    if (lua_stringtonumber(L, text) == 0)
        return false;
    if (o->type == GL_INTEGER) {
        lua_Integer i = lua_tointegerx(L, -1, &exact);
        lua_pop(L, 1);
        lua_pushinteger(L, i);
    }
    double x = lua_tonumber(L, -1);
    if (exact && x >= o->min && x <= o->max)
        return true;
    lua_pop(L, 1);
    return false;
}

static bool push_choice(lua_State *L, const gl_option_set *set,
                        const gl_option *o, const char *text)
{
    bool found = false;

    lua_rawgeti(L, set->declared, o->entry);
    lua_getfield(L, -1, "choices");
    lua_Integer n = luaL_len(L, -1);
    for (lua_Integer i = 1; i <= n && !found; i++) {
        lua_geti(L, -1, i);
        found = lua_type(L, -1) == LUA_TSTRING &&
                strcmp(lua_tostring(L, -1), text) == 0;
        lua_pop(L, 1);
    }
    lua_pop(L, 2);
    if (found)
        lua_pushstring(L, text);
    return found;
}

/* Say what the option would have taken. */
static void bad_value(lua_State *L, const gl_option_set *set,
                      const gl_option *o, const char *text)
{
    lua_pushfstring(L, "--%s: '%s' is not %s", o->flag, text,
                    o->type == GL_INTEGER  ? "an integer"
                    : o->type == GL_NUMBER ? "a number"
                                           : "one of");
    if (o->type == GL_CHOICE) {
        lua_rawgeti(L, set->declared, o->entry);
        lua_getfield(L, -1, "choices");
        lua_Integer n = luaL_len(L, -1);
        lua_pushvalue(L, -3);
        for (lua_Integer i = 1; i <= n; i++) {
            lua_pushstring(L, i == 1 ? " " : ", ");
            lua_geti(L, -3, i);
            lua_concat(L, 3);
        }
    } else if (isfinite(o->min) || isfinite(o->max)) {
        char limits[96];

        if (isinf(o->max))
            snprintf(limits, sizeof(limits), " of at least %.15g", o->min);
        else if (isinf(o->min))
            snprintf(limits, sizeof(limits), " of at most %.15g", o->max);
        else
            snprintf(limits, sizeof(limits), " from %.15g to %.15g", o->min,
                     o->max);
        lua_pushstring(L, limits);
        lua_concat(L, 2);
    }
    usage_error(L, lua_tostring(L, -1));
}

static void set_value(lua_State *L, const gl_option_set *set, gl_option *o,
                      const char *text, int result)
{
    bool good = true;

    if (o->type == GL_INTEGER || o->type == GL_NUMBER)
        good = push_number(L, o, text);
    else if (o->type == GL_CHOICE)
        good = push_choice(L, set, o, text);
    else
        lua_pushstring(L, text);
    if (!good)
        bad_value(L, set, o, text);
    lua_setfield(L, result, o->key);
    o->seen = true;
}

static gl_option *find_option(const gl_option_set *set, const char *name,
                              size_t length)
{
    for (size_t i = 0; i < set->count; i++)
        if (strlen(set->list[i].flag) == length &&
            memcmp(set->list[i].flag, name, length) == 0)
            return &set->list[i];
    return NULL;
}

/* --dry-run, --json, --quiet set fields of the module; --help ends here. */
static bool take_common(lua_State *L, const gl_option_set *set,
                        const char *name)
{
    static const char *const fields[] = {"dry_run", "json_output", "quiet"};
    size_t i = 0;

    while (common[i] != NULL && strcmp(common[i], name) != 0)
        i++;
    if (common[i] == NULL)
        return false;
    if (i == 3) {
        gl_print_help(L, set);
        gl_exit(L, 0);
    }
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    if (lua_getfield(L, -1, "gyre") == LUA_TTABLE)
        gl_set_flag(L, fields[i], 1);
    lua_pop(L, 2);
    return true;
}

/* Take option `word` (without its dashes); returns how many words it used. */
static int take_option(lua_State *L, gl_option_set *set, const char *word,
                       const char *next, int result)
{
    const char *equal = strchr(word, '=');
    size_t length = equal != NULL ? (size_t)(equal - word) : strlen(word);
    gl_option *o = find_option(set, word, length);

    if (o == NULL && equal == NULL && take_common(L, set, word))
        return 1;
    if (o == NULL && equal == NULL && strncmp(word, "no-", 3) == 0) {
        o = find_option(set, word + 3, length - 3);
        if (o != NULL && o->type == GL_SWITCH) {
            lua_pushboolean(L, 0);
            lua_setfield(L, result, o->key);
            return 1;
        }
        o = NULL;
    }
    if (o == NULL)
        unknown_option(L, set, lua_pushfstring(L, "--%s", word));
    if (o->type == GL_SWITCH) {
        if (equal != NULL)
            usage_error(L, lua_pushfstring(L, "--%s takes no value", o->flag));
        lua_pushboolean(L, 1);
        lua_setfield(L, result, o->key);
        return 1;
    }
    if (equal == NULL && next == NULL)
        usage_error(L, lua_pushfstring(L, "--%s needs a value", o->flag));
    set_value(L, set, o, equal != NULL ? equal + 1 : next, result);
    return equal != NULL ? 1 : 2;
}

static void take_words(lua_State *L, gl_option_set *set, int words, int result)
{
    lua_Integer n = words != 0 ? luaL_len(L, words) : 0, i = 1, other = 0;
    bool options = true;

    while (i <= n) {
        lua_settop(L, result);
        luaL_checkstack(L, LUA_MINSTACK, "options");
        lua_geti(L, words, i);
        lua_geti(L, words, i + 1);
        const char *word = lua_tostring(L, -2);
        if (word == NULL)
            luaL_error(L, "arg[%I] is not a string", (LUAI_UACINT)i);
        if (options && strcmp(word, "--") == 0) {
            options = false;
            i++;
        } else if (options && strcmp(word, "-h") == 0) {
            take_common(L, set, "help");
        } else if (options && strncmp(word, "--", 2) == 0) {
            i += take_option(L, set, word + 2, lua_tostring(L, -1), result);
        } else if (options && word[0] == '-' && word[1] != '\0') {
            unknown_option(L, set, word);
        } else if (set->arguments != NULL) {
            lua_pushvalue(L, -2);
            lua_rawseti(L, result, ++other);
            i++;
        } else {
            usage_error(L, lua_pushfstring(L,
                                           "'%s' is no option, and this "
                                           "script takes nothing else",
                                           word));
        }
    }
    lua_settop(L, result);
}

/* gyre.options{ usage =, arguments =, { name, type =, ... }, ... } */
int gl_options(lua_State *L)
{
    gl_option_set set = {.declared = 1};
    int words = 0;

    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    lua_newtable(L);                           /* 2: anchor */
    if (lua_getglobal(L, "arg") == LUA_TTABLE) /* 3 */
        words = 3;
    lua_newtable(L); /* 4: the result */
    read_declaration(L, &set, 2);
    take_words(L, &set, words, 4);
    for (size_t i = 0; i < set.count; i++)
        if (set.list[i].required && !set.list[i].seen)
            usage_error(
                L, lua_pushfstring(L, "--%s is required", set.list[i].flag));
    return 1;
}
