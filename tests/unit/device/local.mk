# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += \
	tests/unit/device/test_compute \
	tests/unit/device/test_leaf \
	tests/unit/device/test_nvrtc \
	tests/unit/device/test_update

tests_unit_device_test_compute_SOURCES = tests/unit/device/matrix.h \
	tests/unit/device/test_compute.c
tests_unit_device_test_compute_LDADD = $(LDADD) -lm
tests_unit_device_test_leaf_LDADD = $(LDADD) -lm
tests_unit_device_test_nvrtc_SOURCES = tests/unit/device/matrix.h \
	tests/unit/device/test_nvrtc.c
tests_unit_device_test_nvrtc_LDADD = $(LDADD) -lm
tests_unit_device_test_update_LDADD = $(LDADD) $(XXHASH_LIBS) -lm
