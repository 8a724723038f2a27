/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention plans in Lua.
 *
 *     gyre.plan{ schedule = "ring", ranks = 8, seq = 4096, heads = 8 }
 *     gyre.plan{ schedule = function(b, rank, pass) ... end, ... }
 *     gyre.plan{ file = "ring.plan" }
 *
 * One object holds the plans of both passes, or of the one asked for.
 */
#include "config.h"

#include "plan_object.h"

#include <gyre/attention.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct plan_object {
    gyre_plan *plans[GYRE_PASS_COUNT];
    gl_context *context;       /* NULL once closed */
    gyre_plan_request request; /* of a plugin's schedule: its closed forms */
    bool formula;
} plan_object;

/* User values: the context, and what the request points to. */
enum { CONTEXT = 1, ANCHOR = 2 };

static plan_object *check(lua_State *L)
{
    plan_object *o = luaL_checkudata(L, 1, GL_ATTENTION_PLAN);

    if (o->context == NULL)
        luaL_error(L, "this plan has been closed");
    return o;
}

static const char *pass_name(uint32_t pass)
{
    return pass == GYRE_PASS_BACKWARD ? "backward" : "forward";
}

/* Argument "forward" or "backward"; without one, the first that is there. */
static gyre_plan *check_pass(lua_State *L, plan_object *o, int arg)
{
    static const char *const names[] = {"forward", "backward", NULL};
    uint32_t pass = o->plans[0] != NULL ? 0 : 1;

    if (!lua_isnoneornil(L, arg))
        pass = (uint32_t)luaL_checkoption(L, arg, NULL, names);
    if (o->plans[pass] == NULL)
        luaL_error(L, "this plan has no %s pass", names[pass]);
    return o->plans[pass];
}

static int plan_close(lua_State *L)
{
    plan_object *o = luaL_checkudata(L, 1, GL_ATTENTION_PLAN);

    for (int pass = 0; pass < GYRE_PASS_COUNT; pass++) {
        gyre_plan_free(o->plans[pass]);
        o->plans[pass] = NULL;
    }
    if (o->context != NULL)
        gl_context_release(o->context);
    o->context = NULL;
    return 0;
}

/* ---- making one ---------------------------------------------------------- */

static void read_mask(lua_State *L, int t, int anchor, gyre_mask *mask)
{
    int type = lua_getfield(L, t, "mask");
    const char *text = type == LUA_TSTRING ? lua_tostring(L, -1) : "causal";

    *mask = (gyre_mask){.size = sizeof(*mask), .causal = 1};
    if (type == LUA_TTABLE) { /* { documents = { 5, 9 }, window =, causal = } */
        static const char *const names[] = {"causal", "window", "documents",
                                            NULL};
        int m = lua_gettop(L);
        gl_check_fields(L, m, "a mask", names);
        lua_getfield(L, m, "causal");
        mask->causal = lua_isnil(L, -1) || lua_toboolean(L, -1);
        lua_pop(L, 1);
        mask->window =
            (uint64_t)gl_integer(L, m, "window", 0, 0, LUA_MAXINTEGER);
        if (gl_table(L, m, "documents")) {
            int list = lua_gettop(L);
            size_t n = lua_rawlen(L, list);
            gyre_documents *documents =
                gl_scratch(L, anchor, 1, sizeof(*documents));
            uint64_t *bounds = gl_scratch(L, anchor, n + 1, sizeof(*bounds));
            for (size_t i = 0; i < n; i++) {
                lua_rawgeti(L, list, (lua_Integer)i + 1);
                if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 0)
                    luaL_error(L, "field 'documents': a list of lengths");
                bounds[i + 1] = bounds[i] + (uint64_t)lua_tointeger(L, -1);
                lua_pop(L, 1);
            }
            *documents =
                (gyre_documents){.bounds = bounds, .count = (uint32_t)n};
            mask->documents = documents;
            mask->document_count = 1;
            lua_pop(L, 1);
        }
    } else if (type != LUA_TNIL && strcmp(text, "full") == 0) {
        mask->causal = 0;
    } else if (strcmp(text, "causal") != 0 ||
               (type != LUA_TNIL && type != LUA_TSTRING)) {
        luaL_error(L, "field 'mask': causal, full, or { causal =, window =, "
                      "documents = { lengths } }");
    }
    lua_pop(L, 1);
}

