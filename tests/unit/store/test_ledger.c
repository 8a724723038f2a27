/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger against the closed formulas, to the byte, and against a recorder
 * below the store; what a device may still take, and a budget that ends it.
 */
#include "config.h"

#include "fixture.h"

#include "io/io.h"

typedef struct world {
    fixture f;
    model m;
    gyre_io_recorder *recorder;
    float *out[MODEL_MOST];
} world;

static int setup(void **state)
{
    world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    fixture_begin(&w->f);
    good(&w->f, gyre_io_recorder_create(w->f.context, &w->recorder, NULL));
    model_mixed(&w->m);
    for (size_t i = 0; i < w->m.count; i++)
        w->out[i] = calloc(w->m.elements[i] + 1, sizeof(float));
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;

    fixture_close(&w->f);
    gyre_io_recorder_destroy(w->recorder);
    fixture_end(&w->f);
    for (size_t i = 0; i < MODEL_MOST;
         i++) /* a test may have made the model smaller */
        free(w->out[i]);
    model_free(&w->m);
    free(w);
    return 0;
}

static uint64_t recorded_writes(const world *w, size_t from)
{
    uint64_t bytes = 0;

    for (size_t i = from; i < gyre_io_recorder_count(w->recorder); i++) {
        const gyre_io_event *event = gyre_io_recorder_at(w->recorder, i);

        /* The recorder sees manifest and journal too: no flash of devices. */
        if (event->kind == GYRE_IO_WRITE_START &&
            strstr(event->file, "manifest.json") == NULL &&
            strstr(event->file, "changing") == NULL)
            bytes += event->bytes;
    }
    return bytes;
}

/* ---- rows ------------------------------------------------------------- */

typedef struct row {
    const char *optimizer;
    gyre_setting structural;
    size_t structural_count;
    uint64_t vars;
    gyre_dtype dtype; /* of parameters back */
    gyre_placement placement;
    bool spill;
    uint32_t micro_batches;
    const char *compressor; /* topk, or NULL */
    gyre_residual residual;
    double clip;
    bool late;
    uint32_t commit_every;
} row;

/* Bytes of what topk keeps of n elements: an index and a value each. */
static uint64_t kept_bytes(uint64_t n)
{
    uint64_t bytes = 0;

    for (; n > 0; n -= n < 1024 ? n : 1024) {
        uint64_t k = (uint64_t)(0.01 * (double)(n < 1024 ? n : 1024));

        bytes += 8 * (k > 0 ? k : 1);
    }
    return bytes;
}

static uint64_t payload_of(const world *w)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < w->m.count; i++)
        if ((w->m.tensors[i].flags & GYRE_TENSOR_FROZEN) == 0)
            bytes += kept_bytes(w->m.elements[i]);
    return bytes;
}

/* STORE.md 4, for n elements in every one of `micro_batches`. */
static gyre_ledger formula(const world *w, const row *r)
{
    uint64_t n = model_trainable(&w->m), state = 4 * r->vars * n;
    bool near = r->placement == GYRE_NEAR;
    bool held = r->compressor != NULL && r->clip > 0 && !r->late;
    uint64_t g = r->compressor != NULL ? payload_of(w) : 4 * n;
    uint64_t m = r->compressor != NULL ? 1 : r->micro_batches;
    gyre_ledger l = {.rounds = 1, .elements = n};

    l.state_read = l.state_write = state;
    if (r->spill && !held) {
        l.gradient_down = m * g;
        l.gradient_write = m * g;
        l.gradient_read = m * g; /* m - 1 to add, one to update */
        l.gradient_up = near ? 0 : m * g;
    } else {
        l.gradient_down = near ? g : 0;
    }
    if (near) {
        l.parameter_up = gyre_dtype_bytes(r->dtype) * n;
    } else {
        l.state_up = l.state_down = state;
    }
    if (r->compressor != NULL && r->residual == GYRE_RESIDUAL_COMMITTED &&
        r->commit_every <= 1)
        l.residual_down = 4 * n;
    return l;
}

