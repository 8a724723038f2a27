/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the Lua module share.
 *
 * The module is a face: it uses public headers alone.  Three rules keep Lua's
 * long jumps away from C resources:
 *
 *   - scratch memory (specs, settings, texts) is userdata, never malloc, so an
 *     error at any point leaves it to the collector;
 *   - every C object sits in a userdata with __gc from before it is made;
 *   - callbacks that the library calls never let an error through: they run in
 *     lua_pcall, stop the work, and the error is raised after the return.
 *
 * Failures from outside come back as nil, message, code; misuse raises with
 * the script's position.  gl_fail decides by the status alone.
 *
 *     context  <--user value 1--  store  <--user value 1--  round
 *                                 store  --user value 2-->  bound arrays
 */
#ifndef GYRE_LUA_MODULE_H
#define GYRE_LUA_MODULE_H

#include <gyre/gyre.h>
#include <stdbool.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include <gyre/lua.h>

#define GL_CONTEXT "gyre.context"
#define GL_STORE "gyre.store"
#define GL_ROUND "gyre.round"
#define GL_PROGRESS "gyre.progress"

/* Names in the registry: os.exit, and options of the default context. */
#define GL_EXIT "gyre.exit"
#define GL_PLUGIN_PATH "gyre.plugin_path"
#define GL_ISA "gyre.instruction_set"

int luaopen_gyre(lua_State *L);

/* ---- errors and tables (util.c) --------------------------------------- */

/* Raise for misuse; else push nil, message, code and return 3. */
int gl_fail(lua_State *L, gyre_status status, const gyre_error *error);

/* Push true, for calls that have nothing else to give; returns 1. */
int gl_done(lua_State *L);

/* Zeroed memory for count * size bytes, kept alive by the table at `anchor`.
 * Raises when it is not to be had. */
void *gl_scratch(lua_State *L, int anchor, size_t count, size_t size);

/* Field `name` of the table at t (an absolute index), or the default when it
 * is nil; raises for another type or a value outside min..max. */
lua_Integer gl_integer(lua_State *L, int t, const char *name,
                       lua_Integer standard, lua_Integer min, lua_Integer max);
double gl_number(lua_State *L, int t, const char *name, double standard);
bool gl_flag(lua_State *L, int t, const char *name);
/* The text lives as long as the table holds it; NULL when nil. */
const char *gl_text(lua_State *L, int t, const char *name);
/* Push a field that is a table and return true, or push nothing. */
bool gl_table(lua_State *L, int t, const char *name);

/* Raise when the table at t has a string key that is not among `names`
 * (NULL-terminated); the error lists them. */
void gl_check_fields(lua_State *L, int t, const char *what,
                     const char *const *names);

void gl_set_integer(lua_State *L, const char *name, uint64_t value);
void gl_set_number(lua_State *L, const char *name, double value);
void gl_set_flag(lua_State *L, const char *name, int value);
void gl_set_text(lua_State *L, const char *name, const char *value);

/* Fields of the module's table, which options set: "quiet", ... */
bool gl_module_flag(lua_State *L, const char *name);

/* Monotonic clock in nanoseconds. */
uint64_t gl_now(void);

/* Close every handle as the script's end would, and leave the process; does
 * not return. */
int gl_exit(lua_State *L, int code);

/* ---- context (context.c) ---------------------------------------------- */

typedef struct gl_context {
    gyre_context *context; /* NULL once destroyed */
    uint32_t users;        /* open stores: destruction waits for them */
    bool closed;           /* by the script: no new objects */
} gl_context;

/*
 * Functions that need a context are both gyre.f(...) and ctx:f(...).  Push the
 * context (argument 1, or the default one) on the stack and return how many
 * leading arguments it took: 0 or 1.
 */
int gl_take_context(lua_State *L, gl_context **out);

void gl_context_release(gl_context *context); /* one user less */

int gl_context_new(lua_State *L);
void gl_open_context(lua_State *L);

/* ---- trace (trace.c) ---------------------------------------------------- */

int gl_span(lua_State *L);
int gl_trace(lua_State *L);
int gl_write_trace(lua_State *L);
int gl_clear_trace(lua_State *L);
void gl_open_trace(lua_State *L);

/* ---- plugins, settings and specs (plugins.c, spec.c) ------------------- */

