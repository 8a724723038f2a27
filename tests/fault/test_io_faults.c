/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every I/O operation fails once, in every way: the text says where, the store
 * stands at the last commit, bound buffers are restored, and the run goes on
 * to the same end.  Faults that a queue has to mend (a short transfer, EINTR,
 * delays, completions in another order) are not seen at all.
 *
 * The faulty engine counts per queue, that is per device: with three devices
 * the n-th operation of each fails.
 */
#include "config.h"

#include "fault/common.h"

#include "io/io.h"
#include "store/store.h"

#include <stdio.h>
#include <unistd.h>

typedef struct trial {
    fault_model model;
    fault_place place;
    fault_saved fresh;         /* files as created */
    fault_history history;
    uint64_t data_at;
    uint32_t commit_every;
    uint64_t failures;         /* seen, to know that faults were made */
    bool mended;               /* nothing may be seen */
    bool persistent;
} trial;

static trial *begin(size_t devices, bool disk, uint32_t commit_every)
{
    trial *t = calloc(1, sizeof(*t));
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_store_options options = fault_options("posix");
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;

    fault_model_make(&t->model, 1);
    fault_place_make(&t->place, devices, disk);
    fault_ok(fault_create(context, &t->model, &t->place, &options, &store,
                          &error), &error);
    t->data_at = store->layout.data_at;
    gyre_store_close(store);
    fault_save(&t->place, &t->fresh);
    options.commit_every = t->commit_every = commit_every;
    fault_ok(fault_open(context, &t->place, &options, &store, &error), &error);
    fault_record(&t->model, store, false, &t->history);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    return t;
}

static void end(trial *t)
{
    fault_saved_free(&t->fresh);
    fault_place_remove(&t->place);
    fault_model_free(&t->model);
    free(t);
}

/* ---- what an error must say ------------------------------------------- */

static void check_text(const trial *t, const gyre_error *error)
{
    const char *text = error->text, *at = strstr(text, "at offset ");

    if (strstr(text, t->place.root) == NULL ||
        (strstr(text, ".d0") == NULL && strstr(text, "superblock") == NULL))
        fail_msg("no device file in: %s", text);
    if (strstr(text, "Input/output error") == NULL &&
        strstr(text, "No space left") == NULL &&
        strstr(text, "the file ends after") == NULL)
        fail_msg("no reason in: %s", text);
    if (strstr(text, "flush of") != NULL)
        return;
    if (at == NULL)
        fail_msg("no offset in: %s", text);
    if (strtoull(at + 10, NULL, 10) >= t->data_at &&
        (strstr(text, "device ") == NULL || strstr(text, "chunk ") == NULL ||
         strstr(text, "weight [") == NULL) && strstr(text, "gain [") == NULL)
        fail_msg("no tensor range in: %s", text);
}

static void check_status(const gyre_error *error)
{
    if (error->status != GYRE_IO && error->status != GYRE_NO_SPACE &&
        error->status != GYRE_ROLLED_BACK)
        fail_msg("status %s: %s", gyre_status_name(error->status),
                 error->text);
}

/* ---- one run with a fault --------------------------------------------- */

static void keep_bound(trial *t)
{
    for (size_t i = 0; i < FAULT_TENSORS; i++)
        memcpy(t->model.before[i], t->model.bound[i],
               fault_bound_bytes(&t->model, i));
}

static void expect_bound(const trial *t, const gyre_error *error)
{
    for (size_t i = 0; i < FAULT_TENSORS; i++)
        if (i != 3 && memcmp(t->model.before[i], t->model.bound[i],
                             fault_bound_bytes(&t->model, i)) != 0)
            fail_msg("bound buffer %zu was not restored after: %s", i,
                     error->text);
}

static void expect_picture(const trial *t, gyre_store *store, uint64_t round,
                           const char *when)
{
    gyre_error error = {GYRE_OK, ""};
    fault_picture now;
    const char *what;

    fault_ok(fault_look(store, &now, &error), &error);
    what = fault_differs(&now, &t->history.picture[round],
                         t->commit_every == 1);
    if (what != NULL)
        fail_msg("%s: %s differs from round %llu (is %llu)", when, what,
                 (unsigned long long)round, (unsigned long long)now.round);
}

/* The round failed: the store is at the last commit and says so. */
static void after_failure(trial *t, gyre_store *store, uint64_t before,
                          const gyre_error *error)
{
    uint64_t commit = before / t->commit_every * t->commit_every;

    check_text(t, error);
    check_status(error);
    t->failures++;
    if (before != commit && error->status != GYRE_ROLLED_BACK)
        fail_msg("rolled back from %llu to %llu and said %s: %s",
                 (unsigned long long)before, (unsigned long long)commit,
                 gyre_status_name(error->status), error->text);
    if (before == commit && error->status == GYRE_ROLLED_BACK)
        fail_msg("nothing was rolled back: %s", error->text);
    expect_picture(t, store, commit, error->text);
    expect_bound(t, error);
}

