/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of gradients that are compressed where they are born: from threads at
 * once, and refused without a change to round and store.  Skips without a
 * device.
 */
#include "config.h"

#include "birth.h"

#include "store/store.h"

/* ---- threads ---------------------------------------------------------- */

typedef struct giver {
    gyre_round *round;
    const model *m;
    size_t first; /* of every third piece of every tensor */
} giver;

enum { GIVERS = 3, PIECE = 700 };

static void *give_thirds(void *opaque)
{
    const giver *g = opaque;

    for (size_t i = 0; i < g->m->count; i++) {
        size_t n = (size_t)g->m->elements[i];
        float *all = calloc(n + 1, sizeof(float));
        fixture own = {.error = {GYRE_OK, ""}}; /* for the text alone */

        gradient_fill(5, i, 0, n, all);
        for (size_t at = g->first * PIECE;
             at < n && !(g->m->tensors[i].flags & GYRE_TENSOR_FROZEN);
             at += GIVERS * PIECE)
            good(&own, give_piece(&own, g->round, i, at,
                                  n - at < PIECE ? n - at : PIECE, all + at,
                                  i % 4 != 3 || g->first != 1, 0));
        free(all);
    }
    return NULL;
}

/* Pieces that tear grains apart come from three threads at once, of some
 * tensors a third from the host; the round streams beside. */
static void test_threads_give_pieces(void **state)
{
    snapshot end[2];
    gyre_store_spec spec;
    model m = {0};
    fixture f;

    (void)state;
    model_mixed(&m);
    for (int at_once = 0; at_once < 2; at_once++) {
        pthread_t threads[GIVERS];
        giver givers[GIVERS];
        gyre_round *round;

        fixture_begin(&f);
        spec = spec_of(&m);
        spec.compressor = "quantize";
        spec.chunk_elements = 2048;
        fixture_create(&f, &m, &spec, NULL);
        round = fixture_open_round(&f, NULL);
        for (size_t i = 0; i < GIVERS; i++) {
            givers[i] = (giver){round, &m, i};
            if (!at_once)
                give_thirds(&givers[i]);
            else
                assert_int_equal(
                    pthread_create(&threads[i], NULL, give_thirds, &givers[i]),
                    0);
        }
        for (size_t i = 0; at_once && i < GIVERS; i++)
            pthread_join(threads[i], NULL);
        good(&f, gyre_round_finish(round, NULL, 0, NULL, &f.error));
        assert_non_null(f.store->birth);
        end[at_once] = snapshot_of(&f, &m);
        fixture_end(&f);
    }
    expect_same_contents(&end[0], &end[1]);
    model_free(&m);
}

/* ---- what is refused --------------------------------------------------- */

static gyre_plugin broken;
static gyre_codec_encoder no_program;
static const void *(*good_extension)(const char *id);

static const void *broken_extension(const char *id)
{
    return strcmp(id, GYRE_CODEC_ENCODE) == 0 ? &no_program
                                              : good_extension(id);
}

static const gyre_module *broken_entry(void)
{
    static const gyre_plugin *const plugins[] = {&broken};
    static gyre_module module = {.magic = GYRE_PLUGIN_MAGIC,
                                 .size = sizeof(module),
                                 .abi_major = GYRE_PLUGIN_ABI_MAJOR,
                                 .abi_minor = GYRE_PLUGIN_ABI_MINOR,
                                 .plugins = plugins,
                                 .count = 1};

    module.build = broken.build;
    return &module;
}

/* The error tells tensor, compressor and the compiler's words, and nothing is
 * changed: the same piece may come from the host. */
