# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += \
	tests/unit/transport/test_failure \
	tests/unit/transport/test_threads

tests_unit_transport_test_failure_SOURCES = tests/unit/transport/ranks.h \
	tests/unit/transport/test_failure.c
tests_unit_transport_test_threads_SOURCES = tests/unit/transport/ranks.h \
	tests/unit/transport/test_threads.c
