/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast is compression with error feedback, beside a stream over the same
 * arrays?
 *
 * Both touch the same bytes once: gradient read, residual read and written,
 * payload written.  They run by turns over the same memory in the same threads;
 * the figure is the median of the pairs' ratios.  Each thread compresses a run
 * of its own; with topk's scope = global each surveys its own run.
 */
#include "config.h"

#include "bench.h"
#include "cli.h"
#include "progress.h"
#include "stream.h"
#include "team.h"

#include <gyre/gyre.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { TILE = 4096, MAX_PAIRS = 1000, MAX_SETTINGS = 16, MAX_THREADS = 256 };

#define HUGE ((size_t)2 << 20)

typedef struct options {
    const cli_state *cli;
    const char *compressor, *param;
    uint64_t threads, elements, pairs;
} options;

/* What is measured without --compressor. */
static const struct {
    const char *compressor, *param;
} standard[] = {
    {"topk", "ratio=0.01"},
    {"topk", "ratio=0.01,scope=global"},
    {"topk", "ratio=0.01,values=f16,indices=u16"},
    {"quantize", "bits=8"},
    {"quantize", "bits=8,rounding=stochastic"},
    {"quantize", "bits=8,map=dynamic"},
    {"quantize", "bits=4"},
    {"fp8", "format=e4m3"},
    {"sign", "block=1024"},
};

typedef struct job {
    const options *opt;
    const gyre_compression *compression;
    stream_function stream;
    size_t threads;
    float *g, *e;
    uint8_t *payload;
    size_t payload_bytes;          /* room, of all threads */
    uint64_t written[MAX_THREADS]; /* bytes of each thread's block */
    gyre_status status[MAX_THREADS];
} job;

typedef struct result {
    const char *compressor, *param, *isa;
    size_t threads;
    double compress_ns, stream_ns; /* medians, per pass */
    double ratio, low, high;       /* stream / compress: median, quartiles */
    uint64_t payload;              /* bytes per pass */
} result;

/* ---- passes ---------------------------------------------------------- */

static void part(const job *j, size_t member, size_t *from, size_t *to)
{
    size_t tiles = (j->opt->elements + TILE - 1) / TILE;

    *from = tiles * member / j->threads * TILE;
    *to = tiles * (member + 1) / j->threads * TILE;
    if (*to > j->opt->elements)
        *to = j->opt->elements;
}

/* Where a member's block lies: in proportion, aligned. */
static uint8_t *block_of(const job *j, size_t member)
{
    return j->payload + j->payload_bytes / j->threads / 4096 * 4096 * member;
}

/* Gradients with a bell's shape, as those of a real layer nearly have. */
static void touch(void *user, size_t member)
{
    const job *j = user;
    uint64_t seed = 1 + member;
    size_t from, to;

    part(j, member, &from, &to);
    for (size_t i = from; i < to; i++) {
        float sum = -2.0f;

        for (int k = 0; k < 4; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(seed >> 40) * 0x1p-24f;
        }
        j->g[i] = 1e-3f * sum;
        j->e[i] = 0.0f;
    }
    memset(block_of(j, member), 0, j->payload_bytes / j->threads / 4096 * 4096);
}

static void compress(void *user, size_t member)
{
    job *j = user;
    gyre_compression_job one = {
        .size = sizeof(one), .q = 0.9f, .kappa = 1.0f, .tensor = "bench"};
    size_t from, to;

    part(j, member, &from, &to);
    one.elements = to - from;
    one.index = from;
    one.g = j->g + from;
    one.e = j->e + from;
    one.e_next = j->e + from;
    one.block = block_of(j, member);
    if (to > from)
        j->status[member] = gyre_compression_run(j->compression, &one, NULL);
    j->written[member] = one.block_bytes;
}

/* A tile of the arrays, then as many bytes as compression made of it. */
static void stream(void *user, size_t member)
{
    job *j = user;
    size_t from, to, at;
    float *x[STREAM_MAX];
    uint8_t *block = block_of(j, member);

    part(j, member, &from, &to);
    for (at = from; at < to; at += TILE) {
        size_t n = to - at < TILE ? to - at : TILE;
        double scale = (double)j->written[member] / (double)(to - from);
        size_t first = (size_t)((double)(at - from) * scale);
        size_t last = (size_t)((double)(at - from + n) * scale);

        x[0] = j->e + at;
        j->stream(n, j->g + at, x);
        memset(block + first, (int)(at / TILE), last - first);
    }
}

