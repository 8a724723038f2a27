/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder may come from anywhere: what lies in it can refuse to be a store,
 * and can do nothing to what lies beside it.
 */
#include "config.h"

#include "care.h"

#include "store/format.h"
#include "store/store.h"

typedef struct world {
    unit_memory memory;
    gyre_context *context;
    char root[256];
    char path[300]; /* root/store */
    gyre_error error;
} world;

static int setup(void **state)
{
    world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    w->context = unit_context(&w->memory);
    care_folder(w->root, "hostile");
    snprintf(w->path, sizeof(w->path), "%s/store", w->root);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;

    care_remove(w->root);
    gyre_context_destroy(w->context);
    unit_memory_check(&w->memory);
    free(w);
    return 0;
}

static void put_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* ---- the journal ------------------------------------------------------ */

/* Only names of device files are swept up, whatever the journal says. */
static void test_a_journal_removes_device_files_alone(void **state)
{
    world *w = *state;
    gyre_store *store = care_create(w->context, w->path, 1, 0);
    char mine[320], text[2400], path[400], stale[400];

    gyre_store_close(store);
    snprintf(mine, sizeof(mine), "%s/thesis.tex", w->root);
    put_text(mine, "years of work");
    snprintf(stale, sizeof(stale), "%s/01234567.g1.d00", w->path);
    put_text(stale, "of a generation that was not finished");
    snprintf(text, sizeof(text), "%s\n\n%s/\n%s\n%s.d\n", mine, w->root, stale,
             stale);
    snprintf(path, sizeof(path), "%s/changing", w->path);
    put_text(path, text);
    store = care_open(w->context, w->path);
    gyre_store_close(store);
    assert_int_equal(access(mine, F_OK), 0);
    assert_int_not_equal(access(stale, F_OK), 0);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* The journal has one name a line, and half a name may be a file of its own. */
static void test_a_line_break_in_a_path_is_refused(void **state)
{
    world *w = *state;
    gyre_store *store = NULL;
    char path[320];

    snprintf(path, sizeof(path), "%s\nin two lines", w->path);
    put_text(w->path, "a file that happens to be called so");
    assert_int_equal(
        care_try_create(w->context, path, 1, CARE_CHUNK, 0, &store, &w->error),
        GYRE_INVALID);
    unit_assert_text(&w->error, "line break");
    assert_null(store);
    assert_int_equal(access(w->path, F_OK), 0);
    assert_int_equal(care_files(w->root), 1);
}

/* ---- a record --------------------------------------------------------- */

/* Write the next record of a store by hand, with a blob of that many bytes. */
static void put_record(const gyre_store *store, uint64_t blob_bytes)
{
    const gyre_layout *layout = &store->layout;
    gyre_record record = store->now;
    uint64_t steps[CARE_TENSORS] = {0};
    void *image = calloc(1, layout->area_bytes);
    int fd = open(store->places[0].file, O_WRONLY);
    uint64_t bytes;

    record.seq++;
    record.blob_bytes = blob_bytes;
    bytes = gyre_format_area(image, store->uuid, &record, store->current,
                             layout->chunks, steps, layout->tensor_count,
                             layout->align);
    assert_true(bytes <= layout->area_bytes);
    assert_int_equal(
        pwrite(fd, image, bytes, (off_t)layout->area_at[1 - store->area]),
        bytes);
    close(fd);
    free(image);
}

/* Areas are rounded to pages, and the blob's memory is not: a record that
 * fills the page says more than the store has room for. */
static void test_a_blob_beyond_its_capacity_is_no_record(void **state)
{
    world *w = *state;
    const uint64_t room = 256; /* as care_create has it */
    gyre_store *store = care_create(w->context, w->path, 1, 0);
    uint64_t head = gyre_format_head_bytes(store->layout.chunks,
                                           store->layout.tensor_count);
    size_t bytes = 0;

    assert_true(store->layout.area_bytes > head + room);
    put_record(store, store->layout.area_bytes - head);
    gyre_store_close(store);
    store = care_open(w->context, w->path);
    (void)gyre_store_blob(store, &bytes);
    assert_int_equal(bytes, 0); /* that of the record before */
    put_record(store, room);
    gyre_store_close(store);
    store = care_open(w->context, w->path);
    (void)gyre_store_blob(store, &bytes);
    assert_int_equal(bytes, room);
    gyre_store_close(store);
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_a_journal_removes_device_files_alone),
        IN_A_WORLD(test_a_line_break_in_a_path_is_refused),
        IN_A_WORLD(test_a_blob_beyond_its_capacity_is_no_record),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
