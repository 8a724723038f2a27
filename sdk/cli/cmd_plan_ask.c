/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of gyre plan are asked: flags, mask, parameters, files. */
#include "config.h"

#include "cmd_plan.h"
#include "words.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

double plan_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

const char *plan_pass_name(uint32_t pass)
{
    return pass == GYRE_PASS_BACKWARD ? "backward" : "forward";
}

/* ---- options ------------------------------------------------------------- */

static void shared_options(plan_ask *ask, cli_option *out)
{
    const cli_option list[] = {
        {"ranks", "N", "how many [4]; --node-size N on a node [all]", CLI_COUNT,
         &ask->ranks},
        {"seq", "N", "tokens [64 a rank]; --batch N sequences [1]", CLI_COUNT,
         &ask->seq},
        {"batch", "N", NULL, CLI_COUNT, &ask->batch},
        {"node-size", "N", NULL, CLI_COUNT, &ask->node},
        {"heads", "N", "of Q [8]; --kv-heads N of K and V [as many]", CLI_COUNT,
         &ask->heads},
        {"kv-heads", "N", NULL, CLI_COUNT, &ask->kv_heads},
        {"head-dim", "N", "of Q and K [64]; --v-head-dim N of V [the same]",
         CLI_COUNT, &ask->head_dim},
        {"v-head-dim", "N", NULL, CLI_COUNT, &ask->v_head_dim},
        {"dtype", "NAME", "of tensors; --wire-dtype NAME of sums sent [f32]",
         CLI_TEXT, &ask->dtype},
        {"wire-dtype", "NAME", NULL, CLI_TEXT, &ask->wire},
        {"grad-dtype", "NAME", NULL, CLI_TEXT, &ask->wire},
        {"mask", "MASK", "causal, full, window:N or docs:FILE [causal]",
         CLI_TEXT, &ask->mask},
        {"layout", "NAME", "contiguous, zigzag [if causal], striped, documents",
         CLI_TEXT, &ask->layout},
        {"param", "NAME=VALUE", "of the schedule; may be given again", CLI_TEXT,
         &ask->param},
        {"drop", "WHAT", "none or dead: what no cell needs [none]", CLI_TEXT,
         &ask->drop},
        {"pass", "PASS", "forward or backward [both, or forward]", CLI_TEXT,
         &ask->pass},
        {0}};

    memcpy(out, list, sizeof(list));
}

/* Of a problem.  A file has its own: there they are mistakes. */
static const struct {
    const char *name;
    size_t count; /* where it is in a plan_ask; 0: not a count above 0 */
} problem_options[] = {
    {"ranks", offsetof(plan_ask, ranks)},
    {"seq", offsetof(plan_ask, seq)},
    {"batch", offsetof(plan_ask, batch)},
    {"node-size", offsetof(plan_ask, node)},
    {"heads", offsetof(plan_ask, heads)},
    {"kv-heads", offsetof(plan_ask, kv_heads)},
    {"head-dim", offsetof(plan_ask, head_dim)},
    {"v-head-dim", offsetof(plan_ask, v_head_dim)},
    {"dtype", 0},
    {"wire-dtype", 0},
    {"grad-dtype", 0},
    {"mask", 0},
    {"layout", 0},
    {"param", 0},
    {"drop", 0},
    {"pass", 0},
};

/* Options that say nothing here, or a 0 that would stand for "not given". */
static int check_given(plan_ask *ask, int argc, char **argv)
{
    int files = 0;

    for (int i = 0; i < ask->cli.argc; i++)
        files += plan_is_file(ask->cli.argv[i]);
    for (size_t i = 0; i < sizeof(problem_options) / sizeof(*problem_options);
         i++) {
        const char *name = problem_options[i].name, *word[1];
        size_t at = problem_options[i].count;

        if (cli_words(argc, argv, name, word, 1) == 0)
            continue;
        if (files > 0 && files == ask->cli.argc)
            return cli_fail(&ask->cli, CLI_USAGE,
                            "--%s: %s is a plan in a file, which has a problem "
                            "and a pass of its own; leave --%s out, or name "
                            "its schedule",
                            name, ask->cli.argv[0], name);
        if (at > 0 && *(const uint64_t *)(const void *)((char *)ask + at) == 0)
            return cli_fail(&ask->cli, CLI_USAGE,
                            "--%s: 0 is too small: at least 1", name);
    }
    return -1;
}

static int read_pass(plan_ask *ask)
{
    ask->both = ask->pass == NULL;
    if (ask->both || strcmp(ask->pass, "forward") == 0)
        return -1;
    if (strcmp(ask->pass, "backward") != 0)
        return cli_fail(&ask->cli, CLI_USAGE,
                        "--pass: \"%s\" is not forward or backward", ask->pass);
    ask->request.pass = GYRE_PASS_BACKWARD;
    return -1;
}

