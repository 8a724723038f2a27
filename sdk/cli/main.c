/* SPDX-License-Identifier: Apache-2.0 */
/* gyre: find the sub-command and run it. */
#include "config.h"

#include "cli.h"
#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const cli_command commands[] = {
#define ROW(name, summary) {#name, summary, gyre_cmd_##name},
    CLI_COMMANDS(ROW)
#undef ROW
};

int main(int argc, char **argv)
{
    static char version[] = "version";
    int code;

    if (argc > 1 && strcmp(argv[1], "--version") == 0)
        argv[1] = version;
    code = cli_group("", "Train models past accelerator memory.", commands,
                     sizeof(commands) / sizeof(commands[0]), argc, argv);
    /* A result that did not reach its reader is no result. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "gyre: write to standard output: %s\n",
                strerror(errno));
        return CLI_FAULT;
    }
    return code;
}