int gl_plugins(lua_State *L);
int gl_plugin(lua_State *L);
int gl_optimizer(lua_State *L);

/* Settings from the named fields of the table at t; words are looked up in the
 * parameter table of `plugin`, and with `check` numbers, too. */
gyre_status gl_settings(lua_State *L, gl_context *context, const char *kind,
                        const char *plugin, int t, int anchor, bool check,
                        const gyre_setting **out, size_t *count,
                        gyre_error *error);

/* What gyre.create and gyre.plan take: spec and options from one table.  The
 * fields it takes are in gl_check_store_fields. */
gyre_status gl_spec(lua_State *L, gl_context *context, int t, int anchor,
                    gyre_store_spec *spec, gyre_error *error);
void gl_store_options(lua_State *L, int t, int anchor,
                      gyre_store_options *options);
void gl_devices(lua_State *L, int t, int anchor, const char *const **devices,
                size_t *count);
void gl_weights(lua_State *L, int t, int anchor, const double **weights,
                size_t *count);
/* weights = "measured": measure the devices of `spec`. */
gyre_status gl_measured(lua_State *L, gl_context *context, int t, int anchor,
                        gyre_store_spec *spec, gyre_error *error);
void gl_check_store_fields(lua_State *L, int t, bool create);

/* ---- near-storage update (near.c) -------------------------------------- */

/* Their parts of spec and options, and what a ledger counts. */
gyre_status gl_near_spec(lua_State *L, gl_context *context, int t, int anchor,
                         gyre_store_spec *spec, gyre_error *error);
void gl_near_options(lua_State *L, int t, int anchor,
                     gyre_store_options *options);
void gl_push_ledger(lua_State *L, const gyre_ledger *ledger);
int gl_ledger(lua_State *L);
int gl_wear(lua_State *L);

/* ---- store (store.c, ask.c) and round (round.c) ------------------------ */

typedef struct gl_store {
    gyre_store *store; /* NULL once closed */
    gyre_round *round; /* the open one */
    uint64_t rounds;   /* begun so far: the number of the open one */
    bool updating;     /* gyre_round_update was called */
    gl_context *context;
} gl_store;

gl_store *gl_check_store(lua_State *L, int arg); /* raises when closed */
/* Index from 0 of the tensor at `arg`, an index from 1 or a name. */
size_t gl_check_tensor(lua_State *L, gl_store *s, int arg);

int gl_create(lua_State *L);
int gl_open(lua_State *L);
int gl_open_or_create(lua_State *L);
void gl_open_store(lua_State *L);

extern const luaL_Reg gl_ask_methods[];

int gl_begin(lua_State *L);
void gl_open_round(lua_State *L);

/* ---- care (care.c) ----------------------------------------------------- */

int gl_export(lua_State *L);
int gl_import(lua_State *L);
int gl_reshard(lua_State *L);
int gl_move(lua_State *L);
/* Of a store that is closed: let the bound arrays go. */
void gl_unbind(lua_State *L, int store);
int gl_weigh(lua_State *L);
int gl_fsck(lua_State *L);

/* ---- arrays, JSON, progress, options, plans ---------------------------- */

int gl_array(lua_State *L);
void gl_open_array(lua_State *L);

int gl_json(lua_State *L);
int gl_json_decode(lua_State *L);

int gl_progress(lua_State *L);
void gl_open_progress(lua_State *L);

int gl_options(lua_State *L);

int gl_plan(lua_State *L);
/* gyre.plan of the table at t that names a schedule or a file; the context is
 * at `at`. */
int gl_attention_plan(lua_State *L, gl_context *context, int at, int t);
void gl_open_attention_plan(lua_State *L);
void gl_open_builder(lua_State *L);
int gl_plan_run(lua_State *L);
int gl_memory(lua_State *L);

/* ---- reading the machine (probe.c) ------------------------------------- */

typedef struct gl_rates {
    double read, write; /* bytes per second */
    char where[256];    /* the folder that was measured */
} gl_rates;

/* Write and read `bytes` in a file without a name beside `path`; `buffer` has
 * a MiB and is aligned to 4096.  False when that is not possible. */
bool gl_measure(const char *path, void *buffer, size_t bytes, gl_rates *rates);

/* Memory of this process now, resident, in bytes; 0 when unknown. */
uint64_t gl_resident(void);

#endif