/* ---- one measurement ------------------------------------------------- */

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

static void choose_stream(team *of, job *j)
{
    uint64_t best = UINT64_MAX;
    stream_function chosen = NULL;

    for (int shape = 0; shape < STREAM_SHAPES; shape++) {
        j->stream = stream_best(1, shape);
        for (int i = 0; i < 3; i++) {
            uint64_t time = team_run(of, stream, j);

            if (time < best) {
                best = time;
                chosen = j->stream;
            }
        }
    }
    j->stream = chosen;
}

static int measure(job *j, const char *label, result *out)
{
    double passes[MAX_PAIRS], streams[MAX_PAIRS], ratios[MAX_PAIRS];
    const cli_state *cli = j->opt->cli;
    size_t pairs = j->opt->pairs;
    team *of = team_start(j->threads);
    progress_bar bar;

    if (of == NULL)
        return cli_fail(cli, CLI_FAULT, "%zu threads: none to be had",
                        j->threads);
    progress_start(&bar, cli->quiet || cli->json, label, "pairs", pairs);
    team_run(of, touch, j);
    /* The residual of a real step is not zero. */
    team_run(of, compress, j);
    team_run(of, compress, j);
    choose_stream(of, j);
    team_run(of, touch, j);
    team_run(of, compress, j);
    for (size_t i = 0; i < pairs; i++) {
        /* By turns first, so that no side always follows the other. */
        if (i % 2 == 0)
            passes[i] = (double)team_run(of, compress, j);
        streams[i] = (double)team_run(of, stream, j);
        if (i % 2 == 1)
            passes[i] = (double)team_run(of, compress, j);
        ratios[i] = streams[i] / passes[i];
        progress_update(&bar, i + 1);
    }
    progress_end(&bar, pairs);
    team_stop(of);
    for (size_t m = 0; m < j->threads; m++) {
        if (j->status[m] != GYRE_OK)
            return cli_fail(cli, CLI_FAULT, "%s: %s", out->compressor,
                            gyre_status_text(j->status[m]));
        out->payload += j->written[m];
    }
    out->compress_ns = quantile(passes, pairs, 0.5);
    out->stream_ns = quantile(streams, pairs, 0.5);
    out->low = quantile(ratios, pairs, 0.25);
    out->ratio = quantile(ratios, pairs, 0.5);
    out->high = quantile(ratios, pairs, 0.75);
    return CLI_GOOD;
}

/* ---- settings -------------------------------------------------------- */

typedef struct settings {
    gyre_setting list[MAX_SETTINGS];
    size_t count;
    char text[512];
} settings;

/* "ratio=0.01,scope=global" into numbers, checked by the plugin's table. */
static int read_settings(const options *opt, const gyre_plugin *plugin,
                         const char *param, settings *out)
{
    char *rest = out->text, *item;
    gyre_error error = {0};

    out->count = 0;
    if (param == NULL)
        return CLI_GOOD;
    if (strlen(param) >= sizeof(out->text))
        return cli_fail(opt->cli, CLI_USAGE, "--param: too long");
    strcpy(out->text, param);
    while ((item = strsep(&rest, ",")) != NULL) {
        char *value = strchr(item, '=');
        gyre_setting *set = &out->list[out->count];
        gyre_status status;

        if (value == NULL || out->count == MAX_SETTINGS)
            return cli_fail(opt->cli, CLI_USAGE,
                            "--param: want NAME=VALUE[,NAME=VALUE...], at most "
                            "%d of them",
                            MAX_SETTINGS);
        *value++ = '\0';
        set->name = item;
        status = gyre_plugin_parse(plugin, item, value, &set->value, &error);
        if (status != GYRE_OK)
            return cli_fail_status(opt->cli, status, &error);
        out->count++;
    }
    return CLI_GOOD;
}

/* ---- arrays ---------------------------------------------------------- */

static size_t huge_bytes(size_t bytes)
{
    return (bytes + HUGE - 1) / HUGE * HUGE;
}

