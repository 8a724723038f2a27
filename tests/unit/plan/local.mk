# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += \
	tests/unit/plan/test_build \
	tests/unit/plan/test_file \
	tests/unit/plan/test_layout \
	tests/unit/plan/test_look \
	tests/unit/plan/test_order \
	tests/unit/plan/test_prove \
	tests/unit/plan/test_prove_rules \
	tests/unit/plan/test_radix

plan_interpret = tests/unit/plan/interpret.c tests/unit/plan/interpret.h \
	tests/unit/plan/machine.c tests/unit/plan/machine.h \
	tests/unit/plan/machine_ops.c tests/unit/plan/reference.c
plan_hand = tests/unit/plan/hand.c tests/unit/plan/hand.h
tests_unit_plan_test_build_SOURCES = tests/unit/plan/test_build.c $(plan_hand)
tests_unit_plan_test_file_SOURCES = tests/unit/plan/test_file.c $(plan_hand)
tests_unit_plan_test_look_SOURCES = tests/unit/plan/test_look.c $(plan_hand)
tests_unit_plan_test_order_SOURCES = tests/unit/plan/test_order.c $(plan_hand)
tests_unit_plan_test_prove_SOURCES = tests/unit/plan/test_prove.c $(plan_hand)
tests_unit_plan_test_prove_rules_SOURCES = tests/unit/plan/test_prove_rules.c \
	$(plan_hand)
tests_unit_plan_test_radix_SOURCES = tests/unit/plan/test_radix.c $(plan_hand)
