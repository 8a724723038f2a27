# SPDX-License-Identifier: Apache-2.0
device_sources = \
	sdk/src/device/birth.c \
	sdk/src/device/birth.h \
	sdk/src/device/compress.c \
	sdk/src/device/cpu.c \
	sdk/src/device/device.h \
	sdk/src/device/element.h \
	sdk/src/device/feedback.c \
	sdk/src/device/feedback.h \
	sdk/src/device/module.c \
	sdk/src/device/module.h \
	sdk/src/device/open.c \
	sdk/src/device/open.h \
	sdk/src/device/pack.c \
	sdk/src/device/pack.h \
	sdk/src/device/q8.c \
	sdk/src/device/reduce.c \
	sdk/src/device/source.c \
	sdk/src/device/source.h \
	sdk/src/device/source_birth.c \
	sdk/src/device/source_state.c \
	sdk/src/device/state.c \
	sdk/src/device/state.h
gyre_include_HEADERS += sdk/include/gyre/compress.h
