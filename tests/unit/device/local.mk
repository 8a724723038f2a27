# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += \
	tests/unit/device/test_compress \
	tests/unit/device/test_feedback \
	tests/unit/device/test_leaf \
	tests/unit/device/test_update

tests_unit_device_test_compress_LDADD = $(LDADD) -lm
tests_unit_device_test_feedback_LDADD = $(LDADD) -lm
tests_unit_device_test_leaf_LDADD = $(LDADD) -lm
tests_unit_device_test_update_LDADD = $(LDADD) $(XXHASH_LIBS) -lm
