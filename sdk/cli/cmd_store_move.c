/* SPDX-License-Identifier: Apache-2.0 */
/* gyre store export, import and reshard. */
#include "config.h"

#include "cli.h"
#include "cmd_store.h"
#include "progress.h"
#include "words.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- progress ----------------------------------------------------------- */

typedef struct work {
    progress_bar bar;
    bool quiet, started;
    const char *label;
    uint64_t done;
} work;

static int on_progress(void *user, uint64_t done, uint64_t total)
{
    work *w = user;

    if (!w->started) {
        progress_start(&w->bar, w->quiet, w->label, "B", (double)total);
        w->started = true;
    }
    w->done = done;
    progress_update(&w->bar, (double)done);
    return 0;
}

static void end_progress(work *w)
{
    if (w->started)
        progress_end(&w->bar, (double)w->done);
}

/* ---- export and import -------------------------------------------------- */

/* The last line of what wrote or read a file. */
static int report_file(const cli_state *cli, const char *verb, const char *file,
                       uint64_t step)
{
    struct stat st = {0};
    char bytes[16];

    stat(file, &st);
    if (cli->json)
        return cli_print_json(json_pack("{s:s,s:I,s:I}", "file", file, "bytes",
                                        (json_int_t)st.st_size, "step",
                                        (json_int_t)step));
    if (!cli->quiet)
        printf("%s %s, %s, step %llu\n", verb, file,
               cli_bytes((double)st.st_size, bytes), (unsigned long long)step);
    return CLI_GOOD;
}

static gyre_status export(gyre_context *context, const cli_state *cli,
                          const char *io, bool parameters_only, uint64_t *step,
                          gyre_error *error)
{
    gyre_store_options options = {
        .size = sizeof(options), .io = io, .read_only = 1};
    gyre_store_info info = {.size = sizeof(info)};
    gyre_store *store = NULL;
    work w = {.quiet = cli->quiet, .label = "export"};
    gyre_status status =
        gyre_store_open(context, cli->argv[0], &options, &store, error);

    if (status == GYRE_OK)
        status = gyre_store_get_info(store, &info, error);
    if (status == GYRE_OK)
        status = gyre_store_export(store, cli->argv[1], parameters_only,
                                   on_progress, &w, error);
    end_progress(&w);
    gyre_store_close(store);
    *step = info.step;
    return status;
}

int store_export(int argc, char **argv)
{
    bool parameters_only = false;
    const char *io = NULL;
    const cli_option list[] = {
        {"parameters-only", NULL, "leave the optimizer's state out", CLI_FLAG,
         &parameters_only},
        {"io", "ENGINE", "auto, uring or posix", CLI_TEXT, &io},
        {0}};
    const cli_usage usage = {"DIR FILE",
                             "Write a store into one safetensors file (f32).",
                             list, 2, 2};
    gyre_context *context = NULL;
    gyre_error error = {0};
    uint64_t step = 0;
    cli_state cli;
    int code = cli_parse(&cli, &usage, argc, argv);

    if (code == -1)
        code = cli_context(&cli, NULL, &context);
    if (code != -1)
        return code;
    gyre_status status =
        export(context, &cli, io, parameters_only, &step, &error);
    code = status == GYRE_OK ? report_file(&cli, "wrote", cli.argv[1], step)
                             : cli_fail_status(&cli, status, &error);
    gyre_context_destroy(context);
    return code;
}

/* Print step and layout of the store, after it has changed. */
static int report_store(const cli_state *cli, gyre_context *context,
                        const gyre_store_options *options)
{
    gyre_store_options fast = *options;
    gyre_store *store = NULL;
    gyre_error error = {0};

    fast.fast = 1;
    fast.read_only = 1;
    gyre_status status =
        gyre_store_open(context, cli->argv[0], &fast, &store, &error);
    int code = status == GYRE_OK && (cli->json || !cli->quiet)
                   ? store_show(cli, store, false)
               : status == GYRE_OK ? CLI_GOOD
                                   : cli_fail_status(cli, status, &error);
    gyre_store_close(store);
    return code;
}

