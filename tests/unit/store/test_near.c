/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The near-storage update by the book, and whatever way gradients go.
 *
 * A script is what may change numbers: compressor, residual, clip.  A variant
 * is what may not: devices, chunks, buffers, placement, gradients on storage or
 * in memory, pieces, threads, early updates.  Each script is run in all
 * variants; with topk the first also against a plain-C model of STORE.md 2 that
 * knows nothing of chunks, wire blocks or streams.
 */
#include "config.h"

#include "fixture.h"

enum { ROUNDS = 8, THREADS = 3, NAN_ROUND = 3, ABSENT = 8, LAST_ABSENT = 4 };

typedef struct script {
    const char *compressor;
    gyre_setting settings[3];
    size_t setting_count;
    gyre_residual residual;
    double clip;
    bool late;
    bool barrier; /* no early update */
} script;

typedef struct variant {
    size_t devices;
    uint64_t chunk;
    uint32_t buffers;
    gyre_placement placement;
    bool spill, in_memory;
    bool threads, early;
    uint32_t commit_every;
    bool reopen; /* between all rounds */
    const char *isa;
} variant;

static const variant variants[] = {
    {1, 0, 0, GYRE_NEAR, false, false, false, false, 1, false, NULL},
    {1, 0, 0, GYRE_HOST, false, false, false, false, 1, false, "scalar"},
    {1, 4096, 2, GYRE_NEAR, true, false, false, false, 1, false, NULL},
    {3, 2048, 3, GYRE_NEAR, true, false, true, false, 2, false, NULL},
    {2, 1024, 2, GYRE_HOST, true, false, true, false, 1, false, "avx2"},
    {5, 3072, 1, GYRE_NEAR, true, true, true, false, 1, false, NULL},
    {2, 2048, 2, GYRE_NEAR, true, false, false, true, 1, false, NULL},
    {2, 7168, 4, GYRE_NEAR, false, false, true, true, 3, false, NULL},
    {2, 4096, 2, GYRE_NEAR, true, false, false, false, 1, true, NULL},
};

typedef struct outcome {
    snapshot end;
    double norm[ROUNDS], clipped[ROUNDS], compressed[ROUNDS];
} outcome;

/* ---- the book --------------------------------------------------------- */

typedef struct book {
    oracle o;
    float *e[MODEL_MOST];
    float *a[MODEL_MOST], *kept[MODEL_MOST];
    float kappa[MODEL_MOST];
    double ratio;
} book;

static void book_begin(book *b, const model *m, double ratio)
{
    memset(b, 0, sizeof(*b));
    oracle_begin(&b->o, m);
    b->ratio = ratio;
    for (size_t i = 0; i < m->count; i++) {
        b->e[i] = calloc(m->elements[i] + 1, sizeof(float));
        b->a[i] = calloc(m->elements[i] + 1, sizeof(float));
        b->kept[i] = calloc(m->elements[i] + 1, sizeof(float));
        b->kappa[i] = 1;
        assert_true(b->e[i] != NULL && b->a[i] != NULL && b->kept[i] != NULL);
    }
}

static void book_end(book *b)
{
    for (size_t i = 0; i < b->o.m->count; i++) {
        free(b->e[i]);
        free(b->a[i]);
        free(b->kept[i]);
    }
    oracle_end(&b->o);
}

static size_t part_of(double ratio, uint64_t n)
{
    size_t k = (size_t)(ratio * (double)n);

    return k > 0 ? k : 1;
}

/* The k largest of a block; among equals the first. */
static void keep_largest(const float *a, size_t n, double ratio, float *kept)
{
    for (size_t taken = 0; taken < part_of(ratio, n); taken++) {
        size_t best = n;

        for (size_t i = 0; i < n; i++)
            if (kept[i] == 0 && (best == n || fabsf(a[i]) > fabsf(a[best])))
                best = i;
        if (best == n || a[best] == 0)
            return;
        kept[best] = a[best];
    }
}

static int falling(const void *a, const void *b)
{
    float x = fabsf(*(const float *)a), y = fabsf(*(const float *)b);

    return (x < y) - (x > y);
}

/* The same of all tensors that were given: all above the k-th magnitude, and
 * of those equal to it the first. */
static void keep_largest_of_all(book *b)
{
    const model *m = b->o.m;
    uint64_t n = 0;
    size_t k, above = 0;
    float *all, least;

    for (size_t i = 0; i < m->count; i++)
        n += b->o.given[i] ? m->elements[i] : 0;
    all = malloc(n * sizeof(float) + 1);
    n = 0;
    for (size_t i = 0; i < m->count; i++)
        for (uint64_t j = 0; b->o.given[i] && j < m->elements[i]; j++)
            all[n++] = b->a[i][j];
    qsort(all, n, sizeof(float), falling);
    k = part_of(b->ratio, n);
    least = fabsf(all[k - 1]);
    while (above < k && fabsf(all[above]) > least)
        above++;
    free(all);
    for (size_t i = 0; i < m->count; i++)
        for (uint64_t j = 0; b->o.given[i] && j < m->elements[i]; j++) {
            float x = fabsf(b->a[i][j]);

            if (x > least || (x == least && above < k && ++above))
                b->kept[i][j] = b->a[i][j];
        }
}

