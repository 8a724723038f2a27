/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients compressed where they are born: in memory of a device.
 *
 * A script is what may change numbers: compressor, residual, clip.  A way is
 * what may not: all tensors from the host, all from the device, or now from
 * here and now from there, in pieces, with the store opened again in between.
 * Contents, digests and the bits of all norms are those of the host's way, and
 * the ledger counts what crossed.  Skips without a device.
 */
#include "config.h"

#include "birth.h"

#include "store/store.h"

enum { ROUNDS = 7, SPOILT = 2, SPIKE = 3, ABSENT = 8, PAUSED = 6 };

typedef struct script {
    const char *compressor;
    gyre_setting settings[4];
    size_t setting_count;
    gyre_residual residual;
    double clip;
    bool late, early, spill;
} script;

static const script scripts[] = {
    {.compressor = "quantize", .clip = 0.5},
    {.compressor = "quantize",
     .settings = {{"bits", 4}, {"rounding", 1}, {"block", 64}},
     .setting_count = 3,
     .residual = GYRE_RESIDUAL_VOLATILE,
     .clip = 0.5,
     .late = true,
     .spill = true},
    {.compressor = "quantize",
     .settings = {{"map", 1}},
     .setting_count = 1,
     .residual = GYRE_RESIDUAL_OFF,
     .early = true},
    {.compressor = "quantize",
     .settings = {{"map", 1}, {"bits", 4}, {"rounding", 1}, {"block", 1024}},
     .setting_count = 4},
    {.compressor = "quantize",
     .settings = {{"map", 1}, {"rounding", 1}, {"block", 32}},
     .setting_count = 3,
     .clip = 2,
     .late = true},
    {.compressor = "fp8", .clip = 0.5},
    {.compressor = "fp8",
     .settings = {{"format", 1}, {"block", 64}},
     .setting_count = 2,
     .residual = GYRE_RESIDUAL_VOLATILE,
     .early = true},
    {.compressor = "sign", .clip = 0.5, .late = true, .spill = true},
    {.compressor = "sign",
     .settings = {{"block", 32}},
     .setting_count = 1,
     .residual = GYRE_RESIDUAL_OFF},
    {.compressor = "topk", .clip = 0.5},
    {.compressor = "topk",
     .settings = {{"ratio", 0.05}, {"values", 1}, {"indices", 1}},
     .setting_count = 3,
     .residual = GYRE_RESIDUAL_VOLATILE,
     .late = true,
     .clip = 0.5,
     .spill = true},
    {.compressor = "topk",
     .settings = {{"ratio", 0.3}, {"values", 1}, {"block", 32}},
     .setting_count = 3},
    {.compressor = "topk",
     .settings = {{"ratio", 1}, {"indices", 1}, {"block", 256}},
     .setting_count = 3,
     .residual = GYRE_RESIDUAL_OFF,
     .early = true},
};
enum { SCRIPTS = sizeof(scripts) / sizeof(scripts[0]) };

typedef enum way { HERE, BORN, BOTH, WAYS } way;

typedef struct outcome {
    snapshot end;
    gyre_round_report report[ROUNDS];
    gyre_ledger ledger;
    uint64_t grains_of_round[ROUNDS]; /* that had a gradient */
    uint64_t grains;                  /* in all that were not skipped */
    uint64_t born_memory;
} outcome;

/* ---- pieces ----------------------------------------------------------- */

/* Whole, or the second half first and each half from elsewhere. */
static void give_all_of(fixture *f, gyre_round *round, const model *m,
                        size_t tensor, uint64_t seed, float scale, way w)
{
    size_t n = (size_t)m->elements[tensor], half = n / 2;
    uint64_t turn = (seed + tensor) % 5;
    float *g = calloc(n, sizeof(float));

    gradient_fill(seed, tensor, 0, n, g);
    for (size_t i = 0; i < n; i++)
        g[i] *= scale;
    if (w != BOTH || turn < 2) {
        good(f, give_piece(f, round, tensor, 0, n, g,
                           w == BORN || (w == BOTH && turn == 0), 0));
    } else {
        int where = turn == 4 ? 1 : 0;

        good(f, give_piece(f, round, tensor, half, n - half, g + half,
                           turn == 2, 0));
        if (half > 0)
            good(f, give_piece(f, round, tensor, 0, half, g, turn > 2, where));
        assert_int_equal(give_piece(f, round, tensor, 0, 1, g, turn == 2, 0),
                         GYRE_DUPLICATE);
    }
    free(g);
}