static uint64_t round_of(const gyre_store *store)
{
    gyre_store_info info = {.size = sizeof(info)};

    assert_int_equal(gyre_store_get_info(store, &info, NULL), GYRE_OK);
    return info.round;
}

/* Up to the last round, through failures; returns the failed ones. */
static unsigned run_rounds(trial *t, gyre_store *store)
{
    unsigned failed = 0;

    while (round_of(store) < FAULT_ROUNDS) {
        gyre_error error = {GYRE_OK, ""};
        uint64_t before = round_of(store);
        gyre_round_report report;
        gyre_status status;

        if (before % t->commit_every == 0)
            keep_bound(t);
        status = fault_round(&t->model, store, false, &report, &error);
        if (status == GYRE_OK) {
            assert_memory_equal(&report.norm, &t->history.norm[before + 1],
                                sizeof(double));
            continue;
        }
        if (++failed > 1)
            fail_msg("a second failure: %s", error.text);
        after_failure(t, store, before, &error);
    }
    return failed;
}

static void run_clean(trial *t, gyre_context *context, uint64_t at)
{
    gyre_store_options options = fault_options("posix");
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;

    fault_ok(fault_open(context, &t->place, &options, &store, &error), &error);
    expect_picture(t, store, at, "reopened");
    gyre_store_close(store);
}

/* Open with a faulty engine, bind, run, close, reopen.  Returns the number of
 * operations. */
static uint64_t run_once(trial *t, const char *io)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_store_options options = fault_options(io);
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;
    gyre_status status;
    unsigned failed = 0;
    uint64_t operations;

    fault_restore(&t->fresh);
    options.commit_every = t->commit_every;
    status = fault_open(context, &t->place, &options, &store, &error);
    if (status == GYRE_OK) {
        status = fault_bind(&t->model, store, &error);
        if (status != GYRE_OK) {
            check_text(t, &error);
            failed++;
            fault_ok(fault_bind(&t->model, store, &error), &error);
        }
        failed += run_rounds(t, store);
        expect_picture(t, store, FAULT_ROUNDS, io);
        gyre_store_close(store);
        run_clean(t, context, FAULT_ROUNDS);
    } else {
        check_text(t, &error);
        check_status(&error);
        run_clean(t, context, 0);
        failed++;
    }
    t->failures += failed;
    assert_false(t->mended && failed > 0);
    operations = gyre_io_submitted(context);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    return operations;
}

/* ---- every operation, every fault ------------------------------------- */

static void every_fault(size_t devices, const char *engine, bool disk,
                        uint32_t commit_every, unsigned stride)
{
    static const struct {
        const char *text, *rest;
        bool mended;
    } faults[] = {{"fail", "/EIO", false}, {"fail", "/ENOSPC", false},
                  {"zero", "", false}, {"short", "", true},
                  {"eintr", "", true}};
    trial *t = begin(devices, disk, commit_every);
    char io[64];
    uint64_t most, runs = 0;

    snprintf(io, sizeof(io), "faulty:%s", engine);
    t->mended = true;
    most = run_once(t, io) / devices + (devices > 1 ? 8 : 0);
    for (size_t f = 0; f < sizeof(faults) / sizeof(faults[0]); f++)
        for (uint64_t n = 1 + f % stride; n <= most; n += stride, runs++) {
            snprintf(io, sizeof(io), "faulty:%s,%s=%llu%s", engine,
                     faults[f].text, (unsigned long long)n, faults[f].rest);
            t->mended = faults[f].mended;
            (void)run_once(t, io);
        }
    printf("# %s, %zu device%s%s, commit every %u: %llu runs, %llu "
           "operations, %llu errors\n", engine, devices,
           devices == 1 ? "" : "s", disk ? ", on disk" : "", commit_every,
           (unsigned long long)runs, (unsigned long long)most,
           (unsigned long long)t->failures);
    assert_true(t->failures > 0);
    end(t);
}

static unsigned stride(unsigned usual)
{
    return fault_long() ? 1 : usual;
}

static void test_posix_1(void **state)
{
    (void)state;
    every_fault(1, "posix", false, 1, 1);
    every_fault(1, "posix", false, 3, 1);
}

static void test_posix_3(void **state)
{
    (void)state;
    every_fault(3, "posix", false, 1, 1);
    every_fault(3, "posix", false, 3, 1);
}

static void test_uring_1(void **state)
{
    (void)state;
    every_fault(1, "uring", false, 1, 1);
    every_fault(1, "uring", false, 3, stride(2));
}

static void test_uring_3(void **state)
{
    (void)state;
    every_fault(3, "uring", false, 1, stride(2));
    every_fault(3, "uring", false, 3, 1);
}

/* Direct I/O: shorts stay aligned. */
static void test_disk(void **state)
{
    (void)state;
    every_fault(2, "auto", true, 1, stride(7));
}

/* ---- later or in another order ---------------------------------------- */

