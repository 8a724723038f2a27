/* SPDX-License-Identifier: Apache-2.0 */
/* gyre plan run: a schedule on ranks, compared with the definition. */
#include "config.h"

#include "cmd_plan.h"

#include <gyre/attention.h>

#include <math.h>
#include <string.h>

/* Every op waits for up to so long, and a world gives up after 120 s. */
enum { MAX_DELAY = 1000000 };

typedef struct run_ask {
    plan_ask ask;
    const char *backend, *kernel;
    uint64_t delay, seed, tiles, buffered, workers;
    bool forward_only;
    json_t *ledger;
} run_ask;

static void each_link(void *user, uint32_t pass, uint32_t rank,
                      const gyre_attention_link *link)
{
    run_ask *run = user;

    json_array_append_new(
        run->ledger,
        json_pack("{s:s,s:i,s:s,s:s,s:I,s:I,s:I,s:I}", "pass",
                  plan_pass_name(pass), "rank", (int)rank, "phase", link->phase,
                  "class", link->klass, "sent", (json_int_t)link->sent,
                  "received", (json_int_t)link->received, "planned_sent",
                  (json_int_t)link->planned_sent, "planned_received",
                  (json_int_t)link->planned_received));
}

/* JSON has no infinity. */
static json_t *real_of(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static int report_json(run_ask *run, const gyre_trial *trial, double seconds)
{
    json_t *tensors = json_object();
    double most = 0, rel = 0;

    for (int i = 0; i < GYRE_TRIAL_TENSORS; i++) {
        const gyre_trial_tensor *t = &trial->tensor[i];
        char hash[24];

        if (!t->compared)
            continue;
        snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)t->hash);
        most = t->max_abs_error > most || isnan(t->max_abs_error)
                   ? t->max_abs_error
                   : most;
        rel = t->max_rel_error > rel || isnan(t->max_rel_error)
                  ? t->max_rel_error
                  : rel;
        json_object_set_new(
            tensors, t->name,
            json_pack("{s:b,s:o,s:o,s:o,s:s}", "ok", t->ok, "max_abs_error",
                      real_of(t->max_abs_error), "max_rel_error",
                      real_of(t->max_rel_error), "bound", real_of(t->bound),
                      "hash", hash));
    }
    json_t *out = json_pack(
        "{s:s,s:b,s:s,s:s,s:o,s:o,s:o,s:b,s:O,s:f}", "schedule",
        plan_shown(&run->ask), "ok", trial->ok, "backend", run->backend,
        "kernel", run->kernel, "max_abs_error", real_of(most), "max_rel_error",
        real_of(rel), "tensors", tensors, "ledger_ok", trial->ledger_ok,
        "ledger", run->ledger, "seconds", seconds);
    int code = cli_print_json(out);
    return code != CLI_GOOD ? code : trial->ok ? CLI_GOOD : CLI_WRONG;
}

static int report_text(const gyre_trial *trial, double seconds)
{
    printf("tensor   largest error  of largest value  allowed\n");
    for (int i = 0; i < GYRE_TRIAL_TENSORS; i++) {
        const gyre_trial_tensor *t = &trial->tensor[i];

        if (t->compared)
            printf("%-8s %13.3g %17.3g %8.2g%s\n", t->name, t->max_abs_error,
                   t->max_rel_error, t->bound, t->ok ? "" : "  WRONG");
    }
    if (trial->ledger_ok)
        printf("bytes are those of the plan on every rank\n");
    else
        printf("WRONG bytes: rank %u moved others than its plan says\n",
               trial->bad_rank);
    printf("%s in %.3f s\n", trial->ok ? "right" : "wrong", seconds);
    return trial->ok ? CLI_GOOD : CLI_WRONG;
}

/* ---- the trial ----------------------------------------------------------- */

/* Tensors are of the kernel's dtype unless --dtype says another. */
static void choose_dtype(run_ask *run)
{
    if (run->ask.dtype != NULL)
        return;
    if (strcmp(run->kernel, "count") == 0)
        run->ask.dtype = "f64";
    else if (strcmp(run->kernel, "bf16") == 0 ||
             strcmp(run->kernel, "f64") == 0)
        run->ask.dtype = run->kernel;
    else
        run->ask.dtype = "f32";
}

static int open_world(run_ask *run, uint32_t ranks, gyre_world **world)
{
    static const char *const phases[] = {"ring", "inner",  "outer",
                                         "a2a",  "gather", "reduce"};
    gyre_error error = {0};
    gyre_world_request request = {.size = sizeof(request),
                                  .backend = run->backend,
                                  .ranks = ranks,
                                  .buffered = run->buffered != 0,
                                  .timeout = UINT64_C(120) * 1000000000,
                                  .delay = run->delay * 1000,
                                  .delay_seed = run->seed,
                                  .node = (uint32_t)run->ask.node,
                                  .phases = phases,
                                  .phase_count = 0};
    gyre_status status =
        gyre_world_open(run->ask.context, &request, world, &error);

    return status == GYRE_OK ? -1
                             : cli_fail_status(&run->ask.cli, status, &error);
}

