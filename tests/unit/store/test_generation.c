/* SPDX-License-Identifier: Apache-2.0 */
/* Reshard: the same store on other devices, before and after any crash. */
#include "config.h"

#include "care.h"

#include <signal.h>
#include <sys/wait.h>

static gyre_status reshard(gyre_context *context, const char *path,
                           uint32_t devices, uint64_t chunk, const char *io,
                           gyre_error *error)
{
    gyre_store_spec spec = {
        .size = sizeof(spec), .device_count = devices, .chunk_elements = chunk};
    gyre_store_options options = {
        .size = sizeof(options), .io = io, .buffers = 2};

    return gyre_store_reshard(context, path, &spec, &options, NULL, NULL,
                              error);
}

static void must_reshard(gyre_context *context, const char *path,
                         uint32_t devices, uint64_t chunk)
{
    gyre_error error = {GYRE_OK, ""};

    if (reshard(context, path, devices, chunk, "posix", &error) != GYRE_OK)
        fail_msg("%s", error.text);
}

/* 1 -> 3 -> 16 -> 2 devices with rounds between equals the run without. */
static void run_on(int in_place)
{
    static const uint32_t devices[] = {3, 16, 2};
    static const uint64_t chunks[] = {1024, 8192, 0};
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    char path[256];
    gyre_store *store;
    care_state a, b;

    care_folder(path, "reshard");
    store = care_create(context, path, 1, in_place);
    care_rounds(store, 2);
    for (int i = 0; i < 3; i++) {
        gyre_store_info info = {.size = sizeof(info)};

        a = care_state_of(store);
        gyre_store_close(store);
        must_reshard(context, path, devices[i], chunks[i]);
        store = care_open(context, path);
        b = care_state_of(store);
        assert_string_equal(a.text, b.text);
        gyre_store_get_info(store, &info, NULL);
        assert_int_equal(info.devices, devices[i]);
        assert_int_equal(info.generation, 2 + i);
        assert_int_equal(info.in_place, in_place);
        assert_true(info.whole);
        /* manifest and lock, and nothing of the old generation */
        assert_int_equal(care_files(path), devices[i] + 2);
        care_rounds(store, 2);
    }
    a = care_state_of(store);
    gyre_store_close(store);
    b = care_reference(context, 8, in_place);
    assert_string_equal(a.text, b.text);
    care_remove(path);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_continues_bit_equal(void **state)
{
    (void)state;
    run_on(0);
}

static void test_continues_bit_equal_in_place(void **state)
{
    (void)state;
    run_on(1);
}

static void test_to_other_folders_and_weights(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    char path[256], a[256], b[256];
    const char *devices[] = {a, b, NULL};
    double weights[] = {1, 3, 2};
    gyre_store_spec spec = {.size = sizeof(spec),
                            .devices = devices,
                            .weights = weights,
                            .device_count = 3,
                            .chunk_elements = 1024};
    gyre_store *store;
    care_state before, after;

    (void)state;
    care_folder(path, "reshard");
    care_folder(a, "device");
    care_folder(b, "device");
    store = care_create(context, path, 2, 0);
    care_rounds(store, 3);
    before = care_state_of(store);
    gyre_store_close(store);
    assert_int_equal(
        gyre_store_reshard(context, path, &spec, NULL, NULL, NULL, NULL),
        GYRE_OK);
    assert_int_equal(care_files(a), 1);
    assert_int_equal(care_files(b), 1);
    assert_int_equal(care_files(path), 3);
    after = care_state_at(context, path);
    assert_string_equal(before.text, after.text);
    must_reshard(context, path, 1, 0);
    assert_int_equal(care_files(a), 0);
    assert_int_equal(care_files(b), 0);
    after = care_state_at(context, path);
    assert_string_equal(before.text, after.text);
    care_remove(path);
    care_remove(a);
    care_remove(b);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* ---- failures --------------------------------------------------------- */

static void check_untouched(gyre_context *context, const char *path,
                            const care_state *want, size_t files)
{
    care_state seen;

    assert_int_equal(care_files(path), files);
    seen = care_state_at(context, path);
    assert_string_equal(seen.text, want->text);
    assert_int_equal(care_files(path), files);
}

static care_state make_small(gyre_context *context, char *path, int rounds)
{
    gyre_store *store;
    care_state state;

    care_folder(path, "reshard");
    store = care_create(context, path, 2, 0);
    care_rounds(store, rounds);
    state = care_state_of(store);
    gyre_store_close(store);
    return state;
}

static void test_every_allocation_fails(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    char path[256];
    care_state want = make_small(context, path, 2);
    gyre_error error;
    uint64_t n;

    (void)state;
    for (n = 1;; n++) {
        uint64_t before = memory.bytes;
        gyre_status status;

        memory.fail_at = memory.requests + n;
        status = reshard(context, path, 3, 1024, "posix", &error);
        memory.fail_at = 0;
        if (status == GYRE_OK)
            break;
        if (status != GYRE_NO_MEMORY)
            fail_msg("request %llu: %s", (unsigned long long)n, error.text);
        assert_int_equal(memory.bytes, before);
        if (memory.wrong != 0)
            fail_msg("request %llu: freed with a wrong size",
                     (unsigned long long)n);
        assert_int_equal(care_files(path), 4);
        if (fcntl(0, F_GETFD) < 0)
            fail_msg("request %llu: closed standard input",
                     (unsigned long long)n);
    }
    assert_true(n > 50);
    check_untouched(context, path, &want, 5);
    care_remove(path);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* The n-th operation of each queue fails, for every n. */
static void test_every_operation_fails(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    char path[256], io[64];
    care_state want = make_small(context, path, 2);
    gyre_error error;
    int n;

    (void)state;
    for (n = 1;; n++) {
        gyre_status status;

        snprintf(io, sizeof(io), "faulty:posix,fail=%d", n);
        status = reshard(context, path, 3, 2048, io, &error);
        if (status == GYRE_OK)
            break;
        if (status != GYRE_IO && status != GYRE_CORRUPT &&
            status != GYRE_NOT_FOUND)
            fail_msg("operation %d: %s", n, error.text);
        assert_int_equal(care_files(path), 4);
    }
    assert_true(n > 20);
    check_untouched(context, path, &want, 5);
    care_remove(path);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

typedef struct stopping {
    uint64_t calls, stop_at, last, total;
    pthread_t thread;
} stopping;

static int stop(void *user, uint64_t done, uint64_t total)
{
    stopping *s = user;

    s->calls++;
    assert_true(done >= s->last && done <= total);
    assert_true(pthread_equal(s->thread, pthread_self()));
    s->last = done;
    s->total = total;
    return s->calls == s->stop_at;
}

static void test_progress_stops_it(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    char path[256];
    care_state want = make_small(context, path, 1);
    gyre_store_spec spec = {
        .size = sizeof(spec), .device_count = 2, .chunk_elements = 1024};
    stopping s = {.thread = pthread_self()};
    gyre_error error;

    (void)state;
    /* The callback may see less than every piece, but the first and the last
     * call always come. */
    s.stop_at = 1;
    assert_int_equal(
        gyre_store_reshard(context, path, &spec, NULL, stop, &s, &error),
        GYRE_STOPPED);
    check_untouched(context, path, &want, 4);
    s = (stopping){.thread = pthread_self()};
    assert_int_equal(
        gyre_store_reshard(context, path, &spec, NULL, stop, &s, &error),
        GYRE_OK);
    assert_true(s.calls >= 1);
    assert_int_equal(s.last, s.total);
    /* 3 variables of the trainable elements, 1 of the frozen ones */
    assert_int_equal(s.total, 4 * (3 * (3000 + 4096 + 64 + 1 + 40960) + 7000));
    check_untouched(context, path, &want, 4);
    care_remove(path);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static int stop_at_end(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    return done == total;
}

/* Whoever sees the last byte first, the watcher or the builder. */
static void test_stopped_at_the_last_moment(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    char path[256];
    care_state want = make_small(context, path, 1);
    gyre_store_spec spec = {.size = sizeof(spec), .device_count = 1};

    (void)state;
    for (int i = 0; i < 20; i++)
        assert_int_equal(gyre_store_reshard(context, path, &spec, NULL,
                                            stop_at_end, NULL, NULL),
                         GYRE_STOPPED);
    check_untouched(context, path, &want, 4);
    care_remove(path);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_bad_requests(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    char path[256];
    care_state want = make_small(context, path, 1);
    gyre_store_options reading = {.size = sizeof(reading), .read_only = 1};
    gyre_store_spec spec = {.size = sizeof(spec)};
    gyre_store *store;
    gyre_error error;

    (void)state;
    assert_int_equal(
        gyre_store_reshard(context, path, NULL, NULL, NULL, NULL, &error),
        GYRE_INVALID);
    assert_int_equal(
        gyre_store_reshard(context, path, &spec, &reading, NULL, NULL, &error),
        GYRE_INVALID);
    assert_int_equal(reshard(context, path, 65, 0, "posix", &error),
                     GYRE_RANGE);
    assert_int_equal(reshard(context, path, 1, 1000, "posix", &error),
                     GYRE_RANGE);
    assert_int_equal(reshard(context, "/nowhere", 1, 0, "posix", &error),
                     GYRE_NOT_FOUND);
    check_untouched(context, path, &want, 4);
    store = care_open(context, path);
    assert_int_equal(reshard(context, path, 1, 0, "posix", &error), GYRE_BUSY);
    gyre_store_close(store);
    check_untouched(context, path, &want, 4);
    care_remove(path);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* A loop device over a file; false when the machine gives none. */
static bool make_disk(const char *folder, char *disk)
{
    char command[700];
    FILE *pipe;
    bool good;

    snprintf(command, sizeof(command),
             "truncate -s 16M %s/image && losetup --find --show %s/image "
             "2>/dev/null",
             folder, folder);
    pipe = popen(command, "r");
    good = pipe != NULL && fscanf(pipe, "%63s", disk) == 1;
    return pclose(pipe) == 0 && good;
}

/* Nothing can be written beside the old generation on the disk that it is. */
static void test_block_files(void **state)
{
    unit_memory memory = {0};
    gyre_context *context;
    char folder[256], path[300], disk[64], detach[100];
    const char *devices[] = {disk, disk};
    gyre_store_spec spec = {.size = sizeof(spec),
                            .devices = devices,
                            .device_count = 1,
                            .chunk_elements = 2048};
    gyre_tensor tensor = {.name = "w", .rank = 1, .shape = {9999}};
    gyre_store *store = NULL;
    gyre_error error;

    (void)state;
    care_folder(folder, "block");
    if (!make_disk(folder, disk)) {
        care_remove(folder);
        skip();
    }
    context = unit_context(&memory);
    snprintf(path, sizeof(path), "%s/store", folder);
    spec.tensors = &tensor;
    spec.tensor_count = 1;
    if (gyre_store_create(context, path, &spec, NULL, &store, &error) !=
        GYRE_OK)
        fail_msg("%s", error.text);
    gyre_store_close(store);
    assert_int_equal(
        gyre_store_reshard(context, path, &spec, NULL, NULL, NULL, &error),
        GYRE_INVALID);
    unit_assert_text(&error, disk);
    must_reshard(context, path, 2, 1024);
    spec.device_count = 2;
    assert_int_equal(
        gyre_store_reshard(context, path, &spec, NULL, NULL, NULL, &error),
        GYRE_INVALID);
    unit_assert_text(&error, "are the same block file");
    spec.device_count = 1;
    assert_int_equal(
        gyre_store_reshard(context, path, &spec, NULL, NULL, NULL, &error),
        GYRE_OK);
    assert_int_equal(care_files(path), 2);
    store = care_open(context, path);
    gyre_store_close(store);
    snprintf(detach, sizeof(detach), "losetup --detach %s", disk);
    assert_int_equal(system(detach), 0);
    care_remove(folder);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* The last thing that can fail, when everything else is done. */
static void test_no_new_manifest(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    char path[256], name[300];
    care_state want = make_small(context, path, 1);
    gyre_error error;

    (void)state;
    snprintf(name, sizeof(name), "%s/manifest.json.new", path);
    assert_int_equal(mkdir(name, 0700), 0);
    assert_int_equal(reshard(context, path, 3, 0, "posix", &error), GYRE_IO);
    unit_assert_text(&error, "manifest.json.new");
    assert_int_equal(rmdir(name), 0);
    check_untouched(context, path, &want, 4);
    care_remove(path);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* Space for both generations is needed, and asked for before the first byte. */
static void test_disk_full(void **state)
{
    unit_memory memory = {0};
    gyre_context *context;
    char path[256], where[300];
    gyre_store *store;
    gyre_error error;
    care_state want;

    (void)state;
    care_folder(path, "full");
    if (!care_small_disk(path, "size=2m")) {
        rmdir(path);
        skip();
    }
    context = unit_context(&memory);
    snprintf(where, sizeof(where), "%s/store", path);
    store = care_create(context, where, 1, 0);
    care_rounds(store, 1);
    want = care_state_of(store);
    gyre_store_close(store);
    assert_int_equal(reshard(context, where, 2, 1024, "posix", &error),
                     GYRE_NO_SPACE);
    check_untouched(context, where, &want, 3);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    assert_int_equal(umount(path), 0);
    rmdir(path);
}

/* ---- crashes ---------------------------------------------------------- */

/* In a child: reshard, and SIGKILL right after the n-th operation.  False when
 * it came to its end. */
static bool killed_at(const char *path, int n)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        gyre_context *context = NULL;
        char io[64];

        snprintf(io, sizeof(io), "faulty:posix,kill=%d", n);
        if (gyre_context_create(NULL, &context, NULL) != GYRE_OK)
            _exit(2);
        unit_end_child(reshard(context, path, 3, 2048, io, NULL) == GYRE_OK);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        return true;
    assert_int_equal(WEXITSTATUS(status), 0);
    return false;
}

static void test_killed_at_every_operation(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    char path[256];
    care_state want = make_small(context, path, 2);
    int n;

    (void)state;
    for (n = 1; killed_at(path, n); n++) {
        care_state seen = care_state_at(context, path);

        assert_string_equal(seen.text, want.text);
        assert_int_equal(care_files(path), 4);
    }
    assert_true(n > 50);
    check_untouched(context, path, &want, 5);
    care_remove(path);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void copy_file(const char *from, const char *to)
{
    char block[65536];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0600);
    ssize_t n;

    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, block, sizeof(block))) > 0)
        assert_int_equal(write(out, block, (size_t)n), n);
    close(in);
    close(out);
}

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[600];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Killed between the flip and the sweep: the old files are still there and the
 * journal names them, and half a journal lies beside it. */
static void test_sweep_after_the_flip(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    char path[256], old[2][320], kept[2][330], text[1100], uuid[37];
    care_state want = make_small(context, path, 2);
    gyre_store *store = care_open(context, path);
    gyre_store_info info = {.size = sizeof(info)};

    (void)state;
    gyre_store_get_info(store, &info, NULL);
    snprintf(uuid, sizeof(uuid), "%s", info.uuid);
    gyre_store_close(store);
    for (int d = 0; d < 2; d++) {
        snprintf(old[d], sizeof(old[d]), "%.255s/%.8s.g1.d%02d", path, uuid, d);
        snprintf(kept[d], sizeof(kept[d]), "%.319s.kept", old[d]);
        copy_file(old[d], kept[d]);
    }
    must_reshard(context, path, 3, 0);
    for (int d = 0; d < 2; d++)
        assert_int_equal(rename(kept[d], old[d]), 0);
    snprintf(text, sizeof(text), "%.255s/%.8s.g2.d00\n%.319s\n%.319s\n", path,
             uuid, old[0], old[1]);
    write_text(path, "changing", text);
    write_text(path, "changing.new", "half a na");
    write_text(path, "manifest.json.new", "{");
    assert_int_equal(care_files(path), 10);
    want = care_state_at(context, path);
    check_untouched(context, path, &want, 5);
    care_remove(path);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_continues_bit_equal),
        cmocka_unit_test(test_continues_bit_equal_in_place),
        cmocka_unit_test(test_to_other_folders_and_weights),
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_every_operation_fails),
        cmocka_unit_test(test_progress_stops_it),
        cmocka_unit_test(test_stopped_at_the_last_moment),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_block_files),
        cmocka_unit_test(test_no_new_manifest),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_killed_at_every_operation),
        cmocka_unit_test(test_sweep_after_the_flip),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
