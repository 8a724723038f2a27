# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += \
	tests/unit/io/test_async \
	tests/unit/io/test_contract \
	tests/unit/io/test_fault \
	tests/unit/io/test_file \
	tests/unit/io/test_limits \
	tests/unit/io/test_lock \
	tests/unit/io/test_names \
	tests/unit/io/test_queue \
	tests/unit/io/test_recorder

io_common = tests/unit/io/common.c tests/unit/io/common.h
tests_unit_io_test_async_SOURCES = tests/unit/io/test_async.c $(io_common)
tests_unit_io_test_contract_SOURCES = tests/unit/io/test_contract.c $(io_common)
tests_unit_io_test_fault_SOURCES = tests/unit/io/test_fault.c $(io_common)
tests_unit_io_test_file_SOURCES = tests/unit/io/test_file.c $(io_common)
tests_unit_io_test_limits_SOURCES = tests/unit/io/test_limits.c $(io_common)
tests_unit_io_test_lock_SOURCES = tests/unit/io/test_lock.c $(io_common)
tests_unit_io_test_names_SOURCES = tests/unit/io/test_names.c $(io_common)
tests_unit_io_test_queue_SOURCES = tests/unit/io/test_queue.c $(io_common)
tests_unit_io_test_recorder_SOURCES = tests/unit/io/test_recorder.c $(io_common)
