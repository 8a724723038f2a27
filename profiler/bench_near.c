/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `gyre bench near`: the command; see bench_near.h.
 *
 * The work is done by a child.  The parent waits and then removes what is left,
 * so that a signal, a crash or a kill of the child leaves no folder, no loop
 * device and no control group behind.
 */
#include "config.h"

#include "bench.h"
#include "bench_near.h"
#include "cli.h"
#include "progress.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const double MB = 1e6;

typedef struct words {
    const char *devices, *schemes, *returned, *residual, *throttle, *svg;
    double link, read, write; /* MB/s */
} words;

/* ---- options ---------------------------------------------------------- */

/* "1..10", "1-4,6,10": ascending. */
static bool read_devices(const char *text, near_options *o)
{
    unsigned last = 0;

    while (*text != '\0') {
        char *end;
        unsigned long first = strtoul(text, &end, 10), to = first;

        if (end == text || *text < '0' || *text > '9')
            return false;
        if (*end == '-' || strncmp(end, "..", 2) == 0) {
            text = end + (*end == '-' ? 1 : 2);
            if (*text < '0' || *text > '9')
                return false;
            to = strtoul(text, &end, 10);
        }
        if (first <= last || to < first || to > NEAR_MAX_DEVICES)
            return false;
        for (unsigned long n = first; n <= to; n++)
            o->devices[o->device_count++] = (unsigned)n;
        last = (unsigned)to;
        if (*end != '\0' && (*end != ',' || end[1] == '\0'))
            return false;
        text = *end == ',' ? end + 1 : end;
    }
    return o->device_count > 0;
}

/* Names of cases between commas; NULL: all. */
static bool read_schemes(const char *text, near_options *o)
{
    char copy[256], *save = NULL;
    bool any = false;

    if (text == NULL) {
        memset(o->chosen, 1, sizeof(o->chosen));
        return true;
    }
    if (strlen(text) >= sizeof(copy))
        return false;
    memcpy(copy, text, strlen(text) + 1);
    for (char *word = strtok_r(copy, ",", &save); word != NULL;
         word = strtok_r(NULL, ",", &save)) {
        size_t k = 0;

        while (k < NEAR_CASES && strcmp(word, near_cases[k].name) != 0)
            k++;
        if (k == NEAR_CASES)
            return false;
        o->chosen[k] = true;
        any = true;
    }
    return any;
}

static bool is_rate(double value)
{
    return value >= 0.001 && value <= 1e9;
}

/* -1 when all is well, else the exit code after reporting. */
static int check(const cli_state *cli, const words *w, near_options *o)
{
    if (!read_devices(w->devices, o))
        return cli_fail(cli, CLI_USAGE,
                        "--devices: ascending numbers of 1 to %d, such as "
                        "1..10 or 1,2,6",
                        NEAR_MAX_DEVICES);
    if (!read_schemes(w->schemes, o))
        return cli_fail(cli, CLI_USAGE,
                        "--schemes: of host, near, overlap, compression, "
                        "committed-1, committed-10, between commas");
    if (strcmp(w->returned, "f32") != 0 && strcmp(w->returned, "bf16") != 0)
        return cli_fail(cli, CLI_USAGE, "--return-dtype: f32 or bf16");
    if (strcmp(w->residual, "volatile") != 0 && strcmp(w->residual, "off") != 0)
        return cli_fail(cli, CLI_USAGE, "--residual: volatile or off");
    if (strcmp(w->throttle, "own") != 0 && strcmp(w->throttle, "kernel") != 0)
        return cli_fail(cli, CLI_USAGE, "--throttle: own or kernel");
    if (!is_rate(w->link) || !is_rate(w->read) || !is_rate(w->write))
        return cli_fail(cli, CLI_USAGE,
                        "--link, --read, --write: MB/s of 10^6 bytes, 0.001 to "
                        "1e9");
    if (o->elements == 0 || o->elements > (uint64_t)1 << 36)
        return cli_fail(cli, CLI_USAGE, "--elements: 1 to 2^36");
    if (o->steps == 0 || o->steps > 1000)
        return cli_fail(cli, CLI_USAGE, "--steps: 1 to 1000");
    o->returned = strcmp(w->returned, "f32") == 0 ? GYRE_F32 : GYRE_BF16;
    o->residual_off = strcmp(w->residual, "off") == 0;
    o->kernel = strcmp(w->throttle, "kernel") == 0;
    o->link = w->link * MB;
    o->read = w->read * MB;
    o->write = w->write * MB;
    if (snprintf(o->folder, sizeof(o->folder), "%s/gyre-near-%ld", o->path,
                 (long)getpid()) >= (int)sizeof(o->folder))
        return cli_fail(cli, CLI_USAGE, "DIR: too long");
    return -1;
}