static void test_an_encoder_that_does_not_build(void **state)
{
    const gyre_plugin *quantize = NULL;
    const float value = 1;
    gyre_store_spec spec;
    gyre_round *round;
    model m = {0};
    fixture f;

    (void)state;
    model_add(&m, "w", 1, 0, 0);
    fixture_begin(&f);
    good(&f, gyre_plugin_find(f.context, GYRE_KIND_COMPRESSOR, "quantize",
                              &quantize, &f.error));
    broken = *quantize;
    broken.name = "broken";
    good_extension = quantize->extension;
    broken.extension = broken_extension;
    no_program =
        (gyre_codec_encoder){sizeof(no_program), "no_such_name = 1;", NULL};
    good(&f, gyre_plugin_add(f.context, broken_entry, &f.error));
    spec = spec_of(&m);
    spec.compressor = "broken";
    fixture_create(&f, &m, &spec, NULL);
    round = fixture_open_round(&f, NULL);
    for (int twice = 0; twice < 2; twice++) {
        expect(&f, give_piece(&f, round, 0, 0, 1, &value, true, 0),
               GYRE_PLUGIN_BAD);
        unit_assert_text(&f.error, "tensor w");
        unit_assert_text(&f.error, "compressor broken, encoder");
        unit_assert_text(&f.error, "no_such_name");
    }
    good(&f, give_piece(&f, round, 0, 0, 1, &value, false, 0));
    good(&f, gyre_round_finish(round, NULL, 0, NULL, &f.error));
    fixture_end(&f);
    model_free(&m);
}

/* A device that is not there spoils nothing for the pieces that are. */
static void test_a_wrong_device_is_told(void **state)
{
    float value = 1;
    gyre_gradient g = {.kind = born.kind, .device = 60, .dtype = GYRE_F32};
    gyre_store_spec spec;
    gyre_round *round;
    model m = {0};
    fixture f;
    void *memory;

    (void)state;
    model_add(&m, "w", 1, 0, 0);
    fixture_begin(&f);
    spec = spec_of(&m);
    spec.compressor = "sign";
    fixture_create(&f, &m, &spec, NULL);
    round = fixture_open_round(&f, NULL);
    g.data = memory = born_make(0, sizeof(value), &value);
    assert_int_not_equal(gyre_round_gradient(round, 0, 0, 1, &g, &f.error),
                         GYRE_OK);
    unit_assert_text(&f.error, "tensor w");
    assert_false(f.store->birth_refused);
    assert_null(f.store->birth);
    g.device = 0;
    good(&f, gyre_round_gradient(round, 0, 0, 1, &g, &f.error));
    born_drop(memory);
    assert_non_null(f.store->birth);
    good(&f, gyre_round_finish(round, NULL, 0, NULL, &f.error));
    fixture_end(&f);
    model_free(&m);
}

/* Every request for memory fails once while pieces come: nothing is changed,
 * and the same piece is taken when it comes again. */
static void test_memory_runs_out(void **state)
{
    gyre_store_spec spec;
    snapshot first = {0};
    model m = {0};
    fixture f;
    uint64_t n;

    (void)state;
    model_mixed(&m);
    fixture_begin(&f);
    spec = spec_of(&m);
    spec.compressor = "topk";
    fixture_create(&f, &m, &spec, NULL);
    for (n = 1;; n++) {
        gyre_round *round = fixture_open_round(&f, NULL);
        bool failed = false;

        f.memory.fail_at = f.memory.requests + n;
        for (size_t i = 0; i < m.count; i++) {
            float g[8] = {1, -2, 3, -4, 5, -6, 7, -8};
            size_t count = m.elements[i] < 8 ? (size_t)m.elements[i] : 8;
            gyre_status status;

            if ((m.tensors[i].flags & GYRE_TENSOR_FROZEN) || count == 0)
                continue;
            status = give_piece(&f, round, i, 0, count, g, true, 0);
            if (status != GYRE_OK) {
                assert_int_equal(status, GYRE_NO_MEMORY);
                assert_false(failed);
                failed = true;
                f.memory.fail_at = 0;
                good(&f, give_piece(&f, round, i, 0, count, g, true, 0));
            }
        }
        f.memory.fail_at = 0;
        good(&f, gyre_round_abort(round, &f.error));
        if (n == 1)
            first = snapshot_of(&f, &m);
        if (!failed)
            break;
        fixture_close(&f); /* and with it the birthplace */
        fixture_open(&f, NULL);
    }
    assert_true(n > 5);
    {
        snapshot last = snapshot_of(&f, &m);

        expect_same_contents(&first, &last);
    }
    fixture_end(&f);
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_give_pieces),
        cmocka_unit_test(test_an_encoder_that_does_not_build),
        cmocka_unit_test(test_a_wrong_device_is_told),
        cmocka_unit_test(test_memory_runs_out),
    };

    return born_run("store: pieces born on a device", tests);
}
