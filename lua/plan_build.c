/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builder of plans in Lua: what a schedule that is a function gets.
 *
 *     function(b, rank, pass)
 *         local q = b:slot("Q", b:owned("Q", rank), { external = true })
 *         b:begin("ring"); b:put(q, 1); b:end_()
 *     end
 *
 * Everything is a view: slot gives the view of all of it, and stands for the
 * slot in view and reuse.  The builder is good until the function returns.  Ids
 * are checked by the library, which keeps the first error and ends the plan.
 */
#include "config.h"

#include "plan_object.h"

#include <string.h>

typedef struct builder {
    const gyre_plan_host *host; /* NULL once the call is over */
    gyre_builder *builder;
    uint32_t bufs; /* made so far */
} builder;

/* User values: slot by view, buf by slot. */
enum { SLOTS = 1, BUFS = 2 };

static builder *check(lua_State *L)
{
    builder *b = luaL_checkudata(L, 1, GL_BUILDER);

    if (b->host == NULL)
        luaL_error(L, "a builder is good until its function returns");
    return b;
}

static uint32_t check_id(lua_State *L, int arg)
{
    lua_Integer id = luaL_checkinteger(L, arg);

    luaL_argcheck(L, id >= 0 && id < UINT32_MAX, arg, "no such id");
    return (uint32_t)id;
}

static uint32_t check_side(lua_State *L, int arg)
{
    static const char *const names[] = {"Q", "KV", NULL};

    return (uint32_t)luaL_checkoption(L, arg, NULL, names);
}

/* ---- the problem --------------------------------------------------------- */

static int build_problem(lua_State *L)
{
    builder *b = check(L);
    const gyre_problem *p = b->host->problem(b->builder);

    lua_createtable(L, 0, 12);
    gl_set_integer(L, "ranks", p->ranks);
    gl_set_integer(L, "batch", p->batch);
    gl_set_integer(L, "heads", p->heads);
    gl_set_integer(L, "kv_heads", p->kv_heads);
    gl_set_integer(L, "head_dim", p->head_dim);
    gl_set_integer(L, "v_head_dim", p->v_head_dim);
    gl_set_text(L, "dtype", gyre_dtype_name((gyre_dtype)p->dtype));
    gl_set_text(L, "wire_dtype", gyre_dtype_name((gyre_dtype)p->wire_dtype));
    gl_set_text(L, "sum_dtype", gyre_dtype_name((gyre_dtype)p->sum_dtype));
    gl_set_integer(L, "seq", p->tokens[GYRE_SIDE_Q]);
    gl_set_integer(L, "kv_seq", p->tokens[GYRE_SIDE_KV]);
    return 1;
}

/* ---- rows ---------------------------------------------------------------- */

static int build_owned(lua_State *L)
{
    builder *b = check(L);
    uint32_t side = check_side(L, 2);

    lua_pushinteger(L, b->host->owned(b->builder, side, check_id(L, 3)));
    return 1;
}

static int build_rows(lua_State *L)
{
    builder *b = check(L);
    uint32_t side = check_side(L, 2);

    luaL_checktype(L, 3, LUA_TTABLE);
    size_t count = lua_rawlen(L, 3);
    luaL_argcheck(L, count < UINT32_MAX / 8, 3, "too many chunks");
    uint32_t *chunks = lua_newuserdatauv(L, (count + 1) * sizeof(*chunks), 0);
    for (size_t i = 0; i < count; i++) {
        lua_rawgeti(L, 3, (lua_Integer)i + 1);
        luaL_argcheck(L, lua_isinteger(L, -1) && lua_tointeger(L, -1) >= 0, 3,
                      "chunks are integers from 0");
        chunks[i] = (uint32_t)lua_tointeger(L, -1);
        lua_pop(L, 1);
    }
    lua_pushinteger(L,
                    b->host->rows(b->builder, side, chunks, (uint32_t)count));
    return 1;
}

static int build_join(lua_State *L)
{
    builder *b = check(L);
    uint32_t one = check_id(L, 2);

    lua_pushinteger(L, b->host->join(b->builder, one, check_id(L, 3)));
    return 1;
}

