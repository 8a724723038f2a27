# SPDX-License-Identifier: Apache-2.0
plan_sources = \
	sdk/src/plan/build.c \
	sdk/src/plan/count.c \
	sdk/src/plan/create.c \
	sdk/src/plan/layout.c \
	sdk/src/plan/mask.c \
	sdk/src/plan/order.c \
	sdk/src/plan/plan.h \
	sdk/src/plan/rows.c \
	sdk/src/plan/value.c

gyre_include_HEADERS += sdk/include/gyre/plan.h
