/* SPDX-License-Identifier: Apache-2.0 */
/* gyre bench: find the benchmark and run it. */
#include "config.h"

#include "bench.h"
#include "cli.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>

/* The full name is what stands in messages and in the usage line. */
static const struct {
    const char *name, *full;
    cli_main run;
} benches[] = {
    {"update", "bench update", bench_update},
};

enum { BENCHES = sizeof(benches) / sizeof(benches[0]) };

static const cli_usage usage = {
    "update [OPTION]...",
    "Speed, as a ratio to a peer in the same run:\n"
    "update: an optimizer's step beside a stream over the same arrays.",
    NULL, 1, 1};

int gyre_cmd_bench(int argc, char **argv)
{
    char full[32];
    cli_state cli;
    int code;

    for (int i = 0; i < BENCHES; i++) {
        if (argc > 1 && strcmp(argv[1], benches[i].name) == 0) {
            snprintf(full, sizeof(full), "%s", benches[i].full);
            argv[1] = full;
            return benches[i].run(argc - 1, argv + 1);
        }
    }
    code = cli_parse(&cli, &usage, argc, argv);
    if (code >= 0)
        return code;
    return cli_fail(&cli, CLI_USAGE, "no benchmark \"%s\"; there is: update",
                    cli.argv[0]);
}