static int build_tokens(lua_State *L)
{
    builder *b = check(L);

    lua_pushinteger(
        L, (lua_Integer)b->host->row_tokens(b->builder, check_id(L, 2)));
    return 1;
}

/* ---- slots and views ----------------------------------------------------- */

/* The slot of a view, from user value SLOTS. */
static uint32_t slot_of(lua_State *L, lua_Integer view, const char *what)
{
    lua_getiuservalue(L, 1, SLOTS);
    if (lua_rawgeti(L, -1, view) != LUA_TNUMBER)
        luaL_error(L, "%s: %I is no view of this rank", what,
                   (LUAI_UACINT)view);
    uint32_t slot = (uint32_t)lua_tointeger(L, -1);
    lua_pop(L, 2);
    return slot;
}

static void keep(lua_State *L, int which, lua_Integer key, lua_Integer value)
{
    lua_getiuservalue(L, 1, which);
    lua_pushinteger(L, value);
    lua_rawseti(L, -2, key);
    lua_pop(L, 1);
}

/* Field heads = { first, last + 1 }, or the standard. */
static void read_heads(lua_State *L, int t, uint32_t *h0, uint32_t *h1)
{
    if (t == 0 || !gl_table(L, t, "heads"))
        return;
    int heads = lua_gettop(L);
    lua_rawgeti(L, heads, 1);
    lua_rawgeti(L, heads, 2);
    if (!lua_isinteger(L, -1) || !lua_isinteger(L, -2) ||
        lua_tointeger(L, -2) < 0 || lua_tointeger(L, -1) < 0)
        luaL_error(L, "field 'heads': { from, to } with to not included");
    *h0 = (uint32_t)lua_tointeger(L, -2);
    *h1 = (uint32_t)lua_tointeger(L, -1);
    lua_settop(L, heads - 1);
}

static uint32_t kind_of(lua_State *L, int arg)
{
    const char *name = luaL_checkstring(L, arg);

    for (uint32_t kind = 0; kind < GYRE_VALUE_COUNT; kind++)
        if (strcmp(gyre_plan_kind_name(kind), name) == 0)
            return kind;
    return (uint32_t)luaL_error(L,
                                "no kind '%s'; there are Q, KV, O, DO, ST, "
                                "DQ, DKV, O*, DQ* and DKV*",
                                name);
}

static uint32_t dtype_of(lua_State *L, int t, uint32_t kind,
                         const gyre_problem *p)
{
    const char *name = t != 0 ? gl_text(L, t, "dtype") : NULL;
    gyre_dtype dtype;
    gyre_error error = {0};

    if (name == NULL)
        return kind == GYRE_VALUE_ST      ? p->stat_dtype
               : kind >= GYRE_VALUE_O_SUM ? p->sum_dtype
                                          : p->dtype;
    if (gyre_dtype_parse(name, &dtype, &error) != GYRE_OK)
        luaL_error(L, "field 'dtype': %s", error.text);
    return dtype;
}

/* slot(kind, rows, { external, saved, dtype, heads, reuse }) -> its view */
static int build_slot(lua_State *L)
{
    static const char *const names[] = {"external", "saved", "dtype",
                                        "heads",    "reuse", NULL};
    builder *b = check(L);
    const gyre_problem *p = b->host->problem(b->builder);
    gyre_plan_slot slot = {.kind = kind_of(L, 2),
                           .rows = check_id(L, 3),
                           .h1 = p->heads,
                           .buf = GYRE_NEW_BUF};
    int t = lua_isnoneornil(L, 4) ? 0 : 4;

    if (t != 0) {
        luaL_checktype(L, t, LUA_TTABLE);
        gl_check_fields(L, t, "a slot", names);
        slot.flags = (gl_flag(L, t, "external") ? GYRE_SLOT_EXTERNAL : 0u) |
                     (gl_flag(L, t, "saved") ? GYRE_SLOT_SAVED : 0u);
        lua_Integer reuse =
            gl_integer(L, t, "reuse", -1, 0, (lua_Integer)UINT32_MAX - 1);
        if (reuse >= 0) {
            lua_getiuservalue(L, 1, BUFS);
            lua_rawgeti(L, -1, slot_of(L, reuse, "reuse"));
            slot.buf = (uint32_t)lua_tointeger(L, -1);
            lua_pop(L, 2);
        }
        read_heads(L, t, &slot.h0, &slot.h1);
    }
    slot.dtype = dtype_of(L, t, slot.kind, p);
    uint32_t id = b->host->slot(b->builder, &slot);
    uint32_t view = b->host->whole(b->builder, id);
    keep(L, SLOTS, view, id);
    keep(L, BUFS, id, slot.buf == GYRE_NEW_BUF ? b->bufs++ : slot.buf);
    lua_pushinteger(L, view);
    return 1;
}

