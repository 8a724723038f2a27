/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores whose variables are not all f32: what spec.codecs means, what they
 * take and move, that training is the optimizer's with the rounding of the
 * definition and nothing else, and that they outlive everything a store does.
 */
#include "config.h"

#include "fixture.h"

#include "store/chunk.h"

static const gyre_slot_codec mixed[] = {
    {"*", GYRE_STATE_Q8},
    {"parameter", GYRE_STATE_BF16_STOCHASTIC},
    {"exp_avg", GYRE_STATE_BF16},
};

static gyre_store_spec coded(const model *m, const gyre_slot_codec *codecs,
                             size_t count)
{
    gyre_store_spec spec = spec_of(m);

    spec.codecs = codecs;
    spec.codec_count = count;
    spec.seed = 0xfedcba9876543210u;
    return spec;
}

/* ---- what spec says ----------------------------------------------------- */

static void test_later_entries_win(void **state)
{
    fixture f;
    model m = {0};
    gyre_store_spec spec;

    (void)state;
    model_mixed(&m);
    fixture_begin(&f);
    spec = coded(&m, mixed, 3);
    fixture_create(&f, &m, &spec, NULL);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(gyre_store_codec(f.store, -1),
                         GYRE_STATE_BF16_STOCHASTIC);
        assert_int_equal(gyre_store_codec(f.store, 0), GYRE_STATE_BF16);
        assert_int_equal(gyre_store_codec(f.store, 1), GYRE_STATE_Q8);
        assert_int_equal(gyre_store_codec(f.store, 2), GYRE_STATE_F32);
        assert_int_equal(gyre_store_codec(f.store, -2), GYRE_STATE_F32);
        assert_int_equal(f.store->seed, spec.seed);
        fixture_close(&f);
        fixture_open(&f, NULL);
    }
    assert_string_equal(gyre_state_codec_name(GYRE_STATE_Q8), "q8");
    assert_null(gyre_state_codec_name((gyre_state_codec)17));
    fixture_end(&f);
    model_free(&m);
}

static void expect_refused(const gyre_slot_codec codec, gyre_status want,
                           const char *word)
{
    fixture f;
    model m = {0};
    gyre_store_spec spec;

    model_mixed(&m);
    fixture_begin(&f);
    spec = coded(&m, &codec, 1);
    expect(
        &f,
        gyre_store_create(f.context, f.path, &spec, NULL, &f.store, &f.error),
        want);
    if (strstr(f.error.text, word) == NULL)
        fail_msg("\"%s\" is not in: %s", word, f.error.text);
    f.store = NULL;
    fixture_end(&f);
    model_free(&m);
}

static void test_what_cannot_be_is_refused(void **state)
{
    (void)state;
    expect_refused((gyre_slot_codec){"parameter", GYRE_STATE_Q8},
                   GYRE_PARAMETER, "bf16");
    expect_refused((gyre_slot_codec){"momentum", GYRE_STATE_BF16},
                   GYRE_PARAMETER, "exp_avg_sq");
    expect_refused((gyre_slot_codec){"exp_avg", (gyre_state_codec)9},
                   GYRE_INVALID, "9");
    expect_refused((gyre_slot_codec){NULL, GYRE_STATE_BF16}, GYRE_INVALID,
                   "slot");
}

/* ---- bytes -------------------------------------------------------------- */

