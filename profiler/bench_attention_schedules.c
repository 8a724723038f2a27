/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedules against each other: what their plans say, the ranks' run in network
 * namespaces, and both side by side.
 */
#include "config.h"

#include "bench_attention.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the model takes for the rest. */
static const double FRAME = 1448.0 / 1514.0; /* data in a full frame of TCP */
static const double NEAR = 1e9;              /* within a node, bytes a second */
static const double LATENCY = 500e-6;        /* of a group */
static const double MEMORY = 4e9;            /* bytes a second of other ops */

enum { MAX_SCHEDULES = 16, PATH_ROOM = 4096 };

typedef struct contest {
    const attention_options *opt;
    gyre_context *context;
    json_t *report;
    size_t count;
    char names[MAX_SCHEDULES][BENCH_ATTENTION_NAME];
    bench_attention_model model[MAX_SCHEDULES];
    double flops; /* a second */
    char folder[PATH_ROOM];
} contest;

/* ---- what plans say ---------------------------------------------------- */

static double link_rate(const contest *c)
{
    return (double)c->opt->rate * 1e6 / 8 * FRAME;
}

typedef struct amounts {
    uint64_t node;            /* ranks of one */
    double pairs, bytes, far; /* computed; sent; of them to other nodes */
} amounts;

static gyre_status add_step(void *user, const gyre_plan_step *step,
                            gyre_error *error)
{
    amounts *a = user;

    (void)error;
    a->pairs += (double)step->pairs;
    if (step->code != GYRE_OP_PUT)
        return GYRE_OK;
    a->bytes += (double)step->parts[0].bytes;
    if (step->peer / a->node != step->rank / a->node)
        a->far += (double)step->parts[0].bytes;
    return GYRE_OK;
}

static gyre_status make(const contest *c, const char *name, uint32_t pass,
                        gyre_plan **out, gyre_error *error)
{
    bench_attention_problem problem;
    gyre_status status =
        bench_attention_request(c->opt, c->context, name, &problem, error);

    if (status != GYRE_OK)
        return status;
    problem.request.pass = pass;
    return gyre_plan_make(c->context, &problem.request, out, error);
}

static gyre_status count(const contest *c, const gyre_plan *plan, amounts *out,
                         gyre_error *error)
{
    gyre_status status = GYRE_OK;

    *out = (amounts){.node = c->opt->slots};
    for (uint32_t r = 0; r < c->opt->ranks && status == GYRE_OK; r++)
        status = gyre_plan_walk(plan, r, add_step, out, error);
    return status;
}

/* The rate at which a step of the forward ring takes `cover` times as long as
 * the transfer beside it: a ring has as many steps as ranks, and one transfer
 * fewer. */
static gyre_status choose_flops(contest *c, gyre_error *error)
{
    double ranks = (double)c->opt->ranks;
    gyre_plan *plan = NULL;
    amounts a = {0};

    if (c->opt->flops > 0) {
        c->flops = c->opt->flops * 1e9;
        return GYRE_OK;
    }
    gyre_status status = make(c, "ring", GYRE_PASS_FORWARD, &plan, error);
    if (status == GYRE_OK)
        status = count(c, plan, &a, error);
    gyre_plan_free(plan);
    double transfer = a.bytes / ranks / (ranks - 1) / link_rate(c);
    double step = a.pairs / ranks / ranks * 4 * (double)c->opt->head_dim;
    c->flops = step / (c->opt->cover * transfer);
    return status;
}

static gyre_status model(contest *c, const char *name,
                         bench_attention_model *out, gyre_error *error)
{
    const gyre_plan_rates rates = {.size = sizeof(rates),
                                   .flops = c->flops,
                                   .memory = MEMORY,
                                   .link = link_rate(c),
                                   .latency = LATENCY,
                                   .near_link = NEAR,
                                   .node = (uint32_t)c->opt->slots};
    gyre_status status = GYRE_OK;

    for (uint32_t pass = 0; pass < GYRE_PASS_COUNT && status == GYRE_OK;
         pass++) {
        gyre_plan *plan = NULL;
        amounts a = {0};

        status = make(c, name, pass, &plan, error);
        if (status == GYRE_OK)
            status = count(c, plan, &a, error);
        if (status == GYRE_OK)
            status = gyre_plan_time(plan, &rates, NULL, NULL,
                                    &out->seconds[pass], error);
        out->far[pass] = a.far;
        gyre_plan_free(plan);
    }
    return status;
}

