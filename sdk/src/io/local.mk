# SPDX-License-Identifier: Apache-2.0
io_sources = \
	sdk/src/io/engine.c \
	sdk/src/io/engine.h \
	sdk/src/io/faults.c \
	sdk/src/io/faulty.c \
	sdk/src/io/file.c \
	sdk/src/io/io.c \
	sdk/src/io/io.h \
	sdk/src/io/names.c \
	sdk/src/io/posix.c \
	sdk/src/io/queue.c \
	sdk/src/io/queue.h \
	sdk/src/io/recorder.c \
	sdk/src/io/uring.c
