/* SPDX-License-Identifier: Apache-2.0 */
/* Running a script: paths, arguments, tracebacks, Ctrl-C. */
#include "config.h"

#include "run.h"

#include "module.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_FAULT = 99, EXIT_STOPPED = 130 };

/* A signal handler has no other way to its state; one script at a time. */
static lua_State *running;
static volatile sig_atomic_t stopped;

/* Raise at once, and again after each million instructions: time for __close
 * functions to do their work, not for a script that caught the error to go on
 * as if nothing had been. */
static void stop_hook(lua_State *L, lua_Debug *where)
{
    (void)where;
    lua_sethook(L, stop_hook, LUA_MASKCOUNT, 1000000);
    luaL_error(L, "interrupted");
}

/* The second Ctrl-C ends the process the hard way.  lua_sethook is what Lua
 * allows in a handler. */
static void on_interrupt(int number)
{
    signal(number, SIG_DFL);
    stopped = 1;
    lua_sethook(running, stop_hook,
                LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT, 1);
}

static int with_traceback(lua_State *L)
{
    const char *text = lua_tostring(L, 1);

    if (text == NULL)
        text = luaL_tolstring(L, 1, NULL);
    luaL_traceback(L, L, text, 1);
    return 1;
}

/* Put "dir/?.so;dir/.libs/?.so;" or "dir/?.lua;" before a search path. */
static void add_folder(lua_State *L, const char *dir)
{
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "path");
    lua_pushfstring(L, "%s/?.lua;%s/?/init.lua;%s", dir, dir,
                    lua_tostring(L, -1));
    lua_setfield(L, -3, "path");
    lua_getfield(L, -2, "cpath");
    lua_pushfstring(L, "%s/?.so;%s/.libs/?.so;%s", dir, dir,
                    lua_tostring(L, -1));
    lua_setfield(L, -4, "cpath");
    lua_pop(L, 3);
}

/* Cut the last n names off a path. */
static void cut(char *path, int n)
{
    for (; n > 0; n--) {
        char *slash = strrchr(path, '/');

        *(slash != NULL ? slash : path) = '\0';
    }
}

/*
 * A gyre that was built outside the source tree and not installed,
 * BUILD/sdk/cli/gyre, finds the modules of examples/NAME/script.lua in
 * BUILD/examples/NAME.
 */
static void add_build_folder(lua_State *L, const char *script)
{
    char exe[PATH_MAX], mark[PATH_MAX + 16], folder[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    const char *name;

    if (n <= 0 || realpath(script, folder) == NULL)
        return;
    exe[n] = '\0';
    cut(exe, strstr(exe, "/sdk/cli/.libs/") != NULL ? 4 : 3);
    snprintf(mark, sizeof(mark), "%s/config.status", exe);
    if (exe[0] == '\0' || access(mark, F_OK) != 0)
        return;
    cut(folder, 1);
    name = strrchr(folder, '/');
    if (name != NULL)
        add_folder(L, lua_pushfstring(L, "%s/examples%s", exe, name));
}

static void add_folders(lua_State *L, const gyre_run *run, const char *script)
{
    const char *slash = strrchr(script, '/');

    add_build_folder(L, script);
    for (size_t i = run->module_dir_count; i > 0; i--)
        add_folder(L, run->module_dirs[i - 1]);
    if (slash == NULL)
        add_folder(L, ".");
    else
        add_folder(L,
                   slash == script
                       ? "/"
                       : lua_pushlstring(L, script, (size_t)(slash - script)));
}

/* arg[-1] the command, arg[0] the script, then its words. */
static void set_arguments(lua_State *L, const gyre_run *run, int argc,
                          char **argv)
{
    lua_createtable(L, argc, 2);
    lua_pushstring(L, run->command);
    lua_rawseti(L, -2, -1);
    for (int i = 0; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i);
    }
    lua_setglobal(L, "arg");
}

/* Runs protected; pushes nothing and returns the code. */
static int run_protected(lua_State *L)
{
    const gyre_run *run = lua_touserdata(L, 1);
    int argc = (int)lua_tointeger(L, 2);
    char **argv = lua_touserdata(L, 3);

    luaL_checkversion(L);
    luaL_openlibs(L);
    lua_warning(L, "@on", 0);
    luaL_requiref(L, "gyre", luaopen_gyre, 1);
    gl_set_flag(L, "dry_run", run->dry_run);
    gl_set_flag(L, "json_output", run->json);
    gl_set_flag(L, "quiet", run->quiet);
    lua_pushstring(L, run->plugin_path);
    lua_setfield(L, LUA_REGISTRYINDEX, GL_PLUGIN_PATH);
    lua_pushstring(L, run->instruction_set);
    lua_setfield(L, LUA_REGISTRYINDEX, GL_ISA);
    add_folders(L, run, argv[0]);
    set_arguments(L, run, argc, argv);
    lua_settop(L, 3);
    luaL_checkstack(L, argc + LUA_MINSTACK, "arguments");
    lua_pushcfunction(L, with_traceback);
    int status = luaL_loadfilex(L, argv[0], "t");
    if (status != LUA_OK) {
        lua_pushinteger(L, EXIT_FAILED);
        return 2;
    }
    for (int i = 1; i < argc; i++)
        lua_pushstring(L, argv[i]);
    status = lua_pcall(L, argc - 1, 0, 4);
    if (status == LUA_OK)
        lua_pushnil(L);
    lua_pushinteger(L, status == LUA_OK ? 0 : EXIT_FAILED);
    return 2;
}

static int report(lua_State *L, const gyre_run *run)
{
    int code = (int)lua_tointeger(L, -1);
    const char *text = lua_tostring(L, -2);

    if (code != 0 && stopped)
        fprintf(stderr, "%s: interrupted\n", run->command);
    else if (code != 0)
        fprintf(stderr, "%s: %s\n", run->command,
                text != NULL ? text : "an error without a text");
    return code != 0 && stopped ? EXIT_STOPPED : code;
}

int gyre_run_script(const gyre_run *run, int argc, char **argv)
{
    struct sigaction stop = {.sa_handler = on_interrupt}, before;
    int code = EXIT_FAULT;

    if (access(argv[0], R_OK) != 0) {
        fprintf(stderr, "%s: %s: %s\n", run->command, argv[0], strerror(errno));
        return EXIT_USAGE;
    }
    lua_State *L = luaL_newstate();
    if (L == NULL) {
        fprintf(stderr, "%s: out of memory\n", run->command);
        return EXIT_FAULT;
    }
    running = L;
    stopped = 0;
    sigemptyset(&stop.sa_mask);
    sigaction(SIGINT, &stop, &before);
    lua_pushcfunction(L, run_protected);
    lua_pushlightuserdata(L, (void *)(uintptr_t)run);
    lua_pushinteger(L, argc);
    lua_pushlightuserdata(L, argv);
    if (lua_pcall(L, 3, 2, 0) == LUA_OK)
        code = report(L, run);
    else
        fprintf(stderr, "%s: %s\n", run->command, lua_tostring(L, -1));
    sigaction(SIGINT, &before, NULL);
    lua_close(L);
    running = NULL;
    return code;
}
