/* SPDX-License-Identifier: Apache-2.0 */
/* gyre: find the sub-command and run it. */
#include "config.h"

#include "cli.h"
#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const char *summary;
    cli_main run;
} commands[] = {
#define ROW(name, summary) {#name, summary, gyre_cmd_##name},
    CLI_COMMANDS(ROW)
#undef ROW
};

enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void help(FILE *file)
{
    fputs("usage: gyre COMMAND [OPTION]... [ARGUMENT]...\n\n"
          "Train models past accelerator memory.\n\n",
          file);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(file, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fputs("\nEvery command has --help, --json and --quiet.\n"
          "Exit: 0 good, 1 found wrong, 2 usage, 77 nothing could run, "
          "99 own fault.\n",
          file);
}

static int run(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;

    if (name == NULL) {
        help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
        strcmp(name, "help") == 0) {
        help(stdout);
        return CLI_GOOD;
    }
    if (strcmp(name, "--version") == 0)
        name = "version";
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr, "gyre: no command \"%s\"; the commands are", name);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(stderr, "%s %s", i > 0 ? "," : "", commands[i].name);
    fputc('\n', stderr);
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    int code = run(argc, argv);

    /* A result that did not reach its reader is no result. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "gyre: write to standard output: %s\n",
                strerror(errno));
        return CLI_FAULT;
    }
    return code;
}
