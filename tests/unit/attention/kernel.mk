# SPDX-License-Identifier: Apache-2.0
# Tests of the block kernels.
kernel_case = tests/unit/attention/kernel_case.c \
	tests/unit/attention/kernel_case.h \
	tests/unit/attention/kernel_naive_body.h

check_PROGRAMS += \
	tests/unit/attention/test_kernel \
	tests/unit/attention/test_kernel_device \
	tests/unit/attention/test_kernel_planes \
	tests/unit/attention/test_kernel_rules
tests_unit_attention_test_kernel_SOURCES = \
	tests/unit/attention/test_kernel.c $(kernel_case)
tests_unit_attention_test_kernel_rules_SOURCES = \
	tests/unit/attention/test_kernel_rules.c $(kernel_case)
tests_unit_attention_test_kernel_device_SOURCES = \
	tests/unit/attention/test_kernel_device.c $(kernel_case)
# Compiles programs at run time.
slow_tests += tests/unit/attention/test_kernel_device
