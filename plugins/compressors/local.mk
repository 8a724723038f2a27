# SPDX-License-Identifier: Apache-2.0
# Gradient compressors, modules and built in as the optimizers are.
plugin_LTLIBRARIES += \
	plugins/compressors/fp8.la \
	plugins/compressors/quantize.la \
	plugins/compressors/sign.la \
	plugins/compressors/topk.la

plugins_compressors_fp8_la_SOURCES = plugins/compressors/fp8/fp8.c \
	plugins/compressors/fp8/fp8.encode \
	plugins/compressors/fp8/fp8.kernel
plugins_compressors_fp8_la_LDFLAGS = $(plugin_ldflags)
plugins_compressors_fp8_la_LIBADD = -lm
plugins_compressors_quantize_la_SOURCES = plugins/compressors/quantize/quantize.c \
	plugins/compressors/quantize/quantize.encode \
	plugins/compressors/quantize/quantize.kernel
plugins_compressors_quantize_la_LDFLAGS = $(plugin_ldflags)
plugins_compressors_quantize_la_LIBADD = -lm
plugins_compressors_sign_la_SOURCES = plugins/compressors/sign/sign.c \
	plugins/compressors/sign/sign.encode \
	plugins/compressors/sign/sign.kernel
plugins_compressors_sign_la_LDFLAGS = $(plugin_ldflags)
plugins_compressors_sign_la_LIBADD = -lm
plugins_compressors_topk_la_SOURCES = plugins/compressors/topk/topk.c \
	plugins/compressors/topk/select.h \
	plugins/compressors/topk/topk.encode \
	plugins/compressors/topk/topk.kernel
plugins_compressors_topk_la_LDFLAGS = $(plugin_ldflags)
plugins_compressors_topk_la_LIBADD = -lm

compressor_sources = \
	plugins/compressors/fp8/fp8.c \
	plugins/compressors/quantize/quantize.c \
	plugins/compressors/sign/sign.c \
	plugins/compressors/topk/topk.c

dist_plugin_DATA += \
	plugins/compressors/fp8/fp8.ref.lua \
	plugins/compressors/quantize/quantize.ref.lua \
	plugins/compressors/sign/sign.ref.lua \
	plugins/compressors/topk/topk.ref.lua