static void *map_bytes(size_t bytes)
{
    size_t room = huge_bytes(bytes), before;
    char *base = mmap(NULL, room + HUGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (base == MAP_FAILED)
        return NULL;
    before = (HUGE - (uintptr_t)base % HUGE) % HUGE;
    if (before > 0)
        munmap(base, before);
    if (before < HUGE)
        munmap(base + before + room, HUGE - before);
    (void)madvise(base + before, room, MADV_HUGEPAGE);
    return base + before;
}

static void unmap_bytes(void *base, size_t bytes)
{
    if (base != NULL)
        munmap(base, huge_bytes(bytes));
}

/* ---- report ---------------------------------------------------------- */

static double bytes_of(const options *opt, const result *r)
{
    return 12.0 * (double)opt->elements + (double)r->payload;
}

static void print_head(const options *opt)
{
    printf("%llu elements, %llu pairs, stream on %s; ratio: stream time / "
           "compression time, median (quartiles)\n"
           "%-9s %-34s %-7s %7s %9s %9s %9s  %s\n",
           (unsigned long long)opt->elements, (unsigned long long)opt->pairs,
           stream_isa(), "codec", "settings", "isa", "threads", "B/elem",
           "Gelem/s", "stream", "ratio");
}

static void print_result(const options *opt, const result *r)
{
    double n = (double)opt->elements;

    printf("%-9s %-34s %-7s %7zu %9.4f %9.3f %9.3f  %.3f (%.3f-%.3f)\n",
           r->compressor, r->param == NULL ? "" : r->param, r->isa, r->threads,
           (double)r->payload / n, n / r->compress_ns, n / r->stream_ns,
           r->ratio, r->low, r->high);
    fflush(stdout);
}

static json_t *json_result(const options *opt, const result *r)
{
    double n = (double)opt->elements, bytes = bytes_of(opt, r);

    return json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
        "compressor", r->compressor, "param", r->param == NULL ? "" : r->param,
        "isa", r->isa, "threads", (json_int_t)r->threads, "payload_bytes",
        (json_int_t)r->payload, "bytes_per_element", (double)r->payload / n,
        "elements_per_second", n / r->compress_ns * 1e9, "bytes_per_second",
        bytes / r->compress_ns * 1e9, "stream_bytes_per_second",
        bytes / r->stream_ns * 1e9, "ratio", r->ratio, "ratio_low", r->low,
        "ratio_high", r->high);
}

/* ---- all of it ------------------------------------------------------- */

static int no_memory(const options *opt)
{
    return cli_fail(opt->cli, CLI_NOTHING,
                    "no memory for arrays of %llu elements; give fewer with "
                    "--elements",
                    (unsigned long long)opt->elements);
}

static int bench_bound(const options *opt, gyre_context *context, job *j,
                       result *r, json_t *list)
{
    char label[128];
    int code;

    /* Every member's room for its part, whole tiles and pages. */
    j->payload_bytes =
        j->threads *
        huge_bytes(gyre_compression_bound(
            j->compression,
            ((opt->elements + TILE - 1) / TILE / j->threads + 1) * TILE));
    j->payload = map_bytes(j->payload_bytes);
    if (j->payload == NULL)
        return no_memory(opt);
    r->isa = gyre_context_instruction_set(context);
    r->threads = j->threads;
    snprintf(label, sizeof(label), "%s %.60s x%zu", r->compressor,
             r->param == NULL ? "" : r->param, j->threads);
    code = measure(j, label, r);
    unmap_bytes(j->payload, j->payload_bytes);
    if (code != CLI_GOOD)
        return code;
    if (opt->cli->json)
        json_array_append_new(list, json_result(opt, r));
    else
        print_result(opt, r);
    return CLI_GOOD;
}

