/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients on storage: their memory is given back, what is read is what was
 * written, and what goes wrong takes this round alone.
 */
#include "config.h"

#include "fixture.h"

#include "store/store.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { PAGES = 512 };

typedef struct world {
    fixture f;
    model m;
    oracle o;
} world;

static int setup(void **state)
{
    world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    model_add(&w->m, "w", PAGES * 1024, 0, 0);
    model_add(&w->m, "b", 1500, 0, 0);
    fixture_begin(&w->f);
    oracle_begin(&w->o, &w->m);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;

    fixture_end(&w->f);
    oracle_end(&w->o);
    model_free(&w->m);
    free(w);
    return 0;
}

static void create(world *w, const char *compressor, bool in_memory)
{
    gyre_store_spec spec = spec_of(&w->m);
    gyre_store_options options = plain_options();

    spec.chunk_elements = 16 * 1024;
    spec.spill = 1;
    spec.compressor = compressor;
    spec.residual = GYRE_RESIDUAL_OFF;
    options.gradients_in_memory = in_memory;
    options.buffers = 2;
    fixture_devices(&w->f, &spec, 2);
    fixture_create(&w->f, &w->m, &spec, &options);
}

static size_t resident(const gyre_store *store)
{
    unsigned char in[PAGES + 3] = {0};
    size_t count = 0;

    assert_int_equal(store->layout.train_grains, PAGES + 2);
    assert_int_equal(mincore(store->gradients, (PAGES + 2) * 4096, in), 0);
    for (size_t i = 0; i < PAGES + 2; i++)
        count += in[i] & 1;
    return count;
}

static void expect_given_back(world *w, const char *compressor, uint32_t micro)
{
    gyre_round_options options = round_options();
    gyre_round *round;

    options.micro_batches = micro;
    create(w, compressor, false);
    round = fixture_open_round(&w->f, &options);
    for (uint32_t k = 0; k < micro; k++) {
        give_all(&w->f, round, &w->m, k);
        good(&w->f, gyre_round_next(round, &w->f.error));
        if (compressor == NULL || k + 1 == micro)
            assert_int_equal(resident(w->f.store), 0);
    }
    good(&w->f, gyre_round_finish(round, NULL, 0, NULL, &w->f.error));
    assert_int_equal(resident(w->f.store), 0);
}

static void test_pages_are_given_back(void **state)
{
    expect_given_back(*state, NULL, 3);
}

static void test_pages_are_given_back_compressed(void **state)
{
    expect_given_back(*state, "topk", 2);
}

/* Pieces of a grain each, as fast as they can: what waits is bounded by what
 * the devices have buffers for, and a chunk more that is not whole. */
static void test_pieces_wait_for_devices(void **state)
{
    world *w = *state;
    size_t most = 0, bound = (2 * 2 * 2 + 2 * 2 + 2) * 16;
    float g[1024];
    gyre_round *round;

    create(w, NULL, false);
    round = fixture_open_round(&w->f, NULL);
    for (uint64_t at = 0; at < PAGES * 1024; at += 1024) {
        size_t now;

        gradient_fill(1, 0, at, 1024, g);
        good(&w->f, give(&w->f, round, 0, at, 1024, g));
        now = resident(w->f.store);
        most = now > most ? now : most;
    }
    give_tensor(&w->f, round, &w->m, 1, 1);
    good(&w->f, gyre_round_finish(round, NULL, 0, NULL, &w->f.error));
    if (most > bound)
        fail_msg("%zu pages at once, %zu are the bound", most, bound);
    oracle_give_all(&w->o, 1);
    oracle_step(&w->o, 1, 1, 0);
    expect_oracle(&w->f, &w->o);
}

/* ---- what is read is what was written --------------------------------- */

