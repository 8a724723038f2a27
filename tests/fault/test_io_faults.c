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
    bool asked;                /* commits by gyre_store_commit alone */
    bool early;
} trial;

static trial *begin(size_t devices, bool disk, uint32_t commit_every,
                    bool early)
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
    fault_record(&t->model, store, early, &t->history);
    t->early = early;
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

static void expect_picture(trial *t, gyre_store *store, uint64_t round,
                           const char *when)
{
    gyre_error error = {GYRE_OK, ""};
    fault_picture now;
    const char *what;

    /* A fault may hit this, one for each device. */
    for (size_t d = 0; fault_look(store, &now, &error) != GYRE_OK; d++) {
        if (d == t->place.count)
            fail_msg("%s: %s", when, error.text);
        check_text(t, &error);
        t->failures++;
    }
    what = fault_differs(&now, &t->history.picture[round],
                         t->commit_every == 1);
    if (what != NULL)
        fail_msg("%s: %s differs from round %llu (is %llu)", when, what,
                 (unsigned long long)round, (unsigned long long)now.round);
}

static uint64_t commit_of(const trial *t, uint64_t round)
{
    return round / t->commit_every * t->commit_every;
}

/* The round failed: the store is at the last commit and says so. */
static void after_failure(trial *t, gyre_store *store, uint64_t before,
                          const gyre_error *error)
{
    uint64_t commit = commit_of(t, before);

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

/* The round, and when it is time and nobody else does it, the commit. */
static gyre_status round_and_commit(trial *t, gyre_store *store,
                                    gyre_round_report *report,
                                    gyre_error *error)
{
    char blob[256];
    gyre_status status = fault_round(&t->model, store, t->early, report,
                                     error);

    if (status == GYRE_OK && t->asked &&
        round_of(store) == commit_of(t, round_of(store)))
        status = gyre_store_commit(store, blob,
                                   fault_blob(round_of(store), blob), error);
    return status;
}

/* One round; false when the store has to be opened again, since what failed on
 * one device could not be undone on another. */
static bool run_round(trial *t, gyre_store *store)
{
    gyre_error error = {GYRE_OK, ""};
    uint64_t before = round_of(store);
    gyre_round_report report;

    if (before == commit_of(t, before))
        keep_bound(t);
    if (round_and_commit(t, store, &report, &error) == GYRE_OK) {
        assert_memory_equal(&report.norm, &t->history.norm[before + 1],
                            sizeof(double));
        return true;
    }
    check_text(t, &error);
    check_status(&error);
    t->failures++;
    if (t->place.count > 1 &&
        (strstr(error.text, "not known which commit") != NULL ||
         strstr(error.text, "could not be restored") != NULL))
        return false;
    after_failure(t, store, before, &error);
    return true;
}

static void open_clean(trial *t, gyre_context *context, gyre_store **store)
{
    gyre_store_options options = fault_options("posix");
    gyre_error error = {GYRE_OK, ""};

    options.commit_every = t->commit_every;
    fault_ok(fault_open(context, &t->place, &options, store, &error), &error);
}

static void run_clean(trial *t, gyre_context *context, uint64_t at)
{
    gyre_store *store;

    open_clean(t, context, &store);
    expect_picture(t, store, at, "reopened");
    gyre_store_close(store);
}

/* Bind and run to the end, through failures; opens again where it must. */
static void run_to_end(trial *t, gyre_context *context, gyre_store *store)
{
    uint64_t failures = t->failures;
    gyre_error error = {GYRE_OK, ""};

    while (fault_bind(&t->model, store, &error) != GYRE_OK) {
        check_text(t, &error);
        assert_true(++t->failures <= failures + t->place.count);
    }
    while (round_of(store) < FAULT_ROUNDS) {
        uint64_t before = round_of(store);

        if (!run_round(t, store)) {
            gyre_store_close(store);
            open_clean(t, context, &store);
            if (round_of(store) != before + 1)
                expect_picture(t, store, commit_of(t, before), "reopened");
            fault_ok(fault_bind(&t->model, store, &error), &error);
        }
        assert_true(t->failures <= failures + 2 * t->place.count);
    }
    assert_false(t->mended && t->failures > failures);
    expect_picture(t, store, FAULT_ROUNDS, "at the end");
    gyre_store_close(store);
    run_clean(t, context, FAULT_ROUNDS);
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
    uint64_t operations;

    fault_restore(&t->fresh);
    options.commit_every = t->asked ? 1000 : t->commit_every;
    if (fault_open(context, &t->place, &options, &store, &error) == GYRE_OK) {
        run_to_end(t, context, store);
    } else {
        assert_false(t->mended);
        check_text(t, &error);
        check_status(&error);
        t->failures++;
        run_clean(t, context, 0);
    }
    operations = gyre_io_submitted(context);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    return operations;
}

/* ---- every operation, every fault ------------------------------------- */

typedef enum kind { PLAIN, ASKED, EARLY } kind;

static void every_fault(size_t devices, const char *engine, bool disk,
                        uint32_t commit_every, kind how, unsigned stride)
{
    static const struct {
        const char *text, *rest;
        bool mended;
    } faults[] = {{"fail", "/EIO", false}, {"fail", "/ENOSPC", false},
                  {"zero", "", false}, {"short", "", true},
                  {"eintr", "", true}};
    trial *t = begin(devices, disk, commit_every, how == EARLY);
    char io[64];
    uint64_t most, runs = 0;

    t->asked = how == ASKED;
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
    printf("# %s, %zu device%s%s, commit every %u%s: %llu runs, %llu "
           "operations, %llu errors\n", engine, devices,
           devices == 1 ? "" : "s", disk ? ", on disk" : "", commit_every,
           how == ASKED ? " when asked" : how == EARLY ? ", early" : "",
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
    every_fault(1, "posix", false, 1, PLAIN, 1);
    every_fault(1, "posix", false, 3, PLAIN, 1);
}

static void test_posix_3(void **state)
{
    (void)state;
    every_fault(3, "posix", false, 1, PLAIN, 1);
    every_fault(3, "posix", false, 3, PLAIN, 1);
}

static void test_uring_1(void **state)
{
    (void)state;
    every_fault(1, "uring", false, 1, PLAIN, 1);
    every_fault(1, "uring", false, 3, PLAIN, stride(2));
}

static void test_uring_3(void **state)
{
    (void)state;
    every_fault(3, "uring", false, 1, PLAIN, stride(2));
    every_fault(3, "uring", false, 3, PLAIN, 1);
}

/* Chunks are written before all gradients are there. */
static void test_early(void **state)
{
    (void)state;
    every_fault(1, "posix", false, 1, EARLY, 1);
    every_fault(1, "uring", false, 2, EARLY, stride(2));
    every_fault(3, "posix", false, 2, EARLY, stride(2));
}

/* gyre_store_commit, for rounds that do not commit. */
static void test_asked(void **state)
{
    (void)state;
    every_fault(1, "posix", false, 3, ASKED, 1);
    every_fault(3, "uring", false, 2, ASKED, stride(2));
}

/* Direct I/O: shorts stay aligned. */
static void test_disk(void **state)
{
    (void)state;
    every_fault(2, "auto", true, 1, PLAIN, stride(7));
}

/* ---- later or in another order ---------------------------------------- */

static void test_delay_and_reorder(void **state)
{
    trial *t = begin(3, false, 1, false);
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
        trial *t = begin(devices, false, 1, false);
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
        trial *t = begin(devices, false, 1, false);
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
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_asked),
        cmocka_unit_test(test_disk),
        cmocka_unit_test(test_delay_and_reorder),
        cmocka_unit_test(test_persistent),
    };

    return cmocka_run_group_tests_name("io faults", tests, NULL, NULL);
}
