/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every request for memory fails once, in every part of a store's life: the
 * answer is NO_MEMORY, nothing leaks, and the store stands where it stood.
 */
#include "config.h"

#include "fault/common.h"

#include <stdio.h>

typedef struct trial {
    fault_model model;
    fault_place place;
    fault_saved fresh;
    fault_history history;
    unit_memory memory;
    gyre_context *context;
    const char *io;
    bool early;
} trial;

static const unsigned everything =
    FAULT_CODED | FAULT_FED | FAULT_SPILLED | FAULT_LATE;

static gyre_store *must_open(trial *t)
{
    gyre_store_options options = fault_options(t->io);
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;

    fault_ok(fault_open(t->context, &t->place, &options, &store, &error),
             &error);
    return store;
}

static gyre_store *must_create(trial *t)
{
    gyre_store_options options = fault_options(t->io);
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;

    fault_ok(fault_create(t->context, &t->model, &t->place, &options, &store,
                          &error),
             &error);
    return store;
}

static trial *begin(const char *io, bool early, unsigned with)
{
    trial *t = calloc(1, sizeof(*t));

    fault_model_make(&t->model, 1);
    t->model.with = with;
    fault_place_make(&t->place, 2, false);
    t->context = unit_context(&t->memory);
    t->io = io;
    t->early = early;
    gyre_store_close(must_create(t));
    fault_save(&t->place, &t->fresh);
    fault_record(&t->model, must_open(t), early, &t->history);
    return t;
}

static void end(trial *t)
{
    gyre_context_destroy(t->context);
    unit_memory_check(&t->memory);
    fault_saved_free(&t->fresh);
    fault_place_remove(&t->place);
    fault_model_free(&t->model);
    free(t);
}

static void expect(const trial *t, gyre_store *store, uint64_t round)
{
    gyre_error error = {GYRE_OK, ""};
    fault_picture now;
    const char *what;

    fault_ok(fault_look(store, &now, &error), &error);
    what = fault_differs(&now, &t->history.picture[round], true);
    if (what != NULL)
        fail_msg("%s differs at round %llu", what, (unsigned long long)round);
}

static void expect_no_memory(gyre_status status, const gyre_error *error,
                             const char *what, uint64_t n)
{
    if (status != GYRE_NO_MEMORY || error->status != GYRE_NO_MEMORY ||
        error->text[0] == '\0')
        fail_msg("%s, request %llu: %s: %s", what, (unsigned long long)n,
                 gyre_status_name(status), error->text);
}

/* ---- create, open ----------------------------------------------------- */

static void create_all(const char *io, unsigned with)
{
    trial *t = begin(io, false, with);
    gyre_store_options options = fault_options(io);
    gyre_store *store = NULL;
    gyre_status status = GYRE_NO_MEMORY;
    uint64_t n;

    for (n = 1; status != GYRE_OK; n++) {
        gyre_error error = {GYRE_OK, ""};
        uint64_t before = t->memory.bytes;
        int files = fault_entries("/proc/self/fd");

        fault_place_clear(&t->place);
        t->memory.fail_at = t->memory.requests + n;
        status = fault_create(t->context, &t->model, &t->place, &options,
                              &store, &error);
        t->memory.fail_at = 0;
        if (status == GYRE_OK)
            break;
        expect_no_memory(status, &error, "create", n);
        assert_int_equal(t->memory.bytes, before);
        assert_int_equal(fault_entries("/proc/self/fd"), files);
        assert_int_equal(fault_entries(t->place.store), -1);
        for (size_t d = 0; d < t->place.count; d++)
            assert_int_equal(fault_entries(t->place.device[d]), 0);
    }
    expect(t, store, 0);
    gyre_store_close(store);
    printf("# create, %s: %llu requests\n", io, (unsigned long long)n - 1);
    end(t);
}

static void test_create(void **state)
{
    (void)state;
    create_all("posix", 0);
    create_all("auto", 0);
    create_all("auto", everything);
}

