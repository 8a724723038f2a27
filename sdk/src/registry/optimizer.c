/* SPDX-License-Identifier: Apache-2.0 */
/* An optimizer with its variant and loop chosen. */
#include "config.h"

#include "registry/registry.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/math.h"

struct gyre_opt {
    gyre_context *context;
    const gyre_plugin *plugin;
    const gyre_optimizer *optimizer;
    const gyre_variant *variant;
    uint32_t variant_index;
    int isa; /* of the loop in use */
    gyre_loop_function loop;
    uint64_t kernel_hash;
    size_t slot_count;
    const gyre_slot *slots[GYRE_OPT_MAX_SLOTS]; /* those of the variant */
    float initials[GYRE_OPT_MAX_SLOTS];
    double defaults[GYRE_OPT_MAX_PARAMETERS];
    char defines[512];
};

/* The same functions on every machine: scalars do not depend on its libm. */
static const gyre_math host_math = {sizeof(gyre_math), gyre_math_sqrt,
                                    gyre_math_powi,    gyre_math_exp,
                                    gyre_math_log,     gyre_math_pow};

/* ---- parameter values ------------------------------------------------ */

static gyre_status check_together(const gyre_plugin *plugin,
                                  const gyre_optimizer *optimizer,
                                  const double *values, gyre_error *error)
{
    const char *fault = NULL;

    if (optimizer->check != NULL)
        fault = optimizer->check(values);
    if (fault != NULL)
        return gyre_fail(error, GYRE_PARAMETER, "%s: %s", plugin->name, fault);
    return GYRE_OK;
}

static gyre_status choose_variant(const gyre_plugin *plugin,
                                  const gyre_optimizer *optimizer,
                                  const double *values, uint32_t *out,
                                  gyre_error *error)
{
    uint32_t index = 0;

    if (optimizer->select != NULL)
        index = optimizer->select(values);
    if (index >= optimizer->variant_count)
        return gyre_fail(error, GYRE_PLUGIN_BAD,
                         "%s: select returned variant %u of %u", plugin->name,
                         index, optimizer->variant_count);
    *out = index;
    return GYRE_OK;
}

gyre_status gyre_opt_values(const gyre_opt *opt, const gyre_setting *settings,
                            size_t count, double *values, gyre_error *error)
{
    const gyre_plugin *plugin = opt->plugin;
    double fresh[GYRE_OPT_MAX_PARAMETERS];
    uint32_t needed = 0;
    gyre_status status;

    memcpy(fresh, opt->defaults, sizeof(fresh));
    status = gyre_parameter_values(plugin, settings, count, fresh, error);
    if (status != GYRE_OK)
        return status;
    for (size_t i = 0; i < plugin->parameter_count; i++) {
        if (plugin->parameters[i].klass == GYRE_STRUCTURAL &&
            fresh[i] != opt->defaults[i])
            return gyre_fail(error, GYRE_PARAMETER,
                             "%s: %s is structural: it was %g at creation and "
                             "cannot become %g; make a new store, or export "
                             "and import",
                             plugin->name, plugin->parameters[i].name,
                             opt->defaults[i], fresh[i]);
    }
    status = check_together(plugin, opt->optimizer, fresh, error);
    if (status == GYRE_OK)
        status = choose_variant(plugin, opt->optimizer, fresh, &needed, error);
    if (status != GYRE_OK)
        return status;
    if (needed > opt->variant_index)
        return gyre_fail(error, GYRE_PARAMETER,
                         "%s: these values need the state of variant \"%s\", "
                         "but it was created as \"%s\"; give them at creation",
                         plugin->name, opt->optimizer->variants[needed].name,
                         opt->variant->name);
    memcpy(values, fresh, plugin->parameter_count * sizeof(values[0]));
    return GYRE_OK;
}

/* ---- scalars --------------------------------------------------------- */

gyre_status gyre_opt_scalars(const gyre_opt *opt, const double *values,
                             uint64_t t, float *scalars, gyre_error *error)
{
    double exact[GYRE_OPT_MAX_SCALARS] = {0};
    float rounded[GYRE_OPT_MAX_SCALARS];
    gyre_fp saved;

    if (t == 0)
        return gyre_fail(error, GYRE_INVALID, "%s: steps count from 1",
                         opt->plugin->name);
    saved = gyre_fp_pin();
    opt->optimizer->scalars(values, t, &host_math, exact);
    for (size_t i = 0; i < opt->optimizer->scalar_count; i++)
        rounded[i] = (float)exact[i];
    gyre_fp_restore(saved);
    for (size_t i = 0; i < opt->optimizer->scalar_count; i++) {
        if (!isfinite(rounded[i]))
            return gyre_fail(error, GYRE_PARAMETER,
                             "%s: at step %llu the scalar %s is %g, which "
                             "does not fit f32; change the hyper-parameters",
                             opt->plugin->name, (unsigned long long)t,
                             opt->optimizer->scalar_names[i], exact[i]);
    }
    memcpy(scalars, rounded, opt->optimizer->scalar_count * sizeof(scalars[0]));
    return GYRE_OK;
}

