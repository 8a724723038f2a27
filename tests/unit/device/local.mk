# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += \
	tests/unit/device/test_compress \
	tests/unit/device/test_feedback \
	tests/unit/device/test_coded \
	tests/unit/device/test_leaf \
	tests/unit/device/test_state \
	tests/unit/device/test_update

tests_unit_device_test_compress_LDADD = $(LDADD) -lm
tests_unit_device_test_feedback_LDADD = $(LDADD) -lm
tests_unit_device_test_coded_LDADD = $(LDADD) -lm
tests_unit_device_test_leaf_LDADD = $(LDADD) -lm
tests_unit_device_test_state_LDADD = $(LDADD) -lm
tests_unit_device_test_update_LDADD = $(LDADD) $(XXHASH_LIBS) -lm

# Devices of modules.
check_PROGRAMS += \
	tests/unit/device/test_compute \
	tests/unit/device/test_cuda \
	tests/unit/device/test_cuda_birth \
	tests/unit/device/test_encode \
	tests/unit/device/test_nvrtc \
	tests/unit/device/test_opencl

tests_unit_device_test_compute_SOURCES = tests/unit/device/matrix.h \
	tests/unit/device/test_compute.c
tests_unit_device_test_compute_LDADD = $(LDADD) -lm
tests_unit_device_test_encode_SOURCES = tests/unit/born.h \
	tests/unit/device/matrix.h tests/unit/device/test_encode.c
tests_unit_device_test_encode_LDADD = $(LDADD) -lm
tests_unit_device_test_cuda_SOURCES = tests/unit/device/fake/fake.h \
	tests/unit/device/open_fake.h tests/unit/device/test_cuda.c
tests_unit_device_test_cuda_birth_SOURCES = tests/unit/device/fake/fake.h \
	tests/unit/device/open_fake.h tests/unit/device/test_cuda_birth.c
tests_unit_device_test_opencl_SOURCES = tests/unit/device/fake/fake.h \
	tests/unit/device/open_fake.h tests/unit/device/test_opencl.c
tests_unit_device_test_nvrtc_SOURCES = tests/unit/device/matrix.h \
	tests/unit/device/test_nvrtc.c
tests_unit_device_test_nvrtc_LDADD = $(LDADD) -lm

# They compile programs at run time: minutes under valgrind, which a driver's
# threads confuse as well.
slow_tests += tests/unit/device/test_compute tests/unit/device/test_encode \
	tests/unit/device/test_nvrtc

# Libraries under the names of drivers.
if HAVE_OPENCL
check_LTLIBRARIES += tests/unit/device/fake/libOpenCL.la
tests_unit_device_fake_libOpenCL_la_SOURCES = tests/unit/device/fake/fake.h \
	tests/unit/device/fake/fake_opencl.c
tests_unit_device_fake_libOpenCL_la_CFLAGS = $(AM_CFLAGS) $(OPENCL_CFLAGS)
tests_unit_device_fake_libOpenCL_la_LDFLAGS = $(AM_LDFLAGS) -shared \
	-rpath /nowhere -version-info 1:0:0
endif
if HAVE_CUDA
check_LTLIBRARIES += tests/unit/device/fake/libcuda.la \
	tests/unit/device/fake/libnvrtc.la
tests_unit_device_fake_libcuda_la_SOURCES = tests/unit/device/fake/fake.h \
	tests/unit/device/fake/fake_cuda.c
tests_unit_device_fake_libcuda_la_CFLAGS = $(AM_CFLAGS) $(CUDA_CFLAGS)
tests_unit_device_fake_libcuda_la_LDFLAGS = $(AM_LDFLAGS) -shared \
	-rpath /nowhere -version-info 1:0:0
tests_unit_device_fake_libnvrtc_la_SOURCES = tests/unit/device/fake/fake.h \
	tests/unit/device/fake/fake_nvrtc.c
tests_unit_device_fake_libnvrtc_la_CFLAGS = $(AM_CFLAGS) $(CUDA_CFLAGS)
tests_unit_device_fake_libnvrtc_la_LDFLAGS = $(AM_LDFLAGS) -shared \
	-rpath /nowhere -version-info 13:0:0
endif
