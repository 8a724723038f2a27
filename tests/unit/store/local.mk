# SPDX-License-Identifier: Apache-2.0
# Folders, models, rounds and the textbook that the tests below share.
check_LTLIBRARIES += tests/unit/store/libfixture.la
tests_unit_store_libfixture_la_SOURCES = \
	tests/unit/store/fixture.c \
	tests/unit/store/fixture.h \
	tests/unit/store/oracle.c
store_LDADD = tests/unit/store/libfixture.la $(LDADD) -lm

check_PROGRAMS += \
	tests/unit/store/test_codecs \
	tests/unit/store/test_commit \
	tests/unit/store/test_compressor \
	tests/unit/store/test_device \
	tests/unit/store/test_early \
	tests/unit/store/test_emulated \
	tests/unit/store/test_exchange \
	tests/unit/store/test_fsck \
	tests/unit/store/test_generation \
	tests/unit/store/test_hostile \
	tests/unit/store/test_independence \
	tests/unit/store/test_inplace \
	tests/unit/store/test_layout \
	tests/unit/store/test_ledger \
	tests/unit/store/test_lifetime \
	tests/unit/store/test_links \
	tests/unit/store/test_mend \
	tests/unit/store/test_micro \
	tests/unit/store/test_near \
	tests/unit/store/test_open \
	tests/unit/store/test_pieces \
	tests/unit/store/test_plan \
	tests/unit/store/test_plan_memory \
	tests/unit/store/test_residual \
	tests/unit/store/test_return \
	tests/unit/store/test_safetensors \
	tests/unit/store/test_safetensors_fail \
	tests/unit/store/test_skip \
	tests/unit/store/test_spike \
	tests/unit/store/test_spill \
	tests/unit/store/test_stream \
	tests/unit/store/test_uneven

# Many stores: minutes under valgrind.
slow_tests += tests/unit/store/test_independence tests/unit/store/test_near \
	tests/unit/store/test_plan tests/unit/store/test_plan_memory
# Programs are built at run time: minutes under valgrind.
slow_tests += tests/unit/store/test_device
# A child that ends in mid-import holds memory, which valgrind calls an error;
# all the rest of it takes seconds there.
slow_tests += tests/unit/store/test_exchange tests/unit/store/test_safetensors \
	tests/unit/store/test_safetensors_fail

tests_unit_store_test_codecs_LDADD = $(store_LDADD)
tests_unit_store_test_commit_LDADD = $(store_LDADD)
tests_unit_store_test_compressor_LDADD = $(store_LDADD)
tests_unit_store_test_device_LDADD = $(store_LDADD)
tests_unit_store_test_early_LDADD = $(store_LDADD)
tests_unit_store_test_emulated_LDADD = $(store_LDADD)
tests_unit_store_test_independence_LDADD = $(store_LDADD)
tests_unit_store_test_inplace_LDADD = $(store_LDADD)
tests_unit_store_test_layout_LDADD = $(store_LDADD)
tests_unit_store_test_ledger_LDADD = $(store_LDADD)
tests_unit_store_test_lifetime_LDADD = $(store_LDADD)
tests_unit_store_test_links_LDADD = $(store_LDADD)
tests_unit_store_test_near_LDADD = $(store_LDADD)
tests_unit_store_test_micro_LDADD = $(store_LDADD)
tests_unit_store_test_open_LDADD = $(store_LDADD)
tests_unit_store_test_residual_LDADD = $(store_LDADD)
tests_unit_store_test_pieces_LDADD = $(store_LDADD)
tests_unit_store_test_plan_LDADD = $(store_LDADD)
tests_unit_store_test_plan_memory_LDADD = $(store_LDADD)
tests_unit_store_test_return_LDADD = $(store_LDADD)
tests_unit_store_test_skip_LDADD = $(store_LDADD)
tests_unit_store_test_spike_LDADD = $(store_LDADD)
tests_unit_store_test_spill_LDADD = $(store_LDADD)
tests_unit_store_test_stream_SOURCES = tests/unit/store/probe.c \
	tests/unit/store/probe.h tests/unit/store/test_stream.c
tests_unit_store_test_stream_LDADD = $(store_LDADD)
tests_unit_store_test_uneven_LDADD = $(store_LDADD)

EXTRA_DIST += tests/unit/store/care.h tests/unit/store/compressed.h \
	tests/unit/store/damage.h tests/unit/store/exchange.h \
	tests/unit/store/planned.h

# Gradients born on a device.
check_PROGRAMS += tests/unit/store/test_birth \
	tests/unit/store/test_birth_lost tests/unit/store/test_birth_pieces \
	tests/unit/store/test_born
tests_unit_store_test_birth_lost_LDADD = $(store_LDADD)
tests_unit_store_test_birth_SOURCES = tests/unit/born.h \
	tests/unit/store/birth.h tests/unit/store/test_birth.c
tests_unit_store_test_birth_LDADD = $(store_LDADD)
tests_unit_store_test_birth_pieces_SOURCES = tests/unit/born.h \
	tests/unit/store/birth.h tests/unit/store/test_birth_pieces.c
tests_unit_store_test_birth_pieces_LDADD = $(store_LDADD)
tests_unit_store_test_born_SOURCES = tests/unit/born.h \
	tests/unit/store/test_born.c
tests_unit_store_test_born_LDADD = $(store_LDADD)
slow_tests += tests/unit/store/test_birth tests/unit/store/test_birth_pieces \
	tests/unit/store/test_born
