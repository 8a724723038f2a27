/* SPDX-License-Identifier: Apache-2.0 */
/* gyre plan export and diff. */
#include "config.h"

#include "cmd_plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- export as text and bytes -------------------------------------------- */

typedef struct export
{
    plan_ask *ask;
    gyre_plan *plan;
    const char *format;
    gyre_plan_rates rates;
    json_t *list;        /* events or nodes */
    json_t **waits;      /* of the rank at hand, by unit */
    uint32_t *unit_node; /* the first id of a unit */
    uint32_t units, next, base;
    gyre_status status;
    gyre_error error;
}
export;

static gyre_status write_bytes(void *user, const void *data, size_t size,
                               gyre_error *error)
{
    (void)error; /* plan_write sees a failed write */
    fwrite(data, 1, size, user);
    return GYRE_OK;
}

static void write_text(void *user, FILE *file)
{
    export *e = user;

    e->status = gyre_plan_write_text(e->plan, write_bytes, file, &e->error);
}

static void write_binary(void *user, FILE *file)
{
    export *e = user;

    e->status = gyre_plan_write_binary(e->plan, write_bytes, file, &e->error);
}

/* ---- as a trace ---------------------------------------------------------- */

static const char *category(const gyre_plan_step *step)
{
    return step->peer != GYRE_NO_VIEW ? step->phase : "compute";
}

/* One event a unit: a group is drawn by its first op. */
static gyre_status add_event(void *user, const gyre_plan_step *step,
                             gyre_error *error)
{
    export *e = user;
    char text[512];

    (void)error;
    if (e->next == step->unit && e->base == step->rank)
        return GYRE_OK;
    e->next = step->unit;
    e->base = step->rank;
    gyre_plan_step_text(e->plan, step, text, sizeof(text));
    json_array_append_new(
        e->list,
        json_pack("{s:s,s:s,s:s,s:i,s:i,s:f,s:f,s:{s:i,s:s}}", "ph", "X",
                  "name", gyre_plan_op_name(step->code), "cat", category(step),
                  "pid", (int)step->rank, "tid", (int)step->lane, "ts",
                  step->begin * 1e6, "dur", (step->end - step->begin) * 1e6,
                  "args", "op", (int)step->op, "text", text));
    return GYRE_OK;
}

static void add_names(export *e)
{
    char name[32];

    for (uint32_t r = 0; r < gyre_plan_problem(e->plan)->ranks; r++) {
        snprintf(name, sizeof(name), "rank %u", r);
        json_array_append_new(e->list,
                              json_pack("{s:s,s:s,s:i,s:{s:s}}", "ph", "M",
                                        "name", "process_name", "pid", (int)r,
                                        "args", "name", name));
    }
}

static void write_trace(void *user, FILE *file)
{
    export *e = user;
    double total = 0;

    e->next = e->base = GYRE_NO_VIEW;
    add_names(e);
    e->status =
        gyre_plan_time(e->plan, &e->rates, add_event, e, &total, &e->error);
    if (e->status != GYRE_OK)
        return;
    json_t *all = json_pack("{s:O,s:s,s:{s:s,s:f}}", "traceEvents", e->list,
                            "displayTimeUnit", "ms", "otherData", "plan",
                            gyre_plan_name(e->plan), "seconds", total);
    json_dumpf(all, file, JSON_INDENT(1));
    fputc('\n', file);
    json_decref(all);
}

/* ---- as a graph ---------------------------------------------------------- */

/*
 * Nodes in the manner of Chakra execution traces: an op each, with the nodes
 * that it waits for and attributes.  Ids count through all ranks.
 */
static gyre_status count_unit(void *user, const gyre_plan_step *step,
                              gyre_error *error)
{
    export *e = user;

    (void)error;
    if (step->unit == e->units) {
        uint32_t *more = realloc(e->unit_node, (e->units + 1) * sizeof(*more));
        if (more == NULL)
            return GYRE_NO_MEMORY;
        e->unit_node = more;
        e->unit_node[e->units++] = e->base + step->op;
    }
    e->next++;
    return GYRE_OK;
}

