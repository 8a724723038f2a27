# SPDX-License-Identifier: Apache-2.0
# Crashes, faults, kills, lost allocations and full disks.  GYRE_FAULT_LONG=1
# runs the long forms; GYRE_FAULT_FOLDER chooses where the stores lie.
check_PROGRAMS += \
	tests/fault/test_explorer \
	tests/fault/test_io_faults

fault_common = tests/fault/common.c tests/fault/place.c
EXTRA_DIST += tests/fault/common.h tests/fault/explorer.h

tests_fault_test_explorer_SOURCES = tests/fault/test_explorer.c \
	tests/fault/explorer.c $(fault_common)
tests_fault_test_explorer_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tests
tests_fault_test_explorer_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
tests_fault_test_explorer_LDADD = $(LDADD) $(XXHASH_LIBS)

tests_fault_test_io_faults_SOURCES = tests/fault/test_io_faults.c \
	$(fault_common)
tests_fault_test_io_faults_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tests
tests_fault_test_io_faults_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
tests_fault_test_io_faults_LDADD = $(LDADD) $(XXHASH_LIBS)

# Thousands of opens and processes.
slow_tests += tests/fault/test_explorer tests/fault/test_io_faults