static uint32_t read_dtype(lua_State *L, int t, const char *name,
                           gyre_dtype standard)
{
    const char *text = gl_text(L, t, name);
    gyre_error error = {0};

    if (text != NULL && gyre_dtype_parse(text, &standard, &error) != GYRE_OK)
        luaL_error(L, "field '%s': %s", name, error.text);
    return standard;
}

static void read_problem(lua_State *L, int t, int anchor, gyre_plan_request *r)
{
    gyre_mask *mask = gl_scratch(L, anchor, 1, sizeof(*mask));
    gyre_error error = {0};

    r->size = sizeof(*r);
    r->ranks = (uint32_t)gl_integer(L, t, "ranks", 4, 1, UINT32_MAX);
    r->batch = (uint32_t)gl_integer(L, t, "batch", 1, 1, UINT32_MAX);
    r->heads = (uint32_t)gl_integer(L, t, "heads", 8, 1, UINT32_MAX);
    r->kv_heads = (uint32_t)gl_integer(L, t, "kv_heads", 0, 1, UINT32_MAX);
    r->head_dim = (uint32_t)gl_integer(L, t, "head_dim", 64, 1, UINT32_MAX);
    r->v_head_dim = (uint32_t)gl_integer(L, t, "v_head_dim", 0, 1, UINT32_MAX);
    r->tokens = (uint64_t)gl_integer(L, t, "seq", 64 * (lua_Integer)r->ranks, 1,
                                     LUA_MAXINTEGER);
    r->dtype = read_dtype(L, t, "dtype", GYRE_BF16);
    r->wire_dtype = read_dtype(L, t, "wire_dtype", GYRE_F32);
    read_mask(L, t, anchor, mask);
    r->mask = mask;
    r->layout = mask->causal ? GYRE_LAYOUT_ZIGZAG : GYRE_LAYOUT_CONTIGUOUS;
    const char *layout = gl_text(L, t, "layout");
    if (layout != NULL &&
        gyre_layout_parse(layout, &r->layout, &error) != GYRE_OK)
        luaL_error(L, "field 'layout': %s", error.text);
    const char *drop = gl_text(L, t, "drop");
    if (drop != NULL && strcmp(drop, "dead") != 0 && strcmp(drop, "none") != 0)
        luaL_error(L, "field 'drop': none or dead, not '%s'", drop);
    r->drop = drop != NULL && drop[0] == 'd' ? GYRE_DROP_DEAD : GYRE_DROP_NONE;
}

/* A name, { name, parameter = value }, or a function; which stays on the
 * stack. */
static gyre_status read_schedule(lua_State *L, gl_context *context, int t,
                                 int anchor, gyre_plan_request *r,
                                 gl_emitter *emitter, gyre_error *error)
{
    int type = lua_getfield(L, t, "schedule");
    int at = lua_gettop(L);

    if (type == LUA_TSTRING) {
        r->schedule = lua_tostring(L, at);
    } else if (type == LUA_TFUNCTION) {
        const char *name = gl_text(L, t, "name");
        emitter->L = L;
        emitter->function = at;
        r->schedule = name != NULL ? name : "script";
        r->emit = gl_emit;
        r->emit_user = emitter;
    } else if (type == LUA_TTABLE) {
        if (lua_rawgeti(L, at, 1) != LUA_TSTRING)
            luaL_error(L, "field 'schedule': the name comes first, as in { "
                          "\"double-ring\", window = 4 }");
        r->schedule = lua_tostring(L, -1);
        gyre_status status =
            gl_settings(L, context, GYRE_KIND_SCHEDULE, r->schedule, at, anchor,
                        true, &r->settings, &r->setting_count, error);
        lua_settop(L, at);
        return status;
    } else {
        luaL_error(L,
                   "field 'schedule': name, table or function expected, "
                   "got %s",
                   lua_typename(L, type));
    }
    return GYRE_OK;
}

