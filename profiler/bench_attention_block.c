/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast is the block kernel, beside a product of its own BLAS?
 *
 * Rates count the pairs that the mask allows and nothing else.  The ratio of a
 * round is the kernel's rate over the mean rate of the products just before and
 * after; the figure is the median of the rounds.
 */
#include "config.h"

#include "bench_attention.h"
#include "progress.h"

#include <gyre/kernel.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PAIRS = 1000 };

/* Forward and backward; one thread's time over that of all workers. */
enum { PASSES = 2 };

typedef struct series {
    double ratio[MAX_PAIRS], rate[MAX_PAIRS];
} series;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile(double *values, size_t n, double q)
{
    qsort(values, n, sizeof(values[0]), by_value);
    return values[(size_t)(q * (double)(n - 1) + 0.5)];
}

static void note(series *s, size_t at, double flops, double time,
                 double product_flops, double before, double after)
{
    double peer =
        0.5 * (product_flops / before + product_flops / after); /* GF/s */

    s->rate[at] = flops / time;
    s->ratio[at] = s->rate[at] / peer;
}

static json_t *report_of(series *s, size_t n)
{
    double low = quantile(s->ratio, n, 0.25),
           high = quantile(s->ratio, n, 0.75);

    return json_pack("{s:f, s:f, s:f, s:f}", "ratio",
                     quantile(s->ratio, n, 0.5), "ratio_low", low, "ratio_high",
                     high, "flops_per_second", quantile(s->rate, n, 0.5) * 1e9);
}

static void print(const char *name, series *s, size_t n)
{
    printf("%-8s %8.1f GF/s   ratio %.3f (%.3f-%.3f)\n", name,
           quantile(s->rate, n, 0.5), quantile(s->ratio, n, 0.5),
           quantile(s->ratio, n, 0.25), quantile(s->ratio, n, 0.75));
}

static int rounds(const attention_options *opt, gyre_kernel_bench *bench,
                  series *attend, series *grad, double *product)
{
    gyre_kernel_bench_info info;
    gyre_error error = {0};
    progress_bar bar;
    gyre_status status = GYRE_OK;

    gyre_kernel_bench_get_info(bench, &info);
    progress_start(&bar, opt->cli->quiet || opt->cli->json, "block", "rounds",
                   opt->pairs);
    /* The first warms caches and clocks up and is not counted. */
    for (size_t i = 0; i <= opt->pairs && status == GYRE_OK; i++) {
        gyre_kernel_times t = {.size = sizeof(t)};

        status = gyre_kernel_bench_round(bench, &t, &error);
        if (status != GYRE_OK || i == 0)
            continue;
        note(attend, i - 1, info.attend_flops, t.attend, info.product_flops,
             t.product[0], t.product[1]);
        note(grad, i - 1, info.grad_flops, t.grad, info.product_flops,
             t.product[1], t.product[2]);
        product[i - 1] = info.product_flops / t.product[1];
        progress_update(&bar, i);
    }
    progress_end(&bar, opt->pairs);
    return status == GYRE_OK ? CLI_GOOD
                             : cli_fail_status(opt->cli, status, &error);
}

static gyre_kernel_bench_request request_of(const attention_options *opt)
{
    return (gyre_kernel_bench_request){
        .size = sizeof(gyre_kernel_bench_request),
        .kernel = opt->kernel,
        .tokens = opt->seq,
        .heads = (uint32_t)opt->heads,
        .kv_heads = (uint32_t)opt->kv_heads,
        .head_dim = (uint32_t)opt->head_dim,
        .full = strcmp(opt->mask, "full") == 0,
        .square = (uint32_t)opt->square,
    };
}

/* ---- workers ------------------------------------------------------------- */

/* A KV head for each worker at least, for those are what backward shares. */
static gyre_kernel_bench_request shared_request(const attention_options *opt)
{
    gyre_kernel_bench_request r = request_of(opt);
    uint32_t kv = r.kv_heads > 0 ? r.kv_heads : r.heads;

    r.workers = (uint32_t)opt->workers;
    if (kv < r.workers) {
        r.heads = r.heads / kv * r.workers;
        r.kv_heads = r.workers;
    }
    return r;
}

