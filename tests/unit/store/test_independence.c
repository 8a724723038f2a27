/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No result depends on devices, chunks, buffers, threads, instruction set,
 * engine or checks: the same rounds give the same digest, slots, steps and
 * norm bits.
 */
#include "config.h"

#include "fixture.h"

enum { ROUNDS = 4, THREADS = 4 };

typedef struct variant {
    const char *isa;
    size_t devices;
    bool weighted;
    uint64_t chunk;
    uint32_t buffers;
    const char *io;
    bool threads;
    bool no_check;
    bool early;
    uint32_t commit_every;
} variant;

static const variant plain = {NULL, 1,     false, 0,     0,
                              NULL, false, false, false, 1};

static const variant variants[] = {
    {"scalar", 1, false, 0, 0, NULL, false, false, false, 1},
    {"avx2", 1, false, 0, 0, NULL, false, false, false, 1},
    {"avx512", 1, false, 0, 0, NULL, false, false, false, 1},
    {NULL, 2, false, 1024, 2, NULL, false, false, false, 1},
    {NULL, 3, true, 2048, 3, "posix", true, false, false, 1},
    {NULL, 5, false, 3072, 8, "uring", true, true, false, 2},
    {NULL, 16, true, 1024, 2, "faulty:posix,reorder=7", true, false, true, 1},
    {NULL, 1, false, 65536, 4, "faulty:uring,reorder=3", false, false, true, 3},
    {NULL, 5, true, 7168, 5, "faulty,short=3,every=5", true, false, false, 1},
    {"scalar", 3, false, 1024, 2, "posix", true, true, true, 1},
    {"avx2", 2, true, 16384, 6, NULL, true, false, true, 4},
};

typedef struct outcome {
    snapshot end;
    double norms[ROUNDS];
} outcome;

/* What gives the optimizer something to do: groups that differ, two micro-
 * batches, a clip, a scale, a tensor that stays away at times. */
typedef struct script {
    const char *optimizer;
    gyre_setting structural;
    size_t structural_count;
    gyre_slot_codec codecs[2];
    size_t codec_count;
} script;

typedef struct giver {
    fixture *f;
    gyre_round *round;
    const model *m;
    uint64_t seed;
    size_t thread;
    bool in_threads;
    gyre_status status;
} giver;

/* Every fourth piece of 777 elements, or all of them. */
static void *give_pieces(void *arg)
{
    giver *g = arg;
    size_t number = 0;
    float data[777];

    for (size_t i = g->m->count; i-- > 0;)
        for (uint64_t at = 0; at < g->m->elements[i]; at += 777) {
            uint64_t left = g->m->elements[i] - at;
            size_t n = left < 777 ? (size_t)left : 777;
            gyre_gradient gradient = {.dtype = GYRE_F32, .data = data};

            if ((g->m->tensors[i].flags & GYRE_TENSOR_FROZEN) ||
                (i == 8 && g->seed % 2) ||
                (g->in_threads && number++ % THREADS != g->thread))
                continue;
            gradient_fill(g->seed, i, at, n, data);
            if (g->status == GYRE_OK)
                g->status =
                    gyre_round_gradient(g->round, i, at, n, &gradient, NULL);
        }
    return NULL;
}

static void give_micro_batch(fixture *f, gyre_round *round, const model *m,
                             const variant *v, uint64_t seed)
{
    pthread_t threads[THREADS];
    giver givers[THREADS];
    size_t n = v->threads ? THREADS : 1;

    if (seed % 2)
        good(f, gyre_round_absent(round, 8, &f->error));
    for (size_t t = 0; t < n; t++) {
        givers[t] = (giver){f, round, m, seed, t, v->threads, GYRE_OK};
        if (v->threads)
            assert_int_equal(
                pthread_create(&threads[t], NULL, give_pieces, &givers[t]), 0);
        else
            (void)give_pieces(&givers[t]);
    }
    for (size_t t = 0; t < n; t++) {
        if (v->threads)
            pthread_join(threads[t], NULL);
        assert_int_equal(givers[t].status, GYRE_OK);
    }
}

static void run_rounds(fixture *f, const model *m, const variant *v,
                       outcome *out)
{
    gyre_setting low = {"lr", 0.002}, high = {"lr", 0.02};
    gyre_group groups[2] = {{&low, 1}, {&high, 1}};
    gyre_round_options options = round_options();

    options.groups = groups;
    options.group_count = 2;
    options.loss_scale = 256;
    options.micro_batches = 2;
    options.denominator = 3;
    for (uint64_t t = 0; t < ROUNDS; t++) {
        gyre_round_report report = {.size = sizeof(report)};
        gyre_round *round;

        options.early = v->early && t % 2;
        options.clip = t % 2 ? 0 : 1e-3;
        round = fixture_open_round(f, &options);
        give_micro_batch(f, round, m, v, 2 * t);
        good(f, gyre_round_next(round, &f->error));
        give_micro_batch(f, round, m, v, t < 2 ? 2 * t + 1 : 20 + t);
        good(f, gyre_round_finish(round, NULL, 0, &report, &f->error));
        assert_int_equal(report.skipped, 0);
        out->norms[t] = report.norm;
    }
    good(f, gyre_store_commit(f->store, NULL, 0, &f->error));
}

