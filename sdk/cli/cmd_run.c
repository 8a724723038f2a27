/* SPDX-License-Identifier: Apache-2.0 */
/* gyre run: the user's own script, with the module gyre in place. */
#include "config.h"

#include "cli.h"
#include "commands.h"
#include "words.h"

#ifdef HAVE_LUA

#include "run.h"

enum { MODULE_DIRS = 32 };

/* The script ends the options of the command: what follows is its own. */
int gyre_cmd_run(int argc, char **argv)
{
    static const char *const with_value[] = {"module-dir", "plugin-path",
                                             "isa", NULL};
    bool dry_run = false;
    const char *last = NULL, *dirs[MODULE_DIRS];
    const cli_option list[] = {
        {"dry-run", NULL, "print what the script would take, and end",
         CLI_FLAG, &dry_run},
        {"module-dir", "DIR", "look for Lua modules there, too", CLI_TEXT,
         &last},
        {0}};
    const cli_usage usage = {
        "SCRIPT [SCRIPT'S OPTION]...",
        "Run a Lua script; gyre run SCRIPT --help shows its own options.",
        list, 1, 1};
    int script = cli_first_word(argc, argv, with_value);
    int used = script < argc ? script + 1 : argc;
    int count = cli_words(script, argv, "module-dir", dirs, MODULE_DIRS);
    cli_state cli;
    int code = cli_parse(&cli, &usage, used, argv);

    if (code != -1)
        return code;
    if (count < 0)
        return cli_fail(&cli, CLI_USAGE, "at most %d --module-dir",
                        MODULE_DIRS);
    gyre_run run = {.command = "gyre run",
                    .module_dirs = dirs,
                    .module_dir_count = (size_t)count,
                    .plugin_path = cli.plugin_path,
                    .instruction_set = cli.isa,
                    .dry_run = dry_run,
                    .json = cli.json,
                    .quiet = cli.quiet};
    return gyre_run_script(&run, argc - script, argv + script);
}

#else

int gyre_cmd_run(int argc, char **argv)
{
    cli_state cli = {.command = "run"};

    (void)argc;
    (void)argv;
    return cli_fail(&cli, CLI_NOTHING,
                    "this gyre was built without Lua; install liblua5.4-dev "
                    "and build again");
}

#endif