static gyre_status keep_waits(void *user, uint32_t unit, const uint32_t *waits,
                              uint32_t count, gyre_error *error)
{
    export *e = user;

    (void)error;
    e->waits[unit] = json_array();
    for (uint32_t i = 0; i < count; i++) {
        /* all ops of the unit: its members end one by one */
        uint32_t last = waits[i] + 1 < e->units ? e->unit_node[waits[i] + 1]
                                                : e->base + e->next;
        for (uint32_t n = e->unit_node[waits[i]]; n < last; n++)
            json_array_append_new(e->waits[unit], json_integer(n));
    }
    return GYRE_OK;
}

static gyre_status add_node(void *user, const gyre_plan_step *step,
                            gyre_error *error)
{
    export *e = user;
    char text[512];
    const char *type = step->code == GYRE_OP_PUT   ? "COMM_SEND_NODE"
                       : step->code == GYRE_OP_GET ? "COMM_RECV_NODE"
                                                   : "COMP_NODE";

    (void)error;
    gyre_plan_step_text(e->plan, step, text, sizeof(text));
    json_t *node = json_pack(
        "{s:I,s:s,s:s,s:O,s:i,s:i,s:i}", "id", (json_int_t)e->base + step->op,
        "name", text, "type", type, "data_deps", e->waits[step->unit], "rank",
        (int)step->rank, "unit", (int)step->unit, "stream", (int)step->lane);
    if (step->peer != GYRE_NO_VIEW) {
        json_object_set_new(node, "comm_size",
                            json_integer((json_int_t)step->parts[0].bytes));
        json_object_set_new(node,
                            step->code == GYRE_OP_PUT ? "comm_dst" : "comm_src",
                            json_integer(step->peer));
        json_object_set_new(node, "comm_tag", json_integer(step->channel));
        json_object_set_new(node, "phase", json_string(step->phase));
    } else {
        json_object_set_new(node, "pairs",
                            json_integer((json_int_t)step->pairs));
    }
    json_array_append_new(e->list, node);
    return GYRE_OK;
}

static gyre_status add_rank(export *e, uint32_t rank)
{
    e->units = e->next = 0;
    gyre_status status =
        gyre_plan_walk(e->plan, rank, count_unit, e, &e->error);
    e->waits = calloc((size_t)e->units + 1, sizeof(json_t *));
    if (status == GYRE_OK && e->waits == NULL)
        status = GYRE_NO_MEMORY;
    if (status == GYRE_OK)
        status = gyre_plan_waits(e->plan, rank, keep_waits, e, &e->error);
    if (status == GYRE_OK)
        status = gyre_plan_walk(e->plan, rank, add_node, e, &e->error);
    for (uint32_t u = 0; e->waits != NULL && u < e->units; u++)
        json_decref(e->waits[u]);
    free(e->waits);
    e->base += e->next;
    return status;
}

static void write_graph(void *user, FILE *file)
{
    export *e = user;

    for (uint32_t r = 0;
         r < gyre_plan_problem(e->plan)->ranks && e->status == GYRE_OK; r++)
        e->status = add_rank(e, r);
    free(e->unit_node);
    if (e->status != GYRE_OK)
        return;
    json_t *all = json_pack("{s:s,s:s,s:O}", "schema", "gyre-graph/1", "plan",
                            gyre_plan_name(e->plan), "nodes", e->list);
    json_dumpf(all, file, JSON_INDENT(1));
    fputc('\n', file);
    json_decref(all);
}