int plan_parse(plan_ask *ask, const cli_usage *usage, const cli_option *own,
               int argc, char **argv)
{
    cli_usage all = *usage;
    size_t n = 0;

    for (; own != NULL && own->name != NULL; own++)
        ask->options[n++] = *own;
    shared_options(ask, ask->options + n);
    all.options = ask->options;
    ask->word_count = cli_words(argc, argv, "param", ask->words, PLAN_SETTINGS);
    char **list = malloc((size_t)argc * sizeof(*list)); /* getopt sorts argv */
    if (list == NULL)
        return CLI_FAULT;
    memcpy(list, argv, (size_t)argc * sizeof(*list));
    int code = cli_parse(&ask->cli, &all, argc, argv);
    if (code == -1 && ask->word_count < 0)
        code = cli_fail(&ask->cli, CLI_USAGE, "more than %d times --param",
                        PLAN_SETTINGS);
    if (code == -1)
        code = check_given(ask, argc, list);
    free(list);
    if (code == -1)
        code = read_pass(ask);
    if (code == -1)
        code = cli_context(&ask->cli, NULL, &ask->context);
    return code;
}

void plan_close(plan_ask *ask)
{
    free(ask->documents);
    free(ask->bounds);
    gyre_context_destroy(ask->context);
}

/* ---- mask ---------------------------------------------------------------- */

/* The whole file with a NUL behind it; NULL after reporting. */
static char *read_file(plan_ask *ask, const char *path, size_t *size, int *code)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    char *text = NULL;
    size_t room = 0, used = 0, got = 0;

    *code = CLI_USAGE;
    if (*path == '\0') {
        cli_fail(&ask->cli, *code, "a file without a name");
        return NULL;
    }
    if (file == NULL) {
        cli_fail(&ask->cli, *code, "%s: %s", path, strerror(errno));
        return NULL;
    }
    do {
        used += got;
        if (used + 1 >= room) {
            room = room > 0 ? 2 * room : 1 << 16;
            char *more = realloc(text, room);
            if (more == NULL)
                break;
            text = more;
        }
        got = fread(text + used, 1, room - used - 1, file);
    } while (got > 0);
    bool good = text != NULL && used + 1 < room && !ferror(file);
    int why = text == NULL || used + 1 >= room ? ENOMEM : errno;
    if (file != stdin)
        fclose(file);
    if (good) {
        text[used] = '\0';
        *size = used;
        return text;
    }
    free(text);
    *code = why == EISDIR ? CLI_USAGE : CLI_FAULT;
    cli_fail(&ask->cli, *code, "%s: %s", path, strerror(why));
    return NULL;
}

static size_t count_words(const char *text)
{
    size_t n = 0;

    for (const char *c = text; *c != '\0'; c++)
        n += strchr(" \t\r\n", *c) == NULL && c > text &&
             strchr(" \t\r\n", c[-1]) != NULL;
    return n + 1;
}

/* A line of lengths is a table; "#" begins a comment. */
static int read_tables(plan_ask *ask, const char *path, char *text)
{
    size_t words = count_words(text), used = 0;
    uint32_t tables = 0, number = 0;

    ask->documents = calloc(words, sizeof(*ask->documents));
    ask->bounds = calloc(2 * words, sizeof(*ask->bounds));
    if (ask->documents == NULL || ask->bounds == NULL)
        return cli_fail(&ask->cli, CLI_FAULT, "no memory for %zu documents",
                        words);
    for (char *line = text, *end; line != NULL; line = end) {
        uint64_t *first = ask->bounds + used, at = 0, length;
        uint32_t count = 0;

        number++;
        end = strchr(line, '\n');
        if (end != NULL)
            *end++ = '\0';
        line[strcspn(line, "#")] = '\0';
        for (char *word = strtok(line, " \t\r"); word != NULL;
             word = strtok(NULL, " \t\r")) {
            if (!cli_read(CLI_COUNT, word, &length))
                return cli_fail(&ask->cli, CLI_USAGE,
                                "%s:%u: \"%s\" is no length of a document",
                                path, number, word);
            if (length > ask->request.tokens - at)
                return cli_fail(&ask->cli, CLI_USAGE,
                                "%s:%u: documents up to the one of %llu are "
                                "longer than a sequence of %llu tokens; give "
                                "--seq, or shorter ones",
                                path, number, (unsigned long long)length,
                                (unsigned long long)ask->request.tokens);
            at += length;
            first[++count] = at;
        }
        if (count == 0)
            continue;
        ask->documents[tables++] =
            (gyre_documents){.bounds = first, .count = count};
        used += count + 1;
    }
    if (tables == 0)
        return cli_fail(&ask->cli, CLI_USAGE, "%s: no documents", path);
    ask->mask_table.document_count = tables;
    ask->mask_table.documents = ask->documents;
    return -1;
}

