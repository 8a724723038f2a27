# SPDX-License-Identifier: Apache-2.0
# Pure parts of `gyre bench`.
check_PROGRAMS += tests/unit/profiler/test_near_model \
	tests/unit/profiler/test_svg

tests_unit_profiler_test_near_model_SOURCES = \
	tests/unit/profiler/test_near_model.c profiler/near_model.c
tests_unit_profiler_test_near_model_CPPFLAGS = $(AM_CPPFLAGS) \
	-I$(top_srcdir)/profiler
tests_unit_profiler_test_near_model_LDADD = $(LDADD) -lm

tests_unit_profiler_test_svg_SOURCES = \
	tests/unit/profiler/test_svg.c profiler/svg.c
tests_unit_profiler_test_svg_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/profiler
tests_unit_profiler_test_svg_LDADD = $(LDADD) -lm