/* Unless told otherwise: those that differ at this size, an inner ring within a
 * node, and two ranks that share the heads. */
static void default_list(const attention_options *opt, char *out, size_t size)
{
    uint64_t window = opt->slots > 1 ? opt->slots : 2;
    bool even = opt->ranks % 2 == 0;

    snprintf(out, size, "ring,double-ring");
    if (opt->ranks % window == 0)
        snprintf(out + strlen(out), size - strlen(out), ":window=%llu",
                 (unsigned long long)window);
    snprintf(out + strlen(out), size - strlen(out),
             ",2d%s,multi-ring,ulysses,allgather,burst,tokenring",
             even ? ":heads=2" : "");
}

/* Names that can run here; those that cannot are reported with the reason. */
static int choose(contest *c)
{
    json_t *left = json_array();
    char all[MAX_SCHEDULES * BENCH_ATTENTION_NAME];
    const char *at = c->opt->only != NULL ? c->opt->only : all;
    gyre_error error = {0};
    gyre_status status = choose_flops(c, &error);

    default_list(c->opt, all, sizeof(all));
    json_object_set_new(c->report, "left_out", left);
    json_object_set_new(c->report, "gflops", json_real(c->flops / 1e9));
    if (status != GYRE_OK)
        return cli_fail_status(c->opt->cli, status, &error);
    while (*at != '\0' && c->count < MAX_SCHEDULES) {
        size_t n = strcspn(at, ",");
        char *name = c->names[c->count];

        snprintf(name, BENCH_ATTENTION_NAME, "%.*s", (int)n, at);
        at += n + (at[n] == ',');
        status = model(c, name, &c->model[c->count], &error);
        if (status == GYRE_OK)
            c->count++;
        else if (status != GYRE_INVALID || c->opt->only != NULL)
            return cli_fail_status(c->opt->cli, status, &error);
        else
            json_array_append_new(left, json_pack("{s:s, s:s}", "schedule",
                                                  name, "why", error.text));
    }
    return c->count > 0 ? CLI_GOOD
                        : cli_fail(c->opt->cli, CLI_USAGE,
                                   "--only: name at least one schedule");
}

/* ---- the ranks' run ---------------------------------------------------- */

enum { MAX_WORDS = 48 };

typedef struct words {
    char text[MAX_WORDS][PATH_ROOM];
    char *list[MAX_WORDS + 1];
    size_t count;
} words;

static void add(words *w, const char *option, const char *format, ...)
    GYRE_PRINTF(3, 4);
static void add(words *w, const char *option, const char *format, ...)
{
    va_list more;

    if (option != NULL) {
        snprintf(w->text[w->count], PATH_ROOM, "%s", option);
        w->list[w->count] = w->text[w->count];
        w->count++;
    }
    va_start(more, format);
    vsnprintf(w->text[w->count], PATH_ROOM, format, more);
    va_end(more);
    w->list[w->count] = w->text[w->count];
    w->count++;
}

static void add_script(const contest *c, words *w)
{
    unsigned long long slots = c->opt->slots, ranks = c->opt->ranks;

    add(w, NULL, "%s", c->opt->netns);
    add(w, "--nodes", "%llu", ranks / slots);
    add(w, "--slots", "%llu", slots);
    add(w, "--rate", "%llumbit", (unsigned long long)c->opt->rate);
    add(w, NULL, "--");
}

static void add_rank(const contest *c, words *w)
{
    const attention_options *opt = c->opt;
    char only[MAX_SCHEDULES * BENCH_ATTENTION_NAME] = "";

    for (size_t i = 0; i < c->count; i++) {
        strcat(only, i > 0 ? "," : "");
        strcat(only, c->names[i]);
    }
    add(w, "bench", "attention");
    add(w, "--schedules", "--rank-into");
    add(w, NULL, "%s", c->folder);
    add(w, "--only", "%s", only);
    add(w, "--ranks", "%llu", (unsigned long long)opt->ranks);
    add(w, "--slots", "%llu", (unsigned long long)opt->slots);
    add(w, "--seq", "%llu", (unsigned long long)opt->seq);
    add(w, "--heads", "%llu", (unsigned long long)opt->heads);
    if (opt->kv_heads > 0)
        add(w, "--kv-heads", "%llu", (unsigned long long)opt->kv_heads);
    add(w, "--head-dim", "%llu", (unsigned long long)opt->head_dim);
    add(w, "--mask", "%s", opt->mask);
    add(w, "--steps", "%llu", (unsigned long long)opt->steps);
    add(w, "--gflops", "%.17g", c->flops / 1e9);
    if (opt->cli->plugin_path != NULL)
        add(w, "--plugin-path", "%s", opt->cli->plugin_path);
}

