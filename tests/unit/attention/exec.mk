# SPDX-License-Identifier: Apache-2.0
# The executor and its public face.
check_PROGRAMS += tests/unit/attention/test_hand

tests_unit_attention_test_hand_SOURCES = tests/unit/attention/test_hand.c \
	$(plan_hand)
