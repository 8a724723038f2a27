/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `gyre bench`: speed as a ratio to a peer in the same run.
 *
 * Each bench_<name> is a command of its own: it takes what follows the name on
 * the command line (argv[0] is the name), writes its result to stdout and its
 * progress to stderr, and returns an exit code: 0 good, 1 a check failed,
 * 2 usage, 77 nothing could run, 99 own fault.
 */
#ifndef GYRE_PROFILER_BENCH_H
#define GYRE_PROFILER_BENCH_H

/*
 * Optimizer updates against a stream of the same shape.
 *
 *     --optimizer NAME   one of them            (default: every one found)
 *     --isa NAME         scalar, avx2, avx512   (default: what there is)
 *     --threads N        (default: 1, and all cores)
 *     --elements N       per pass               (default: 67108864)
 *     --pairs N          update and stream      (default: 15)
 *     --json, --quiet, --help
 */
int bench_update(int argc, char **argv);

#endif