static int read_documents(plan_ask *ask, const char *path)
{
    size_t size;
    int code;
    char *text = read_file(ask, path, &size, &code);

    if (text == NULL)
        return code;
    code = strlen(text) == size
               ? read_tables(ask, path, text)
               : cli_fail(&ask->cli, CLI_USAGE, "%s: not a text", path);
    free(text);
    return code;
}

/* Window and documents are causal, too. */
static int read_mask(plan_ask *ask)
{
    const char *mask = ask->mask != NULL ? ask->mask : "causal";

    ask->mask_table = (gyre_mask){.size = sizeof(gyre_mask), .causal = 1};
    if (strcmp(mask, "full") == 0) {
        ask->mask_table.causal = 0;
    } else if (strncmp(mask, "window:", 7) == 0) {
        if (!cli_read(CLI_COUNT, mask + 7, &ask->mask_table.window) ||
            ask->mask_table.window == 0)
            return cli_fail(&ask->cli, CLI_USAGE,
                            "--mask window:N: \"%s\" is no count above 0",
                            mask + 7);
    } else if (strncmp(mask, "docs:", 5) == 0) {
        return read_documents(ask, mask + 5);
    } else if (strcmp(mask, "causal") != 0) {
        return cli_fail(&ask->cli, CLI_USAGE,
                        "--mask: \"%s\" is not causal, full, window:N or "
                        "docs:FILE",
                        mask);
    }
    return -1;
}

/* ---- request ------------------------------------------------------------- */

static int read_settings(plan_ask *ask, const char *name)
{
    const gyre_plugin *plugin = NULL;
    gyre_error error = {0};
    gyre_status status = gyre_plugin_find(ask->context, GYRE_KIND_SCHEDULE,
                                          name, &plugin, &error);

    for (int i = 0; i < ask->word_count && status == GYRE_OK; i++) {
        const char *equal = strchr(ask->words[i], '=');
        static char names[PLAN_SETTINGS][64];

        if (equal == NULL || equal - ask->words[i] >= 64)
            return cli_fail(&ask->cli, CLI_USAGE,
                            "--param: \"%s\" is not NAME=VALUE", ask->words[i]);
        snprintf(names[i], sizeof(names[i]), "%.*s",
                 (int)(equal - ask->words[i]), ask->words[i]);
        ask->settings[i].name = names[i];
        status = gyre_plugin_parse(plugin, names[i], equal + 1,
                                   &ask->settings[i].value, &error);
    }
    ask->request.settings = ask->settings;
    ask->request.setting_count = (size_t)ask->word_count;
    return status == GYRE_OK ? -1 : cli_fail_status(&ask->cli, status, &error);
}

static int read_dtype(plan_ask *ask, const char *option, const char *text,
                      uint32_t initial, uint32_t *out)
{
    gyre_error error = {0};
    gyre_dtype dtype = (gyre_dtype)initial;
    gyre_status status =
        text != NULL ? gyre_dtype_parse(text, &dtype, &error) : GYRE_OK;

    *out = dtype;
    return status == GYRE_OK
               ? -1
               : cli_fail(&ask->cli, CLI_USAGE, "--%s: %s", option, error.text);
}

static int read_counts(plan_ask *ask)
{
    gyre_plan_request *r = &ask->request;
    const struct {
        const char *name;
        uint64_t given;
        uint32_t initial;
        uint32_t *out;
    } list[] = {
        {"ranks", ask->ranks, 4, &r->ranks},
        {"batch", ask->batch, 1, &r->batch},
        {"heads", ask->heads, 8, &r->heads},
        {"kv-heads", ask->kv_heads, 0, &r->kv_heads},
        {"head-dim", ask->head_dim, 64, &r->head_dim},
        {"v-head-dim", ask->v_head_dim, 0, &r->v_head_dim},
        {"node-size", ask->node, 0, &r->node},
    };

    for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
        if (list[i].given > UINT32_MAX)
            return cli_fail(&ask->cli, CLI_USAGE, "--%s: %llu is too large",
                            list[i].name, (unsigned long long)list[i].given);
        *list[i].out =
            list[i].given > 0 ? (uint32_t)list[i].given : list[i].initial;
    }
    r->tokens = ask->seq > 0 ? ask->seq : UINT64_C(64) * r->ranks;
    return -1;
}

