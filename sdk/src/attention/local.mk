# SPDX-License-Identifier: Apache-2.0
include sdk/src/attention/kernel.mk

attention_sources = $(attention_kernel_sources)
