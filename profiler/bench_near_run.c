/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of one case of `gyre bench near`; see bench_near.h. */
#include "config.h"

#include "bench_near.h"

#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 20, MAX_STEPS = 1000, CHUNK = 32 * GYRE_GRAIN };

typedef struct trial {
    gyre_context *context;
    const near_options *o;
    const near_case *of;
    unsigned devices;
    double forward;
    gyre_tensor tensor;
    gyre_setting setting, momentum;
    gyre_store_spec spec;
    gyre_store_options open;
    char path[3072];
    char compute[128];
    const char *compute_list[1];
    char places[NEAR_MAX_DEVICES][3072];
    const char *place_list[NEAR_MAX_DEVICES];
    near_throttle *throttle;
    gyre_store *store;
    float *gradient;
    void *parameters;
    double seconds[MAX_STEPS];
    gyre_ledger sum;
} trial;

gyre_status near_fail(gyre_error *error, gyre_status status, const char *format,
                      ...)
{
    va_list list;

    if (error == NULL)
        return status;
    error->status = status;
    va_start(list, format);
    vsnprintf(error->text, sizeof(error->text), format, list);
    va_end(list);
    return status;
}

static int remove_one(const char *path, const struct stat *st, int kind,
                      struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    remove(path);
    return 0;
}

void near_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- the store -------------------------------------------------------- */

static void describe(trial *t)
{
    const near_options *o = t->o;
    bool compressed = t->of->scheme == NEAR_COMPRESSION;

    t->tensor =
        (gyre_tensor){.name = "weights", .rank = 1, .shape = {o->elements}};
    t->setting = (gyre_setting){.name = "ratio", .value = o->ratio};
    t->momentum = (gyre_setting){.name = "momentum", .value = o->momentum};
    t->spec = (gyre_store_spec){.size = sizeof(t->spec),
                                .tensors = &t->tensor,
                                .tensor_count = 1,
                                .optimizer = o->optimizer,
                                .settings = &t->momentum,
                                .setting_count = o->momentum != 0,
                                .devices = t->place_list,
                                .device_count = t->devices,
                                .chunk_elements = o->chunk_elements,
                                .spill = 1};
    if (t->spec.chunk_elements == 0)
        t->spec.chunk_elements = (uint64_t)near_model_chunk(
            (double)o->elements, t->devices, GYRE_GRAIN, CHUNK);
    if (compressed) {
        t->spec.compressor = o->compressor;
        t->spec.compressor_settings = &t->setting;
        t->spec.compressor_setting_count = 1;
        t->spec.residual = t->of->commit_every > 0 ? GYRE_RESIDUAL_COMMITTED
                           : o->residual_off       ? GYRE_RESIDUAL_OFF
                                                   : GYRE_RESIDUAL_VOLATILE;
    }
    snprintf(t->path, sizeof(t->path), "%s/store", o->folder);
    for (unsigned d = 0; d < t->devices; d++) {
        snprintf(t->places[d], sizeof(t->places[d]), "%s/d%02u", o->folder, d);
        t->place_list[d] = t->places[d];
    }
}

/* How it is opened for the steps: with the links of the trial. */
static void describe_opening(trial *t)
{
    const near_options *o = t->o;

    snprintf(t->compute, sizeof(t->compute), "emulated:read=%.0f,write=%.0f",
             o->read, o->write);
    t->compute_list[0] = o->kernel ? "cpu" : t->compute;
    t->open = (gyre_store_options){
        .size = sizeof(t->open),
        .buffers = t->of->buffers,
        .commit_every = t->of->commit_every,
        .fast = 1,
        .compute = t->compute_list,
        .compute_count = 1,
        .link_rate = o->link,
        .placement = t->of->scheme == NEAR_HOST ? GYRE_HOST : GYRE_NEAR};
}

gyre_status near_prepare(gyre_context *context, const near_options *options,
                         const near_case *of, near_setup *out,
                         gyre_error *error)
{
    trial t = {.context = context, .o = options, .of = of, .devices = 1};
    gyre_store_plan plan = {.size = sizeof(plan)};
    gyre_status status;
    double n;

    describe(&t);
    describe_opening(&t);
    status = gyre_store_make_plan(context, &t.spec, &t.open, &plan, error);
    if (status != GYRE_OK)
        return status;
    if (plan.model.elements == 0)
        return near_fail(error, GYRE_INVALID, "a model of no parameters");
    n = (double)plan.model.elements;
    *out = (near_setup){.link = options->link,
                        .read = options->read,
                        .write = options->write,
                        .elements = (double)options->elements,
                        .state = (double)plan.model.state_read / n,
                        .gradient = sizeof(float),
                        .returned = (double)gyre_dtype_bytes(options->returned),
                        .payload = (double)plan.model.gradient_down / n};
    if (of->commit_every > 0)
        out->residual = (double)sizeof(float) / of->commit_every;
    return GYRE_OK;
}

