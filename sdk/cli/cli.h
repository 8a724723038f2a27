/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sub-commands of gyre share.
 *
 * A sub-command is one file cmd_<name>.c that defines gyre_cmd_<name>, and one
 * line in commands.h.  It parses its arguments with cli_parse, makes a context
 * with cli_context, and returns an exit code:
 *
 *     0 good   1 found wrong   2 usage   77 nothing could run   99 own fault
 *
 * Results go to stdout, all else to stderr.  With --json stdout holds exactly
 * one JSON value, of an error too.
 */
#ifndef GYRE_CLI_CLI_H
#define GYRE_CLI_CLI_H

#include "amount.h"

#include <gyre/context.h>

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CLI_GOOD = 0,
    CLI_WRONG = 1,
    CLI_USAGE = 2,
    CLI_NOTHING = 77,
    CLI_FAULT = 99
};

/* What the options that every command has were set to. */
typedef struct cli_state {
    const char *command; /* "version" */
    bool json;
    bool quiet;
    bool verbose;
    const char *plugin_path;
    const char *isa;
    int argc; /* what is left after the options */
    char **argv;
} cli_state;

typedef enum cli_kind {
    CLI_FLAG,  /* bool */
    CLI_TEXT,  /* const char * */
    CLI_COUNT, /* uint64_t, decimal */
    CLI_BYTES, /* uint64_t, with a suffix K, M, G, T (1024) */
    CLI_NUMBER /* double */
} cli_kind;

/* An option of one command; a list ends with name NULL. */
typedef struct cli_option {
    const char *name;  /* "size" for --size */
    const char *value; /* "BYTES"; NULL for a flag */
    const char *help;  /* fits a line; NULL: --help leaves it out */
    cli_kind kind;
    void *out; /* keeps its value when the option is not given */
} cli_option;

typedef struct cli_usage {
    const char *arguments;     /* "[NAME]", or "" */
    const char *summary;       /* one sentence */
    const cli_option *options; /* or NULL */
    int min, max;              /* arguments besides options; max -1: no limit */
} cli_usage;

/* Parse; argv[0] is the command's name.  Returns -1 to go on, or the exit code
 * to return at once (after --help, or a mistake that has been reported). */
int cli_parse(cli_state *cli, const cli_usage *usage, int argc, char **argv);

/* A context with the common options and a log on stderr.  Returns -1 to go on,
 * or the exit code after reporting. */
int cli_context(const cli_state *cli, const gyre_context_options *more,
                gyre_context **out);

/* Report on stderr (and as JSON) and return `code`. */
int cli_fail(const cli_state *cli, int code, const char *format, ...)
    GYRE_PRINTF(3, 4);
/* The same for a failed library call; the code by what broke. */
int cli_fail_status(const cli_state *cli, gyre_status status,
                    const gyre_error *error);
/* Exit code for a status. */
int cli_code(gyre_status status);

/* Copy a text: what is not UTF-8, and controls but \n and \t, as \xNN; cut. */
void cli_clean(const char *text, char *out, size_t size);

/* Write one JSON value to stdout, indented, and drop the reference.  Returns
 * an exit code: CLI_GOOD, or CLI_FAULT when out of memory. */
int cli_print_json(json_t *value);

/* Read a number as cli_parse does; false when it is none or does not fit. */
bool cli_read(cli_kind kind, const char *text, void *out);

typedef int (*cli_main)(int argc, char **argv);

typedef struct cli_command {
    const char *name;
    const char *summary; /* of one line */
    cli_main run;
} cli_command;

/* Run the one of `count` commands that argv[1] names, with "group name" as its
 * argv[0]; answers --help and mistakes itself.  `group` is argv[0]'s full name:
 * "bench", or "" for gyre itself. */
int cli_group(const char *group, const char *summary,
              const cli_command *commands, size_t count, int argc, char **argv);

#endif
