/* SPDX-License-Identifier: Apache-2.0 */
/* gyre plan: attention schedules as plans.  Here list and bytes. */
#include "config.h"

#include "cmd_plan.h"
#include "commands.h"

#include <string.h>

/* ---- list ---------------------------------------------------------------- */

typedef struct listing {
    bool json;
    json_t *list;
    size_t count;
} listing;

/* Structs of a table lie as far apart as the first says (gyre/plugin.h). */
static const gyre_parameter *parameter_at(const gyre_plugin *plugin,
                                          uint32_t index)
{
    const char *first = (const char *)plugin->parameters;

    return (const gyre_parameter *)(const void *)(first +
                                                  index *
                                                      plugin->parameters->size);
}

/* "1", or the word of a choice. */
static void initial_text(const gyre_parameter *p, char text[64])
{
    const char *words = p->words;

    snprintf(text, 64, "%g", p->initial);
    if (p->type == GYRE_TYPE_SWITCH)
        snprintf(text, 64, "%s", p->initial != 0 ? "true" : "false");
    if (p->type != GYRE_TYPE_CHOICE || words == NULL)
        return;
    for (double i = p->initial; i >= 1 && words != NULL; i--)
        words = strchr(words, '|') != NULL ? strchr(words, '|') + 1 : NULL;
    if (words != NULL)
        snprintf(text, 64, "%.*s", (int)strcspn(words, "|"), words);
}

static void add_json(listing *work, const gyre_plugin *plugin)
{
    json_t *parameters = json_object();
    char text[64];

    for (uint32_t i = 0; i < plugin->parameter_count; i++) {
        const gyre_parameter *p = parameter_at(plugin, i);

        initial_text(p, text);
        json_object_set_new(parameters, p->name,
                            json_pack("{s:s,s:s?,s:s}", "default", text,
                                      "words", p->words, "doc", p->doc));
    }
    json_array_append_new(work->list,
                          json_pack("{s:s,s:s,s:s,s:o}", "name", plugin->name,
                                    "version", plugin->version, "summary",
                                    plugin->summary, "parameters", parameters));
}

static int each_plugin(void *user, const gyre_plugin *plugin, const char *path)
{
    listing *work = user;

    (void)path;
    if (strcmp(plugin->kind, GYRE_KIND_SCHEDULE) != 0)
        return 0;
    work->count++;
    if (work->json) {
        add_json(work, plugin);
        return 0;
    }
    printf("%-12s %s\n", plugin->name, plugin->summary);
    for (uint32_t i = 0; i < plugin->parameter_count; i++) {
        const gyre_parameter *p = parameter_at(plugin, i);
        char left[96], text[64];

        initial_text(p, text);
        snprintf(left, sizeof(left), "%s=%s", p->name, text);
        printf("  %-20s %s\n", left, p->doc);
    }
    return 0;
}

static int plan_list(int argc, char **argv)
{
    static const cli_usage usage = {
        "", "List the schedules that can be found, with their parameters.",
        NULL, 0, 0};
    gyre_context *context = NULL;
    gyre_error error = {0};
    cli_state cli;
    int code = cli_parse(&cli, &usage, argc, argv);

    if (code == -1)
        code = cli_context(&cli, NULL, &context);
    if (code != -1)
        return code;
    listing work = {.json = cli.json, .list = json_array()};
    gyre_status status = gyre_plugin_each(context, each_plugin, &work, &error);
    if (status != GYRE_OK)
        code = cli_fail_status(&cli, status, &error);
    else if (cli.json)
        code = cli_print_json(json_incref(work.list));
    else if (work.count == 0)
        code = cli_fail(&cli, CLI_NOTHING,
                        "no schedules are found; set --plugin-path or "
                        "GYRE_PLUGIN_PATH to where they are");
    else
        code = CLI_GOOD;
    json_decref(work.list);
    gyre_context_destroy(context);
    return code;
}

/* ---- bytes --------------------------------------------------------------- */

enum { SENT, RECEIVED, OUTER_SENT, OUTER_RECEIVED, WAYS };

typedef struct sums {
    const char *phases[GYRE_PLAN_PHASES];
    uint32_t count;
    uint64_t sum[GYRE_PLAN_PHASES][WAYS], most[GYRE_PLAN_PHASES][WAYS];
    uint64_t memory; /* of the largest rank */
    uint32_t ranks;
} sums;

static uint32_t phase_of(sums *s, const char *name)
{
    uint32_t i = 0;

    while (i < s->count && strcmp(s->phases[i], name) != 0)
        i++;
    if (i == s->count)
        s->phases[s->count++] = name;
    return i;
}

static gyre_status add_rank(sums *s, const gyre_plan *plan, uint32_t rank,
                            gyre_error *error)
{
    gyre_phase_bytes bytes[GYRE_PLAN_PHASES];
    uint32_t count = 0;
    uint64_t memory = 0, external = 0;
    gyre_status status = gyre_plan_rank_bytes(plan, rank, bytes, &count, error);

    if (status == GYRE_OK)
        status = gyre_plan_rank_memory(plan, rank, &memory, &external, error);
    if (status != GYRE_OK)
        return status;
    s->memory = memory > s->memory ? memory : s->memory;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t both[WAYS] = {bytes[i].sent, bytes[i].received,
                                     bytes[i].outer_sent,
                                     bytes[i].outer_received};
        uint32_t at = phase_of(s, bytes[i].phase);

        for (int way = 0; way < WAYS; way++) {
            s->sum[at][way] += both[way];
            if (both[way] > s->most[at][way])
                s->most[at][way] = both[way];
        }
    }
    return GYRE_OK;
}

