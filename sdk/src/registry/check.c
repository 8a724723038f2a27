/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is what a module returned within the contract of gyre/plugin.h?
 *
 * Everything here is somebody else's: sizes are looked at before fields, every
 * pointer before it is followed, every count before it is a bound.
 */
#include "config.h"

#include "registry/registry.h"

#include <math.h>
#include <string.h>

/* Sizes of version 1.0, which later headers never shrink. */
#define SIZE_TO(type, last) \
    (offsetof(type, last) + sizeof(((const type *)NULL)->last))
enum {
    MODULE_1_0 = SIZE_TO(gyre_module, count),
    BUILD_1_0 = SIZE_TO(gyre_build, probes),
    PLUGIN_1_0 = SIZE_TO(gyre_plugin, extension),
    PARAMETER_1_0 = SIZE_TO(gyre_parameter, words),
    OPTIMIZER_1_0 = SIZE_TO(gyre_optimizer, scalars),
    SLOT_1_0 = SIZE_TO(gyre_slot, parameter),
    VARIANT_1_0 = SIZE_TO(gyre_variant, loop_count),
    COMPRESSOR_1_0 = SIZE_TO(gyre_compressor, decide),
    CODEC_LOOP_1_0 = SIZE_TO(gyre_codec_loop, survey),
    CODEC_KERNEL_1_0 = SIZE_TO(gyre_codec_kernel, table),
    CODEC_ENCODER_1_0 = SIZE_TO(gyre_codec_encoder, able),
    SCHEDULE_1_0 = SIZE_TO(gyre_schedule, memory)
};

static gyre_status bad(gyre_error *error, const char *where, const char *object,
                       const char *rule)
{
    return gyre_fail(error, GYRE_PLUGIN_BAD, "%s: init: %s %s", where, object,
                     rule);
}

/* [a-z][a-z0-9_]* and what is in `more`: - and a leading digit for plugins
 * ("2d"), A-Z for kernel names. */
