/* SPDX-License-Identifier: Apache-2.0 */
/* Attention plans in Lua: the object (plan_object.c), its builder
 * (plan_build.c). */
#ifndef GYRE_LUA_PLAN_OBJECT_H
#define GYRE_LUA_PLAN_OBJECT_H

#include "module.h"

#include <gyre/plan.h>

#define GL_BUILDER "gyre.builder"
#define GL_ATTENTION_PLAN "gyre.attention_plan"

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

#endif
