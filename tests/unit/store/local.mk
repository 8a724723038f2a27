# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += \
	tests/unit/store/test_fsck \
	tests/unit/store/test_generation \
	tests/unit/store/test_safetensors
EXTRA_DIST += tests/unit/store/care.h