static void expect_formula(const gyre_ledger *have, const gyre_ledger *want)
{
    assert_int_equal(have->rounds, want->rounds);
    assert_int_equal(have->elements, want->elements);
    assert_int_equal(have->gradient_down, want->gradient_down);
    assert_int_equal(have->state_down, want->state_down);
    assert_int_equal(have->parameter_up, want->parameter_up);
    assert_int_equal(have->gradient_up, want->gradient_up);
    assert_int_equal(have->state_up, want->state_up);
    assert_int_equal(have->state_read, want->state_read);
    assert_int_equal(have->gradient_read, want->gradient_read);
    assert_int_equal(have->state_write, want->state_write);
    assert_int_equal(have->gradient_write, want->gradient_write);
    assert_int_equal(have->residual_down, want->residual_down);
}

static gyre_ledger run_row(world *w, const row *r)
{
    fixture *f = &w->f;
    gyre_store_spec spec = spec_of(&w->m);
    gyre_store_options options = plain_options();
    gyre_round_options how = round_options();
    gyre_round_report report = {.size = sizeof(report)};
    gyre_setting ratio = {"ratio", 0.01};
    gyre_ledger want = formula(w, r), sum;
    gyre_round *round;
    size_t from;

    spec.optimizer = r->optimizer;
    spec.settings = &r->structural;
    spec.setting_count = r->structural_count;
    spec.chunk_elements = 4096;
    spec.spill = r->spill;
    spec.compressor = r->compressor;
    spec.compressor_settings = &ratio;
    spec.compressor_setting_count = r->compressor != NULL;
    spec.residual = r->residual;
    options.recorder = w->recorder;
    options.placement = r->placement;
    options.commit_every = r->commit_every;
    fixture_devices(f, &spec, 3);
    fixture_create(f, &w->m, &spec, &options);
    for (size_t i = 0; i < w->m.count; i++)
        good(f, gyre_store_bind(f->store, i, r->dtype, w->out[i], &f->error));
    from = gyre_io_recorder_count(w->recorder);
    how.micro_batches = r->micro_batches;
    how.clip = r->clip;
    how.late_clip = r->late;
    round = fixture_open_round(f, &how);
    for (uint32_t k = 0; k < r->micro_batches; k++) {
        give_all(f, round, &w->m, k);
        good(f, gyre_round_next(round, &f->error));
    }
    good(f, gyre_round_finish(round, NULL, 0, &report, &f->error));
    expect_formula(&report.ledger, &want);
    assert_int_equal(report.ledger.flash_bytes, recorded_writes(w, from));
    assert_int_equal(report.ledger.device_write_bytes,
                     want.state_write + want.gradient_write);
    assert_int_equal(report.ledger.host_bytes,
                     want.gradient_down + want.gradient_up + want.state_down +
                         want.state_up + want.parameter_up);
    good(f, gyre_store_ledger(f->store, &sum, &f->error));
    assert_int_equal(sum.host_bytes, report.ledger.host_bytes);
    fixture_close(f);
    snprintf(f->path, sizeof(f->path), "%s/%p-%d", f->root, (const void *)r,
             rand());
    return report.ledger;
}

static double per_parameter(const gyre_ledger *l)
{
    return (double)l->host_bytes / (double)l->elements;
}

/* Adam 32 and 24 on the host, 8 near; SGD with momentum and AdaGrad 24 and 16,
 * 8 near; two bytes less with 16-bit parameters back. */
static void test_raw_rows(void **state)
{
    static const struct {
        const char *name;
        gyre_setting structural;
        size_t count;
        uint64_t vars;
    } optimizers[] = {{"adam", {0}, 0, 3},
                      {"sgd", {"momentum", 0.9}, 1, 2},
                      {"adagrad", {0}, 0, 2}};
    world *w = *state;

    for (size_t o = 0; o < 3; o++)
        for (int spill = 0; spill < 2; spill++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                row r = {.optimizer = optimizers[o].name,
                         .structural = optimizers[o].structural,
                         .structural_count = optimizers[o].count,
                         .vars = optimizers[o].vars,
                         .dtype = bf16 ? GYRE_BF16 : GYRE_F32,
                         .spill = spill != 0,
                         .micro_batches = 1};
                gyre_ledger l = run_row(w, &r);

                assert_true(per_parameter(&l) == (bf16 ? 6 : 8));
                r.placement = GYRE_HOST;
                l = run_row(w, &r);
                assert_true(per_parameter(&l) ==
                            (double)(8 * r.vars + (spill ? 8 : 0)));
                assert_true(l.device_write_bytes ==
                            (4 * r.vars + (spill ? 4 : 0)) * l.elements);
            }
}

