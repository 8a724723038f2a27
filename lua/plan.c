/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans and dry runs.
 *
 * A script declares what it will take in one call before it takes anything:
 *
 *     gyre.plan_run{ store = spec, path = dir, memory = { model = bytes },
 *                    steps = n, compute_seconds = s,
 *                    rate = { read =, write = } }
 *
 * In a real run this returns at once.  With --dry-run it prints devices,
 * memory by line, bytes per step, disk and predicted time, and ends the script
 * with 0.
 */
#include "config.h"

#include "module.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PROBE_BYTES = 16 << 20, PROBE_BUFFER = 1 << 20, PROBE_ALIGN = 4096 };

/* Key of the table { name = bytes } of gyre.memory in the registry. */
static const char memory_key;

typedef struct line {
    const char *name;
    uint64_t bytes;
} line;

typedef struct plan {
    gyre_store_spec spec;
    gyre_store_options options;
    gyre_store_plan store;
    const char *path;
    const char *title;
    line *lines;
    size_t line_count;
    uint64_t peak;
    lua_Integer steps;
    double compute; /* seconds per step, declared; 0: not */
    double rate_read, rate_write;
    const char *rate_source;
    double storage; /* seconds per step; 0: unknown */
    size_t devices, disks;
    uint64_t elements;
} plan;

/* ---- gyre.plan --------------------------------------------------------- */

static gyre_status make_plan(lua_State *L, gl_context *context, int t,
                             int anchor, plan *p, gyre_error *error)
{
    gl_check_store_fields(L, t, true);
    gyre_status status = gl_spec(L, context, t, anchor, &p->spec, error);
    if (status != GYRE_OK)
        return status;
    gl_store_options(L, t, anchor, &p->options);
    p->options.devices = NULL;
    p->options.device_count = 0;
    p->store.size = sizeof(p->store);
    return gyre_store_make_plan(context->context, &p->spec, &p->options,
                                &p->store, error);
}

int gl_plan(lua_State *L)
{
    gl_context *context;
    gyre_error error = {0};
    plan p = {0};
    int base = gl_take_context(L, &context);

    luaL_checktype(L, base + 1, LUA_TTABLE);
    bool schedule = lua_getfield(L, base + 1, "schedule") != LUA_TNIL;
    bool file = lua_getfield(L, base + 1, "file") != LUA_TNIL;
    lua_pop(L, 2);
    if (schedule || file)
        return gl_attention_plan(L, context, lua_gettop(L), base + 1);
    lua_newtable(L);
    gyre_status status =
        make_plan(L, context, base + 1, lua_gettop(L), &p, &error);
    if (status != GYRE_OK)
        return gl_fail(L, status, &error);
    lua_createtable(L, 0, 12);
    gl_set_integer(L, "buffer_bytes", p.store.buffer_bytes);
    gl_set_integer(L, "gradient_bytes", p.store.gradient_bytes);
    gl_set_integer(L, "leaf_bytes", p.store.leaf_bytes);
    gl_set_integer(L, "table_bytes", p.store.table_bytes);
    gl_set_integer(L, "other_bytes", p.store.other_bytes);
    gl_set_integer(L, "residual_bytes", p.store.residual_bytes);
    gl_set_integer(L, "payload_bytes", p.store.payload_bytes);
    gl_set_integer(L, "device_memory_bytes", p.store.device_memory_bytes);
    gl_set_integer(L, "born_memory_bytes", p.store.born_memory_bytes);
    gl_push_ledger(L, &p.store.model);
    lua_setfield(L, -2, "model");
    gl_set_integer(L, "total_bytes", p.store.total_bytes);
    gl_set_integer(L, "disk_bytes", p.store.disk_bytes);
    gl_set_integer(L, "chunks", p.store.chunks);
    gl_set_integer(L, "chunk_elements", p.store.chunk_elements);
    gl_set_integer(L, "read_bytes_per_step", p.store.read_bytes_per_step);
    gl_set_integer(L, "write_bytes_per_step", p.store.write_bytes_per_step);
    return 1;
}

/* ---- declared memory --------------------------------------------------- */

/* gyre.memory(name, bytes): again with the same name replaces. */
int gl_memory(lua_State *L)
{
    luaL_checkstring(L, 1);
    luaL_argcheck(L, luaL_checkinteger(L, 2) >= 0, 2, "below 0");
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &memory_key) != LUA_TTABLE) {
        lua_pop(L, 1);
        lua_newtable(L);
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &memory_key);
    }
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    lua_rawset(L, -3);
    return 0;
}

