/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making and opening: what is refused and what the message says, and names,
 * folders and locks that keep stores apart.
 */
#include "config.h"

#include "fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* In place of the system's, for a file system that has no locks. */
static bool no_locks;

int flock(int fd, int operation)
{
    if (!no_locks)
        return (int)syscall(SYS_flock, fd, operation);
    errno = ENOLCK;
    return -1;
}

typedef struct world {
    fixture f;
    model m;
} world;

static int setup(void **state)
{
    world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    model_add(&w->m, "a", 3000, 0, 0);
    model_add(&w->m, "b", 1, 1, 0);
    fixture_begin(&w->f);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;

    fixture_end(&w->f);
    model_free(&w->m);
    free(w);
    return 0;
}

static size_t entries(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    size_t n = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL)
        n +=
            strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    if (dir != NULL)
        closedir(dir);
    return n;
}

static void expect_create(world *w, const gyre_store_spec *spec,
                          const gyre_store_options *options, gyre_status want,
                          const char *text)
{
    expect(&w->f,
           gyre_store_create(w->f.context, w->f.path, spec, options,
                             &w->f.store, &w->f.error),
           want);
    unit_assert_text(&w->f.error, text);
    assert_null(w->f.store);
    assert_int_not_equal(access(w->f.path, F_OK), 0); /* nothing stays */
}

static void expect_open(world *w, const gyre_store_options *options,
                        gyre_status want, const char *text)
{
    expect(&w->f,
           gyre_store_open(w->f.context, w->f.path, options, &w->f.store,
                           &w->f.error),
           want);
    unit_assert_text(&w->f.error, text);
    assert_null(w->f.store);
}

/* ---- making ----------------------------------------------------------- */

/* A name that is cut is another name: manifest.json.new beside manifest.json
 * would be manifest.json. */
