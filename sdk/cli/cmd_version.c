/* SPDX-License-Identifier: Apache-2.0 */
/* gyre version: the library, its parts, the instruction sets of the machine. */
#include "config.h"

#include "cli.h"
#include "commands.h"

#include <gyre/plugin.h>

#include <stdio.h>
#include <string.h>

static const char *const sets[] = {"scalar", "avx2", "avx512"};

/* Asked of the library, which alone knows what it looks for. */
static bool has_set(const char *name)
{
    gyre_context_options options = {0};
    gyre_context *context = NULL;

    options.size = sizeof(options);
    options.instruction_set = name;
    if (gyre_context_create(&options, &context, NULL) != GYRE_OK)
        return false;
    gyre_context_destroy(context);
    return true;
}

/* {"liburing": "2.3 (liburing)", ...} of the "name: state" lines. */
static json_t *summary_object(void)
{
    json_t *object = json_object();

    for (const char *line = gyre_build_summary(); *line != '\0';) {
        size_t length = strcspn(line, "\n");
        const char *colon = strstr(line, ": ");
        char name[64];

        snprintf(name, sizeof(name), "%.*s", (int)(colon - line), line);
        json_object_set_new(
            object, name,
            json_stringn(colon + 2, (size_t)(line + length - colon - 2)));
        line += length + (line[length] == '\n');
    }
    return object;
}

static int print_json(const char *in_use)
{
    json_t *list = json_array();

    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        if (has_set(sets[i]))
            json_array_append_new(list, json_string(sets[i]));
    }
    return cli_print_json(json_pack(
        "{s:s,s:[i,i],s:s,s:o,s:o}", "version", gyre_version(), "plugin_abi",
        GYRE_PLUGIN_ABI_MAJOR, GYRE_PLUGIN_ABI_MINOR, "instruction_set", in_use,
        "instruction_sets", list, "build", summary_object()));
}

static void print_text(const char *in_use)
{
    printf("gyre %s, plugin ABI %d.%d\ninstruction sets:", gyre_version(),
           GYRE_PLUGIN_ABI_MAJOR, GYRE_PLUGIN_ABI_MINOR);
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        if (has_set(sets[i]))
            printf(" %s%s", sets[i],
                   strcmp(sets[i], in_use) == 0 ? " (in use)" : "");
    }
    printf("\n%s", gyre_build_summary());
}

int gyre_cmd_version(int argc, char **argv)
{
    static const cli_usage usage = {
        "", "Show the version, the instruction sets, and what was built in.",
        NULL, 0, 0};
    gyre_context *context = NULL;
    int code;
    cli_state cli;

    code = cli_parse(&cli, &usage, argc, argv);
    if (code != -1)
        return code;
    code = cli_context(&cli, NULL, &context);
    if (code != -1)
        return code;
    code = CLI_GOOD;
    if (cli.json)
        code = print_json(gyre_context_instruction_set(context));
    else
        print_text(gyre_context_instruction_set(context));
    gyre_context_destroy(context);
    return code;
}