static void test_micro_batches_cost_what_they_add(void **state)
{
    world *w = *state;

    for (uint32_t m = 1; m <= 4; m++)
        for (int host = 0; host < 2; host++) {
            row r = {.optimizer = "adam",
                     .vars = 3,
                     .dtype = GYRE_F32,
                     .placement = host ? GYRE_HOST : GYRE_NEAR,
                     .spill = true,
                     .micro_batches = m};

            (void)run_row(w, &r);
            r.spill = false;
            (void)run_row(w, &r);
        }
}

static void test_compressed_rows(void **state)
{
    static const gyre_residual residuals[] = {
        GYRE_RESIDUAL_OFF, GYRE_RESIDUAL_VOLATILE, GYRE_RESIDUAL_COMMITTED};
    world *w = *state;

    for (size_t i = 0; i < 3 * 2 * 2 * 3; i++) {
        row r = {.optimizer = "adam",
                 .vars = 3,
                 .dtype = GYRE_F32,
                 .placement = i / 3 % 2 ? GYRE_HOST : GYRE_NEAR,
                 .spill = i / 6 % 2,
                 .micro_batches = 1 + i % 2,
                 .compressor = "topk",
                 .residual = residuals[i % 3],
                 .clip = i / 12 > 0 ? 0.25 : 0,
                 .late = i / 12 == 2};

        (void)run_row(w, &r);
    }
}

/* One tensor of whole grains, and 10 of each 1,024 kept: 4 + 80 / 1024 bytes,
 * and 2 less with 16-bit parameters back. */
static void test_the_paper_s_row(void **state)
{
    world *w = *state;

    model_free(&w->m);
    model_add(&w->m, "w", 64 * 1024, 0, 0);
    free(w->out[0]);
    w->out[0] = calloc(64 * 1024, sizeof(float));
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int o = 0; o < 3; o++) {
            static const char *const names[] = {"adam", "sgd", "adagrad"};
            row r = {.optimizer = names[o],
                     .structural = {"momentum", 0.9},
                     .structural_count = o == 1,
                     .vars = o == 0 ? 3 : 2,
                     .dtype = bf16 ? GYRE_BF16 : GYRE_F32,
                     .spill = true,
                     .micro_batches = 1,
                     .compressor = "topk",
                     .residual = GYRE_RESIDUAL_VOLATILE};
            gyre_ledger l = run_row(w, &r);

            assert_true(per_parameter(&l) == (bf16 ? 2 : 4) + 80.0 / 1024);
        }
}

/* A round that is skipped, and one that is given up, have moved bytes too. */
static void test_the_sum_has_every_byte(void **state)
{
    world *w = *state;
    fixture *f = &w->f;
    gyre_store_spec spec = spec_of(&w->m);
    gyre_round_report report = {.size = sizeof(report)};
    gyre_ledger sum = {0};
    uint64_t n = model_trainable(&w->m);
    float bad = NAN;
    gyre_round *round;

    spec.spill = 1;
    spec.chunk_elements = 4096;
    fixture_create(f, &w->m, &spec, NULL);
    fixture_round(f, &w->m, 1, NULL, &report);
    assert_int_equal(report.ledger.gradient_write, 4 * n);
    round = fixture_open_round(f, NULL);
    expect(f, gyre_store_ledger(f->store, &sum, &f->error), GYRE_STATE);
    for (size_t i = 0; i < w->m.count; i++)
        if (i != 3 && (w->m.tensors[i].flags & GYRE_TENSOR_FROZEN) == 0)
            give_tensor(f, round, &w->m, i, 2);
    good(f, give(f, round, 3, 0, 1, &bad));
    good(f, gyre_round_finish(round, NULL, 0, &report, &f->error));
    assert_int_equal(report.skipped, 1);
    assert_int_equal(report.ledger.elements, 0);
    assert_int_equal(report.ledger.gradient_write, 4 * n);
    assert_int_equal(report.ledger.state_write, 0);
    good(f, gyre_store_ledger(f->store, &sum, &f->error));
    assert_int_equal(sum.rounds, 2);
    assert_int_equal(sum.elements, n);
    assert_int_equal(sum.gradient_write, 8 * n);
}

