/* SPDX-License-Identifier: Apache-2.0 */
/* gyre.progress: the bar of the command, for scripts. */
#include "config.h"

#include "module.h"

#include "progress.h"

#include <stdio.h>
#include <string.h>

typedef struct progress {
    progress_bar bar;
    bool quiet, started;
    char label[64], unit[16], note[96];
    double done;
} progress;

static progress *check_progress(lua_State *L)
{
    return luaL_checkudata(L, 1, GL_PROGRESS);
}

static void set_note(lua_State *L, progress *p, int arg)
{
    if (!lua_isnoneornil(L, arg))
        snprintf(p->note, sizeof(p->note), "%s", luaL_checkstring(L, arg));
}

/* The clock of rates starts with the first update, so that preparation before
 * it and a resumed start do not count. */
static void advance(progress *p, double done)
{
    if (!p->started)
        progress_begin(&p->bar, done);
    p->started = true;
    p->done = done;
    progress_update(&p->bar, done);
}

/* update(done [, note [, total]]) */
static int update(lua_State *L)
{
    progress *p = check_progress(L);
    double done = luaL_checknumber(L, 2);

    set_note(L, p, 3);
    p->bar.total = luaL_optnumber(L, 4, p->bar.total);
    advance(p, done);
    return 0;
}

/* add([n [, note]]) */
static int add(lua_State *L)
{
    progress *p = check_progress(L);
    double n = luaL_optnumber(L, 2, 1);

    set_note(L, p, 3);
    advance(p, p->done + n);
    return 0;
}

/* A line of the script's own above the bar. */
static int print(lua_State *L)
{
    progress *p = check_progress(L);
    const char *text = luaL_checkstring(L, 2);

    if (p->quiet)
        return 0;
    progress_clear(&p->bar);
    fprintf(stderr, "%s\n", text);
    return 0;
}

/* The last state stays on the terminal; work too short for a plain line has
 * none at its end either.  Again is harmless. */
static int finish(lua_State *L)
{
    progress *p = check_progress(L);

    if (p->started && (p->bar.style == PROGRESS_BAR || p->bar.shown))
        progress_end(&p->bar, p->done);
    p->bar.style = PROGRESS_NONE;
    return 0;
}

static int to_string(lua_State *L)
{
    lua_pushfstring(L, "gyre.progress (%s)", check_progress(L)->label);
    return 1;
}

/* gyre.progress{ label =, total =, unit = } */
int gl_progress(lua_State *L)
{
    static const char *const names[] = {"label", "total", "unit", NULL};

    luaL_checktype(L, 1, LUA_TTABLE);
    gl_check_fields(L, 1, "gyre.progress", names);
    const char *label = gl_text(L, 1, "label");
    const char *unit = gl_text(L, 1, "unit");
    double total = gl_number(L, 1, "total", 0);
    progress *p = lua_newuserdatauv(L, sizeof(*p), 0);

    memset(p, 0, sizeof(*p));
    luaL_setmetatable(L, GL_PROGRESS);
    snprintf(p->label, sizeof(p->label), "%s", label ? label : "progress");
    snprintf(p->unit, sizeof(p->unit), "%s", unit ? unit : "");
    p->quiet = gl_module_flag(L, "quiet");
    progress_start(&p->bar, p->quiet, p->label, p->unit, total);
    p->bar.note = p->note;
    return 1;
}

void gl_open_progress(lua_State *L)
{
    static const luaL_Reg meta[] = {{"__gc", finish},
                                    {"__close", finish},
                                    {"__tostring", to_string},
                                    {NULL, NULL}};
    static const luaL_Reg methods[] = {{"update", update}, {"add", add},
                                       {"print", print},   {"finish", finish},
                                       {"close", finish},  {NULL, NULL}};

    luaL_newmetatable(L, GL_PROGRESS);
    luaL_setfuncs(L, meta, 0);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}
