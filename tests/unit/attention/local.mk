# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += \
	tests/unit/attention/test_bytes

attention_schedules = tests/unit/attention/schedules.c \
	tests/unit/attention/schedules.h
tests_unit_attention_test_bytes_SOURCES = \
	tests/unit/attention/test_bytes.c $(attention_schedules)