/* ---- rounds ----------------------------------------------------------- */

/* The script of a round: which tensors come in which micro-batch. */
static bool comes(size_t tensor, int r, uint32_t micro)
{
    if (tensor == ABSENT && r == 4)
        return false;
    return !(tensor == ABSENT - 1 && r % 2 == 1 && micro == 1);
}

static void fill_round(fixture *f, gyre_round *round, const model *m, int r,
                       uint32_t micros, way w)
{
    for (uint32_t k = 0; k < micros; k++) {
        for (size_t i = 0; i < m->count; i++) {
            uint64_t seed = (uint64_t)r * 16 + k + 1;
            float scale = r == SPIKE && i == 3 ? 1000.0f : 1.0f;

            if ((m->tensors[i].flags & GYRE_TENSOR_FROZEN) ||
                m->elements[i] == 0)
                continue;
            if (r == SPOILT && i == 4 && k + 1 == micros)
                scale = INFINITY;
            if (comes(i, r, k))
                give_all_of(f, round, m, i, seed, scale, w);
            else
                good(f, gyre_round_absent(round, i, &f->error));
        }
        if (k + 1 < micros)
            good(f, gyre_round_next(round, &f->error));
    }
}

static uint64_t grains_of(uint64_t elements)
{
    return (elements + GYRE_GRAIN - 1) / GYRE_GRAIN;
}

static void one_round(fixture *f, const model *m, const script *s, int r, way w,
                      outcome *out)
{
    gyre_round_options options = round_options();
    gyre_round_report *report = &out->report[r];
    gyre_round *round;

    options.clip = s->clip;
    options.late_clip = s->late;
    options.early = s->early;
    options.micro_batches = r % 2 == 1 ? 2 : 1;
    options.loss_scale = r == 5 ? 8 : 4;
    round = fixture_open_round(f, &options);
    if (r == 5) { /* begun, given up, and begun again */
        give_all_of(f, round, m, 3, 99, 1, w);
        good(f, gyre_round_abort(round, &f->error));
        round = fixture_open_round(f, &options);
    }
    fill_round(f, round, m, r, options.micro_batches, w);
    report->size = sizeof(*report);
    good(f, gyre_round_finish(round, NULL, 0, report, &f->error));
    assert_int_equal(report->skipped, r == SPOILT);
    for (size_t i = 0; i < m->count; i++)
        if (!(m->tensors[i].flags & GYRE_TENSOR_FROZEN) && comes(i, r, 0))
            out->grains_of_round[r] += grains_of(m->elements[i]);
    out->grains += r != SPOILT ? out->grains_of_round[r] : 0;
}

static outcome run(const model *m, const script *s, way w, uint32_t every)
{
    gyre_store_spec spec = spec_of(m);
    gyre_store_options options = plain_options();
    gyre_store_plan plan = {.size = sizeof(plan)};
    outcome out = {0};
    fixture f;

    fixture_begin(&f);
    fixture_devices(&f, &spec, 2);
    spec.chunk_elements = w == HERE ? 2048 : w == BORN ? 16384 : 4096;
    spec.compressor = s->compressor;
    spec.compressor_settings = s->settings;
    spec.compressor_setting_count = s->setting_count;
    spec.residual = s->residual;
    spec.spill = s->spill;
    spec.seed = 7;
    options.commit_every = every;
    good(&f, gyre_store_make_plan(f.context, &spec, &options, &plan, &f.error));
    out.born_memory = plan.born_memory_bytes;
    fixture_create(&f, m, &spec, &options);
    for (int r = 0; r < ROUNDS; r++) {
        if (r == PAUSED && w == BOTH && s->residual != GYRE_RESIDUAL_VOLATILE) {
            good(&f, gyre_store_commit(f.store, NULL, 0, &f.error));
            fixture_close(&f);
            fixture_open(&f, &options);
        }
        one_round(&f, m, s, r, w, &out);
    }
    good(&f, gyre_store_ledger(f.store, &out.ledger, &f.error));
    assert_int_equal(f.store->birth != NULL, w != HERE);
    out.end = snapshot_of(&f, m);
    fixture_end(&f);
    return out;
}

/* ---- what must be ----------------------------------------------------- */

static void same_bits(double a, double b, const char *what, int r)
{
    if (memcmp(&a, &b, sizeof(a)) != 0 && !(isnan(a) && isnan(b)))
        fail_msg("%s of round %d: %a, not %a", what, r, b, a);
}