static void add_line(plan *p, const char *name, uint64_t bytes)
{
    p->lines[p->line_count++] = (line){name, bytes};
    p->peak += bytes;
}

/* Lines of a table { name = bytes }, sorted, so that two runs print the same.
 */
static void add_table(lua_State *L, int t, plan *p)
{
    size_t first = p->line_count;

    lua_pushnil(L);
    while (lua_next(L, t) != 0) {
        if (lua_type(L, -2) != LUA_TSTRING || !lua_isinteger(L, -1) ||
            lua_tointeger(L, -1) < 0)
            luaL_error(L, "memory is declared as name = bytes");
        add_line(p, lua_tostring(L, -2), (uint64_t)lua_tointeger(L, -1));
        lua_pop(L, 1);
    }
    for (size_t i = first + 1; i < p->line_count; i++)
        for (size_t k = i;
             k > first && strcmp(p->lines[k - 1].name, p->lines[k].name) > 0;
             k--) {
            line swap = p->lines[k];
            p->lines[k] = p->lines[k - 1];
            p->lines[k - 1] = swap;
        }
}

static size_t count_fields(lua_State *L, int t)
{
    size_t n = 0;

    lua_pushnil(L);
    while (lua_next(L, t) != 0) {
        n++;
        lua_pop(L, 1);
    }
    return n;
}

/* All lines: this process as it is, the store, what the script declared. */
static void collect_memory(lua_State *L, int t, int anchor, plan *p, bool store)
{
    int own = 0, declared = 0;
    size_t n = 9;

    if (gl_table(L, t, "memory")) {
        own = lua_gettop(L);
        n += count_fields(L, own);
    }
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &memory_key) == LUA_TTABLE) {
        declared = lua_gettop(L);
        n += count_fields(L, declared);
    }
    p->lines = gl_scratch(L, anchor, n, sizeof(*p->lines));
    add_line(p, "this process now", gl_resident());
    if (store) {
        add_line(p, "store: chunk buffers", p->store.buffer_bytes);
        add_line(p, "store: held gradients", p->store.gradient_bytes);
        add_line(p, "store: norm partials", p->store.leaf_bytes);
        add_line(p, "store: tables", p->store.table_bytes);
        add_line(p, "store: workers, queues", p->store.other_bytes);
        if (p->store.residual_bytes > 0)
            add_line(p, "store: residual", p->store.residual_bytes);
        if (p->store.payload_bytes > 0)
            add_line(p, "store: compressed gradients", p->store.payload_bytes);
        if (p->store.device_memory_bytes > 0)
            add_line(p, "store: memory of devices",
                     p->store.device_memory_bytes);
    }
    if (own != 0)
        add_table(L, own, p);
    if (declared != 0)
        add_table(L, declared, p);
}

/* ---- time -------------------------------------------------------------- */

/* Number of different file systems that the devices lie on. */
static size_t count_disks(const plan *p)
{
    dev_t seen[GYRE_MAX_DEVICES];
    size_t n = 0;

    for (size_t i = 0; p->spec.devices != NULL && i < p->devices; i++) {
        struct stat st;
        size_t k = 0;

        if (stat(p->spec.devices[i], &st) != 0)
            continue;
        while (k < n && seen[k] != st.st_dev)
            k++;
        if (k == n)
            seen[n++] = st.st_dev;
    }
    return n > 0 ? n : 1;
}

static void find_rates(lua_State *L, int t, int anchor, plan *p)
{
    if (gl_table(L, t, "rate")) {
        int rate = lua_gettop(L);

        p->rate_read = gl_number(L, rate, "read", 0);
        p->rate_write = gl_number(L, rate, "write", 0);
        if (!(p->rate_read > 0 && p->rate_write > 0))
            luaL_error(L, "field 'rate': read and write, in bytes per second, "
                          "must be above 0");
        p->rate_source = "declared";
        lua_pop(L, 1);
        return;
    }
    const char *place = p->spec.devices != NULL ? p->spec.devices[0]
                        : p->path != NULL       ? p->path
                                                : ".";
    gl_rates *rates = gl_scratch(L, anchor, 1, sizeof(*rates));
    char *memory = gl_scratch(L, anchor, PROBE_BUFFER + PROBE_ALIGN, 1);
    uintptr_t misfit = (uintptr_t)memory % PROBE_ALIGN;

    if (!gl_measure(place, memory + (misfit ? PROBE_ALIGN - misfit : 0),
                    PROBE_BYTES, rates))
        return;
    p->rate_read = rates->read;
    p->rate_write = rates->write;
    lua_pushfstring(L, "measured now with %d MiB in %s", PROBE_BYTES >> 20,
                    rates->where);
    p->rate_source = lua_tostring(L, -1);
    lua_rawseti(L, anchor, (lua_Integer)lua_rawlen(L, anchor) + 1);
}