static int bench_one(const options *opt, gyre_context *context, job *j,
                     const char *compressor, const char *param, json_t *list)
{
    result r = {.compressor = compressor, .param = param};
    const gyre_plugin *plugin = NULL;
    gyre_compression *compression = NULL;
    gyre_error error = {0};
    gyre_status status;
    settings set;
    int code;

    status = gyre_plugin_find(context, GYRE_KIND_COMPRESSOR, compressor,
                              &plugin, &error);
    if (status == GYRE_NOT_FOUND)
        return cli_fail(opt->cli, CLI_NOTHING, "nothing to run: %s",
                        error.text);
    if (status != GYRE_OK)
        return cli_fail_status(opt->cli, status, &error);
    code = read_settings(opt, plugin, param, &set);
    if (code != CLI_GOOD)
        return code;
    status = gyre_compression_create(context, compressor, set.list, set.count,
                                     &compression, &error);
    if (status != GYRE_OK)
        return cli_fail_status(opt->cli, status, &error);
    j->compression = compression;
    code = bench_bound(opt, context, j, &r, list);
    gyre_compression_destroy(compression);
    return code;
}

static int bench_all(const options *opt, gyre_context *context, job *j,
                     json_t *list)
{
    int code = CLI_GOOD;

    if (opt->compressor != NULL)
        return bench_one(opt, context, j, opt->compressor, opt->param, list);
    for (size_t i = 0; i < sizeof(standard) / sizeof(standard[0]); i++) {
        if (code == CLI_GOOD)
            code = bench_one(opt, context, j, standard[i].compressor,
                             standard[i].param, list);
    }
    return code;
}

static int run(const options *opt)
{
    size_t bytes = opt->elements * sizeof(float);
    gyre_context *context = NULL;
    json_t *list = json_array();
    job j = {.opt = opt, .threads = opt->threads};
    int code = cli_context(opt->cli, NULL, &context);

    if (code >= 0)
        goto drop_list;
    j.g = map_bytes(bytes);
    j.e = map_bytes(bytes);
    if (j.g == NULL || j.e == NULL || list == NULL) {
        code = no_memory(opt);
        goto unmap;
    }
    if (!opt->cli->json)
        print_head(opt);
    code = bench_all(opt, context, &j, list);
    if (code == CLI_GOOD && opt->cli->json)
        code = cli_print_json(json_pack("{s:I, s:I, s:s, s:O}", "elements",
                                        (json_int_t)opt->elements, "pairs",
                                        (json_int_t)opt->pairs, "stream_isa",
                                        stream_isa(), "results", list));
unmap:
    unmap_bytes(j.g, bytes);
    unmap_bytes(j.e, bytes);
    gyre_context_destroy(context);
drop_list:
    json_decref(list);
    return code;
}

int bench_compress(int argc, char **argv)
{
    options opt = {.elements = 67108864, .pairs = 11, .threads = 1};
    const cli_option list[] = {
        {"compressor", "NAME", "one of them (default: all)", CLI_TEXT,
         &opt.compressor},
        {"param", "NAME=VALUE[,...]", "its parameters", CLI_TEXT, &opt.param},
        {"threads", "N", "each with a run of its own (default: 1)", CLI_COUNT,
         &opt.threads},
        {"elements", "N", "per pass (default: 67108864)", CLI_COUNT,
         &opt.elements},
        {"pairs", "N", "compression and stream (default: 11)", CLI_COUNT,
         &opt.pairs},
        {NULL, NULL, NULL, CLI_FLAG, NULL}};
    const cli_usage usage = {
        "",
        "Speed of gradient compression with error feedback beside a stream "
        "that reads the gradient, reads and writes the residual and writes the "
        "payload.",
        list, 0, 0};
    cli_state cli;
    int code = cli_parse(&cli, &usage, argc, argv);

    if (code >= 0)
        return code;
    if (opt.elements == 0 || opt.elements > (uint64_t)1 << 40)
        return cli_fail(&cli, CLI_USAGE, "--elements: 1 to 2^40");
    if (opt.pairs == 0 || opt.pairs > MAX_PAIRS)
        return cli_fail(&cli, CLI_USAGE, "--pairs: 1 to %d", MAX_PAIRS);
    if (opt.threads == 0 || opt.threads > MAX_THREADS)
        return cli_fail(&cli, CLI_USAGE, "--threads: 1 to %d", MAX_THREADS);
    if (opt.param != NULL && opt.compressor == NULL)
        return cli_fail(&cli, CLI_USAGE, "--param needs --compressor");
    opt.cli = &cli;
    return run(&opt);
}
