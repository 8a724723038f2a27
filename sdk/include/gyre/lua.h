/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays that Lua modules hand to each other.
 *
 * A module that owns memory (a model's parameters, a batch of tokens) gives it
 * to scripts as a userdata "gyre.array"; module `gyre` takes it for gradients,
 * bindings and initial values.  The owner is kept alive by user value 1.
 * Include <lua.h> and <lauxlib.h> first to get the functions, too: they need
 * Lua alone, no library of Gyre, so a module may use them without linking to
 * one.
 *
 * All modules of one Lua state share the metatable, whoever is loaded first
 * makes it:
 *
 *     a[i]           element i of 1..#a, nil outside; integers for i32 and u8
 *     a[i] = x       raises outside 1..#a, and for what the dtype cannot hold
 *     #a             elements
 *     a.dtype        "f32", ...
 *     a:name(...)    a function of the table in field "__methods", to which
 *                    modules add; module `gyre` adds the usual ones
 */
#ifndef GYRE_LUA_H
#define GYRE_LUA_H

#include <stddef.h>
#include <stdint.h>

#define GYRE_LUA_ARRAY "gyre.array"

typedef struct gyre_lua_array {
    size_t size;   /* sizeof(gyre_lua_array) */
    void *data;    /* contiguous; NULL once the owner has freed it */
    uint64_t n;    /* elements */
    int32_t dtype; /* gyre_dtype */
    int32_t pins;  /* holders that may touch data between calls, as a store
                      does with what is bound to it; while it is not 0 the
                      owner keeps the memory, closed or not */
} gyre_lua_array;

#if defined(lua_h) && defined(lauxlib_h)

#include <string.h>

/* Bytes of one element, and the dtype's name; 0 and NULL for a number that is
 * not a gyre_dtype. */
static inline size_t gyre_lua_dtype_bytes(int dtype)
{
    static const unsigned char bytes[] = {4, 8, 2, 2, 4, 1};

    return dtype < 0 || dtype > 5 ? 0 : bytes[dtype];
}

static inline const char *gyre_lua_dtype_name(int dtype)
{
    static const char *const names[] = {"f32", "f64", "bf16",
                                        "f16", "i32", "u8"};

    return dtype < 0 || dtype > 5 ? NULL : names[dtype];
}

static inline float gyre_lua_bits_f32(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline uint32_t gyre_lua_f32_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float gyre_lua_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = h >> 10 & 0x1f, fraction = h & 0x3ff;

    if (exponent == 31)
        return gyre_lua_bits_f32(sign | 0x7f800000 | fraction << 13);
    if (exponent != 0)
        return gyre_lua_bits_f32(sign | (exponent + 112) << 23 |
                                 fraction << 13);
    return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
}

/* Nearest, ties to even; too large becomes infinity. */
static inline uint16_t gyre_lua_f32_to_f16(float x)
{
    uint32_t bits = gyre_lua_f32_bits(x), a = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);

    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (a >= 0x477ff000) /* 65520: half way past the largest */
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) { /* subnormal: the sum rounds at 2^-24 */
        float magic = gyre_lua_bits_f32(a) + 0.5f;
        return (uint16_t)(sign | (gyre_lua_f32_bits(magic) - 0x3f000000));
    }
    a += 0xfff + (a >> 13 & 1);
    return (uint16_t)(sign | ((a - 0x38000000) >> 13));
}