static void test_a_path_that_leaves_no_room_is_refused(void **state)
{
    world *w = *state;
    gyre_store_spec spec = spec_of(&w->m);
    char path[4096];
    size_t n = (size_t)snprintf(path, sizeof(path), "%s", w->f.root);

    while (n < 3900) {
        n += (size_t)snprintf(path + n, sizeof(path) - n, "/%0150d", 0);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    snprintf(path + n, sizeof(path) - n, "/%0*d", (int)(4085 - n - 1), 0);
    expect(&w->f,
           gyre_store_create(w->f.context, path, &spec, NULL, &w->f.store,
                             &w->f.error),
           GYRE_RANGE);
    unit_assert_text(&w->f.error, "4085 bytes");
    assert_null(w->f.store);
    assert_int_not_equal(access(path, F_OK), 0);
    path[3980] = '\0'; /* and this one does */
    good(&w->f, gyre_store_create(w->f.context, path, &spec, NULL, &w->f.store,
                                  &w->f.error));
}

static void test_bad_specs_are_refused_and_nothing_stays(void **state)
{
    world *w = *state;
    gyre_setting wrong = {"momentum", 0.9};
    double weights[2] = {1, 0};
    gyre_store_spec spec = spec_of(&w->m);
    gyre_store_options options = plain_options();

    expect_create(w, NULL, NULL, GYRE_INVALID, "size");
    spec.size = 4;
    expect_create(w, &spec, NULL, GYRE_INVALID, "size");
    spec = spec_of(&w->m);
    spec.tensor_count = 0;
    expect_create(w, &spec, NULL, GYRE_INVALID, "at least one tensor");
    spec = spec_of(&w->m);
    spec.settings = &wrong;
    spec.setting_count = 1;
    expect_create(w, &spec, NULL, GYRE_PARAMETER, "momentum");
    spec = spec_of(&w->m);
    spec.codec_count = 1;
    expect_create(w, &spec, NULL, GYRE_INVALID, "1 codecs");
    spec = spec_of(&w->m);
    spec.setting_count = 2;
    expect_create(w, &spec, NULL, GYRE_INVALID, "2 settings");
    spec = spec_of(&w->m);
    spec.blob_bytes = (1ull << 40) + 1; /* what no open would take */
    expect_create(w, &spec, NULL, GYRE_RANGE, "1099511627777");
    spec = spec_of(&w->m);
    spec.chunk_elements = 512;
    expect_create(w, &spec, NULL, GYRE_RANGE, "512");
    spec = spec_of(&w->m);
    spec.device_count = 65;
    expect_create(w, &spec, NULL, GYRE_RANGE, "65 devices");
    spec = spec_of(&w->m);
    fixture_devices(&w->f, &spec, 2);
    spec.weights = weights;
    expect_create(w, &spec, NULL, GYRE_RANGE, "device 1");
    weights[1] = NAN;
    expect_create(w, &spec, NULL, GYRE_RANGE, "device 1");
    spec.weights = NULL;
    rmdir(w->f.device[1]);
    expect_create(w, &spec, NULL, GYRE_NOT_FOUND, w->f.device[1]);
    assert_int_equal(entries(w->f.device[0]), 0);
    spec = spec_of(&w->m);
    options.buffers = 1025;
    expect_create(w, &spec, &options, GYRE_RANGE, "1 to 1024");
    options = plain_options();
    options.io = "libaio";
    expect_create(w, &spec, &options, GYRE_INVALID, "libaio");
    options = plain_options();
    options.size = 8;
    expect_create(w, &spec, &options, GYRE_INVALID, "gyre_store_options");
    w->m.tensors[0].dtype = GYRE_U8;
    expect_create(w, &spec, NULL, GYRE_INVALID, "tensor 0");
    w->m.tensors[0].dtype = GYRE_F32;
    fixture_create(&w->f, &w->m, &spec, NULL);
}

static void test_initial_values_of_every_dtype(void **state)
{
    static const gyre_dtype dtypes[] = {GYRE_F64, GYRE_BF16, GYRE_F16};
    world *w = *state;
    const void *f32 = w->m.tensors[0].data;
    float want[3000], have[3000];

    for (size_t k = 0; k < 3; k++) {
        void *data = malloc(3000 * 8);

        assert_true(gyre_from_f32(dtypes[k], f32, data, 3000));
        assert_true(gyre_to_f32(dtypes[k], data, 1, want, 3000));
        w->m.tensors[0].dtype = dtypes[k];
        w->m.tensors[0].data = data;
        snprintf(w->f.path, sizeof(w->f.path), "%s/s%zu", w->f.root, k);
        fixture_create(&w->f, &w->m, NULL, NULL);
        good(&w->f, gyre_store_read(w->f.store, 0, -1, 0, 3000, GYRE_F32, have,
                                    &w->f.error));
        assert_memory_equal(want, have, sizeof(want));
        fixture_close(&w->f);
        free(data);
    }
    w->m.tensors[0].data = NULL; /* zeros */
    snprintf(w->f.path, sizeof(w->f.path), "%s/zero", w->f.root);
    fixture_create(&w->f, &w->m, NULL, NULL);
    good(&w->f, gyre_store_read(w->f.store, 0, -1, 0, 3000, GYRE_F32, have,
                                &w->f.error));
    for (size_t i = 0; i < 3000; i++)
        assert_true(have[i] == 0);
    w->m.tensors[0].data = f32;
}

/* transformers#31800: two models with one folder overwrote each other. */
static void test_stores_do_not_overwrite_each_other(void **state)
{
    world *w = *state;
    gyre_store_spec spec = spec_of(&w->m);
    gyre_store *second = NULL;
    char other[200];
    snapshot before, after;

    fixture_devices(&w->f, &spec, 2);
    fixture_create(&w->f, &w->m, &spec, NULL);
    before = snapshot_of(&w->f, &w->m);
    expect(&w->f,
           gyre_store_create(w->f.context, w->f.path, &spec, NULL, &second,
                             &w->f.error),
           GYRE_BUSY);
    /* another one with the same device folders is another one */
    snprintf(other, sizeof(other), "%s/other", w->f.root);
    good(&w->f, gyre_store_create(w->f.context, other, &spec, NULL, &second,
                                  &w->f.error));
    gyre_store_close(second);
    second = NULL;
    fixture_close(&w->f);
    expect(&w->f,
           gyre_store_create(w->f.context, w->f.path, &spec, NULL, &second,
                             &w->f.error),
           GYRE_EXISTS);
    unit_assert_text(&w->f.error, "holds a store already");
    assert_null(second);
    fixture_open(&w->f, NULL);
    after = snapshot_of(&w->f, &w->m);
    expect_same_contents(&before, &after);
}

/* DS#5087: a file name made of all parameter names was too long. */
static void test_many_long_names(void **state)
{
    world *w = *state;
    static gyre_tensor tensors[50];
    static char names[50][1001];
    gyre_store_spec spec = spec_of(&w->m);
    size_t index;

    for (size_t i = 0; i < 50; i++) {
        memset(names[i], 'a' + (int)(i % 26), 1000);
        snprintf(names[i] + 990, 11, "%zu", i);
        tensors[i] = (gyre_tensor){.name = names[i], .rank = 1, .shape = {i}};
    }
    spec.tensors = tensors;
    spec.tensor_count = 50;
    fixture_create(&w->f, &w->m, &spec, NULL);
    fixture_close(&w->f);
    fixture_open(&w->f, NULL);
    for (size_t i = 0; i < 50; i++) {
        gyre_tensor t;

        good(&w->f, gyre_store_find(w->f.store, names[i], &index, &w->f.error));
        assert_int_equal(index, i);
        good(&w->f, gyre_store_tensor(w->f.store, i, &t, NULL, &w->f.error));
        assert_string_equal(t.name, names[i]);
        assert_int_equal(t.shape[0], i);
    }
}

static void test_names_may_hold_what_utf8_holds(void **state)
{
    static const char *const names[] = {
        "h/0\\w", "\"quoted\"", "\n\t", "\xc3\xa4\xe6\xbc\xa2", "%s%n", " "};
    world *w = *state;
    gyre_tensor tensors[6];
    gyre_store_spec spec = spec_of(&w->m);
    size_t index;

    for (size_t i = 0; i < 6; i++)
        tensors[i] = (gyre_tensor){.name = names[i], .rank = 0};
    spec.tensors = tensors;
    spec.tensor_count = 6;
    fixture_create(&w->f, &w->m, &spec, NULL);
    fixture_close(&w->f);
    fixture_open(&w->f, NULL);
    for (size_t i = 0; i < 6; i++) {
        good(&w->f, gyre_store_find(w->f.store, names[i], &index, &w->f.error));
        assert_int_equal(index, i);
    }
    expect(&w->f, gyre_store_find(w->f.store, "h", &index, &w->f.error),
           GYRE_NOT_FOUND);
}

/* ---- opening ---------------------------------------------------------- */

static void test_what_is_no_store_is_said_to_be_none(void **state)
{
    world *w = *state;

    expect_open(w, NULL, GYRE_NOT_FOUND, w->f.path);
    assert_int_equal(mkdir(w->f.path, 0700), 0);
    expect_open(w, NULL, GYRE_NOT_FOUND, "no manifest.json");
    expect(&w->f,
           gyre_store_open(w->f.context, NULL, NULL, &w->f.store, &w->f.error),
           GYRE_INVALID);
    expect(&w->f,
           gyre_store_open(w->f.context, "", NULL, &w->f.store, &w->f.error),
           GYRE_INVALID);
}

static void test_same_store_twice_is_busy(void **state)
{
    world *w = *state;
    gyre_store *second = NULL;
    gyre_store_options options = plain_options();

    fixture_create(&w->f, &w->m, NULL, NULL);
    for (int read_only = 0; read_only < 2; read_only++) {
        options.read_only = read_only;
        expect(&w->f,
               gyre_store_open(w->f.context, w->f.path, &options, &second,
                               &w->f.error),
               GYRE_BUSY);
        unit_assert_text(&w->f.error, "in this process already");
        assert_null(second);
    }
    fixture_round(&w->f, &w->m, 1, NULL, NULL); /* the first is unharmed */
    fixture_close(&w->f);
    fixture_open(&w->f, NULL);
    assert_int_equal(info_of(&w->f).step, 1);
}

/* What a dead owner left in flight, for as long as a test wants. */
static void *hold_a_while(void *user)
{
    const struct timespec nap = {0, 30000000};

    nanosleep(&nap, NULL);
    close(*(int *)user);
    return NULL;
}

/* A wait beyond what the clock can say is none that has passed. */
static void test_waiting_for_ages_is_waiting(void **state)
{
    world *w = *state;
    gyre_store_options options = plain_options();
    char pattern[200];
    pthread_t thread;
    glob_t found;
    int fd;

    fixture_create(&w->f, &w->m, NULL, NULL);
    fixture_close(&w->f);
    snprintf(pattern, sizeof(pattern), "%s/*.d00", w->f.path);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    fd = open(found.gl_pathv[0], O_RDONLY);
    globfree(&found);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(pthread_create(&thread, NULL, hold_a_while, &fd), 0);
    options.lock_wait_ns = UINT64_MAX;
    fixture_open(&w->f, &options);
    pthread_join(thread, NULL);
}

/* Nobody has a lock there, and nobody is to be waited for. */
static void test_where_there_are_no_locks(void **state)
{
    world *w = *state;
    gyre_store_options options = plain_options();

    fixture_create(&w->f, &w->m, NULL, NULL);
    fixture_close(&w->f);
    options.lock_wait_ns = 1000000;
    no_locks = true;
    expect_open(w, &options, GYRE_SYSTEM, "cannot lock");
    no_locks = false;
    fixture_open(&w->f, &options);
}

static void test_other_device_list_says_how_to_reshard(void **state)
{
    world *w = *state;
    gyre_store_spec spec = spec_of(&w->m);
    gyre_store_options options = plain_options();
    const char *list[2] = {w->f.device[1], w->f.device[0]};
    char command[300], link[200], dotted[200];

    fixture_devices(&w->f, &spec, 2);
    fixture_create(&w->f, &w->m, &spec, NULL);
    fixture_close(&w->f);
    options.device_count = 3;
    snprintf(command, sizeof(command), "gyre store reshard %s --devices 3",
             w->f.path);
    expect_open(w, &options, GYRE_LAYOUT, command);
    options.device_count = 2;
    options.devices = list;
    expect_open(w, &options, GYRE_LAYOUT, "gyre store reshard");
    unit_assert_text(&w->f.error, "device 0");
    options.device_count = 0; /* a list of one then, as when making */
    expect_open(w, &options, GYRE_LAYOUT, "has 2 devices and 1");
    options.device_count = 2;
    options.devices = w->f.devices;
    fixture_open(&w->f, &options);
    fixture_close(&w->f);
    /* the same folders by other names */
    snprintf(link, sizeof(link), "%s/link", w->f.root);
    snprintf(dotted, sizeof(dotted), "%s/../d01/.", w->f.device[0]);
    assert_int_equal(symlink(w->f.device[0], link), 0);
    list[0] = link;
    list[1] = dotted;
    options.devices = list;
    fixture_open(&w->f, &options);
}

/* A device is known by its uuid, wherever among the folders it lies. */
static void test_exchanged_device_files_are_found(void **state)
{
    world *w = *state;
    gyre_store_spec spec = spec_of(&w->m);
    snapshot before, after;
    char aside[200];

    fixture_devices(&w->f, &spec, 2);
    spec.chunk_elements = 1024;
    fixture_create(&w->f, &w->m, &spec, NULL);
    fixture_round(&w->f, &w->m, 1, NULL, NULL);
    before = snapshot_of(&w->f, &w->m);
    fixture_close(&w->f);
    snprintf(aside, sizeof(aside), "%s/aside", w->f.root);
    assert_int_equal(rename(w->f.device[0], aside), 0);
    assert_int_equal(rename(w->f.device[1], w->f.device[0]), 0);
    assert_int_equal(rename(aside, w->f.device[1]), 0);
    fixture_open(&w->f, NULL);
    after = snapshot_of(&w->f, &w->m);
    expect_same_contents(&before, &after);
    fixture_round(&w->f, &w->m, 2, NULL, NULL);
}

static void test_asking_past_the_end(void **state)
{
    world *w = *state;
    gyre_store_info info = {0};
    gyre_tensor t;

    fixture_create(&w->f, &w->m, NULL, NULL);
    expect(&w->f, gyre_store_tensor(w->f.store, 2, &t, NULL, &w->f.error),
           GYRE_RANGE);
    unit_assert_text(&w->f.error, "the store has 2");
    expect(&w->f, gyre_store_get_info(w->f.store, &info, &w->f.error),
           GYRE_INVALID);
    assert_string_equal(gyre_store_slot(w->f.store, 0), "exp_avg");
    assert_string_equal(gyre_store_slot(w->f.store, 1), "exp_avg_sq");
    assert_null(gyre_store_slot(w->f.store, 2));
    assert_string_equal(info_of(&w->f).optimizer, "adamw");
    assert_int_equal(info_of(&w->f).groups, 2);
    assert_int_equal(info_of(&w->f).elements, 3001);
    info.size = offsetof(gyre_store_info, commit); /* an older caller's */
    info.commit = 77;
    good(&w->f, gyre_store_get_info(w->f.store, &info, &w->f.error));
    assert_int_equal(info.commit, 77);
    gyre_store_close(NULL);
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_bad_specs_are_refused_and_nothing_stays),
        IN_A_WORLD(test_a_path_that_leaves_no_room_is_refused),
        IN_A_WORLD(test_initial_values_of_every_dtype),
        IN_A_WORLD(test_stores_do_not_overwrite_each_other),
        IN_A_WORLD(test_many_long_names),
        IN_A_WORLD(test_names_may_hold_what_utf8_holds),
        IN_A_WORLD(test_what_is_no_store_is_said_to_be_none),
        IN_A_WORLD(test_same_store_twice_is_busy),
        IN_A_WORLD(test_waiting_for_ages_is_waiting),
        IN_A_WORLD(test_where_there_are_no_locks),
        IN_A_WORLD(test_other_device_list_says_how_to_reshard),
        IN_A_WORLD(test_exchanged_device_files_are_found),
        IN_A_WORLD(test_asking_past_the_end),
    };

    return cmocka_run_group_tests_name("store: open", tests, NULL, NULL);
}