static bool legal_name(const char *name, const char *more)
{
    if (name == NULL || name[0] == '\0' || strlen(name) > 63)
        return false;
    if (!((name[0] >= 'a' && name[0] <= 'z') ||
          (name[0] != '-' && strchr(more, name[0]) != NULL)))
        return false;
    for (const char *c = name; *c != '\0'; c++) {
        if (!((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') ||
              *c == '_' || strchr(more, *c) != NULL))
            return false;
    }
    return true;
}

#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

static const void *element(const void *array, size_t i)
{
    size_t stride;

    memcpy(&stride, array, sizeof(stride));
    return (const char *)array + i * stride;
}

/* ---- module and build ------------------------------------------------ */

static gyre_status check_abi(const gyre_module *module, const char *where,
                             gyre_error *error)
{
    if (module->magic != GYRE_PLUGIN_MAGIC)
        return gyre_fail(error, GYRE_PLUGIN_ABI,
                         "%s: abi: magic is %016llx, this library knows "
                         "%016llx; the module was not built with "
                         "gyre/plugin.h",
                         where, (unsigned long long)module->magic,
                         (unsigned long long)GYRE_PLUGIN_MAGIC);
    if (module->abi_major != GYRE_PLUGIN_ABI_MAJOR)
        return gyre_fail(error, GYRE_PLUGIN_ABI,
                         "%s: abi: built for ABI %u.%u, this library has "
                         "%d.%d; %s",
                         where, module->abi_major, module->abi_minor,
                         GYRE_PLUGIN_ABI_MAJOR, GYRE_PLUGIN_ABI_MINOR,
                         module->abi_major > GYRE_PLUGIN_ABI_MAJOR
                             ? "install a newer library, or rebuild the "
                               "plugin against this one's headers"
                             : "rebuild the plugin against this library's "
                               "headers (pkg-config --cflags gyre-plugin)");
    if (module->size < MODULE_1_0)
        return gyre_fail(error, GYRE_PLUGIN_ABI,
                         "%s: abi: size of gyre_module is %zu, ABI %u.%u has "
                         "at least %d; rebuild the plugin",
                         where, module->size, module->abi_major,
                         module->abi_minor, (int)MODULE_1_0);
    return GYRE_OK;
}

static gyre_status check_build(const gyre_build *build, const char *where,
                               gyre_error *error)
{
    if (build == NULL)
        return bad(error, where, "build facts", "are missing (NULL)");
    if (build->size < BUILD_1_0)
        return bad(error, where, "build facts", "are shorter than in ABI 1.0");
    if (build->compiler == NULL)
        return bad(error, where, "build facts", "do not name the compiler");
    if (build->pointer_bytes != sizeof(void *) ||
        build->byte_order != __BYTE_ORDER__)
        return gyre_fail(error, GYRE_PLUGIN_ABI,
                         "%s: abi: pointer bytes: built for %u, host has "
                         "%zu; byte order: built for %u, host has %d; "
                         "rebuild the plugin on this machine",
                         where, build->pointer_bytes, sizeof(void *),
                         build->byte_order, __BYTE_ORDER__);
    if (build->probe_count > 0 && build->probes == NULL)
        return bad(error, where, "build facts", "count probes but have none");
    return GYRE_OK;
}

/* What a loop's own flags must be. */
static gyre_status check_flags(const gyre_build *build, const char *where,
                               gyre_error *error)
{
    const char *fault = NULL;

    if (build->flags & GYRE_BUILT_FAST_MATH)
        fault = "with -ffast-math, which changes results";
    else if (!(build->flags & GYRE_BUILT_NO_MATH_ERRNO))
        fault = "without -fno-math-errno, so that no root is vectorised";
    else if (build->probe_count == 0 || build->probes[0] == NULL)
        fault = "without the probe that the header compiles";
    if (fault != NULL)
        return gyre_fail(error, GYRE_PLUGIN_BAD,
                         "%s: init: built %s (compiler %s); compile with "
                         "-O3 -fno-math-errno -fno-trapping-math "
                         "-ffp-contract=off (pkg-config --cflags gyre-plugin)",
                         where, fault, build->compiler);
    return gyre_probe_run(build, where, error);
}

gyre_status gyre_check_module(const gyre_module *module, const char *where,
                              gyre_error *error)
{
    gyre_status status;

    if (module == NULL)
        return bad(error, where, "gyre_module_entry", "returned NULL");
    status = check_abi(module, where, error);
    if (status != GYRE_OK)
        return status;
    status = check_build(module->build, where, error);
    if (status != GYRE_OK)
        return status;
    if (module->count == 0 || module->count > GYRE_MODULE_MAX_PLUGINS ||
        module->plugins == NULL)
        return gyre_fail(error, GYRE_PLUGIN_BAD,
                         "%s: init: the module lists %zu plugins; it may "
                         "hold 1 to %d",
                         where, module->count, GYRE_MODULE_MAX_PLUGINS);
    return GYRE_OK;
}

/* ---- parameters ------------------------------------------------------ */

static const char *parameter_fault(const gyre_parameter *p, size_t size)
{
    const char *ends = p->ends;

    if (p->size != size || p->size < PARAMETER_1_0)
        return "has a wrong size field";
    if (!legal_name(p->name, ""))
        return "has an illegal name (want [a-z][a-z0-9_]*)";
    if (p->doc == NULL || p->doc[0] == '\0')
        return "has no doc line";
    if (p->klass > GYRE_STEP)
        return "has an unknown class";
    if (p->type > GYRE_TYPE_CHOICE)
        return "has an unknown type";
    if (ends == NULL || strlen(ends) != 2 || strchr("[(", ends[0]) == NULL ||
        strchr("])", ends[1]) == NULL)
        return "has ends other than [] [) (] ()";
    if (isnan(p->min) || isnan(p->max) || !(p->min <= p->max))
        return "has a minimum above its maximum";
    if (p->type == GYRE_TYPE_CHOICE &&
        (p->words == NULL || p->words[0] == '\0'))
        return "is a choice without words";
    return NULL;
}

static gyre_status check_parameters(const gyre_plugin *plugin,
                                    const char *where, gyre_error *error)
{
    size_t size;

    if (plugin->parameter_count == 0)
        return GYRE_OK;
    if (plugin->parameter_count > GYRE_OPT_MAX_PARAMETERS ||
        plugin->parameters == NULL)
        return bad(error, where, "the parameter table",
                   "is missing or longer than 32");
    size = plugin->parameters->size;
    for (size_t i = 0; i < plugin->parameter_count; i++) {
        const gyre_parameter *p = element(plugin->parameters, i);
        const char *fault = parameter_fault(p, size);

        if (fault != NULL)
            return gyre_fail(error, GYRE_PLUGIN_BAD,
                             "%s: init: parameter %zu (%s) %s", where, i,
                             legal_name(p->name, "") ? p->name : "?", fault);
        if (gyre_parameter_check(plugin, p, p->initial, error) != GYRE_OK)
            return gyre_fail_prefix(error, GYRE_PLUGIN_BAD, "%s: init: default",
                                    where);
        for (size_t j = 0; j < i; j++) {
            const gyre_parameter *q = element(plugin->parameters, j);

            if (strcmp(p->name, q->name) == 0)
                return gyre_fail(error, GYRE_PLUGIN_BAD,
                                 "%s: init: parameter %s is listed twice",
                                 where, p->name);
        }
    }
    return GYRE_OK;
}

/* ---- optimizer ------------------------------------------------------- */

/* Slots, scalars and switches share one name space: the kernel's. */
static gyre_status check_kernel_names(const gyre_optimizer *o,
                                      const char *where, gyre_error *error)
{
    const char *names[2 + GYRE_OPT_MAX_SLOTS + GYRE_OPT_MAX_SCALARS +
                      GYRE_OPT_MAX_SWITCHES] = {"g", "p"};
    size_t count = 2;

    for (size_t i = 0; i < o->slot_count; i++)
        names[count++] = ((const gyre_slot *)element(o->slots, i))->name;
    for (size_t i = 0; i < o->scalar_count; i++)
        names[count++] = o->scalar_names[i];
    for (size_t i = 0; i < o->switch_count; i++)
        names[count++] = o->switch_names[i];
    for (size_t i = 0; i < count; i++) {
        if (!legal_name(names[i], UPPER))
            return bad(error, where, "a slot, scalar or switch",
                       "has an illegal name (want an identifier)");
        for (size_t j = 0; j < i; j++) {
            if (strcmp(names[i], names[j]) == 0)
                return gyre_fail(error, GYRE_PLUGIN_BAD,
                                 "%s: init: the kernel name %s is used twice",
                                 where, names[i]);
        }
    }
    return GYRE_OK;
}

static gyre_status check_slots(const gyre_plugin *plugin,
                               const gyre_optimizer *o, const char *where,
                               gyre_error *error)
{
    for (size_t i = 0; i < o->slot_count; i++) {
        const gyre_slot *slot = element(o->slots, i);
        size_t index;

        if (slot->size != o->slots->size || slot->size < SLOT_1_0)
            return bad(error, where, "a slot", "has a wrong size field");
        if (!isfinite(slot->initial))
            return bad(error, where, "a slot", "starts at no finite value");
        if (slot->parameter == NULL)
            continue;
        for (index = 0; index < plugin->parameter_count; index++) {
            const gyre_parameter *p = element(plugin->parameters, index);

            if (strcmp(p->name, slot->parameter) == 0 &&
                p->klass == GYRE_STRUCTURAL)
                break;
        }
        if (index == plugin->parameter_count)
            return gyre_fail(error, GYRE_PLUGIN_BAD,
                             "%s: init: the initial value of slot %s names "
                             "%s, which is no structural parameter",
                             where, slot->name ? slot->name : "?",
                             slot->parameter);
    }
    return GYRE_OK;
}

static const char *variant_fault(const gyre_optimizer *o, const gyre_variant *v)
{
    if (v->size != o->variants->size || v->size < VARIANT_1_0)
        return "has a wrong size field";
    if (!legal_name(v->name, "-"))
        return "has an illegal name (want [a-z][a-z0-9_-]*)";
    if (((uint64_t)v->slots >> o->slot_count) != 0)
        return "names a slot that does not exist";
    if (((uint64_t)v->switches >> o->switch_count) != 0)
        return "names a switch that does not exist";
    if (v->loops == NULL || v->loop_count == 0 || v->loops[0] == NULL)
        return "has no scalar loop";
    return NULL;
}

static gyre_status check_variants(const gyre_optimizer *o, const char *where,
                                  gyre_error *error)
{
    for (size_t i = 0; i < o->variant_count; i++) {
        const gyre_variant *v = element(o->variants, i);
        const char *fault = variant_fault(o, v);

        if (fault != NULL)
            return gyre_fail(error, GYRE_PLUGIN_BAD, "%s: init: variant %zu %s",
                             where, i, fault);
        for (size_t j = 0; j < i; j++) {
            const gyre_variant *w = element(o->variants, j);

            if (strcmp(v->name, w->name) == 0)
                return gyre_fail(error, GYRE_PLUGIN_BAD,
                                 "%s: init: variant %s is listed twice", where,
                                 v->name);
        }
    }
    return GYRE_OK;
}

static gyre_status check_optimizer(const gyre_plugin *plugin, const char *where,
                                   gyre_error *error)
{
    const gyre_optimizer *o = plugin->descriptor;
    gyre_status status;

    if (o == NULL || o->size < OPTIMIZER_1_0)
        return bad(error, where, "the descriptor",
                   "is missing or shorter than in ABI 1.0");
    if (o->slot_count > GYRE_OPT_MAX_SLOTS ||
        o->scalar_count > GYRE_OPT_MAX_SCALARS ||
        o->switch_count > GYRE_OPT_MAX_SWITCHES || o->variant_count == 0 ||
        o->variant_count > GYRE_OPT_MAX_VARIANTS)
        return gyre_fail(error, GYRE_PLUGIN_BAD,
                         "%s: init: %u slots, %u scalars, %u switches, %u "
                         "variants; allowed are at most %d, %d, %d, %d and "
                         "at least one variant",
                         where, o->slot_count, o->scalar_count, o->switch_count,
                         o->variant_count, GYRE_OPT_MAX_SLOTS,
                         GYRE_OPT_MAX_SCALARS, GYRE_OPT_MAX_SWITCHES,
                         GYRE_OPT_MAX_VARIANTS);
    if ((o->slot_count > 0 && o->slots == NULL) ||
        (o->scalar_count > 0 && o->scalar_names == NULL) ||
        (o->switch_count > 0 && o->switch_names == NULL) ||
        o->variants == NULL || o->scalars == NULL)
        return bad(error, where, "the descriptor", "lacks a table (NULL)");
    if (o->kernel == NULL || o->kernel[0] == '\0')
        return bad(error, where, "the descriptor", "has no kernel text");
    if (o->variant_count > 1 && o->select == NULL)
        return bad(error, where, "the descriptor",
                   "has variants but no select function");
    status = check_slots(plugin, o, where, error);
    if (status == GYRE_OK)
        status = check_kernel_names(o, where, error);
    if (status == GYRE_OK)
        status = check_variants(o, where, error);
    if (status == GYRE_OK)
        status = check_flags(plugin->build, where, error);
    return status;
}

/* ---- compressor ------------------------------------------------------ */

static gyre_status check_codec_loops(const gyre_compressor *c,
                                     const char *where, gyre_error *error)
{
    if (c->loops == NULL || c->loop_count == 0)
        return bad(error, where, "the descriptor", "lacks loops (NULL)");
    for (size_t i = 0; i < c->loop_count && i < GYRE_LOOP_COUNT; i++) {
        const gyre_codec_loop *loop = element(c->loops, i);

        if (loop->size != c->loops->size || loop->size < CODEC_LOOP_1_0)
            return bad(error, where, "a loop", "has a wrong size field");
        if (i > 0 && loop->compress == NULL)
            continue;
        if (loop->compress == NULL || loop->decompress == NULL ||
            loop->accumulate == NULL ||
            (c->survey_bytes > 0 && loop->survey == NULL))
            return bad(error, where, "a loop", "lacks a function (NULL)");
    }
    return GYRE_OK;
}

static gyre_status check_codec_kernel(const gyre_plugin *plugin,
                                      const char *where, gyre_error *error)
{
    const gyre_codec_kernel *k = NULL;

    if (plugin->extension != NULL)
        k = plugin->extension(GYRE_CODEC_KERNEL);
    if (k == NULL)
        return GYRE_OK;
    if (k->size < CODEC_KERNEL_1_0)
        return bad(error, where, "the decode kernel", "is shorter than in 1.0");
    if (k->form > GYRE_KERNEL_SCATTER)
        return bad(error, where, "the decode kernel", "has an unknown form");
    if (k->text == NULL || k->text[0] == '\0')
        return bad(error, where, "the decode kernel", "has no text");
    if (k->name_count > GYRE_CODEC_MAX_NAMES ||
        (k->name_count > 0 && (k->names == NULL || k->constants == NULL)))
        return bad(error, where, "the decode kernel",
                   "has more than 32 names, or names without values");
    for (size_t i = 0; i < k->name_count; i++)
        if (!legal_name(k->names[i], UPPER))
            return bad(error, where, "the decode kernel",
                       "has an illegal name (want an identifier)");
    return GYRE_OK;
}

static gyre_status check_codec_encoder(const gyre_plugin *plugin,
                                       const char *where, gyre_error *error)
{
    const gyre_codec_encoder *e = NULL;

    if (plugin->extension != NULL)
        e = plugin->extension(GYRE_CODEC_ENCODE);
    if (e == NULL)
        return GYRE_OK;
    if (e->size < CODEC_ENCODER_1_0)
        return bad(error, where, "the encoder", "is shorter than in 1.0");
    if (e->text == NULL || e->text[0] == '\0')
        return bad(error, where, "the encoder", "has no text");
    if (plugin->extension(GYRE_CODEC_KERNEL) == NULL)
        return bad(error, where, "the encoder",
                   "has no decoder (" GYRE_CODEC_KERNEL
                   "), whose names and table it takes");
    return GYRE_OK;
}

/* Only an optimizer's parameters may change from step to step. */
static gyre_status check_structural(const gyre_plugin *plugin, const char *what,
                                    const char *where, gyre_error *error)
{
    for (size_t i = 0; i < plugin->parameter_count; i++) {
        const gyre_parameter *p = element(plugin->parameters, i);

        if (p->klass != GYRE_STRUCTURAL)
            return gyre_fail(error, GYRE_PLUGIN_BAD,
                             "%s: init: parameter %s: a %s's must be "
                             "structural",
                             where, p->name, what);
    }
    return GYRE_OK;
}

static gyre_status check_compressor(const gyre_plugin *plugin,
                                    const char *where, gyre_error *error)
{
    const gyre_compressor *c = plugin->descriptor;
    gyre_status status;

    if (c == NULL || c->size < COMPRESSOR_1_0)
        return bad(error, where, "the descriptor",
                   "is missing or shorter than in ABI 1.0");
    if (c->bytes == NULL)
        return bad(error, where, "the descriptor", "lacks bytes (NULL)");
    if (c->survey_bytes > GYRE_CODEC_MAX_SURVEY ||
        c->decided_bytes > GYRE_CODEC_MAX_DECIDED)
        return gyre_fail(error, GYRE_PLUGIN_BAD,
                         "%s: init: a summary of %u and a decision of %u "
                         "bytes; allowed are at most %d and %d",
                         where, c->survey_bytes, c->decided_bytes,
                         GYRE_CODEC_MAX_SURVEY, GYRE_CODEC_MAX_DECIDED);
    if (c->survey_bytes > 0 &&
        (c->merge == NULL || c->decide == NULL || c->decided_bytes == 0))
        return bad(error, where, "the descriptor",
                   "has a survey without merge, decide or decided_bytes");
    if (c->survey_bytes == 0 && (c->flags & GYRE_CODEC_BARRIER) != 0)
        return bad(error, where, "the descriptor",
                   "claims a barrier without survey_bytes");
    status = check_structural(plugin, "compressor", where, error);
    if (status == GYRE_OK)
        status = check_codec_loops(c, where, error);
    if (status == GYRE_OK)
        status = check_codec_kernel(plugin, where, error);
    if (status == GYRE_OK)
        status = check_codec_encoder(plugin, where, error);
    if (status == GYRE_OK)
        status = check_flags(plugin->build, where, error);
    return status;
}

/* ---- schedule -------------------------------------------------------- */

static gyre_status check_schedule(const gyre_plugin *plugin, const char *where,
                                  gyre_error *error)
{
    const gyre_schedule *s = plugin->descriptor;

    if (s == NULL || s->size < SCHEDULE_1_0)
        return bad(error, where, "the descriptor",
                   "is missing or shorter than in ABI 1.0");
    if (s->check == NULL || s->emit == NULL || s->bytes == NULL ||
        s->memory == NULL)
        return bad(error, where, "the descriptor",
                   "lacks check, emit, bytes or memory (NULL)");
    return check_structural(plugin, "schedule", where, error);
}

/* ---- plugin ---------------------------------------------------------- */

gyre_status gyre_check_plugin(const gyre_plugin *plugin, const char *where,
                              gyre_error *error)
{
    gyre_status status;

    if (plugin == NULL || plugin->size < PLUGIN_1_0)
        return bad(error, where, "a plugin",
                   "is missing or shorter than in ABI 1.0");
    if (plugin->kind == NULL || strchr(plugin->kind, '/') == NULL)
        return bad(error, where, "a plugin",
                   "has no kind of the form \"gyre.optimizer/1\"");
    if (!legal_name(plugin->name, "-0123456789"))
        return bad(error, where, "a plugin",
                   "has an illegal name (want [a-z0-9][a-z0-9_-]*)");
    if (plugin->version == NULL || plugin->summary == NULL ||
        plugin->licence == NULL)
        return bad(error, where, plugin->name,
                   "lacks a version, a summary or a licence");
    status = check_build(plugin->build, where, error);
    if (status == GYRE_OK)
        status = check_parameters(plugin, where, error);
    if (status == GYRE_OK && strcmp(plugin->kind, GYRE_KIND_OPTIMIZER) == 0)
        status = check_optimizer(plugin, where, error);
    if (status == GYRE_OK && strcmp(plugin->kind, GYRE_KIND_COMPRESSOR) == 0)
        status = check_compressor(plugin, where, error);
    if (status == GYRE_OK && strcmp(plugin->kind, GYRE_KIND_SCHEDULE) == 0)
        status = check_schedule(plugin, where, error);
    return status;
}
