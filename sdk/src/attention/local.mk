# SPDX-License-Identifier: Apache-2.0
include sdk/src/attention/kernel.mk

attention_sources = $(attention_kernel_sources) \
	sdk/src/attention/agree.c \
	sdk/src/attention/attention.h \
	sdk/src/attention/check.c \
	sdk/src/attention/cost.c \
	sdk/src/attention/executor.c \
	sdk/src/attention/executor.h \
	sdk/src/attention/face.c \
	sdk/src/attention/face.h \
	sdk/src/attention/flight.c \
	sdk/src/attention/leaves.c \
	sdk/src/attention/make.c \
	sdk/src/attention/make.h \
	sdk/src/attention/naive.c \
	sdk/src/attention/on_device.c \
	sdk/src/attention/pass.c \
	sdk/src/attention/prove.c \
	sdk/src/attention/queue.c \
	sdk/src/attention/slots.c \
	sdk/src/attention/solo.c \
	sdk/src/attention/step.c \
	sdk/src/attention/team.c \
	sdk/src/attention/team.h \
	sdk/src/attention/trial.c \
	sdk/src/attention/trial.h \
	sdk/src/attention/trial_main.c \
	sdk/src/attention/trial_run.c \
	sdk/src/attention/world.c

gyre_include_HEADERS += sdk/include/gyre/attention.h