/* 2 + 2 + (1 + 4/256) bytes per element, blocks counted in each tensor. */
static void test_bytes_are_those_of_the_codecs(void **state)
{
    fixture f;
    model m = {0};
    gyre_store_spec spec;
    gyre_round_report report = {.size = sizeof(report)};
    uint64_t useful = 0;

    (void)state;
    model_mixed(&m);
    fixture_begin(&f);
    spec = coded(&m, mixed, 3);
    spec.chunk_elements = 2048;
    fixture_create(&f, &m, &spec, NULL);
    for (size_t i = 0; i < m.count; i++)
        if (!(m.tensors[i].flags & GYRE_TENSOR_FROZEN))
            useful += 5 * m.elements[i] + 4 * ((m.elements[i] + 255) / 256);
    fixture_round(&f, &m, 1, NULL, &report);
    assert_int_equal(report.read_bytes, useful);
    assert_int_equal(report.write_bytes, useful);
    for (uint64_t c = 0; c < f.store->layout.train_chunks; c++) {
        uint64_t grains = gyre_layout_chunk_grains(&f.store->layout, c);

        /* 2048 + 2048 + 1040 a grain up to a page, and the label */
        assert_int_equal(gyre_layout_chunk_bytes(&f.store->layout, c),
                         gyre_round_up(grains * 5136, 4096) + 4096);
    }
    fixture_end(&f);
    model_free(&m);
}

/* ---- the arithmetic ------------------------------------------------------ */

static float to_bf16(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &u, sizeof(x));
    return x;
}

static void round_all(oracle *o, bool parameter, bool slots)
{
    for (size_t i = 0; i < o->m->count; i++)
        for (uint64_t k = 0; k < o->m->elements[i]; k++) {
            if (parameter)
                o->p[i][k] = to_bf16(o->p[i][k]);
            if (slots && !(o->m->tensors[i].flags & GYRE_TENSOR_FROZEN)) {
                o->m1[i][k] = to_bf16(o->m1[i][k]);
                o->m2[i][k] = to_bf16(o->m2[i][k]);
            }
        }
}

/* The textbook's update, and then each variable rounded: bit for bit. */
static void expect_rounded_textbook(const gyre_slot_codec *codecs, size_t count,
                                    bool parameter, bool slots)
{
    fixture f;
    model m = {0};
    oracle o;
    gyre_store_spec spec;

    model_mixed(&m);
    fixture_begin(&f);
    oracle_begin(&o, &m);
    spec = coded(&m, codecs, count);
    fixture_create(&f, &m, &spec, NULL);
    round_all(&o, parameter, slots);
    expect_oracle(&f, &o);
    for (uint64_t t = 0; t < 6; t++) {
        fixture_round(&f, &m, t, NULL, NULL);
        oracle_give_all(&o, t);
        oracle_step(&o, 1, 1, 0);
        round_all(&o, parameter, slots);
    }
    expect_oracle(&f, &o);
    oracle_end(&o);
    fixture_end(&f);
    model_free(&m);
}

static void test_a_bf16_master_is_the_textbook_rounded(void **state)
{
    static const gyre_slot_codec codec = {"parameter", GYRE_STATE_BF16};

    (void)state;
    expect_rounded_textbook(&codec, 1, true, false);
}

static void test_bf16_slots_are_the_textbook_rounded(void **state)
{
    static const gyre_slot_codec codec = {"*", GYRE_STATE_BF16};

    (void)state;
    expect_rounded_textbook(&codec, 1, false, true);
}

/*
 * A decay of 1e-4 a round is a fortieth of the last place of a bf16 near 1:
 * to nearest it is lost, by a counter it arrives in the mean.  A round's
 * variance is at most q (1 - q) 2^-16 with q = 1e-4 2^8, so that after 200
 * the mean of 4,096 elements has a deviation of 1.4e-4.
 */