static int try_it(run_ask *run, gyre_attention_options *options)
{
    gyre_world *world = NULL;
    gyre_error error = {0};
    gyre_trial trial = {.size = sizeof(trial)};
    gyre_trial_options how = {
        .size = sizeof(how), .seed = run->seed, .link = each_link, .user = run};
    uint32_t first = 0, count = 0;
    uint32_t ranks = options->forward != NULL
                         ? gyre_plan_problem(options->forward)->ranks
                         : options->request->ranks;
    int code = open_world(run, ranks, &world);

    if (code != -1)
        return code;
    gyre_world_size(world, &first, &count);
    double start = plan_now();
    gyre_status status = gyre_attention_trial(run->ask.context, world, options,
                                              &how, &trial, &error);
    double seconds = plan_now() - start;
    if (status != GYRE_OK)
        code = cli_fail_status(&run->ask.cli, status, &error);
    else if (first != 0)
        code = trial.ok ? CLI_GOOD : CLI_WRONG;
    else
        code = run->ask.cli.json ? report_json(run, &trial, seconds)
                                 : report_text(&trial, seconds);
    gyre_world_close(world);
    return code;
}

/* What would not be what was asked for once it is in the library's types. */
static int check_counts(const run_ask *run)
{
    const cli_state *cli = &run->ask.cli;

    if (run->delay > MAX_DELAY)
        return cli_fail(cli, CLI_USAGE, "--delay: 0 to %d, in microseconds",
                        MAX_DELAY);
    if (run->tiles > UINT32_MAX)
        return cli_fail(cli, CLI_USAGE, "--tiles: 0 to %u", UINT32_MAX);
    if (run->buffered > 1)
        return cli_fail(cli, CLI_USAGE, "--buffered: 0 or 1");
    return -1;
}

static int run_plan(run_ask *run)
{
    plan_ask *ask = &run->ask;
    const char *name = ask->cli.argv[0];
    gyre_plan *plans[GYRE_PASS_COUNT] = {NULL, NULL};
    gyre_attention_options options = {
        .size = sizeof(options),
        .kernel = run->kernel,
        .tiles = (uint32_t)run->tiles,
        .forward_only =
            run->forward_only || (!ask->both && ask->request.pass == 0),
        .delay = run->delay * 1000,
        .delay_seed = run->seed,
        .workers =
            run->workers < UINT32_MAX ? (uint32_t)run->workers : UINT32_MAX};
    int code = -1;

    if (plan_is_file(name)) {
        code = plan_get(ask, name, GYRE_PASS_FORWARD, &plans[0]);
        if (code == -1 && ask->cli.argc > 1)
            code =
                plan_get(ask, ask->cli.argv[1], GYRE_PASS_BACKWARD, &plans[1]);
        options.forward = plans[0];
        options.backward = plans[1];
        options.forward_only = plans[1] == NULL;
    } else if (ask->cli.argc > 1) {
        code = cli_fail(&ask->cli, CLI_USAGE, "one argument too many: \"%s\"",
                        ask->cli.argv[1]);
    } else {
        choose_dtype(run);
        code = plan_request(ask, name);
        ask->request.pass = GYRE_PASS_FORWARD;
        options.request = &ask->request;
    }
    if (code == -1)
        code = try_it(run, &options);
    gyre_plan_free(plans[0]);
    gyre_plan_free(plans[1]);
    return code;
}

int plan_run(int argc, char **argv)
{
    static const cli_usage usage = {
        "NAME | FORWARD_FILE [BACKWARD_FILE]",
        "Run a schedule on ranks and compare with the definition of attention.",
        NULL, 1, 2};
    run_ask run = {.backend = "threads", .kernel = "f64", .seed = 1};
    const cli_option own[] = {
        {"backend", "NAME",
         "threads, or mpi under mpirun [threads]; --buffered 1", CLI_TEXT,
         &run.backend},
        {"kernel", "NAME", "count, f64, f32, bf16, opencl or cuda [f64]",
         CLI_TEXT, &run.kernel},
        {"delay", "US", "up to so long before everything [0]; --seed N [1]",
         CLI_COUNT, &run.delay},
        {"tiles", "N", "merge in fixed order [off]; --workers N threads",
         CLI_COUNT, &run.tiles},
        {"workers", "N", NULL, CLI_COUNT, &run.workers},
        {"seed", "N", NULL, CLI_COUNT, &run.seed},
        {"buffered", "N", NULL, CLI_COUNT, &run.buffered},
        {0}};
    int code = plan_parse(&run.ask, &usage, own, argc, argv);

    run.ledger = json_array();
    if (code == -1)
        code = check_counts(&run);
    if (code == -1)
        code = run_plan(&run);
    json_decref(run.ledger);
    plan_close(&run.ask);
    return code;
}
