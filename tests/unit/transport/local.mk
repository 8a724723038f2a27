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

check_PROGRAMS += tests/unit/transport/test_nccl
tests_unit_transport_test_nccl_SOURCES = tests/unit/transport/fake/fake_gpu.h \
	tests/unit/transport/ranks.h tests/unit/transport/test_nccl.c
if HAVE_NCCL
check_LTLIBRARIES += tests/unit/transport/fake/libcuda.la \
	tests/unit/transport/fake/libnccl.la
tests_unit_transport_fake_libcuda_la_SOURCES = \
	tests/unit/transport/fake/fake_gpu.c tests/unit/transport/fake/fake_gpu.h
tests_unit_transport_fake_libcuda_la_CFLAGS = $(AM_CFLAGS) $(NCCL_CFLAGS)
tests_unit_transport_fake_libcuda_la_LDFLAGS = $(AM_LDFLAGS) -shared \
	-rpath /nowhere -version-info 1:0:0
tests_unit_transport_fake_libnccl_la_SOURCES = \
	tests/unit/transport/fake/fake_gpu.h tests/unit/transport/fake/fake_nccl.c
tests_unit_transport_fake_libnccl_la_CFLAGS = $(AM_CFLAGS) $(NCCL_CFLAGS)
tests_unit_transport_fake_libnccl_la_LDFLAGS = $(AM_LDFLAGS) -shared \
	-rpath /nowhere -version-info 2:0:0
endif

check_PROGRAMS += tests/unit/transport/test_gpu
tests_unit_transport_test_gpu_SOURCES = tests/unit/transport/ranks.h \
	tests/unit/transport/test_gpu.c
