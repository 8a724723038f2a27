# SPDX-License-Identifier: Apache-2.0
# Block kernels of attention.
attention_kernel_sources = \
	sdk/src/attention/kernel.c \
	sdk/src/attention/kernel.h \
	sdk/src/attention/kernel_count.c \
	sdk/src/attention/kernel_f64.c \
	sdk/src/attention/kernel_inner.h \
	sdk/src/attention/kernel_merge.c \
	sdk/src/attention/kernel_planes.c