/* view(view, { rows, heads, plane }): part of the slot that it is of. */
static int build_view(lua_State *L)
{
    static const char *const names[] = {"rows", "heads", "plane", NULL};
    builder *b = check(L);
    uint32_t slot = slot_of(L, luaL_checkinteger(L, 2), "view"), planes = 1;
    uint32_t h0 = 0, h1 = b->host->problem(b->builder)->heads;

    luaL_checktype(L, 3, LUA_TTABLE);
    gl_check_fields(L, 3, "a view", names);
    lua_Integer rows =
        gl_integer(L, 3, "rows", -1, 0, (lua_Integer)UINT32_MAX - 1);
    if (rows < 0)
        luaL_error(L, "a view: field 'rows' is missing");
    read_heads(L, 3, &h0, &h1);
    const char *plane = gl_text(L, 3, "plane");
    if (plane != NULL && strcmp(plane, "delta") == 0)
        planes = GYRE_PLANE_DELTA;
    else if (plane != NULL && strcmp(plane, "both") == 0)
        planes = GYRE_PLANE_LSE | GYRE_PLANE_DELTA;
    else if (plane != NULL && strcmp(plane, "lse") != 0)
        luaL_error(L, "field 'plane': lse, delta or both, not '%s'", plane);
    uint32_t view =
        b->host->view(b->builder, slot, (uint32_t)rows, h0, h1, planes);
    keep(L, SLOTS, view, slot);
    lua_pushinteger(L, view);
    return 1;
}

/* ---- transfers ----------------------------------------------------------- */

/* begin(phase, lane [1], pattern ["none"]) */
static int build_begin(lua_State *L)
{
    static const char *const patterns[] = {"none", "a2a", "ag", "rs", NULL};
    builder *b = check(L);
    const char *phase = luaL_checkstring(L, 2);
    lua_Integer lane = luaL_optinteger(L, 3, 1);
    uint32_t pattern = (uint32_t)luaL_checkoption(L, 4, "none", patterns);

    luaL_argcheck(L, lane >= 0 && lane < GYRE_PLAN_LANES, 3,
                  "lanes are 0 to 7");
    b->host->begin(b->builder, (uint32_t)lane, phase, pattern);
    return 0;
}

static int transfer(lua_State *L, bool put)
{
    builder *b = check(L);
    uint32_t view = check_id(L, 2), peer = check_id(L, 3);
    lua_Integer channel = luaL_optinteger(L, 4, 0);

    luaL_argcheck(L, channel >= 0 && channel <= UINT16_MAX, 4,
                  "channels are 0 to 65535");
    (put ? b->host->put : b->host->get)(b->builder, view, peer,
                                        (uint32_t)channel);
    return 0;
}

static int build_put(lua_State *L)
{
    return transfer(L, true);
}

static int build_get(lua_State *L)
{
    return transfer(L, false);
}

static int build_end(lua_State *L)
{
    builder *b = check(L);

    b->host->end(b->builder);
    return 0;
}

/* ---- ops ----------------------------------------------------------------- */

