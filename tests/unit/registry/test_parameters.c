/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters: what is accepted, and what a refusal says. */
#include "config.h"

#include "../unit.h"

#include "base/base.h"
#include "registry/optimizer.h"

#include <locale.h>
#include <math.h>

static unit_memory memory;
static gyre_context *context;

static int open_context(void **state)
{
    (void)state;
    context = unit_context(&memory);
    return 0;
}

static int close_context(void **state)
{
    (void)state;
    gyre_context_destroy(context);
    unit_memory_check(&memory);
    return 0;
}

static void refuse(const char *name, const gyre_setting *settings, size_t count,
                   const char *text)
{
    gyre_error error = {0};
    gyre_opt *opt = NULL;

    assert_int_equal(
        gyre_opt_create(context, name, settings, count, &opt, &error),
        GYRE_PARAMETER);
    assert_null(opt);
    unit_assert_text(&error, text);
}

static void test_unknown_lists_the_valid_ones(void **state)
{
    const gyre_setting settings[] = {{"learning_rate", 0.1}};

    (void)state;
    refuse("adamw", settings, 1,
           "adamw has no parameter \"learning_rate\"; it has: lr [0, inf); "
           "beta1 [0, 1); beta2 [0, 1); eps [1e-38, inf); weight_decay "
           "[0, inf); amsgrad true or false; maximize true or false; "
           "bias_correction true or false");
}

static void test_out_of_range_names_the_range(void **state)
{
    const gyre_setting beta[] = {{"beta1", 1.0}}, rate[] = {{"lr", -1.0}},
                       half[] = {{"amsgrad", 0.5}}, nan[] = {{"lr", NAN}},
                       infinite[] = {{"lr", INFINITY}},
                       choice[] = {{"averaging", 2.0}};

    (void)state;
    refuse("adamw", beta, 1, "adamw: beta1 = 1; it must be in [0, 1)");
    refuse("adamw", rate, 1, "lr = -1; it must be in [0, inf)");
    refuse("adamw", half, 1, "amsgrad = 0.5; it must be true or false");
    refuse("adamw", nan, 1, "lr = nan");
    refuse("adamw", infinite, 1, "lr = inf");
    refuse("sgd", choice, 1, "averaging = 2; it must be torch or ema");
}

static void test_given_twice(void **state)
{
    const gyre_setting twice[] = {{"lr", 0.1}, {"lr", 0.2}};

    (void)state;
    refuse("sgd", twice, 2, "sgd: lr is given twice");
}

static void test_values_that_do_not_go_together(void **state)
{
    const gyre_setting alone[] = {{"nesterov", 1}};
    const gyre_setting damped[] = {
        {"nesterov", 1}, {"momentum", 0.9}, {"dampening", 0.1}};

    (void)state;
    refuse("sgd", alone, 1, "nesterov needs momentum above 0");
    refuse("sgd", damped, 3, "nesterov needs momentum above 0");
}

static gyre_opt *make(const char *name, const gyre_setting *settings,
                      size_t count)
{
    gyre_error error = {0};
    gyre_opt *opt = NULL;

    if (gyre_opt_create(context, name, settings, count, &opt, &error) !=
        GYRE_OK)
        fail_msg("%s", error.text);
    return opt;
}

static void test_step_values_over_defaults(void **state)
{
    const gyre_setting creation[] = {{"lr", 0.5}, {"amsgrad", 1}};
    const gyre_setting step[] = {{"lr", 0.25}};
    const gyre_setting structural[] = {{"amsgrad", 0}};
    const gyre_setting unchanged[] = {{"amsgrad", 1}};
    gyre_opt *opt = make("adamw", creation, 2);
    double values[GYRE_OPT_MAX_PARAMETERS] = {0};
    gyre_error error = {0};

    (void)state;
    assert_int_equal(gyre_opt_values(opt, NULL, 0, values, NULL), GYRE_OK);
    assert_true(values[0] == 0.5 && values[5] == 1.0);
    assert_int_equal(gyre_opt_values(opt, step, 1, values, NULL), GYRE_OK);
    assert_true(values[0] == 0.25 && values[1] == 0.9);
    assert_int_equal(gyre_opt_values(opt, unchanged, 1, values, NULL), GYRE_OK);
    values[0] = 7.0;
    assert_int_equal(gyre_opt_values(opt, structural, 1, values, &error),
                     GYRE_PARAMETER);
    unit_assert_text(&error, "amsgrad is structural: it was 1 at creation");
    assert_true(values[0] == 7.0); /* outputs are set on success only */
    gyre_opt_destroy(opt);
}

/* Momentum is a step value, but its buffer must be there. */
static void test_step_values_that_need_more_state(void **state)
{
    const gyre_setting momentum[] = {{"momentum", 0.9}};
    gyre_opt *plain = make("sgd", NULL, 0), *full = make("sgd", momentum, 1);
    const gyre_setting none[] = {{"momentum", 0}};
    double values[GYRE_OPT_MAX_PARAMETERS];
    gyre_error error = {0};

    (void)state;
    assert_int_equal(gyre_opt_slot_count(plain), 0);
    assert_int_equal(gyre_opt_slot_count(full), 1);
    assert_int_equal(gyre_opt_values(plain, momentum, 1, values, &error),
                     GYRE_PARAMETER);
    unit_assert_text(&error, "need the state of variant \"momentum\"");
    assert_int_equal(gyre_opt_values(full, none, 1, values, NULL), GYRE_OK);
    gyre_opt_destroy(plain);
    gyre_opt_destroy(full);
}

