/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGKILL, after every operation and at any moment: the next process opens the
 * store whole at the last commit or the one in progress, goes on, and ends with
 * the digest and the norms of a run that nobody killed.
 */
#include "config.h"

#include "fault/common.h"

#include "io/io.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct shared {
    volatile uint64_t rounds; /* finished by the child */
    volatile int status;      /* of what it tried */
    volatile uint64_t ready;
    char text[GYRE_ERROR_TEXT];
} shared;

typedef struct trial {
    fault_model model;
    fault_place place;
    fault_saved fresh;
    fault_history history;
    uint32_t commit_every;
    shared *shared;
    uint64_t killed, lost; /* children, rounds that went with them */
} trial;

typedef enum kind { PLAIN, CODED, SPILLED, EXACT, LATE } kind;

static trial *begin_as(kind how, size_t devices, bool disk,
                       uint32_t commit_every, bool early, uint64_t scale)
{
    trial *t = calloc(1, sizeof(*t));
    gyre_context *context = NULL;
    gyre_store_options options = fault_options("posix");
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;

    fault_model_make(&t->model, scale);
    t->model.coded = how == CODED;
    t->model.spilled = how >= SPILLED;
    t->model.compressed = how >= EXACT;
    t->model.late = how == LATE;
    fault_place_make(&t->place, devices, disk);
    fault_ok(gyre_context_create(NULL, &context, &error), &error);
    fault_ok(
        fault_create(context, &t->model, &t->place, &options, &store, &error),
        &error);
    gyre_store_close(store);
    fault_save(&t->place, &t->fresh);
    options.commit_every = t->commit_every = commit_every;
    fault_ok(fault_open(context, &t->place, &options, &store, &error), &error);
    fault_record(&t->model, store, early, &t->history);
    gyre_context_destroy(context);
    t->shared = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(t->shared != MAP_FAILED);
    return t;
}

static trial *begin(size_t devices, bool disk, uint32_t commit_every,
                    bool early, uint64_t scale)
{
    return begin_as(PLAIN, devices, disk, commit_every, early, scale);
}

static void end(trial *t)
{
    munmap(t->shared, sizeof(shared));
    fault_saved_free(&t->fresh);
    fault_place_remove(&t->place);
    fault_model_free(&t->model);
    free(t);
}

/* ---- the child -------------------------------------------------------- */

/* Open and run to the end; does not return. */
static void live(trial *t, const char *io)
{
    gyre_context *context = NULL;
    gyre_store_options options = fault_options(io);
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;
    gyre_status status = gyre_context_create(NULL, &context, &error);

    options.commit_every = t->commit_every;
    if (status == GYRE_OK)
        status = fault_open(context, &t->place, &options, &store, &error);
    t->shared->ready = 1;
    while (status == GYRE_OK && t->shared->rounds < FAULT_ROUNDS) {
        gyre_round_report report;

        status =
            fault_round(&t->model, store, t->history.early, &report, &error);
        if (status == GYRE_OK)
            t->shared->rounds++;
    }
    if (status == GYRE_OK)
        gyre_store_close(store);
    t->shared->status = (int)status;
    memcpy(t->shared->text, error.text, sizeof(error.text));
    _exit(status == GYRE_OK ? 0 : 1);
}

static pid_t start(trial *t, const char *io)
{
    pid_t pid;

    t->shared->rounds = t->shared->ready = 0;
    t->shared->status = 0;
    fflush(stdout);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        live(t, io);
    return pid;
}

/* True when it was killed; it must not have failed. */
static bool was_killed(trial *t, pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return false;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("child: status %x: %s", status, t->shared->text);
    t->killed++;
    return true;
}

/* ---- the one who comes after ------------------------------------------ */

static void expect(trial *t, gyre_store *store, uint64_t round)
{
    gyre_error error = {GYRE_OK, ""};
    fault_picture now;
    const char *what;

    fault_ok(fault_look(store, &now, &error), &error);
    what =
        fault_differs(&now, &t->history.picture[round], t->commit_every == 1);
    if (what != NULL)
        fail_msg("%s differs at round %llu", what, (unsigned long long)round);
}