/* ---- export -------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*write)(void *user, FILE *file);
} formats[] = {{"text", write_text},
               {"binary", write_binary},
               {"chrome", write_trace},
               {"chakra", write_graph}};

static int export_plan(export *e, const char *path)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
        if (strcmp(formats[i].name, e->format) != 0)
            continue;
        int code = plan_write(e->ask, path, formats[i].write, e);
        return e->status == GYRE_OK
                   ? code
                   : cli_fail_status(&e->ask->cli, e->status, &e->error);
    }
    return cli_fail(&e->ask->cli, CLI_USAGE,
                    "--format: \"%s\" is not text, binary, chrome or chakra",
                    e->format);
}

int plan_export(int argc, char **argv)
{
    static const cli_usage usage = {
        "NAME|FILE", "Write a plan to a file, or its times or its graph.", NULL,
        1, 1};
    const char *out = NULL;
    plan_ask ask = {0};
    export e = {.ask = &ask,
                .format = "chrome",
                .rates = {.size = sizeof(gyre_plan_rates),
                          .flops = 200e12,
                          .memory = 2e12,
                          .link = 25e9,
                          .latency = 5e-6}};
    const cli_option own[] = {
        {"format", "NAME", "chrome, chakra, text or binary [chrome]", CLI_TEXT,
         &e.format},
        {"out", "FILE", "[-]; --flops 200e12 --link 25e9 --latency 5e-6",
         CLI_TEXT, &out},
        {"flops", "N", NULL, CLI_NUMBER, &e.rates.flops},
        {"link", "N", NULL, CLI_NUMBER, &e.rates.link},
        {"latency", "N", NULL, CLI_NUMBER, &e.rates.latency},
        {0}};
    int code = plan_parse(&ask, &usage, own, argc, argv);

    if (code != -1)
        return code;
    const char *name = ask.cli.argv[0];
    code = plan_get(&ask, name,
                    plan_is_file(name) ? GYRE_PASS_COUNT : ask.request.pass,
                    &e.plan);
    e.list = json_array();
    if (code == -1)
        code = export_plan(&e, out);
    json_decref(e.list);
    gyre_plan_free(e.plan);
    plan_close(&ask);
    return code;
}

/* ---- diff ---------------------------------------------------------------- */

typedef struct differences {
    json_t *list;
    bool json;
    uint32_t rank; /* whose heading was printed */
} differences;

static json_t *place(uint32_t id)
{
    return id == GYRE_NO_VIEW ? json_null() : json_integer(id);
}

static void each_difference(void *user, const gyre_plan_difference *d)
{
    differences *all = user;

    if (all->json) {
        json_array_append_new(
            all->list, json_pack("{s:s,s:o,s:o,s:o,s:s}", "what", d->what,
                                 "rank", place(d->rank), "one", place(d->one),
                                 "other", place(d->other), "text", d->text));
        return;
    }
    if (d->rank != all->rank && d->rank != GYRE_NO_VIEW)
        printf("rank %u\n", d->rank);
    all->rank = d->rank;
    if (d->one == GYRE_NO_VIEW && d->other == GYRE_NO_VIEW)
        printf("%s: %s\n", d->what, d->text);
    else if (d->one != GYRE_NO_VIEW && d->other != GYRE_NO_VIEW)
        printf("! %s %u: %s\n", d->what, d->one, d->text);
    else
        printf("%c %s %u: %s\n", d->other == GYRE_NO_VIEW ? '-' : '+', d->what,
               d->other == GYRE_NO_VIEW ? d->one : d->other, d->text);
}

int plan_diff(int argc, char **argv)
{
    static const cli_usage usage = {
        "NAME|FILE NAME|FILE",
        "Say in what two plans differ: problem, then slots and ops by rank.",
        NULL, 2, 2};
    plan_ask ask = {0};
    gyre_plan *plans[2] = {NULL, NULL};
    gyre_error error = {0};
    uint64_t count = 0;
    int code = plan_parse(&ask, &usage, NULL, argc, argv);

    if (code != -1)
        return code;
    uint32_t pass = ask.request.pass;
    for (int i = 0; i < 2 && code == -1; i++) {
        const char *name = ask.cli.argv[i];
        code = plan_get(&ask, name, plan_is_file(name) ? GYRE_PASS_COUNT : pass,
                        &plans[i]);
    }
    differences all = {json_array(), ask.cli.json, GYRE_NO_VIEW};
    gyre_status status = GYRE_OK;
    if (code == -1)
        status = gyre_plan_diff(plans[0], plans[1], each_difference, &all,
                                &count, &error);
    if (status != GYRE_OK)
        code = cli_fail_status(&ask.cli, status, &error);
    else if (code == -1 && ask.cli.json)
        code = cli_print_json(json_pack("{s:b,s:I,s:O}", "same", count == 0,
                                        "count", (json_int_t)count,
                                        "differences", all.list));
    else if (code == -1)
        code = CLI_GOOD;
    if (code == CLI_GOOD && count == 0 && !ask.cli.json)
        printf("the same\n");
    code = code == CLI_GOOD && count > 0 ? CLI_WRONG : code;
    json_decref(all.list);
    gyre_plan_free(plans[0]);
    gyre_plan_free(plans[1]);
    plan_close(&ask);
    return code;
}
