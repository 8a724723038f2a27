/* SPDX-License-Identifier: Apache-2.0 */
/* Options that a script declares: the table that parsing and help share. */
#ifndef GYRE_LUA_OPTIONS_H
#define GYRE_LUA_OPTIONS_H

#include "module.h"

typedef enum gl_option_type {
    GL_INTEGER,
    GL_NUMBER,
    GL_STRING,
    GL_PATH,
    GL_SWITCH,
    GL_CHOICE,
    GL_TYPE_COUNT
} gl_option_type;

enum { GL_OPTION_NAME = 48 };

typedef struct gl_option {
    char flag[GL_OPTION_NAME]; /* "micro-batches" */
    char key[GL_OPTION_NAME];  /* "micro_batches" */
    gl_option_type type;
    const char *help;
    double min, max; /* of integers and numbers */
    bool required;
    bool seen;
    int entry; /* index of its table in the declaration */
} gl_option;

typedef struct gl_option_set {
    gl_option *list;
    size_t count;
    const char *usage;     /* what the script does; or NULL */
    const char *arguments; /* "FILE..." when it takes words, too; or NULL */
    int declared;          /* stack index of the declaration */
} gl_option_set;

/* Push "gyre run script.lua", or "lua5.4 script.lua". */
const char *gl_program(lua_State *L);

/* Print the page for --help on stdout. */
void gl_print_help(lua_State *L, const gl_option_set *set);

#endif