static void expect_same(const outcome *want, const outcome *have)
{
    for (int r = 0; r < ROUNDS; r++) {
        const gyre_round_report *a = &want->report[r], *b = &have->report[r];

        same_bits(a->norm, b->norm, "norm", r);
        same_bits(a->norm_clipped, b->norm_clipped, "norm_clipped", r);
        same_bits(a->norm_compressed, b->norm_compressed, "norm_compressed", r);
    }
    expect_same_contents(&want->end, &have->end);
}

/* By the formula: payloads, 8 bytes a grain for the norm before and 8 for the
 * one after compression, and of the residual what is committed.  A skipped
 * round has leaves, and where it streams some of it was compressed. */
static void expect_ledger(const outcome *o, const model *m, const script *s)
{
    const bool streams = s->late || s->early || s->clip == 0;
    const gyre_ledger *l = &o->ledger;
    uint64_t leaves = 2 * o->grains, all = 0;

    for (size_t i = 0; i < m->count; i++)
        if (!(m->tensors[i].flags & GYRE_TENSOR_FROZEN))
            all += grains_of(m->elements[i]);
    assert_int_equal(l->born_gradient, 0);
    assert_int_equal(l->born_residual, s->residual == GYRE_RESIDUAL_COMMITTED
                                           ? l->residual_down
                                           : 0);
    assert_true(l->born_leaves >= 8 * (leaves + all));
    assert_true(l->born_leaves <= 8 * (leaves + (streams ? 2 : 1) * all));
    assert_true(l->born_payload > 0);
    assert_true(l->born_payload >= l->gradient_down);
    if (!streams)
        assert_int_equal(l->born_payload, l->gradient_down);
    for (int r = 0; r < ROUNDS; r++) {
        const gyre_ledger *one = &o->report[r].ledger;

        if (r == SPOILT)
            continue;
        assert_int_equal(one->born_payload, one->gradient_down);
        assert_int_equal(one->born_leaves, 16 * o->grains_of_round[r]);
    }
}

static void test_same_bits_wherever_they_are_born(void **state)
{
    model m = {0};

    (void)state;
    model_mixed(&m);
    for (int i = 0; i < SCRIPTS; i++) {
        uint32_t every = i % 3 == 0 ? 1 : 4;
        outcome here = run(&m, &scripts[i], HERE, 4);
        outcome away = run(&m, &scripts[i], BORN, every);
        outcome both = run(&m, &scripts[i], BOTH, 4);

        assert_int_equal(here.ledger.born_payload, 0);
        assert_true(here.born_memory > 0);
        expect_same(&here, &away);
        expect_ledger(&away, &m, &scripts[i]);
        expect_same(&here, &both);
        assert_true(both.ledger.born_payload > 0);
        assert_true(both.ledger.born_gradient > 0);
    }
    model_free(&m);
}

/* ---- what cannot be done there ---------------------------------------- */

/* One round from the device; every element of it is copied to the host. */
static void test_a_codec_without_an_encoder(void **state)
{
    static const script global = {.compressor = "topk",
                                  .settings = {{"scope", 1}, {"ratio", 0.1}},
                                  .setting_count = 2};
    gyre_store_spec spec;
    model m = {0};
    outcome out = {0};
    fixture f;

    (void)state;
    model_mixed(&m);
    for (int side = HERE; side <= BORN; side++) {
        fixture_begin(&f);
        spec = spec_of(&m);
        spec.compressor = global.compressor;
        spec.compressor_settings = global.settings;
        spec.compressor_setting_count = global.setting_count;
        fixture_create(&f, &m, &spec, NULL);
        one_round(&f, &m, &global, 0, (way)side, &out);
        one_round(&f, &m, &global, 1, (way)side, &out);
        good(&f, gyre_store_ledger(f.store, &out.ledger, &f.error));
        assert_int_equal(f.store->birth_refused, side == BORN);
        assert_null(f.store->birth);
        assert_int_equal(out.ledger.born_payload, 0);
        assert_true((out.ledger.born_gradient > 0) == (side == BORN));
        if (side == HERE) {
            out.end = snapshot_of(&f, &m);
        } else {
            snapshot end = snapshot_of(&f, &m);

            expect_same_contents(&out.end, &end);
        }
        fixture_end(&f);
    }
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_wherever_they_are_born),
        cmocka_unit_test(test_a_codec_without_an_encoder),
    };

    return born_run("store: compressed where born", tests);
}
