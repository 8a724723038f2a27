# SPDX-License-Identifier: Apache-2.0
trace_sources = \
	sdk/src/trace/json.c \
	sdk/src/trace/read.c \
	sdk/src/trace/record.c \
	sdk/src/trace/trace.h \
	sdk/src/trace/tracer.h
gyre_include_HEADERS += sdk/include/gyre/trace.h