/* Whole at the last commit or the one in progress, and on to the end. */
static void take_over(trial *t, gyre_context *context, const char *io)
{
    gyre_store_options options = fault_options(io);
    gyre_store_info info = {.size = sizeof(info)};
    gyre_error error = {GYRE_OK, ""};
    uint64_t n = t->commit_every, done = t->shared->rounds, last = done / n * n;
    gyre_store *store;

    options.commit_every = t->commit_every;
    fault_ok(fault_open(context, &t->place, &options, &store, &error), &error);
    fault_ok(gyre_store_get_info(store, &info, &error), &error);
    if (info.round != last && info.round != last + n)
        fail_msg("at round %llu after %llu rounds",
                 (unsigned long long)info.round, (unsigned long long)done);
    t->lost += info.round < done ? done - info.round : 0;
    expect(t, store, info.round);
    for (uint64_t r = info.round + 1; r <= FAULT_ROUNDS; r++) {
        gyre_round_report report;

        fault_ok(
            fault_round(&t->model, store, t->history.early, &report, &error),
            &error);
        assert_memory_equal(&report.norm, &t->history.norm[r], sizeof(double));
    }
    expect(t, store, FAULT_ROUNDS);
    gyre_store_close(store);
}

/* ---- after every operation -------------------------------------------- */

static void every_operation(trial *t, const char *engine)
{
    gyre_context *context = NULL;
    char io[64];
    uint64_t n;

    assert_int_equal(gyre_context_create(NULL, &context, NULL), GYRE_OK);
    t->killed = 0;
    for (n = 1;; n += fault_stride(1)) {
        bool killed;

        snprintf(io, sizeof(io), "faulty:%s,kill=%llu", engine,
                 (unsigned long long)n);
        fault_restore(&t->fresh);
        killed = was_killed(t, start(t, io));
        take_over(t, context, "auto");
        if (!killed)
            break;
    }
    printf("# %s, %zu devices, commit every %u%s: killed after %llu of "
           "the operations of %d rounds\n",
           engine, t->place.count, t->commit_every,
           t->history.early ? ", early" : "", (unsigned long long)t->killed,
           FAULT_ROUNDS);
    assert_true(t->killed > 50 / fault_stride(1));
    gyre_context_destroy(context);
    end(t);
}

static void test_posix(void **state)
{
    (void)state;
    every_operation(begin(2, false, 1, false, 1), "posix");
}

static void test_uring(void **state)
{
    (void)state;
    every_operation(begin(2, false, 1, false, 1), "uring");
}

static void test_commit_every_2(void **state)
{
    (void)state;
    every_operation(begin(3, false, 2, false, 1), "auto");
}

static void test_coded(void **state)
{
    (void)state;
    every_operation(begin_as(CODED, 2, false, 1, false, 1), "auto");
}

/* Gradients on storage; a residual that is committed with the state. */
static void test_spilled(void **state)
{
    (void)state;
    every_operation(begin_as(SPILLED, 2, false, 1, false, 1), "auto");
}

static void test_residual(void **state)
{
    (void)state;
    every_operation(begin_as(EXACT, 2, false, 1, false, 1), "auto");
    every_operation(begin_as(LATE, 3, false, 2, false, 1), "auto");
    every_operation(begin_as(EXACT, 2, false, 1, true, 1), "posix");
}

static void test_early(void **state)
{
    (void)state;
    every_operation(begin(2, false, 1, true, 1), "auto");
}

/* ---- at any moment ---------------------------------------------------- */

static void sleep_ns(uint64_t ns)
{
    struct timespec time = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

    nanosleep(&time, NULL);
}

