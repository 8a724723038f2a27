# SPDX-License-Identifier: Apache-2.0
# Block kernels of attention.
attention_kernel_sources = \
	sdk/src/attention/kernel.c \
	sdk/src/attention/kernel.h \
	sdk/src/attention/kernel_bench.c \
	sdk/src/attention/kernel_blas.c \
	sdk/src/attention/kernel_blas.h \
	sdk/src/attention/kernel_library.c \
	sdk/src/attention/kernel_library.h \
	sdk/src/attention/kernel_count.c \
	sdk/src/attention/kernel_device.c \
	sdk/src/attention/kernel_device.h \
	sdk/src/attention/kernel_device_pack.c \
	sdk/src/attention/kernel_device_pack.h \
	sdk/src/attention/kernel_f32.c \
	sdk/src/attention/kernel_f32.h \
	sdk/src/attention/kernel_f32_attend.c \
	sdk/src/attention/kernel_f32_grad.c \
	sdk/src/attention/kernel_f64.c \
	sdk/src/attention/kernel_inner.h \
	sdk/src/attention/kernel_merge.c \
	sdk/src/attention/kernel_planes.c \
	sdk/src/attention/kernel_rows.c \
	sdk/src/attention/kernel_rows.h \
	sdk/src/attention/kernel_rows_body.h \
	sdk/src/attention/kernel_source.c \
	sdk/src/attention/kernel_tile.c \
	sdk/src/attention/kernel_tile.h

gyre_include_HEADERS += sdk/include/gyre/kernel.h
