/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine may lack or bring along: room on the disk, the right to
 * lock memory, floating-point modes as the library needs them.
 */
#include "config.h"

#include "fault/common.h"

#include <float.h>
#include <grp.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

/* ---- no room ---------------------------------------------------------- */

/* A file system of `kib` over the folder, gone with this process. */
static bool mount_small(const char *folder, unsigned kib)
{
    char options[32];

    snprintf(options, sizeof(options), "size=%uk", kib);
    return geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", folder, "tmpfs", 0, options) == 0;
}

static void refuse(gyre_context *context, const fault_model *model,
                   const fault_place *place, uint64_t needed)
{
    gyre_store_options options = fault_options("auto");
    gyre_error error = {GYRE_OK, ""};
    gyre_store *store = NULL;
    struct statvfs fs;
    const char *free_text;
    uint64_t room, said;
    char text[64];

    assert_int_equal(statvfs(place->root, &fs), 0);
    assert_int_equal(
        fault_create(context, model, place, &options, &store, &error),
        GYRE_NO_SPACE);
    assert_null(store);
    snprintf(text, sizeof(text), "%llu bytes", (unsigned long long)needed);
    unit_assert_text(&error, text);
    unit_assert_text(&error, " are free");
    /* But for the lock and the journal, a page each. */
    free_text = strstr(error.text, "bytes there and ");
    assert_non_null(free_text);
    said = strtoull(free_text + strlen("bytes there and "), NULL, 10);
    room = (uint64_t)fs.f_bavail * fs.f_frsize;
    assert_true(said <= room && said + 65536 > room);
    for (size_t d = 0; d < place->count; d++)
        assert_int_equal(fault_entries(place->device[d]), 0);
}

/* Each device alone would fit. */
static void test_no_space(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_store_options options = fault_options("auto");
    gyre_error error = {GYRE_OK, ""};
    fault_model model;
    fault_place place;
    gyre_store *store;
    uint64_t needed = 0, bytes;

    (void)state;
    fault_model_make(&model, 1);
    fault_place_make(&place, 2, false);
    fault_ok(fault_create(context, &model, &place, &options, &store, &error),
             &error);
    for (size_t d = 0; gyre_store_device(store, d, &bytes) != NULL; d++)
        needed += bytes;
    gyre_store_close(store);
    fault_place_clear(&place);
    if (!mount_small(place.root, (unsigned)(needed / 1024) - 8)) {
        fault_skip("a small file system needs root and a mount namespace");
        gyre_context_destroy(context);
        fault_place_remove(&place);
        fault_model_free(&model);
        return;
    }
    for (size_t d = 0; d < place.count; d++)
        assert_int_equal(mkdir(place.device[d], 0777), 0);
    refuse(context, &model, &place, needed);
    assert_int_equal(fault_entries(place.store), -1);
    /* The same in a folder that was there before. */
    assert_int_equal(mkdir(place.store, 0777), 0);
    refuse(context, &model, &place, needed);
    assert_int_equal(fault_entries(place.store), 0);
    assert_int_equal(umount(place.root), 0);
    fault_place_remove(&place);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    fault_model_free(&model);
}

/* ---- nobody ----------------------------------------------------------- */

typedef struct heard {
    bool plain_buffers;
} heard;

static void listen_log(void *user, gyre_log_level level, const char *text)
{
    (void)level;
    ((heard *)user)->plain_buffers |= strstr(text, "not registered") != NULL;
}

/* In a child: 0 good, else the line that failed. */
#define must(condition)      \
    do {                     \
        if (!(condition))    \
            return __LINE__; \
    } while (0)

