/* SPDX-License-Identifier: Apache-2.0 */
/* Options, reports and texts of the gyre command. */
#include "config.h"

#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reports --------------------------------------------------------- */

int cli_code(gyre_status status)
{
    switch (status) {
    case GYRE_OK:
        return CLI_GOOD;
    case GYRE_INVALID:
    case GYRE_RANGE:
    case GYRE_NOT_FOUND:
    case GYRE_EXISTS:
    case GYRE_DUPLICATE:
    case GYRE_MISSING:
    case GYRE_PARAMETER:
        return CLI_USAGE;
    case GYRE_UNSUPPORTED:
        return CLI_NOTHING;
    case GYRE_NO_MEMORY:
    case GYRE_SYSTEM:
    case GYRE_INTERNAL:
        return CLI_FAULT;
    default:
        return CLI_WRONG;
    }
}

/* Bytes of the character at `text` when it is UTF-8 and no control; else 0. */
static unsigned whole_character(const unsigned char *text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned n = text[0] < 0x80    ? 1
                 : text[0] >= 0xf8 ? 0
                 : text[0] >= 0xf0 ? 4
                 : text[0] >= 0xe0 ? 3
                 : text[0] >= 0xc0 ? 2
                                   : 0;
    uint32_t value = n > 1 ? text[0] & (0x7fu >> n) : text[0];

    for (unsigned i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80) /* also the end */
            return 0;
        value = value << 6 | (text[i] & 0x3f);
    }
    if (text[0] == '\n' || text[0] == '\t')
        return 1;
    bool control = value < 0x20 || (value >= 0x7f && value < 0xa0);
    bool surrogate = value >= 0xd800 && value < 0xe000;
    return n == 0 || control || surrogate || value < least[n] ||
                   value > 0x10ffff
               ? 0
               : n;
}

void cli_clean(const char *text, char *out, size_t size)
{
    const unsigned char *from = (const unsigned char *)text;
    size_t used = 0;

    while (*from != '\0' && used + 5 < size) {
        unsigned n = whole_character(from);

        if (n == 0)
            used += (size_t)snprintf(out + used, size - used, "\\x%02x", *from);
        else
            memcpy(out + used, from, n);
        used += n;
        from += n > 0 ? n : 1;
    }
    out[used] = '\0';
}

/* Texts quote files and arguments: bytes that would steer a terminal, or that
 * JSON cannot hold, are shown as \xNN. */
static int report(const cli_state *cli, int code, const char *status,
                  const char *dirty)
{
    char text[4 * GYRE_ERROR_TEXT + 8];

    cli_clean(dirty, text, sizeof(text));
    fprintf(stderr, "gyre%s%s: %s\n", cli->command[0] != '\0' ? " " : "",
            cli->command, text);
    if (cli->json) {
        json_t *value = json_pack("{s:{s:s,s:s,s:i}}", "error", "text", text,
                                  "status", status, "exit", code);

        cli_print_json(value);
    }
    return code;
}

int cli_fail(const cli_state *cli, int code, const char *format, ...)
{
    char text[GYRE_ERROR_TEXT];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return report(cli, code, code == CLI_USAGE ? "USAGE" : "FAILED", text);
}

int cli_fail_status(const cli_state *cli, gyre_status status,
                    const gyre_error *error)
{
    const char *text = error != NULL && error->text[0] != '\0'
                           ? error->text
                           : gyre_status_text(status);

    return report(cli, cli_code(status), gyre_status_name(status), text);
}

int cli_print_json(json_t *value)
{
    int failed;

    if (value == NULL) {
        fputs("gyre: no memory for JSON\n", stderr);
        return CLI_FAULT;
    }
    failed = json_dumpf(value, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY);
    json_decref(value);
    if (failed == 0)
        putchar('\n');
    return CLI_GOOD; /* main sees a failed write */
}

/* ---- numbers --------------------------------------------------------- */

static bool read_whole(const char *text, bool suffix, uint64_t *out)
{
    unsigned long long value;
    char *end;

    /* strtoull takes a sign and blanks; a count has neither. */
    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0)
        return false;
    if (suffix && *end != '\0') {
        const char *letters = "KMGT";
        const char *letter = strchr(letters, toupper((unsigned char)*end));
        unsigned shift;

        if (letter == NULL)
            return false;
        shift = 10 * (unsigned)(letter - letters + 1);
        if (value > UINT64_MAX >> shift)
            return false;
        value <<= shift;
        end++;
    }
    if (*end != '\0')
        return false;
    *out = value;
    return true;
}

static bool read_number(const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || isspace((unsigned char)text[0]) ||
        !isfinite(value))
        return false;
    *out = value;
    return true;
}

bool cli_read(cli_kind kind, const char *text, void *out)
{
    switch (kind) {
    case CLI_FLAG:
        *(bool *)out = true;
        return true;
    case CLI_TEXT:
        *(const char **)out = text;
        return true;
    case CLI_COUNT:
    case CLI_BYTES:
        return read_whole(text, kind == CLI_BYTES, out);
    case CLI_NUMBER:
        return read_number(text, out);
    }
    return false;
}

/* ---- options --------------------------------------------------------- */

enum { MAX_OPTIONS = 32, COMMON = 6 };

