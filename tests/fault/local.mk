# SPDX-License-Identifier: Apache-2.0
# Crashes, faults, kills, lost allocations and full disks.  GYRE_SOAK=1
# runs the long forms; GYRE_FAULT_FOLDER chooses where the stores lie.
fault_tests_c = \
	tests/fault/test_explorer \
	tests/fault/test_explorer_errors \
	tests/fault/test_crash \
	tests/fault/test_alloc \
	tests/fault/test_io_faults \
	tests/fault/test_io_lasting \
	tests/fault/test_kill \
	tests/fault/test_loop \
	tests/fault/test_measure \
	tests/fault/test_onward \
	tests/fault/test_space
check_PROGRAMS += $(fault_tests_c)
# Thousands of opens and processes.
slow_tests += $(fault_tests_c)

check_LTLIBRARIES += tests/fault/libfault.la
tests_fault_libfault_la_SOURCES = tests/fault/common.c \
	tests/fault/io_trial.c tests/fault/place.c tests/fault/slow.c
tests_fault_libfault_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tests
tests_fault_libfault_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
EXTRA_DIST += tests/fault/common.h tests/fault/crash.h \
	tests/fault/explorer.h tests/fault/io_trial.h tests/fault/slow.h \
	tests/fault/trial.h

fault_cppflags = $(AM_CPPFLAGS) -I$(top_srcdir)/tests
fault_ldadd = tests/fault/libfault.la $(LDADD) $(XXHASH_LIBS)

tests_fault_test_crash_SOURCES = tests/fault/test_crash.c tests/fault/crash.c
tests_fault_test_crash_CPPFLAGS = $(fault_cppflags)
tests_fault_test_crash_LDADD = $(fault_ldadd)
fault_explorer = tests/fault/explorer.c tests/fault/trial.c
tests_fault_test_explorer_SOURCES = tests/fault/test_explorer.c \
	$(fault_explorer)
tests_fault_test_explorer_CPPFLAGS = $(fault_cppflags)
tests_fault_test_explorer_LDADD = $(fault_ldadd)
tests_fault_test_explorer_errors_SOURCES = tests/fault/test_explorer_errors.c \
	$(fault_explorer)
tests_fault_test_explorer_errors_CPPFLAGS = $(fault_cppflags)
tests_fault_test_explorer_errors_LDADD = $(fault_ldadd)
tests_fault_test_io_faults_CPPFLAGS = $(fault_cppflags)
tests_fault_test_io_faults_LDADD = $(fault_ldadd)
tests_fault_test_kill_CPPFLAGS = $(fault_cppflags)
tests_fault_test_kill_LDADD = $(fault_ldadd)
tests_fault_test_loop_CPPFLAGS = $(fault_cppflags)
tests_fault_test_loop_LDADD = $(fault_ldadd)
tests_fault_test_measure_CPPFLAGS = $(fault_cppflags)
tests_fault_test_measure_LDADD = $(fault_ldadd)
tests_fault_test_alloc_CPPFLAGS = $(fault_cppflags)
tests_fault_test_alloc_LDADD = $(fault_ldadd)
tests_fault_test_space_CPPFLAGS = $(fault_cppflags)
tests_fault_test_space_LDADD = $(fault_ldadd)
tests_fault_test_io_lasting_CPPFLAGS = $(fault_cppflags)
tests_fault_test_io_lasting_LDADD = $(fault_ldadd)
tests_fault_test_onward_CPPFLAGS = $(fault_cppflags)
tests_fault_test_onward_LDADD = $(fault_ldadd)