static gyre_status make_passes(lua_State *L, int t, plan_object *o,
                               gyre_error *error)
{
    static const char *const names[] = {"forward", "backward", NULL};
    const char *only = gl_text(L, t, "pass");

    if (only != NULL && strcmp(only, names[0]) != 0 &&
        strcmp(only, names[1]) != 0)
        luaL_error(L, "field 'pass': forward or backward, not '%s'", only);
    for (uint32_t pass = 0; pass < GYRE_PASS_COUNT; pass++) {
        if (only != NULL && strcmp(only, names[pass]) != 0)
            continue;
        o->request.pass = pass;
        gyre_status status = gyre_plan_make(o->context->context, &o->request,
                                            &o->plans[pass], error);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

/* In malloc, since a Lua error may not jump over an open file or the library.
 */
typedef struct growing {
    char *at;
    size_t size;
} growing;

static gyre_status grow(void *user, const void *data, size_t size,
                        gyre_error *error)
{
    growing *g = user;
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

static gyre_status read_file(const char *path, growing *out, gyre_error *error)
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
        status = grow(out, part, n, error);
    if (status == GYRE_OK && ferror(file)) {
        snprintf(error->text, sizeof(error->text), "%s: cannot be read", path);
        status = GYRE_IO;
    }
    fclose(file);
    return status;
}

static gyre_status load(plan_object *o, const char *path, gyre_error *error)
{
    growing g = {0};
    gyre_plan *plan = NULL;
    gyre_status status = read_file(path, &g, error);

    if (status == GYRE_OK)
        status = gyre_plan_read(o->context->context, path, g.at, g.size, &plan,
                                error);
    free(g.at);
    if (status == GYRE_OK)
        o->plans[gyre_plan_pass(plan)] = plan;
    return status;
}

static plan_object *push_object(lua_State *L, gl_context *context, int at)
{
    plan_object *o = lua_newuserdatauv(L, sizeof(*o), 2);

    memset(o, 0, sizeof(*o));
    luaL_setmetatable(L, GL_ATTENTION_PLAN);
    lua_pushvalue(L, at);
    lua_setiuservalue(L, -2, CONTEXT);
    lua_newtable(L);
    lua_setiuservalue(L, -2, ANCHOR);
    o->context = context;
    context->users++;
    return o;
}

int gl_attention_plan(lua_State *L, gl_context *context, int at, int t)
{
    static const char *const names[] = {
        "schedule", "name",     "file",     "ranks",      "seq",   "batch",
        "heads",    "kv_heads", "head_dim", "v_head_dim", "dtype", "wire_dtype",
        "mask",     "layout",   "drop",     "pass",       NULL};
    gyre_error error = {0};
    gl_emitter emitter = {0};

    luaL_checkstack(L, LUA_MINSTACK, "plan");
    gl_check_fields(L, t, "a plan", names);
    plan_object *o = push_object(L, context, at);
    int object = lua_gettop(L);
    const char *path = gl_text(L, t, "file");
    if (path != NULL) {
        gyre_status status = load(o, path, &error);
        lua_settop(L, object);
        return status == GYRE_OK ? 1 : gl_fail(L, status, &error);
    }
    lua_getiuservalue(L, object, ANCHOR);
    int anchor = lua_gettop(L);
    read_problem(L, t, anchor, &o->request);
    gyre_status status =
        read_schedule(L, context, t, anchor, &o->request, &emitter, &error);
    /* what the request points to lives as long as the object */
    lua_pushvalue(L, t);
    lua_rawseti(L, anchor, (lua_Integer)lua_rawlen(L, anchor) + 1);
    if (status == GYRE_OK)
        status = make_passes(L, t, o, &error);
    if (emitter.failed)
        return lua_error(L);
    o->formula = o->request.emit == NULL;
    o->request.emit_user = NULL;
    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    lua_settop(L, object);
    return 1;
}

/* ---- bytes --------------------------------------------------------------- */

typedef struct sums {
    const char *phases[GYRE_PLAN_PHASES];
    uint64_t sent[GYRE_PLAN_PHASES], received[GYRE_PLAN_PHASES];
    uint64_t most_sent[GYRE_PLAN_PHASES], most_received[GYRE_PLAN_PHASES];
    uint64_t memory, total;
    uint32_t count;
} sums;

static void add_phase(sums *s, const gyre_phase_bytes *bytes)
{
    uint32_t i = 0;

    while (i < s->count && strcmp(s->phases[i], bytes->phase) != 0)
        i++;
    if (i == s->count)
        s->phases[s->count++] = bytes->phase;
    s->sent[i] += bytes->sent;
    s->received[i] += bytes->received;
    s->total += bytes->sent;
    if (bytes->sent > s->most_sent[i])
        s->most_sent[i] = bytes->sent;
    if (bytes->received > s->most_received[i])
        s->most_received[i] = bytes->received;
}

static gyre_status count(const gyre_plan *plan, sums *s, gyre_error *error)
{
    gyre_status status = GYRE_OK;

    for (uint32_t r = 0;
         r < gyre_plan_problem(plan)->ranks && status == GYRE_OK; r++) {
        gyre_phase_bytes bytes[GYRE_PLAN_PHASES];
        uint32_t n = 0;
        uint64_t memory = 0, external = 0;

        status = gyre_plan_rank_bytes(plan, r, bytes, &n, error);
        if (status == GYRE_OK)
            status = gyre_plan_rank_memory(plan, r, &memory, &external, error);
        for (uint32_t i = 0; status == GYRE_OK && i < n; i++)
            add_phase(s, &bytes[i]);
        s->memory = memory > s->memory ? memory : s->memory;
    }
    return status;
}

static void push_ways(lua_State *L, const char *name, uint64_t sum,
                      uint64_t most, uint32_t ranks)
{
    lua_createtable(L, 0, 2);
    gl_set_number(L, "mean", (double)sum / ranks);
    gl_set_integer(L, "max", most);
    lua_setfield(L, -2, name);
}

static void push_sums(lua_State *L, const sums *s, uint32_t ranks)
{
    lua_createtable(L, 0, 3);
    gl_set_number(L, "total", (double)s->total / ranks);
    gl_set_integer(L, "memory", s->memory);
    lua_newtable(L);
    for (uint32_t i = 0; i < s->count; i++) {
        lua_createtable(L, 0, 2);
        push_ways(L, "sent", s->sent[i], s->most_sent[i], ranks);
        push_ways(L, "received", s->received[i], s->most_received[i], ranks);
        lua_setfield(L, -2, s->phases[i]);
    }
    lua_setfield(L, -2, "phases");
}

/* plan:bytes() -> { forward = { total, memory, phases }, backward = ... } */
static int plan_bytes(lua_State *L)
{
    plan_object *o = check(L);
    gyre_error error = {0};

    lua_newtable(L);
    for (uint32_t pass = 0; pass < GYRE_PASS_COUNT; pass++) {
        sums s = {0};

        if (o->plans[pass] == NULL)
            continue;
        gyre_status status = count(o->plans[pass], &s, &error);
        if (status != GYRE_OK)
            return gl_fail(L, status, &error);
        push_sums(L, &s, gyre_plan_problem(o->plans[pass])->ranks);
        lua_setfield(L, -2, pass_name(pass));
    }
    return 1;
}

/* ---- prove --------------------------------------------------------------- */

typedef struct formula {
    plan_object *object;
    gyre_plan_request request;
    gyre_status status;
    gyre_error error;
} formula;

static uint32_t expect(void *user, uint32_t rank, gyre_phase_bytes *phases,
                       uint64_t *memory)
{
    formula *f = user;
    uint32_t n = 0;

    *memory = UINT64_MAX;
    if (f->status == GYRE_OK)
        f->status = gyre_plan_formula(f->object->context->context, &f->request,
                                      rank, phases, &n, memory, &f->error);
    return n;
}

static gyre_status prove_pass(plan_object *o, uint32_t pass, gyre_proof *proof,
                              gyre_error *error)
{
    formula f = {.object = o, .request = o->request};
    gyre_proof_options options = {.size = sizeof(options)};

    if (pass == GYRE_PASS_BACKWARD)
        options.forward = o->plans[0];
    if (o->formula && o->request.drop == GYRE_DROP_NONE) {
        f.request.pass = pass;
        options.expect = expect;
        options.user = &f;
    }
    *proof = (gyre_proof){.size = sizeof(*proof)};
    gyre_status status =
        gyre_plan_prove(o->plans[pass], &options, proof, error);
    if (status == GYRE_OK && f.status != GYRE_OK) {
        *error = f.error;
        status = f.status;
    }
    return status;
}

static void set_place(lua_State *L, const char *name, uint32_t id)
{
    if (id != GYRE_NO_VIEW)
        gl_set_integer(L, name, id);
}

/* plan:prove() -> { ok, ops, peak_bytes, cast_depth, ... }: of the pass that
 * fails, else of both. */
static int plan_prove(lua_State *L)
{
    plan_object *o = check(L);
    gyre_error error = {0};
    gyre_proof sum = {.ok = 1}, proof = {.ok = 1};
    uint32_t pass = 0, last = 0;

    for (; pass < GYRE_PASS_COUNT && proof.ok; pass++) {
        if (o->plans[pass] == NULL)
            continue;
        last = pass;
        gyre_status status = prove_pass(o, pass, &proof, &error);
        if (status != GYRE_OK)
            return gl_fail(L, status, &error);
        sum.ops += proof.ops;
        sum.peak_bytes = proof.peak_bytes > sum.peak_bytes ? proof.peak_bytes
                                                           : sum.peak_bytes;
        sum.cast_depth = proof.cast_depth > sum.cast_depth ? proof.cast_depth
                                                           : sum.cast_depth;
        sum.dead_bytes += proof.dead_bytes;
    }
    lua_createtable(L, 0, 12);
    gl_set_flag(L, "ok", (int)proof.ok);
    gl_set_integer(L, "ops", sum.ops);
    gl_set_integer(L, "peak_bytes", sum.peak_bytes);
    gl_set_integer(L, "cast_depth", sum.cast_depth);
    gl_set_integer(L, "dead_bytes", sum.dead_bytes);
    if (!proof.ok) {
        gl_set_text(L, "pass", pass_name(last));
        set_place(L, "rank", proof.rank);
        set_place(L, "op", proof.op);
        set_place(L, "q_chunk", proof.q_chunk);
        set_place(L, "kv_chunk", proof.kv_chunk);
        set_place(L, "head", proof.head);
        gl_set_text(L, "reason", proof.reason);
    }
    return 1;
}

/* ---- run ----------------------------------------------------------------- */

static void push_trial(lua_State *L, const gyre_trial *trial)
{
    lua_createtable(L, 0, 4);
    gl_set_flag(L, "ok", (int)trial->ok);
    gl_set_flag(L, "ledger_ok", (int)trial->ledger_ok);
    lua_newtable(L);
    for (int i = 0; i < GYRE_TRIAL_TENSORS; i++) {
        const gyre_trial_tensor *t = &trial->tensor[i];

        if (!t->compared)
            continue;
        lua_createtable(L, 0, 4);
        gl_set_flag(L, "ok", (int)t->ok);
        gl_set_number(L, "max_abs_error", t->max_abs_error);
        gl_set_number(L, "max_rel_error", t->max_rel_error);
        gl_set_number(L, "bound", t->bound);
        lua_setfield(L, -2, t->name);
    }
    lua_setfield(L, -2, "tensors");
}

/* plan:run{ kernel =, seed =, delay = seconds }: on threads. */
static int plan_run(lua_State *L)
{
    static const char *const names[] = {"kernel", "seed", "delay", NULL};
    plan_object *o = check(L);
    gyre_error error = {0};
    gyre_trial trial = {.size = sizeof(trial)};
    gyre_trial_options how = {.size = sizeof(how), .seed = 1};
    gyre_attention_options options = {.size = sizeof(options),
                                      .forward = o->plans[0],
                                      .backward = o->plans[1],
                                      .forward_only = o->plans[1] == NULL};

    if (!lua_isnoneornil(L, 2)) {
        luaL_checktype(L, 2, LUA_TTABLE);
        gl_check_fields(L, 2, "plan:run", names);
        options.kernel = gl_text(L, 2, "kernel");
        how.seed = (uint64_t)gl_integer(L, 2, "seed", 1, 0, LUA_MAXINTEGER);
        options.delay = (uint64_t)(gl_number(L, 2, "delay", 0) * 1e9);
        options.delay_seed = how.seed;
    }
    if (o->plans[0] == NULL)
        return luaL_error(L, "plan:run needs a forward pass");
    gyre_status status = gyre_attention_trial(o->context->context, NULL,
                                              &options, &how, &trial, &error);
    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    push_trial(L, &trial);
    return 1;
}

/* ---- text ---------------------------------------------------------------- */

static gyre_status write_file(void *user, const void *data, size_t size,
                              gyre_error *error)
{
    (void)error;
    fwrite(data, 1, size, user); /* save looks at the end */
    return GYRE_OK;
}

/* plan:save(path, { pass =, binary = }) */
static int plan_save(lua_State *L)
{
    static const char *const names[] = {"pass", "binary", NULL};
    plan_object *o = check(L);
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
    gyre_plan *plan = check_pass(L, o, 4);
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
    const growing *g = lua_touserdata(L, 1);

    lua_pushlstring(L, g->at, g->size);
    return 1;
}

static int give(lua_State *L, growing *g, gyre_status status, gyre_error *error)
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
static int plan_text(lua_State *L)
{
    plan_object *o = check(L);
    growing g = {0};
    gyre_error error = {0};
    gyre_plan *plan = check_pass(L, o, 2);

    lua_settop(L, 2);
    return give(L, &g, gyre_plan_write_text(plan, grow, &g, &error), &error);
}

typedef struct listing {
    const gyre_plan *plan;
    growing text;
} listing;

static gyre_status add_step(void *user, const gyre_plan_step *step,
                            gyre_error *error)
{
    listing *l = user;
    char text[512], line[540];

    int n = snprintf(line, sizeof(line), "%4u  %s\n", step->op,
                     gyre_plan_step_text(l->plan, step, text, sizeof(text)));
    return grow(&l->text, line, (size_t)n, error);
}

/* plan:show(rank, [pass]): its ops, a line each. */
static int plan_show(lua_State *L)
{
    plan_object *o = check(L);
    lua_Integer rank = luaL_checkinteger(L, 2);
    gyre_error error = {0};
    listing l = {.plan = check_pass(L, o, 3)};

    luaL_argcheck(L, rank >= 0 && rank < gyre_plan_problem(l.plan)->ranks, 2,
                  "there is no such rank");
    lua_settop(L, 3);
    gyre_status status =
        gyre_plan_walk(l.plan, (uint32_t)rank, add_step, &l, &error);
    return give(L, &l.text, status, &error);
}

void gl_open_attention_plan(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"bytes", plan_bytes}, {"prove", plan_prove}, {"run", plan_run},
        {"text", plan_text},   {"save", plan_save},   {"show", plan_show},
        {"close", plan_close}, {NULL, NULL}};

    luaL_newmetatable(L, GL_ATTENTION_PLAN);
    lua_pushcfunction(L, plan_close);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, plan_close);
    lua_setfield(L, -2, "__close");
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}
