# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/unit/trace/test_trace tests/unit/trace/test_trace_json
tests_unit_trace_test_trace_json_LDADD = $(LDADD) $(JANSSON_LIBS)
