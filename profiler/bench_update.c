/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast is an update, beside a stream over the same arrays?
 *
 * Update and stream run by turns over the same memory in the same threads; the
 * figure is the median of the pairs' ratios, so that a slow moment of the
 * machine falls on both.  Bytes are 4 for the gradient and 8 for each array
 * that is read and written.
 */
#include "config.h"

#include "bench.h"
#include "stream.h"
#include "team.h"

#include <gyre/registry.h>

#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    TILE = 4096,
    MAX_PAIRS = 1000,
    MAX_SCALARS = 16,
    MAX_PARAMETERS = 32,
    HUGE = 2 << 20
};

typedef struct options {
    const char *optimizer, *isa;
    size_t threads, elements, pairs;
    int json, quiet;
} options;

typedef struct result {
    const char *optimizer, *isa;
    size_t threads, arrays;
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
} job;

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

static void choose_stream(team *of, job *j, result *out)
{
    uint64_t best = UINT64_MAX;

    for (int shape = 0; shape < STREAM_SHAPES; shape++) {
        j->stream = stream_best(j->arrays, shape);
        for (int i = 0; i < 3; i++) {
            uint64_t time = team_run(of, stream, j);

            if (time < best) {
                best = time;
                out->shape = shape;
            }
        }
    }
    j->stream = stream_best(j->arrays, out->shape);
}

static int measure(job *j, result *out)
{
    double updates[MAX_PAIRS], streams[MAX_PAIRS], ratios[MAX_PAIRS];
    size_t pairs = j->opt->pairs;
    team *of = team_start(j->threads);

    if (of == NULL)
        return 99;
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
    }
    team_stop(of);
    out->update_ns = quantile(updates, pairs, 0.5);
    out->stream_ns = quantile(streams, pairs, 0.5);
    out->low = quantile(ratios, pairs, 0.25);
    out->ratio = quantile(ratios, pairs, 0.5);
    out->high = quantile(ratios, pairs, 0.75);
    return 0;
}

/* ---- arrays ---------------------------------------------------------- */

static float *map_array(size_t elements)
{
    size_t bytes = (elements * sizeof(float) + 2 * HUGE - 1) / HUGE * HUGE;
    char *base = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *start;

    if (base == MAP_FAILED)
        return NULL;
    start = base + (HUGE - (uintptr_t)base % HUGE) % HUGE;
    (void)madvise(start, bytes, MADV_HUGEPAGE);
    return (float *)(void *)start;
}

static void drop_array(float *array, size_t elements)
{
    if (array != NULL)
        (void)madvise(array, elements * sizeof(float), MADV_DONTNEED);
}

/* ---- an optimizer ---------------------------------------------------- */

static double plain_powi(double x, uint64_t n)
{
    return pow(x, (double)n);
}

/* Speed does not depend on the last bit of a scalar. */
static const gyre_math plain_math = {sizeof(gyre_math), sqrt, plain_powi,
                                     exp, log, pow};

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

static double bytes_of(const result *r, size_t elements)
{
    return (double)elements * (4.0 + 8.0 * (double)r->arrays);
}

static void print_head(const options *opt)
{
    printf("%zu elements, %zu pairs, stream on %s; ratio: stream time / "
           "update time, median (quartiles)\n"
           "%-10s %-7s %7s %9s %9s %9s  %s\n",
           opt->elements, opt->pairs, stream_isa(), "optimizer", "isa",
           "threads", "Gelem/s", "GB/s", "stream", "ratio");
}

static void print_result(const options *opt, const result *r)
{
    double bytes = bytes_of(r, opt->elements);

    printf("%-10s %-7s %7zu %9.3f %9.2f %9.2f  %.3f (%.3f-%.3f)\n",
           r->optimizer, r->isa, r->threads,
           (double)opt->elements / r->update_ns, bytes / r->update_ns,
           bytes / r->stream_ns, r->ratio, r->low, r->high);
    fflush(stdout);
}