/* Reads and writes share a disk; a step's storage time is their sum. */
static void predict(plan *p)
{
    p->disks = count_disks(p);
    if (p->rate_source == NULL)
        return;
    p->storage = ((double)p->store.read_bytes_per_step / p->rate_read +
                  (double)p->store.write_bytes_per_step / p->rate_write) /
                 (double)p->disks;
}

/* ---- output ------------------------------------------------------------ */

static const char *amount(char *out, size_t size, double bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int i = 0;

    while (bytes >= 1024 && i < 4) {
        bytes /= 1024;
        i++;
    }
    snprintf(out, size, i == 0 ? "%.0f %s" : "%.2f %s", bytes, unit[i]);
    return out;
}

static void print_store(const plan *p)
{
    char a[32], b[32];

    printf("store          %s, %s\n", p->path != NULL ? p->path : "(no path)",
           p->spec.optimizer != NULL ? p->spec.optimizer : "adamw");
    printf("devices        %zu", p->devices);
    for (size_t i = 0; p->spec.devices != NULL && i < p->devices; i++)
        printf("%s%s", i == 0 ? ": " : ", ", p->spec.devices[i]);
    printf("\nparameters     %llu in %zu tensors, %llu chunks of %llu\n",
           (unsigned long long)p->elements, p->spec.tensor_count,
           (unsigned long long)p->store.chunks,
           (unsigned long long)p->store.chunk_elements);
    printf("disk           %s reserved\n",
           amount(a, sizeof(a), (double)p->store.disk_bytes));
    printf("each step      %s read, %s written\n",
           amount(a, sizeof(a), (double)p->store.read_bytes_per_step),
           amount(b, sizeof(b), (double)p->store.write_bytes_per_step));
}

/* What becomes of gradients that are born on a device, if any are. */
static void print_born(const plan *p)
{
    char a[32];

    if (p->spec.compressor == NULL)
        return;
    if (p->store.born_memory_bytes > 0)
        printf("born there     gradients of opencl or cuda memory are "
               "compressed on their device, %s of its memory\n",
               amount(a, sizeof(a), (double)p->store.born_memory_bytes));
    else
        printf("born there     gradients of opencl or cuda memory are copied "
               "whole: %s has no encoder for devices with these settings\n",
               p->spec.compressor);
}

static void print_time(const plan *p)
{
    char a[32], b[32];
    double least = p->compute > p->storage ? p->compute : p->storage;

    if (p->rate_source != NULL)
        printf("disk rates     %s/s read, %s/s written (%s)\n",
               amount(a, sizeof(a), p->rate_read),
               amount(b, sizeof(b), p->rate_write), p->rate_source);
    if (p->rate_source != NULL)
        printf("storage        %.3g s a step%s\n", p->storage,
               p->disks > 1 ? ", several disks at once" : "");
    if (p->compute > 0)
        printf("compute        %.3g s a step (declared)\n", p->compute);
    if (p->steps > 0 && p->rate_source != NULL && p->compute > 0)
        printf("time           %.3g s for %lld steps if all storage time "
               "hides, %.3g s if none\n",
               least * (double)p->steps, (long long)p->steps,
               (p->compute + p->storage) * (double)p->steps);
    else if (p->steps > 0 && p->rate_source != NULL)
        printf("time           %.3g s of storage for %lld steps; compute was "
               "not declared\n",
               p->storage * (double)p->steps, (long long)p->steps);
}

static void print_text(const plan *p, bool store)
{
    char a[32];

    printf("%s%sdry run: nothing has been allocated\n",
           p->title != NULL ? p->title : "", p->title != NULL ? ", " : "");
    if (store)
        print_store(p);
    printf("memory\n");
    for (size_t i = 0; i < p->line_count; i++)
        printf("  %-26s %12s\n", p->lines[i].name,
               amount(a, sizeof(a), (double)p->lines[i].bytes));
    printf("  %-26s %12s\n", "peak in all",
           amount(a, sizeof(a), (double)p->peak));
    if (store)
        print_born(p);
    if (store)
        print_time(p);
}

