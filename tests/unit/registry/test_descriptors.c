/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A module that breaks its contract in one place at a time, linked in.  Each
 * case starts from a good module and spoils one field.
 */
#define GYRE_STATIC_MODULE
#define GY_PARAMETERS(P)                                                \
    P(lr, GYRE_STEP, GYRE_FLOAT(0.5, 0.0, GYRE_NO_LIMIT, "[)"), "rate") \
    P(start, GYRE_STRUCTURAL, GYRE_INT(3, 0, 9), "start")               \
    P(way, GYRE_STEP, GYRE_CHOICE(1, "left|right"), "way")
#define GY_SLOTS(S) S(sum, 0.0, "start") S(last, 0.25, NULL)
#define GY_SCALARS(S) S(rate) S(other)
#define GY_SWITCHES(S) S(GY_LAST)
#define GY_VARIANTS(V) V(plain, GY_SLOT(sum), 0) V(both, GY_ALL, GY_ON(GY_LAST))
#include <gyre/plugin.h>

#include "config.h"

#include "../unit.h"

#include "base/base.h"
#include "registry/registry.h"

GY_KERNEL(sum = sum + g; if (GY_LAST) { last = g; } p = gy_fma(-rate, g, p);)

static uint32_t choose(const gy_values *v)
{
    return v->way != 0.0 ? gy_variant_both : gy_variant_plain;
}

static void scalars(const gy_values *v, uint64_t t, const gyre_math *math,
                    gy_scalars *s)
{
    s->rate = v->lr;
    s->other = math->sqrt((double)t);
}

GYRE_OPTIMIZER(toy, "0.1", "toy", "Apache-2.0", 0, 1, choose, gy_no_check,
               scalars)
GYRE_MODULE(toy, &gyre_plugin_toy)

/* ---- a copy of everything, to be spoilt ------------------------------ */

static gyre_module module;
static const gyre_plugin *plugins[2];
static gyre_plugin plugin, second;
static gyre_build built, module_built;
static gyre_parameter parameters[3];
static gyre_optimizer optimizer;
static gyre_slot slots[2];
static gyre_variant variants[2];
static const char *scalar_names[2], *switch_names[1];
static gyre_loop_function loops[GYRE_LOOP_COUNT];

static const gyre_module *entry(void)
{
    return &module;
}

static void start_good(void)
{
    const gyre_module *good = gyre_module_entry_toy();
    const gyre_optimizer *o;

    module = *good;
    module_built = *good->build;
    plugin = *good->plugins[0];
    built = *plugin.build;
    o = plugin.descriptor;
    optimizer = *o;
    memcpy(parameters, plugin.parameters, sizeof(parameters));
    memcpy(slots, o->slots, sizeof(slots));
    memcpy(variants, o->variants, sizeof(variants));
    memcpy(scalar_names, o->scalar_names, sizeof(scalar_names));
    memcpy(switch_names, o->switch_names, sizeof(switch_names));
    memcpy(loops, variants[1].loops, sizeof(loops));
    variants[1].loops = loops;
    optimizer.slots = slots;
    optimizer.variants = variants;
    optimizer.scalar_names = scalar_names;
    optimizer.switch_names = switch_names;
    plugin.parameters = parameters;
    plugin.build = &built;
    plugin.descriptor = &optimizer;
    plugins[0] = &plugin;
    plugins[1] = &second;
    module.plugins = plugins;
    module.build = &module_built;
}

static void try_add(gyre_status wanted, const char *text)
{
    gyre_context *context = NULL;
    gyre_error error = {0};
    gyre_status status;

    assert_int_equal(gyre_context_create(NULL, &context, NULL), GYRE_OK);
    status = gyre_plugin_add(context, entry, &error);
    if (status != wanted)
        fail_msg("status %d, wanted %d (%s): %s", (int)status, (int)wanted,
                 text, error.text);
    if (text[0] != '\0')
        unit_assert_text(&error, text);
    gyre_context_destroy(context);
}

#define SPOIL(change, status, text) \
    do {                            \
        start_good();               \
        change;                     \
        try_add(status, text);      \
    } while (0)
#define BAD(change, text) SPOIL(change, GYRE_PLUGIN_BAD, text)