static void open_all(const char *io, bool read_only, unsigned with)
{
    trial *t = begin(io, false, with);
    gyre_store_options options = fault_options(io);
    gyre_store *store = NULL;
    gyre_status status = GYRE_NO_MEMORY;
    uint64_t n;

    options.read_only = read_only;
    for (n = 1; status != GYRE_OK; n++) {
        gyre_error error = {GYRE_OK, ""};
        uint64_t before = t->memory.bytes;
        int files = fault_entries("/proc/self/fd");

        t->memory.fail_at = t->memory.requests + n;
        status = fault_open(t->context, &t->place, &options, &store, &error);
        t->memory.fail_at = 0;
        if (status == GYRE_OK)
            break;
        expect_no_memory(status, &error, "open", n);
        assert_int_equal(t->memory.bytes, before);
        assert_int_equal(fault_entries("/proc/self/fd"), files);
    }
    expect(t, store, FAULT_ROUNDS);
    gyre_store_close(store);
    printf("# open, %s: %llu requests\n", io, (unsigned long long)n - 1);
    end(t);
}

static void test_open(void **state)
{
    (void)state;
    open_all("posix", false, 0);
    open_all("auto", false, 0);
    open_all("auto", true, 0);
    open_all("auto", false, everything);
}

/* ---- rounds ----------------------------------------------------------- */

static uint64_t round_of(const gyre_store *store)
{
    gyre_store_info info = {.size = sizeof(info)};

    assert_int_equal(gyre_store_get_info(store, &info, NULL), GYRE_OK);
    return info.round;
}

/* Everything that a life does, by number; the same again after a failure. */
static gyre_status act(trial *t, gyre_store *store, unsigned step,
                       gyre_error *error)
{
    gyre_round_report report;
    fault_picture now;
    char blob[FAULT_BLOB];

    if (step == 0)
        return fault_bind(&t->model, store, error);
    if (step <= 4)
        return fault_round(&t->model, store, t->early, &report, error);
    if (step == 5)
        return gyre_store_commit(store, blob, fault_blob(round_of(store), blob),
                                 error);
    return fault_look(store, &now, error);
}

static bool live_with(trial *t, uint64_t n)
{
    gyre_store *store;
    bool failed = false;

    fault_restore(&t->fresh);
    store = must_open(t);
    t->memory.fail_at = t->memory.requests + n;
    for (unsigned step = 0; step <= 6; step++) {
        gyre_error error = {GYRE_OK, ""};
        uint64_t before = round_of(store);
        gyre_status status;

        for (size_t i = 0; i < FAULT_TENSORS && step > 0; i++)
            memcpy(t->model.before[i], t->model.bound[i],
                   fault_bound_bytes(&t->model, i));
        status = act(t, store, step, &error);
        if (status == GYRE_OK)
            continue;
        assert_false(failed);
        failed = true;
        expect_no_memory(status, &error, "life", n);
        expect(t, store, before);
        for (size_t i = 0; i < FAULT_TENSORS && step > 0; i++)
            assert_true(i == 3 || memcmp(t->model.before[i], t->model.bound[i],
                                         fault_bound_bytes(&t->model, i)) == 0);
        fault_ok(act(t, store, step, &error), &error);
    }
    t->memory.fail_at = 0;
    expect(t, store, 4);
    gyre_store_close(store);
    store = must_open(t);
    expect(t, store, 4);
    gyre_store_close(store);
    return failed;
}

static void live_all(const char *io, bool early, unsigned with)
{
    trial *t = begin(io, early, with);
    uint64_t n = 1;

    while (live_with(t, n))
        n++;
    printf("# life, %s%s: %llu requests\n", io, early ? ", early" : "",
           (unsigned long long)n - 1);
    assert_true(n > 10);
    end(t);
}

static void test_rounds(void **state)
{
    (void)state;
    live_all("posix", false, 0);
    live_all("auto", false, 0);
    live_all("auto", true, 0);
    live_all("posix", false, FAULT_FED | FAULT_CODED);
    live_all("auto", false, everything);
    live_all("auto", true, everything);
    live_all("auto", false, FAULT_SPILLED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_rounds),
    };

    return cmocka_run_group_tests_name("allocations", tests, NULL, NULL);
}
