# SPDX-License-Identifier: Apache-2.0
base_sources = \
	sdk/src/base/base.h \
	sdk/src/base/context.c \
	sdk/src/base/context.h \
	sdk/src/base/dtype.c \
	sdk/src/base/fp.c \
	sdk/src/base/math.c \
	sdk/src/base/math.h \
	sdk/src/base/memory.c \
	sdk/src/base/number.c \
	sdk/src/base/status.c \
	sdk/src/base/version.c