static void test_small_decay_arrives_by_a_counter(void **state)
{
    static const gyre_state_codec codecs[] = {GYRE_STATE_F32, GYRE_STATE_BF16,
                                              GYRE_STATE_BF16_STOCHASTIC};
    gyre_setting settings[] = {{"lr", 1e-3}, {"weight_decay", 0.1}};
    float ones[4096], zeros[4096] = {0};
    double mean[3] = {0};

    (void)state;
    for (size_t i = 0; i < 4096; i++)
        ones[i] = 1;
    for (size_t c = 0; c < 3; c++) {
        gyre_slot_codec codec = {"parameter", codecs[c]};
        gyre_tensor tensor = {"w", 1, 0, 0, {4096}, GYRE_F32, ones};
        gyre_store_spec spec = {.size = sizeof(spec)};
        gyre_store_options options = plain_options();
        float have[4096];
        fixture f;

        fixture_begin(&f);
        spec.tensors = &tensor;
        spec.tensor_count = 1;
        spec.optimizer = "sgd";
        spec.settings = settings;
        spec.setting_count = 2;
        spec.codecs = &codec;
        spec.codec_count = 1;
        options.commit_every = 100;
        good(&f, gyre_store_create(f.context, f.path, &spec, &options, &f.store,
                                   &f.error));
        for (int t = 0; t < 200; t++) {
            gyre_round *round = fixture_open_round(&f, NULL);

            good(&f, give(&f, round, 0, 0, 4096, zeros));
            good(&f, gyre_round_finish(round, NULL, 0, NULL, &f.error));
        }
        good(&f, gyre_store_read(f.store, 0, -1, 0, 4096, GYRE_F32, have,
                                 &f.error));
        for (size_t i = 0; i < 4096; i++)
            mean[c] += (double)have[i] / 4096;
        fixture_end(&f);
    }
    assert_true(fabs(mean[0] - pow(1 - 1e-4, 200)) < 1e-5);
    assert_true(mean[1] == 1);
    assert_true(fabs(mean[2] - mean[0]) < 5 * 1.4e-4);
}

/* What a tensor without a gradient holds is not so much as rounded again. */
static void test_an_absent_tensor_keeps_its_bytes(void **state)
{
    fixture f;
    model m = {0};
    gyre_store_spec spec;
    gyre_round *round;
    float *was[3], *is;
    size_t n;

    (void)state;
    model_mixed(&m);
    fixture_begin(&f);
    spec = coded(&m, mixed, 3);
    fixture_create(&f, &m, &spec, NULL);
    fixture_round(&f, &m, 1, NULL, NULL);
    n = (size_t)m.elements[8];
    is = malloc(n * sizeof(float));
    for (int v = 0; v < 3; v++) {
        was[v] = malloc(n * sizeof(float));
        good(&f, gyre_store_read(f.store, 8, v - 1, 0, n, GYRE_F32, was[v],
                                 &f.error));
    }
    round = fixture_open_round(&f, NULL);
    for (size_t i = 0; i < m.count; i++)
        if (i != 8 && !(m.tensors[i].flags & GYRE_TENSOR_FROZEN))
            give_tensor(&f, round, &m, i, 2);
    good(&f, gyre_round_absent(round, 8, &f.error));
    good(&f, gyre_round_finish(round, NULL, 0, NULL, &f.error));
    for (int v = 0; v < 3; v++) {
        good(&f,
             gyre_store_read(f.store, 8, v - 1, 0, n, GYRE_F32, is, &f.error));
        assert_memory_equal(is, was[v], n * sizeof(float));
        free(was[v]);
    }
    free(is);
    fixture_end(&f);
    model_free(&m);
}

/* Padding is zero after training, byte for byte. */
static void test_padding_stays_zero(void **state)
{
    fixture f;
    model m = {0};
    gyre_store_spec spec;

    (void)state;
    model_mixed(&m);
    fixture_begin(&f);
    spec = coded(&m, mixed, 3);
    fixture_create(&f, &m, &spec, NULL);
    for (uint64_t t = 0; t < 3; t++)
        fixture_round(&f, &m, t, NULL, NULL);
    for (uint64_t c = 0; c < f.store->layout.chunks; c++) {
        gyre_var vars[GYRE_STORE_VARS];
        uint32_t count = gyre_layout_all_vars(&f.store->layout, c, vars);
        size_t cursor = GYRE_RUN_FIRST;
        gyre_run run;

        good(&f, gyre_store_peek(f.store, c, &f.error));
        while (gyre_layout_next_run(&f.store->layout, c, &cursor, &run))
            for (uint32_t v = 0; v < count; v++) {
                size_t width = vars[v].codec == GYRE_STATE_Q8 ? 1 : 2;
                size_t used = run.n % GYRE_GRAIN;
                const uint8_t *last =
                    f.store->peek + vars[v].at +
                    (run.at + run.n - 1) / GYRE_GRAIN * vars[v].stride;

                for (size_t i = used * width;
                     used > 0 && i < GYRE_GRAIN * width; i++)
                    assert_int_equal(last[i], 0);
            }
    }
    fixture_end(&f);
    model_free(&m);
}