/* `count` views, nil for those left out, then the lane [0]. */
static int compute(lua_State *L, uint32_t code, int count)
{
    builder *b = check(L);
    uint32_t views[GYRE_OP_VIEWS];
    lua_Integer lane = luaL_optinteger(L, 2 + count, 0);

    for (int i = 0; i < count; i++)
        views[i] =
            lua_isnoneornil(L, 2 + i) ? GYRE_NO_VIEW : check_id(L, 2 + i);
    luaL_argcheck(L, lane >= 0 && lane < GYRE_PLAN_LANES, 2 + count,
                  "lanes are 0 to 7");
    b->host->op(b->builder, (uint32_t)lane, code, views, (uint32_t)count);
    return 0;
}

static int build_att(lua_State *L)
{
    return compute(L, GYRE_OP_ATT, 3);
}

static int build_grd(lua_State *L)
{
    return compute(L, GYRE_OP_GRD, 6);
}

static int build_red(lua_State *L)
{
    return compute(L, GYRE_OP_RED, 2);
}

static int build_cpy(lua_State *L)
{
    return compute(L, GYRE_OP_CPY, 2);
}

static int build_fin(lua_State *L)
{
    return compute(L, GYRE_OP_FIN, 3);
}

static int build_dlt(lua_State *L)
{
    return compute(L, GYRE_OP_DLT, 3);
}

static int build_refuse(lua_State *L)
{
    builder *b = check(L);

    b->host->refuse(b->builder, luaL_checkstring(L, 2));
    return 0;
}

/* ---- calling the script -------------------------------------------------- */

/* Stack: the function, rank, whether backward, light host and builder. */
static int call_script(lua_State *L)
{
    builder *b = lua_newuserdatauv(L, sizeof(*b), 2);

    memset(b, 0, sizeof(*b));
    luaL_setmetatable(L, GL_BUILDER);
    lua_newtable(L);
    lua_setiuservalue(L, -2, SLOTS);
    lua_newtable(L);
    lua_setiuservalue(L, -2, BUFS);
    b->host = lua_touserdata(L, 4);
    b->builder = lua_touserdata(L, 5);
    lua_pushvalue(L, 1);
    lua_pushvalue(L, -2);
    lua_pushvalue(L, 2);
    lua_pushstring(L, lua_toboolean(L, 3) ? "backward" : "forward");
    int failed = lua_pcall(L, 3, 0, 0);
    b->host = NULL;
    return failed ? lua_error(L) : 0;
}

void gl_emit(void *user, uint32_t pass, uint32_t rank,
             const gyre_plan_host *host, gyre_builder *out)
{
    gl_emitter *e = user;
    lua_State *L = e->L;

    if (e->failed || !lua_checkstack(L, LUA_MINSTACK)) {
        host->refuse(out, "the script failed");
        return;
    }
    /* nothing here may allocate: an error would jump over the library */
    lua_pushcfunction(L, call_script);
    lua_pushvalue(L, e->function);
    lua_pushinteger(L, rank);
    lua_pushboolean(L, pass == GYRE_PASS_BACKWARD);
    lua_pushlightuserdata(L, (void *)(uintptr_t)host);
    lua_pushlightuserdata(L, out);
    if (lua_pcall(L, 5, 0, 0) != LUA_OK) {
        e->failed = true; /* the error stays on the stack */
        host->refuse(out, "the script failed");
    }
}

void gl_open_builder(lua_State *L)
{
    static const luaL_Reg methods[] = {{"problem", build_problem},
                                       {"owned", build_owned},
                                       {"rows", build_rows},
                                       {"join", build_join},
                                       {"tokens", build_tokens},
                                       {"slot", build_slot},
                                       {"view", build_view},
                                       {"begin", build_begin},
                                       {"put", build_put},
                                       {"get", build_get},
                                       {"end_", build_end},
                                       {"att", build_att},
                                       {"grd", build_grd},
                                       {"red", build_red},
                                       {"cpy", build_cpy},
                                       {"fin", build_fin},
                                       {"dlt", build_dlt},
                                       {"refuse", build_refuse},
                                       {NULL, NULL}};

    luaL_newmetatable(L, GL_BUILDER);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}