static void test_scalars(void **state)
{
    const gyre_setting huge[] = {{"lr", 1e300}};
    gyre_opt *opt = make("adamw", NULL, 0);
    double values[GYRE_OPT_MAX_PARAMETERS];
    float scalars[GYRE_OPT_MAX_SCALARS];
    gyre_error error = {0};

    (void)state;
    assert_int_equal(
        gyre_opt_scalars(opt, gyre_opt_defaults(opt), 0, scalars, &error),
        GYRE_INVALID);
    assert_int_equal(
        gyre_opt_scalars(opt, gyre_opt_defaults(opt), 1, scalars, NULL),
        GYRE_OK);
    assert_string_equal(gyre_opt_scalar_name(opt, 2), "one_minus_beta2");
    assert_true(scalars[2] == (float)(1.0 - 0.999));
    assert_string_equal(gyre_opt_scalar_name(opt, 6), "step");
    assert_true(scalars[6] == (float)(1e-3 / (1.0 - 0.9)));
    assert_int_equal(gyre_opt_values(opt, huge, 1, values, NULL), GYRE_OK);
    assert_int_equal(gyre_opt_scalars(opt, values, 1, scalars, &error),
                     GYRE_PARAMETER);
    unit_assert_text(&error, "does not fit f32");
    gyre_opt_destroy(opt);
}

static double parse(const gyre_plugin *plugin, const char *name,
                    const char *text)
{
    gyre_error error = {0};
    double value = -7.0;

    if (gyre_plugin_parse(plugin, name, text, &value, &error) != GYRE_OK)
        fail_msg("%s", error.text);
    return value;
}

static void test_text_forms(void **state)
{
    const gyre_plugin *sgd = NULL;
    gyre_error error = {0};
    double value = -7.0;

    (void)state;
    assert_int_equal(
        gyre_plugin_find(context, GYRE_KIND_OPTIMIZER, "sgd", &sgd, NULL),
        GYRE_OK);
    assert_true(parse(sgd, "lr", "2.5e-3") == 2.5e-3);
    assert_true(parse(sgd, "nesterov", "true") == 1.0);
    assert_true(parse(sgd, "nesterov", "off") == 0.0);
    assert_true(parse(sgd, "averaging", "ema") == 1.0);
    assert_int_equal(gyre_plugin_parse(sgd, "averaging", "em", &value, &error),
                     GYRE_PARAMETER);
    unit_assert_text(&error, "averaging = \"em\"; it must be torch or ema");
    assert_int_equal(gyre_plugin_parse(sgd, "lr", "0.1x", &value, &error),
                     GYRE_PARAMETER);
    unit_assert_text(&error, "lr = \"0.1x\"; it must be a number in [0, inf)");
    assert_int_equal(gyre_plugin_parse(sgd, "lr", "", &value, &error),
                     GYRE_PARAMETER);
    assert_int_equal(gyre_plugin_parse(sgd, "lr", "-1", &value, &error),
                     GYRE_PARAMETER);
    assert_int_equal(gyre_plugin_parse(sgd, "rate", "1", &value, &error),
                     GYRE_PARAMETER);
    unit_assert_text(&error, "sgd has no parameter \"rate\"");
    assert_true(value == -7.0);
}

/* A host in a locale that writes 0,9 still reads 0.9. */
static void test_text_forms_in_another_locale(void **state)
{
    const gyre_plugin *sgd = NULL;

    (void)state;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL)
        return; /* not installed here */
    assert_int_equal(
        gyre_plugin_find(context, GYRE_KIND_OPTIMIZER, "sgd", &sgd, NULL),
        GYRE_OK);
    assert_true(parse(sgd, "momentum", "0.9") == 0.9);
    setlocale(LC_NUMERIC, "C");
}

static void test_no_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        unit_memory own = {0};
        gyre_context *fresh = unit_context(&own);
        gyre_opt *opt = NULL;
        gyre_status status;

        own.fail_at = own.requests + n;
        status = gyre_opt_create(fresh, "adamw", NULL, 0, &opt, NULL);
        own.fail_at = 0;
        if (status == GYRE_OK)
            gyre_opt_destroy(opt);
        else
            assert_int_equal(status, GYRE_NO_MEMORY);
        gyre_context_destroy(fresh);
        unit_memory_check(&own);
        if (status == GYRE_OK)
            break;
    }
}

/* ---- threads --------------------------------------------------------- */

static void *make_many(void *user)
{
    static const char *const names[] = {"adam", "adamw", "sgd", "adagrad",
                                        "lion"};
    gyre_context *shared = user;

    for (int i = 0; i < 100; i++) {
        gyre_opt *opt = NULL;

        if (gyre_opt_create(shared, names[i % 5], NULL, 0, &opt, NULL) !=
            GYRE_OK)
            return user;
        gyre_opt_destroy(opt);
    }
    return NULL;
}

/* The first use of a context's registry, from several threads at once. */
static void test_threads(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        gyre_context *shared = NULL;
        pthread_t threads[4];

        assert_int_equal(gyre_context_create(NULL, &shared, NULL), GYRE_OK);
        for (int i = 0; i < 4; i++)
            assert_int_equal(
                pthread_create(&threads[i], NULL, make_many, shared), 0);
        for (int i = 0; i < 4; i++) {
            void *failed = NULL;

            pthread_join(threads[i], &failed);
            assert_null(failed);
        }
        gyre_context_destroy(shared);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_lists_the_valid_ones),
        cmocka_unit_test(test_out_of_range_names_the_range),
        cmocka_unit_test(test_given_twice),
        cmocka_unit_test(test_values_that_do_not_go_together),
        cmocka_unit_test(test_step_values_over_defaults),
        cmocka_unit_test(test_step_values_that_need_more_state),
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_text_forms),
        cmocka_unit_test(test_text_forms_in_another_locale),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests_name("registry/parameters", tests,
                                       open_context, close_context);
}
