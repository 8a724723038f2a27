# SPDX-License-Identifier: Apache-2.0
registry_sources = \
	sdk/src/registry/builtin.c \
	sdk/src/registry/check.c \
	sdk/src/registry/compressor.c \
	sdk/src/registry/compressor.h \
	sdk/src/registry/elf.c \
	sdk/src/registry/lift.c \
	sdk/src/registry/loader.c \
	sdk/src/registry/optimizer.c \
	sdk/src/registry/optimizer.h \
	sdk/src/registry/parameter.c \
	sdk/src/registry/probe.c \
	sdk/src/registry/registry.c \
	sdk/src/registry/registry.h \
	sdk/src/registry/search.c \
	sdk/src/registry/table.h \
	sdk/src/registry/wire.c
gyre_include_HEADERS += \
	sdk/include/gyre/plugin.h \
	sdk/include/gyre/plugin_compressor.h \
	sdk/include/gyre/plugin_optimizer.h \
	sdk/include/gyre/plugin_schedule.h \
	sdk/include/gyre/registry.h
