/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays that Lua modules hand to each other.
 *
 * A module that owns memory (a model's parameters, a batch of tokens) gives it
 * to scripts as a userdata "gyre.array"; module `gyre` takes it for gradients,
 * bindings and initial values.  The owner is kept alive by user value 1.
 * Include <lua.h> and <lauxlib.h> first.
 */
#ifndef GYRE_LUA_H
#define GYRE_LUA_H

#include <stddef.h>
#include <stdint.h>

#define GYRE_LUA_ARRAY "gyre.array"

typedef struct gyre_lua_array {
    size_t size;     /* sizeof(gyre_lua_array) */
    void *data;      /* contiguous */
    uint64_t n;      /* elements */
    int32_t dtype;   /* gyre_dtype */
    int32_t flags;   /* 0 */
} gyre_lua_array;

#endif