/* ---- whatever a store goes through --------------------------------------- */

static void rounds(fixture *f, const model *m, uint64_t from, uint64_t to)
{
    for (uint64_t t = from; t < to; t++)
        fixture_round(f, m, t, NULL, NULL);
}

/* Fifty rounds at one go, and with a reshard, a reopening, and an export and
 * import in between. */
static void test_fifty_rounds_with_everything_between(void **state)
{
    fixture f;
    model m = {0};
    gyre_store_spec spec, other = {.size = sizeof(other)};
    snapshot straight, bent;
    char file[224];

    (void)state;
    model_mixed(&m);
    fixture_begin(&f);
    spec = coded(&m, mixed, 3);
    fixture_create(&f, &m, &spec, NULL);
    rounds(&f, &m, 0, 50);
    straight = snapshot_of(&f, &m);
    fixture_close(&f);

    snprintf(f.path, sizeof(f.path), "%s/two", f.root);
    snprintf(file, sizeof(file), "%s/out.safetensors", f.root);
    fixture_create(&f, &m, &spec, NULL);
    rounds(&f, &m, 0, 13);
    fixture_close(&f);
    fixture_devices(&f, &other, 3);
    other.chunk_elements = 3072;
    good(&f, gyre_store_reshard(f.context, f.path, &other, NULL, NULL, NULL,
                                &f.error));
    fixture_open(&f, NULL);
    rounds(&f, &m, 13, 30);
    good(&f, gyre_store_export(f.store, file, 0, NULL, NULL, &f.error));
    rounds(&f, &m, 90, 92); /* what the import takes back */
    fixture_close(&f);
    good(&f, gyre_store_import(f.context, f.path, file, NULL, NULL, NULL,
                               &f.error));
    fixture_open(&f, NULL);
    rounds(&f, &m, 30, 50);
    bent = snapshot_of(&f, &m);
    assert_string_equal(straight.digest, bent.digest);
    assert_int_equal(straight.slots, bent.slots);
    assert_int_equal(straight.step, bent.step);
    fixture_end(&f);
    model_free(&m);
}

static void test_the_seed_decides(void **state)
{
    fixture f;
    model m = {0};
    char digest[3][GYRE_DIGEST_TEXT];

    (void)state;
    model_mixed(&m);
    fixture_begin(&f);
    for (int k = 0; k < 3; k++) {
        gyre_store_spec spec = coded(&m, mixed, 3);

        spec.seed = k == 1 ? 8 : 7;
        snprintf(f.path, sizeof(f.path), "%s/s%d", f.root, k);
        fixture_create(&f, &m, &spec, NULL);
        rounds(&f, &m, 0, 2);
        good(&f, gyre_store_digest(f.store, digest[k], &f.error));
        fixture_close(&f);
    }
    assert_string_not_equal(digest[0], digest[1]);
    assert_string_equal(digest[0], digest[2]);
    fixture_end(&f);
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_later_entries_win),
        cmocka_unit_test(test_what_cannot_be_is_refused),
        cmocka_unit_test(test_bytes_are_those_of_the_codecs),
        cmocka_unit_test(test_a_bf16_master_is_the_textbook_rounded),
        cmocka_unit_test(test_bf16_slots_are_the_textbook_rounded),
        cmocka_unit_test(test_small_decay_arrives_by_a_counter),
        cmocka_unit_test(test_an_absent_tensor_keeps_its_bytes),
        cmocka_unit_test(test_padding_stays_zero),
        cmocka_unit_test(test_fifty_rounds_with_everything_between),
        cmocka_unit_test(test_the_seed_decides),
    };

    return cmocka_run_group_tests_name("store: codecs", tests, NULL, NULL);
}
