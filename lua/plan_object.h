/* SPDX-License-Identifier: Apache-2.0 */
/* Attention plans in Lua: the object (plan_object.c), its builder
 * (plan_build.c), what it shows (plan_prove.c), its text (plan_text.c). */
#ifndef GYRE_LUA_PLAN_OBJECT_H
#define GYRE_LUA_PLAN_OBJECT_H

#include "module.h"

#include <gyre/plan.h>

#define GL_BUILDER "gyre.builder"
#define GL_ATTENTION_PLAN "gyre.attention_plan"

typedef struct gl_attention {
    gyre_plan *plans[GYRE_PASS_COUNT];
    gl_context *context;       /* NULL once closed */
    gyre_plan_request request; /* of a plugin's schedule: its closed forms */
    bool formula;
} gl_attention;

/* The open plan at argument 1; raises. */
gl_attention *gl_check_attention(lua_State *L);
/* Of argument "forward" or "backward"; without one, the first that is there. */
gyre_plan *gl_check_pass(lua_State *L, gl_attention *o, int arg);
const char *gl_pass_name(uint32_t pass);

/* While a function of a script emits: at `function` on the stack of L.  After a
 * failure the error is on top of the stack. */
typedef struct gl_emitter {
    lua_State *L;
    int function;
    bool failed;
} gl_emitter;

/* gyre_plan_request.emit; user is a gl_emitter. */
void gl_emit(void *user, uint32_t pass, uint32_t rank,
             const gyre_plan_host *host, gyre_builder *builder);

/* ---- text (plan_text.c) -------------------------------------------------- */

/* In malloc, since a Lua error may not jump over an open file or the library.
 */
typedef struct gl_text_buffer {
    char *at;
    size_t size;
} gl_text_buffer;
/* A gyre_plan_write of it; user is one.  The caller frees `at`. */
gyre_status gl_grow(void *user, const void *data, size_t size,
                    gyre_error *error);
gyre_status gl_read_file(const char *path, gl_text_buffer *out,
                         gyre_error *error);

/* ---- methods ------------------------------------------------------------- */

int gl_attention_bytes(lua_State *L);
int gl_attention_prove(lua_State *L);
int gl_attention_run(lua_State *L);
int gl_attention_text(lua_State *L);
int gl_attention_save(lua_State *L);
int gl_attention_show(lua_State *L);

#endif
