/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Lua module when memory runs out: from the n-th request of the Lua state
 * on, each one fails.  The script must end with an error or not at all, every
 * block must come back at lua_close, and (under a sanitizer) nothing of the
 * library may leak.
 *
 * A single failed request would prove little: Lua collects and tries again.
 */
#include "config.h"

#include "module.h"
#include "../unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct counter {
    uint64_t requests, fail_at;
    int64_t bytes;
} counter;

static void *request(void *user, void *block, size_t old_bytes,
                     size_t new_bytes)
{
    counter *c = user;

    if (block == NULL)
        old_bytes = 0; /* Lua tells a type there */
    if (new_bytes == 0) {
        c->bytes -= (int64_t)old_bytes;
        free(block);
        return NULL;
    }
    if (new_bytes > old_bytes && ++c->requests >= c->fail_at)
        return NULL;
    void *fresh = realloc(block, new_bytes);
    if (fresh != NULL)
        c->bytes += (int64_t)new_bytes - (int64_t)old_bytes;
    return fresh;
}

static int run_protected(lua_State *L)
{
    const char *script = lua_touserdata(L, 1);
    const char *folder = lua_touserdata(L, 2);

    luaL_openlibs(L);
    luaL_requiref(L, "gyre", luaopen_gyre, 1);
    lua_pushstring(L, folder);
    lua_setglobal(L, "folder");
    if (luaL_loadstring(L, script) != LUA_OK)
        return lua_error(L);
    lua_call(L, 0, 0);
    return 0;
}

/* Run it with the n-th request failing; true when it went through. */
static bool run_once(const char *script, const char *folder, uint64_t n)
{
    counter c = {.fail_at = n};
    lua_State *L = lua_newstate(request, &c);
    bool good = false;

    if (L != NULL) {
        lua_pushcfunction(L, run_protected);
        lua_pushlightuserdata(L, (void *)(uintptr_t)script);
        lua_pushlightuserdata(L, (void *)(uintptr_t)folder);
        int status = lua_pcall(L, 2, 0, 0);
        good = status == LUA_OK;
        if (!good && c.requests < c.fail_at)
            print_error("%s\n", lua_tostring(L, -1));
        assert_true(good || c.requests >= c.fail_at);
        lua_close(L);
    }
    assert_int_equal(c.bytes, 0);
    return good;
}

/* Every n at first, then wider steps: a script makes thousands of requests. */
static void run_all(const char *script)
{
    char folder[] = "/tmp/gyre-lua-XXXXXX", command[64];
    uint64_t n = 1, runs = 0;

    assert_non_null(mkdtemp(folder));
    while (!run_once(script, folder, n)) {
        n += 1 + n / 100;
        assert_true(++runs < 5000);
    }
    assert_true(runs > 100);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

static void pure_parts(void **state)
{
    (void)state;
    run_all("local a = gyre.array('f32', { 1, 2, 3 })\n"
            "local v = a:view(2):copy():table()\n"
            "local t = gyre.json_decode(gyre.json({ a = v, b = { x = 'y' } },"
            " true))\n"
            "arg = { [0] = 's', '--n', '3' }\n"
            "local o = gyre.options { { 'n', type = 'integer' },"
            " { 'm', type = 'choice', choices = { 'a' }, default = 'a' } }\n"
            "local p = gyre.progress { label = 'x', total = o.n }\n"
            "p:update(1, 'note')\n"
            "for i, q in ipairs(gyre.plugins()) do gyre.plugin(q.name) end\n"
            "gyre.memory('x', 5)\n"
            "gyre.plan { tensors = { { 'w', shape = { 5000 } } } }\n");
}

static void stores(void **state)
{
    (void)state;
    run_all("local path = folder .. '/s'\n"
            "local store <close> = assert(gyre.open_or_create(path, {"
            " tensors = { { 'w', shape = { 40, 50 } }, { 'v', shape = { 9 },"
            " group = 2 } }, optimizer = { 'adamw', lr = 1e-3 },"
            " devices = 2, weights = { 1, 2 }, chunk_elements = 1024 }))\n"
            "local w = gyre.array('f32', 2000)\n"
            "store:bind('w', w) store:pull()\n"
            "local round <close> = store:begin { groups = { { lr = 1 },"
            " { lr = 2 } } }\n"
            "round:gradient('w', w) round:absent('v')\n"
            "round:update() round:wait('w') round:finish('blob')\n"
            "store:info() store:tensors() store:blob() store:digest()\n"
            "store:read('w', 'exp_avg', 3, 9)\n"
            "store:export(folder .. '/f', { progress = function() end })\n"
            "store:close()\n"
            "gyre.fsck(path)\n");
}

static void plans(void **state)
{
    (void)state;
    run_all("local plan <close> = assert(gyre.plan { ranks = 2, heads = 2,"
            " seq = 8, name = 'own', mask = { documents = { 3, 5 } },"
            " layout = 'documents', pass = 'forward',"
            " schedule = function(b, rank, pass)\n"
            " local rows, user = b:owned('Q', rank), { external = true }\n"
            " local q = b:slot('Q', rows, user)\n"
            " local kv = b:slot('KV', b:owned('KV', rank), user)\n"
            " local all = b:slot('KV', b:owned('KV', 1 - rank))\n"
            " local o = b:slot('O', b:rows('Q', { rank }), user)\n"
            " local sum = b:slot('O*', rows)\n"
            " b:begin('ring') b:put(kv, 1 - rank) b:get(all, 1 - rank)\n"
            " b:end_() b:att(q, kv, sum) b:att(q, all, sum)\n"
            " b:view(sum, { rows = rows, heads = { 0, 1 } }) b:problem()\n"
            " end })\n"
            "plan:bytes() plan:text() plan:show(1) plan:prove()\n"
            "local path = folder .. '/p'\n"
            "assert(plan:save(path, { binary = true }))\n"
            "assert(gyre.plan { file = path }):close()\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans),
        cmocka_unit_test(pure_parts),
        cmocka_unit_test(stores),
    };

    return cmocka_run_group_tests_name("lua memory", tests, NULL, NULL);
}
