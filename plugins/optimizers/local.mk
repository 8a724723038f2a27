# SPDX-License-Identifier: Apache-2.0
# Each optimizer is a module of its own and, unless --disable-builtin-plugins,
# also a part of the library; the kernel is a header to its .c file.
plugin_LTLIBRARIES += \
	plugins/optimizers/adagrad.la \
	plugins/optimizers/adam.la \
	plugins/optimizers/adamw.la \
	plugins/optimizers/lion.la \
	plugins/optimizers/sgd.la

plugins_optimizers_adagrad_la_SOURCES = plugins/optimizers/adagrad/adagrad.c \
	plugins/optimizers/adagrad/adagrad.kernel
plugins_optimizers_adagrad_la_LDFLAGS = $(plugin_ldflags)
plugins_optimizers_adagrad_la_LIBADD = -lm
plugins_optimizers_adam_la_SOURCES = plugins/optimizers/adam/adam.c \
	plugins/optimizers/adam/adam.kernel
plugins_optimizers_adam_la_LDFLAGS = $(plugin_ldflags)
plugins_optimizers_adam_la_LIBADD = -lm
plugins_optimizers_adamw_la_SOURCES = plugins/optimizers/adamw/adamw.c \
	plugins/optimizers/adamw/adamw.kernel
plugins_optimizers_adamw_la_LDFLAGS = $(plugin_ldflags)
plugins_optimizers_adamw_la_LIBADD = -lm
plugins_optimizers_lion_la_SOURCES = plugins/optimizers/lion/lion.c \
	plugins/optimizers/lion/lion.kernel
plugins_optimizers_lion_la_LDFLAGS = $(plugin_ldflags)
plugins_optimizers_lion_la_LIBADD = -lm
plugins_optimizers_sgd_la_SOURCES = plugins/optimizers/sgd/sgd.c \
	plugins/optimizers/sgd/sgd.kernel
plugins_optimizers_sgd_la_LDFLAGS = $(plugin_ldflags)
plugins_optimizers_sgd_la_LIBADD = -lm

optimizer_references = \
	plugins/optimizers/adagrad/adagrad.ref.lua \
	plugins/optimizers/adam/adam.ref.lua \
	plugins/optimizers/adamw/adamw.ref.lua \
	plugins/optimizers/lion/lion.ref.lua \
	plugins/optimizers/sgd/sgd.ref.lua
# The verifier looks for a reference beside its module.
dist_plugin_DATA = $(optimizer_references)

# The same files again, with the entry's name suffixed.
if BUILTIN_PLUGINS
noinst_LTLIBRARIES += plugins/libbuiltin.la
plugins_libbuiltin_la_SOURCES = \
	plugins/optimizers/adagrad/adagrad.c \
	plugins/optimizers/adam/adam.c \
	plugins/optimizers/adamw/adamw.c \
	plugins/optimizers/lion/lion.c \
	plugins/optimizers/sgd/sgd.c \
	$(compressor_sources) \
	$(schedule_sources)
plugins_libbuiltin_la_CPPFLAGS = $(AM_CPPFLAGS) -DGYRE_STATIC_MODULE
sdk_libgyre_core_la_LIBADD += plugins/libbuiltin.la -lm
endif
