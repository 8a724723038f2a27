/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sub-commands of gyre, in the order of its help.
 *
 *     COMMAND(name, summary of one line)
 */
#ifndef GYRE_CLI_COMMANDS_H
#define GYRE_CLI_COMMANDS_H

#define CLI_COMMANDS(COMMAND)                         \
    COMMAND(bench, "measure speed beside a peer")     \
    COMMAND(plan, "attention schedules as plans")     \
    COMMAND(plugins, "list plugins, or describe one") \
    COMMAND(run, "run a Lua script")                  \
    COMMAND(store, "look after a store")              \
    COMMAND(version, "show version and what is built in")

#define CLI_DECLARE(name, summary) int gyre_cmd_##name(int argc, char **argv);
CLI_COMMANDS(CLI_DECLARE)
#undef CLI_DECLARE

#endif