static int live_as_nobody(const fault_model *model, const fault_place *place,
                          const fault_history *history)
{
    const struct rlimit limit = {65536, 65536};
    gyre_context_options context_options = {.size = sizeof(context_options)};
    gyre_store_options options = fault_options("auto");
    gyre_store_info info = {.size = sizeof(info)};
    gyre_context *context;
    gyre_error error = {GYRE_OK, ""};
    gyre_round_report report;
    fault_picture now;
    gyre_store *store;
    heard said = {false};

    must(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    must(geteuid() != 0 ||
         (setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0));
    context_options.log = listen_log;
    context_options.log_user = &said;
    must(gyre_context_create(&context_options, &context, &error) == GYRE_OK);
    options.buffers = 8;
    must(fault_create(context, model, place, &options, &store, &error) ==
         GYRE_OK);
    must(gyre_store_get_info(store, &info, &error) == GYRE_OK);
    must(said.plain_buffers || strcmp(info.io, "uring") != 0);
    must(strcmp(info.io, "uring+buffers") != 0);
    for (int r = 0; r < FAULT_ROUNDS; r++) {
        must(fault_round(model, store, false, &report, &error) == GYRE_OK);
        must(report.committed);
        if (r != 2)
            continue;
        gyre_store_close(store);
        must(fault_open(context, place, &options, &store, &error) == GYRE_OK);
    }
    must(fault_look(store, &now, &error) == GYRE_OK);
    must(fault_differs(&now, &history->picture[FAULT_ROUNDS], true) == NULL);
    gyre_store_close(store);
    gyre_context_destroy(context);
    return 0;
}

static void test_nobody(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_store_options options = fault_options("posix");
    fault_history *history = calloc(1, sizeof(*history));
    gyre_error error = {GYRE_OK, ""};
    fault_model model;
    fault_place place;
    gyre_store *store;
    int status;
    pid_t pid;

    (void)state;
    fault_model_make(&model, 4);
    fault_place_make(&place, 2, false);
    fault_ok(fault_create(context, &model, &place, &options, &store, &error),
             &error);
    fault_record(&model, store, false, history);
    fault_place_clear(&place);
    assert_int_equal(chmod(place.root, 0777), 0);
    for (size_t d = 0; d < place.count; d++)
        assert_int_equal(chmod(place.device[d], 0777), 0);
    fflush(stdout);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        status = live_as_nobody(&model, &place, history);
        if (status != 0)
            printf("# nobody: line %d\n", status);
        fflush(stdout);
        _exit(status != 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    fault_place_remove(&place);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    fault_model_free(&model);
    free(history);
}

/* ---- a host that flushes denormals to zero ---------------------------- */

#ifdef __SSE2__
enum { ELEMENTS = 5000, THREADS = 4, FLUSH_DENORMALS = 0x8040 };

/* Numbers whose products with the learning rate are denormal. */
static float small(uint64_t *state, float scale)
{
    return ((float)(fault_random(state) >> 40) / 0x1p24f - 0.5f) * scale;
}

typedef struct piece {
    gyre_round *round;
    bool flush;
    unsigned number;
    uint64_t seed;
    int status;
} piece;

static void *give_piece(void *user)
{
    piece *p = user;
    uint64_t n = ELEMENTS / THREADS, state = p->seed + p->number;
    gyre_gradient gradient = {.dtype = p->number % 2 ? GYRE_F64 : GYRE_F32};
    gyre_error error;
    double d[ELEMENTS / THREADS];
    float f[ELEMENTS / THREADS];

    for (uint64_t i = 0; i < n; i++)
        d[i] = f[i] = small(&state, i % 3 ? 1e-36f : 3e-38f);
    gradient.data = p->number % 2 ? (const void *)d : f;
    if (p->flush)
        _mm_setcsr(_mm_getcsr() | FLUSH_DENORMALS);
    p->status =
        gyre_round_gradient(p->round, 0, p->number * n, n, &gradient, &error);
    if (p->flush && (_mm_getcsr() & FLUSH_DENORMALS) != FLUSH_DENORMALS)
        p->status = GYRE_INTERNAL; /* the caller's modes were not restored */
    return NULL;
}

static void denormal_round(gyre_store *store, uint64_t seed, bool flush)
{
    static const gyre_setting rate[] = {{"lr", 0.01}};
    const gyre_group group = {rate, 1};
    gyre_round_options options = {.size = sizeof(options)};
    gyre_round_report report = {.size = sizeof(report)};
    gyre_error error = {GYRE_OK, ""};
    gyre_round *round;

    options.groups = &group;
    options.group_count = 1;
    options.micro_batches = 2;
    options.clip = 0x1p-122; /* some rounds are clipped */
    fault_ok(gyre_round_begin(store, &options, &round, &error), &error);
    for (unsigned m = 0; m < 2; m++) {
        pthread_t threads[THREADS];
        piece pieces[THREADS];

        for (unsigned i = 0; i < THREADS; i++) {
            pieces[i] = (piece){round, flush, i, seed + 10 * m, 0};
            assert_int_equal(
                pthread_create(&threads[i], NULL, give_piece, &pieces[i]), 0);
        }
        for (unsigned i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(pieces[i].status, GYRE_OK);
        }
        if (m == 0)
            fault_ok(gyre_round_next(round, &error), &error);
    }
    fault_ok(gyre_round_finish(round, NULL, 0, &report, &error), &error);
}

static void denormal_life(bool flush, char digest[GYRE_DIGEST_TEXT],
                          float *last)
{
    unsigned modes = _mm_getcsr();
    unit_memory memory = {0};
    gyre_context *context;
    gyre_store_options options = fault_options("auto");
    gyre_store_spec spec = {.size = sizeof(spec), .optimizer = "sgd"};
    gyre_error error = {GYRE_OK, ""};
    gyre_tensor tensor = {
        .name = "w", .rank = 1, .shape = {ELEMENTS}, .dtype = GYRE_F32};
    static float data[ELEMENTS];
    uint64_t state = 5;
    fault_place place;
    gyre_store *store;

    for (size_t i = 0; i < ELEMENTS; i++)
        data[i] = small(&state, 2e-38f);
    tensor.data = data;
    spec.tensors = &tensor;
    spec.tensor_count = 1;
    spec.chunk_elements = GYRE_GRAIN;
    fault_place_make(&place, 2, false);
    spec.devices = place.devices;
    spec.device_count = place.count;
    if (flush)
        _mm_setcsr(modes | FLUSH_DENORMALS);
    context = unit_context(&memory);
    fault_ok(gyre_store_create(context, place.store, &spec, &options, &store,
                               &error),
             &error);
    for (uint64_t r = 1; r <= 3; r++)
        denormal_round(store, r * 100, flush);
    gyre_store_close(store);
    fault_ok(fault_open(context, &place, &options, &store, &error), &error);
    fault_ok(gyre_store_digest(store, digest, &error), &error);
    fault_ok(gyre_store_read(store, 0, -1, 0, ELEMENTS, GYRE_F32, last, &error),
             &error);
    gyre_store_close(store);
    gyre_context_destroy(context);
    if (flush)
        assert_int_equal(_mm_getcsr() & FLUSH_DENORMALS, FLUSH_DENORMALS);
    _mm_setcsr(modes);
    unit_memory_check(&memory);
    fault_place_remove(&place);
}

static void test_flushing_host(void **state)
{
    static float plain[ELEMENTS], flushed[ELEMENTS];
    char a[GYRE_DIGEST_TEXT], b[GYRE_DIGEST_TEXT];
    size_t denormal = 0;

    (void)state;
    denormal_life(false, a, plain);
    denormal_life(true, b, flushed);
    for (size_t i = 0; i < ELEMENTS; i++)
        denormal += fpclassify(plain[i]) == FP_SUBNORMAL;
    printf("# %zu of %d parameters end denormal\n", denormal, ELEMENTS);
    assert_true(denormal > ELEMENTS / 10);
    assert_memory_equal(plain, flushed, sizeof(plain));
    assert_string_equal(a, b);
}
#else
static void test_flushing_host(void **state)
{
    (void)state;
    fault_skip("not an x86 machine");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody),
        cmocka_unit_test(test_flushing_host),
        cmocka_unit_test(test_no_space),
    };

    return cmocka_run_group_tests_name("space", tests, NULL, NULL);
}