static gyre_status speed_up(const attention_options *opt,
                            gyre_kernel_bench *bench, double out[PASSES],
                            gyre_error *error)
{
    double ratio[PASSES][MAX_PAIRS];
    gyre_status status = GYRE_OK;

    for (size_t i = 0; i <= opt->pairs && status == GYRE_OK; i++) {
        gyre_kernel_times t = {.size = sizeof(t)};

        status = gyre_kernel_bench_round(bench, &t, error);
        if (status != GYRE_OK || i == 0)
            continue;
        ratio[0][i - 1] = t.attend_passed[0] / t.attend_passed[1];
        ratio[1][i - 1] = t.grad_passed[0] / t.grad_passed[1];
    }
    for (int pass = 0; pass < PASSES && status == GYRE_OK; pass++)
        out[pass] = quantile(ratio[pass], opt->pairs, 0.5);
    return status;
}

/* block.workers of the report, or a line. */
static int compare_workers(const attention_options *opt, gyre_context *context,
                           json_t *report)
{
    gyre_kernel_bench_request request = shared_request(opt);
    gyre_kernel_bench *bench = NULL;
    gyre_error error = {0};
    double times[PASSES] = {0};
    gyre_status status =
        gyre_kernel_bench_open(context, &request, &bench, &error);

    if (status == GYRE_OK)
        status = speed_up(opt, bench, times, &error);
    gyre_kernel_bench_close(bench);
    if (status != GYRE_OK)
        return cli_fail_status(opt->cli, status, &error);
    if (opt->cli->json)
        json_object_set_new(json_object_get(report, "block"), "workers",
                            json_pack("{s:I, s:I, s:f, s:f}", "workers",
                                      (json_int_t)request.workers, "heads",
                                      (json_int_t)request.heads, "forward",
                                      times[0], "backward", times[1]));
    else
        printf("%u workers, heads: %u: %.2f times as fast as one forward, "
               "%.2f backward\n",
               request.workers, request.heads, times[0], times[1]);
    return CLI_GOOD;
}

/* ---- one thread ---------------------------------------------------------- */

static int measure(const attention_options *opt, gyre_kernel_bench *bench,
                   json_t *report)
{
    series *s = calloc(2, sizeof(*s));
    double product[MAX_PAIRS];
    gyre_kernel_bench_info info;
    size_t n = opt->pairs;

    if (s == NULL)
        return cli_fail(opt->cli, CLI_FAULT, "no memory");
    int code = rounds(opt, bench, &s[0], &s[1], product);
    gyre_kernel_bench_get_info(bench, &info);
    if (code == CLI_GOOD && opt->cli->json) {
        json_object_set_new(
            report, "block",
            json_pack("{s:s, s:s, s:s, s:I, s:f, s:o, s:o}", "kernel",
                      opt->kernel, "blas", info.blas, "exponential",
                      info.exponential, "area", (json_int_t)info.area,
                      "sgemm_flops_per_second", quantile(product, n, 0.5) * 1e9,
                      "forward", report_of(&s[0], n), "backward",
                      report_of(&s[1], n)));
    } else if (code == CLI_GOOD) {
        printf("block kernel %s on %s, exponential of %s, one thread\n",
               opt->kernel, info.blas, info.exponential);
        printf("%-8s %8.1f GF/s\n", "sgemm", quantile(product, n, 0.5));
        print("forward", &s[0], n);
        print("backward", &s[1], n);
    }
    free(s);
    return code;
}

int bench_attention_block(const attention_options *opt, gyre_context *context,
                          json_t *report)
{
    gyre_kernel_bench_request request = request_of(opt);
    gyre_kernel_bench *bench = NULL;
    gyre_error error = {0};
    gyre_status status =
        gyre_kernel_bench_open(context, &request, &bench, &error);

    if (status != GYRE_OK)
        return cli_fail(opt->cli, CLI_USAGE, "%s", error.text);
    int code = measure(opt, bench, report);
    gyre_kernel_bench_close(bench);
    if (code == CLI_GOOD && opt->workers > 1)
        code = compare_workers(opt, context, report);
    return code;
}
