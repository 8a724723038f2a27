/* SPDX-License-Identifier: Apache-2.0 */
/* gyre bench: the benchmarks by name. */
#include "config.h"

#include "bench.h"
#include "cli.h"
#include "commands.h"

static const cli_command benches[] = {
    {"attention", "attention blocks beside products", bench_attention},
    {"near", "update beside the storage on emulated links", bench_near},
    {"compress", "gradient compression beside a stream", bench_compress},
    {"store", "whole steps of a store beside fio", bench_store},
    {"update", "optimizer updates beside a stream", bench_update},
};

int gyre_cmd_bench(int argc, char **argv)
{
    return cli_group("bench", "Speed, as a ratio to a peer in the same run.",
                     benches, sizeof(benches) / sizeof(benches[0]), argc, argv);
}