static json_t *json_result(const options *opt, const result *r)
{
    double bytes = bytes_of(r, opt->elements);

    return json_pack(
        "{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:s}",
        "optimizer", r->optimizer, "isa", r->isa, "threads",
        (json_int_t)r->threads, "bytes_per_element",
        (json_int_t)(4 + 8 * r->arrays), "elements_per_second",
        (double)opt->elements / r->update_ns * 1e9, "bytes_per_second",
        bytes / r->update_ns * 1e9, "stream_bytes_per_second",
        bytes / r->stream_ns * 1e9, "ratio", r->ratio, "ratio_low", r->low,
        "ratio_high", r->high, "stream_shape",
        r->shape == STREAM_FUSED ? "fused" : "split");
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

static int machine_has(const char *isa)
{
    gyre_context_options wanted = {0};
    gyre_context *context = NULL;

    wanted.size = sizeof(wanted);
    wanted.instruction_set = isa;
    if (gyre_context_create(&wanted, &context, NULL) != GYRE_OK)
        return 0;
    gyre_context_destroy(context);
    return 1;
}

static void bench_one(walk *w, const gyre_plugin *plugin,
                      const gyre_variant *variant, int isa, size_t threads)
{
    const options *opt = w->opt;
    result r = {0};

    w->job.loop = variant->loops[isa];
    w->job.threads = threads;
    r.optimizer = plugin->name;
    r.isa = isa_names[isa];
    r.threads = threads;
    r.arrays = w->job.arrays;
    if (!opt->quiet)
        fprintf(stderr, "bench update: %s %s, %zu thread(s)\n", plugin->name,
                isa_names[isa], threads);
    w->code = measure(&w->job, &r);
    if (w->code != 0)
        return;
    w->ran++;
    if (w->list != NULL)
        json_array_append_new(w->list, json_result(opt, &r));
    else
        print_result(opt, &r);
}

static int bench_plugin(void *user, const gyre_plugin *plugin,
                        const char *path)
{
    walk *w = user;
    const options *opt = w->opt;
    size_t cores = team_cores();
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
            fprintf(stderr, "bench update: no memory for %zu elements; give "
                            "fewer with --elements\n", opt->elements);
            w->code = 77;
            return 1;
        }
    }
    for (int isa = 0; isa < GYRE_LOOP_COUNT && w->code == 0; isa++) {
        if (variant->loops[isa] == NULL ||
            (opt->isa != NULL && strcmp(opt->isa, isa_names[isa]) != 0) ||
            !machine_has(isa_names[isa]))
            continue;
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
    }
    return w->code != 0;
}

static int run(const options *opt)
{
    walk w = {0};
    gyre_context *context = NULL;
    gyre_error error = {0};

    w.opt = opt;
    w.job.opt = opt;
    w.list = opt->json ? json_array() : NULL;
    w.job.g = map_array(opt->elements);
    if (w.job.g == NULL || (opt->json && w.list == NULL)) {
        fprintf(stderr, "bench update: no memory\n");
        return 77;
    }
    if (!opt->json)
        print_head(opt);
    if (gyre_context_create(NULL, &context, &error) != GYRE_OK ||
        gyre_plugin_each(context, bench_plugin, &w, &error) != GYRE_OK) {
        fprintf(stderr, "bench update: %s\n", error.text);
        w.code = 99;
    }
    if (w.code == 0 && w.ran == 0) {
        fprintf(stderr, "bench update: nothing to run: no such optimizer or "
                        "instruction set here\n");
        w.code = 77;
    }
    if (opt->json && w.code == 0) {
        json_t *all = json_pack("{s:I, s:I, s:s, s:O}", "elements",
                                (json_int_t)opt->elements, "pairs",
                                (json_int_t)opt->pairs, "stream_isa",
                                stream_isa(), "results", w.list);

        json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        printf("\n");
        json_decref(all);
    }
    json_decref(w.list);
    gyre_context_destroy(context);
    return w.code;
}

static const char help[] =
    "usage: gyre bench update [options]\n"
    "\n"
    "Speed of optimizer updates beside a stream over the same arrays (one\n"
    "addition each, best instruction set), by turns in the same run.\n"
    "\n"
    "  --optimizer NAME  one of them (default: every one found)\n"
    "  --isa NAME        scalar, avx2 or avx512 (default: what there is)\n"
    "  --threads N       (default: 1, and one per core)\n"
    "  --elements N      per pass (default: 67108864)\n"
    "  --pairs N         update and stream, 1 to 1000 (default: 15)\n"
    "  --json            machine output\n"
    "  --quiet           no progress\n";

static int number(const char *name, const char *text, size_t max, size_t *out)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);

    if (end == text || *end != '\0' || text[0] == '-' || value == 0 ||
        value > max) {
        fprintf(stderr, "bench update: --%s %s: want a number from 1 to "
                        "%zu\n", name, text, max);
        return 2;
    }
    *out = (size_t)value;
    return 0;
}

int bench_update(int argc, char **argv)
{
    static const struct option known[] = {
        {"optimizer", required_argument, NULL, 'o'},
        {"isa", required_argument, NULL, 'i'},
        {"threads", required_argument, NULL, 't'},
        {"elements", required_argument, NULL, 'e'},
        {"pairs", required_argument, NULL, 'p'},
        {"json", no_argument, NULL, 'j'},
        {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    options opt = {NULL, NULL, 0, 67108864, 15, 0, 0};
    int code = 0, letter;

    optind = 1;
    while (code == 0 &&
           (letter = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (letter) {
        case 'o': opt.optimizer = optarg; break;
        case 'i': opt.isa = optarg; break;
        case 't': code = number("threads", optarg, 4096, &opt.threads); break;
        case 'e':
            code = number("elements", optarg, (size_t)1 << 40, &opt.elements);
            break;
        case 'p': code = number("pairs", optarg, MAX_PAIRS, &opt.pairs); break;
        case 'j': opt.json = 1; break;
        case 'q': opt.quiet = 1; break;
        case 'h': fputs(help, stdout); return 0;
        default: code = 2;
        }
    }
    if (code == 0 && optind < argc) {
        fprintf(stderr, "bench update: %s is no option\n", argv[optind]);
        code = 2;
    }
    return code != 0 ? code : run(&opt);
}
