# SPDX-License-Identifier: Apache-2.0
attention_sources = \
	sdk/src/attention/make.c \
	sdk/src/attention/make.h \
	sdk/src/attention/prove.c