/* ---- tests ----------------------------------------------------------- */

static void test_good(void **state)
{
    (void)state;
    SPOIL((void)0, GYRE_OK, "");
}

static void test_module(void **state)
{
    (void)state;
    SPOIL(module.size = 8, GYRE_PLUGIN_ABI, "size of gyre_module is 8");
    SPOIL(module_built.pointer_bytes = 4, GYRE_PLUGIN_ABI,
          "pointer bytes: built for 4, host has 8");
    SPOIL(module_built.byte_order = 4321, GYRE_PLUGIN_ABI, "byte order");
    BAD(module.count = 0, "lists 0 plugins; it may hold 1 to 64");
    BAD(module.plugins = NULL, "it may hold 1 to 64");
    BAD(module_built.size = 1, "build facts are shorter");
    BAD(plugins[0] = NULL, "a plugin is missing");
    BAD((second = plugin, module.count = 2), "lists toy twice");
}

static void test_plugin(void **state)
{
    (void)state;
    BAD(plugin.size = 16, "shorter than in ABI 1.0");
    BAD(plugin.kind = "optimizer", "has no kind of the form");
    BAD(plugin.name = "Toy", "illegal name");
    BAD(plugin.name = NULL, "illegal name");
    BAD(plugin.name = "../toy", "illegal name");
    BAD(plugin.licence = NULL, "lacks a version, a summary or a licence");
    BAD(plugin.build = NULL, "build facts are missing");
    BAD(built.flags = 0, "built without -fno-math-errno");
    BAD(built.flags |= GYRE_BUILT_FAST_MATH, "built with -ffast-math");
    BAD(built.probe_count = 0, "without the probe");
}

static void test_parameters(void **state)
{
    (void)state;
    BAD(plugin.parameter_count = 33, "longer than 32");
    BAD(plugin.parameters = NULL, "is missing");
    BAD(parameters[1].size = 8, "parameter 1 (start) has a wrong size");
    BAD(parameters[0].name = "l r", "parameter 0 (?) has an illegal name");
    BAD(parameters[0].doc = "", "has no doc line");
    BAD(parameters[0].klass = 2, "unknown class");
    BAD(parameters[0].type = 4, "unknown type");
    BAD(parameters[0].ends = "[", "has ends other than");
    BAD(parameters[0].ends = "[[", "has ends other than");
    BAD(parameters[0].min = 9.0 + (parameters[0].max = 1.0), "above its");
    BAD(parameters[0].initial = -1.0, "default: toy: lr = -1");
    BAD(parameters[2].words = NULL, "is a choice without words");
    BAD(parameters[2].initial = 2.0, "way = 2; it must be left or right");
    BAD(parameters[1].initial = 0.5, "start = 0.5");
    BAD(parameters[1].name = "lr", "parameter lr is listed twice");
}

static void test_optimizer(void **state)
{
    (void)state;
    BAD(plugin.descriptor = NULL, "the descriptor is missing");
    BAD(optimizer.size = 8, "the descriptor is missing or shorter");
    BAD(optimizer.slot_count = 9, "9 slots");
    BAD(optimizer.scalar_count = 17, "17 scalars");
    BAD(optimizer.variant_count = 0, "0 variants");
    BAD(optimizer.slots = NULL, "lacks a table");
    BAD(optimizer.scalars = NULL, "lacks a table");
    BAD(optimizer.kernel = "", "has no kernel text");
    BAD(optimizer.select = NULL, "variants but no select");
    BAD(slots[1].size = 8, "a slot has a wrong size");
    BAD(slots[0].parameter = "lr", "which is no structural parameter");
    BAD(slots[0].parameter = "none", "names none, which is no structural");
    BAD(slots[0].initial = __builtin_nan(""), "starts at no finite value");
    BAD(slots[1].name = "sum", "the kernel name sum is used twice");
    BAD(scalar_names[1] = "sum", "the kernel name sum is used twice");
    BAD(scalar_names[1] = "g", "the kernel name g is used twice");
    BAD(switch_names[0] = NULL, "has an illegal name");
    BAD(variants[1].size = 8, "variant 1 has a wrong size");
    BAD(variants[1].name = "plain", "variant plain is listed twice");
    BAD(variants[1].slots = 4, "names a slot that does not exist");
    BAD(variants[1].switches = 2, "names a switch that does not exist");
    BAD(variants[1].loop_count = 0, "has no scalar loop");
    BAD(loops[0] = NULL, "has no scalar loop");
}