static double sum_squares(const float *x, size_t n)
{
    double lane[16] = {0};

    for (size_t i = 0; i < n; i++)
        lane[i % 16] += (double)x[i] * (double)x[i];
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static void book_mix(book *b, size_t i, const script *s, float q)
{
    for (uint64_t j = 0; j < b->o.m->elements[i]; j++) {
        float g = b->o.g[i][j], rest = b->kappa[i] * b->e[i][j];

        b->a[i][j] =
            s->residual == GYRE_RESIDUAL_OFF ? g * q : fmaf(g, q, rest);
        b->kept[i][j] = 0;
    }
}

/* What the optimizer sees takes the place of the gradient.  *sum grows by the
 * squares of what was kept, grain by grain. */
static void book_send(book *b, size_t i, float k, bool late, double *sum)
{
    uint64_t elements = b->o.m->elements[i];

    for (uint64_t at = 0; at < elements; at += 1024)
        *sum +=
            sum_squares(b->kept[i] + at,
                        elements - at < 1024 ? (size_t)(elements - at) : 1024);
    for (uint64_t j = 0; j < elements; j++) {
        float kept = b->kept[i][j];

        b->e[i][j] = b->a[i][j] - kept;
        b->o.g[i][j] = late ? kept * k : kept;
    }
    b->kappa[i] = late ? k : 1;
}

static void book_compress(book *b, const script *s, float q, float k, bool late,
                          double *sum)
{
    const model *m = b->o.m;

    for (size_t i = 0; i < m->count; i++)
        if (b->o.given[i])
            book_mix(b, i, s, q);
    if (s->barrier)
        keep_largest_of_all(b);
    for (size_t i = 0; i < m->count; i++) {
        uint64_t n = m->elements[i];

        if (!b->o.given[i])
            continue;
        for (uint64_t at = 0; !s->barrier && at < n; at += 1024)
            keep_largest(b->a[i] + at, n - at < 1024 ? (size_t)(n - at) : 1024,
                         b->ratio, b->kept[i] + at);
        book_send(b, i, k, late, sum);
    }
}

static void book_step(book *b, const script *s, double scale,
                      double denominator, outcome *out, size_t round)
{
    double norm = oracle_norm(&b->o, scale, denominator), k = 1, sum = 0;
    double inv = 1 / (scale * denominator);
    bool late;

    if (s->clip > 0 && s->clip / (norm + 1e-6) < 1)
        k = s->clip / (norm + 1e-6);
    late = s->late && k < 1;
    out->norm[round] = norm;
    out->clipped[round] = norm * k;
    book_compress(b, s, (float)(late ? inv : inv * k), (float)k, late, &sum);
    out->compressed[round] = sqrt(sum) * (late ? k : 1);
    oracle_step(&b->o, 1, 1, 0);
}

/* ---- rounds ----------------------------------------------------------- */

/* Scales vary, and so does what is in them: a residual that were kept in scaled
 * units, or a clip that came to the wrong place, would show at once. */
static double scale_of(size_t round)
{
    static const double scales[] = {256, 256, 128, 128, 1024, 1, 1024, 4096};

    return scales[round % 8];
}

static uint32_t micro_of(size_t round)
{
    return 1 + round % 3;
}

static bool is_absent(size_t tensor, size_t round, uint32_t micro)
{
    if (tensor == ABSENT)
        return round % 3 == 1 || (round % 3 == 2 && micro == 1);
    return tensor == LAST_ABSENT && micro + 1 == micro_of(round) && micro > 0;
}

/* Times the scale, with a round 1,000 times too large. */
static float element(size_t round, uint32_t micro, size_t tensor,
                     uint64_t index)
{
    float g = gradient_at(100 * round + micro, tensor, index);

    g *= (float)scale_of(round);
    if (round == 4)
        g *= 1000;
    if (round == NAN_ROUND && tensor == 7 - 1 && index == 1000)
        return NAN;
    return g;
}

typedef struct giver {
    gyre_round *round;
    const model *m;
    size_t number;
    uint32_t micro;
    size_t thread, threads;
    gyre_status status;
} giver;

static void *give_pieces(void *arg)
{
    giver *g = arg;
    size_t number = 0;
    float data[900];

    for (size_t i = g->m->count; i-- > 0;)
        for (uint64_t at = 0; at < g->m->elements[i]; at += 900) {
            uint64_t left = g->m->elements[i] - at;
            size_t n = left < 900 ? (size_t)left : 900;
            gyre_gradient piece = {.dtype = GYRE_F32, .data = data};

            if ((g->m->tensors[i].flags & GYRE_TENSOR_FROZEN) ||
                is_absent(i, g->number, g->micro) ||
                number++ % g->threads != g->thread)
                continue;
            for (size_t e = 0; e < n; e++)
                data[e] = element(g->number, g->micro, i, at + e);
            if (g->status == GYRE_OK)
                g->status =
                    gyre_round_gradient(g->round, i, at, n, &piece, NULL);
        }
    return NULL;
}

static void give_micro(fixture *f, gyre_round *round, const model *m,
                       const variant *v, size_t number, uint32_t micro)
{
    size_t n = v->threads ? THREADS : 1;
    pthread_t threads[THREADS];
    giver givers[THREADS];

    for (size_t i = 0; i < m->count; i++)
        if (is_absent(i, number, micro))
            good(f, gyre_round_absent(round, i, &f->error));
    for (size_t t = 0; t < n; t++) {
        givers[t] = (giver){round, m, number, micro, t, n, GYRE_OK};
        assert_int_equal(
            pthread_create(&threads[t], NULL, give_pieces, &givers[t]), 0);
    }
    for (size_t t = 0; t < n; t++) {
        pthread_join(threads[t], NULL);
        assert_int_equal(givers[t].status, GYRE_OK);
    }
}

static void run_round(fixture *f, const model *m, const script *s,
                      const variant *v, size_t r, outcome *out)
{
    gyre_round_options options = round_options();
    gyre_round_report report = {.size = sizeof(report)};
    gyre_round *round;

    options.loss_scale = scale_of(r);
    options.denominator = 3;
    options.micro_batches = micro_of(r);
    options.clip = s->clip;
    options.late_clip = s->late;
    options.early = v->early && s->clip == 0 && !s->barrier;
    round = fixture_open_round(f, &options);
    for (uint32_t k = 0; k < micro_of(r); k++) {
        give_micro(f, round, m, v, r, k);
        if (k + 1 < micro_of(r))
            good(f, gyre_round_next(round, &f->error));
    }
    good(f, gyre_round_finish(round, NULL, 0, &report, &f->error));
    assert_int_equal(report.skipped, r == NAN_ROUND);
    out->norm[r] = report.norm;
    out->clipped[r] = report.norm_clipped;
    out->compressed[r] = report.norm_compressed;
}

static gyre_store_options options_of(const variant *v)
{
    gyre_store_options options = plain_options();

    options.buffers = v->buffers;
    options.placement = v->placement;
    options.gradients_in_memory = v->in_memory;
    options.commit_every = v->commit_every;
    return options;
}

static bool open_variant(fixture *f, const script *s, const model *m,
                         const variant *v)
{
    gyre_store_spec spec = spec_of(m);
    gyre_store_options options = options_of(v);

    if (!fixture_begin_on(f, v->isa))
        return false;
    spec.chunk_elements = v->chunk;
    spec.compressor = s->compressor;
    spec.compressor_settings = s->settings;
    spec.compressor_setting_count = s->setting_count;
    spec.residual = s->residual;
    spec.spill = v->spill;
    spec.seed = 7;
    fixture_devices(f, &spec, v->devices);
    fixture_create(f, m, &spec, &options);
    return true;
}

static bool run_variant(const script *s, const model *m, const variant *v,
                        book *b, outcome *out)
{
    gyre_store_options options = options_of(v);
    fixture f;

    if (!open_variant(&f, s, m, v))
        return false;
    for (size_t r = 0; r < ROUNDS; r++) {
        run_round(&f, m, s, v, r, out);
        if (v->reopen && s->residual != GYRE_RESIDUAL_VOLATILE) {
            fixture_close(&f);
            fixture_open(&f, &options);
        }
    }
    if (b != NULL)
        expect_oracle(&f, &b->o);
    good(&f, gyre_store_commit(f.store, NULL, 0, &f.error));
    fixture_close(&f);
    fixture_open(&f, NULL);
    out->end = snapshot_of(&f, m);
    fixture_end(&f);
    return true;
}

static void run_book(book *b, const model *m, const script *s, outcome *out)
{
    for (size_t r = 0; r < ROUNDS; r++) {
        for (uint32_t k = 0; k < micro_of(r); k++)
            for (size_t i = 0; i < m->count; i++) {
                float *g = malloc(m->elements[i] * sizeof(float) + 1);

                if ((m->tensors[i].flags & GYRE_TENSOR_FROZEN) == 0 &&
                    !is_absent(i, r, k) && r != NAN_ROUND) {
                    for (uint64_t e = 0; e < m->elements[i]; e++)
                        g[e] = element(r, k, i, e);
                    oracle_give(&b->o, i, g);
                }
                free(g);
            }
        if (r != NAN_ROUND)
            book_step(b, s, scale_of(r), 3, out, r);
    }
}

static void expect_norms(const outcome *want, const outcome *have, size_t v)
{
    for (size_t r = 0; r < ROUNDS; r++) {
        if (r == NAN_ROUND)
            continue;
        if (memcmp(&want->norm[r], &have->norm[r], 8) != 0 ||
            memcmp(&want->clipped[r], &have->clipped[r], 8) != 0 ||
            memcmp(&want->compressed[r], &have->compressed[r], 8) != 0)
            fail_msg("variant %zu, round %zu: norms %a %a %a, wanted %a %a %a",
                     v, r, have->norm[r], have->clipped[r], have->compressed[r],
                     want->norm[r], want->clipped[r], want->compressed[r]);
    }
}

/* `ratio` above 0: by the book. */
static void expect_script(const script *s, double ratio)
{
    model m = {0};
    outcome want = {0}, book_norms = {0};
    book b;

    model_mixed(&m);
    if (ratio > 0) {
        book_begin(&b, &m, ratio);
        run_book(&b, &m, s, &book_norms);
    }
    for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
        outcome have = {0};

        if (!run_variant(s, &m, &variants[v], ratio > 0 ? &b : NULL, &have))
            continue;
        if (v == 0)
            want = have;
        expect_norms(ratio > 0 ? &book_norms : &want, &have, v);
        if (strcmp(want.end.digest, have.end.digest) != 0 ||
            want.end.slots != have.end.slots || want.end.step != have.end.step)
            fail_msg("%s, residual %d, clip %g%s, variant %zu: digest %s, "
                     "wanted is %s",
                     s->compressor != NULL ? s->compressor : "none",
                     (int)s->residual, s->clip, s->late ? " late" : "", v,
                     have.end.digest, want.end.digest);
    }
    if (ratio > 0)
        book_end(&b);
    model_free(&m);
}

