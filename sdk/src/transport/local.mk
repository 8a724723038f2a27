# SPDX-License-Identifier: Apache-2.0
transport_sources = \
	sdk/src/transport/begin.c \
	sdk/src/transport/carrier.c \
	sdk/src/transport/clock.c \
	sdk/src/transport/collect.c \
	sdk/src/transport/end.c \
	sdk/src/transport/inner.h \
	sdk/src/transport/module.h \
	sdk/src/transport/route.c \
	sdk/src/transport/transport.h \
	sdk/src/transport/world.c