static uint64_t now_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void test_random_moments(void **state)
{
    trial *t = begin(2, true, 1, false, 20);
    uint64_t random = 11, begun, whole;
    gyre_context *context = NULL;
    unsigned most = fault_long() ? 30 : 8;

    (void)state;
    assert_int_equal(gyre_context_create(NULL, &context, NULL), GYRE_OK);
    fault_restore(&t->fresh);
    begun = now_ns();
    assert_false(was_killed(t, start(t, "auto")));
    whole = now_ns() - begun;
    for (unsigned n = 0; n < most; n++) {
        pid_t pid;

        fault_restore(&t->fresh);
        pid = start(t, "auto");
        sleep_ns(fault_random(&random) % whole);
        kill(pid, SIGKILL);
        (void)was_killed(t, pid);
        take_over(t, context, "auto");
    }
    printf("# killed at %llu of %u random moments\n",
           (unsigned long long)t->killed, most);
    gyre_context_destroy(context);
    end(t);
}

/* ---- while it is made ------------------------------------------------- */

static void make(trial *t, const char *io)
{
    gyre_context *context = NULL;
    gyre_store_options options = fault_options(io);
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store;
    gyre_status status = gyre_context_create(NULL, &context, &error);

    if (status == GYRE_OK)
        status = fault_create(context, &t->model, &t->place, &options, &store,
                              &error);
    _exit(status == GYRE_OK ? 0 : 1);
}

/* Nothing of the one that was killed stays. */
static void test_create(void **state)
{
    trial *t = begin(2, false, 1, false, 1);
    gyre_context *context = NULL;
    bool killed = true;
    char io[64];

    (void)state;
    assert_int_equal(gyre_context_create(NULL, &context, NULL), GYRE_OK);
    for (unsigned n = 1; killed; n++) {
        gyre_store_options options = fault_options("auto");
        gyre_error error = {GYRE_OK, ""};
        gyre_store *store;
        pid_t pid;

        fault_place_clear(&t->place);
        snprintf(io, sizeof(io), "faulty:%s,kill=%u", n % 2 ? "posix" : "auto",
                 n);
        fflush(stdout);
        pid = fork();
        if (pid == 0)
            make(t, io);
        killed = was_killed(t, pid);
        if (killed)
            fault_ok(fault_create(context, &t->model, &t->place, &options,
                                  &store, &error),
                     &error);
        else
            fault_ok(fault_open(context, &t->place, &options, &store, &error),
                     &error);
        expect(t, store, 0);
        gyre_store_close(store);
        for (size_t d = 0; d < t->place.count; d++)
            assert_int_equal(fault_entries(t->place.device[d]), 1);
        assert_int_equal(fault_entries(t->place.store), 2);
    }
    printf("# create: killed after each of %llu operations\n",
           (unsigned long long)t->killed);
    gyre_context_destroy(context);
    end(t);
}

/* ---- a second process ------------------------------------------------- */

static void test_second_process(void **state)
{
    trial *t = begin(1, false, 1, false, 1);
    gyre_context *context = NULL;
    gyre_store_options options = fault_options("auto");
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store, *other = NULL;
    char pid[32];
    int status;

    (void)state;
    snprintf(pid, sizeof(pid), "process %ld", (long)getpid());
    assert_int_equal(gyre_context_create(NULL, &context, NULL), GYRE_OK);
    fault_ok(fault_open(context, &t->place, &options, &store, &error), &error);
    assert_int_equal(waitpid(start(t, "auto"), &status, 0) > 0, 1);
    assert_int_equal(t->shared->status, GYRE_BUSY);
    if (strstr(t->shared->text, pid) == NULL)
        fail_msg("\"%s\" is not in: %s", pid, t->shared->text);
    assert_int_equal(fault_open(context, &t->place, &options, &other, &error),
                     GYRE_BUSY);
    unit_assert_text(&error, "this process");
    assert_null(other);
    expect(t, store, FAULT_ROUNDS);
    gyre_store_close(store);
    assert_false(was_killed(t, start(t, "auto")));
    gyre_context_destroy(context);
    end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_posix),          cmocka_unit_test(test_uring),
        cmocka_unit_test(test_commit_every_2), cmocka_unit_test(test_early),
        cmocka_unit_test(test_random_moments), cmocka_unit_test(test_create),
        cmocka_unit_test(test_second_process), cmocka_unit_test(test_coded),
        cmocka_unit_test(test_spilled),        cmocka_unit_test(test_residual),
    };

    return cmocka_run_group_tests_name("kill", tests, NULL, NULL);
}
