/* SPDX-License-Identifier: Apache-2.0 */
/* Whole steps of a store beside fio; see bench_store.h. */
#include "config.h"

#include "bench_store.h"

#include "bench.h"
#include "cli.h"
#include "fio.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_PAIRS = 11, MAX_PAIRS = 101, PIECE = 1 << 20, LABEL = 4096 };

typedef struct bench {
    gyre_context *context;
    bench_store_options o;
    gyre_store *store;
    char folder[3072];
    char file[4096]; /* of the one device */
    char log[4096];  /* what fio replays */
    float *gradient;
    float *parameters;
    uint64_t chunks, chunk_bytes, data_at, area_bytes;
    uint32_t depth;
    unsigned version; /* that the next step reads */
} bench;

static gyre_status say(gyre_error *error, gyre_status status, const char *text)
{
    if (error != NULL) {
        error->status = status;
        snprintf(error->text, sizeof(error->text), "bench store: %s", text);
    }
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const double *values, size_t n)
{
    double sorted[MAX_PAIRS];

    memcpy(sorted, values, n * sizeof(*values));
    qsort(sorted, n, sizeof(*sorted), by_value);
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* ---- the store -------------------------------------------------------- */

static gyre_status make_store(bench *b, gyre_error *error)
{
    uint64_t chunk =
        b->o.chunk_elements != 0 ? b->o.chunk_elements : 256 * GYRE_GRAIN;
    gyre_tensor tensor = {.name = "weights", .rank = 1};
    gyre_store_spec spec = {.size = sizeof(spec),
                            .tensors = &tensor,
                            .tensor_count = 1,
                            .optimizer = b->o.optimizer};
    gyre_store_options options = {
        .size = sizeof(options), .io = b->o.io, .buffers = b->o.buffers};
    gyre_store_info info = {.size = sizeof(info)};
    gyre_status status;
    uint64_t bytes;

    b->o.elements = (b->o.elements + chunk - 1) / chunk * chunk;
    tensor.shape[0] = b->o.elements;
    spec.chunk_elements = chunk;
    snprintf(b->folder, sizeof(b->folder), "%s/gyre-bench-%ld", b->o.path,
             (long)getpid());
    status = gyre_store_create(b->context, b->folder, &spec, &options,
                               &b->store, error);
    if (status == GYRE_OK)
        status = gyre_store_get_info(b->store, &info, error);
    if (status != GYRE_OK)
        return status;
    gyre_store_device(b->store, 0, &bytes);
    snprintf(b->file, sizeof(b->file), "%s/%.8s.g1.d00", info.path, info.uuid);
    snprintf(b->log, sizeof(b->log), "%s/fio.log", b->folder);
    b->chunks = info.chunks;
    b->chunk_bytes = chunk * sizeof(float) * (1 + info.slots) + LABEL;
    b->data_at = bytes - 2 * b->chunks * b->chunk_bytes;
    b->depth = b->o.buffers != 0 ? b->o.buffers : 4;
    return GYRE_OK;
}

static gyre_status make_arrays(bench *b, gyre_error *error)
{
    uint32_t x = 12345;

    b->gradient = malloc(b->o.elements * sizeof(float));
    b->parameters = malloc(b->o.elements * sizeof(float));
    if (b->gradient == NULL || b->parameters == NULL)
        return say(error, GYRE_NO_MEMORY, "no memory for the gradients");
    for (uint64_t i = 0; i < b->o.elements; i++) {
        x = x * 1664525u + 1013904223u;
        b->gradient[i] = (float)(int32_t)x * 0x1p-40f;
        b->parameters[i] = 0;
    }
    return gyre_store_bind(b->store, 0, GYRE_F32, b->parameters, error);
}

/* One step; its seconds and the bytes that it moved on the device. */
static gyre_status step(bench *b, double *seconds, double *bytes,
                        gyre_error *error)
{
    gyre_round_options options = {
        .size = sizeof(options), .clip = b->o.clip, .early = b->o.clip == 0};
    gyre_round_report report = {.size = sizeof(report)};
    uint64_t begun = gyre_trace_clock();
    gyre_round *round;
    gyre_status status = gyre_round_begin(b->store, &options, &round, error);

    if (status == GYRE_OK)
        status = gyre_round_release(round, 0, error);
    for (uint64_t at = 0; status == GYRE_OK && at < b->o.elements;
         at += PIECE) {
        uint64_t left = b->o.elements - at;
        gyre_gradient piece = {.dtype = GYRE_F32, .data = b->gradient + at};

        status = gyre_round_gradient(round, 0, at, left < PIECE ? left : PIECE,
                                     &piece, error);
    }
    if (status == GYRE_OK)
        status = gyre_round_finish(round, NULL, 0, &report, error);
    *seconds = (double)(gyre_trace_clock() - begun) * 1e-9;
    *bytes = (double)(report.read_bytes + report.write_bytes +
                      report.padding_bytes + report.commit_bytes);
    b->area_bytes = report.commit_bytes;
    b->version ^= 1;
    return status;
}

/* ---- fio -------------------------------------------------------------- */

/* Reads run `depth - 1` chunks ahead of writes, as in the store. */
static int write_log(const bench *b)
{
    FILE *log = fopen(b->log, "we");
    uint64_t ahead = b->depth - 1;

    if (log == NULL)
        return -1;
    fprintf(log, "fio version 2 iolog\n%s add\n%s open\n", b->file, b->file);
    for (uint64_t c = 0; c < b->chunks + ahead; c++) {
        if (c < b->chunks)
            fprintf(log, "%s read %llu %llu\n", b->file,
                    (unsigned long long)(b->data_at +
                                         (2 * c + b->version) * b->chunk_bytes),
                    (unsigned long long)b->chunk_bytes);
        if (c >= ahead)
            fprintf(log, "%s write %llu %llu\n", b->file,
                    (unsigned long long)(b->data_at +
                                         (2 * (c - ahead) + 1 - b->version) *
                                             b->chunk_bytes),
                    (unsigned long long)b->chunk_bytes);
    }
    return fclose(log);
}

/*
 * Disks behind a rate limiter may save up credit while they are idle, and fio
 * idles while it starts, so both sides rest first.  That is a precaution: on
 * the machine where it was tried the ratio did not move by it.
 */
static void rest(void)
{
    const struct timespec pause = {.tv_sec = 1, .tv_nsec = 500000000};

    nanosleep(&pause, NULL);
}

static gyre_status run_fio(bench *b, bool huge, double *rate, gyre_error *error)
{
    const fio_job job = {b->log, b->depth, b->chunk_bytes, huge};

    if (write_log(b) != 0)
        return say(error, GYRE_IO, "cannot write the log for fio");
    rest();
    return fio_replay(&job, rate, error);
}

/* ---- together --------------------------------------------------------- */

/* The two peers: fio as it comes, and with the huge pages that the store's
 * buffers have. */
typedef struct peers {
    bool plain, huge;
    const char *say_plain;
    char say_huge[160];
} peers;

static void find_peers(const bench *b, peers *p)
{
    const fio_job job = {b->log, b->depth, b->chunk_bytes, true};

    p->plain = fio_found();
    p->say_plain =
        p->plain ? "alternated" : "not found: install the package fio";
    snprintf(p->say_huge, sizeof(p->say_huge), "%s", p->say_plain);
    p->huge = p->plain && fio_huge_pages(&job, p->say_huge);
}

typedef struct series {
    double seconds[MAX_PAIRS], rates[MAX_PAIRS];
    double ratios[MAX_PAIRS], huge_ratios[MAX_PAIRS];
    double bytes;
} series;

static gyre_status run_pair(bench *b, const peers *p, size_t i, series *s,
                            json_t *list, gyre_error *error)
{
    double plain = 0, huge = 0;
    gyre_status status = GYRE_OK;

    if (p->plain)
        status = run_fio(b, false, &plain, error);
    if (p->huge && status == GYRE_OK)
        status = run_fio(b, true, &huge, error);
    rest();
    if (status == GYRE_OK)
        status = step(b, &s->seconds[i], &s->bytes, error);
    if (status != GYRE_OK)
        return status;
    s->rates[i] = s->bytes / s->seconds[i];
    s->ratios[i] = p->plain ? s->rates[i] / plain : 0;
    s->huge_ratios[i] = p->huge ? s->rates[i] / huge : 0;
    json_array_append_new(
        list, json_pack("{s:f, s:f, s:f, s:f}", "seconds", s->seconds[i],
                        "bytes_per_second", s->rates[i], "fio_bytes_per_second",
                        plain, "fio_huge_bytes_per_second", huge));
    return GYRE_OK;
}

static gyre_status run_pairs(bench *b, json_t **out, gyre_error *error)
{
    series s = {.bytes = 0};
    peers p;
    json_t *list = json_array();
    double warm_seconds;
    gyre_status status = step(b, &warm_seconds, &s.bytes, error);
    uint32_t n = b->o.pairs;

    find_peers(b, &p);
    for (uint32_t i = 0; status == GYRE_OK && i < n; i++)
        status = run_pair(b, &p, i, &s, list, error);
    if (status != GYRE_OK) {
        json_decref(list);
        return status;
    }
    *out = json_pack(
        "{s:s, s:I, s:I, s:I, s:i, s:i, s:f, s:f, s:f}", "optimizer",
        b->o.optimizer != NULL ? b->o.optimizer : "adamw", "elements",
        (json_int_t)b->o.elements, "chunks", (json_int_t)b->chunks,
        "chunk_bytes", (json_int_t)b->chunk_bytes, "depth", (int)b->depth,
        "pairs", (int)n, "seconds", median(s.seconds, n), "bytes", s.bytes,
        "bytes_per_second", median(s.rates, n));
    json_object_set_new(*out, "ratio",
                        p.plain ? json_real(median(s.ratios, n)) : json_null());
    json_object_set_new(*out, "ratio_huge",
                        p.huge ? json_real(median(s.huge_ratios, n))
                               : json_null());
    json_object_set_new(*out, "fio", json_string(p.say_plain));
    json_object_set_new(*out, "fio_huge", json_string(p.say_huge));
    json_object_set_new(*out, "runs", list);
    return GYRE_OK;
}

static void clean_up(bench *b)
{
    char name[4096];

    gyre_store_close(b->store);
    free(b->gradient);
    free(b->parameters);
    if (b->store == NULL)
        return;
    unlink(b->file);
    unlink(b->log);
    snprintf(name, sizeof(name), "%s/manifest.json", b->folder);
    unlink(name);
    snprintf(name, sizeof(name), "%s/lock", b->folder);
    unlink(name);
    rmdir(b->folder);
}

gyre_status bench_store_run(gyre_context *context,
                            const bench_store_options *options, json_t **out,
                            gyre_error *error)
{
    bench b = {.context = context, .o = *options};
    gyre_status status;

    if (b.o.elements == 0)
        b.o.elements = 64u << 20;
    if (b.o.pairs == 0)
        b.o.pairs = DEFAULT_PAIRS;
    if (b.o.pairs > MAX_PAIRS)
        return say(error, GYRE_RANGE, "at most 101 pairs");
    if (b.o.path == NULL)
        return say(error, GYRE_INVALID, "a folder is needed");
    status = make_store(&b, error);
    if (status == GYRE_OK)
        status = make_arrays(&b, error);
    if (status == GYRE_OK)
        status = run_pairs(&b, out, error);
    clean_up(&b);
    return status;
}

/* ---- the command ------------------------------------------------------ */

static double number(const json_t *result, const char *key)
{
    return json_number_value(json_object_get(result, key));
}

static void print_peer(const json_t *result, const char *label,
                       const char *ratio, const char *peer)
{
    const json_t *value = json_object_get(result, ratio);

    if (json_is_real(value))
        printf("%s  %.3f of its rate\n", label, json_real_value(value));
    else
        printf("%s  %s\n", label,
               json_string_value(json_object_get(result, peer)));
}

static void print_text(const json_t *result)
{
    char bytes[16], rate[16];

    printf("%s, %.0f elements in %.0f chunks, depth %.0f\n",
           json_string_value(json_object_get(result, "optimizer")),
           number(result, "elements"), number(result, "chunks"),
           number(result, "depth"));
    printf("whole step           %.3f s, %s moved, %s/s (median of %.0f)\n",
           number(result, "seconds"), cli_bytes(number(result, "bytes"), bytes),
           cli_bytes(number(result, "bytes_per_second"), rate),
           number(result, "pairs"));
    print_peer(result, "beside fio         ", "ratio", "fio");
    print_peer(result, "  with huge pages  ", "ratio_huge", "fio_huge");
}

int bench_store(int argc, char **argv)
{
    uint64_t elements = 0, pairs = 0, buffers = 0, chunk = 0;
    bench_store_options o = {0};
    const cli_option list[] = {
        {"optimizer", "NAME", "(default: adamw)", CLI_TEXT, &o.optimizer},
        {"elements", "N", "(default: 67108864)", CLI_COUNT, &elements},
        {"chunk-elements", "N", "(default: 262144)", CLI_COUNT, &chunk},
        {"buffers", "N", "chunks in flight, also fio's depth (default: 4)",
         CLI_COUNT, &buffers},
        {"pairs", "N", "step and fio (default: 11)", CLI_COUNT, &pairs},
        {"clip", "C", "clip the norm, so that no chunk updates early",
         CLI_NUMBER, &o.clip},
        {"io", "ENGINE", "auto, uring or posix", CLI_TEXT, &o.io},
        {NULL, NULL, NULL, CLI_FLAG, NULL}};
    const cli_usage usage = {
        "DIR", "Whole steps of a store in DIR beside fio on the same file.",
        list, 1, 1};
    gyre_context *context;
    gyre_error error;
    gyre_status status;
    json_t *result = NULL;
    cli_state cli;
    int code = cli_parse(&cli, &usage, argc, argv);

    if (code >= 0)
        return code;
    if (pairs > MAX_PAIRS || buffers > 1024)
        return cli_fail(&cli, CLI_USAGE,
                        "--pairs: up to %d; --buffers: up to "
                        "1024",
                        MAX_PAIRS);
    o.path = cli.argv[0];
    o.elements = elements;
    o.chunk_elements = chunk;
    o.pairs = (uint32_t)pairs;
    o.buffers = (uint32_t)buffers;
    code = cli_context(&cli, NULL, &context);
    if (code >= 0)
        return code;
    status = bench_store_run(context, &o, &result, &error);
    if (status != GYRE_OK)
        code = cli_fail_status(&cli, status, &error);
    else if (cli.json)
        code = cli_print_json(json_incref(result));
    else
        print_text(result);
    json_decref(result);
    gyre_context_destroy(context);
    return code >= 0 ? code : CLI_GOOD;
}
