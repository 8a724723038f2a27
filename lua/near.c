/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Near-storage update in Lua: codecs, compressor and residual of a new store,
 * devices, links and placement of an open one, and the ledger.
 */
#include "config.h"

#include "module.h"

#include <math.h>
#include <string.h>

/* Index of the word at field `name`, or `initial` when it is not there. */
static int word(lua_State *L, int t, const char *name, const char *const *words,
                int initial)
{
    const char *text = gl_text(L, t, name);
    luaL_Buffer list;

    if (text == NULL)
        return initial;
    for (int i = 0; words[i] != NULL; i++)
        if (strcmp(words[i], text) == 0)
            return i;
    luaL_buffinit(L, &list);
    for (int i = 0; words[i] != NULL; i++) {
        luaL_addstring(&list, i > 0 ? ", " : "");
        luaL_addstring(&list, words[i]);
    }
    luaL_pushresult(&list);
    return luaL_error(L, "field '%s' is '%s'; there are %s", name, text,
                      lua_tostring(L, -1));
}

/* ---- a new store ------------------------------------------------------- */

static const char *const codec_words[] = {"f32", "bf16", "bf16-stochastic",
                                          "q8", NULL};

/* state = "q8", or { parameter = "bf16", exp_avg = "q8" }; "*" is all slots. */
static void read_codecs(lua_State *L, int t, int anchor, gyre_store_spec *spec)
{
    int type = lua_getfield(L, t, "state");
    gyre_slot_codec *list = NULL;
    size_t n = 0;

    if (type == LUA_TSTRING) {
        list = gl_scratch(L, anchor, 1, sizeof(*list));
        list[0].slot = "*";
        list[0].codec = (gyre_state_codec)word(L, t, "state", codec_words, 0);
        n = 1;
    } else if (type == LUA_TTABLE) {
        int codecs = lua_gettop(L);

        lua_pushnil(L);
        for (; lua_next(L, codecs) != 0; n++)
            lua_pop(L, 1);
        list = gl_scratch(L, anchor, n + 1, sizeof(*list));
        n = 0;
        /* "*" first, so that the names win whatever the order of the table. */
        if (lua_getfield(L, codecs, "*") != LUA_TNIL) {
            list[n].slot = "*";
            list[n++].codec =
                (gyre_state_codec)word(L, codecs, "*", codec_words, 0);
        }
        lua_pop(L, 1);
        lua_pushnil(L);
        while (lua_next(L, codecs) != 0) {
            if (lua_type(L, -2) != LUA_TSTRING)
                luaL_error(L, "field 'state': slot = codec expected");
            const char *slot = lua_tostring(L, -2);
            lua_pop(L, 1);
            if (strcmp(slot, "*") == 0)
                continue;
            list[n].slot = slot;
            list[n++].codec =
                (gyre_state_codec)word(L, codecs, slot, codec_words, 0);
        }
    } else if (type != LUA_TNIL) {
        luaL_error(L, "field 'state': codec or table expected, got %s",
                   lua_typename(L, type));
    }
    lua_pop(L, 1);
    spec->codecs = list;
    spec->codec_count = n;
}

static gyre_status read_compressor(lua_State *L, gl_context *context, int t,
                                   int anchor, gyre_store_spec *spec,
                                   gyre_error *error)
{
    gyre_status status = GYRE_OK;
    int type = lua_getfield(L, t, "compressor");

    if (type == LUA_TSTRING) {
        spec->compressor = lua_tostring(L, -1);
    } else if (type == LUA_TTABLE) {
        int settings = lua_gettop(L);

        if (lua_rawgeti(L, settings, 1) != LUA_TSTRING)
            luaL_error(L, "field 'compressor': the name comes first, as in "
                          "{ \"topk\", ratio = 0.01 }");
        spec->compressor = lua_tostring(L, -1);
        status = gl_settings(L, context, GYRE_KIND_COMPRESSOR, spec->compressor,
                             settings, anchor, true, &spec->compressor_settings,
                             &spec->compressor_setting_count, error);
        lua_settop(L, settings);
    } else if (type != LUA_TNIL) {
        luaL_error(L, "field 'compressor': name or table expected, got %s",
                   lua_typename(L, type));
    }
    lua_pop(L, 1);
    return status;
}