static inline uint16_t gyre_lua_f32_to_bf16(float x)
{
    uint32_t bits = gyre_lua_f32_bits(x);

    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Push element i, counted from 0. */
static inline void gyre_lua_array_push(lua_State *L, const gyre_lua_array *a,
                                       uint64_t i)
{
    switch (a->dtype) {
    case 0:
        lua_pushnumber(L, ((const float *)a->data)[i]);
        return;
    case 1:
        lua_pushnumber(L, ((const double *)a->data)[i]);
        return;
    case 2:
        lua_pushnumber(L, gyre_lua_bits_f32(
                              (uint32_t)((const uint16_t *)a->data)[i] << 16));
        return;
    case 3:
        lua_pushnumber(L, gyre_lua_f16_to_f32(((const uint16_t *)a->data)[i]));
        return;
    case 4:
        lua_pushinteger(L, ((const int32_t *)a->data)[i]);
        return;
    default:
        lua_pushinteger(L, ((const uint8_t *)a->data)[i]);
        return;
    }
}

/* Set element i, counted from 0, from the value at `arg`; raises for one that
 * does not fit. */
static inline void gyre_lua_array_put(lua_State *L, gyre_lua_array *a,
                                      uint64_t i, int arg)
{
    if (a->dtype >= 4) {
        lua_Integer v = luaL_checkinteger(L, arg);
        if (a->dtype == 4) {
            luaL_argcheck(L, v >= INT32_MIN && v <= INT32_MAX, arg,
                          "outside i32");
            ((int32_t *)a->data)[i] = (int32_t)v;
        } else {
            luaL_argcheck(L, v >= 0 && v <= 255, arg, "outside u8");
            ((uint8_t *)a->data)[i] = (uint8_t)v;
        }
        return;
    }
    lua_Number x = luaL_checknumber(L, arg);
    switch (a->dtype) {
    case 0:
        ((float *)a->data)[i] = (float)x;
        return;
    case 1:
        ((double *)a->data)[i] = x;
        return;
    case 2:
        ((uint16_t *)a->data)[i] = gyre_lua_f32_to_bf16((float)x);
        return;
    default:
        ((uint16_t *)a->data)[i] = gyre_lua_f32_to_f16((float)x);
        return;
    }
}

/* The array at `arg`; raises for another value, and for one whose owner has
 * been closed. */
static inline gyre_lua_array *gyre_lua_check_array(lua_State *L, int arg)
{
    gyre_lua_array *a =
        (gyre_lua_array *)luaL_checkudata(L, arg, GYRE_LUA_ARRAY);

    luaL_argcheck(L, a->size >= sizeof(*a), arg,
                  "array of a module built for an older <gyre/lua.h>");
    luaL_argcheck(L, a->data != NULL || a->n == 0, arg,
                  "the owner of this array has been closed");
    return a;
}

static inline int gyre_lua_array_index(lua_State *L)
{
    if (lua_type(L, 2) == LUA_TNUMBER) {
        gyre_lua_array *a = gyre_lua_check_array(L, 1);
        lua_Integer i = luaL_checkinteger(L, 2);

        if (i < 1 || (uint64_t)i > a->n)
            lua_pushnil(L);
        else
            gyre_lua_array_push(L, a, (uint64_t)i - 1);
        return 1;
    }
    gyre_lua_array *a = (gyre_lua_array *)luaL_checkudata(L, 1, GYRE_LUA_ARRAY);
    const char *key = luaL_checkstring(L, 2);

    if (strcmp(key, "dtype") == 0) {
        lua_pushstring(L, gyre_lua_dtype_name(a->dtype));
        return 1;
    }
    lua_getfield(L, lua_upvalueindex(1), key);
    if (lua_isnil(L, -1))
        return luaL_error(L, "an array has no field '%s'", key);
    return 1;
}

static inline int gyre_lua_array_newindex(lua_State *L)
{
    gyre_lua_array *a = gyre_lua_check_array(L, 1);
    lua_Integer i = luaL_checkinteger(L, 2);

    if (i < 1 || (uint64_t)i > a->n)
        return luaL_error(L, "index %I is outside this array of %I elements",
                          (LUAI_UACINT)i, (LUAI_UACINT)a->n);
    gyre_lua_array_put(L, a, (uint64_t)i - 1, 3);
    return 0;
}

static inline int gyre_lua_array_len(lua_State *L)
{
    gyre_lua_array *a = (gyre_lua_array *)luaL_checkudata(L, 1, GYRE_LUA_ARRAY);

    lua_pushinteger(L, (lua_Integer)a->n);
    return 1;
}

static inline int gyre_lua_array_tostring(lua_State *L)
{
    gyre_lua_array *a = (gyre_lua_array *)luaL_checkudata(L, 1, GYRE_LUA_ARRAY);

    lua_pushfstring(L, "gyre.array %s[%I]%s", gyre_lua_dtype_name(a->dtype),
                    (LUAI_UACINT)a->n,
                    a->data == NULL && a->n != 0 ? " (closed)" : "");
    return 1;
}

/* Push the metatable of arrays, made when it is not there yet. */
static inline void gyre_lua_array_metatable(lua_State *L)
{
    if (!luaL_newmetatable(L, GYRE_LUA_ARRAY)) {
        int complete = lua_getfield(L, -1, "__methods") == LUA_TTABLE;

        lua_pop(L, 1);
        if (complete)
            return;
    }
    lua_pushcfunction(L, gyre_lua_array_newindex);
    lua_setfield(L, -2, "__newindex");
    lua_pushcfunction(L, gyre_lua_array_len);
    lua_setfield(L, -2, "__len");
    lua_pushcfunction(L, gyre_lua_array_tostring);
    lua_setfield(L, -2, "__tostring");
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, "__methods");
    lua_pushcclosure(L, gyre_lua_array_index, 1);
    lua_setfield(L, -2, "__index");
}

/*
 * Push an array over `data`, which the value at stack index `owner` keeps
 * alive.  An owner that can be closed keeps its arrays in a weak table: on
 * closing it leaves pinned ones to its __gc and sets `data` of the others to
 * NULL.
 */
static inline gyre_lua_array *
gyre_lua_push_array(lua_State *L, int owner, int dtype, void *data, uint64_t n)
{
    owner = lua_absindex(L, owner);
    gyre_lua_array *a = (gyre_lua_array *)lua_newuserdatauv(L, sizeof(*a), 1);
    a->size = sizeof(*a);
    a->data = data;
    a->n = n;
    a->dtype = dtype;
    a->pins = 0;
    lua_pushvalue(L, owner);
    lua_setiuservalue(L, -2, 1);
    gyre_lua_array_metatable(L);
    lua_setmetatable(L, -2);
    return a;
}

/* Push a new array of zeros, whose memory lies in the userdata itself, counted
 * by the collector.  Raises when n elements cannot be. */
static inline gyre_lua_array *gyre_lua_new_array(lua_State *L, int dtype,
                                                 uint64_t n)
{
    size_t size = gyre_lua_dtype_bytes(dtype);

    if (size == 0 || n > (SIZE_MAX / 2 - sizeof(gyre_lua_array)) / 8)
        luaL_error(L, "an array of %I elements is too large", (LUAI_UACINT)n);
    gyre_lua_array *a = (gyre_lua_array *)lua_newuserdatauv(
        L, sizeof(*a) + (size_t)n * size, 1);
    memset(a, 0, sizeof(*a) + (size_t)n * size);
    a->size = sizeof(*a);
    a->data = a + 1;
    a->n = n;
    a->dtype = dtype;
    gyre_lua_array_metatable(L);
    lua_setmetatable(L, -2);
    return a;
}

#endif /* lua.h and lauxlib.h came first */

#endif
