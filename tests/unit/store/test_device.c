/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store whose updates run on a device of a module ends where the CPU's does:
 * optimizers, state codecs, compressors, clip, spilled gradients, a skipped
 * round, an absent tensor, two devices of unlike kinds.
 *
 * GYRE_TEST_COMPUTE names the device ("opencl" when it is not set); a machine
 * without it skips.
 */
#include "config.h"

#include "fixture.h"

enum { ROUNDS = 4, SPOILT_ROUND = 2 };

typedef struct script {
    const char *optimizer;
    gyre_setting setting;
    size_t setting_count;
    gyre_slot_codec codecs[2];
    size_t codec_count;
    const char *compressor;
    gyre_setting compress[3];
    size_t compress_count;
    double clip;
    bool spill;
} script;

static const script scripts[] = {
    {.optimizer = "adamw", .clip = 0.5},
    {.optimizer = "adam",
     .setting = {"amsgrad", 1},
     .setting_count = 1,
     .spill = true},
    {.optimizer = "sgd",
     .setting = {"momentum", 0.9},
     .setting_count = 1,
     .codecs = {{"*", GYRE_STATE_BF16_STOCHASTIC}},
     .codec_count = 1},
    {.optimizer = "lion",
     .codecs = {{"*", GYRE_STATE_BF16}, {"parameter", GYRE_STATE_BF16}},
     .codec_count = 2},
    {.optimizer = "adagrad",
     .codecs = {{"*", GYRE_STATE_Q8}},
     .codec_count = 1,
     .compressor = "fp8"},
    {.optimizer = "adamw",
     .codecs = {{"*", GYRE_STATE_Q8},
                {"parameter", GYRE_STATE_BF16_STOCHASTIC}},
     .codec_count = 2,
     .compressor = "topk",
     .compress = {{"ratio", 0.05}},
     .compress_count = 1,
     .clip = 0.5,
     .spill = true},
    {.optimizer = "adamw",
     .compressor = "quantize",
     .compress = {{"bits", 4}, {"map", 1}, {"rounding", 1}},
     .compress_count = 3},
    {.optimizer = "sgd",
     .compressor = "topk",
     .compress = {{"ratio", 0.02}, {"scope", 1}},
     .compress_count = 2,
     .clip = 1},
    {.optimizer = "lion", .compressor = "sign", .spill = true},
};
enum { SCRIPTS = sizeof(scripts) / sizeof(scripts[0]) };

static const char *compute(void)
{
    const char *name = getenv("GYRE_TEST_COMPUTE");

    return name != NULL ? name : "opencl";
}

static void one_round(fixture *f, const model *m, const script *s, int r)
{
    gyre_round_options options = round_options();
    gyre_round_report report = {.size = sizeof(report)};
    const float spoilt = INFINITY;
    gyre_round *round;

    options.clip = s->clip;
    round = fixture_open_round(f, &options);
    for (size_t i = 0; i < m->count; i++) {
        if (m->tensors[i].flags & GYRE_TENSOR_FROZEN || m->elements[i] == 0)
            continue;
        if (r == 1 && i == m->count - 1)
            good(f, gyre_round_absent(round, i, &f->error));
        else if (r == SPOILT_ROUND && m->elements[i] == 1)
            good(f, give(f, round, i, 0, 1, &spoilt));
        else
            give_tensor(f, round, m, i, (uint64_t)r + 1);
    }
    good(f, gyre_round_finish(round, NULL, 0, &report, &f->error));
    assert_int_equal(report.skipped, r == SPOILT_ROUND);
}

/* Rounds on these devices' computers; the end. */
static snapshot run_on(const model *m, const script *s,
                       const char *const *names, size_t count,
                       gyre_status *status, char *why, size_t size)
{
    gyre_store_spec spec = spec_of(m);
    gyre_store_options options = plain_options();
    snapshot end = {0};
    fixture f;

    fixture_begin(&f);
    fixture_devices(&f, &spec, count);
    spec.optimizer = s->optimizer;
    spec.settings = &s->setting;
    spec.setting_count = s->setting_count;
    spec.codecs = s->codecs;
    spec.codec_count = s->codec_count;
    spec.compressor = s->compressor;
    spec.compressor_settings = s->compress;
    spec.compressor_setting_count = s->compress_count;
    spec.spill = s->spill;
    spec.chunk_elements = 4096;
    spec.seed = 77;
    options.compute = names;
    options.compute_count = count;
    *status = gyre_store_create(f.context, f.path, &spec, &options, &f.store,
                                &f.error);
    if (*status == GYRE_OK) {
        for (int r = 0; r < ROUNDS; r++)
            one_round(&f, m, s, r);
        end = snapshot_of(&f, m);
    } else {
        snprintf(why, size, "%s", f.error.text);
    }
    fixture_end(&f);
    return end;
}

static void test_same_end(void **state)
{
    const char *const cpu[] = {"cpu", "cpu"};
    const char *const device[] = {compute(), compute()};
    const char *const mixed[] = {compute(), "cpu"};
    char why[GYRE_ERROR_TEXT];
    model m = {0};

    (void)state;
    model_mixed(&m);
    for (int i = 0; i < SCRIPTS; i++) {
        gyre_status status;
        snapshot want =
            run_on(&m, &scripts[i], cpu, 2, &status, why, sizeof(why));
        snapshot have;

        if (status != GYRE_OK)
            fail_msg("%s", why);
        have = run_on(&m, &scripts[i], i % 2 ? mixed : device, 2, &status, why,
                      sizeof(why));
        if (status != GYRE_OK)
            fail_msg("script %d: %s", i, why);
        expect_same_contents(&want, &have);
    }
    model_free(&m);
}

static bool there(void)
{
    const char *const name[] = {compute()};
    char why[GYRE_ERROR_TEXT] = "";
    gyre_status status;
    model m = {0};

    model_add(&m, "one", 1, 0, 0);
    (void)run_on(&m, &scripts[0], name, 1, &status, why, sizeof(why));
    model_free(&m);
    if (status == GYRE_UNSUPPORTED || status == GYRE_NOT_FOUND)
        printf("1..0 # SKIP %s\n", why);
    return status != GYRE_UNSUPPORTED && status != GYRE_NOT_FOUND;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_end),
    };

    if (!there())
        return 0;
    return cmocka_run_group_tests_name("store: device", tests, NULL, NULL);
}
