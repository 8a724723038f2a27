# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += \
	tests/unit/registry/test_descriptors \
	tests/unit/registry/test_loops \
	tests/unit/registry/test_modules \
	tests/unit/registry/test_parameters

# Plugin headers of every release, frozen; test_modules builds with each.
EXTRA_DIST += tests/abi/plugin-1.0.h tests/unit/registry/modules.h

# valgrind knows no control word, and a compiler under it takes minutes.
slow_tests += tests/unit/registry/test_loops tests/unit/registry/test_modules