/* Made with no limit on its devices, for that takes no part in the time. */
static gyre_status make_store(trial *t, gyre_error *error)
{
    gyre_store_plan plan = {.size = sizeof(plan)};
    gyre_store *store = NULL;
    gyre_status status = GYRE_OK;

    if (mkdir(t->o->folder, 0700) != 0 && errno != EEXIST)
        return near_fail(error, GYRE_IO, "cannot make %s: %s", t->o->folder,
                         strerror(errno));
    for (unsigned d = 0; d < t->devices && !t->o->kernel; d++)
        if (mkdir(t->places[d], 0700) != 0 && errno != EEXIST)
            return near_fail(error, GYRE_IO, "cannot make %s: %s", t->places[d],
                             strerror(errno));
    if (t->o->kernel)
        status = gyre_store_make_plan(t->context, &t->spec, NULL, &plan, error);
    if (t->o->kernel && status == GYRE_OK)
        status = near_throttle_start(t->o->folder, t->devices,
                                     plan.disk_bytes / t->devices * 9 / 8 +
                                         (16u << 20),
                                     &t->throttle, error);
    if (t->o->kernel && status == GYRE_OK)
        t->spec.devices = near_throttle_paths(t->throttle);
    if (status == GYRE_OK)
        status = gyre_store_create(t->context, t->path, &t->spec, NULL, &store,
                                   error);
    gyre_store_close(store);
    if (t->o->kernel && status == GYRE_OK)
        status =
            near_throttle_rates(t->throttle, t->o->read, t->o->write, error);
    return status;
}

static gyre_status make_arrays(trial *t, gyre_error *error)
{
    uint64_t n = t->o->elements;
    uint32_t x = 12345;

    t->gradient = malloc(n * sizeof(float));
    t->parameters = calloc(n, gyre_dtype_bytes(t->o->returned));
    if (t->gradient == NULL || t->parameters == NULL)
        return near_fail(error, GYRE_NO_MEMORY, "no memory for the gradients");
    for (uint64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        t->gradient[i] = (float)(int32_t)x * 0x1p-40f;
    }
    return GYRE_OK;
}

/* ---- a step ----------------------------------------------------------- */

static void rest(double seconds)
{
    struct timespec until;
    uint64_t ns;

    clock_gettime(CLOCK_MONOTONIC, &until);
    ns = (uint64_t)until.tv_nsec + (uint64_t)llround(seconds * 1e9);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) ==
           EINTR)
        ;
}

static gyre_status give_gradients(trial *t, gyre_round *round,
                                  gyre_error *error)
{
    uint64_t n = t->o->elements;
    gyre_status status = GYRE_OK;

    for (uint64_t at = 0; status == GYRE_OK && at < n; at += PIECE) {
        gyre_gradient piece = {.dtype = GYRE_F32, .data = t->gradient + at};

        status = gyre_round_gradient(
            round, 0, at, n - at < PIECE ? n - at : PIECE, &piece, error);
    }
    return status == GYRE_OK ? gyre_round_next(round, error) : status;
}

/* Seconds of the whole and of its gradients. */
static gyre_status step(trial *t, double *whole, double *gradients,
                        gyre_round_report *report, gyre_error *error)
{
    gyre_round_options options = {.size = sizeof(options)};
    uint64_t begun = gyre_trace_clock(), here;
    gyre_round *round;
    gyre_status status = gyre_round_begin(t->store, &options, &round, error);

    if (status != GYRE_OK)
        return status;
    rest(t->forward);
    here = gyre_trace_clock();
    status = give_gradients(t, round, error);
    *gradients = (double)(gyre_trace_clock() - here) * 1e-9;
    if (status != GYRE_OK) {
        gyre_round_abort(round, NULL);
        return status;
    }
    *report = (gyre_round_report){.size = sizeof(*report)};
    status = gyre_round_finish(round, NULL, 0, report, error);
    *whole = (double)(gyre_trace_clock() - begun) * 1e-9;
    return status;
}

