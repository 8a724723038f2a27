/* SPDX-License-Identifier: Apache-2.0 */
/* gyre bench: find the benchmark and run it. */
#include "config.h"

#include "bench.h"
#include "cli.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>

/* The name as it stands in messages and in the usage line. */
static const struct {
    const char *name, *full, *summary;
    cli_main run;
} benches[] = {
    {"update", "bench update", "optimizer updates beside a stream",
     bench_update},
};

enum { BENCHES = sizeof(benches) / sizeof(benches[0]) };

static void help(FILE *file)
{
    fputs("usage: gyre bench NAME [OPTION]...\n\n"
          "Speed, as a ratio to a peer in the same run.\n\n",
          file);
    for (int i = 0; i < BENCHES; i++)
        fprintf(file, "  %-12s %s\n", benches[i].name, benches[i].summary);
}

int gyre_cmd_bench(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    char full[32];

    if (name == NULL) {
        help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        help(stdout);
        return CLI_GOOD;
    }
    for (int i = 0; i < BENCHES; i++) {
        if (strcmp(name, benches[i].name) == 0) {
            snprintf(full, sizeof(full), "%s", benches[i].full);
            argv[1] = full;
            return benches[i].run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "gyre: no benchmark \"%s\"; see gyre bench --help\n",
            name);
    return CLI_USAGE;
}