/* A plugin without vector loops, or with a loop table of one. */
static void test_fewer_loops_are_fine(void **state)
{
    gyre_context *context = NULL;
    gyre_opt *opt = NULL;

    (void)state;
    start_good();
    variants[0].loop_count = 1;
    loops[1] = loops[2] = NULL;
    assert_int_equal(gyre_context_create(NULL, &context, NULL), GYRE_OK);
    assert_int_equal(gyre_plugin_add(context, entry, NULL), GYRE_OK);
    for (int way = 0; way < 2; way++) {
        const gyre_setting settings[] = {{"way", way}};

        assert_int_equal(
            gyre_opt_create(context, "toy", settings, 1, &opt, NULL), GYRE_OK);
        assert_string_equal(gyre_opt_variant(opt), way ? "both" : "plain");
        assert_string_equal(gyre_opt_loop_name(opt), "scalar");
        gyre_opt_destroy(opt);
    }
    gyre_context_destroy(context);
}

/* ---- a vector loop that is wrong ------------------------------------- */

static void wrong_loop(const gyre_loop *loop)
{
    gy_loop_both_scalar(loop);
    loop->slot[2][loop->n - 1] *= 1.0000001f;
}

static uint32_t choose_nothing(const double *values)
{
    (void)values;
    return 2;
}

static void test_faults_found_at_creation(void **state)
{
    gyre_context *context = NULL;
    gyre_error error = {0};
    gyre_opt *opt = NULL;

    (void)state;
    start_good();
    loops[1] = loops[2] = wrong_loop;
    assert_int_equal(gyre_context_create(NULL, &context, NULL), GYRE_OK);
    if (gyre_context_isa(context) != GYRE_ISA_SCALAR) {
        assert_int_equal(gyre_plugin_add(context, entry, NULL), GYRE_OK);
        assert_int_equal(gyre_opt_create(context, "toy", NULL, 0, &opt, &error),
                         GYRE_PLUGIN_BAD);
        unit_assert_text(&error, "toy: variant both: the avx");
        unit_assert_text(&error, "(last, element 66)");
        assert_null(opt);
    }
    gyre_context_destroy(context);

    start_good();
    optimizer.select = choose_nothing;
    assert_int_equal(gyre_context_create(NULL, &context, NULL), GYRE_OK);
    assert_int_equal(gyre_plugin_add(context, entry, NULL), GYRE_OK);
    assert_int_equal(gyre_opt_create(context, "toy", NULL, 0, &opt, &error),
                     GYRE_PLUGIN_BAD);
    unit_assert_text(&error, "select returned variant 2 of 2");
    gyre_context_destroy(context);
}

/* A kind that this version does not know is listed, not refused. */
static void test_unknown_kind(void **state)
{
    const gyre_plugin *found = NULL;
    gyre_context *context = NULL;
    gyre_error error = {0};
    gyre_opt *opt = NULL;

    (void)state;
    start_good();
    plugin.kind = "gyre.potion/4";
    plugin.descriptor = NULL;
    assert_int_equal(gyre_context_create(NULL, &context, NULL), GYRE_OK);
    assert_int_equal(gyre_plugin_add(context, entry, NULL), GYRE_OK);
    assert_int_equal(
        gyre_plugin_find(context, "gyre.potion/4", "toy", &found, NULL),
        GYRE_OK);
    assert_int_equal(gyre_opt_create(context, "toy", NULL, 0, &opt, &error),
                     GYRE_NOT_FOUND);
    gyre_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_module),
        cmocka_unit_test(test_plugin),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_optimizer),
        cmocka_unit_test(test_fewer_loops_are_fine),
        cmocka_unit_test(test_faults_found_at_creation),
        cmocka_unit_test(test_unknown_kind),
    };

    return cmocka_run_group_tests_name("registry/descriptors", tests, NULL,
                                       NULL);
}