/* Turn a byte of a chunk's region over, or put an older one back. */
static void touch(const world *w, uint64_t chunk, uint8_t *page, bool put)
{
    const gyre_store *store = w->f.store;
    int fd = open(store->places[store->layout.places[chunk].device].file,
                  O_RDWR | O_CLOEXEC);
    off_t at = (off_t)gyre_layout_gradient_offset(&store->layout, chunk);

    assert_true(fd >= 0);
    if (put)
        assert_int_equal(pwrite(fd, page, 4096, at), 4096);
    else
        assert_int_equal(pread(fd, page, 4096, at), 4096);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

static void expect_damage_seen(world *w, const char *compressor)
{
    fixture *f = &w->f;
    uint8_t page[4096], old[4096];
    snapshot before, after;
    gyre_round *round;

    create(w, compressor, false);
    fixture_round(f, &w->m, 1, NULL, NULL);
    touch(w, 5, old, false);
    before = snapshot_of(f, &w->m);
    for (int stale = 0; stale < 2; stale++) {
        round = fixture_open_round(f, NULL);
        give_all(f, round, &w->m, 2);
        good(f, gyre_round_next(round, &f->error));
        touch(w, 5, page, false);
        page[100] ^= 4;
        touch(w, 5, stale ? old : page, true);
        expect(f, gyre_round_finish(round, NULL, 0, NULL, &f->error),
               GYRE_CORRUPT);
        unit_assert_text(&f->error, "gradients of chunk 5");
        after = snapshot_of(f, &w->m);
        expect_same_contents(&before, &after);
    }
    fixture_round(f, &w->m, 2, NULL, NULL);
    assert_int_equal(info_of(f).step, 2);
}

static void test_damage_is_seen(void **state)
{
    expect_damage_seen(*state, NULL);
}

static void test_damage_is_seen_compressed(void **state)
{
    expect_damage_seen(*state, "topk");
}

/* Adding to what is damaged is refused as well; the round can be given up. */
static void test_damage_is_seen_between_micro_batches(void **state)
{
    world *w = *state;
    fixture *f = &w->f;
    gyre_round_options options = round_options();
    snapshot before, after;
    gyre_round *round;
    uint8_t page[4096];

    create(w, NULL, false);
    before = snapshot_of(f, &w->m);
    options.micro_batches = 2;
    round = fixture_open_round(f, &options);
    give_all(f, round, &w->m, 1);
    good(f, gyre_round_next(round, &f->error));
    touch(w, 3, page, false);
    page[0] ^= 1;
    touch(w, 3, page, true);
    give_all(f, round, &w->m, 2);
    expect(f, gyre_round_next(round, &f->error), GYRE_CORRUPT);
    unit_assert_text(&f->error, "gradients of chunk 3");
    expect(f, gyre_round_update(round, NULL, &f->error), GYRE_CORRUPT);
    good(f, gyre_round_abort(round, &f->error));
    after = snapshot_of(f, &w->m);
    expect_same_contents(&before, &after);
    fixture_round(f, &w->m, 1, NULL, NULL);
    oracle_give_all(&w->o, 1);
    oracle_step(&w->o, 1, 1, 0);
    expect_oracle(f, &w->o);
}

/* The room on storage need not be used. */
static void test_memory_when_asked(void **state)
{
    static const char *const compressors[] = {NULL, "topk"};
    world *w = *state;

    for (size_t i = 0; i < 2; i++) {
        gyre_round_report report = {.size = sizeof(report)};

        fixture_close(&w->f);
        snprintf(w->f.path, sizeof(w->f.path), "%s/m%zu", w->f.root, i);
        create(w, compressors[i], true);
        fixture_round(&w->f, &w->m, 1, NULL, &report);
        assert_int_equal(report.ledger.gradient_write, 0);
        assert_int_equal(report.ledger.gradient_read, 0);
        assert_true(report.ledger.gradient_down > 0);
    }
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_pages_are_given_back),
        IN_A_WORLD(test_pages_are_given_back_compressed),
        IN_A_WORLD(test_pieces_wait_for_devices),
        IN_A_WORLD(test_damage_is_seen),
        IN_A_WORLD(test_damage_is_seen_compressed),
        IN_A_WORLD(test_damage_is_seen_between_micro_batches),
        IN_A_WORLD(test_memory_when_asked),
    };

    return cmocka_run_group_tests_name("store: spill", tests, NULL, NULL);
}
