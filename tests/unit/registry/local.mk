# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += \
	tests/unit/registry/test_codecs \
	tests/unit/registry/test_descriptors \
	tests/unit/registry/test_encoders \
	tests/unit/registry/test_loops \
	tests/unit/registry/test_modules \
	tests/unit/registry/test_parameters \
	tests/unit/registry/test_wire

# Plugin headers of every release, frozen; test_modules builds with each.
EXTRA_DIST += tests/unit/registry/modules.h \
	tests/abi/1.0/gyre/plugin.h \
	tests/abi/1.0/gyre/plugin_compressor.h \
	tests/abi/1.0/gyre/plugin_optimizer.h \
	tests/abi/1.0/gyre/plugin_schedule.h

tests_unit_registry_test_codecs_LDADD = $(LDADD) -lm
tests_unit_registry_test_encoders_LDADD = $(LDADD) -lm
tests_unit_registry_test_wire_LDADD = $(LDADD) $(XXHASH_LIBS) -lm

# valgrind knows no control word, and a compiler under it takes minutes.
slow_tests += tests/unit/registry/test_loops tests/unit/registry/test_modules
