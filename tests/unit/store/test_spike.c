/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error feedback over rounds: one gradient 1,000 times too large, a loss scale
 * that halves, sums that must come out even, and rounds that do not count.
 *
 * The model is STORE.md 2 in double, with plain SGD (p -= lr x):
 *
 *     exact   a = k g + e        x = D(a)      e' = a - D(a)
 *     late    a = g + kappa e    x = k D(a)    e' = a - D(a)   kappa' = k
 *     wrong   a = g + e          x = k D(a)    e' = a - D(a)
 *
 * The wrong one is what comes of clipping at update time and forgetting the
 * residual: what the spike left there comes out later, unclipped.
 */
#include "config.h"

#include "fixture.h"

#include "store/store.h"

enum { ELEMENTS = 3000, ROUNDS = 40, SPIKE = 10 };
static const double clip = 1.0, rate = 0.5, ratio = 0.01;

typedef struct world {
    fixture f;
    model m;
    bool global; /* topk's scope in create */
} world;

static int setup(void **state)
{
    world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    model_add(&w->m, "w", ELEMENTS, 0, 0);
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

static void create(world *w, const char *compressor, double share,
                   gyre_residual residual, double lr)
{
    gyre_store_spec spec = spec_of(&w->m);
    gyre_setting settings[] = {{"lr", lr}, {"weight_decay", 0}};
    gyre_setting part[] = {{"ratio", share}, {"scope", 1}};

    spec.optimizer = "sgd";
    spec.settings = settings;
    spec.setting_count = 2;
    spec.chunk_elements = 1024;
    spec.compressor = compressor;
    spec.compressor_settings = part;
    spec.compressor_setting_count = share > 0 ? 1 + w->global : 0;
    spec.residual = residual;
    spec.spill = 1;
    fixture_devices(&w->f, &spec, 2);
    fixture_create(&w->f, &w->m, &spec, NULL);
}

static void another(world *w, const char *name)
{
    fixture_close(&w->f);
    snprintf(w->f.path, sizeof(w->f.path), "%s/%s", w->f.root, name);
}

/* e as the store has it. */
static void residual_of(const world *w, float *out)
{
    const gyre_store *store = w->f.store;

    for (uint64_t i = 0; i < ELEMENTS; i++) {
        uint64_t chunk = gyre_layout_chunk_of(&store->layout, i / GYRE_GRAIN);

        out[i] = store->residual.e[store->residual.which[chunk]][i] *
                 store->residual.kappa[0];
    }
}

static gyre_round_report round_of(world *w, const float *g,
                                  const gyre_round_options *options)
{
    gyre_round_report report = {.size = sizeof(report)};
    gyre_round *round = fixture_open_round(&w->f, options);

    good(&w->f, give(&w->f, round, 0, 0, ELEMENTS, g));
    good(&w->f, gyre_round_finish(round, NULL, 0, &report, &w->f.error));
    return report;
}

/* ---- the spike -------------------------------------------------------- */

typedef enum rule { EXACT, LATE, WRONG } rule;

typedef struct book {
    rule rule;
    double p[ELEMENTS], e[ELEMENTS], kappa;
} book;

/* Norm 0.5 or so, and 500 in the round of the spike. */
static void gradient_of(size_t round, bool spike, float *g)
{
    for (size_t i = 0; i < ELEMENTS; i++) {
        g[i] = gradient_at(round, 0, i) / 16;
        g[i] += 0.01f * gradient_at(77, 0, i); /* some of it always the same */
        if (spike && round == SPIKE)
            g[i] *= 1000;
    }
}

static double norm_of(const double *x)
{
    double sum = 0;

    for (size_t i = 0; i < ELEMENTS; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static void keep_largest(const double *a, size_t n, bool *kept)
{
    size_t k = (size_t)(ratio * (double)n);

    memset(kept, 0, n * sizeof(*kept));
    for (size_t taken = 0; taken < (k > 0 ? k : 1); taken++) {
        size_t best = n;

        for (size_t i = 0; i < n; i++)
            if (!kept[i] && (best == n || fabs(a[i]) > fabs(a[best])))
                best = i;
        kept[best] = true;
    }
}

static void book_step(book *b, const float *g)
{
    double a[ELEMENTS], x[ELEMENTS], k;
    bool kept[1024];

    for (size_t i = 0; i < ELEMENTS; i++)
        x[i] = g[i];
    k = fmin(1, clip / (norm_of(x) + 1e-6));
    for (size_t i = 0; i < ELEMENTS; i++)
        a[i] = (b->rule == EXACT ? k : 1) * g[i] + b->kappa * b->e[i];
    for (size_t at = 0; at < ELEMENTS; at += 1024) {
        size_t n = ELEMENTS - at < 1024 ? ELEMENTS - at : 1024;

        keep_largest(a + at, n, kept);
        for (size_t i = 0; i < n; i++) {
            double d = kept[i] ? a[at + i] : 0;

            b->e[at + i] = a[at + i] - d;
            b->p[at + i] -= rate * (b->rule == EXACT ? d : k * d);
        }
    }
    b->kappa = b->rule == LATE ? k : 1;
}

static void book_begin(book *b, rule r, const model *m)
{
    const float *data = m->tensors[0].data;

    memset(b, 0, sizeof(*b));
    b->rule = r;
    b->kappa = 1;
    for (size_t i = 0; i < ELEMENTS; i++)
        b->p[i] = data[i];
}

/* Largest distance, in parts of the largest value. */
static double apart(const double *want, const float *have)
{
    double most = 0, off = 0;

    for (size_t i = 0; i < ELEMENTS; i++) {
        most = fmax(most, fabs(want[i]));
        off = fmax(off, fabs(want[i] - (double)have[i]));
    }
    return off / most;
}

/* How far the spike moved the parameters, by a rule. */
static double moved(rule r, const model *m)
{
    static book with, without;
    double d[ELEMENTS];
    float g[ELEMENTS];

    book_begin(&with, r, m);
    book_begin(&without, r, m);
    for (size_t t = 0; t < ROUNDS; t++) {
        gradient_of(t, true, g);
        book_step(&with, g);
        gradient_of(t, false, g);
        book_step(&without, g);
    }
    for (size_t i = 0; i < ELEMENTS; i++)
        d[i] = with.p[i] - without.p[i];
    return norm_of(d);
}

/*
 * The store follows the book (f32 against double: each round rounds a few
 * times, by 2^-24 of the value, and 40 rounds add up to under 1e-5), its
 * residual never grows by more than the clip allows, and the wrong rule would
 * have failed both by a large factor.
 */
static void follow(world *w, bool late)
{
    static book right, wrong;
    float g[ELEMENTS], e[ELEMENTS], p[ELEMENTS];
    double before = 0, now, worst = 0;

    create(w, "topk", ratio, GYRE_RESIDUAL_COMMITTED, rate);
    book_begin(&right, late ? LATE : EXACT, &w->m);
    book_begin(&wrong, WRONG, &w->m);
    for (size_t t = 0; t < ROUNDS; t++) {
        gyre_round_options options = round_options();
        double wide[ELEMENTS];

        options.clip = clip;
        options.late_clip = late;
        gradient_of(t, true, g);
        (void)round_of(w, g, &options);
        book_step(&right, g);
        book_step(&wrong, g);
        residual_of(w, e);
        for (size_t i = 0; i < ELEMENTS; i++)
            wide[i] = right.kappa * right.e[i];
        assert_true(apart(wide, e) < 1e-5);
        for (size_t i = 0; i < ELEMENTS; i++)
            wide[i] = (double)e[i];
        now = norm_of(wide);
        assert_true(now <= before + clip * (1 + 1e-5));
        before = now;
        worst = fmax(worst, norm_of(wrong.e) / now);
    }
    good(&w->f, gyre_store_read(w->f.store, 0, -1, 0, ELEMENTS, GYRE_F32, p,
                                &w->f.error));
    assert_true(apart(right.p, p) < 1e-5);
    assert_true(apart(wrong.p, p) > 1e-1);
    printf("# %s: the wrong rule keeps a residual %.0f times as large, and "
           "moves parameters %.0f times as far\n",
           late ? "late" : "exact", worst,
           moved(WRONG, &w->m) / moved(late ? LATE : EXACT, &w->m));
    assert_true(worst > 50);
    assert_true(moved(WRONG, &w->m) / moved(late ? LATE : EXACT, &w->m) > 10);
}

static void test_a_spike_does_not_leak_exact(void **state)
{
    follow(*state, false);
}

static void test_a_spike_does_not_leak_late(void **state)
{
    follow(*state, true);
}

/* ---- units ------------------------------------------------------------ */

/* In units of the loss scale one halving would count a residual twice. */
static void test_the_loss_scale_leaves_no_trace(void **state)
{
    static const double scales[] = {1024, 1024, 512, 512, 64, 4096, 4096, 1};
    world *w = *state;
    snapshot constant, varied;

    for (int pass = 0; pass < 2; pass++) {
        another(w, pass ? "varied" : "constant");
        create(w, "topk", ratio, GYRE_RESIDUAL_VOLATILE, rate);
        for (size_t t = 0; t < 8; t++) {
            gyre_round_options options = round_options();
            float g[ELEMENTS];

            options.loss_scale = pass ? scales[t] : 256;
            options.clip = t % 2 ? 0.5 : 0;
            options.late_clip = t % 4 == 1;
            gradient_of(t, false, g);
            for (size_t i = 0; i < ELEMENTS; i++)
                g[i] *= (float)options.loss_scale;
            (void)round_of(w, g, &options);
        }
        *(pass ? &varied : &constant) = snapshot_of(&w->f, &w->m);
    }
    expect_same_contents(&constant, &varied);
}

/* ---- sums ------------------------------------------------------------- */

/* Whole numbers under 2^24: what was sent and what is left are what came, to
 * the bit, after every round. */
static void expect_even(world *w, const char *compressor, double share)
{
    double came[ELEMENTS] = {0};
    float start[ELEMENTS], g[ELEMENTS], p[ELEMENTS], e[ELEMENTS];

    another(w, compressor);
    create(w, compressor, share, GYRE_RESIDUAL_COMMITTED, 1);
    for (size_t i = 0; i < ELEMENTS; i++)
        start[i] = ((const float *)w->m.tensors[0].data)[i];
    for (size_t t = 0; t < 12; t++) {
        for (size_t i = 0; i < ELEMENTS; i++) {
            g[i] = truncf(gradient_at(t, 0, i) * 5000);
            came[i] += (double)g[i];
        }
        (void)round_of(w, g, NULL);
        good(&w->f, gyre_store_read(w->f.store, 0, -1, 0, ELEMENTS, GYRE_F32, p,
                                    &w->f.error));
        residual_of(w, e);
        for (size_t i = 0; i < ELEMENTS; i++)
            if ((double)start[i] - (double)p[i] + (double)e[i] != came[i])
                fail_msg("%s, round %zu, element %zu: sent %.9g, left %.9g, "
                         "came %.9g",
                         compressor, t, i, (double)start[i] - (double)p[i],
                         (double)e[i], came[i]);
    }
}

static void test_sums_come_out_even(void **state)
{
    world *w = *state;
    float *data = (float *)(uintptr_t)w->m.tensors[0].data;

    for (size_t i = 0; i < ELEMENTS; i++)
        data[i] = (float)(int)(i % 64);
    expect_even(w, "topk", ratio);
}

/* ---- rounds that do not count ----------------------------------------- */

static void test_rounds_that_do_not_count_leave_the_residual(void **state)
{
    world *w = *state;
    float g[ELEMENTS], before[ELEMENTS], after[ELEMENTS];
    gyre_round_report report;

    for (int how = 0; how < 4; how++) {
        gyre_round_options options = round_options();
        gyre_round *round;
        char name[8];

        snprintf(name, sizeof(name), "h%d", how);
        another(w, name);
        create(w, how == 3 ? "quantize" : "topk", how == 3 ? 0 : ratio,
               how % 2 ? GYRE_RESIDUAL_VOLATILE : GYRE_RESIDUAL_COMMITTED,
               rate);
        options.clip = how == 1 ? 0.1 : 0;
        options.early = how == 2;
        gradient_of(1, false, g);
        (void)round_of(w, g, &options);
        residual_of(w, before);
        g[2500] = how % 2 ? INFINITY : NAN;
        report = round_of(w, g, &options);
        assert_int_equal(report.skipped, 1);
        residual_of(w, after);
        assert_memory_equal(before, after, sizeof(before));
        round = fixture_open_round(&w->f, &options);
        gradient_of(2, false, g);
        good(&w->f, give(&w->f, round, 0, 0, ELEMENTS, g));
        good(&w->f, gyre_round_abort(round, &w->f.error));
        residual_of(w, after);
        assert_memory_equal(before, after, sizeof(before));
        (void)round_of(w, g, &options);
        residual_of(w, after);
        assert_memory_not_equal(before, after, sizeof(before));
    }
}

/* G and e are finite and their sum is not: told, and nothing is changed. */
static void test_an_overflow_is_told(void **state)
{
    world *w = *state;
    fixture *f = &w->f;
    float g[ELEMENTS], before[ELEMENTS], after[ELEMENTS];
    snapshot was, is;

    for (size_t i = 0; i < ELEMENTS; i++)
        g[i] = 3e38f;
    for (int how = 0; how < 3; how++) { /* as it is, early, global */
        gyre_round_options options = round_options();
        gyre_round_report report = {.size = sizeof(report)};
        gyre_round *round;
        char name[8];

        snprintf(name, sizeof(name), "o%d", how);
        another(w, name);
        w->global = how == 2;
        create(w, "topk", ratio, GYRE_RESIDUAL_COMMITTED, 0);
        (void)round_of(w, g, NULL);
        residual_of(w, before);
        was = snapshot_of(f, &w->m);
        options.early = how == 1;
        round = fixture_open_round(f, &options);
        good(f, give(f, round, 0, 0, ELEMENTS, g));
        expect(f, gyre_round_finish(round, NULL, 0, &report, &f->error),
               GYRE_RANGE);
        unit_assert_text(&f->error, "tensor w");
        residual_of(w, after);
        assert_memory_equal(before, after, sizeof(before));
        is = snapshot_of(f, &w->m);
        expect_same_contents(&was, &is);
    }
}

static void test_what_cannot_be_is_refused(void **state)
{
    world *w = *state;
    fixture *f = &w->f;
    gyre_round_options options = round_options();
    gyre_round *round = NULL;

    options.late_clip = 1;
    options.clip = 1;
    fixture_create(f, &w->m, NULL, NULL);
    expect(f, gyre_round_begin(f->store, &options, &round, &f->error),
           GYRE_INVALID);
    unit_assert_text(&f->error, "late_clip");
    assert_null(round);
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_a_spike_does_not_leak_exact),
        IN_A_WORLD(test_a_spike_does_not_leak_late),
        IN_A_WORLD(test_the_loss_scale_leaves_no_trace),
        IN_A_WORLD(test_sums_come_out_even),
        IN_A_WORLD(test_rounds_that_do_not_count_leave_the_residual),
        IN_A_WORLD(test_an_overflow_is_told),
        IN_A_WORLD(test_what_cannot_be_is_refused),
    };

    return cmocka_run_group_tests_name("store: spike", tests, NULL, NULL);
}
