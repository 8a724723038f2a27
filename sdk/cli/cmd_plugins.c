/* SPDX-License-Identifier: Apache-2.0 */
/* gyre plugins: all that can be found, or one with its parameter table. */
#include "config.h"

#include "cli.h"
#include "commands.h"

#include <gyre/registry.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What is collected while the registry calls back. */
typedef struct search {
    const char *wanted; /* NULL: all */
    bool json;
    json_t *list;
    size_t found;
    char names[512]; /* of all, for the message when none matches */
} search;

/* ---- texts ----------------------------------------------------------- */

/* "torch" of "torch|ema|none" by index; false when there is none. */
static bool word_at(const char *words, double index, char text[64])
{
    size_t length;

    for (; index >= 1; index--) {
        words = strchr(words, '|');
        if (words == NULL)
            return false;
        words++;
    }
    length = strcspn(words, "|");
    snprintf(text, 64, "%.*s", (int)length, words);
    return true;
}

/* The default as one would write it. */
static const char *initial_text(const gyre_parameter *parameter, char text[64])
{
    if (parameter->type == GYRE_TYPE_SWITCH)
        return parameter->initial != 0 ? "true" : "false";
    if (parameter->type == GYRE_TYPE_CHOICE && parameter->words != NULL &&
        word_at(parameter->words, parameter->initial, text))
        return text;
    snprintf(text, 64, "%.9g", parameter->initial);
    return text;
}

static const char *type_name(const gyre_parameter *parameter)
{
    static const char *const names[] = {"switch", "int", "float", "choice"};

    return parameter->type < 4 ? names[parameter->type] : "unknown";
}

static const char *range_text(const gyre_parameter *parameter, char text[64])
{
    const char *ends = parameter->ends != NULL ? parameter->ends : "[]";

    if (parameter->type == GYRE_TYPE_CHOICE && parameter->words != NULL)
        return parameter->words;
    if (parameter->type == GYRE_TYPE_SWITCH)
        return "true|false";
    if (isinf(parameter->min) && isinf(parameter->max))
        return "any";
    snprintf(text, 64, "%c%g, %g%c", ends[0], parameter->min, parameter->max,
             ends[1]);
    return text;
}

/* ---- parameter tables ------------------------------------------------ */

/* Structs of a table lie as far apart as the first says (gyre/plugin.h). */
static const gyre_parameter *parameter_at(const gyre_plugin *plugin,
                                          uint32_t index)
{
    const char *first = (const char *)plugin->parameters;

    return (const gyre_parameter *)(const void *)(first +
                                                  index *
                                                      plugin->parameters->size);
}

static json_t *limit(double value)
{
    return isinf(value) ? json_null() : json_real(value);
}

static json_t *parameter_object(const gyre_parameter *p)
{
    char text[64];

    return json_pack("{s:s,s:s,s:s,s:f,s:s,s:o,s:o,s:s,s:s,s:s?}", "name",
                     p->name, "type", type_name(p), "class",
                     p->klass == GYRE_STRUCTURAL ? "structural" : "step",
                     "default", p->initial, "default_text",
                     initial_text(p, text), "min", limit(p->min), "max",
                     limit(p->max), "ends", p->ends != NULL ? p->ends : "[]",
                     "doc", p->doc, "words", p->words);
}

/* A compressor's texts for devices: do they decode, do they compress there?
 * NULL: not a compressor. */
static const char *decodes(const gyre_plugin *plugin)
{
    if (strcmp(plugin->kind, GYRE_KIND_COMPRESSOR) != 0)
        return NULL;
    return plugin->extension != NULL &&
                   plugin->extension(GYRE_CODEC_KERNEL) != NULL
               ? "yes"
               : "no";
}

static const char *encodes(const gyre_plugin *plugin)
{
    const gyre_codec_encoder *encoder = NULL;

    if (strcmp(plugin->kind, GYRE_KIND_COMPRESSOR) != 0)
        return NULL;
    if (plugin->extension != NULL)
        encoder = plugin->extension(GYRE_CODEC_ENCODE);
    if (encoder == NULL)
        return "no";
    return encoder->able != NULL ? "by settings" : "yes";
}