static void help(const cli_state *cli, const cli_usage *usage,
                 const cli_option *options)
{
    printf("usage: gyre %s [OPTION]...%s%s\n\n%s\n\n", cli->command,
           usage->arguments[0] != '\0' ? " " : "", usage->arguments,
           usage->summary);
    for (; options->name != NULL; options++) {
        char left[40];

        if (options->help == NULL)
            continue;
        snprintf(left, sizeof(left), "--%s%s%s", options->name,
                 options->value != NULL ? " " : "",
                 options->value != NULL ? options->value : "");
        printf("  %-24s %s\n", left, options->help);
    }
}

/* getopt takes any unique beginning of a name; a script that leans on that
 * breaks when an option is added, so names are wanted whole. */
static bool is_whole(const char *given, const char *name)
{
    size_t length = strcspn(given, "=");

    return length == strlen(name) && strncmp(given, name, length) == 0;
}

static int parse(cli_state *cli, const cli_usage *usage,
                 const cli_option *options, int count, int argc, char **argv,
                 bool *wants_help)
{
    struct option names[MAX_OPTIONS + 1] = {0};
    int found;

    for (int i = 0; i < count; i++) {
        names[i].name = options[i].name;
        names[i].has_arg = options[i].value != NULL;
        names[i].val = 256 + i;
    }
    opterr = 0;
    optind = 1;
    while ((found = getopt_long(argc, argv, ":h", names, NULL)) != -1) {
        const cli_option *option = found >= 256 ? &options[found - 256] : NULL;
        const char *given = argv[optind - 1];

        if (found == 'h') {
            *wants_help = true;
        } else if (found == ':') {
            return cli_fail(cli, CLI_USAGE, "%s needs a value", given);
        } else if (option == NULL) {
            return cli_fail(cli, CLI_USAGE, "no option %s; see gyre %s --help",
                            given, cli->command);
        } else {
            if (option->value != NULL && optarg == given)
                given = argv[optind - 2]; /* the value stands apart */
            if (strncmp(given, "--", 2) == 0 &&
                !is_whole(given + 2, option->name))
                return cli_fail(cli, CLI_USAGE, "no option %s; is it --%s?",
                                given, option->name);
            if (!cli_read(option->kind, optarg, option->out))
                return cli_fail(cli, CLI_USAGE,
                                "--%s: \"%s\" is not a %s that fits",
                                option->name, optarg,
                                option->kind == CLI_NUMBER  ? "number"
                                : option->kind == CLI_BYTES ? "size"
                                                            : "count");
        }
    }
    cli->argc = argc - optind;
    cli->argv = argv + optind;
    if (*wants_help)
        return -1;
    if (cli->argc < usage->min)
        return cli_fail(cli, CLI_USAGE, "an argument is missing: gyre %s %s",
                        cli->command, usage->arguments);
    if (usage->max >= 0 && cli->argc > usage->max)
        return cli_fail(cli, CLI_USAGE, "one argument too many: \"%s\"",
                        cli->argv[usage->max]);
    return -1;
}

int cli_parse(cli_state *cli, const cli_usage *usage, int argc, char **argv)
{
    bool wants_help = false;
    const cli_option common[COMMON + 1] = {
        {"plugin-path", "DIRS", "look for plugins here first", CLI_TEXT,
         &cli->plugin_path},
        {"isa", "NAME", "scalar, avx2 or avx512; default: the best", CLI_TEXT,
         &cli->isa},
        {"json", NULL, "write the result as JSON", CLI_FLAG, &cli->json},
        {"quiet", NULL, "no progress and no warnings", CLI_FLAG, &cli->quiet},
        {"verbose", NULL, "say more on stderr", CLI_FLAG, &cli->verbose},
        {"help", NULL, "show this", CLI_FLAG, &wants_help},
        {0},
    };
    cli_option options[MAX_OPTIONS + 1] = {0};
    int count = 0;
    int code;

    memset(cli, 0, sizeof(*cli));
    cli->command = argv[0];
    for (const cli_option *own = usage->options;
         own != NULL && own->name != NULL && count < MAX_OPTIONS - COMMON;
         own++)
        options[count++] = *own;
    memcpy(options + count, common, sizeof(common));
    count += COMMON;
    /* so that a mistake before it is reported as JSON too */
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        cli->json = cli->json || strcmp(argv[i], "--json") == 0;
    code = parse(cli, usage, options, count, argc, argv, &wants_help);
    if (code == -1 && wants_help) {
        help(cli, usage, options);
        return CLI_GOOD;
    }
    return code;
}

/* ---- context --------------------------------------------------------- */

static void log_all(void *user, gyre_log_level level, const char *text)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    const gyre_log_level *most = user;

    if (level <= *most)
        fprintf(stderr, "gyre: %s: %s\n", names[level], text);
}

int cli_context(const cli_state *cli, const gyre_context_options *more,
                gyre_context **out)
{
    static gyre_log_level most; /* outlives the context */
    gyre_context_options options = {0};
    gyre_error error = {0};
    gyre_status status;

    if (more != NULL)
        options = *more;
    most = cli->quiet     ? GYRE_LOG_ERROR
           : cli->verbose ? GYRE_LOG_DEBUG
                          : GYRE_LOG_WARNING;
    options.size = sizeof(options);
    options.log = log_all;
    options.log_user = &most;
    options.plugin_path = cli->plugin_path;
    options.instruction_set = cli->isa;
    status = gyre_context_create(&options, out, &error);
    return status == GYRE_OK ? -1 : cli_fail_status(cli, status, &error);
}
