/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in Lua as text: read and saved files, listings. */
#include "config.h"

#include "plan_object.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gyre_status gl_grow(void *user, const void *data, size_t size,
                    gyre_error *error)
{
    gl_text_buffer *g = user;
    char *more = realloc(g->at, g->size + size + 1);

    if (more == NULL) {
        snprintf(error->text, sizeof(error->text),
                 "no memory for the text of a plan");
        return GYRE_NO_MEMORY;
    }
    g->at = more;
    memcpy(g->at + g->size, data, size);
    g->size += size;
    return GYRE_OK;
}

gyre_status gl_read_file(const char *path, gl_text_buffer *out,
                         gyre_error *error)
{
    FILE *file = fopen(path, "rb");
    gyre_status status = GYRE_OK;
    char part[4096];
    size_t n;

    if (file == NULL) {
        snprintf(error->text, sizeof(error->text), "%s: %s", path,
                 strerror(errno));
        return GYRE_NOT_FOUND;
    }
    while (status == GYRE_OK && (n = fread(part, 1, sizeof(part), file)) > 0)
        status = gl_grow(out, part, n, error);
    if (status == GYRE_OK && ferror(file)) {
        snprintf(error->text, sizeof(error->text), "%s: cannot be read", path);
        status = GYRE_IO;
    }
    fclose(file);
    return status;
}

static gyre_status write_file(void *user, const void *data, size_t size,
                              gyre_error *error)
{
    (void)error;
    fwrite(data, 1, size, user); /* save looks at the end */
    return GYRE_OK;
}

/* plan:save(path, { pass =, binary = }) */
int gl_attention_save(lua_State *L)
{
    static const char *const names[] = {"pass", "binary", NULL};
    gl_attention *o = gl_check_attention(L);
    const char *path = luaL_checkstring(L, 2);
    gyre_error error = {0};
    bool binary = false;

    lua_settop(L, 3);
    if (!lua_isnil(L, 3)) {
        luaL_checktype(L, 3, LUA_TTABLE);
        gl_check_fields(L, 3, "plan:save", names);
        binary = gl_flag(L, 3, "binary");
        lua_getfield(L, 3, "pass");
    } else {
        lua_pushnil(L);
    }
    gyre_plan *plan = gl_check_pass(L, o, 4);
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        snprintf(error.text, sizeof(error.text), "%s: %s", path,
                 strerror(errno));
        return gl_fail(L, GYRE_IO, &error);
    }
    gyre_status status =
        (binary ? gyre_plan_write_binary
                : gyre_plan_write_text)(plan, write_file, file, &error);
    bool failed = ferror(file) != 0;
    if ((fclose(file) != 0 || failed) && status == GYRE_OK) {
        snprintf(error.text, sizeof(error.text), "%s: %s", path,
                 strerror(errno));
        status = GYRE_IO;
    }
    return status == GYRE_OK ? gl_done(L) : gl_fail(L, status, &error);
}

static int push_grown(lua_State *L)
{
    const gl_text_buffer *g = lua_touserdata(L, 1);

    lua_pushlstring(L, g->at, g->size);
    return 1;
}

static int give(lua_State *L, gl_text_buffer *g, gyre_status status,
                gyre_error *error)
{
    int failed = LUA_OK;

    if (status == GYRE_OK) {
        lua_pushcfunction(L, push_grown);
        lua_pushlightuserdata(L, g);
        failed = lua_pcall(L, 1, 1, 0);
    }
    free(g->at);
    if (failed != LUA_OK)
        return lua_error(L);
    return status == GYRE_OK ? 1 : gl_fail(L, status, error);
}

/* plan:text([pass]) */
int gl_attention_text(lua_State *L)
{
    gl_attention *o = gl_check_attention(L);
    gl_text_buffer g = {0};
    gyre_error error = {0};
    gyre_plan *plan = gl_check_pass(L, o, 2);

    lua_settop(L, 2);
    return give(L, &g, gyre_plan_write_text(plan, gl_grow, &g, &error), &error);
}

typedef struct listing {
    const gyre_plan *plan;
    gl_text_buffer text;
} listing;

static gyre_status add_step(void *user, const gyre_plan_step *step,
                            gyre_error *error)
{
    listing *l = user;
    char text[512], line[540];

    int n = snprintf(line, sizeof(line), "%4u  %s\n", step->op,
                     gyre_plan_step_text(l->plan, step, text, sizeof(text)));
    return gl_grow(&l->text, line, (size_t)n, error);
}

/* plan:show(rank, [pass]): its ops, a line each. */
int gl_attention_show(lua_State *L)
{
    gl_attention *o = gl_check_attention(L);
    lua_Integer rank = luaL_checkinteger(L, 2);
    gyre_error error = {0};
    listing l = {.plan = gl_check_pass(L, o, 3)};

    luaL_argcheck(L, rank >= 0 && rank < gyre_plan_problem(l.plan)->ranks, 2,
                  "there is no such rank");
    lua_settop(L, 3);
    gyre_status status =
        gyre_plan_walk(l.plan, (uint32_t)rank, add_step, &l, &error);
    return give(L, &l.text, status, &error);
}
