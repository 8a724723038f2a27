# SPDX-License-Identifier: Apache-2.0
# `gyre profile` and `gyre bench`.
sdk_cli_gyre_SOURCES += \
	profiler/bench.h \
	profiler/bench_attention.c \
	profiler/bench_attention.h \
	profiler/bench_attention_block.c \
	profiler/bench_attention_problem.c \
	profiler/bench_attention_rank.c \
	profiler/bench_attention_schedules.c \
	profiler/bench_attention_spawn.c \
	profiler/bench_attention_table.c \
	profiler/bench_near.c \
	profiler/bench_near.h \
	profiler/bench_near_disk.c \
	profiler/bench_near_print.c \
	profiler/bench_near_run.c \
	profiler/bench_near_throttle.c \
	profiler/bench_compress.c \
	profiler/bench_store.c \
	profiler/bench_store.h \
	profiler/bench_update.c \
	profiler/cmd_bench.c \
	profiler/coded.c \
	profiler/coded.h \
	profiler/fio.c \
	profiler/fio.h \
	profiler/near_model.c \
	profiler/near_model.h \
	profiler/stream.c \
	profiler/stream.h \
	profiler/svg.c \
	profiler/svg.h \
	profiler/team.c \
	profiler/team.h

# Throttled links between network namespaces, for `gyre bench attention`.
dist_pkgdata_SCRIPTS = profiler/netns.sh
sdk_cli_gyre_CPPFLAGS += -DGYRE_NETNS='"$(pkgdatadir)/netns.sh"'

dist_man_MANS += sdk/man/gyre-bench.1
