/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every program of every optimizer, variant, state codec and compressor, and of
 * every encoder, builds
 * with NVRTC for sm_80 and sm_90; no GPU is needed.  Skips where NVRTC is not
 * there, or the module was not built.
 */
#include "config.h"

#include "../unit.h"

#include "device/module.h"
#include "device/open.h"
#include "device/source.h"
#include "registry/compressor.h"

#include "matrix.h"

#include <stdio.h>

static gyre_context *context;
static gyre_services services;
static const gyre_driver *driver;

static gyre_opt *optimizer(const matrix_row *row)
{
    gyre_opt *opt = NULL;
    gyre_error error;

    if (gyre_opt_create(context, row->name, row->settings, row->count, &opt,
                        &error) != GYRE_OK)
        fail_msg("%s", error.text);
    return opt;
}

/* As a sample every text is made and every eighth compiled: the text is ours to
 * look at, the compiler is not. */
static void build(const gyre_device_spec *spec, const char *target)
{
    static unsigned made;
    char *source = NULL;
    size_t shared;
    gyre_error error;
    bool compiled = !unit_sampled() || made++ % 8 == 0;

    if (gyre_source_make(context, "cuda", spec, &source, &shared, &error) !=
            GYRE_OK ||
        (compiled &&
         driver->compile(&services, source, target, &error) != GYRE_OK))
        fail_msg("%s, %s: %s", gyre_opt_plugin(spec->opt)->name, target,
                 error.text);
    gyre_free_text(context, source);
}

static void build_states(const gyre_opt *opt, const gyre_codec *codec,
                         const char *target)
{
    gyre_state_codec states[1 + GYRE_OPT_MAX_SLOTS];
    gyre_device_spec spec = {.opt = opt,
                             .codec = codec,
                             .states = states,
                             .vars = 1 + gyre_opt_slot_count(opt)};

    for (int slots = 0; slots < GYRE_STATE_CODECS; slots++) {
        if (gyre_state_name((gyre_state_codec)slots) == NULL)
            continue;
        for (size_t v = 0; v < spec.vars; v++)
            states[v] = (gyre_state_codec)slots;
        if (slots == GYRE_STATE_Q8)
            states[0] = GYRE_STATE_BF16;
        build(&spec, target);
    }
}

static void test_every_optimizer_and_state(void **state)
{
    (void)state;
    for (int i = 0; i < MATRIX_OPTIMIZERS; i++) {
        gyre_opt *opt = optimizer(&matrix_optimizers[i]);

        build_states(opt, NULL, "sm_80");
        build_states(opt, NULL, "sm_90");
        gyre_opt_destroy(opt);
    }
}

/* The program of a device on which gradients are born. */
static void build_birth(const gyre_codec *codec, const char *target)
{
    char *source = NULL;
    size_t shared;
    gyre_error error;

    if (gyre_codec_encoder_of(codec) == NULL)
        return;
    if (gyre_source_birth(context, "cuda", codec, &source, &shared, &error) !=
            GYRE_OK ||
        driver->compile(&services, source, target, &error) != GYRE_OK)
        fail_msg("%s, %s: %s", gyre_codec_name(codec), target, error.text);
    gyre_free_text(context, source);
}

/* With GYRE_SOAK every optimizer goes with every compressor; else each
 * compressor goes with two optimizers and each optimizer with some. */
static void test_every_compressor(void **state)
{
    const char *soak = getenv("GYRE_SOAK");

    (void)state;
    for (int k = 0; k < MATRIX_CODECS; k++) {
        gyre_codec *codec = NULL;
        gyre_error error;

        if (gyre_codec_create(context, matrix_codecs[k].name,
                              matrix_codecs[k].settings, matrix_codecs[k].count,
                              &codec, &error) != GYRE_OK)
            fail_msg("%s", error.text);
        build_birth(codec, "sm_80");
        build_birth(codec, "sm_90");
        for (int i = 0; i < MATRIX_OPTIMIZERS; i++) {
            gyre_opt *opt;

            if (soak == NULL && i % 5 != k % 5)
                continue;
            opt = optimizer(&matrix_optimizers[i]);
            build_states(opt, codec, "sm_80");
            build_states(opt, codec, "sm_90");
            gyre_opt_destroy(opt);
        }
        gyre_codec_destroy(codec);
    }
}

/* A text that is no program: the error says where. */
static void test_the_log_is_told(void **state)
{
    gyre_error error;

    (void)state;
    assert_int_equal(driver->compile(&services,
                                     "extern \"C\" __global__ void "
                                     "gyre_update() { no_such_name = 1; }",
                                     "sm_90", &error),
                     GYRE_PLUGIN_BAD);
    unit_assert_text(&error, "does not build for sm_90");
    unit_assert_text(&error, "no_such_name");
    assert_int_equal(driver->compile(&services, "", "sm_1", &error),
                     GYRE_UNSUPPORTED);
    unit_assert_text(&error, "does not build for sm_1");
}

/* Is module and compiler there?  Prints why not. */
static bool there(void)
{
    const gyre_plugin *plugin = NULL;
    gyre_error error;
    gyre_status status =
        gyre_plugin_find(context, GYRE_KIND_DEVICE, "cuda", &plugin, &error);

    if (status == GYRE_OK) {
        driver = plugin->descriptor;
        status = driver->compile(&services, "", "sm_90", &error);
    }
    if (status == GYRE_UNSUPPORTED || status == GYRE_NOT_FOUND)
        printf("1..0 # SKIP %s\n", error.text);
    return status != GYRE_UNSUPPORTED && status != GYRE_NOT_FOUND;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_optimizer_and_state),
        cmocka_unit_test(test_every_compressor),
        cmocka_unit_test(test_the_log_is_told),
    };
    int failed = 0;

    if (gyre_context_create(NULL, &context, NULL) != GYRE_OK)
        return 99;
    gyre_device_services(context, &services);
    if (there())
        failed =
            cmocka_run_group_tests_name("device: nvrtc", tests, NULL, NULL);
    gyre_context_destroy(context);
    return failed;
}
