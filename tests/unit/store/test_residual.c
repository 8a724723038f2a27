/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The residual of a compressor on storage: what a commit keeps, what an open,
 * a reshard, an import and a repair make of it.  Contents are put into the
 * memory by hand, as a round would; what rounds do is tested with rounds.
 */
#include "config.h"

#include "compressed.h"

#include "store/commit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the record, the tables and the blob, on all devices. */
static uint64_t commit_bytes(const gyre_store *store)
{
    const gyre_layout *l = &store->layout;

    return l->devices *
           gyre_round_up(gyre_format_head_bytes(l->chunks, l->tensor_count) + 1,
                         l->align);
}

/* ---- commit and open -------------------------------------------------- */

static void test_a_commit_keeps_it_and_an_open_brings_it_back(void **state)
{
    world *w = *state;
    gyre_store_info info;

    fixture_create(&w->f, &w->m, &w->spec, NULL);
    info = info_of(&w->f);
    assert_string_equal(info.compressor, "topk");
    assert_int_equal(info.residual, GYRE_RESIDUAL_COMMITTED);
    assert_int_equal(info.chunks, w->f.store->layout.state_chunks +
                                      w->f.store->layout.train_chunks);
    expect_all(w->f.store, 0);
    for (uint64_t seed = 1; seed < 4; seed++) {
        put_all(w->f.store, seed);
        commit(w);
        reopen(w);
        expect_all(w->f.store, seed);
    }
    put_all(w->f.store, 9); /* not committed */
    reopen(w);
    expect_all(w->f.store, 3);
}

static void test_only_what_changed_is_written(void **state)
{
    world *w = *state;
    gyre_entry before[64];
    uint64_t flash, bytes;
    gyre_layout *layout;

    fixture_create(&w->f, &w->m, &w->spec, NULL);
    layout = &w->f.store->layout;
    assert_true(layout->train_chunks > 3 && layout->chunks <= 64);
    put_all(w->f.store, 1);
    commit(w);
    memcpy(before, w->f.store->current, layout->chunks * sizeof(*before));
    flash = w->f.store->flash;
    put_chunk(w->f.store, 2, 2);
    commit(w);
    for (uint64_t c = 0; c < layout->chunks; c++)
        assert_int_equal(w->f.store->current[c].version != before[c].version,
                         c == gyre_layout_residual(layout, 2));
    bytes = gyre_layout_chunk_bytes(layout, gyre_layout_residual(layout, 2));
    assert_int_equal(w->f.store->flash - flash,
                     bytes + commit_bytes(w->f.store));
    flash = w->f.store->flash;
    commit(w);
    assert_int_equal(w->f.store->flash - flash, commit_bytes(w->f.store));
    assert_int_equal(w->f.store->flash, info_of(&w->f).written);
    reopen(w);
    expect_chunk(w->f.store, 2, by_seed, &(uint64_t){2});
    expect_chunk(w->f.store, 1, by_seed, &(uint64_t){1});
}

static float seed_1_by_kappa(const void *user, uint64_t c, const gyre_run *run,
                             size_t i)
{
    (void)user;
    return 1.0f / (float)(run->tensor + 3) * e_at(1, c, run->at + i);
}

/* What is stored is the product that the next round would take first. */
static void test_kappa_goes_into_what_is_stored(void **state)
{
    world *w = *state;

    fixture_create(&w->f, &w->m, &w->spec, NULL);
    put_all(w->f.store, 1);
    for (size_t i = 0; i < w->m.count; i++)
        w->f.store->residual.kappa[i] = 1.0f / (float)(i + 3);
    commit(w);
    reopen(w);
    expect_each(w->f.store, seed_1_by_kappa, NULL);
    for (size_t i = 0; i < w->m.count; i++)
        assert_true(w->f.store->residual.kappa[i] == 1);
}

static void test_in_place_there_is_one_version(void **state)
{
    world *w = *state;
    const gyre_layout *layout;

    w->spec.in_place = 1;
    fixture_create(&w->f, &w->m, &w->spec, NULL);
    layout = &w->f.store->layout;
    for (uint64_t c = 0; c < layout->train_chunks; c++)
        assert_int_equal(
            gyre_layout_versions(layout, gyre_layout_residual(layout, c)), 1);
    for (uint64_t seed = 1; seed < 4; seed++) {
        put_all(w->f.store, seed);
        good(&w->f, gyre_store_mark_dirty(w->f.store, &w->f.error));
        commit(w);
        reopen(w);
        expect_all(w->f.store, seed);
    }
}

