# SPDX-License-Identifier: Apache-2.0
# Plugins: modules that export gyre_module_entry alone and link to libc and
# libm only.  Each adds itself:
#
#     plugin_LTLIBRARIES += plugins/optimizers/NAME.la
#     plugins_optimizers_NAME_la_SOURCES = ...
#     plugins_optimizers_NAME_la_LDFLAGS = $(plugin_ldflags)
#     plugins_optimizers_NAME_la_LIBADD = -lm

plugin_ldflags = $(AM_LDFLAGS) -module -avoid-version -shared \
	-export-symbols-regex '^gyre_module_entry$$'

include plugins/optimizers/local.mk
include plugins/compressors/local.mk
include plugins/devices/local.mk
include plugins/schedules/local.mk
include plugins/transports/local.mk
