# SPDX-License-Identifier: Apache-2.0
device_sources = \
	sdk/src/device/compress.c \
	sdk/src/device/cpu.c \
	sdk/src/device/device.h \
	sdk/src/device/feedback.c \
	sdk/src/device/feedback.h \
	sdk/src/device/reduce.c
gyre_include_HEADERS += sdk/include/gyre/compress.h