/* The file's bytes; its digest and steps are in them. */
static char *exported(world *w, size_t *bytes)
{
    char file[300];
    struct stat at;
    char *text;
    int fd;

    snprintf(file, sizeof(file), "%s/all.safetensors", w->f.root);
    good(&w->f,
         gyre_store_export(w->f.store, file, 0, NULL, NULL, &w->f.error));
    fd = open(file, O_RDONLY | O_CLOEXEC);
    assert_int_equal(fstat(fd, &at), 0);
    *bytes = (size_t)at.st_size;
    text = malloc(*bytes);
    assert_int_equal(read(fd, text, *bytes), *bytes);
    close(fd);
    return text;
}

static void test_digest_and_export_know_nothing_of_it(void **state)
{
    world *w = *state;
    gyre_store_spec plain = w->spec;
    snapshot before, after;
    size_t bytes[2];
    char *file[2];

    plain.compressor = NULL;
    fixture_create(&w->f, &w->m, &plain, NULL);
    before = snapshot_of(&w->f, &w->m);
    file[0] = exported(w, &bytes[0]);
    fixture_close(&w->f);
    snprintf(w->f.path, sizeof(w->f.path), "%s/with", w->f.root);
    fixture_create(&w->f, &w->m, &w->spec, NULL);
    put_all(w->f.store, 5);
    commit(w);
    after = snapshot_of(&w->f, &w->m);
    expect_same_contents(&before, &after);
    file[1] = exported(w, &bytes[1]);
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(file[0], file[1], bytes[0]);
    free(file[0]);
    free(file[1]);
}

/* ---- another generation ----------------------------------------------- */

static float old_e[64][20 * 1024];

/* By tensor and element, since chunks will be others. */
static void remember(const gyre_store *store)
{
    for (uint64_t c = 0; c < store->layout.train_chunks; c++) {
        size_t cursor = GYRE_RUN_FIRST;
        gyre_run run;

        while (gyre_layout_next_run(&store->layout, c, &cursor, &run)) {
            assert_true(run.index + run.n <= 20 * 1024);
            memcpy(&old_e[run.tensor][run.index], memory_of(store, c) + run.at,
                   run.n * sizeof(float));
        }
    }
}

static float remembered(const void *zeroed, uint64_t c, const gyre_run *run,
                        size_t i)
{
    const bool *zero = zeroed;

    (void)c;
    return zero != NULL && zero[run->tensor]
               ? 0
               : old_e[run->tensor][run->index + i];
}

static void test_a_reshard_carries_it(void **state)
{
    static const struct {
        size_t devices;
        uint64_t chunk;
    } to[] = {{1, 1024}, {3, 8192}, {2, 4096}, {4, 0}};
    world *w = *state;
    uint64_t written;

    w->spec.spill = 1;
    fixture_create(&w->f, &w->m, &w->spec, NULL);
    put_all(w->f.store, 3);
    commit(w);
    remember(w->f.store);
    written = info_of(&w->f).written;
    for (size_t k = 0; k < sizeof(to) / sizeof(*to); k++) {
        gyre_store_spec spec = {.size = sizeof(spec),
                                .chunk_elements = to[k].chunk};

        fixture_close(&w->f);
        fixture_devices(&w->f, &spec, to[k].devices);
        good(&w->f, gyre_store_reshard(w->f.context, w->f.path, &spec, NULL,
                                       NULL, NULL, &w->f.error));
        fixture_open(&w->f, NULL);
        expect_each(w->f.store, remembered, NULL);
        assert_true(info_of(&w->f).spill);
        assert_string_equal(info_of(&w->f).compressor, "topk");
        /* every byte of the new files was written, and is counted */
        assert_true(info_of(&w->f).written > written);
        written = info_of(&w->f).written;
    }
}