/* ---- wear ------------------------------------------------------------- */

static void test_wear_is_projected(void **state)
{
    world *w = *state;
    fixture *f = &w->f;
    gyre_store_spec spec = spec_of(&w->m);
    gyre_store_options options = plain_options();
    gyre_round_report report = {.size = sizeof(report)};
    gyre_wear wear = {.size = sizeof(wear)};
    uint64_t before;

    spec.chunk_elements = 4096;
    spec.spill = 1;
    options.endurance = 1e9;
    options.wear_budget = 500000000;
    options.recorder = w->recorder;
    fixture_create(f, &w->m, &spec, &options);
    good(f, gyre_store_wear(f->store, &wear, &f->error));
    assert_true(isinf(wear.rounds_left) || wear.rounds_left == 0);
    assert_int_equal(wear.written, recorded_writes(w, 0));
    before = wear.written;
    for (uint64_t t = 0; t < 3; t++)
        fixture_round(f, &w->m, t, NULL, &report);
    good(f, gyre_store_wear(f->store, &wear, &f->error));
    assert_int_equal(wear.written, before + 3 * report.ledger.flash_bytes);
    assert_int_equal(wear.written, recorded_writes(w, 0));
    assert_true(wear.bytes_per_round == (double)report.ledger.flash_bytes);
    assert_true(wear.rounds_left ==
                (1e9 - (double)wear.written) / wear.bytes_per_round);
    assert_true(wear.budget_rounds_left ==
                (5e8 - (double)wear.written) / wear.bytes_per_round);
    fixture_close(f);
    fixture_open(f, NULL);
    good(f, gyre_store_wear(f->store, &wear, &f->error));
    assert_int_equal(wear.written, before + 3 * report.ledger.flash_bytes);
    assert_true(isinf(wear.rounds_left));
}

static void test_a_spent_budget_ends_rounds_and_nothing_else(void **state)
{
    world *w = *state;
    fixture *f = &w->f;
    gyre_store_spec spec = spec_of(&w->m);
    gyre_store_options options = plain_options();
    gyre_wear wear = {.size = sizeof(wear)};
    gyre_round *round = NULL;
    snapshot before, after;

    fixture_create(f, &w->m, &spec, NULL);
    fixture_round(f, &w->m, 1, NULL, NULL);
    good(f, gyre_store_wear(f->store, &wear, &f->error));
    fixture_close(f);
    options.wear_budget = wear.written + 1;
    fixture_open(f, &options);
    fixture_round(f, &w->m, 2, NULL, NULL);
    before = snapshot_of(f, &w->m);
    expect(f, gyre_round_begin(f->store, NULL, &round, &f->error), GYRE_WORN);
    assert_null(round);
    unit_assert_text(&f->error, "wear_budget");
    after = snapshot_of(f, &w->m);
    expect_same_contents(&before, &after);
    fixture_close(f);
    expect(f, gyre_store_open(f->context, f->path, &options, &f->store, NULL),
           GYRE_OK);
    expect(f, gyre_round_begin(f->store, NULL, &round, &f->error), GYRE_WORN);
    fixture_close(f);
    options.wear_budget = 0;
    fixture_open(f, &options);
    after = snapshot_of(f, &w->m);
    expect_same_contents(&before, &after);
    fixture_round(f, &w->m, 3, NULL, NULL);
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_WORLD(test_raw_rows),
        IN_A_WORLD(test_micro_batches_cost_what_they_add),
        IN_A_WORLD(test_the_sum_has_every_byte),
        IN_A_WORLD(test_wear_is_projected),
        IN_A_WORLD(test_a_spent_budget_ends_rounds_and_nothing_else),
        IN_A_WORLD(test_compressed_rows),
        IN_A_WORLD(test_the_paper_s_row),
    };

    return cmocka_run_group_tests_name("store: ledger", tests, NULL, NULL);
}
