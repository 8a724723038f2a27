/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan in Lua shows of itself: its bytes, its proof, a run. */
#include "config.h"

#include "plan_object.h"

#include <gyre/attention.h>

#include <string.h>

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
int gl_attention_bytes(lua_State *L)
{
    gl_attention *o = gl_check_attention(L);
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
        lua_setfield(L, -2, gl_pass_name(pass));
    }
    return 1;
}

/* ---- prove --------------------------------------------------------------- */

typedef struct formula {
    gl_attention *object;
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

static gyre_status prove_pass(gl_attention *o, uint32_t pass, gyre_proof *proof,
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
int gl_attention_prove(lua_State *L)
{
    gl_attention *o = gl_check_attention(L);
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
        gl_set_text(L, "pass", gl_pass_name(last));
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

/* plan:run{ kernel =, seed =, delay = seconds, workers = }: on threads. */
int gl_attention_run(lua_State *L)
{
    static const char *const names[] = {"kernel", "seed", "delay", "workers",
                                        NULL};
    gl_attention *o = gl_check_attention(L);
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
        double delay = gl_number(L, 2, "delay", 0);
        if (!(delay >= 0 && delay <= 1))
            return luaL_error(L, "plan:run: delay is %f seconds: 0 to 1",
                              delay);
        options.delay = (uint64_t)(delay * 1e9);
        options.delay_seed = how.seed;
        options.workers =
            (uint32_t)gl_integer(L, 2, "workers", 0, 0, UINT32_MAX);
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
