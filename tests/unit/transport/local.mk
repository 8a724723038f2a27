# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += \
	tests/unit/transport/test_failure \
	tests/unit/transport/test_threads

tests_unit_transport_test_failure_SOURCES = tests/unit/transport/ranks.h \
	tests/unit/transport/test_failure.c
tests_unit_transport_test_threads_SOURCES = tests/unit/transport/ranks.h \
	tests/unit/transport/test_threads.c

cli_tests += tests/unit/transport/mpi.test

# One rank; mpi.test starts several.
if HAVE_MPI
EXTRA_PROGRAMS += tests/unit/transport/mpi_ranks
check_DATA += tests/unit/transport/mpi_ranks$(EXEEXT)
endif
