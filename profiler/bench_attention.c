/* SPDX-License-Identifier: Apache-2.0 */
/* gyre bench attention: its options and its parts. */
#include "config.h"

#include "bench.h"
#include "bench_attention.h"
#include "words.h"

#include <stdio.h>
#include <string.h>

static int check_schedules(const attention_options *opt)
{
    if (opt->ranks < 2 || opt->ranks > 256)
        return cli_fail(opt->cli, CLI_USAGE, "--ranks: 2 to 256");
    if (opt->slots == 0 || opt->ranks % opt->slots != 0 ||
        opt->ranks / opt->slots > 32)
        return cli_fail(opt->cli, CLI_USAGE,
                        "--slots: so many that --ranks is 1 to 32 times it");
    if (opt->rate == 0 || opt->rate > 100000)
        return cli_fail(opt->cli, CLI_USAGE, "--rate: 1 to 100000");
    if (opt->steps == 0 || opt->steps > 1000)
        return cli_fail(opt->cli, CLI_USAGE, "--steps: 1 to 1000");
    if (!(opt->cover >= 0.001 && opt->cover <= 1000))
        return cli_fail(opt->cli, CLI_USAGE, "--cover: 0.001 to 1000");
    if (!(opt->flops >= 0))
        return cli_fail(opt->cli, CLI_USAGE, "--gflops: above 0");
    if (opt->into != NULL && (opt->only == NULL || opt->flops == 0))
        return cli_fail(opt->cli, CLI_USAGE,
                        "a rank needs --only and --gflops");
    return CLI_GOOD;
}

static int check(const attention_options *opt)
{
    if (opt->seq == 0 || opt->seq > 1 << 24)
        return cli_fail(opt->cli, CLI_USAGE, "--seq: 1 to 2^24");
    if (opt->pairs == 0 || opt->pairs > 1000)
        return cli_fail(opt->cli, CLI_USAGE, "--pairs: 1 to 1000");
    if (opt->heads == 0 || opt->heads > 4096 || opt->kv_heads > opt->heads ||
        (opt->kv_heads > 0 && opt->heads % opt->kv_heads != 0))
        return cli_fail(opt->cli, CLI_USAGE,
                        "--heads: 1 to 4096, a multiple of --kv-heads");
    if (opt->head_dim == 0 || opt->head_dim > 65536)
        return cli_fail(opt->cli, CLI_USAGE, "--head-dim: 1 to 65536");
    if (opt->square == 0 || opt->square > 1 << 15)
        return cli_fail(opt->cli, CLI_USAGE, "--square: 1 to 32768");
    if (opt->workers == 0 || opt->workers > 1024)
        return cli_fail(opt->cli, CLI_USAGE, "--workers: 1 to 1024");
    if (strcmp(opt->mask, "causal") != 0 && strcmp(opt->mask, "full") != 0)
        return cli_fail(opt->cli, CLI_USAGE, "--mask: causal or full");
    return opt->schedules ? check_schedules(opt) : CLI_GOOD;
}

static bool is_given(int argc, char **argv, const char *name)
{
    const char *word;

    return cli_words(argc, argv, name, &word, 1) != 0;
}

/* An option of the one question that is given with the other says nothing. */
static int check_given(const attention_options *opt, int argc, char **argv)
{
    static const char *const lists[2][8] = {
        {"only", "ranks", "slots", "rate", "cover", "gflops", "steps", NULL},
        {"kernel", "square", "pairs", "workers", NULL}};

    for (const char *const *name = lists[opt->schedules]; *name != NULL; name++)
        if (is_given(argc, argv, *name))
            return cli_fail(opt->cli, CLI_USAGE, "--%s is %s --schedules",
                            *name,
                            opt->schedules ? "of the block kernel, without"
                                           : "of schedules: with");
    if (opt->kv_heads == 0 && is_given(argc, argv, "kv-heads"))
        return cli_fail(opt->cli, CLI_USAGE, "--kv-heads: 1 to 4096");
    return CLI_GOOD;
}

/* Schedules are told apart best by more heads than ranks and blocks of a few
 * MB; the kernel by one head that fills it. */
static void fill_in(attention_options *opt, int argc, char **argv)
{
    if (!is_given(argc, argv, "heads"))
        opt->heads = opt->schedules ? 8 : 1;
    if (!is_given(argc, argv, "head-dim"))
        opt->head_dim = opt->schedules ? 32 : 128;
}