static void add_ledger(gyre_ledger *sum, const gyre_ledger *one)
{
    sum->elements += one->elements;
    sum->gradient_down += one->gradient_down;
    sum->state_down += one->state_down;
    sum->parameter_up += one->parameter_up;
    sum->gradient_up += one->gradient_up;
    sum->state_up += one->state_up;
    sum->residual_down += one->residual_down;
    sum->frame_bytes += one->frame_bytes;
    sum->padding_read += one->padding_read;
    sum->padding_write += one->padding_write;
    sum->commit_write += one->commit_write;
    sum->device_read_bytes += one->device_read_bytes;
    sum->device_write_bytes += one->device_write_bytes;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void summarize(trial *t, size_t steps, double gradients,
                      near_result *out)
{
    const gyre_ledger *sum = &t->sum;
    double n = sum->elements > 0 ? (double)sum->elements : 1, mean = 0;

    for (size_t i = 0; i < steps; i++)
        mean += t->seconds[i] / (double)steps;
    qsort(t->seconds, steps, sizeof(double), by_value);
    out->seconds =
        t->of->commit_every > 1
            ? mean
            : (t->seconds[steps / 2] + t->seconds[(steps - 1) / 2]) / 2;
    out->least = t->seconds[0];
    out->most = t->seconds[steps - 1];
    out->gradient_seconds = gradients / (double)steps;
    out->update_seconds = out->seconds - t->forward;
    out->down = (double)(sum->gradient_down + sum->state_down) / n;
    out->up =
        (double)(sum->parameter_up + sum->gradient_up + sum->state_up) / n;
    out->bytes =
        (near_bytes){.host = out->down + out->up,
                     .device_read = (double)sum->device_read_bytes / n,
                     .device_write = (double)sum->device_write_bytes / n};
    out->residual = (double)sum->residual_down / n;
    out->frames = (double)sum->frame_bytes / n;
    out->padding_read = (double)sum->padding_read / n;
    out->padding_write = (double)sum->padding_write / n;
    out->commit_write = (double)sum->commit_write / n;
}

/* One step to warm up, committed, so that the counted ones are whole turns of
 * `commit_every`. */
static gyre_status run_steps(trial *t, near_result *out, gyre_error *error)
{
    uint64_t every = t->of->commit_every > 1 ? t->of->commit_every : 1;
    uint64_t steps = (t->o->steps + every - 1) / every * every;
    double gradients = 0, whole = 0, one = 0;
    gyre_round_report report;
    gyre_status status = step(t, &whole, &one, &report, error);

    if (steps > MAX_STEPS)
        steps = MAX_STEPS / every * every;
    if (status == GYRE_OK && every > 1)
        status = gyre_store_commit(t->store, NULL, 0, error);
    for (uint64_t i = 0; status == GYRE_OK && i < steps; i++) {
        status = step(t, &t->seconds[i], &one, &report, error);
        gradients += one;
        if (status == GYRE_OK)
            add_ledger(&t->sum, &report.ledger);
    }
    if (status == GYRE_OK)
        summarize(t, steps, gradients, out);
    return status;
}

/* With no limit again; the steps of one case leave the same digest on any
 * number of devices. */
static gyre_status take_digest(trial *t, near_result *out, gyre_error *error)
{
    gyre_store_options plain = {
        .size = sizeof(plain), .fast = 1, .read_only = 1};
    gyre_status status = GYRE_OK;

    gyre_store_close(t->store);
    t->store = NULL;
    if (t->o->kernel)
        status = near_throttle_rates(t->throttle, 0, 0, error);
    if (status == GYRE_OK)
        status = gyre_store_open(t->context, t->path, &plain, &t->store, error);
    return status == GYRE_OK ? gyre_store_digest(t->store, out->digest, error)
                             : status;
}

gyre_status near_run(gyre_context *context, const near_options *options,
                     const near_case *of, unsigned devices, double forward,
                     near_result *out, gyre_error *error)
{
    trial *t = calloc(1, sizeof(*t));
    gyre_status status;

    if (t == NULL)
        return near_fail(error, GYRE_NO_MEMORY, "no memory");
    t->context = context;
    t->o = options;
    t->of = of;
    t->devices = devices;
    t->forward = forward;
    describe(t);
    describe_opening(t);
    *out = (near_result){
        .of = of, .devices = devices, .chunk_elements = t->spec.chunk_elements};
    status = make_store(t, error);
    if (status == GYRE_OK)
        status = make_arrays(t, error);
    if (status == GYRE_OK)
        status = gyre_store_open(context, t->path, &t->open, &t->store, error);
    if (status == GYRE_OK)
        status = gyre_store_bind(t->store, 0, options->returned, t->parameters,
                                 error);
    if (status == GYRE_OK)
        status = run_steps(t, out, error);
    if (status == GYRE_OK)
        status = take_digest(t, out, error);
    gyre_store_close(t->store);
    near_throttle_stop(t->throttle);
    near_remove(options->folder);
    free(t->gradient);
    free(t->parameters);
    free(t);
    return status;
}
