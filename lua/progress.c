/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress of long work: a bar with rate and time left on a terminal, a plain
 * line now and then otherwise, nothing when quiet.  All of it on stderr.
 */
#include "config.h"

#include "module.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LABEL = 64, NOTE = 96, BAR = 24 };

#define BAR_EVERY UINT64_C(100000000)    /* ns between drawings */
#define LINE_EVERY UINT64_C(10000000000) /* ns between plain lines */

typedef struct progress {
    bool quiet, terminal, shown, over;
    char label[LABEL], unit[16], note[NOTE];
    double done, total;
    double start_done; /* where the first update began: for the rate */
    bool started;
    uint64_t start, last;
} progress;

static void print_time(char *out, size_t size, double seconds)
{
    if (!(seconds >= 0 && seconds < 360000))
        snprintf(out, size, "--:--");
    else if (seconds < 3600)
        snprintf(out, size, "%d:%02d", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(out, size, "%d:%02d:%02d", (int)seconds / 3600,
                 (int)seconds / 60 % 60, (int)seconds % 60);
}

/* 1234567 bytes are "1.23 MB"; other units keep plain numbers. */
static void print_amount(char *out, size_t size, double x, const char *unit)
{
    static const char prefix[] = " kMGTP";
    int i = 0;

    if (strcmp(unit, "B") != 0) {
        snprintf(out, size, x < 100 && x != floor(x) ? "%.2f" : "%.0f", x);
        return;
    }
    while (x >= 1000 && i < 5) {
        x /= 1000;
        i++;
    }
    snprintf(out, size, i == 0 ? "%.0f " : "%.3g %c", x, prefix[i]);
}

static void print_state(const progress *p, char *out, size_t size, uint64_t now)
{
    char done[32], total[32] = "", rate[32], left[32];
    double seconds = (double)(now - p->start) * 1e-9;
    double speed = seconds > 0 ? (p->done - p->start_done) / seconds : 0;

    print_amount(done, sizeof(done), p->done, p->unit);
    print_amount(rate, sizeof(rate), speed, p->unit);
    if (p->total > 0) {
        print_amount(total, sizeof(total), p->total, p->unit);
        print_time(left, sizeof(left),
                   speed > 0 ? (p->total - p->done) / speed : -1);
        snprintf(out, size, "%3.0f%%  %s/%s%s%s  %s%s%s/s  %s left%s%s",
                 100 * p->done / p->total, done, total,
                 p->unit[0] == 'B' ? "" : " ", p->unit, rate,
                 p->unit[0] == 'B' ? "" : " ", p->unit, left,
                 p->note[0] ? "  " : "", p->note);
        return;
    }
    print_time(left, sizeof(left), seconds);
    snprintf(out, size, "%s%s%s  %s%s%s/s  %s%s%s", done,
             p->unit[0] == 'B' ? "" : " ", p->unit, rate,
             p->unit[0] == 'B' ? "" : " ", p->unit, left,
             p->note[0] ? "  " : "", p->note);
}

static void draw(progress *p, uint64_t now)
{
    char state[640], bar[BAR + 1] = "";

    print_state(p, state, sizeof(state), now);
    if (p->terminal && p->total > 0) {
        int full = (int)(BAR * p->done / p->total);

        full = full < 0 ? 0 : full > BAR ? BAR : full;
        memset(bar, '#', (size_t)full);
        memset(bar + full, '.', (size_t)(BAR - full));
        bar[BAR] = '\0';
    }
    if (p->terminal)
        fprintf(stderr, "\r\033[K%s %s%s%s", p->label, bar, bar[0] ? " " : "",
                state);
    else
        fprintf(stderr, "%s: %s\n", p->label, state);
    fflush(stderr);
    p->shown = true;
    p->last = now;
}

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
    uint64_t now = gl_now();
    uint64_t every = p->terminal ? BAR_EVERY : LINE_EVERY;

    if (!p->started) {
        p->started = true;
        p->start = now;
        p->last = p->terminal ? 0 : now;
        p->start_done = done;
    }
    p->done = done;
    if (!p->quiet && !p->over && now - p->last >= every)
        draw(p, now);
}

/* update(done [, note [, total]]) */
static int progress_update(lua_State *L)
{
    progress *p = check_progress(L);
    double done = luaL_checknumber(L, 2);

    set_note(L, p, 3);
    p->total = luaL_optnumber(L, 4, p->total);
    advance(p, done);
    return 0;
}

/* add([n [, note]]) */
static int progress_add(lua_State *L)
{
    progress *p = check_progress(L);
    double n = luaL_optnumber(L, 2, 1);

    set_note(L, p, 3);
    advance(p, p->done + n);
    return 0;
}

/* A line of the script's own above the bar. */
static int progress_print(lua_State *L)
{
    progress *p = check_progress(L);
    const char *text = luaL_checkstring(L, 2);

    if (p->quiet)
        return 0;
    if (p->terminal && p->shown && !p->over)
        fprintf(stderr, "\r\033[K");
    fprintf(stderr, "%s\n", text);
    p->last = p->terminal ? 0 : p->last;
    return 0;
}

/* The last state stays on the terminal; again is harmless. */
static int progress_close(lua_State *L)
{
    progress *p = check_progress(L);

    if (!p->over && !p->quiet && p->started) {
        if (p->terminal || p->shown)
            draw(p, gl_now());
        if (p->terminal)
            fputc('\n', stderr);
    }
    p->over = true;
    return 0;
}

static int progress_tostring(lua_State *L)
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
    p->total = total;
    p->quiet = gl_module_flag(L, "quiet");
    p->terminal = isatty(STDERR_FILENO) == 1;
    return 1;
}

void gl_open_progress(lua_State *L)
{
    static const luaL_Reg meta[] = {{"__gc", progress_close},
                                    {"__close", progress_close},
                                    {"__tostring", progress_tostring},
                                    {NULL, NULL}};
    static const luaL_Reg methods[] = {
        {"update", progress_update}, {"add", progress_add},
        {"print", progress_print},   {"finish", progress_close},
        {"close", progress_close},   {NULL, NULL}};

    luaL_newmetatable(L, GL_PROGRESS);
    luaL_setfuncs(L, meta, 0);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}
