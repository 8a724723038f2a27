# SPDX-License-Identifier: Apache-2.0
plan_sources = \
	sdk/src/plan/binary.c \
	sdk/src/plan/build.c \
	sdk/src/plan/count.c \
	sdk/src/plan/create.c \
	sdk/src/plan/diff.c \
	sdk/src/plan/diff.h \
	sdk/src/plan/diff_program.c \
	sdk/src/plan/info.c \
	sdk/src/plan/layout.c \
	sdk/src/plan/load.c \
	sdk/src/plan/mask.c \
	sdk/src/plan/order.c \
	sdk/src/plan/radix.c \
	sdk/src/plan/radix_gather.c \
	sdk/src/plan/radix.h \
	sdk/src/plan/radix_ring.c \
	sdk/src/plan/radix_split.c \
	sdk/src/plan/prove.c \
	sdk/src/plan/prove.h \
	sdk/src/plan/prove_effect.c \
	sdk/src/plan/prove_effect.h \
	sdk/src/plan/prove_match.c \
	sdk/src/plan/prove_move.c \
	sdk/src/plan/prove_op.c \
	sdk/src/plan/prove_pattern.c \
	sdk/src/plan/prove_quotient.c \
	sdk/src/plan/prove_run.c \
	sdk/src/plan/prove_set.c \
	sdk/src/plan/prove_state.c \
	sdk/src/plan/prove_type.c \
	sdk/src/plan/prune.c \
	sdk/src/plan/plan.h \
	sdk/src/plan/record.c \
	sdk/src/plan/record.h \
	sdk/src/plan/rows.c \
	sdk/src/plan/save.c \
	sdk/src/plan/text.c \
	sdk/src/plan/time.c \
	sdk/src/plan/time.h \
	sdk/src/plan/time_graph.c \
	sdk/src/plan/value.c \
	sdk/src/plan/visit.c

gyre_include_HEADERS += sdk/include/gyre/plan.h