/* ---- known-answer vector --------------------------------------------- */

/* Long enough for a whole vector, its half and a rest of every loop; values
 * from denormal to large, both signs. */
enum { VECTOR_N = 67, VECTOR_STEPS = 3 };

typedef struct vector {
    float g[VECTOR_N];
    float slot[1 + GYRE_OPT_MAX_SLOTS][VECTOR_N];
} vector;

static float vector_value(uint32_t *seed)
{
    int exponent;

    *seed = *seed * 1664525u + 1013904223u;
    exponent = (int)(*seed >> 27) - 24;
    if ((*seed >> 22 & 31u) == 0)
        exponent = -140;
    return ldexpf((float)(*seed >> 8 & 0xffffu) - 32768.0f, exponent - 16);
}

static void vector_run(const gyre_opt *opt, gyre_loop_function loop,
                       const float *scalars, vector *v)
{
    float *slot[1 + GYRE_OPT_MAX_SLOTS];
    uint32_t seed = 1;

    for (size_t k = 0; k <= opt->slot_count; k++) {
        slot[k] = v->slot[k];
        for (int i = 0; i < VECTOR_N; i++)
            v->slot[k][i] =
                k == 0 ? vector_value(&seed) : fabsf(vector_value(&seed));
    }
    for (uint64_t t = 0; t < VECTOR_STEPS; t++) {
        gyre_loop call = {sizeof(call), VECTOR_N, v->g, slot, scalars, 0};

        for (int i = 0; i < VECTOR_N; i++)
            v->g[i] = vector_value(&seed);
        loop(&call);
    }
}

/* A NaN is a NaN, whatever its bits. */
static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof(a)) == 0;
}

static gyre_status check_loop(const gyre_opt *opt, gyre_error *error)
{
    float scalars[GYRE_OPT_MAX_SCALARS];
    vector want, have;
    gyre_fp saved;
    gyre_status status =
        gyre_opt_scalars(opt, opt->defaults, 2, scalars, error);

    if (status != GYRE_OK || opt->isa == GYRE_LOOP_SCALAR)
        return status;
    saved = gyre_fp_pin();
    vector_run(opt, opt->variant->loops[GYRE_LOOP_SCALAR], scalars, &want);
    vector_run(opt, opt->loop, scalars, &have);
    gyre_fp_restore(saved);
    for (size_t k = 0; k <= opt->slot_count; k++) {
        for (int i = 0; i < VECTOR_N; i++) {
            if (!same(want.slot[k][i], have.slot[k][i]))
                return gyre_fail(
                    error, GYRE_PLUGIN_BAD,
                    "%s: variant %s: the %s loop gives %a where the scalar "
                    "loop gives %a (%s, element %d); rebuild the plugin with "
                    "the flags of pkg-config --cflags gyre-plugin",
                    opt->plugin->name, opt->variant->name,
                    gyre_opt_loop_name(opt), (double)have.slot[k][i],
                    (double)want.slot[k][i],
                    k == 0 ? "parameter" : opt->slots[k - 1]->name, i);
        }
    }
    return GYRE_OK;
}

/* ---- life ------------------------------------------------------------ */

static void fill_slots(gyre_opt *opt)
{
    const gyre_optimizer *optimizer = opt->optimizer;

    for (uint32_t i = 0; i < optimizer->slot_count; i++) {
        const gyre_slot *slot = &optimizer->slots[i];
        double initial = slot->initial;
        size_t index = 0;

        if ((opt->variant->slots >> i & 1u) == 0)
            continue;
        if (slot->parameter != NULL &&
            gyre_parameter_index(opt->plugin, slot->parameter, &index, NULL) ==
                GYRE_OK)
            initial = opt->defaults[index];
        opt->initials[opt->slot_count] = (float)initial;
        opt->slots[opt->slot_count++] = slot;
    }
}

/* False when the names do not fit. */
static bool fill_defines(gyre_opt *opt)
{
    size_t at = 0;

    for (uint32_t i = 0; i < opt->optimizer->switch_count; i++) {
        int n =
            snprintf(opt->defines + at, sizeof(opt->defines) - at, "%s-D%s=%u",
                     i > 0 ? " " : "", opt->optimizer->switch_names[i],
                     opt->variant->switches >> i & 1u);

        if (n < 0 || (size_t)n >= sizeof(opt->defines) - at)
            return false;
        at += (size_t)n;
    }
    return true;
}

/* Text, a NUL, defines: what decides the bits. */
static uint64_t hash_kernel(const gyre_opt *opt)
{
    XXH64_hash_t text =
        XXH3_64bits(opt->optimizer->kernel, strlen(opt->optimizer->kernel));

    return XXH3_64bits_withSeed(opt->defines, strlen(opt->defines), text);
}