/* False when the machine cannot: no such instruction set or engine. */
static bool run_variant(const script *s, const model *m, const variant *v,
                        outcome *out)
{
    fixture f;
    gyre_store_spec spec = spec_of(m);
    gyre_store_options options = plain_options();
    double weights[DEVICES_MOST];
    gyre_status status;

    if (!fixture_begin_on(&f, v->isa))
        return false;
    spec.optimizer = s->optimizer;
    spec.settings = &s->structural;
    spec.setting_count = s->structural_count;
    spec.codecs = s->codecs;
    spec.codec_count = s->codec_count;
    spec.seed = 5;
    spec.chunk_elements = v->chunk;
    fixture_devices(&f, &spec, v->devices);
    for (size_t d = 0; d < DEVICES_MOST; d++)
        weights[d] = 1 + (double)(d % 3);
    spec.weights = v->weighted ? weights : NULL;
    options.buffers = v->buffers;
    options.io = v->io;
    options.no_read_check = v->no_check;
    options.commit_every = v->commit_every;
    status = gyre_store_create(f.context, f.path, &spec, &options, &f.store,
                               &f.error);
    if (status == GYRE_UNSUPPORTED) {
        fixture_end(&f);
        return false;
    }
    good(&f, status);
    run_rounds(&f, m, v, out);
    fixture_close(&f);
    fixture_open(&f, NULL);
    out->end = snapshot_of(&f, m);
    fixture_end(&f);
    return true;
}

static void expect_independent(const script *s)
{
    model m = {0};
    outcome want;

    model_mixed(&m);
    assert_true(run_variant(s, &m, &plain, &want));
    assert_int_equal(want.end.step, ROUNDS);
    for (size_t i = 0; i < sizeof(variants) / sizeof(*variants); i++) {
        outcome have;

        if (!run_variant(s, &m, &variants[i], &have))
            continue;
        if (strcmp(want.end.digest, have.end.digest) != 0 ||
            want.end.slots != have.end.slots || want.end.step != have.end.step)
            fail_msg("%s, variant %zu: digest %s, wanted is %s", s->optimizer,
                     i, have.end.digest, want.end.digest);
        assert_memory_equal(want.norms, have.norms, sizeof(want.norms));
    }
    model_free(&m);
}

#define INDEPENDENT(name, ...)                 \
    static void test_##name(void **state)      \
    {                                          \
        static const script s = {__VA_ARGS__}; \
        (void)state;                           \
        expect_independent(&s);                \
    }

INDEPENDENT(adamw, "adamw", {0}, 0, {{NULL, GYRE_STATE_F32}}, 0)
INDEPENDENT(adamw_amsgrad, "adamw", {"amsgrad", 1}, 1, {{NULL, GYRE_STATE_F32}},
            0)
INDEPENDENT(adam, "adam", {0}, 0, {{NULL, GYRE_STATE_F32}}, 0)
INDEPENDENT(adam_amsgrad, "adam", {"amsgrad", 1}, 1, {{NULL, GYRE_STATE_F32}},
            0)
INDEPENDENT(sgd, "sgd", {0}, 0, {{NULL, GYRE_STATE_F32}}, 0)
INDEPENDENT(sgd_momentum, "sgd", {"momentum", 0.9}, 1, {{NULL, GYRE_STATE_F32}},
            0)
INDEPENDENT(adagrad, "adagrad", {0}, 0, {{NULL, GYRE_STATE_F32}}, 0)
INDEPENDENT(lion, "lion", {0}, 0, {{NULL, GYRE_STATE_F32}}, 0)
INDEPENDENT(bf16, "adamw", {0}, 0,
            {{"parameter", GYRE_STATE_BF16}, {"*", GYRE_STATE_BF16}}, 2)
INDEPENDENT(bf16_stochastic, "adamw", {"amsgrad", 1}, 1,
            {{"parameter", GYRE_STATE_BF16_STOCHASTIC},
             {"*", GYRE_STATE_BF16_STOCHASTIC}},
            2)
INDEPENDENT(q8, "adamw", {0}, 0, {{"*", GYRE_STATE_Q8}}, 1)
INDEPENDENT(all_codecs, "adamw", {0}, 0,
            {{"parameter", GYRE_STATE_BF16_STOCHASTIC},
             {"exp_avg_sq", GYRE_STATE_Q8}},
            2)

/* The comparison sees the smallest change: one element, one bit. */
static void test_digest_sees_a_bit(void **state)
{
    model m = {0};
    char one[GYRE_DIGEST_TEXT], two[GYRE_DIGEST_TEXT];
    fixture f;
    float *data;

    (void)state;
    model_mixed(&m);
    fixture_begin(&f);
    fixture_create(&f, &m, NULL, NULL);
    good(&f, gyre_store_digest(f.store, one, &f.error));
    fixture_close(&f);
    data = (float *)(uintptr_t)m.tensors[8].data;
    data[9216] = nextafterf(data[9216], 10);
    snprintf(f.path, sizeof(f.path), "%s/two", f.root);
    fixture_create(&f, &m, NULL, NULL);
    good(&f, gyre_store_digest(f.store, two, &f.error));
    assert_string_not_equal(one, two);
    fixture_end(&f);
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_adamw_amsgrad),
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_adam_amsgrad),
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_sgd_momentum),
        cmocka_unit_test(test_adagrad),
        cmocka_unit_test(test_lion),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_bf16_stochastic),
        cmocka_unit_test(test_q8),
        cmocka_unit_test(test_all_codecs),
        cmocka_unit_test(test_digest_sees_a_bit),
    };

    return cmocka_run_group_tests_name("store: independence", tests, NULL,
                                       NULL);
}