/* ---- the run ---------------------------------------------------------- */

/* Emulated devices share one disk: what they move must be little of what it
 * can, or its own limit would be measured in place of theirs. */
static gyre_status measure_disk(const near_options *o, double *disk,
                                gyre_error *error)
{
    unsigned most = o->devices[o->device_count - 1];
    double wanted = most * (o->read + o->write), fit, even;
    size_t block = 32 * GYRE_GRAIN * sizeof(float) * 3;
    gyre_status status;

    if (mkdir(o->folder, 0700) != 0 && errno != EEXIST)
        return near_fail(error, GYRE_IO, "cannot make %s: %s", o->folder,
                         strerror(errno));
    status = near_disk_rate(o->folder, block, o->read / (o->read + o->write),
                            disk, error);
    if (status != GYRE_OK || wanted <= *disk / 2)
        return status;
    fit = *disk / 2 / wanted;
    even = fit * 0.95; /* the next measurement may be lower */
    return near_fail(error, GYRE_RANGE,
                     "%u devices at %g + %g MB/s would move %.0f "
                     "MB/s, and of the %.0f MB/s that the disk under %s does "
                     "(reading and writing at once, measured now) at most half "
                     "may be used; these fit: --link %.3g --read %.3g --write "
                     "%.3g, or --devices up to %.0f, or another folder",
                     most, o->read / MB, o->write / MB, wanted / MB, *disk / MB,
                     o->path, o->link * even / MB, o->read * even / MB,
                     o->write * even / MB, floor(most * fit));
}

/* Whole bytes of a round, for a quotient is rounded. */
static bool is_same(const near_setup *setup, double seen, double formula)
{
    return fabs(seen - formula) * setup->elements < 0.5;
}

static bool moved_the_formula(const near_setup *setup, const near_result *r)
{
    return is_same(setup, r->bytes.host, r->formula.host) &&
           is_same(setup, r->bytes.device_read, r->formula.device_read) &&
           is_same(setup, r->bytes.device_write, r->formula.device_write) &&
           is_same(setup, r->residual, r->residual_formula);
}

/* What the closed forms say, and speeds over `host` on as many devices. */
static void compare(const near_setup *setup, const near_setup *base,
                    double forward, const near_result *host, near_result *r)
{
    near_seconds t = near_model_seconds(setup, r->of->scheme, r->devices);
    near_seconds h = near_model_seconds(base, NEAR_HOST, r->devices);

    r->formula = near_model_bytes(setup, r->of->scheme);
    r->residual_formula = setup->residual;
    r->equal = moved_the_formula(setup, r);
    r->model_update_seconds = t.gradient + t.update;
    r->model_seconds = forward + r->model_update_seconds;
    if (host == NULL)
        return;
    r->speedup = host->seconds / r->seconds;
    r->update_speedup = host->update_seconds / r->update_seconds;
    r->model_speedup = (forward + h.gradient + h.update) / r->model_seconds;
    r->model_update_speedup = (h.gradient + h.update) / r->model_update_seconds;
}

typedef struct walk {
    const cli_state *cli;
    gyre_context *context;
    const near_options *o;
    near_report report;
    near_setup setups[NEAR_CASES];
    near_result *results;
    progress_bar bar;
    size_t total;
} walk;

