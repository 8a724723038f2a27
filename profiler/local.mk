# SPDX-License-Identifier: Apache-2.0
# `gyre profile` and `gyre bench`.
sdk_cli_gyre_SOURCES += \
	profiler/bench.h \
	profiler/bench_compress.c \
	profiler/bench_store.c \
	profiler/bench_store.h \
	profiler/bench_update.c \
	profiler/cmd_bench.c \
	profiler/coded.c \
	profiler/coded.h \
	profiler/stream.c \
	profiler/stream.h \
	profiler/team.c \
	profiler/team.h
