/* SPDX-License-Identifier: Apache-2.0 */
/* gyre store weigh: how fast places are, and what share each should get. */
#include "config.h"

#include "cli.h"
#include "cmd_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print_json(const cli_state *cli, const gyre_device_speed *speeds)
{
    json_t *list = json_array();

    for (int d = 0; d < cli->argc; d++)
        json_array_append_new(
            list,
            json_pack("{s:s,s:f,s:f,s:f,s:f,s:I,s:b}", "device", cli->argv[d],
                      "read_rate", speeds[d].read_rate, "write_rate",
                      speeds[d].write_rate, "rate", speeds[d].rate, "weight",
                      speeds[d].weight, "bytes", (json_int_t)speeds[d].bytes,
                      "direct", speeds[d].direct));
    return cli_print_json(json_pack("{s:o}", "devices", list));
}

static void print_table(const cli_state *cli, const gyre_device_speed *speeds)
{
    char read[16], write[16], both[16];

    printf("%-8s%12s%12s%12s  device\n", "weight", "read/s", "write/s",
           "both/s");
    for (int d = 0; d < cli->argc; d++)
        printf("%-8.4f%12s%12s%12s  %s%s\n", speeds[d].weight,
               cli_bytes(speeds[d].read_rate, read),
               speeds[d].write_rate > 0 ? cli_bytes(speeds[d].write_rate, write)
                                        : "-",
               cli_bytes(speeds[d].rate, both), cli->argv[d],
               speeds[d].direct ? "" : "  (page cache)");
}

int store_weigh(int argc, char **argv)
{
    uint64_t bytes = 0, milliseconds = 0;
    const cli_option list[] = {
        {"bytes", "BYTES", "room to take on each device [64M]", CLI_BYTES,
         &bytes},
        {"ms", "N", "time to take [1500]", CLI_COUNT, &milliseconds},
        {0}};
    const cli_usage usage = {
        "DEVICE...",
        "Measure folders and block files, for the weights of a store.", list, 1,
        GYRE_MAX_DEVICES};
    gyre_device_speed speeds[GYRE_MAX_DEVICES];
    gyre_context *context = NULL;
    gyre_error error = {0};
    gyre_status status;
    cli_state cli;
    int code = cli_parse(&cli, &usage, argc, argv);

    if (code == -1 && milliseconds > 3600000)
        code = cli_fail(&cli, CLI_USAGE, "--ms %llu is more than an hour",
                        (unsigned long long)milliseconds);
    if (code == -1)
        code = cli_context(&cli, NULL, &context);
    if (code != -1)
        return code;
    status = gyre_store_measure(context, (const char *const *)cli.argv,
                                (size_t)cli.argc, bytes, milliseconds * 1000000,
                                speeds, &error);
    if (status != GYRE_OK)
        code = cli_fail_status(&cli, status, &error);
    else if (cli.json)
        code = print_json(&cli, speeds);
    else
        print_table(&cli, speeds);
    gyre_context_destroy(context);
    return code == -1 ? CLI_GOOD : code;
}

/* One number of "1,2.5,1"; the rest, or NULL. */
static const char *next_weight(const char *text, double *out)
{
    char part[32];
    size_t n = strcspn(text, ",");

    if (n == 0 || n >= sizeof(part))
        return NULL;
    memcpy(part, text, n);
    part[n] = '\0';
    if (!cli_read(CLI_NUMBER, part, out))
        return NULL;
    return text[n] == ',' ? text + n + 1 : text + n;
}

int store_read_weights(const cli_state *cli, gyre_context *context,
                       const char *text, const char *const *devices,
                       size_t count, double *weights)
{
    gyre_device_speed speeds[GYRE_MAX_DEVICES];
    gyre_error error = {0};
    const char *at = text;
    gyre_status status;

    if (devices == NULL && strcmp(text, "measured") == 0)
        return cli_fail(cli, CLI_USAGE,
                        "--weights measured needs --device PATH, once for each "
                        "device");
    if (strcmp(text, "measured") != 0) {
        size_t n = 0;

        for (; *at != '\0' && n < count; n++)
            if ((at = next_weight(at, &weights[n])) == NULL)
                break;
        if (at == NULL || *at != '\0' || n != count)
            return cli_fail(cli, CLI_USAGE,
                            "--weights %s: \"measured\", or %zu numbers with "
                            "commas between",
                            text, count);
        return -1;
    }
    status = gyre_store_measure(context, devices, count, 0, 0, speeds, &error);
    if (status != GYRE_OK)
        return cli_fail_status(cli, status, &error);
    for (size_t d = 0; d < count; d++)
        weights[d] = speeds[d].weight;
    return -1;
}