static json_t *plugin_object(const gyre_plugin *plugin, const char *path)
{
    json_t *parameters = json_array();

    for (uint32_t i = 0; i < plugin->parameter_count; i++)
        json_array_append_new(parameters,
                              parameter_object(parameter_at(plugin, i)));
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s?,s:o,s:s*,s:s*}", "kind",
                     plugin->kind, "name", plugin->name, "version",
                     plugin->version, "summary", plugin->summary, "licence",
                     plugin->licence, "path", path, "parameters", parameters,
                     "decodes_on_devices", decodes(plugin),
                     "compresses_on_devices", encodes(plugin));
}

static void describe(const gyre_plugin *plugin, const char *path)
{
    printf("%s %s (%s)\n%s\nlicence: %s\nfrom: %s\n", plugin->name,
           plugin->version, plugin->kind, plugin->summary, plugin->licence,
           path != NULL ? path : "built in");
    if (decodes(plugin) != NULL)
        printf("on devices: decodes %s, compresses %s\n", decodes(plugin),
               encodes(plugin));
    if (plugin->parameter_count > 0)
        printf("\n  %-16s %-8s %-11s %-10s %s\n", "parameter", "type", "class",
               "default", "range");
    for (uint32_t i = 0; i < plugin->parameter_count; i++) {
        const gyre_parameter *p = parameter_at(plugin, i);
        char initial[64], range[64];

        printf("  %-16s %-8s %-11s %-10s %s\n      %s\n", p->name, type_name(p),
               p->klass == GYRE_STRUCTURAL ? "structural" : "step",
               initial_text(p, initial), range_text(p, range), p->doc);
    }
}

/* ---- command --------------------------------------------------------- */

static int each(void *user, const gyre_plugin *plugin, const char *path)
{
    search *work = user;
    size_t used = strlen(work->names);

    snprintf(work->names + used, sizeof(work->names) - used, "%s%s",
             used > 0 ? ", " : "", plugin->name);
    if (work->wanted != NULL && strcmp(work->wanted, plugin->name) != 0)
        return 0;
    if (work->json)
        json_array_append_new(work->list, plugin_object(plugin, path));
    else if (work->wanted != NULL)
        describe(plugin, path);
    else
        printf("%-16s %-12s %-8s %s\n", plugin->kind, plugin->name,
               plugin->version, plugin->summary);
    work->found++;
    return 0;
}

static int list_plugins(const cli_state *cli, gyre_context *context)
{
    search work = {0};
    gyre_error error = {0};
    gyre_status status;

    work.wanted = cli->argc > 0 ? cli->argv[0] : NULL;
    work.json = cli->json;
    work.list = json_array();
    status = gyre_plugin_each(context, each, &work, &error);
    if (status != GYRE_OK || (work.wanted != NULL && work.found == 0)) {
        json_decref(work.list);
        if (status != GYRE_OK)
            return cli_fail_status(cli, status, &error);
        return cli_fail(cli, CLI_USAGE, "no plugin \"%s\"; there are: %s",
                        work.wanted,
                        work.names[0] != '\0' ? work.names : "none");
    }
    if (work.json)
        return cli_print_json(work.list);
    json_decref(work.list);
    return CLI_GOOD;
}

int gyre_cmd_plugins(int argc, char **argv)
{
    static const cli_usage usage = {
        "[NAME]",
        "List the plugins that can be found, or describe one with its "
        "parameters.",
        NULL, 0, 1};
    gyre_context *context = NULL;
    int code;
    cli_state cli;

    code = cli_parse(&cli, &usage, argc, argv);
    if (code != -1)
        return code;
    code = cli_context(&cli, NULL, &context);
    if (code != -1)
        return code;
    code = list_plugins(&cli, context);
    gyre_context_destroy(context);
    return code;
}
