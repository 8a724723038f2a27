# SPDX-License-Identifier: Apache-2.0
include tests/unit/attention/exec.mk
include tests/unit/attention/kernel.mk

check_PROGRAMS += \
	tests/unit/attention/test_adjoint \
	tests/unit/attention/test_bytes \
	tests/unit/attention/test_checks \
	tests/unit/attention/test_forms \
	tests/unit/attention/test_many \
	tests/unit/attention/test_mutants \
	tests/unit/attention/test_plugin \
	tests/unit/attention/test_proofs \
	tests/unit/attention/test_prune \
	tests/unit/attention/test_quotient

attention_schedules = tests/unit/attention/counted.c \
	tests/unit/attention/counted.h tests/unit/attention/in_context.h \
	tests/unit/attention/schedules.c tests/unit/attention/schedules.h
tests_unit_attention_test_bytes_SOURCES = \
	tests/unit/attention/test_bytes.c $(attention_schedules)
tests_unit_attention_test_checks_SOURCES = \
	tests/unit/attention/test_checks.c $(attention_schedules)
tests_unit_attention_test_forms_SOURCES = \
	tests/unit/attention/test_forms.c $(attention_schedules)
tests_unit_attention_test_plugin_SOURCES = \
	tests/unit/attention/test_plugin.c $(attention_schedules)
tests_unit_attention_test_proofs_SOURCES = \
	tests/unit/attention/test_proofs.c $(attention_schedules)
tests_unit_attention_test_mutants_SOURCES = \
	tests/unit/attention/test_mutants.c $(plan_interpret) \
	$(attention_schedules)
tests_unit_attention_test_adjoint_SOURCES = \
	tests/unit/attention/test_adjoint.c tests/unit/plan/adjoint.c \
	tests/unit/plan/adjoint.h $(plan_interpret) \
	$(attention_schedules)
tests_unit_attention_test_prune_SOURCES = \
	tests/unit/attention/test_prune.c $(attention_schedules)
tests_unit_attention_test_many_SOURCES = \
	tests/unit/attention/test_many.c $(attention_schedules)
