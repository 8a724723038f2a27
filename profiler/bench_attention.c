/* SPDX-License-Identifier: Apache-2.0 */
/* gyre bench attention: its options and its parts. */
#include "config.h"

#include "bench.h"
#include "bench_attention.h"

#include <stdio.h>
#include <string.h>

static int check(const attention_options *opt)
{
    if (opt->pairs == 0 || opt->pairs > 1000)
        return cli_fail(opt->cli, CLI_USAGE, "--pairs: 1 to 1000");
    if (opt->seq == 0 || opt->seq > 1 << 24)
        return cli_fail(opt->cli, CLI_USAGE, "--seq: 1 to 2^24");
    if (opt->heads == 0 || opt->heads > 4096 || opt->kv_heads > opt->heads ||
        (opt->kv_heads > 0 && opt->heads % opt->kv_heads != 0))
        return cli_fail(opt->cli, CLI_USAGE,
                        "--heads: 1 to 4096, a multiple of --kv-heads");
    if (opt->head_dim == 0 || opt->head_dim > 65536)
        return cli_fail(opt->cli, CLI_USAGE, "--head-dim: 1 to 65536");
    if (opt->square == 0 || opt->square > 1 << 15)
        return cli_fail(opt->cli, CLI_USAGE, "--square: 1 to 32768");
    if (strcmp(opt->mask, "causal") != 0 && strcmp(opt->mask, "full") != 0)
        return cli_fail(opt->cli, CLI_USAGE, "--mask: causal or full");
    return CLI_GOOD;
}

static int run(const attention_options *opt)
{
    gyre_context *context = NULL;
    json_t *report =
        json_pack("{s:I, s:I, s:I, s:I, s:s, s:I}", "seq", (json_int_t)opt->seq,
                  "heads", (json_int_t)opt->heads, "kv_heads",
                  (json_int_t)(opt->kv_heads > 0 ? opt->kv_heads : opt->heads),
                  "head_dim", (json_int_t)opt->head_dim, "mask", opt->mask,
                  "pairs", (json_int_t)opt->pairs);
    int code = cli_context(opt->cli, NULL, &context);

    if (code >= 0)
        goto drop_report;
    code = bench_attention_block(opt, context, report);
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
                             .heads = 1,
                             .head_dim = 128,
                             .pairs = 11,
                             .square = 1024};
    const cli_option list[] = {
        {"kernel", "NAME", "f32 or bf16 (default: f32)", CLI_TEXT, &opt.kernel},
        {"seq", "N", "tokens (default: 4096)", CLI_COUNT, &opt.seq},
        {"heads", "N", "query heads (default: 1)", CLI_COUNT, &opt.heads},
        {"kv-heads", "N", "(default: as many)", CLI_COUNT, &opt.kv_heads},
        {"head-dim", "N", "(default: 128)", CLI_COUNT, &opt.head_dim},
        {"mask", "NAME", "causal or full (default: causal)", CLI_TEXT,
         &opt.mask},
        {"square", "N", "rows of the product (default: 1024)", CLI_COUNT,
         &opt.square},
        {"pairs", "N", "rounds (default: 11)", CLI_COUNT, &opt.pairs},
        {NULL, NULL, NULL, CLI_FLAG, NULL}};
    const cli_usage usage = {
        "",
        "Speed of attention's block kernel, forward and backward on one "
        "thread, beside a matrix product of the same BLAS.",
        list, 0, 0};
    cli_state cli;
    int code = cli_parse(&cli, &usage, argc, argv);

    if (code >= 0)
        return code;
    opt.cli = &cli;
    code = check(&opt);
    return code == CLI_GOOD ? run(&opt) : code;
}