/* ---- the scripts ------------------------------------------------------ */

static void test_no_compressor(void **state)
{
    script s = {.clip = 0};

    (void)state;
    expect_script(&s, 0);
    s.clip = 0.5;
    expect_script(&s, 0);
}

/* Residuals off, volatile and committed; no clip, exact and late.  As a sample
 * every third, `first` on, so that the codecs together have all of them. */
static void each_way(script s, double ratio, size_t first)
{
    static const gyre_residual residuals[] = {
        GYRE_RESIDUAL_OFF, GYRE_RESIDUAL_VOLATILE, GYRE_RESIDUAL_COMMITTED};
    static const struct {
        double clip;
        bool late;
    } clips[] = {{0, false}, {0.5, false}, {0.5, true}, {1e9, true}};

    for (size_t r = 0; r < 3; r++)
        for (size_t c = 0; c < 4; c++) {
            if (unit_sampled() && (r + c) % 3 != first % 3)
                continue;
            s.residual = residuals[r];
            s.clip = clips[c].clip;
            s.late = clips[c].late;
            expect_script(&s, ratio);
        }
}

static void test_topk_by_the_book(void **state)
{
    script s = {.compressor = "topk",
                .settings = {{"ratio", 0.01}},
                .setting_count = 1};

    (void)state;
    each_way(s, 0.01, 0);
}

static void test_topk_keeps_all(void **state)
{
    script s = {.compressor = "topk",
                .settings = {{"ratio", 1}},
                .setting_count = 1,
                .clip = 0.5};

    (void)state;
    expect_script(&s, 1);
}

static void test_topk_global_by_the_book(void **state)
{
    script s = {.compressor = "topk",
                .settings = {{"ratio", 0.01}, {"scope", 1}},
                .setting_count = 2,
                .barrier = true};

    (void)state;
    each_way(s, 0.01, 1);
}

static void test_quantize(void **state)
{
    script s = {.compressor = "quantize"};

    (void)state;
    each_way(s, 0, 2);
}

static void test_fp8(void **state)
{
    script s = {.compressor = "fp8"};

    (void)state;
    each_way(s, 0, 3);
}

static void test_sign(void **state)
{
    script s = {.compressor = "sign"};

    (void)state;
    each_way(s, 0, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_compressor),
        cmocka_unit_test(test_topk_by_the_book),
        cmocka_unit_test(test_topk_keeps_all),
        cmocka_unit_test(test_topk_global_by_the_book),
        cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_fp8),
        cmocka_unit_test(test_sign),
    };

    return cmocka_run_group_tests_name("store: near", tests, NULL, NULL);
}