/* An integer wherever it is one. */
static json_t *mean_of(uint64_t sum, uint32_t ranks)
{
    return sum % ranks == 0 ? json_integer((json_int_t)(sum / ranks))
                            : json_real((double)sum / ranks);
}

static json_t *way_object(const sums *s, uint32_t phase, int way)
{
    return json_pack("{s:o,s:I}", "mean", mean_of(s->sum[phase][way], s->ranks),
                     "max", (json_int_t)s->most[phase][way]);
}

static json_t *sums_object(const sums *s)
{
    json_t *phases = json_object();
    uint64_t total = 0;

    for (uint32_t i = 0; i < s->count; i++) {
        json_object_set_new(phases, s->phases[i],
                            json_pack("{s:o,s:I,s:o,s:o,s:o,s:o}", "mean",
                                      mean_of(s->sum[i][SENT], s->ranks), "max",
                                      (json_int_t)s->most[i][SENT], "sent",
                                      way_object(s, i, SENT), "received",
                                      way_object(s, i, RECEIVED), "outer_sent",
                                      way_object(s, i, OUTER_SENT),
                                      "outer_received",
                                      way_object(s, i, OUTER_RECEIVED)));
        total += s->sum[i][SENT];
    }
    return json_pack("{s:o,s:o,s:I}", "total", mean_of(total, s->ranks),
                     "phases", phases, "memory", (json_int_t)s->memory);
}

static void print_sums(const sums *s, const char *pass)
{
    double total = 0, most = 0, outer = 0;

    for (uint32_t i = 0; i < s->count; i++) {
        total += (double)s->sum[i][SENT] / s->ranks;
        outer += (double)s->sum[i][OUTER_SENT] / s->ranks;
        most = (double)s->most[i][RECEIVED] > most
                   ? (double)s->most[i][RECEIVED]
                   : most;
    }
    bool small = total < 1e6 && most < 1e6;
    double unit = small ? 1 : 1024 * 1024;
    int digits = small ? 0 : 3;
    printf("%-9s %5s a rank: sent mean         max  received mean         max"
           "\n",
           pass, small ? "bytes" : "MiB");
    for (uint32_t i = 0; i < s->count; i++)
        printf("  %-18s %14.*f %11.*f %14.*f %11.*f\n", s->phases[i], digits,
               (double)s->sum[i][SENT] / s->ranks / unit, digits,
               (double)s->most[i][SENT] / unit, digits,
               (double)s->sum[i][RECEIVED] / s->ranks / unit, digits,
               (double)s->most[i][RECEIVED] / unit);
    printf("  %-18s %14.*f   memory %.*f at most\n", "total", digits,
           total / unit, digits, (double)s->memory / unit);
    if (outer > 0)
        printf("  %-18s %14.*f\n", "between nodes", digits, outer / unit);
}

/* Of one pass, into json or text. */
static int count_pass(plan_ask *ask, uint32_t pass, json_t *out)
{
    gyre_plan *plan = NULL;
    gyre_error error = {0};
    sums s = {0};
    int code = plan_get(ask, ask->cli.argv[0], pass, &plan);

    if (code != -1)
        return code;
    s.ranks = gyre_plan_problem(plan)->ranks;
    gyre_status status = GYRE_OK;
    for (uint32_t r = 0; r < s.ranks && status == GYRE_OK; r++)
        status = add_rank(&s, plan, r, &error);
    if (status != GYRE_OK)
        code = cli_fail_status(&ask->cli, status, &error);
    else if (ask->cli.json)
        json_object_set_new(out, plan_pass_name(gyre_plan_pass(plan)),
                            sums_object(&s));
    else
        print_sums(&s, plan_pass_name(gyre_plan_pass(plan)));
    gyre_plan_free(plan);
    return code;
}

int plan_bytes(int argc, char **argv)
{
    static const cli_usage usage = {
        "NAME|FILE",
        "Count the bytes of a schedule, by phase: mean and largest over ranks.",
        NULL, 1, 1};
    plan_ask ask = {0};
    int code = plan_parse(&ask, &usage, NULL, argc, argv);

    if (code != -1)
        return code;
    const char *name = ask.cli.argv[0];
    json_t *out = json_pack("{s:s}", "schedule", plan_shown(&ask));
    if (plan_is_file(name)) {
        code = count_pass(&ask, GYRE_PASS_COUNT, out);
    } else {
        for (uint32_t pass = 0; pass < GYRE_PASS_COUNT && code == -1; pass++)
            if (ask.both || pass == ask.request.pass)
                code = count_pass(&ask, pass, out);
    }
    if (code == -1)
        code = ask.cli.json ? cli_print_json(json_incref(out)) : CLI_GOOD;
    json_decref(out);
    plan_close(&ask);
    return code;
}

/* ---- the command --------------------------------------------------------- */

static const cli_command parts[] = {
    {"list", "the schedules there are", plan_list},
    {"show", "a drawing, by rank and step", plan_show},
    {"bytes", "what is sent, by phase", plan_bytes},
    {"prove", "that a plan is right", plan_prove},
    {"run", "a plan on ranks, and compare with the definition", plan_run},
    {"diff", "of two plans", plan_diff},
    {"export", "as a file, a trace or a graph", plan_export},
};

int gyre_cmd_plan(int argc, char **argv)
{
    return cli_group("plan",
                     "Attention schedules as plans: draw, count, prove and run "
                     "them.",
                     parts, sizeof(parts) / sizeof(parts[0]), argc, argv);
}