static gyre_status run_devices(walk *w, unsigned devices, gyre_error *error)
{
    const near_result *host = NULL;
    gyre_status status = GYRE_OK;

    for (size_t c = 0; status == GYRE_OK && c < NEAR_CASES; c++) {
        near_result *r = &w->results[w->report.count];

        if (!w->o->chosen[c])
            continue;
        status = near_run(w->context, w->o, &near_cases[c], devices,
                          w->report.forward, r, error);
        if (status != GYRE_OK)
            break;
        if (near_cases[c].scheme == NEAR_HOST)
            host = r;
        compare(&w->setups[c], &w->setups[0], w->report.forward, host, r);
        w->report.count++;
        if (!w->cli->json)
            near_print_row(r);
        else
            progress_update(&w->bar, w->report.count);
    }
    return status;
}

static gyre_status run_all(walk *w, gyre_error *error)
{
    gyre_status status = GYRE_OK;

    for (size_t c = 0; status == GYRE_OK && c < NEAR_CASES; c++) {
        if (c == 0 || w->o->chosen[c])
            status = near_prepare(w->context, w->o, &near_cases[c],
                                  &w->setups[c], error);
        w->total += w->o->chosen[c] ? w->o->device_count : 0;
    }
    if (status == GYRE_OK)
        status = measure_disk(w->o, &w->report.disk, error);
    if (status != GYRE_OK)
        return status;
    w->results = calloc(w->total, sizeof(*w->results));
    if (w->results == NULL)
        return near_fail(error, GYRE_NO_MEMORY, "no memory");
    w->report.results = w->results;
    w->report.forward = near_model_forward(&w->setups[0]);
    if (!w->cli->json)
        near_print_head(&w->report);
    progress_start(&w->bar, w->cli->quiet || !w->cli->json, "bench near",
                   "cases", w->total);
    for (size_t i = 0; status == GYRE_OK && i < w->o->device_count; i++)
        status = run_devices(w, w->o->devices[i], error);
    progress_end(&w->bar, w->report.count);
    return status;
}

static int plot(const walk *w, const char *name)
{
    FILE *file = fopen(name, "we");
    int trouble = file == NULL ? errno : 0;

    if (trouble == 0 && near_plot(file, &w->report) != 0)
        trouble = errno != 0 ? errno : EIO;
    if (file != NULL && fclose(file) != 0 && trouble == 0)
        trouble = errno;
    return trouble == 0 ? CLI_GOOD
                        : cli_fail(w->cli, CLI_NOTHING, "cannot write %s: %s",
                                   name, strerror(trouble));
}

/* After all is printed: a ledger that is off makes the rest worth nothing. */
static int judge(const walk *w)
{
    for (size_t i = 0; i < w->report.count; i++) {
        const near_result *r = &w->results[i];

        if (r->equal)
            continue;
        /* JSON is printed, and has all of it */
        return w->cli->json
                   ? CLI_WRONG
                   : cli_fail(w->cli, CLI_WRONG,
                              "%s, %u devices: the store counted %.9g + %.9g "
                              "bytes per parameter on the link and %.9g + %.9g "
                              "on devices; the formulas say %.9g + %.9g and "
                              "%.9g + %.9g",
                              r->of->name, r->devices, r->bytes.host,
                              r->residual, r->bytes.device_read,
                              r->bytes.device_write, r->formula.host,
                              r->residual_formula, r->formula.device_read,
                              r->formula.device_write);
    }
    return CLI_GOOD;
}

static int run(const cli_state *cli, const near_options *o, const char *svg)
{
    walk w = {.cli = cli, .o = o, .report.options = o};
    gyre_error error = {0};
    gyre_status status;
    int code = cli_context(cli, NULL, &w.context);

    if (code >= 0)
        return code;
    status = run_all(&w, &error);
    if (status != GYRE_OK)
        code = cli_fail_status(cli, status, &error);
    else if (svg != NULL && (code = plot(&w, svg)) == CLI_GOOD)
        code = -1;
    if (code < 0 && cli->json)
        code = cli_print_json(near_json(&w.report));
    else if (code < 0)
        near_print_foot(&w.report);
    if (code <= CLI_GOOD && status == GYRE_OK)
        code = judge(&w);
    free(w.results);
    gyre_context_destroy(w.context);
    return code;
}