static void push_memory(lua_State *L, const plan *p)
{
    lua_createtable(L, (int)p->line_count, 0);
    for (size_t i = 0; i < p->line_count; i++) {
        lua_createtable(L, 0, 2);
        gl_set_text(L, "name", p->lines[i].name);
        gl_set_integer(L, "bytes", p->lines[i].bytes);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "memory");
    gl_set_integer(L, "memory_peak_bytes", p->peak);
}

static void push_store(lua_State *L, const plan *p)
{
    gl_set_text(L, "path", p->path);
    gl_set_text(L, "optimizer",
                p->spec.optimizer != NULL ? p->spec.optimizer : "adamw");
    gl_set_integer(L, "devices", p->devices);
    gl_set_integer(L, "parameters", p->elements);
    gl_set_integer(L, "tensors", p->spec.tensor_count);
    gl_set_integer(L, "chunks", p->store.chunks);
    gl_set_integer(L, "chunk_elements", p->store.chunk_elements);
    gl_set_integer(L, "disk_bytes", p->store.disk_bytes);
    gl_set_integer(L, "read_bytes_per_step", p->store.read_bytes_per_step);
    gl_set_integer(L, "write_bytes_per_step", p->store.write_bytes_per_step);
    gl_set_integer(L, "born_memory_bytes", p->store.born_memory_bytes);
    if (p->rate_source == NULL)
        return;
    gl_set_number(L, "rate_read", p->rate_read);
    gl_set_number(L, "rate_write", p->rate_write);
    gl_set_text(L, "rate_source", p->rate_source);
    gl_set_number(L, "storage_seconds_per_step", p->storage);
    if (p->steps > 0)
        gl_set_number(L, "seconds_hidden",
                      (p->compute > p->storage ? p->compute : p->storage) *
                          (double)p->steps);
    if (p->steps > 0)
        gl_set_number(L, "seconds_exposed",
                      (p->compute + p->storage) * (double)p->steps);
}

static void print_json(lua_State *L, const plan *p, bool store)
{
    lua_pushcfunction(L, gl_json);
    lua_createtable(L, 0, 24);
    gl_set_flag(L, "dry_run", 1);
    push_memory(L, p);
    if (p->steps > 0)
        gl_set_integer(L, "steps", (uint64_t)p->steps);
    if (p->compute > 0)
        gl_set_number(L, "compute_seconds_per_step", p->compute);
    if (store)
        push_store(L, p);
    lua_pushboolean(L, 1);
    lua_call(L, 2, 1);
    printf("%s\n", lua_tostring(L, -1));
}

/* ---- gyre.plan_run ----------------------------------------------------- */

static void count_elements(plan *p)
{
    p->devices = p->spec.device_count > 0 ? p->spec.device_count : 1;
    for (size_t i = 0; i < p->spec.tensor_count; i++) {
        uint64_t n = 1;

        for (uint32_t k = 0; k < p->spec.tensors[i].rank; k++)
            n *= p->spec.tensors[i].shape[k];
        p->elements += n;
    }
}

int gl_plan_run(lua_State *L)
{
    static const char *const names[] = {
        "store",           "path", "memory", "steps",
        "compute_seconds", "rate", "title",  NULL};
    gl_context *context;
    gyre_error error = {0};
    plan p = {0};

    luaL_checktype(L, 1, LUA_TTABLE);
    gl_check_fields(L, 1, "gyre.plan_run", names);
    if (!gl_module_flag(L, "dry_run"))
        return 0;
    lua_settop(L, 1);
    gl_take_context(L, &context);
    lua_newtable(L);
    int anchor = lua_gettop(L);
    bool store = gl_table(L, 1, "store");
    if (store) {
        gyre_status status =
            make_plan(L, context, lua_gettop(L), anchor, &p, &error);
        if (status != GYRE_OK)
            luaL_error(L, "%s", error.text);
        count_elements(&p);
    }
    p.path = gl_text(L, 1, "path");
    p.title = gl_text(L, 1, "title");
    p.steps = gl_integer(L, 1, "steps", 0, 0, INT64_MAX);
    p.compute = gl_number(L, 1, "compute_seconds", 0);
    collect_memory(L, 1, anchor, &p, store);
    if (store) {
        find_rates(L, 1, anchor, &p);
        predict(&p);
    }
    if (gl_module_flag(L, "json_output"))
        print_json(L, &p, store);
    else
        print_text(&p, store);
    return gl_exit(L, 0);
}