static int read_words(plan_ask *ask)
{
    gyre_plan_request *r = &ask->request;
    const char *drop = ask->drop != NULL ? ask->drop : "none";
    gyre_error error = {0};

    r->drop = strcmp(drop, "dead") == 0 ? GYRE_DROP_DEAD : GYRE_DROP_NONE;
    if (r->drop == GYRE_DROP_NONE && strcmp(drop, "none") != 0)
        return cli_fail(&ask->cli, CLI_USAGE,
                        "--drop: \"%s\" is not none or dead", drop);
    r->layout =
        ask->mask_table.causal ? GYRE_LAYOUT_ZIGZAG : GYRE_LAYOUT_CONTIGUOUS;
    if (ask->layout != NULL &&
        gyre_layout_parse(ask->layout, &r->layout, &error) != GYRE_OK)
        return cli_fail(&ask->cli, CLI_USAGE, "--layout: %s", error.text);
    int code = read_dtype(ask, "dtype", ask->dtype, GYRE_BF16, &r->dtype);
    return code == -1 ? read_dtype(ask, "wire-dtype", ask->wire, GYRE_F32,
                                   &r->wire_dtype)
                      : code;
}

int plan_request(plan_ask *ask, const char *name)
{
    uint32_t pass = ask->request.pass;

    ask->request = (gyre_plan_request){
        .size = sizeof(ask->request), .schedule = name, .pass = pass};
    int code = read_counts(ask);
    if (code == -1 && ask->mask_table.size == 0) /* for all passes once */
        code = read_mask(ask);
    ask->request.mask = &ask->mask_table;
    if (code == -1)
        code = read_words(ask);
    return code == -1 ? read_settings(ask, name) : code;
}

const char *plan_shown(plan_ask *ask)
{
    cli_clean(ask->cli.argv[0], ask->shown, sizeof(ask->shown));
    return ask->shown;
}

/* ---- plans --------------------------------------------------------------- */

bool plan_is_file(const char *name)
{
    return strchr(name, '/') != NULL || strchr(name, '.') != NULL ||
           strcmp(name, "-") == 0;
}

static int load(plan_ask *ask, const char *path, gyre_plan **out)
{
    gyre_error error = {0};
    size_t size;
    int code;
    char *data = read_file(ask, path, &size, &code);

    if (data == NULL)
        return code;
    gyre_status status =
        gyre_plan_read(ask->context, path, data, size, out, &error);
    free(data);
    return status == GYRE_OK ? -1 : cli_fail_status(&ask->cli, status, &error);
}

int plan_get(plan_ask *ask, const char *name, uint32_t pass, gyre_plan **out)
{
    gyre_error error = {0};

    if (plan_is_file(name) && ask->node > 0) /* beside a schedule */
        return cli_fail(&ask->cli, CLI_USAGE,
                        "--node-size: %s is a plan in a file, which knows no "
                        "nodes; name its schedule",
                        name);
    if (plan_is_file(name)) {
        gyre_plan *plan = NULL;
        int code = load(ask, name, &plan);
        if (code == -1 && pass < GYRE_PASS_COUNT &&
            gyre_plan_pass(plan) != pass) {
            code = cli_fail(&ask->cli, CLI_USAGE, "%s is a %s plan, not %s",
                            name, plan_pass_name(gyre_plan_pass(plan)),
                            plan_pass_name(pass));
            gyre_plan_free(plan);
        }
        if (code == -1)
            *out = plan;
        return code;
    }
    int code = plan_request(ask, name);
    if (code != -1)
        return code;
    ask->request.pass = pass < GYRE_PASS_COUNT ? pass : GYRE_PASS_FORWARD;
    gyre_status status =
        gyre_plan_make(ask->context, &ask->request, out, &error);
    return status == GYRE_OK ? -1 : cli_fail_status(&ask->cli, status, &error);
}

int plan_write(plan_ask *ask, const char *path,
               void (*write)(void *user, FILE *file), void *user)
{
    if (path == NULL || strcmp(path, "-") == 0) {
        write(user, stdout);
        return CLI_GOOD; /* main sees a failed write */
    }
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return cli_fail(&ask->cli, CLI_USAGE, "%s: %s", path, strerror(errno));
    write(user, file);
    bool good = fflush(file) == 0 && !ferror(file);
    int why = errno;
    if (fclose(file) != 0 || !good)
        return cli_fail(&ask->cli, CLI_FAULT, "%s: %s", path,
                        strerror(good ? errno : why));
    return CLI_GOOD;
}
