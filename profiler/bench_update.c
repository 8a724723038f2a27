/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast is an update, beside a stream over the same arrays?
 *
 * Update and stream run by turns over the same memory in the same threads; the
 * figure is the median of the pairs' ratios, so that a slow moment of the
 * machine falls on both.  Bytes are 4 for the gradient and 8 for each array
 * that is read and written; with --state the slots lie in a codec (coded.h) and
 * the stream moves as many bytes as they take.
 */
#include "config.h"

#include "bench.h"
#include "cli.h"
#include "coded.h"
#include "progress.h"
#include "stream.h"
#include "team.h"

#include <gyre/registry.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TILE = 4096, MAX_PAIRS = 1000, MAX_SCALARS = 16, MAX_PARAMETERS = 32 };

#define HUGE ((size_t)2 << 20)

typedef struct options {
    const cli_state *cli;
    const char *optimizer, *state;
    gyre_state_codec codec;
    uint64_t threads, elements, pairs;
} options;

typedef struct result {
    const char *optimizer, *isa;
    size_t threads, arrays;
    double bytes;                /* per element */
    double update_ns, stream_ns; /* medians, per pass */
    double ratio, low, high;     /* stream / update: median, quartiles */
    int shape;                   /* of the stream */
} result;

/* One optimizer, bound to arrays. */
typedef struct job {
    const options *opt;
    gyre_loop_function loop;
    stream_function stream;
    size_t threads, arrays; /* written: the parameter and the slots */
    float scalars[MAX_SCALARS];
    float *g, *x[STREAM_MAX];
    coded coded; /* with a codec other than f32 */
} job;

static int is_coded(const job *j)
{
    return j->opt->codec != GYRE_STATE_F32;
}

/* ---- passes ---------------------------------------------------------- */

/* Whole tiles per member, so that a page has one writer. */
static void part(const job *j, size_t member, size_t *from, size_t *to)
{
    size_t tiles = (j->opt->elements + TILE - 1) / TILE;

    *from = tiles * member / j->threads * TILE;
    *to = tiles * (member + 1) / j->threads * TILE;
    if (*to > j->opt->elements)
        *to = j->opt->elements;
}

static void touch(void *user, size_t member)
{
    const job *j = user;
    size_t from, to;

    part(j, member, &from, &to);
    for (size_t i = from; i < to; i++)
        j->g[i] = 1e-3f + 1e-6f * (float)(i % 1021u);
    if (is_coded(j)) {
        coded_touch(&j->coded, j->x, from, to);
        return;
    }
    for (size_t k = 0; k < j->arrays; k++) {
        for (size_t i = from; i < to; i++)
            j->x[k][i] = 0.5f + 1e-4f * (float)((i + k) % 509u);
    }
}

static void update(void *user, size_t member)
{
    const job *j = user;
    float *slot[STREAM_MAX];
    gyre_loop call = {sizeof(call), 0, NULL, slot, j->scalars, 0};
    size_t from, to;

    part(j, member, &from, &to);
    if (is_coded(j)) {
        coded_update(&j->coded, j->g, j->x, from, to);
        return;
    }
    for (size_t at = from; at < to; at += TILE) {
        call.n = to - at < TILE ? to - at : TILE;
        call.g = j->g + at;
        call.index = at;
        for (size_t k = 0; k < j->arrays; k++)
            slot[k] = j->x[k] + at;
        j->loop(&call);
    }
}

