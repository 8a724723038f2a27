/* SPDX-License-Identifier: Apache-2.0 */
/* The --help page of a script, from the options it declares. */
#include "config.h"

#include "options.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 79, COLUMN = 26 };

/* Print text from `column` on, broken between words at the right edge. */
static void print_wrapped(const char *text, int column)
{
    int at = column;

    while (*text != '\0') {
        int word = (int)strcspn(text, " ");

        if (at + word > WIDTH && at > column) {
            printf("\n%*s", column, "");
            at = column;
        }
        printf("%.*s", word, text);
        at += word;
        text += word;
        if (*text == ' ') {
            text++;
            if (at + 1 + (int)strcspn(text, " ") <= WIDTH) {
                putchar(' ');
                at++;
            } else {
                printf("\n%*s", column, "");
                at = column;
            }
        }
    }
    putchar('\n');
}

/* "--steps N"; a choice shows its words when there is room. */
static int print_flag(lua_State *L, const gl_option_set *set,
                      const gl_option *o)
{
    static const char *const value[] = {" N",    " X", " TEXT",
                                        " PATH", "",   " WORD"};

    (void)L;
    (void)set;
    return printf("  --%s%s", o->flag, value[o->type]);
}

/* Push help, words and default as one text. */
static const char *push_help(lua_State *L, const gl_option_set *set,
                             const gl_option *o)
{
    luaL_Buffer b;

    lua_rawgeti(L, set->declared, o->entry);
    int entry = lua_gettop(L);
    lua_getfield(L, entry, "default");
    const char *standard = lua_isnil(L, -1) || o->type == GL_SWITCH
                               ? NULL
                               : luaL_tolstring(L, -1, NULL);
    luaL_checkstack(L, LUA_MINSTACK, "help");
    luaL_buffinit(L, &b);
    luaL_addstring(&b, o->help != NULL ? o->help : "");
    if (o->type == GL_CHOICE) {
        luaL_addstring(&b, o->help != NULL ? ": " : "");
        lua_getfield(L, entry, "choices");
        lua_Integer n = luaL_len(L, -1);
        lua_pop(L, 1);
        for (lua_Integer i = 1; i <= n; i++) {
            luaL_addstring(&b, i == 1 ? "" : ", ");
            lua_getfield(L, entry, "choices");
            lua_geti(L, -1, i);
            lua_remove(L, -2);
            luaL_addvalue(&b);
        }
    }
    if (standard != NULL) {
        luaL_addstring(&b,
                       o->help != NULL || o->type == GL_CHOICE ? " [" : "[");
        luaL_addstring(&b, standard);
        luaL_addstring(&b, "]");
    } else if (o->required) {
        luaL_addstring(&b, " (required)");
    }
    luaL_pushresult(&b);
    return lua_tostring(L, -1);
}

static void print_option(lua_State *L, const gl_option_set *set,
                         const gl_option *o)
{
    int top = lua_gettop(L);
    int column = print_flag(L, set, o);

    if (column > COLUMN - 2) {
        putchar('\n');
        column = 0;
    }
    printf("%*s", COLUMN - column, "");
    print_wrapped(push_help(L, set, o), COLUMN);
    lua_settop(L, top);
}

void gl_print_help(lua_State *L, const gl_option_set *set)
{
    printf("Usage: %s [options]%s%s\n", gl_program(L),
           set->arguments != NULL ? " " : "",
           set->arguments != NULL ? set->arguments : "");
    if (set->usage != NULL)
        print_wrapped(set->usage, 0);
    putchar('\n');
    for (size_t i = 0; i < set->count; i++)
        print_option(L, set, &set->list[i]);
    printf("  %-*s%s\n  %-*s%s\n  %-*s%s\n  %-*s%s\n", COLUMN - 2, "--dry-run",
           "print what it would take, and end", COLUMN - 2, "--json",
           "results as JSON", COLUMN - 2, "--quiet", "no progress", COLUMN - 2,
           "--help", "this page");
}
