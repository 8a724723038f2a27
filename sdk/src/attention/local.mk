# SPDX-License-Identifier: Apache-2.0
include sdk/src/attention/kernel.mk

attention_sources = $(attention_kernel_sources) \
	sdk/src/attention/attention.h \
	sdk/src/attention/check.c \
	sdk/src/attention/executor.c \
	sdk/src/attention/executor.h \
	sdk/src/attention/flight.c \
	sdk/src/attention/leaves.c \
	sdk/src/attention/make.c \
	sdk/src/attention/make.h \
	sdk/src/attention/queue.c \
	sdk/src/attention/slots.c \
	sdk/src/attention/step.c

gyre_include_HEADERS += sdk/include/gyre/attention.h
