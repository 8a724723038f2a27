# SPDX-License-Identifier: Apache-2.0
# The executor and its public face.
check_PROGRAMS += \
	tests/unit/attention/test_exact \
	tests/unit/attention/test_face \
	tests/unit/attention/test_fail \
	tests/unit/attention/test_hand \
	tests/unit/attention/test_narrow \
	tests/unit/attention/test_nccl \
	tests/unit/attention/test_on_cuda \
	tests/unit/attention/test_on_device \
	tests/unit/attention/test_run \
	tests/unit/attention/test_shapes \
	tests/unit/attention/test_trial \
	tests/unit/attention/test_workers

attention_trial = tests/unit/attention/trial.c tests/unit/attention/trial.h \
	$(attention_schedules)
tests_unit_attention_test_hand_SOURCES = tests/unit/attention/test_hand.c \
	$(plan_hand)
tests_unit_attention_test_on_device_SOURCES = \
	tests/unit/attention/test_on_device.c $(attention_trial)
tests_unit_attention_test_on_cuda_SOURCES = \
	tests/unit/attention/test_on_cuda.c $(attention_trial)
tests_unit_attention_test_on_cuda_LDADD = $(LDADD) -lm
tests_unit_attention_test_run_SOURCES = tests/unit/attention/test_run.c \
	$(attention_trial)
tests_unit_attention_test_shapes_SOURCES = \
	tests/unit/attention/test_shapes.c $(attention_trial)
tests_unit_attention_test_narrow_SOURCES = \
	tests/unit/attention/test_narrow.c $(attention_trial)
tests_unit_attention_test_trial_SOURCES = tests/unit/attention/test_trial.c \
	$(attention_trial)
tests_unit_attention_test_nccl_SOURCES = tests/unit/attention/test_nccl.c \
	tests/unit/transport/fake/fake_gpu.h $(attention_trial) $(plan_hand)
tests_unit_attention_test_workers_SOURCES = \
	tests/unit/attention/test_workers.c $(attention_trial)
tests_unit_attention_test_exact_SOURCES = \
	tests/unit/attention/test_exact.c $(attention_trial)
tests_unit_attention_test_face_SOURCES = tests/unit/attention/test_face.c \
	$(attention_trial)
tests_unit_attention_test_face_LDADD = $(LDADD) -lm
tests_unit_attention_test_fail_SOURCES = tests/unit/attention/test_fail.c \
	$(attention_trial) $(plan_hand)

# Many plans in little memory: the sanitizer builds run them.
slow_tests += tests/unit/attention/test_exact tests/unit/attention/test_run \
	tests/unit/attention/test_shapes tests/unit/attention/test_proofs \
	tests/unit/attention/test_mutants tests/unit/attention/test_many \
	tests/unit/attention/test_bytes tests/unit/attention/test_forms \
	tests/unit/attention/test_adjoint \
	tests/unit/attention/test_narrow tests/unit/attention/test_workers
# Compiles programs at run time.
slow_tests += tests/unit/attention/test_on_device