/* What was left out of a tensor's gradients belongs to the values it had. */
static void test_an_import_zeroes_it_where_values_are_taken(void **state)
{
    world *w = *state;
    bool zeroed[MODEL_MOST] = {false};
    char file[300];
    fixture other;
    model few = {0};

    fixture_create(&w->f, &w->m, &w->spec, NULL);
    put_all(w->f.store, 4);
    commit(w);
    remember(w->f.store);
    fixture_close(&w->f);
    for (size_t i = 0; i < w->m.count; i++)
        if (i % 3 == 0) {
            zeroed[i] = true;
            model_add(&few, w->m.names[i], w->m.elements[i], 0, 0);
            few.tensors[few.count - 1].rank = w->m.tensors[i].rank;
            memcpy(few.tensors[few.count - 1].shape, w->m.tensors[i].shape,
                   sizeof(few.tensors[0].shape));
        }
    fixture_begin(&other);
    fixture_create(&other, &few, NULL, NULL);
    snprintf(file, sizeof(file), "%s/few.safetensors", w->f.root);
    good(&other,
         gyre_store_export(other.store, file, 1, NULL, NULL, &other.error));
    fixture_end(&other);
    good(&w->f, gyre_store_import(w->f.context, w->f.path, file, NULL, NULL,
                                  NULL, &w->f.error));
    fixture_open(&w->f, NULL);
    expect_each(w->f.store, remembered, zeroed);
    model_free(&few);
}

/* ---- damage ----------------------------------------------------------- */

static void flip(world *w, uint64_t chunk)
{
    const gyre_store *store = w->f.store;
    const gyre_layout *layout = &store->layout;
    off_t at =
        (off_t)gyre_layout_offset(layout, chunk, store->current[chunk].version);
    int fd = open(store->places[layout->places[chunk].device].file,
                  O_RDWR | O_CLOEXEC);
    unsigned char byte;

    assert_int_equal(pread(fd, &byte, 1, at + 5), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at + 5), 1);
    close(fd);
}

typedef struct finding {
    uint64_t chunk;
    size_t count;
    char what[32], text[600];
} finding;

static void take(void *user, const gyre_fsck_problem *problem)
{
    finding *f = user;

    f->count++;
    f->chunk = problem->chunk;
    snprintf(f->what, sizeof(f->what), "%s", problem->what);
    snprintf(f->text, sizeof(f->text), "%.599s", problem->text);
}

static void test_damage_is_told_and_the_whole_store_goes_back(void **state)
{
    world *w = *state;
    gyre_fsck_report report = {.size = sizeof(report)};
    finding found = {0};
    uint64_t chunk;

    fixture_create(&w->f, &w->m, &w->spec, NULL);
    for (uint64_t seed = 1; seed < 3; seed++) {
        put_all(w->f.store, seed);
        commit(w);
    }
    chunk = gyre_layout_residual(&w->f.store->layout, 1);
    flip(w, chunk);
    fixture_close(&w->f);
    good(&w->f, gyre_store_fsck(w->f.context, w->f.path, NULL, 0, take, &found,
                                &report, &w->f.error));
    assert_int_equal(found.count, 1);
    assert_int_equal(found.chunk, chunk);
    assert_string_equal(found.what, "flipped");
    assert_non_null(strstr(found.text, "residual of "));
    assert_true(report.previous_whole);
    good(&w->f, gyre_store_fsck(w->f.context, w->f.path, NULL, GYRE_FSCK_REPAIR,
                                NULL, NULL, &report, &w->f.error));
    assert_true(report.repaired);
    fixture_open(&w->f, NULL);
    expect_all(w->f.store, 1);
    put_all(w->f.store, 7);
    commit(w);
    flip(w, chunk);
    reopen(w); /* an open goes back just so */
    assert_true(info_of(&w->f).fell_back);
    expect_all(w->f.store, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_a_commit_keeps_it_and_an_open_brings_it_back),
        IN_A_WORLD(test_only_what_changed_is_written),
        IN_A_WORLD(test_kappa_goes_into_what_is_stored),
        IN_A_WORLD(test_in_place_there_is_one_version),
        IN_A_WORLD(test_digest_and_export_know_nothing_of_it),
        IN_A_WORLD(test_a_reshard_carries_it),
        IN_A_WORLD(test_an_import_zeroes_it_where_values_are_taken),
        IN_A_WORLD(test_damage_is_told_and_the_whole_store_goes_back),
    };

    return cmocka_run_group_tests_name("store: residual", tests, NULL, NULL);
}
