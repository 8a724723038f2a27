/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `gyre bench`: speed as a ratio to a peer in the same run.
 *
 * Each bench_<name> is a command of its own, as sdk/cli/cli.h describes one;
 * argv[0] is "bench <name>".  A new one gets a row in cmd_bench.c.
 */
#ifndef GYRE_PROFILER_BENCH_H
#define GYRE_PROFILER_BENCH_H

/*
 * Attention's block kernel on one thread beside a product of the same BLAS.
 *
 *     --kernel f32|bf16  (default: f32)
 *     --seq N, --heads N, --kv-heads N, --head-dim N, --mask causal|full
 *     --square N         rows of the product (default: 1024)
 *     --pairs N          rounds (default: 11)
 */
int bench_attention(int argc, char **argv);

/*
 * Compression with error feedback against a stream of the same shape: gradient
 * read, residual read and written, payload written.
 *
 *     --compressor NAME  (default: all)
 *     --param NAME=VALUE[,...] of the compressor; needs --compressor
 *     --threads N, --elements N, --pairs N
 */
int bench_compress(int argc, char **argv);

/* Optimizer updates against a stream of the same shape: per optimizer,
 * instruction set and number of threads, elements and bytes per second. */
int bench_update(int argc, char **argv);

/*
 * Placements and schemes of the update on emulated links, for 1 to many
 * devices, beside closed forms: speed-ups, bytes per parameter, a plot.
 *
 *     DIR                where stores are made, and removed afterwards
 *     --devices LIST     (default: 1..10)
 *     --schemes LIST     host, near, overlap, compression, committed-1,
 *                        committed-10 (default: all)
 *     --optimizer NAME, --momentum M, --elements N, --chunk-elements N,
 *     --steps N
 *     --link MB, --read MB, --write MB   10^6 bytes per second
 *     --ratio R, --residual KIND, --return-dtype TYPE
 *     --throttle own|kernel
 *     --svg FILE, --json, --quiet, --help
 */
int bench_near(int argc, char **argv);

/*
 * Whole steps of a store in a folder beside fio on the same file.
 *
 *     DIR                where the store is made, and removed afterwards
 *     --optimizer NAME   (default: adamw)
 *     --elements N       (default: 67108864)
 *     --chunk-elements N, --buffers N, --clip C, --io ENGINE
 *     --pairs N          step and fio (default: 11)
 *     --json, --quiet, --help
 */
int bench_store(int argc, char **argv);

#endif