static void choose_loop(gyre_opt *opt)
{
    opt->isa = (int)gyre_context_isa(opt->context);
    while (opt->isa > GYRE_LOOP_SCALAR && opt->variant->loops[opt->isa] == NULL)
        opt->isa--;
    opt->loop = opt->variant->loops[opt->isa];
}

static gyre_status build(gyre_opt *opt, const gyre_setting *settings,
                         size_t count, gyre_error *error)
{
    const gyre_plugin *plugin = opt->plugin;
    gyre_status status;

    for (size_t i = 0; i < plugin->parameter_count; i++)
        opt->defaults[i] = plugin->parameters[i].initial;
    status =
        gyre_parameter_values(plugin, settings, count, opt->defaults, error);
    if (status == GYRE_OK)
        status = check_together(plugin, opt->optimizer, opt->defaults, error);
    if (status == GYRE_OK)
        status = choose_variant(plugin, opt->optimizer, opt->defaults,
                                &opt->variant_index, error);
    if (status != GYRE_OK)
        return status;
    opt->variant = &opt->optimizer->variants[opt->variant_index];
    fill_slots(opt);
    if (!fill_defines(opt))
        return gyre_fail(error, GYRE_PLUGIN_BAD,
                         "%s: its switch names are longer than %zu together",
                         plugin->name, sizeof(opt->defines));
    opt->kernel_hash = hash_kernel(opt);
    choose_loop(opt);
    return check_loop(opt, error);
}

gyre_status gyre_opt_create(gyre_context *context, const char *name,
                            const gyre_setting *settings, size_t count,
                            gyre_opt **out, gyre_error *error)
{
    const gyre_plugin *plugin = NULL;
    gyre_status status;
    gyre_opt *opt;

    status =
        gyre_plugin_find(context, GYRE_KIND_OPTIMIZER, name, &plugin, error);
    if (status != GYRE_OK)
        return status;
    opt = gyre_alloc_zero(context, 1, sizeof(*opt));
    if (opt == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "%s: no memory", name);
    opt->context = context;
    opt->plugin = plugin;
    opt->optimizer = plugin->descriptor;
    status = build(opt, settings, count, error);
    if (status != GYRE_OK) {
        gyre_opt_destroy(opt);
        return status;
    }
    *out = opt;
    return GYRE_OK;
}

void gyre_opt_destroy(gyre_opt *opt)
{
    if (opt != NULL)
        gyre_free(opt->context, opt, 1, sizeof(*opt));
}

/* ---- what it is ------------------------------------------------------ */

const gyre_plugin *gyre_opt_plugin(const gyre_opt *opt)
{
    return opt->plugin;
}

const char *gyre_opt_variant(const gyre_opt *opt)
{
    return opt->variant->name;
}

const char *gyre_opt_loop_name(const gyre_opt *opt)
{
    return gyre_isa_name((gyre_isa)opt->isa);
}

uint64_t gyre_opt_kernel_hash(const gyre_opt *opt)
{
    return opt->kernel_hash;
}

uint32_t gyre_opt_state_version(const gyre_opt *opt)
{
    return opt->optimizer->state_version;
}

const char *gyre_opt_kernel_text(const gyre_opt *opt)
{
    return opt->optimizer->kernel;
}

const char *gyre_opt_defines(const gyre_opt *opt)
{
    return opt->defines;
}

size_t gyre_opt_scalar_count(const gyre_opt *opt)
{
    return opt->optimizer->scalar_count;
}

const char *gyre_opt_scalar_name(const gyre_opt *opt, size_t scalar)
{
    assert(scalar < opt->optimizer->scalar_count);
    return opt->optimizer->scalar_names[scalar];
}

size_t gyre_opt_kernel_slot_count(const gyre_opt *opt)
{
    return opt->optimizer->slot_count;
}

const char *gyre_opt_kernel_slot_name(const gyre_opt *opt, size_t index,
                                      size_t *place)
{
    assert(index < opt->optimizer->slot_count);
    *place = 0;
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (opt->slots[i] == &opt->optimizer->slots[index])
            *place = 1 + i;
    }
    return opt->optimizer->slots[index].name;
}

size_t gyre_opt_slot_count(const gyre_opt *opt)
{
    return opt->slot_count;
}

const char *gyre_opt_slot_name(const gyre_opt *opt, size_t slot)
{
    assert(slot < opt->slot_count);
    return opt->slots[slot]->name;
}

float gyre_opt_slot_initial(const gyre_opt *opt, size_t slot)
{
    assert(slot < opt->slot_count);
    return opt->initials[slot];
}

size_t gyre_opt_parameter_count(const gyre_opt *opt)
{
    return opt->plugin->parameter_count;
}

const double *gyre_opt_defaults(const gyre_opt *opt)
{
    return opt->defaults;
}

void gyre_opt_update(const gyre_opt *opt, size_t n, const float *g,
                     float *const *slot, const float *scalars, uint64_t index)
{
    gyre_loop call = {sizeof(call), n, g, slot, scalars, index};

    opt->loop(&call);
}
