/* SPDX-License-Identifier: Apache-2.0 */
/* gyre run: the user's own script, with the module gyre in place. */
#include "config.h"

#include "cli.h"
#include "commands.h"
#include "words.h"

#ifdef HAVE_LUA
#include "run.h"
#endif

enum { MODULE_DIRS = 32 };

/* What the command line said. */
typedef struct command {
    cli_state cli;
    bool dry_run;
    const char *dirs[MODULE_DIRS];
    int dir_count;
    int script; /* its index in argv */
} command;

#ifdef HAVE_LUA

static int run_script(const command *c, int argc, char **argv)
{
    gyre_run run = {.command = "gyre run",
                    .module_dirs = c->dirs,
                    .module_dir_count = (size_t)c->dir_count,
                    .plugin_path = c->cli.plugin_path,
                    .instruction_set = c->cli.isa,
                    .dry_run = c->dry_run,
                    .json = c->cli.json,
                    .quiet = c->cli.quiet};

    return gyre_run_script(&run, argc - c->script, argv + c->script);
}

#else

static int run_script(const command *c, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return cli_fail(&c->cli, CLI_NOTHING,
                    "this gyre was built without Lua; install liblua5.4-dev "
                    "and build again");
}

#endif

/* The script ends the options of the command: what follows is its own. */
int gyre_cmd_run(int argc, char **argv)
{
    static const char *const with_value[] = {"module-dir", "plugin-path", "isa",
                                             NULL};
    command c = {0};
    const char *last = NULL;
    const cli_option list[] = {
        {"dry-run", NULL, "print what the script would take, and end", CLI_FLAG,
         &c.dry_run},
        {"module-dir", "DIR", "look for Lua modules there, too", CLI_TEXT,
         &last},
        {0}};
    const cli_usage usage = {
        "SCRIPT [SCRIPT'S OPTION]...",
        "Run a Lua script; gyre run SCRIPT --help shows its own options.", list,
        1, 1};

    c.script = cli_first_word(argc, argv, with_value);
    c.dir_count = cli_words(c.script, argv, "module-dir", c.dirs, MODULE_DIRS);
    int used = c.script < argc ? c.script + 1 : argc;
    int code = cli_parse(&c.cli, &usage, used, argv);
    if (code != -1)
        return code;
    if (c.dir_count < 0)
        return cli_fail(&c.cli, CLI_USAGE, "at most %d --module-dir",
                        MODULE_DIRS);
    return run_script(&c, argc, argv);
}