static void test_delay_and_reorder(void **state)
{
    trial *t = begin(3, false, 1);
    char io[64];

    (void)state;
    t->mended = true;
    for (unsigned seed = 1; seed <= (fault_long() ? 200 : 10); seed++) {
        snprintf(io, sizeof(io), "faulty:%s,delay=%u,reorder=%u",
                 seed % 2 ? "auto" : "posix", seed % 3 * 150, seed);
        (void)run_once(t, io);
    }
    end(t);
}

/* ---- faults that stay ------------------------------------------------- */

/* From the n-th operation on nothing works: one clean error, then either the
 * store knows where it stands or says that it must be opened again. */
static void persistent(trial *t, const char *io)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_store_options options = fault_options(io);
    gyre_error error = {GYRE_OK, ""};
    gyre_round_report report;
    gyre_store *store;
    fault_picture now;
    uint64_t done = 0;
    bool unknown = false;
    gyre_status status;

    fault_restore(&t->fresh);
    status = fault_open(context, &t->place, &options, &store, &error);
    if (status == GYRE_OK) {
        while (status == GYRE_OK && round_of(store) < FAULT_ROUNDS) {
            done = round_of(store);
            status = fault_round(&t->model, store, false, &report, &error);
        }
        if (status != GYRE_OK)
            unknown = strstr(error.text, "not known which commit") != NULL;
        else
            done = FAULT_ROUNDS;
        gyre_store_close(store);
    }
    if (status != GYRE_OK) {
        check_text(t, &error);
        check_status(&error);
        t->failures++;
    }
    options = fault_options("posix");
    fault_ok(fault_open(context, &t->place, &options, &store, &error), &error);
    fault_ok(fault_look(store, &now, &error), &error);
    if (now.round != done && !(unknown && now.round == done + 1))
        fail_msg("%s: at round %llu after %llu rounds", io,
                 (unsigned long long)now.round, (unsigned long long)done);
    expect_picture(t, store, now.round, "reopened");
    gyre_store_close(store);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_persistent(void **state)
{
    static const char *const faults[] = {
        "faulty:posix,every=1,fail=", "faulty:posix,every=1,zero=",
        "faulty:uring,every=1,fail=", "faulty:posix,every=2,fail=",
        "faulty:posix,every=3,fail="};

    (void)state;
    for (size_t devices = 1; devices <= 3; devices += 2) {
        trial *t = begin(devices, false, 1);
        char io[64];

        for (size_t f = 0; f < sizeof(faults) / sizeof(faults[0]); f++)
            for (unsigned n = 1; n <= 120 / devices; n++) {
                snprintf(io, sizeof(io), "%s%u", faults[f], n);
                persistent(t, io);
            }
        assert_true(t->failures > 0);
        end(t);
    }
}

/* ---- create ----------------------------------------------------------- */

static void create_once(trial *t, const char *io, bool mended, uint64_t *most)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_store_options options = fault_options(io);
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store = NULL;
    gyre_status status;

    fault_place_clear(&t->place);
    status = fault_create(context, &t->model, &t->place, &options, &store,
                          &error);
    if (status != GYRE_OK) {
        assert_false(mended);
        check_text(t, &error);
        check_status(&error);
        assert_int_equal(fault_entries(t->place.store), -1);
        for (size_t d = 0; d < t->place.count; d++)
            assert_int_equal(fault_entries(t->place.device[d]), 0);
        t->failures++;
        options = fault_options("posix");
        fault_ok(fault_create(context, &t->model, &t->place, &options, &store,
                              &error), &error);
    }
    *most = gyre_io_submitted(context);
    expect_picture(t, store, 0, io);
    gyre_store_close(store);
    run_clean(t, context, 0);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_create(void **state)
{
    static const char *const faults[] = {"fail", "zero", "short", "eintr"};

    (void)state;
    for (size_t devices = 1; devices <= 3; devices += 2) {
        trial *t = begin(devices, false, 1);
        char io[64];
        uint64_t most, ignored;

        create_once(t, "faulty:posix", true, &most);
        for (size_t f = 0; f < sizeof(faults) / sizeof(faults[0]); f++)
            for (uint64_t n = 1; n <= most; n++) {
                snprintf(io, sizeof(io), "faulty:%s,%s=%llu",
                         n % 2 ? "posix" : "auto", faults[f],
                         (unsigned long long)n);
                create_once(t, io, f > 1, &ignored);
            }
        printf("# create, %zu devices: %llu operations\n", devices,
               (unsigned long long)most);
        assert_true(t->failures > 0);
        end(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_posix_1),
        cmocka_unit_test(test_posix_3),
        cmocka_unit_test(test_uring_1),
        cmocka_unit_test(test_uring_3),
        cmocka_unit_test(test_disk),
        cmocka_unit_test(test_delay_and_reorder),
        cmocka_unit_test(test_persistent),
    };

    return cmocka_run_group_tests_name("io faults", tests, NULL, NULL);
}
