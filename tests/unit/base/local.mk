# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += \
	tests/unit/base/test_context \
	tests/unit/base/test_dtype \
	tests/unit/base/test_fp \
	tests/unit/base/test_math \
	tests/unit/base/test_memory \
	tests/unit/base/test_number \
	tests/unit/base/test_status

# The control word and 80-bit floats are not what valgrind emulates.
slow_tests += tests/unit/base/test_fp tests/unit/base/test_math \
	tests/unit/base/test_dtype
tests_unit_base_test_math_LDADD = $(LDADD) -lm