static json_t *describe(const attention_options *opt)
{
    json_t *out =
        json_pack("{s:I, s:I, s:I, s:I, s:s}", "seq", (json_int_t)opt->seq,
                  "heads", (json_int_t)opt->heads, "kv_heads",
                  (json_int_t)(opt->kv_heads > 0 ? opt->kv_heads : opt->heads),
                  "head_dim", (json_int_t)opt->head_dim, "mask", opt->mask);

    if (opt->schedules) {
        json_object_set_new(out, "ranks", json_integer((json_int_t)opt->ranks));
        json_object_set_new(out, "slots", json_integer((json_int_t)opt->slots));
        json_object_set_new(out, "rate_mbit",
                            json_integer((json_int_t)opt->rate));
        json_object_set_new(out, "steps", json_integer((json_int_t)opt->steps));
    } else {
        json_object_set_new(out, "pairs", json_integer((json_int_t)opt->pairs));
    }
    return out;
}

static int run(const attention_options *opt)
{
    gyre_context *context = NULL;
    json_t *report = describe(opt);
    int code = cli_context(opt->cli, NULL, &context);

    if (code >= 0)
        goto drop_report;
    code = opt->schedules ? bench_attention_schedules(opt, context, report)
                          : bench_attention_block(opt, context, report);
    if (code == CLI_GOOD && opt->cli->json)
        code = cli_print_json(json_incref(report));
    gyre_context_destroy(context);
drop_report:
    json_decref(report);
    return code;
}

int bench_attention(int argc, char **argv)
{
    attention_options opt = {.kernel = "f32",
                             .mask = "causal",
                             .seq = 4096,
                             .pairs = 11,
                             .square = 1024,
                             .workers = 2,
                             .ranks = 4,
                             .slots = 1,
                             .rate = 100,
                             .steps = 3,
                             .cover = 1.5,
                             .netns = GYRE_NETNS};
    const cli_option list[] = {
        {"kernel", "NAME", "f32 or bf16 (default: f32)", CLI_TEXT, &opt.kernel},
        {"seq", "N", "tokens (default: 4096)", CLI_COUNT, &opt.seq},
        {"heads", "N", "query heads (default: 1; schedules: 8)", CLI_COUNT,
         &opt.heads},
        {"kv-heads", "N", "(default: as many)", CLI_COUNT, &opt.kv_heads},
        {"head-dim", "N", "(default: 128; schedules: 32)", CLI_COUNT,
         &opt.head_dim},
        {"mask", "NAME", "causal or full (default: causal)", CLI_TEXT,
         &opt.mask},
        {"square", "N", "rows of the product (default: 1024)", CLI_COUNT,
         &opt.square},
        {"pairs", "N", "rounds (11); --workers N beside one (2)", CLI_COUNT,
         &opt.pairs},
        {"workers", "N", NULL, CLI_COUNT, &opt.workers},
        {"schedules", NULL,
         "schedules against each other, over throttled links (root)", CLI_FLAG,
         &opt.schedules},
        {"only", "LIST", "NAME[:SETTING=VALUE]... (default: eight)", CLI_TEXT,
         &opt.only},
        {"ranks", "N", "(default: 4); --slots N of a node (default: 1)",
         CLI_COUNT, &opt.ranks},
        {"slots", "N", NULL, CLI_COUNT, &opt.slots},
        {"rate", "MBIT", "of each node's link, each way (default: 100)",
         CLI_COUNT, &opt.rate},
        {"cover", "X", "a ring's step takes X transfers (default: 1.5)",
         CLI_NUMBER, &opt.cover},
        {"gflops", "N", "that sleeps stand for (default: by --cover)",
         CLI_NUMBER, &opt.flops},
        {"steps", "N", "measured (default: 3)", CLI_COUNT, &opt.steps},
        {"netns", "FILE", NULL, CLI_TEXT, &opt.netns},
        {"rank-into", "DIR", NULL, CLI_TEXT, &opt.into},
        {NULL, NULL, NULL, CLI_FLAG, NULL}};
    const cli_usage usage = {
        "",
        "Speed of attention's block kernel, forward and backward on one "
        "thread, beside a matrix product of the same BLAS; or of schedules.",
        list, 0, 0};
    cli_state cli;
    int code = cli_parse(&cli, &usage, argc, argv);

    if (code >= 0)
        return code;
    opt.cli = &cli;
    fill_in(&opt, argc, argv);
    code = check_given(&opt, argc, argv);
    if (code == CLI_GOOD)
        code = check(&opt);
    if (code != CLI_GOOD)
        return code;
    return opt.into != NULL ? bench_attention_rank(&opt) : run(&opt);
}