/* ---- parent and child ------------------------------------------------- */

static volatile sig_atomic_t child;

static void pass_on(int number)
{
    (void)number;
    if (child > 0)
        kill((pid_t)child, SIGTERM);
}

static void listen_to(void (*handler)(int))
{
    const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = handler};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaction(numbers[i], &action, NULL);
}

static int supervise(const cli_state *cli, const near_options *o,
                     const char *svg)
{
    pid_t parent = getpid(), pid;
    int status = 0;

    near_throttle_forget(); /* of runs whose parent was killed too */
    listen_to(pass_on);
    pid = fork();
    if (pid < 0)
        return cli_fail(cli, CLI_FAULT, "cannot start a process: %s",
                        strerror(errno));
    if (pid == 0) {
        int code;

        listen_to(SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(CLI_FAULT);
        code = run(cli, o, svg);
        fflush(NULL);
        _exit(code);
    }
    child = pid;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    child = 0;
    near_remove(o->folder);
    near_throttle_forget();
    listen_to(SIG_DFL);
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    raise(WTERMSIG(status));
    return CLI_FAULT;
}

int bench_near(int argc, char **argv)
{
    words w = {.devices = "1..10",
               .returned = "f32",
               .residual = "volatile",
               .throttle = "own",
               .link = 87,
               .read = 32.5,
               .write = 17.5};
    near_options o = {.optimizer = "adamw",
                      .compressor = "topk",
                      .ratio = 0.01,
                      .elements = 8388608,
                      .steps = 3};
    const cli_option list[] = {
        {"devices", "LIST", "such as 1,2,6 (default: 1..10)", CLI_TEXT,
         &w.devices},
        {"schemes", "LIST", "host,near,overlap,compression,... (default: all)",
         CLI_TEXT, &w.schemes},
        {"optimizer", "NAME", "(default: adamw)", CLI_TEXT, &o.optimizer},
        {"momentum", "M", "of sgd, which then keeps a slot", CLI_NUMBER,
         &o.momentum},
        {"elements", "N", "parameters (default: 8388608)", CLI_COUNT,
         &o.elements},
        {"chunk-elements", "N", "(default: near 32768, for an even share)",
         CLI_COUNT, &o.chunk_elements},
        {"steps", "N", "counted, of each case (default: 3)", CLI_COUNT,
         &o.steps},
        {"link", "MB", "per second, both ways together (default: 87)",
         CLI_NUMBER, &w.link},
        {"read", "MB", "per second and device (default: 32.5)", CLI_NUMBER,
         &w.read},
        {"write", "MB", "per second and device (default: 17.5)", CLI_NUMBER,
         &w.write},
        {"ratio", "R", "of elements that topk keeps (default: 0.01)",
         CLI_NUMBER, &o.ratio},
        {"residual", "KIND", "volatile (default) or off", CLI_TEXT,
         &w.residual},
        {"return-dtype", "TYPE", "f32 (default) or bf16", CLI_TEXT,
         &w.returned},
        {"throttle", "KIND", "own (default), or kernel: loop devices, as root",
         CLI_TEXT, &w.throttle},
        {"svg", "FILE", "plot the speed-ups", CLI_TEXT, &w.svg},
        {NULL, NULL, NULL, CLI_FLAG, NULL}};
    const cli_usage usage = {
        "DIR", "What updating beside the storage gains, on emulated links.",
        list, 1, 1};
    cli_state cli;
    int code = cli_parse(&cli, &usage, argc, argv);

    if (code >= 0)
        return code;
    o.path = cli.argv[0];
    code = check(&cli, &w, &o);
    return code >= 0 ? code : supervise(&cli, &o, w.svg);
}
