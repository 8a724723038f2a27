/* SPDX-License-Identifier: Apache-2.0 */
/* A command made of commands: gyre itself, gyre bench, and the like. */
#include "config.h"

#include "cli.h"

#include <stdio.h>
#include <string.h>

static const char *space_if(const char *group)
{
    return group[0] != '\0' ? " " : "";
}

static void help(FILE *file, const char *group, const char *summary,
                 const cli_command *commands, size_t count)
{
    fprintf(file, "usage: gyre%s%s %s [OPTION]... [ARGUMENT]...\n\n%s\n\n",
            space_if(group), group, group[0] != '\0' ? "NAME" : "COMMAND",
            summary);
    for (size_t i = 0; i < count; i++)
        fprintf(file, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fputs("\nEach has --help, --json and --quiet.\n"
          "Exit: 0 good, 1 found wrong, 2 usage, 77 nothing could run, "
          "99 own fault.\n",
          file);
}

static int refuse(const cli_state *cli, const cli_command *commands,
                  size_t count, const char *name)
{
    char names[GYRE_ERROR_TEXT / 2] = "";
    size_t used = 0;

    for (size_t i = 0; i < count && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                 i > 0 ? ", " : "", commands[i].name);
    return cli_fail(cli, CLI_USAGE, "no %s \"%s\"; there are: %s",
                    name[0] == '-' ? "option" : "command", name, names);
}

int cli_group(const char *group, const char *summary,
              const cli_command *commands, size_t count, int argc, char **argv)
{
    cli_state cli = {0};
    const char *name = NULL;
    char full[64];

    cli.command = group;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            cli.json = true;
        else if (name == NULL)
            name = argv[i];
    }
    if (name == NULL) {
        if (cli.json)
            return refuse(&cli, commands, count, "");
        help(stderr, group, summary, commands, count);
        return CLI_USAGE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
        strcmp(name, "help") == 0) {
        help(stdout, group, summary, commands, count);
        return CLI_GOOD;
    }
    for (size_t i = 0; i < count; i++) {
        if (argv[1] != name || strcmp(name, commands[i].name) != 0)
            continue;
        snprintf(full, sizeof(full), "%s%s%s", group, space_if(group), name);
        argv[1] = full;
        return commands[i].run(argc - 1, argv + 1);
    }
    return refuse(&cli, commands, count, name);
}