static void stream(void *user, size_t member)
{
    const job *j = user;
    float *x[STREAM_MAX];
    size_t from, to;

    part(j, member, &from, &to);
    if (is_coded(j)) {
        coded_stream(&j->coded, j->g, j->x, from, to);
        return;
    }
    for (size_t at = from; at < to; at += TILE) {
        for (size_t k = 0; k < j->arrays; k++)
            x[k] = j->x[k] + at;
        j->stream(to - at < TILE ? to - at : TILE, j->g + at, x);
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

static void use_stream(job *j, int shape)
{
    j->stream = stream_best(j->arrays, shape);
    j->coded.parameter = stream_best(1, shape);
    j->coded.slots = stream_best(j->arrays > 1 ? j->arrays - 1 : 1, shape);
}

static void choose_stream(team *of, job *j, result *out)
{
    uint64_t best = UINT64_MAX;

    for (int shape = 0; shape < STREAM_SHAPES; shape++) {
        use_stream(j, shape);
        for (int i = 0; i < 3; i++) {
            uint64_t time = team_run(of, stream, j);

            if (time < best) {
                best = time;
                out->shape = shape;
            }
        }
    }
    use_stream(j, out->shape);
}

static int measure(job *j, const char *label, result *out)
{
    double updates[MAX_PAIRS], streams[MAX_PAIRS], ratios[MAX_PAIRS];
    const cli_state *cli = j->opt->cli;
    size_t pairs = j->opt->pairs;
    team *of = team_start(j->threads);
    progress_bar bar;

    if (of == NULL)
        return cli_fail(cli, CLI_FAULT, "%zu threads: none to be had",
                        j->threads);
    progress_start(&bar, cli->quiet || cli->json, label, "pairs", pairs);
    team_run(of, touch, j);
    choose_stream(of, j, out);
    team_run(of, update, j);
    for (size_t i = 0; i < pairs; i++) {
        /* By turns first, so that no side always follows the other. */
        if (i % 2 == 0)
            updates[i] = (double)team_run(of, update, j);
        streams[i] = (double)team_run(of, stream, j);
        if (i % 2 == 1)
            updates[i] = (double)team_run(of, update, j);
        ratios[i] = streams[i] / updates[i];
        progress_update(&bar, i + 1);
    }
    progress_end(&bar, pairs);
    team_stop(of);
    out->update_ns = quantile(updates, pairs, 0.5);
    out->stream_ns = quantile(streams, pairs, 0.5);
    out->low = quantile(ratios, pairs, 0.25);
    out->ratio = quantile(ratios, pairs, 0.5);
    out->high = quantile(ratios, pairs, 0.75);
    return CLI_GOOD;
}

/* ---- arrays ---------------------------------------------------------- */

/* With room to start on a huge page. */
static size_t map_bytes(size_t elements)
{
    return (elements * sizeof(float) + HUGE - 1) / HUGE * HUGE;
}

static float *map_array(size_t elements)
{
    size_t bytes = map_bytes(elements), before;
    char *base = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (base == MAP_FAILED)
        return NULL;
    before = (HUGE - (uintptr_t)base % HUGE) % HUGE;
    if (before > 0)
        munmap(base, before);
    if (before < HUGE)
        munmap(base + before + bytes, HUGE - before);
    (void)madvise(base + before, bytes, MADV_HUGEPAGE);
    return (float *)(void *)(base + before);
}

/* Forget the pages, so that the next team touches them first. */
static void drop_array(float *array, size_t elements)
{
    (void)madvise(array, map_bytes(elements), MADV_DONTNEED);
}

static void unmap_array(float *array, size_t elements)
{
    if (array != NULL)
        munmap(array, map_bytes(elements));
}

/* ---- an optimizer ---------------------------------------------------- */

static double plain_powi(double x, uint64_t n)
{
    return pow(x, (double)n);
}

/* Speed does not depend on the last bit of a scalar. */
static const gyre_math plain_math = {
    sizeof(gyre_math), sqrt, plain_powi, exp, log, pow};

/* Default values, but momentum, without which SGD is a mere addition. */
static const gyre_variant *prepare(const gyre_plugin *plugin, job *j)
{
    const gyre_optimizer *o = plugin->descriptor;
    double values[MAX_PARAMETERS], scalars[MAX_SCALARS];
    const gyre_variant *variant;

    for (size_t i = 0; i < plugin->parameter_count; i++) {
        values[i] = plugin->parameters[i].initial;
        if (strcmp(plugin->parameters[i].name, "momentum") == 0)
            values[i] = 0.9;
    }
    variant = &o->variants[o->select != NULL ? o->select(values) : 0];
    o->scalars(values, 10, &plain_math, scalars);
    for (size_t i = 0; i < o->scalar_count; i++)
        j->scalars[i] = (float)scalars[i];
    j->arrays = 1 + (size_t)__builtin_popcount(variant->slots);
    return variant;
}

/* ---- report ---------------------------------------------------------- */

static void print_head(const options *opt)
{
    printf("%llu elements, %llu pairs, stream on %s; ratio: stream time / "
           "update time, median (quartiles)%s%s\n"
           "%-10s %-7s %7s %9s %9s %9s  %s\n",
           (unsigned long long)opt->elements, (unsigned long long)opt->pairs,
           stream_isa(), opt->state != NULL ? "; slots in " : "",
           opt->state != NULL ? opt->state : "", "optimizer", "isa", "threads",
           "Gelem/s", "GB/s", "stream", "ratio");
}

static void print_result(const options *opt, const result *r)
{
    double bytes = r->bytes * (double)opt->elements;

    printf("%-10s %-7s %7zu %9.3f %9.2f %9.2f  %.3f (%.3f-%.3f)\n",
           r->optimizer, r->isa, r->threads,
           (double)opt->elements / r->update_ns, bytes / r->update_ns,
           bytes / r->stream_ns, r->ratio, r->low, r->high);
    fflush(stdout);
}

static const char *const shape_names[STREAM_SHAPES] = {"fused", "split",
                                                       "ahead"};

static json_t *json_result(const options *opt, const result *r)
{
    double bytes = r->bytes * (double)opt->elements;
    json_t *each = r->bytes == (double)(json_int_t)r->bytes
                       ? json_integer((json_int_t)r->bytes)
                       : json_real(r->bytes);

    return json_pack(
        "{s:s, s:s, s:s, s:I, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:s}",
        "optimizer", r->optimizer, "isa", r->isa, "state",
        gyre_state_codec_name(opt->codec), "threads", (json_int_t)r->threads,
        "bytes_per_element", each, "elements_per_second",
        (double)opt->elements / r->update_ns * 1e9, "bytes_per_second",
        bytes / r->update_ns * 1e9, "stream_bytes_per_second",
        bytes / r->stream_ns * 1e9, "ratio", r->ratio, "ratio_low", r->low,
        "ratio_high", r->high, "stream_shape", shape_names[r->shape]);
}

/* ---- all of it ------------------------------------------------------- */

typedef struct walk {
    const options *opt;
    job job;
    json_t *list;
    size_t ran;
    int code;
} walk;

static const char *const isa_names[GYRE_LOOP_COUNT] = {"scalar", "avx2",
                                                       "avx512"};

/* NULL when the machine lacks it. */
static gyre_context *context_on(const char *isa)
{
    gyre_context_options wanted = {0};
    gyre_context *context = NULL;

    wanted.size = sizeof(wanted);
    wanted.instruction_set = isa;
    if (gyre_context_create(&wanted, &context, NULL) != GYRE_OK)
        return NULL;
    return context;
}

static int no_memory(const options *opt)
{
    return cli_fail(opt->cli, CLI_NOTHING,
                    "no memory for arrays of %llu elements; give fewer with "
                    "--elements",
                    (unsigned long long)opt->elements);
}

static void bench_one(walk *w, const gyre_plugin *plugin,
                      const gyre_variant *variant, int isa, size_t threads)
{
    const options *opt = w->opt;
    char label[64];
    result r = {0};

    w->job.loop = variant->loops[isa];
    w->job.threads = threads;
    r.optimizer = plugin->name;
    r.isa = isa_names[isa];
    r.threads = threads;
    r.arrays = w->job.arrays;
    r.bytes = is_coded(&w->job) ? coded_bytes(&w->job.coded)
                                : 4 + 8 * (double)r.arrays;
    snprintf(label, sizeof(label), "%s %s x%zu", plugin->name, isa_names[isa],
             threads);
    w->code = measure(&w->job, label, &r);
    if (w->code != CLI_GOOD)
        return;
    w->ran++;
    if (opt->cli->json)
        json_array_append_new(w->list, json_result(opt, &r));
    else
        print_result(opt, &r);
}

/* One instruction set: with one thread, and with one per core. */
static void bench_set(walk *w, const gyre_plugin *plugin,
                      const gyre_variant *variant, int isa)
{
    const options *opt = w->opt;
    gyre_context *context = context_on(isa_names[isa]);
    size_t cores = team_cores();

    if (context == NULL)
        return;
    w->job.coded.context = context;
    w->job.coded.codec = opt->codec;
    w->job.coded.arrays = w->job.arrays;
    w->job.coded.loop = variant->loops[isa];
    w->job.coded.scalars = w->job.scalars;
    /* Fresh pages for every team: the first to touch one is near it. */
    for (size_t threads = 1; w->code == 0; threads = cores) {
        if (opt->threads != 0)
            threads = opt->threads;
        drop_array(w->job.g, opt->elements);
        for (size_t k = 0; k < w->job.arrays; k++)
            drop_array(w->job.x[k], opt->elements);
        bench_one(w, plugin, variant, isa, threads);
        if (opt->threads != 0 || threads == cores)
            break;
    }
    gyre_context_destroy(context);
}

static int bench_plugin(void *user, const gyre_plugin *plugin, const char *path)
{
    walk *w = user;
    const options *opt = w->opt;
    const gyre_variant *variant;

    (void)path;
    if (strcmp(plugin->kind, GYRE_KIND_OPTIMIZER) != 0 ||
        (opt->optimizer != NULL && strcmp(opt->optimizer, plugin->name) != 0))
        return 0;
    variant = prepare(plugin, &w->job);
    if (w->job.arrays > STREAM_MAX)
        return 0;
    for (size_t k = 0; k < w->job.arrays; k++) {
        if (w->job.x[k] == NULL)
            w->job.x[k] = map_array(opt->elements);
        if (w->job.x[k] == NULL) {
            w->code = no_memory(opt);
            return 1;
        }
    }
    for (int isa = 0; isa < GYRE_LOOP_COUNT && w->code == 0; isa++)
        if (variant->loops[isa] != NULL &&
            (opt->cli->isa == NULL ||
             strcmp(opt->cli->isa, isa_names[isa]) == 0))
            bench_set(w, plugin, variant, isa);
    return w->code != 0;
}

static int print_all(const options *opt, json_t *list)
{
    return cli_print_json(json_pack(
        "{s:I, s:I, s:s, s:O}", "elements", (json_int_t)opt->elements, "pairs",
        (json_int_t)opt->pairs, "stream_isa", stream_isa(), "results", list));
}

static int run(const options *opt)
{
    const cli_state *cli = opt->cli;
    gyre_context *context = NULL;
    gyre_error error = {0};
    gyre_status status;
    walk w = {0};

    w.opt = opt;
    w.job.opt = opt;
    w.code = cli_context(cli, NULL, &context);
    if (w.code >= 0)
        return w.code;
    w.code = CLI_GOOD;
    w.list = json_array();
    w.job.g = map_array(opt->elements);
    if (w.job.g == NULL || w.list == NULL) {
        w.code = no_memory(opt);
        goto done;
    }
    if (!cli->json)
        print_head(opt);
    status = gyre_plugin_each(context, bench_plugin, &w, &error);
    if (status != GYRE_OK)
        w.code = cli_fail_status(cli, status, &error);
    else if (w.code == CLI_GOOD && w.ran == 0)
        w.code = cli_fail(cli, CLI_NOTHING,
                          "nothing to run: no such optimizer or instruction "
                          "set here; see gyre plugins");
    else if (w.code == CLI_GOOD && cli->json)
        w.code = print_all(opt, w.list);

done:
    for (size_t k = 0; k < STREAM_MAX; k++)
        unmap_array(w.job.x[k], opt->elements);
    unmap_array(w.job.g, opt->elements);
    json_decref(w.list);
    gyre_context_destroy(context);
    return w.code;
}

int bench_update(int argc, char **argv)
{
    options opt = {.elements = 67108864, .pairs = 15};
    const cli_option list[] = {
        {"optimizer", "NAME", "one of them (default: all)", CLI_TEXT,
         &opt.optimizer},
        {"state", "CODEC", "slots in bf16, bf16-stochastic or q8", CLI_TEXT,
         &opt.state},
        {"threads", "N", "(default: 1, and one per core)", CLI_COUNT,
         &opt.threads},
        {"elements", "N", "per pass (default: 67108864)", CLI_COUNT,
         &opt.elements},
        {"pairs", "N", "update and stream (default: 15)", CLI_COUNT,
         &opt.pairs},
        {NULL, NULL, NULL, CLI_FLAG, NULL}};
    const cli_usage usage = {
        "", "Speed of optimizer updates beside a stream over the same arrays.",
        list, 0, 0};
    cli_state cli;
    int code = cli_parse(&cli, &usage, argc, argv);

    if (code >= 0)
        return code;
    if (opt.state != NULL && !coded_parse(opt.state, &opt.codec))
        return cli_fail(&cli, CLI_USAGE,
                        "--state: f32, bf16, bf16-stochastic or q8");
    if (opt.elements == 0 || opt.elements > (uint64_t)1 << 40)
        return cli_fail(&cli, CLI_USAGE, "--elements: 1 to 2^40");
    if (opt.pairs == 0 || opt.pairs > MAX_PAIRS)
        return cli_fail(&cli, CLI_USAGE, "--pairs: 1 to %d", MAX_PAIRS);
    if (opt.threads > 4096)
        return cli_fail(&cli, CLI_USAGE, "--threads: at most 4096");
    opt.cli = &cli;
    return run(&opt);
}