gyre_status gl_near_spec(lua_State *L, gl_context *context, int t, int anchor,
                         gyre_store_spec *spec, gyre_error *error)
{
    static const char *const residuals[] = {"committed", "volatile", "off",
                                            NULL};

    read_codecs(L, t, anchor, spec);
    spec->residual = (gyre_residual)word(L, t, "residual", residuals,
                                         GYRE_RESIDUAL_COMMITTED);
    spec->spill = gl_flag(L, t, "spill");
    spec->seed = (uint64_t)gl_integer(L, t, "seed", 0, INT64_MIN, INT64_MAX);
    return read_compressor(L, context, t, anchor, spec, error);
}

/* ---- an open one ------------------------------------------------------- */

/* compute = "opencl", or one text for each device. */
static void read_compute(lua_State *L, int t, int anchor,
                         gyre_store_options *options)
{
    int type = lua_getfield(L, t, "compute");
    size_t n = type == LUA_TTABLE ? lua_rawlen(L, -1) : type != LUA_TNIL;
    const char **list = gl_scratch(L, anchor, n + 1, sizeof(*list));

    if (type == LUA_TSTRING)
        list[0] = lua_tostring(L, -1);
    else if (type != LUA_TTABLE && type != LUA_TNIL)
        luaL_error(L, "field 'compute': text or list expected, got %s",
                   lua_typename(L, type));
    for (size_t i = 0; type == LUA_TTABLE && i < n; i++) {
        if (lua_rawgeti(L, -1, (lua_Integer)i + 1) != LUA_TSTRING)
            luaL_error(L, "field 'compute': entry %d is a %s, not a text",
                       (int)i + 1, luaL_typename(L, -1));
        list[i] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    options->compute = n > 0 ? list : NULL;
    options->compute_count = n;
}

void gl_near_options(lua_State *L, int t, int anchor,
                     gyre_store_options *options)
{
    static const char *const placements[] = {"near", "host", NULL};
    static const char *const places[] = {"spilled", "memory", NULL};

    read_compute(L, t, anchor, options);
    options->link_rate = gl_number(L, t, "link_rate", 0);
    options->placement =
        (gyre_placement)word(L, t, "placement", placements, GYRE_NEAR);
    options->gradients_in_memory = word(L, t, "gradients", places, 0);
    options->allow_inexact = gl_flag(L, t, "allow_inexact");
    options->endurance = gl_number(L, t, "endurance", 0);
    options->wear_budget =
        (uint64_t)gl_integer(L, t, "wear_budget", 0, 0, INT64_MAX);
}

/* ---- the ledger -------------------------------------------------------- */

void gl_push_ledger(lua_State *L, const gyre_ledger *ledger)
{
    static const struct {
        const char *name;
        size_t at;
    } lines[] = {
#define LINE(name) {#name, offsetof(gyre_ledger, name)}
        LINE(rounds),        LINE(elements),          LINE(gradient_down),
        LINE(state_down),    LINE(parameter_up),      LINE(gradient_up),
        LINE(state_up),      LINE(state_read),        LINE(gradient_read),
        LINE(state_write),   LINE(gradient_write),    LINE(residual_down),
        LINE(residual_up),   LINE(frame_bytes),       LINE(padding_read),
        LINE(padding_write), LINE(commit_write),      LINE(born_gradient),
        LINE(born_payload),  LINE(born_leaves),       LINE(born_residual),
        LINE(host_bytes),    LINE(device_read_bytes), LINE(device_write_bytes),
        LINE(flash_bytes),
#undef LINE
    };

    lua_createtable(L, 0, sizeof(lines) / sizeof(lines[0]));
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        uint64_t value;

        memcpy(&value, (const char *)ledger + lines[i].at, sizeof(value));
        gl_set_integer(L, lines[i].name, value);
    }
}

int gl_ledger(lua_State *L)
{
    gl_store *s = gl_check_store(L, 1);
    gyre_ledger ledger = {0};
    gyre_error error = {0};
    gyre_status status = gyre_store_ledger(s->store, &ledger, &error);

    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    gl_push_ledger(L, &ledger);
    return 1;
}

int gl_wear(lua_State *L)
{
    gl_store *s = gl_check_store(L, 1);
    gyre_wear wear = {.size = sizeof(wear)};
    gyre_error error = {0};
    gyre_status status = gyre_store_wear(s->store, &wear, &error);

    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    lua_createtable(L, 0, 6);
    gl_set_integer(L, "written", wear.written);
    gl_set_integer(L, "budget", wear.budget);
    gl_set_number(L, "endurance", wear.endurance);
    gl_set_number(L, "bytes_per_round", wear.bytes_per_round);
    gl_set_number(L, "rounds_left", wear.rounds_left);
    gl_set_number(L, "budget_rounds_left", wear.budget_rounds_left);
    return 1;
}