int store_import(int argc, char **argv)
{
    const char *io = NULL;
    const cli_option list[] = {
        {"io", "ENGINE", "auto, uring or posix", CLI_TEXT, &io}, {0}};
    const cli_usage usage = {
        "DIR FILE",
        "Take parameters and state from a safetensors file into a store.", list,
        2, 2};
    gyre_context *context = NULL;
    gyre_error error = {0};
    cli_state cli;
    int code = cli_parse(&cli, &usage, argc, argv);

    if (code == -1)
        code = cli_context(&cli, NULL, &context);
    if (code != -1)
        return code;
    work w = {.quiet = cli.quiet, .label = "import"};
    gyre_store_options options = {.size = sizeof(options), .io = io};
    gyre_status status = gyre_store_import(context, cli.argv[0], cli.argv[1],
                                           &options, on_progress, &w, &error);
    end_progress(&w);
    code = status == GYRE_OK ? report_store(&cli, context, &options)
                             : cli_fail_status(&cli, status, &error);
    gyre_context_destroy(context);
    return code;
}

/* ---- reshard ------------------------------------------------------------ */

static int reshard(const cli_state *cli, gyre_store_spec *spec,
                   const char *weights, const gyre_store_options *options)
{
    double shares[GYRE_MAX_DEVICES];
    gyre_context *context = NULL;
    gyre_error error = {0};
    work w = {.quiet = cli->quiet, .label = "reshard"};
    int code = cli_context(cli, NULL, &context);

    if (code != -1)
        return code;
    if (weights != NULL) {
        spec->weights = shares;
        code = store_read_weights(cli, context, weights, spec->devices,
                                  spec->device_count, shares);
        if (code != -1) {
            gyre_context_destroy(context);
            return code;
        }
    }
    gyre_status status = gyre_store_reshard(context, cli->argv[0], spec,
                                            options, on_progress, &w, &error);
    end_progress(&w);
    code = status == GYRE_OK ? report_store(cli, context, options)
                             : cli_fail_status(cli, status, &error);
    gyre_context_destroy(context);
    return code;
}

int store_reshard(int argc, char **argv)
{
    uint64_t devices = 0, chunk_elements = 0;
    const char *paths[GYRE_MAX_DEVICES], *last = NULL, *io = NULL;
    const char *weights = NULL;
    const cli_option list[] = {
        {"devices", "M", "number of devices", CLI_COUNT, &devices},
        {"device", "PATH", "one of them; once for each, in order", CLI_TEXT,
         &last},
        {"weights", "LIST", "share of each, W,W,..., or measured", CLI_TEXT,
         &weights},
        {"chunk-elements", "N", "elements of a chunk, times of 1024", CLI_COUNT,
         &chunk_elements},
        {"io", "ENGINE", "auto, uring or posix", CLI_TEXT, &io},
        {0}};
    const cli_usage usage = {
        "DIR", "Rewrite a store for other devices or another chunk size.", list,
        1, 1};
    cli_state cli;
    int count = cli_words(argc, argv, "device", paths, GYRE_MAX_DEVICES);
    int code = cli_parse(&cli, &usage, argc, argv);

    if (code != -1)
        return code;
    if (count < 0 || devices > GYRE_MAX_DEVICES)
        return cli_fail(&cli, CLI_USAGE, "at most %d devices",
                        GYRE_MAX_DEVICES);
    if (count > 0 && devices != 0 && devices != (uint64_t)count)
        return cli_fail(&cli, CLI_USAGE, "--devices %llu, but %d paths",
                        (unsigned long long)devices, count);
    if (count == 0 && devices == 0 && chunk_elements == 0)
        return cli_fail(&cli, CLI_USAGE,
                        "nothing to do: --devices M, --device PATH... or "
                        "--chunk-elements N");
    if (weights != NULL && count == 0 && devices == 0)
        return cli_fail(&cli, CLI_USAGE,
                        "--weights needs the devices: --device PATH... or "
                        "--devices M");
    gyre_store_spec spec = {.size = sizeof(spec),
                            .devices = count > 0 ? paths : NULL,
                            .device_count =
                                count > 0 ? (size_t)count : (size_t)devices,
                            .chunk_elements = chunk_elements};
    gyre_store_options options = {.size = sizeof(options), .io = io};
    return reshard(&cli, &spec, weights, &options);
}