static int run_ranks(const contest *c)
{
    words *w = calloc(1, sizeof(*w));
    char self[PATH_ROOM];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    int code;

    if (w == NULL || n <= 0) {
        free(w);
        return cli_fail(c->opt->cli, CLI_FAULT, "no memory, or no /proc");
    }
    self[n] = '\0';
    add_script(c, w);
    add(w, NULL, "%s", self);
    add_rank(c, w);
    code = bench_attention_spawn(c->opt, w->list);
    free(w);
    return code;
}

/* ---- results ----------------------------------------------------------- */

static json_t *load(const contest *c, size_t rank)
{
    char path[PATH_ROOM + 32];

    snprintf(path, sizeof(path), "%s/%zu.json", c->folder, rank);
    return json_load_file(path, 0, NULL);
}

static int collect(const contest *c, json_t **files, json_t **parts)
{
    json_t *out = json_array();

    json_object_set_new(c->report, "schedules", out);
    for (size_t r = 0; r < c->opt->ranks; r++)
        if ((files[r] = load(c, r)) == NULL)
            return cli_fail(c->opt->cli, CLI_FAULT, "rank %zu wrote no result",
                            r);
    for (size_t i = 0; i < c->count; i++) {
        for (size_t r = 0; r < c->opt->ranks; r++)
            parts[r] = json_object_get(files[r], c->names[i]);
        json_t *merged =
            bench_attention_merge(c->opt, c->names[i], parts, &c->model[i]);
        if (merged == NULL)
            return cli_fail(c->opt->cli, CLI_FAULT,
                            "%s: a rank's result is incomplete", c->names[i]);
        json_array_append_new(out, merged);
    }
    return CLI_GOOD;
}

static int read_results(const contest *c)
{
    size_t n = (size_t)c->opt->ranks;
    json_t **files = calloc(2 * n, sizeof(json_t *));
    int code = files == NULL ? cli_fail(c->opt->cli, CLI_FAULT, "no memory")
                             : collect(c, files, files + n);

    for (size_t r = 0; r < n && files != NULL; r++)
        json_decref(files[r]);
    free(files);
    return code;
}

static void remove_folder(const contest *c)
{
    char path[PATH_ROOM + 32];

    for (size_t r = 0; r < c->opt->ranks; r++) {
        snprintf(path, sizeof(path), "%s/%zu.json", c->folder, r);
        unlink(path);
    }
    rmdir(c->folder);
}

int bench_attention_schedules(const attention_options *opt,
                              gyre_context *context, json_t *report)
{
    const char *temporary = getenv("TMPDIR");
    contest *c = calloc(1, sizeof(*c));
    int code;

    if (c == NULL)
        return cli_fail(opt->cli, CLI_FAULT, "no memory");
    c->opt = opt;
    c->context = context;
    c->report = report;
    code = choose(c);
    if (code == CLI_GOOD && geteuid() != 0)
        code = cli_fail(opt->cli, CLI_NOTHING,
                        "--schedules needs root: it makes network namespaces "
                        "and throttles their links");
    if (code == CLI_GOOD && access(opt->netns, X_OK) != 0)
        code = cli_fail(opt->cli, CLI_NOTHING,
                        "%s: %s; `make install` puts it there, --netns FILE "
                        "names it elsewhere",
                        opt->netns, strerror(errno));
    if (code != CLI_GOOD)
        goto done;
    snprintf(c->folder, sizeof(c->folder), "%s/gyre-bench-XXXXXX",
             temporary != NULL ? temporary : "/tmp");
    if (mkdtemp(c->folder) == NULL) {
        code =
            cli_fail(opt->cli, CLI_FAULT, "%s: %s", c->folder, strerror(errno));
        goto done;
    }
    code = run_ranks(c);
    if (code == CLI_GOOD)
        code = read_results(c);
    remove_folder(c);
    if (code == CLI_GOOD && !opt->cli->json)
        bench_attention_table(opt, report);
done:
    free(c);
    return code;
}
